"""What a request to the metadata costs its client: ``python bench/metadata.py``.

Nodes are created, read and deleted in ``pulsarish metadata``, one at a time and many at a time, as
by a broker's loop: each caller asks again when it is answered. The rate depends on the server and
on what else the machine does; the client's own CPU a request is its price.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

import uvloop

from pulsarish.metadata.process import open_store
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.loop import LoopCare
from pulsarish.runtime.seams import Op
from pulsarish.runtime.world import production

WINDOWS = (1, 64, 128)
ROUNDS = 3
SECONDS = 1.0
SWITCH_INTERVAL_SECONDS = 0.0005  # as in a server
NODE_BYTES = 200


async def measure(address: str) -> None:
    outside = OutsideWork()
    care = LoopCare(outside)
    care.start()
    parts = production(outside=outside)
    store = await open_store(f"zk://{address}", parts, outside)
    numbers = itertools.count()

    async def change() -> None:
        path = f"/bench-{next(numbers)}"
        await store.commit([Op("create", path, b"x" * NODE_BYTES)])
        await store.commit([Op("delete", path)])

    async def read() -> None:
        await store.get_many(["/bench"])
        await store.get_many(["/bench"])

    async def load(window: int, work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
        """Requests a second, and microseconds of this process's CPU each."""
        count = 0
        until = time.perf_counter() + SECONDS

        async def caller() -> None:
            nonlocal count
            while time.perf_counter() < until:
                await work()
                count += 2

        began, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*(caller() for _ in range(window)))
        return count / (time.perf_counter() - began), (time.process_time() - used) / count * 1e6

    await store.commit([Op("create", "/bench", b"x" * NODE_BYTES)])
    for window in WINDOWS:
        for name, work in (("changes", change), ("reads", read)):
            rates, costs = zip(*[await load(window, work) for _ in range(ROUNDS)], strict=True)
            print(
                f"{name}, {window} at a time: {statistics.median(rates):,.0f}/s, {min(costs):.0f} "
                "us of the client's CPU each",
                flush=True,
            )
    await store.close()
    await parts.close()
    care.stop()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pulsarish-bench-") as directory:
        settings = (f"data_directory={directory}", "listen_address=127.0.0.1:0", "http_address=")
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pulsarish",
                "metadata",
                *[f"--set={setting}" for setting in settings],
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip().rpartition("=")[2]
            sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(measure(address))
        finally:
            server.send_signal(signal.SIGKILL)
            server.wait()


if __name__ == "__main__":
    main()
