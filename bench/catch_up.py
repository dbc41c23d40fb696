"""Catch-up of a cold backlog from one bookie: ``python -m bench.catch_up [bookie|broker] ...``.

* ``bookie``: a process reads the backlog of one ledger straight from a bookie, as a broker asks for
  it, while another one adds 1,000 entries of 1 KB a second to another ledger.
* ``broker``: a reader of a topic at a broker with one bookie, and a producer of another topic.

The page cache is dropped before each catch-up, which needs root. Printed for each catch-up: MB/s,
the CPU of each process for a MB besides what publishing takes, reads of entry logs for a MB, and
the p99 of publishing before and during the catch-up. ``--against TREE`` measures servers from
another tree in turn with these. Only the medians of several rounds, the CPU and the ratios say
something on a machine that is shared.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import cast

import uvloop

import pulsarish
import pulsarish.asyncio
from bench.bookie import status_of, until_flushed
from bench.measure import cpu_seconds, percentile, running_cluster, wait_until
from bench.steady import machine_busy_seconds, servers_from
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.seams import FRAMED, MetadataStore, World
from pulsarish.runtime.world import production
from pulsarish.wire.bookie import (
    ReadItem,
    decode_add_response,
    decode_read_response,
    encode_add,
    encode_read,
)
from pulsarish.wire.record import RECORD_HEAD_SIZE, decode_entry_record, encode_record_head

BACKLOG_LEDGER, OTHER_LEDGER, LIVE_LEDGER = 1, 2, 3
FILL_BYTES = 1 << 20
RATE, LIVE_BYTES = 1_000, 1_024
BEFORE_SECONDS = 8.0
WARM_SECONDS = 2.0
READ_BYTES = 1 << 20
SPAWN = multiprocessing.get_context("spawn")
Took = list[tuple[float, float]]
"""When each message was due, by ``monotonic``, and how long its receipt took."""


@dataclass(slots=True)
class Caught:
    """One catch-up."""

    began: float = 0.0
    ended: float = 0.0
    size_bytes: int = 0
    cpu: dict[str, float] = field(default_factory=dict)
    log_reads: float = 0.0
    disk_bytes: int = 0
    live: Took = field(default_factory=list)
    others_share: float = 0.0

    @property
    def rate(self) -> float:
        return self.size_bytes / 1e6 / (self.ended - self.began)

    def p99(self, *, during: bool) -> float:
        first = self.live[0][0] + WARM_SECONDS
        took = [
            each
            for due, each in self.live
            if (self.began <= due <= self.ended if during else first <= due < self.began)
        ]
        return percentile(took, 99) * 1000

    def line(self) -> str:
        megabytes = self.size_bytes / 1e6
        cpu = ", ".join(f"{name} {used / megabytes * 1e3:.2f}" for name, used in self.cpu.items())
        before, during = self.p99(during=False), self.p99(during=True)
        return (
            f"{self.rate:.0f} MB/s; ms of CPU a MB: {cpu}; {self.log_reads / megabytes:.2f} reads "
            f"of logs a MB, {self.disk_bytes / self.size_bytes:.2f} bytes from the disk a byte; "
            f"p99 of publishing {before:.1f} ms before, {during:.1f} ms during "
            f"(x{during / max(before, 1e-9):.2f}); others used {self.others_share:.0%} of the "
            f"machine, load {os.getloadavg()[0]:.1f}"
        )


def counter(http_address: str, name: str) -> float:
    with urllib.request.urlopen(f"http://{http_address}/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name):
                return float(line.rpartition(" ")[2])
    return 0.0


def disk_bytes(pid: int) -> int:
    """Return the bytes that a process has had read from disks so far."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("read_bytes: "):
            return int(line.split()[1])
    return 0


def drop_page_cache() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def own_world() -> World:
    return production(outside=OutsideWork()).world(cast("MetadataStore", None))


