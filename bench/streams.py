"""How fast the production streams are: large messages one way, small ones there and back, calls.

Run ``python bench/streams.py``. Client and server are two processes on this machine, over loopback.
Each figure is the median of several rounds with the lowest and highest beside it: large messages
vary by more than a factor of two from one run to the next on a shared machine, and so does gRPC
without anything of ours, so a single round says little. The server reports how much it received,
and it must be all.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from pulsarish.runtime.grpc.connections import GrpcConnections
from pulsarish.runtime.seams import Stream
from pulsarish.runtime.tasks import Supervisor

SECONDS = float(os.environ.get("BENCH_SECONDS", "1"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
WINDOW = 2_000


async def _sink(stream: Stream) -> None:
    """Counts and answers each hundredth message, so that the sender cannot run away into gRPC's
    buffers.
    """
    count = size_bytes = 0
    while (message := await stream.receive()) is not None:
        count += 1
        size_bytes += len(message)
        if count % 100 == 0:
            await stream.send([b"more"])
    await stream.send([b"%d %d" % (count, size_bytes)])


async def _echo(stream: Stream) -> None:
    while (message := await stream.receive()) is not None:
        await stream.send([message])


async def _answer(request: bytes) -> bytes:
    return request


async def _serve() -> None:
    connections = GrpcConnections(tasks=Supervisor())
    listener = await connections.serve(
        "127.0.0.1:0", {"bench.sink": _sink, "bench.echo": _echo}, {"bench.answer": _answer}
    )
    print(listener.address, flush=True)
    await asyncio.Event().wait()


async def _large(connections: GrpcConnections, address: str) -> float:
    stream = await connections.open(address, "bench.sink")
    # Not zeroes: whatever might compress or share pages shall not flatter the figure.
    message = random.Random(1).randbytes(100_000)
    room = asyncio.Semaphore(4)
    count = 0
    report = b""

    async def hear() -> None:
        nonlocal report
        while (answer := await stream.receive()) is not None:
            report = answer
            room.release()

    hearing = asyncio.ensure_future(hear())
    started = time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        await room.acquire()
        for _ in range(100):
            await stream.send([message])
        count += 100
    await stream.finish()
    await hearing
    seconds = time.perf_counter() - started
    if report != b"%d %d" % (count, count * len(message)):
        raise RuntimeError(f"sent {count} messages, the server received {report.decode()}")
    return count / seconds


async def _window(connections: GrpcConnections, address: str) -> float:
    stream = await connections.open(address, "bench.echo")
    room = asyncio.Semaphore(WINDOW)
    sent_count = received_count = 0

    async def hear() -> None:
        nonlocal received_count
        while await stream.receive() is not None:
            received_count += 1
            room.release()

    hearing = asyncio.ensure_future(hear())
    started = time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        await room.acquire()
        await stream.send([b"x" * 100])
        sent_count += 1
    await stream.finish()
    await hearing
    if received_count != sent_count:
        raise RuntimeError(f"sent {sent_count} messages, {received_count} came back")
    return received_count / (time.perf_counter() - started)


async def _one_at_a_time(once: Callable[[], Awaitable[object]]) -> float:
    count = 0
    started = time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        await once()
        count += 1
    return count / (time.perf_counter() - started)


async def _measure(address: str) -> None:
    connections = GrpcConnections(tasks=Supervisor())
    echo = await connections.open(address, "bench.echo", lane="ping")

    async def ping() -> None:
        await echo.send([b"x" * 100])
        await echo.receive()

    async def call() -> None:
        await connections.call(address, "bench.answer", b"x" * 100, timeout_seconds=5)

    works: list[tuple[str, Callable[[], Awaitable[float]]]] = [
        ("100 KB messages one way", lambda: _large(connections, address)),
        (f"100 B messages each way, window {WINDOW}", lambda: _window(connections, address)),
        ("100 B there and back on a stream, one at a time", lambda: _one_at_a_time(ping)),
        ("100 B calls, one at a time", lambda: _one_at_a_time(call)),
    ]
    print(
        f"{'a second':<50} {'median':>9} {'lowest':>9} {'highest':>9}   ({ROUNDS} rounds of "
        f"{SECONDS:g} s)"
    )
    for name, work in works:
        rates = [await work() for _ in range(ROUNDS)]
        print(f"{name:<50} {statistics.median(rates):9,.0f} {min(rates):9,.0f} {max(rates):9,.0f}")
    await connections.close()


def main() -> None:
    if sys.argv[1:] == ["serve"]:
        uvloop.run(_serve())
        return
    with subprocess.Popen(
        [sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            uvloop.run(_measure(server.stdout.readline().strip()))
        finally:
            server.kill()


if __name__ == "__main__":
    main()
