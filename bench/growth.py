"""How load spreads while a cluster grows from 3 to 5 bookies and from 1 to 3 brokers:
``python -m bench.growth``.

One producer on each topic sends at a steady rate, each message by itself. First nothing is added,
then two bookies, then two brokers, by what ``pulsarish cluster add`` does. Printed, as tables for
``docs/scale.md``: the bytes that each bookie was given and the bundles of each broker over time,
the longest time from a send to its receipt, and when ledgers began on the new bookies.
"""

from __future__ import annotations

import argparse
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pulsarish
from bench.measure import percentile, running_cluster
from pulsarish.admin import Admin
from pulsarish.local_cluster.growth import add_nodes
from pulsarish.local_cluster.processes import Cluster

NAMESPACE = "public/growth"
BUNDLES = 16
MESSAGE_BYTES = 1024
SAMPLE_SECONDS = 5.0
SEND_MILLIS_MAX = 30_000
WRITTEN = "bookie_WRITE_BYTES"


@dataclass
class Load:
    """Producers, each in a thread, and what they measured."""

    client: pulsarish.Client
    topics: int
    rate: float
    latencies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds from a send to its receipt, by phase."""
    failed: list[object] = field(default_factory=list)
    phase: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for number in range(self.topics):
            thread = threading.Thread(target=self._publish, args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _publish(self, number: int) -> None:
        producer = self.client.create_producer(
            f"persistent://{NAMESPACE}/t{number}",
            batching_enabled=False,
            block_if_queue_full=True,
            send_timeout_millis=SEND_MILLIS_MAX,
        )
        due = time.perf_counter() + number / self.topics / self.rate
        while not self._stop.wait(max(0.0, due - time.perf_counter())):
            due += 1 / self.rate
            producer.send_async(bytes(MESSAGE_BYTES), self._on_receipt(time.perf_counter()))
        producer.flush()
        producer.close()

    def _on_receipt(self, sent: float) -> Callable[[object, object], None]:
        def done(result: object, _message_id: object) -> None:
            if result == pulsarish.Result.Ok:
                self.latencies[self.phase].append(time.perf_counter() - sent)
            else:
                self.failed.append(result)

        return done


@dataclass
class Ledgers:
    """The ledgers that were made, found at each look."""

    admin: Admin
    members: dict[int, frozenset[str]] = field(default_factory=dict)

    def look(self) -> list[int]:
        """Return the ledgers that were not there at the last look."""
        last = max(self.members, default=-1)
        found = self.admin.ledgers.list(after=last)
        for ledger_id in found:
            segments = self.admin.ledgers.get(ledger_id)["segments"]
            self.members[ledger_id] = frozenset(
                member.partition("~")[0] for each in segments for member in each["members"]
            )
        return found


def written_bytes(cluster: Cluster) -> dict[str, float]:
    found = {}
    for node in cluster.nodes():
        if node.role == "bookie":
            url = f"http://127.0.0.1:{node.ports['http']}/metrics"
            with urllib.request.urlopen(url, timeout=30) as answer:
                for line in answer.read().decode().splitlines():
                    if line.startswith(WRITTEN):
                        found[node.name] = float(line.split()[-1])
    return found


def bundles(admin: Admin, cluster: Cluster) -> dict[str, int]:
    (name,) = admin.clusters.list()
    return {
        node.name: len(admin.brokers.owned_namespaces(name, node.name))
        for node in cluster.nodes()
        if node.role == "broker"
    }


def row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def measure(cluster: Cluster, options: argparse.Namespace) -> None:
    admin = Admin(cluster.admin_url())
    admin.namespaces.create(NAMESPACE, bundles=BUNDLES)
    # No subscription keeps the messages.
    admin.namespaces.set_policy(
        NAMESPACE, "retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    )
    load = Load(pulsarish.Client(cluster.service_urls()["pulsarish"]), options.topics, options.rate)
    ledgers = Ledgers(admin)
    load.phase = "start"
    load.start()
    time.sleep(options.settle)
    plan = [
        ("3 bookies, 1 broker", lambda: None),
        ("2 bookies more", lambda: add_nodes(cluster, "bookie", 2)),
        ("2 brokers more", lambda: add_nodes(cluster, "broker", 2)),
    ]
    began, rows, lines = time.perf_counter(), [], []
    for phase, grow in plan:
        load.phase = phase
        _ = ledgers.look()
        asked = time.perf_counter()
        _ = grow()
        serve_seconds = time.perf_counter() - asked
        made: list[int] = []
        first = 0.0
        while time.perf_counter() < asked + options.phase_seconds:
            made += ledgers.look()
            if not first and any(_is_on_new(ledgers.members[each]) for each in made):
                first = time.perf_counter() - asked
            now = round(time.perf_counter() - began)
            rows.append((now, phase, written_bytes(cluster), bundles(admin, cluster)))
            time.sleep(SAMPLE_SECONDS)
        on_new = sum(_is_on_new(ledgers.members[each]) for each in made)
        lines.append((phase, serve_seconds, len(made), on_new, first))
    load.stop()
    print(row(["seconds", "phase", *(f"bookie-{n}" for n in range(1, 6)), *BROKERS]))
    print(row(["---"] * 10))
    for now, phase, written, owned in rows:
        mb = [f"{written.get(f'bookie-{n}', 0) / 1e6:.1f}" for n in range(1, 6)]
        print(row([now, phase, *mb, *(owned.get(name, 0) for name in BROKERS)]))
    print()
    print(
        row(
            [
                "phase",
                "until they serve",
                "new ledgers, of them on new bookies",
                "first of these",
                "receipt p50, p99, longest",
            ]
        )
    )
    print(row(["---"] * 5))
    for phase, seconds, made_count, on_new, first in lines:
        took = load.latencies[phase]
        times = [f"{percentile(took, each) * 1000:.0f}" for each in (50, 99)]
        print(
            row(
                [
                    phase,
                    f"{seconds:.1f} s",
                    f"{made_count}, {on_new}",
                    f"{first:.1f} s" if first else "",
                    f"{', '.join(times)}, {max(took) * 1000:.0f} ms",
                ]
            )
        )
    print(f"\nfailed sends: {len(load.failed)}")
    load.client.close()


BROKERS = ("broker-1", "broker-2", "broker-3")


def _is_on_new(members: frozenset[str]) -> bool:
    return bool(members & {"bookie-4", "bookie-5"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=32)
    parser.add_argument("--rate", type=float, default=10.0, help="messages a second and topic")
    parser.add_argument("--rollover-entries", type=int, default=150, help="entries of a ledger")
    parser.add_argument("--settle", type=float, default=20.0, help="seconds before the first row")
    parser.add_argument("--phase-seconds", type=float, default=60.0)
    options = parser.parse_args()
    if options.topics < 1 or options.rate <= 0 or options.rollover_entries < 1:
        parser.error("--topics and --rollover-entries are at least 1, and --rate is more than 0")
    print(
        f"{options.topics} topics, {options.rate:g} messages of {MESSAGE_BYTES} bytes a second "
        f"each, a roll-over every {options.rollover_entries / options.rate:g} s"
    )
    broker = [
        f"managed_ledger.max_entries_per_ledger={options.rollover_entries}",
        "managed_ledger.min_ledger_rollover_time_minutes=0",
    ]
    with running_cluster(broker=broker) as cluster:
        measure(cluster, options)


if __name__ == "__main__":
    main()
