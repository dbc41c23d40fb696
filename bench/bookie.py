"""One client process straight to one bookie process over gRPC: adds, with fsync, then reads.

    .venv/bin/python bench/bookie.py [--seconds 5] [--window 2000]

The bookie runs as a process of its own with its metadata in memory; this process is the client.
Prints one line a case: entries a second, latency, and the CPU that the bookie used for each entry
(user and system, from /proc). Then 3,000 entries that lie in an entry log are read three times, one
by one: reads of the log in each round. ``cold`` reads the ledgers of the cases once more, now all
from entry logs. ``--set NAME=VALUE`` sets an option of the bookie.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import deque
from typing import cast

import uvloop

from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.seams import MetadataStore, Stream, World
from pulsarish.runtime.world import production
from pulsarish.wire._pb import bookie_pb2 as pb
from pulsarish.wire.bookie import (
    ReadItem,
    decode_add_response,
    decode_read_response,
    encode_add,
    encode_read,
)
from pulsarish.wire.record import encode_record_head

MESSAGE_BYTES_MAX = 1 << 20
UNANSWERED_MAX = 2
AGAIN_ENTRIES = 3_000
AGAIN_ROUNDS = 3
FLUSH_SECONDS = 300.0


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def add(
    stream: Stream, instance_id: str, ledger_id: int, payload: bytes, window: int, seconds: float
) -> tuple[int, list[float]]:
    """Keep ``window`` entries in flight for a while; the entries added and a sample of
    latencies.
    """
    pushed = confirmed = sent = answered = 0
    waits: deque[tuple[int, float]] = deque()
    latencies: list[float] = []
    wake = asyncio.Event()

    async def receive() -> None:
        nonlocal confirmed, answered
        while (message := await stream.receive()) is not None:
            answered, results = decode_add_response(message)
            for result in results:
                assert result.code == 0, result
                assert result.first == confirmed, (result, confirmed)
                confirmed = result.last + 1
            now = time.perf_counter()
            while waits and waits[0][0] <= confirmed:
                latencies.append(now - waits.popleft()[1])
            wake.set()

    receiver = asyncio.get_running_loop().create_task(receive())
    deadline = time.perf_counter() + seconds
    size = 36 + len(payload)
    count_max = max(1, MESSAGE_BYTES_MAX // size)
    while time.perf_counter() < deadline:
        room = min(window - (pushed - confirmed), count_max)
        if room <= 0 or sent - answered >= UNANSWERED_MAX:
            wake.clear()
            await wake.wait()
            continue
        parts: list[bytes | bytearray | memoryview] = []
        for entry_id in range(pushed, pushed + room):
            parts += (
                encode_record_head(
                    ledger_id, entry_id, confirmed - 1, len(payload) * (entry_id + 1), payload
                ),
                payload,
            )
        pushed += room
        waits.append((pushed, time.perf_counter()))
        sent += 1
        await stream.send(encode_add(instance_id, recovery=False, sizes=[size] * room, parts=parts))
    await stream.finish()
    await receiver
    assert confirmed == pushed
    return pushed, latencies


async def read(
    world: World,
    address: str,
    instance_id: str,
    ledger_id: int,
    count: int,
    *,
    entries_at_once: int = 1 << 30,
) -> int:
    """Read a ledger in order, as a reader does."""
    stream = await world.connections.open(address, "bookie.read", lane="read")
    at = 0
    while at < count:
        span = (at, min(count, at + entries_at_once) - 1)
        await stream.send(
            [encode_read(instance_id, [ReadItem(1, ledger_id, [span], 1 << 20, True)])]
        )
        message = await stream.receive()
        assert message is not None
        _, answers = decode_read_response(message)
        assert answers[0].code == 0, answers[0].code
        at += len(answers[0].records)
    await stream.finish()
    return at


async def status_of(world: World, address: str) -> pb.StatusResponse:
    answer = await world.connections.call(address, "bookie.status", b"", timeout_seconds=5)
    return pb.StatusResponse.FromString(answer)


async def until_flushed(world: World, address: str) -> None:
    """Return once the write cache is on disk. Raises ``TimeoutError`` when that takes too long."""
    async with asyncio.timeout(FLUSH_SECONDS):
        while (await status_of(world, address)).write_cache_bytes:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.5)


def log_reads(http_address: str) -> int:
    """Return how often the bookie has read an entry log."""
    with urllib.request.urlopen(f"http://{http_address}/metrics", timeout=5) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("pulsarish_bookie_entry_log_reads_total"):
                return int(float(line.rsplit(" ", 1)[1]))
    raise AssertionError("the bookie does not count its reads of entry logs")


async def read_once(
    name: str,
    world: World,
    address: str,
    instance_id: str,
    pid: int,
    ledger_id: int,
    size: int,
    count: int,
) -> None:
    before, started = cpu_seconds(pid), time.perf_counter()
    await read(world, address, instance_id, ledger_id, count)
    took, used = time.perf_counter() - started, cpu_seconds(pid) - before
    print(
        f"{name} {size:>6} B sequential:  {count / took:>9,.0f} entries/s "
        f"{count * size / took / 1e6:>6.0f} MB/s  bookie {used / count * 1e6:.2f} us CPU an entry"
    )


async def read_again(
    world: World, address: str, http_address: str, instance_id: str, pid: int
) -> None:
    """Read entries that are in an entry log three times, one by one."""
    ledger_id, payload = 100, os.urandom(1024)
    stream = await world.connections.open(address, "bookie.add")
    parts: list[bytes | bytearray | memoryview] = []
    for entry_id in range(AGAIN_ENTRIES):
        head = encode_record_head(ledger_id, entry_id, entry_id - 1, 1024 * (entry_id + 1), payload)
        parts += (head, payload)
    sizes = [36 + len(payload)] * AGAIN_ENTRIES
    await stream.send(encode_add(instance_id, recovery=False, sizes=sizes, parts=parts))
    while (message := await stream.receive()) is not None:
        if decode_add_response(message)[0] == 1:
            break
    await stream.finish()
    for _ in range(60):  # until the checkpoint has moved the entries to the log
        await asyncio.sleep(0.5)
        if not (await status_of(world, address)).write_cache_bytes:
            break
    for number in range(1, AGAIN_ROUNDS + 1):
        reads, before, started = log_reads(http_address), cpu_seconds(pid), time.perf_counter()
        await read(world, address, instance_id, ledger_id, AGAIN_ENTRIES, entries_at_once=1)
        took, used = time.perf_counter() - started, cpu_seconds(pid) - before
        reads = log_reads(http_address) - reads
        print(
            f"again  1024 B one by one, round {number}: {reads:>6,} reads of the log "
            f"{AGAIN_ENTRIES / took:>7,.0f} entries/s  bookie "
            f"{used / AGAIN_ENTRIES * 1e6:.2f} us CPU an entry"
        )


async def run(arguments: argparse.Namespace, address: str, http_address: str, pid: int) -> None:
    world = production(outside=OutsideWork()).world(cast("MetadataStore", None))
    status = await status_of(world, address)
    cases = [(100, arguments.window), (1024, arguments.window), (100 * 1024, 200), (1024, 1)]
    counts: dict[int, tuple[int, int]] = {}
    for number, (size, window) in enumerate(cases):
        payload = os.urandom(size)
        stream = await world.connections.open(address, "bookie.add")
        ledger_id = number + 1
        before, started = cpu_seconds(pid), time.perf_counter()
        count, latencies = await add(
            stream, status.instance_id, ledger_id, payload, window, arguments.seconds
        )
        took, used = time.perf_counter() - started, cpu_seconds(pid) - before
        latencies.sort()
        p50, p99 = (latencies[int(len(latencies) * share)] * 1000 for share in (0.5, 0.99))
        print(
            f"add  {size:>6} B window {window:>4}: {count / took:>9,.0f} entries/s "
            f"{count * size / took / 1e6:>6.0f} MB/s  p50 {p50:.2f} ms p99 {p99:.2f} ms  bookie "
            f"{used / count * 1e6:.2f} us CPU an entry"
        )
        if window > 1:
            count = min(count, 500_000_000 // size)
            counts[ledger_id] = size, count
            await read_once("read", world, address, status.instance_id, pid, ledger_id, size, count)
    await read_again(world, address, http_address, status.instance_id, pid)
    for ledger_id, (size, count) in counts.items():
        await read_once("cold", world, address, status.instance_id, pid, ledger_id, size, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--window", type=int, default=2000)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pulsarish-bench-") as directory:
        settings = [
            "bookie_id=bench",
            "metadata_url=memory:",
            "listen_address=127.0.0.1:0",
            "http_address=127.0.0.1:0",
            f"data_directory={directory}",
            *arguments.set,
        ]
        command = [
            sys.executable,
            "-m",
            "pulsarish",
            "bookie",
            *(part for setting in settings for part in ("--set", setting)),
        ]
        bookie = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert bookie.stdout is not None
            line = bookie.stdout.readline()
            address, http_address = (
                line.split(f"{each}=")[1].split()[0] for each in ("grpc", "http")
            )
            uvloop.run(run(arguments, address, http_address, bookie.pid))
        finally:
            bookie.terminate()
            bookie.wait(20)


if __name__ == "__main__":
    main()
