"""What one bookie with much on its disk takes: ``python -m bench.large_bookie``.

Closed ledgers are added straight to a bookie, with their records in a metadata daemon, first few
and then many. Printed for each size, as a row for ``docs/operations.md``: the start after a
graceful stop and after SIGKILL while entries were added, resident memory, bytes of index an entry,
a round of garbage collection that finds nothing, and one after some ledgers were deleted, which
rewrites entry logs, with the latency of reads of single entries at random before and meanwhile.
Needs root, to drop the page cache before each start.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from bench.bookie import status_of, until_flushed
from bench.catch_up import SPAWN, Helper, Took, drop_page_cache, fill, own_world
from bench.ledger import address_of, connected
from bench.measure import cpu_seconds, percentile, rss_bytes
from pulsarish.ledger.bookie_states import GarbageState
from pulsarish.local_cluster.ports import free_ports
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    first_segments,
)
from pulsarish.runtime.seams import FRAMED
from pulsarish.wire.bookie import ReadItem, decode_read_response, encode_read

GROUP = 50  # ledgers whose entries lie among each other
AT_ONCE = 200  # records stored in the metadata at a time
STARTS = 3
READ_SECONDS = 0.01
BEFORE_SECONDS = 10.0
ROUND_SECONDS = 3_600.0
DIRTY_BYTES = 30_000_000
SETTINGS = (
    "gc_interval_seconds=36000",
    "gc_second_look_seconds=0",
    "trash_grace_seconds=0",
    "local_scrub_interval_seconds=0",
)


class Start(NamedTuple):
    """What a start took until the server said that it is ready."""

    seconds: float
    cpu_seconds: float


@dataclass
class Server:
    """A process of the metadata daemon or of a bookie."""

    role: str
    settings: list[str]
    process: subprocess.Popen[str] | None = None

    def start(self) -> tuple[str, Start]:
        """Return the line that says that it is ready, and what it took until then."""
        words = [word for setting in self.settings for word in ("--set", setting)]
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pulsarish", self.role, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " ready " in line, f"the {self.role} did not start: {line!r}"
        return line, Start(time.perf_counter() - began, cpu_seconds([self.process.pid]))

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stop(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            _ = self.process.wait(120)
            self.process = None


@dataclass(slots=True)
class Large:
    """What was measured of one size."""

    stored_bytes: int = 0
    ledgers: int = 0
    fill_seconds: float = 0.0
    empty: list[Start] = field(default_factory=list)
    clean: list[Start] = field(default_factory=list)
    dirty: list[Start] = field(default_factory=list)
    full_mib: float = 0.0
    started_mib: float = 0.0
    peak_mib: float = 0.0
    index_bytes: float = 0.0
    idle_round_seconds: float = 0.0
    round_seconds: float = 0.0
    round_cpu_seconds: float = 0.0
    state: GarbageState | None = None
    live: Took = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0

    def rows(self) -> list[tuple[str, str]]:
        before, during = (
            [took for due, took in self.live if first <= due < last]
            for first, last in ((0.0, self.began), (self.began, self.ended))
        )
        return [
            ("stored", f"{self.stored_bytes / 1e9:.1f} GB, {self.ledgers:,} ledgers"),
            ("filled in", f"{self.fill_seconds:.0f} s"),
            ("first start", _starts(self.empty)),
            ("start after a stop", _starts(self.clean)),
            ("start after SIGKILL", _starts(self.dirty)),
            (
                "resident: filled, started, at most while collecting",
                f"{self.full_mib:.0f}, {self.started_mib:.0f}, {self.peak_mib:.0f} MiB",
            ),
            ("index", f"{self.index_bytes:.2f} bytes an entry"),
            ("a round that finds nothing", f"{self.idle_round_seconds:.2f} s"),
            ("a round with deletion", self._round()),
            ("read p50 / p99 before, meanwhile", f"{_times(before)}, {_times(during)} ms"),
        ]

    def _round(self) -> str:
        state = self.state
        assert state is not None
        return (
            f"{self.round_seconds:.1f} s, {self.round_cpu_seconds:.1f} s of CPU: "
            f"{state.ledgers_deleted:,} ledgers and {state.logs_deleted} logs deleted, "
            f"{state.freed_bytes / 1e6:,.0f} MB freed, {state.copied_bytes / 1e6:,.0f} MB copied"
        )


def _starts(found: list[Start]) -> str:
    seconds = [each.seconds for each in found]
    cpu = statistics.median(each.cpu_seconds for each in found)
    return (
        f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
        f"{cpu:.2f} s of CPU"
    )


def _times(found: list[float]) -> str:
    return " / ".join(f"{percentile(found, each) * 1000:.1f}" for each in (50, 99))


async def fill_ledgers(url: str, address: str, member: str, size: int, count: int, to: int) -> None:
    """Add closed ledgers 0 to ``to``, each with ``count`` entries of ``size`` bytes."""
    async with connected(url) as (_, store):
        for first in range(0, to, AT_ONCE):
            _ = await asyncio.gather(
                *(
                    store.store(
                        LedgerMetadata(
                            ledger_id=ledger_id,
                            ensemble_size=1,
                            write_quorum=1,
                            ack_quorum=1,
                            purpose=LedgerPurpose(PurposeKind.DIAGNOSTIC, "bench"),
                            segments=first_segments((member,)),
                            state=LedgerState.CLOSED,
                            last_entry=count - 1,
                            length_bytes=count * size,
                        ),
                        None,
                    )
                    for ledger_id in range(first, min(to, first + AT_ONCE))
                )
            )
    for first in range(0, to, GROUP):
        await fill(address, member, range(first, min(to, first + GROUP)), size, count)


async def delete_ledgers(url: str, ledgers: list[int]) -> None:
    async with connected(url) as (_, store):
        for first in range(0, len(ledgers), AT_ONCE):
            page = ledgers[first : first + AT_ONCE]
            _ = await asyncio.gather(*(store.delete(each, 0) for each in page))


async def collect(url: str, member: str, pid: int) -> tuple[GarbageState, float, float]:
    """Return what one round did, the seconds that it took, and the most memory meanwhile, MiB."""
    async with connected(url) as (client, _):
        began, peak = time.perf_counter(), 0.0
        wanted = (await client.control.collect_garbage(member, begin=True)).wanted
        async with asyncio.timeout(ROUND_SECONDS):
            while True:
                state = await client.control.collect_garbage(member, begin=False)
                peak = max(peak, rss_bytes(pid) / 2**20)
                if state.ended >= wanted:
                    assert not state.failure, state.failure
                    return state, time.perf_counter() - began, peak
                await asyncio.sleep(0.1)


async def _read_at_random(
    address: str, member: str, ledgers: range, count: int, stop: Event
) -> Took:
    stream = await own_world().connections.open(address, "bookie.read", lane="read")
    chance, found = random.Random(1), cast("Took", [])
    while not stop.is_set():
        entry, ledger_id = chance.randrange(count), chance.choice(ledgers)
        began = time.monotonic()
        item = ReadItem(1, ledger_id, [(entry, entry)], 1 << 20, True)
        await stream.send([encode_read(member, [item])])
        message = await stream.receive()
        assert message is not None
        _, (answer,) = decode_read_response(message)
        assert not answer.code, (ledger_id, entry, answer.code)
        found.append((began, time.monotonic() - began))
        await asyncio.sleep(READ_SECONDS)
    await stream.finish()
    return found


def read_at_random(address: str, member: str, ledgers: range, count: int, stop: Event) -> Took:
    """Read single entries of some ledgers until ``stop``, in a process of its own."""
    return uvloop.run(_read_at_random(address, member, ledgers, count, stop))


def measure(directory: Path, gigabytes: float, ledgers: int, options: argparse.Namespace) -> Large:
    metadata = Server(
        "metadata",
        [f"data_directory={directory}/metadata", "listen_address=127.0.0.1:0", "http_address="],
    )
    bookie = Server("bookie", [])
    try:
        url = f"zk://{address_of(metadata.start()[0])}/pulsarish"
        port, http = (next(free_ports("127.0.0.1")) for _ in range(2))
        bookie.settings = [
            "bookie_id=bench",
            f"metadata_url={url}",
            "listen_address=127.0.0.1:0",
            f"framed_port={port}",
            f"http_address=127.0.0.1:{http}",
            f"data_directory={directory}/bookie",
            *SETTINGS,
            *options.bookie,
        ]
        return _measure(url, f"{FRAMED}127.0.0.1:{port}", bookie, gigabytes, ledgers, options)
    finally:
        bookie.stop(signal.SIGKILL)
        metadata.stop(signal.SIGKILL)


def _measure(
    url: str,
    address: str,
    bookie: Server,
    gigabytes: float,
    ledgers: int,
    options: argparse.Namespace,
) -> Large:
    size, found = options.size, Large(ledgers=ledgers)
    count = max(1, int(gigabytes * 1e9) // ledgers // size)
    found.stored_bytes = count * size * ledgers
    found.empty.append(bookie.start()[1])
    member = uvloop.run(status_of(own_world(), address)).instance_id
    began = time.perf_counter()
    uvloop.run(fill_ledgers(url, address, member, size, count, ledgers))
    found.fill_seconds = time.perf_counter() - began
    uvloop.run(until_flushed(own_world(), address))
    found.full_mib = rss_bytes(bookie.pid) / 2**20
    for number in range(STARTS):
        bookie.stop(signal.SIGTERM)
        drop_page_cache()
        found.clean.append(bookie.start()[1])
        # Above the others, so that no round deletes it before the next start.
        dirty = ledgers + number
        uvloop.run(fill(address, member, [dirty], size, DIRTY_BYTES // size))
        bookie.stop(signal.SIGKILL)
        drop_page_cache()
        found.dirty.append(bookie.start()[1])
        found.started_mib = rss_bytes(bookie.pid) / 2**20
        uvloop.run(until_flushed(own_world(), address))
    paths = Path(bookie.settings[5].partition("=")[2], "index").rglob("*")
    found.index_bytes = sum(each.stat().st_size for each in paths if each.is_file()) / (
        count * ledgers
    )
    uvloop.run(collect(url, member, bookie.pid))  # the ledgers of dirty starts have no records
    _, found.idle_round_seconds, _ = uvloop.run(collect(url, member, bookie.pid))
    part = ledgers // options.parts
    uvloop.run(delete_ledgers(url, [*range(0, part, 2), *range(part, 2 * part)]))
    stop = SPAWN.Event()
    drop_page_cache()
    reader = Helper(read_at_random, address, member, range(2 * part, ledgers), count, stop)
    time.sleep(BEFORE_SECONDS)
    found.began, used = time.monotonic(), cpu_seconds([bookie.pid])
    found.state, found.round_seconds, found.peak_mib = uvloop.run(collect(url, member, bookie.pid))
    found.ended, found.round_cpu_seconds = time.monotonic(), cpu_seconds([bookie.pid]) - used
    stop.set()
    found.live = cast("Took", reader.result()[0])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, nargs="*", default=[2.0, 20.0])
    parser.add_argument("--ledgers", type=int, nargs="*", default=[5_000, 50_000])
    parser.add_argument("--size", type=int, default=8_000, help="bytes of an entry")
    parser.add_argument(
        "--parts",
        type=int,
        default=20,
        help="of all ledgers: half of the first part is deleted, and all of the second one",
    )
    parser.add_argument("--bookie", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    if len(options.gigabytes) != len(options.ledgers):
        parser.error("give as many --ledgers as --gigabytes")
    if options.size < 1 or options.parts < 3 or min(options.ledgers, default=0) < options.parts:
        parser.error("--size is at least 1, --parts at least 3, and no --ledgers below --parts")
    for gigabytes, ledgers in zip(options.gigabytes, options.ledgers, strict=True):
        with tempfile.TemporaryDirectory(prefix="pulsarish-bench-") as directory:
            found = measure(Path(directory), gigabytes, ledgers, options)
        for what, figure in found.rows():
            print(f"| {what} | {figure} |", flush=True)
        print(f"machine: load {os.getloadavg()[0]:.1f}\n", flush=True)


if __name__ == "__main__":
    main()
