"""The ledger writer in this process against three bookie processes, with fsync: the
ledger path's own limit.

    .venv/bin/python bench/ledger.py [--seconds 5] [--window 2000] [--case NAME]... [--transport T]

Qw 3, Qa 2, metadata in a daemon of its own. Prints one line a case: entries a second, latency from
``append`` to confirmed, and the CPU that this process and the three bookies used for each entry.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import get_args

import uvloop

from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.metadata.connect import connect
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerPurpose, PurposeKind
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.loop import LoopCare
from pulsarish.runtime.network.address_book import Transport
from pulsarish.runtime.world import production

# name: (payload bytes, window, wanted entries a second, wanted p50 in ms)
CASES: dict[str, tuple[int, int, float, float]] = {
    "100B": (100, 2_000, 100_000, 0),
    "1KB": (1_000, 2_000, 60_000, 0),
    "100KB": (100_000, 100, 0, 0),
    "one-at-a-time": (100, 1, 0, 1.2),
}
FAULTS = ("stop", "kill")  # of one bookie, in this order: the last bookie is dead after the second
SAMPLE_EVERY = 16
WARM_SECONDS = 1.0


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Load:
    """Keeps ``window`` entries between the last appended and the last confirmed."""

    def __init__(self, payload: bytes, window: int) -> None:
        self.payload = payload
        self.window = window
        self.last = -1
        self.error: PulsarishError | None = None
        self.latencies: list[float] = []
        self.wake = asyncio.Event()
        self.sampled: deque[tuple[int, float]] = deque()

    def confirmed(self, last_entry: int) -> None:
        self.last = last_entry
        if self.sampled and self.sampled[0][0] <= last_entry:
            now = time.perf_counter()
            while self.sampled and self.sampled[0][0] <= last_entry:
                self.latencies.append(now - self.sampled.popleft()[1])
        self.wake.set()

    def stopped(self, error: PulsarishError) -> None:
        self.error = error
        self.wake.set()

    async def run(self, writer: LedgerWriter, seconds: float) -> int:
        """Append for a while; how many entries were confirmed."""
        start = self.last
        until = time.perf_counter() + seconds
        append, payload, every = writer.append, self.payload, SAMPLE_EVERY if self.window > 1 else 1
        while (now := time.perf_counter()) < until:
            if self.error is not None:
                raise self.error
            for _ in range(self.last + self.window - writer.last_add_pushed):
                entry_id = append(payload)
                if entry_id % every == 0:
                    self.sampled.append((entry_id, now))
            self.wake.clear()
            await self.wake.wait()
        return self.last - start


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


async def measure(
    client: LedgerClient, name: str, seconds: float, window: int | None, pids: list[int]
) -> None:
    size, usual_window, wanted_rate, wanted_ms = CASES[name]
    load = Load(
        os.urandom(size), window if window is not None and usual_window > 1 else usual_window
    )
    writer = await client.create(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        purpose=LedgerPurpose(PurposeKind.DIAGNOSTIC, "bench"),
        listener=load,
    )
    await load.run(writer, WARM_SECONDS)
    load.latencies.clear()
    own, theirs, began = time.process_time(), sum(map(cpu_seconds, pids)), time.perf_counter()
    count = await load.run(writer, seconds)
    took = time.perf_counter() - began
    own, theirs = time.process_time() - own, sum(map(cpu_seconds, pids)) - theirs
    p50, p99 = percentile(load.latencies, 0.5), percentile(load.latencies, 0.99)
    wanted = (
        f" (wanted {wanted_rate:,.0f}/s)"
        if wanted_rate
        else f" (wanted p50 {wanted_ms} ms)"
        if wanted_ms
        else ""
    )
    print(
        f"{name:>14}: {count / took:>9,.0f} entries/s {count * size / took / 1e6:>6.1f} MB/s  p50 "
        f"{p50:6.2f} ms  p99 {p99:6.2f} ms  CPU an entry: writer {own / count * 1e6:5.1f} us, "
        f"three bookies {theirs / count * 1e6:5.1f} us{wanted}",
        flush=True,
    )
    metadata = await writer.close()
    reader = await client.open(writer.ledger_id)
    assert reader.last_add_confirmed == metadata.last_entry
    began, entry_id = time.perf_counter(), 0
    while (
        entry_id <= min(metadata.last_entry, 300_000_000 // size)
        and time.perf_counter() - began < seconds
    ):
        entry_id += len(await reader.read(entry_id, metadata.last_entry, max_bytes=1 << 20))
    if usual_window > 1:
        print(
            f"{'':>14}  read back {entry_id / (time.perf_counter() - began):,.0f} entries/s",
            flush=True,
        )
    await client.delete(writer.ledger_id)


async def pause(client: LedgerClient, name: str, seconds: float, pid: int) -> None:
    """5,000 entries of 1 KB a second; a bookie dies or stands still in the middle: the longest time
    without a confirmation.
    """
    load = Load(os.urandom(1_000), 1_000_000)
    writer = await client.create(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        purpose=LedgerPurpose(PurposeKind.DIAGNOSTIC, "bench"),
        listener=load,
    )
    longest = {"before": 0.0, "after": 0.0}
    rss_before = rss_bytes()
    began = last_moved = time.perf_counter()
    moved = -1
    struck = False
    latencies: dict[str, list[float]] = {"before": [], "after": []}
    while (now := time.perf_counter()) < began + seconds:
        if not struck and now > began + seconds / 2:
            struck = True
            latencies["before"], load.latencies = load.latencies, []
            os.kill(pid, signal.SIGKILL if name == "kill" else signal.SIGSTOP)
        for _ in range(int((now - began) * 5_000) - writer.last_add_pushed):
            if writer.has_room:
                entry_id = writer.append(load.payload)
                load.sampled.append((entry_id, now))
        if load.last > moved:
            moved, last_moved = load.last, now
        when = "after" if struck else "before"
        longest[when] = max(longest[when], now - last_moved)
        if load.error is not None:
            raise load.error
        await asyncio.sleep(0.001)
    latencies["after"] = load.latencies
    print(
        f"{name:>14}: longest pause {longest['before'] * 1000:.0f} ms before, "
        f"{longest['after'] * 1000:.0f} ms after; p99 {percentile(latencies['before'], 0.99):.1f} "
        f"ms before, {percentile(latencies['after'], 0.99):.1f} ms after; {load.last + 1} "
        f"confirmed; memory grew by {(rss_bytes() - rss_before) / 1e6:.0f} MB",
        flush=True,
    )
    os.kill(pid, signal.SIGCONT if name == "stop" else 0)
    writer.abandon()


def rss_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def connected(
    url: str, options: LedgerOptions | None = None, outside: OutsideWork | None = None
) -> AsyncIterator[tuple[LedgerClient, LedgerStore]]:
    """A client of the ledgers whose metadata are at ``url``."""
    outside = outside or OutsideWork()
    parts = production(outside=outside)
    store = await connect(
        url,
        clock=parts.clock,
        tasks=parts.tasks,
        rng=parts.random,
        files=parts.files,
        open_index=parts.open_index,
        outside=outside,
    )
    world = parts.world(store)
    client = LedgerClient(world, options or LedgerOptions())
    await client.start()
    try:
        yield client, LedgerStore(Records(store, world.clock, world.random), world.clock)
    finally:
        await client.close()
        await store.close()
        await parts.close()


async def run(arguments: argparse.Namespace, url: str, pids: list[int]) -> None:
    outside = OutsideWork()
    care = LoopCare(outside)
    care.start()
    async with connected(url, LedgerOptions(transport=arguments.transport), outside) as (client, _):
        for name in arguments.case or (*CASES, *FAULTS):
            if name in FAULTS:
                await pause(client, name, 2 * arguments.seconds, pids[-1])
            else:
                await measure(client, name, arguments.seconds, arguments.window, pids)
        care.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--window", type=int, default=None)
    parser.add_argument("--transport", choices=get_args(Transport), default="auto")
    parser.add_argument("--case", action="append", choices=[*CASES, *FAULTS])
    arguments = parser.parse_args()
    processes: list[subprocess.Popen[str]] = []

    def start(role: str, *settings: str) -> str:
        flags = [word for setting in settings for word in ("--set", setting)]
        process = subprocess.Popen(
            [sys.executable, "-m", "pulsarish", role, *flags], stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " ready " in line, f"the {role} did not start: {line!r}"
        return line

    with tempfile.TemporaryDirectory(prefix="pulsarish-bench-") as directory:
        try:
            line = start(
                "metadata",
                f"data_directory={directory}/metadata",
                "listen_address=127.0.0.1:0",
                "http_address=",
            )
            url = f"zk://{address_of(line)}/pulsarish"
            for number in range(3):
                start(
                    "bookie",
                    f"bookie_id=b{number}",
                    f"data_directory={directory}/b{number}",
                    f"metadata_url={url}",
                    "listen_address=127.0.0.1:0",
                    "http_address=",
                )
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(run(arguments, url, [process.pid for process in processes[1:]]))
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return 0


def address_of(line: str) -> str:
    """The first host:port in a line that says ready."""
    return next(
        word.rpartition("=")[2] for word in line.split() if word.rpartition(":")[2].isdigit()
    )


if __name__ == "__main__":
    sys.exit(main())
