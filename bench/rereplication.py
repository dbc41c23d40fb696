"""What it takes to make the copies of a killed bookie again, and what publishing meets meanwhile:
``python -m bench.rereplication``.

Five bookies, or one more than an ensemble has, and a broker. Closed ledgers are written, then a
producer sends 1,000 messages of 1 KB a second, and one bookie is killed. Its copies are made again
once it counts as lost. Printed for each round, as a row for ``docs/operations.md``: MB/s from the
first copied byte until no written ledger names the killed bookie, bytes read for a byte copied, the
CPU of a copied MB, and percentiles of publishing before the kill and while copies were made.
``--against TREE`` measures servers from another tree in turn with these.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench.catch_up import SPAWN, Helper, Took, counter, publish_to_broker
from bench.ledger import connected
from bench.measure import cpu_seconds, percentile, pids_of, running_cluster, wait_until
from bench.steady import machine_busy_seconds, servers_from
from pulsarish.admin import Admin
from pulsarish.local_cluster.processes import Cluster
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerPurpose, PurposeKind

BOOKIES, WRITE_QUORUM, ACK_QUORUM = 5, 3, 2
KILLED = "bookie-5"
WINDOW_BYTES = 8 << 20
TOPIC = "persistent://public/default/live"
WARM_SECONDS, BEFORE_SECONDS = 3.0, 15.0
POLL_SECONDS = 0.5
END_SECONDS = 900.0
WRITTEN, READ = (f"replication_worker_NUM_BYTES_{name}" for name in ("WRITTEN", "READ"))


@dataclass
class Confirmed:
    """How far a ledger is confirmed."""

    last: int = -1
    error: PulsarishError | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def confirmed(self, last_entry: int) -> None:
        self.last = last_entry
        self.wake.set()

    def stopped(self, error: PulsarishError) -> None:
        self.error = error
        self.wake.set()


@dataclass(slots=True)
class Made:
    """The copies that were made, and the publishing meanwhile."""

    killed: float
    began: float
    ended: float
    written_bytes: float
    read_bytes: float
    cpu_seconds: float
    others_share: float
    live: Took

    def took_ms(self, percent: float, first: float, last: float) -> float:
        return percentile([took for due, took in self.live if first <= due <= last], percent) * 1000

    def row(self, name: str) -> str:
        seconds, megabytes = self.ended - self.began, self.written_bytes / 1e6
        start = self.live[0][0] + WARM_SECONDS
        before, during = (
            [self.took_ms(percent, first, last) for percent in (50, 99, 100)]
            for first, last in ((start, self.killed), (self.began, self.ended))
        )
        spans = (" / ".join(f"{each:.1f}" for each in times) for times in (before, during))
        cells = [
            name,
            f"{megabytes / 1e3:.2f} GB in {seconds:.0f} s",
            f"{megabytes / seconds:.1f} MB/s",
            f"{self.read_bytes / self.written_bytes:.2f}",
            f"{self.cpu_seconds / megabytes * 1e3:.1f}",
            *spans,
            f"x{during[1] / before[1]:.2f}",
            f"{self.others_share:.0%}",
        ]
        return f"| {' | '.join(cells)} |"


HEAD = [
    "ensemble",
    "copied",
    "rate",
    "bytes read a byte",
    "ms of CPU a MB",
    "p50 / p99 / longest before, ms",
    "while copying, ms",
    "p99",
    "others",
]


async def write_ledgers(url: str, ensemble: int, size: int, count: int, ledgers: int) -> list[int]:
    """Write closed ledgers one after the other, each with ``count`` entries of ``size`` bytes."""
    payload, window, found = os.urandom(size), max(1, WINDOW_BYTES // size), []
    async with connected(url) as (client, _):
        for _ in range(ledgers):
            load = Confirmed()
            writer = await client.create(
                ensemble_size=ensemble,
                write_quorum=WRITE_QUORUM,
                ack_quorum=ACK_QUORUM,
                purpose=LedgerPurpose(PurposeKind.DIAGNOSTIC, "bench"),
                listener=load,
            )
            for entry in range(count):
                while entry - load.last > window and load.error is None:
                    load.wake.clear()
                    _ = await load.wake.wait()
                if load.error is not None:
                    raise load.error
                _ = writer.append(payload)
            _ = await writer.close()
            found.append(writer.ledger_id)
    return found


def copied(cluster: Cluster) -> tuple[float, float]:
    """Return the bytes that all workers have written and read so far."""
    addresses = [
        f"127.0.0.1:{node.http_port}"
        for node in cluster.nodes()
        if node.role == "bookie" and node.name != KILLED
    ]
    written, read = (sum(counter(each, name) for each in addresses) for name in (WRITTEN, READ))
    return written, read


def wait_until_copied(cluster: Cluster, ledgers: Sequence[int]) -> float:
    """Return when no ledger named the killed bookie any more."""
    admin, left = Admin(cluster.admin_url()), list(ledgers)

    def are_all_copied() -> bool:
        while left and KILLED not in _members(admin, left[-1]):
            _ = left.pop()
        return not left

    wait_until(
        "all copies are made", are_all_copied, every_seconds=POLL_SECONDS, seconds=END_SECONDS
    )
    return time.monotonic()


def _members(admin: Admin, ledger_id: int) -> set[str]:
    segments = admin.ledgers.get(ledger_id)["segments"]
    return {member.partition("~")[0] for each in segments for member in each["members"]}


def measure(cluster: Cluster, ensemble: int, options: argparse.Namespace) -> Made:
    urls = cluster.service_urls()
    data = options.gigabytes * 1e9 / WRITE_QUORUM
    ledgers = uvloop.run(
        write_ledgers(
            urls["metadata"],
            ensemble,
            options.size,
            int(data / options.ledgers) // options.size,
            options.ledgers,
        )
    )
    time.sleep(options.settle)
    stop = SPAWN.Event()
    publisher = Helper(publish_to_broker, urls["pulsarish"], TOPIC, stop)
    time.sleep(WARM_SECONDS + BEFORE_SECONDS)
    killed = time.monotonic()
    _ = cluster.kill(KILLED)
    wait_until("a copy was made", lambda: copied(cluster)[0] > 0, every_seconds=POLL_SECONDS)
    began, pids = time.monotonic(), pids_of(cluster)
    busy, used = machine_busy_seconds(), cpu_seconds(pids)
    ended = wait_until_copied(cluster, ledgers)
    busy, used = machine_busy_seconds() - busy, cpu_seconds(pids) - used
    written, read = copied(cluster)
    stop.set()
    live, _ = publisher.result()
    share = max(0.0, busy - used) / (ended - began) / (os.cpu_count() or 1)
    return Made(killed, began, ended, written, read, used, share, live)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=10.0, help="of all copies together")
    parser.add_argument("--size", type=int, default=32 << 10, help="bytes of an entry")
    parser.add_argument("--ledgers", type=int, default=40)
    parser.add_argument("--ensembles", type=int, nargs="*", default=[3, 5])
    parser.add_argument("--lost-seconds", type=float, default=10.0)
    parser.add_argument("--settle", type=float, default=20.0, help="seconds for checkpoints")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--against", type=Path, help="another tree, measured in turn")
    parser.add_argument("--bookie", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    print(f"{options.gigabytes:g} GB of copies, {options.ledgers} ledgers, {options.size} B each")
    for line in (HEAD, ["---"] * len(HEAD)):
        print(f"| {' | '.join(line)} |", flush=True)
    lost = f"auto_recovery.lost_bookie_recovery_delay_seconds={options.lost_seconds:g}"
    trees = {"before": options.against, "now": None} if options.against else {"now": None}
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(options.rounds):
        for ensemble in options.ensembles:
            for name, tree in trees.items():
                with (
                    servers_from(tree),
                    running_cluster(
                        bookies=max(BOOKIES, ensemble + 1), bookie=[lost, *options.bookie]
                    ) as cluster,
                ):
                    made = measure(cluster, ensemble, options)
                print(made.row(f"{ensemble}-{WRITE_QUORUM}-{ACK_QUORUM} {name}"), flush=True)
                rate = made.written_bytes / 1e6 / (made.ended - made.began)
                rates.setdefault((name, ensemble), []).append(rate)
    for (name, ensemble), found in rates.items():
        print(f"{name}, ensemble of {ensemble}: median {statistics.median(found):.1f} MB/s")


if __name__ == "__main__":
    main()
