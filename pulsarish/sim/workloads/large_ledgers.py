"""Ledgers of thousands of entries, and operations on them: recovery, ensemble change, repair after
a lost machine, trimming, compaction.

Usual seeds have ledgers of some dozens of entries, which fit into one message, one page and one
entry log. What must hold:

* The topic that keeps all numbers has every number once and in order. The end of the topic that is
  trimmed has no gap.
* Each subscription gets every number.
* All copies exist again after a machine came back without its data.
* Bookies hold nothing of what is deleted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pulsarish.metadata import paths
from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.cluster.cluster import ClusterSettings, SimCluster
from pulsarish.sim.cluster.disk_audit import look_at_disks, look_for_garbage
from pulsarish.sim.cluster.housekeeping import wait_until_collected, wait_until_repaired
from pulsarish.sim.cluster.invariants import Invariants
from pulsarish.sim.cluster.limits import Limits
from pulsarish.sim.cluster.liveness import check_let_go
from pulsarish.sim.cluster.operator import TOPICS, Operator, administer
from pulsarish.sim.cluster.oracle import Oracle, Promises
from pulsarish.sim.cluster.stage import LAST_SECONDS, Counts, Stage
from pulsarish.sim.workloads.numbered import Numbered
from pulsarish.sim.workloads.result import BOOT_SECONDS
from pulsarish.sim.world.logs import logs_into
from pulsarish.sim.world.world import Simulation

__all__ = ["ENTRIES", "LargeCounts", "run_large"]

ENTRIES: Final = 2_500
"""Entries of each topic."""
_LEDGER_ENTRIES: Final = 1_500
_BURST: Final = 100
_PAUSE_SECONDS: Final = 0.25
_FAULT_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.2
_DONE_SECONDS: Final = 300.0
_SUBSCRIPTION: Final = "work"
_ANCHOR: Final = "anchor"


@dataclass(slots=True)
class LargeCounts:
    """Counts of one run."""

    longest_entries: int = 0
    """Entries of the longest closed ledger."""
    recovered: int = 0
    changes: int = 0
    """Changes of an ensemble that are left in the records."""
    trimmed: int = 0
    compactions: int = 0
    copies: int = 0
    """Entries whose copies were checked at the end."""


class _Run:
    def __init__(self, sim: Simulation) -> None:
        rng = random.Random(f"{sim.seed}:large")
        self.sim = sim
        self.counts = LargeCounts()
        self._rng = rng
        self._cluster = SimCluster(
            sim,
            ClusterSettings(
                bookies=5,
                brokers=2,
                quorums=rng.choice(((3, 3, 2), (3, 2, 2), (4, 3, 2))),
                deduplication=True,
                partitions=0,
                entries_per_ledger=_LEDGER_ENTRIES,
                cursor_node_writes_max=rng.choice((0, 3)),
                cursor_flush_interval_ms=200,
                read_batch=30,
                bundles=4,
                repair=True,
                limits=Limits(
                    broker={"broker_deduplication_entries_interval": 200},
                    log={"cursor_max_entries_per_ledger": 300},
                ),
            ),
        )
        self._oracle = Oracle(Promises(deduplication=True, trimmed=True))
        self._invariants = Invariants(self._cluster, self._oracle.report)
        self._stage = Stage(rng, self._cluster.service_url, "", self._oracle, Counts(), sim.trace)
        self._kept, self._trimmed, self._deleted = (
            Numbered(f"persistent://public/default/{name}")
            for name in ("kept", "trimmed", "deleted")
        )
        self._over = False

    async def run(self) -> None:
        sim = self.sim
        self._cluster.boot()
        for name in ("app", "consumer", "final"):
            sim.node(name)
        await asyncio.sleep(BOOT_SECONDS)
        consuming = asyncio.get_running_loop().create_task(sim.nodes["consumer"].run(self._consume))
        sim.at(2.0, self._fault)
        lost = self._rng.choice(self._cluster.bookies)
        sim.at(self._rng.uniform(2.0, 5.0), lambda: self._lose(lost))
        async with asyncio.timeout(_DONE_SECONDS):
            await sim.nodes["app"].run(self._publish)
        self._over = True
        for name in (*self._cluster.bookies, *self._cluster.brokers):
            sim.nodes[name].revive()
        well_since = sim.loop.time()
        await self._until(
            lambda: all(len(each.delivered) == each.sent for each in (self._kept, self._trimmed)),
            "a subscription lacks some",
        )
        sim.nodes["consumer"].crash()
        _ = await asyncio.gather(consuming, return_exceptions=True)
        await sim.nodes["final"].run(self._finish)
        await wait_until_repaired(
            self._cluster,
            Operator(self._stage, self._cluster, sim.nodes["final"]),
            self._invariants,
        )
        await wait_until_collected(self._cluster, self._oracle.report)
        await self._look(lost)
        await check_let_go(self._cluster, well_since, self._oracle.report)
        assert not self._oracle.anomalies, "; ".join(map(str, self._oracle.anomalies[:5]))

    async def _until(self, done: Callable[[], bool], problem: str) -> None:
        deadline = self.sim.loop.time() + LAST_SECONDS
        while not done():
            assert self.sim.loop.time() < deadline, problem
            await asyncio.sleep(_LOOK_SECONDS)

    # -- the programs

    async def _publish(self, world: World) -> None:
        async with self._stage.connected(world, LAST_SECONDS) as client:
            topics = (self._kept, self._trimmed, self._deleted)
            producers = [
                await topic.open(world, client, (_ANCHOR,) if topic is self._kept else ())
                for topic in topics
            ]
            while self._kept.sent < ENTRIES:
                futures = [
                    topic.send(producer)
                    for topic, producer in zip(topics, producers, strict=True)
                    for _ in range(_BURST)
                ]
                _ = await asyncio.gather(*futures)
                await world.clock.sleep(_PAUSE_SECONDS)

    async def _consume(self, world: World) -> None:
        async with self._stage.connected(world, LAST_SECONDS) as client:
            await asyncio.gather(
                *(
                    topic.consume(world, client, _SUBSCRIPTION)
                    for topic in (self._kept, self._trimmed)
                )
            )

    async def _finish(self, world: World) -> None:
        async with self._stage.connected(world, LAST_SECONDS) as client:
            found = await self._kept.read(client)
            assert found == list(range(self._kept.sent)), (
                f"{len(found)} of {self._kept.sent} numbers are kept, or not in their order"
            )
            found = await self._trimmed.read(client)
            assert found == list(range(self._trimmed.sent))[self._trimmed.sent - len(found) :], (
                "what is left of a trimmed topic has a gap"
            )
        status = 0
        while status not in (204, 404):
            try:
                answer = await administer(
                    self._stage,
                    world,
                    self._cluster.brokers[0],
                    "DELETE",
                    f"{TOPICS}/deleted?force=true",
                )
                status = answer.status
            except (StreamBroken, TimeoutError) as error:
                self.sim.trace(f"the deletion has no answer: {error!r}")
            await world.clock.sleep(_LOOK_SECONDS)

    # -- faults

    def _fault(self) -> None:
        """Crash a server, or break its connections to other nodes. One fault at a time."""
        if self._over:
            return
        rng, sim = self._rng, self.sim
        name = rng.choice([*self._cluster.bookies, *self._cluster.brokers])
        lasts = rng.uniform(0.1, 1.0)
        if rng.random() < 0.5:
            sim.nodes[name].crash()
            sim.at(lasts, sim.nodes[name].revive)
        else:
            peer = rng.choice([broker for broker in self._cluster.brokers if broker != name])
            sim.network.cut(peer, name)
            sim.at(lasts, lambda: sim.network.heal(peer, name))
        sim.at(lasts + rng.expovariate(1 / _FAULT_SECONDS), self._fault)

    def _lose(self, name: str) -> None:
        """Restart a machine without its data."""
        node = self.sim.nodes[name]
        node.crash()
        node.disk.wipe()
        self.sim.at(1.0, node.revive)

    # -- the end

    async def _look(self, lost: str) -> None:
        invariants, counts, tree = self._invariants, self.counts, self.sim.metadata.tree
        invariants.look()
        invariants.look_at_lists()
        counts.copies = await look_at_disks(
            self._cluster, invariants.known(), [lost], self._oracle.report, repaired=True
        )
        counts.trimmed = sum(
            tree.get(paths.ledger(ledger_id)) is None for ledger_id in invariants.ledgers
        )
        counts.longest_entries = max(
            record.last_entry + 1 for record in invariants.ledgers.values()
        )
        counts.changes = sum(len(record.segments) - 1 for record in invariants.ledgers.values())
        counts.recovered = self.sim.story().count("recovery: ledger recovered")
        counts.compactions = sum(
            bookie.garbage.compactions for _, bookie in self._cluster.bookies_up()
        )
        await look_for_garbage(self._cluster, self._oracle.report)


def run_large(seed: int) -> LargeCounts:
    """Run one seed. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)
    run = _Run(sim)
    with logs_into(sim.trace):
        sim.run(run.run, max_virtual_seconds=1_200)
    return run.counts