async def fill(
    address: str, instance_id: str, ledgers: Sequence[int], size: int, count: int
) -> None:
    """Add ``count`` entries to each of some ledgers, side by side."""
    stream = await own_world().connections.open(address, "bookie.add")
    payload = os.urandom(size)
    answered = 0
    heard = asyncio.Event()

    async def receive() -> None:
        nonlocal answered
        while (message := await stream.receive()) is not None:
            answered, results = decode_add_response(message)
            assert not any(result.code for result in results)
            heard.set()

    receiver = asyncio.get_running_loop().create_task(receive())
    step = max(1, FILL_BYTES // size // len(ledgers))
    for sent, start in enumerate(range(0, count, step)):
        entries = range(start, min(count, start + step))
        parts: list[bytes | bytearray | memoryview] = []
        for ledger_id in ledgers:
            for entry in entries:
                head = encode_record_head(ledger_id, entry, entry - 1, size * (entry + 1), payload)
                parts += (head, payload)
        sizes = [RECORD_HEAD_SIZE + size] * (len(parts) // 2)
        while sent - answered >= 2:
            heard.clear()
            _ = await heard.wait()
        await stream.send(encode_add(instance_id, recovery=False, sizes=sizes, parts=parts))
    await stream.finish()
    await receiver


async def add_steadily(address: str, instance_id: str, stop: Event) -> Took:
    """Add entries at a rate until ``stop``."""
    stream = await own_world().connections.open(address, "bookie.add")
    payload = os.urandom(LIVE_BYTES)
    waits: deque[float] = deque()
    taken: Took = []
    sent = answered = 0
    heard = asyncio.Event()

    async def receive() -> None:
        nonlocal answered
        while (message := await stream.receive()) is not None:
            answered, results = decode_add_response(message)
            now = time.monotonic()
            for result in results:
                assert not result.code
                for _ in range(result.first, result.last + 1):
                    due = waits.popleft()
                    taken.append((due, now - due))
            heard.set()

    receiver = asyncio.get_running_loop().create_task(receive())
    started, entry = time.monotonic(), 0
    while not stop.is_set():
        while sent - answered >= 2:
            heard.clear()
            _ = await heard.wait()
        parts: list[bytes | bytearray | memoryview] = []
        sizes: list[int] = []
        while (due := started + entry / RATE) <= time.monotonic():
            head = encode_record_head(
                LIVE_LEDGER, entry, entry - 1, LIVE_BYTES * (entry + 1), payload
            )
            parts += (head, payload)
            sizes.append(len(head) + LIVE_BYTES)
            waits.append(due)
            entry += 1
        if sizes:
            sent += 1
            await stream.send(encode_add(instance_id, recovery=False, sizes=sizes, parts=parts))
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    await stream.finish()
    await receiver
    return taken


async def catch_up(address: str, instance_id: str, size: int, count: int) -> tuple[float, float]:
    """Read the backlog as a broker does: 1 MiB after the other, each record checked."""
    stream = await own_world().connections.open(address, "bookie.read", lane="read")
    began, at = time.monotonic(), 0
    entries = max(1, READ_BYTES // size) + 1
    while at < count:
        span = (at, min(count, at + entries) - 1)
        read = ReadItem(1, BACKLOG_LEDGER, [span], READ_BYTES, True)
        await stream.send([encode_read(instance_id, [read])])
        message = await stream.receive()
        assert message is not None
        _, (answer,) = decode_read_response(message)
        assert not answer.code, (at, answer.code)
        for record in answer.records:
            decode_entry_record(record, BACKLOG_LEDGER, at)
            at += 1
    ended = time.monotonic()
    await stream.finish()
    return began, ended


def _in_process(out: Connection, work: Callable[..., object], arguments: Sequence[object]) -> None:
    result = work(*arguments)
    out.send((result, time.process_time()))


class Helper:
    """A process that runs one function."""

    def __init__(self, work: Callable[..., object], *arguments: object) -> None:
        self._result, out = SPAWN.Pipe(duplex=False)
        self._process = SPAWN.Process(target=_in_process, args=(out, work, arguments), daemon=True)
        self._process.start()
        out.close()

    def is_done(self, wait_seconds: float) -> bool:
        """Wait for the result for so long, and return whether it is there."""
        return self._result.poll(wait_seconds)

    def result(self) -> tuple[object, float]:
        """Return what the function returned, and the CPU seconds of the process."""
        found = cast("tuple[object, float]", self._result.recv())
        self._process.join()
        return found


def publish_to_bookie(address: str, instance_id: str, stop: Event) -> Took:
    """Add entries at a rate until ``stop``, in a process of its own."""
    return uvloop.run(add_steadily(address, instance_id, stop))


def read_bookie(address: str, instance_id: str, size: int, count: int) -> tuple[float, float]:
    """Read the backlog, in a process of its own. Return when that began and ended."""
    return uvloop.run(catch_up(address, instance_id, size, count))


def publish_to_broker(url: str, topic: str, stop: Event) -> Took:
    """Publish messages at a rate until ``stop``, in a process of its own."""
    client = pulsarish.Client(url)
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    payload, taken = bytes(LIVE_BYTES), cast("Took", [])

    def on_receipt(due: float) -> Callable[[object, object], None]:
        return lambda _result, _id: taken.append((due, time.monotonic() - due))

    started, number = time.monotonic(), 0
    while not stop.is_set():
        due = started + number / RATE
        if (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        producer.send_async(payload, on_receipt(due))
        number += 1
    producer.flush()
    client.close()
    return sorted(taken)


async def _drain(url: str, topic: str, count: int) -> tuple[float, float]:
    client = pulsarish.asyncio.Client(url)
    try:
        began = time.monotonic()
        reader = await client.create_reader(topic, pulsarish.MessageId.earliest)
        for _ in range(count):
            _ = await reader.read_next()
        return began, time.monotonic()
    finally:
        await client.close()


def _read_broker(url: str, topic: str, count: int) -> tuple[float, float]:
    return asyncio.run(_drain(url, topic, count))


def measured(
    live: Callable[[Event], Helper],
    reader: Callable[[], Helper],
    pids: dict[str, int],
    bookie_http: str,
    size_bytes: int,
) -> Caught:
    """Publish, then publish and catch up."""
    stop = SPAWN.Event()
    publisher = live(stop)
    time.sleep(WARM_SECONDS)
    alone = {name: cpu_seconds([pid]) for name, pid in pids.items()}
    time.sleep(BEFORE_SECONDS)
    alone = {
        name: (cpu_seconds([pid]) - alone[name]) / BEFORE_SECONDS for name, pid in pids.items()
    }
    drop_page_cache()
    before = {name: cpu_seconds([pid]) for name, pid in pids.items()}
    reads, disk = counter(bookie_http, LOG_READS), disk_bytes(pids["bookie"])
    busy, clock = machine_busy_seconds(), time.monotonic()
    (began, ended), used = cast("tuple[tuple[float, float], float]", reader().result())
    busy, clock = machine_busy_seconds() - busy, time.monotonic() - clock
    found = Caught(began, ended, size_bytes)
    whole = {name: cpu_seconds([pid]) - before[name] for name, pid in pids.items()}
    # Without what publishing takes.
    found.cpu = {name: used - alone[name] * clock for name, used in whole.items()}
    found.cpu["reader"] = used
    found.log_reads = counter(bookie_http, LOG_READS) - reads
    found.disk_bytes = disk_bytes(pids["bookie"]) - disk
    stop.set()
    found.live = cast("Took", publisher.result()[0])
    own = sum(whole.values()) + used
    found.others_share = max(0.0, busy - own) / clock / (os.cpu_count() or 1)
    return found


LOG_READS = "pulsarish_bookie_entry_log_reads_total"


@contextmanager
def running_bookie(settings: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """The framed address, the HTTP address and the process id of a bookie."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="pulsarish-bench-") as directory:
        values = [
            "bookie_id=bench",
            "metadata_url=memory:",
            "listen_address=127.0.0.1:0",
            f"framed_port={port}",
            "http_address=127.0.0.1:0",
            f"data_directory={directory}",
            *settings,
        ]
        options = [part for value in values for part in ("--set", value)]
        command = [sys.executable, "-m", "pulsarish", "bookie", *options]
        bookie = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert bookie.stdout is not None
            line = bookie.stdout.readline()
            http = line.split("http=")[1].split()[0]
            yield f"{FRAMED}127.0.0.1:{port}", http, bookie.pid
        finally:
            bookie.terminate()
            bookie.wait(60)


def of_bookie(settings: argparse.Namespace, size: int) -> Caught:
    count = int(settings.gigabytes * 1e9) // size
    with running_bookie(settings.bookie) as (address, http, pid):

        async def prepare() -> str:
            world = own_world()
            instance_id = (await status_of(world, address)).instance_id
            ledgers = [BACKLOG_LEDGER, OTHER_LEDGER] if settings.mixed else [BACKLOG_LEDGER]
            await fill(address, instance_id, ledgers, size, count)
            await until_flushed(world, address)
            return instance_id

        instance_id = uvloop.run(prepare())
        return measured(
            lambda stop: Helper(publish_to_bookie, address, instance_id, stop),
            lambda: Helper(read_bookie, address, instance_id, size, count),
            {"bookie": pid},
            http,
            size * count,
        )


def of_broker(settings: argparse.Namespace, size: int) -> Caught:
    count = int(settings.gigabytes * 1e9) // size
    with running_cluster(
        bookies=1,
        broker=("managed_ledger_cache_size_bytes=0", *settings.broker),
        bookie=settings.bookie,
    ) as cluster:
        nodes = {node.role: node for node in cluster.nodes()}
        pids = {
            role: pid for role in ("bookie", "broker") if (pid := cluster.pid(nodes[role].name))
        }
        url = cluster.service_urls()["pulsarish"]
        topic, live = (f"persistent://public/default/{name}" for name in ("backlog", "live"))
        client = pulsarish.Client(url)
        producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
        payload = os.urandom(size)
        for _ in range(count):
            producer.send_async(payload, lambda _result, _id: None)
        producer.flush()
        client.close()
        http = f"127.0.0.1:{nodes['bookie'].http_port}"
        wait_until(
            "the bookie has flushed its write cache",
            lambda: not counter(http, "bookie_write_cache_size"),
        )
        return measured(
            lambda stop: Helper(publish_to_broker, url, live, stop),
            lambda: Helper(_read_broker, url, topic, count),
            pids,
            http,
            size * count,
        )


WORK = {"bookie": of_bookie, "broker": of_broker}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", nargs="*", choices=[*WORK, []], help="bookie without")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--sizes", type=int, nargs="*", default=[128 << 10, 4 << 10])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--mixed", action="store_true", help="a second ledger lies in between")
    parser.add_argument("--against", type=Path, help="another tree, measured in turn")
    parser.add_argument("--bookie", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--broker", action="append", default=[], metavar="NAME=VALUE")
    settings = parser.parse_args()
    if min(settings.sizes, default=0) < 1 or settings.gigabytes * 1e9 < max(settings.sizes):
        parser.error("each of --sizes is at least 1, and --gigabytes no less than one entry")
    if settings.rounds < 1:
        parser.error("--rounds is at least 1")
    trees = {"before": settings.against, "now": None} if settings.against else {"now": None}
    for work in settings.work or ["bookie"]:
        for size in settings.sizes:
            rounds: dict[str, list[Caught]] = {name: [] for name in trees}
            for _ in range(settings.rounds):
                for name, tree in trees.items():
                    with servers_from(tree):
                        found = WORK[work](settings, size)
                    rounds[name].append(found)
                    print(f"{work} {size} B, {name}: {found.line()}", flush=True)
            for name, all_found in rounds.items():
                rate = statistics.median(found.rate for found in all_found)
                used = statistics.median(sum(found.cpu.values()) for found in all_found)
                megabytes = all_found[0].size_bytes / 1e6
                print(
                    f"{work} {size} B, {name}, median of {len(all_found)}: {rate:.0f} MB/s, "
                    f"{used / megabytes * 1e3:.2f} ms of CPU a MB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
