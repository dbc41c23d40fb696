"""Fifty topics of one broker at once: their owner dies, is stopped gracefully, or has to unload
them, while other faults happen.

What must hold: within ``SERVED_SECONDS`` another broker or the next process of the same one serves
all of the topics. A message that is sent to each topic after the change has its receipt. In the end
each topic has every number once and in order, and so has the subscription.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.cluster.cluster import ClusterSettings, SimCluster
from pulsarish.sim.cluster.disk_audit import look_at_disks
from pulsarish.sim.cluster.invariants import Invariants
from pulsarish.sim.cluster.liveness import check_let_go
from pulsarish.sim.cluster.operator import NAMESPACE, administer
from pulsarish.sim.cluster.oracle import Oracle, Promises
from pulsarish.sim.cluster.stage import LAST_SECONDS, Counts, Stage
from pulsarish.sim.workloads.numbered import Numbered
from pulsarish.sim.workloads.result import BOOT_SECONDS
from pulsarish.sim.world.faults import Fault, FaultPlan, draw_faults
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.nodes import NodeDied
from pulsarish.sim.world.world import Simulation

__all__ = ["SERVED_SECONDS", "TOPICS_COUNT", "FailoverCounts", "run_failover"]

TOPICS_COUNT: Final = 50
SERVED_SECONDS: Final = 15.0
"""Virtual seconds.

A session with the metadata lasts 10 of them, and faults continue for up to 5.5 seconds after the
change.
"""
_WAYS: Final = ("crash", "stop", "unload")
_KINDS: Final = (
    "cut",
    "clog",
    "reset",
    "slow_node",
    "slow_disk",
    "lose_answers",
    "late_watches",
    "slow_metadata",
    "stale_reads",
    "pause",
)
_FAULTS_SECONDS: Final = 6.0
_LASTS_SECONDS: Final = 1.5
_CHANGE_SECONDS: Final = 3.0
_PACE_SECONDS: Final = 0.4
_LOOK_SECONDS: Final = 0.1
_SUBSCRIPTION: Final = "work"
_ANCHOR: Final = "anchor"


@dataclass(slots=True)
class FailoverCounts:
    """Counts of one run."""

    sent: int = 0
    delivered: int = 0
    redelivered: int = 0
    slowest_seconds: float = 0.0
    """The longest time until all topics were served again."""


class _Run:
    def __init__(self, sim: Simulation) -> None:
        rng = random.Random(f"{sim.seed}:failover")
        self.sim = sim
        self.counts = FailoverCounts()
        self._rng = rng
        self._cluster = SimCluster(
            sim,
            ClusterSettings(
                bookies=rng.choice((3, 4)),
                brokers=rng.choice((2, 3)),
                quorums=rng.choice(((3, 3, 2), (3, 2, 2))),
                deduplication=True,
                partitions=0,
                entries_per_ledger=rng.choice((4, 15)),
                cursor_node_writes_max=rng.choice((0, 3)),
                cursor_flush_interval_ms=rng.choice((200, 4_000)),
                read_batch=30,
                bundles=1,
                repair=False,
            ),
        )
        self._oracle = Oracle(Promises(deduplication=True, trimmed=False))
        self._invariants = Invariants(self._cluster, self._oracle.report)
        self._stage = Stage(rng, self._cluster.service_url, "", self._oracle, Counts(), sim.trace)
        self._topics = [
            Numbered(f"persistent://public/default/many{number}") for number in range(TOPICS_COUNT)
        ]
        self._over = False

    async def run(self) -> None:
        sim, loop = self.sim, asyncio.get_running_loop()
        self._cluster.boot()
        for name in ("app", "consumer", "operator", "final"):
            sim.node(name)
        await asyncio.sleep(BOOT_SECONDS)
        publishing = loop.create_task(sim.nodes["app"].run(self._publish))
        await self._until(
            lambda: all(topic.receipts for topic in self._topics),
            "the first messages have no receipts",
        )
        consuming = loop.create_task(sim.nodes["consumer"].run(self._consume))
        for way in self._rng.sample(_WAYS, len(_WAYS)):
            await self._change(way)
        self._over = True
        await publishing
        for name in self._cluster.brokers:
            sim.nodes[name].revive()
        well_since = loop.time()
        await self._all_delivered()
        sim.nodes["consumer"].crash()
        _ = await asyncio.gather(consuming, return_exceptions=True)
        await sim.nodes["final"].run(self._read_all)
        self._invariants.look()
        self._invariants.look_at_lists()
        _ = await look_at_disks(
            self._cluster, self._invariants.ledgers.values(), (), self._found_on_disks
        )
        await check_let_go(self._cluster, well_since, self._oracle.report)
        assert not self._oracle.anomalies, "; ".join(map(str, self._oracle.anomalies[:5]))

    # -- the programs

    async def _publish(self, world: World) -> None:
        async with self._stage.connected(world, LAST_SECONDS) as client:
            opening = (
                topic.open(world, client, (_SUBSCRIPTION, _ANCHOR)) for topic in self._topics
            )
            producers = await asyncio.gather(*opening)
            while not self._over:
                for topic, producer in zip(self._topics, producers, strict=True):
                    _ = topic.send(producer)
                await world.clock.sleep(_PACE_SECONDS)
            async with world.clock.timeout(LAST_SECONDS):
                await asyncio.gather(*(producer.flush() for producer in producers))

    async def _consume(self, world: World) -> None:
        async with self._stage.connected(world, LAST_SECONDS) as client:
            await asyncio.gather(
                *(topic.consume(world, client, _SUBSCRIPTION) for topic in self._topics)
            )

    async def _until(self, done: Callable[[], bool], problem: str) -> None:
        deadline = self.sim.loop.time() + LAST_SECONDS
        while not done():
            assert self.sim.loop.time() < deadline, problem
            await asyncio.sleep(_LOOK_SECONDS)

    async def _all_delivered(self) -> None:
        await self._until(
            lambda: all(len(topic.delivered) == topic.sent for topic in self._topics),
            "a subscription does not get all",
        )
        for topic in self._topics:
            assert not topic.out_of_order, (
                f"{topic.topic} delivered {topic.out_of_order[:3]} out of order"
            )
            self.counts.sent += topic.sent
            self.counts.delivered += len(topic.delivered)
            self.counts.redelivered += sum(topic.delivered.values()) - len(topic.delivered)

    async def _read_all(self, world: World) -> None:
        async with self._stage.connected(world, LAST_SECONDS) as client:
            for topic in self._topics:
                found = await topic.read(client)
                assert found == list(range(topic.sent)), (
                    f"{topic.topic} has {len(found)} of {topic.sent} numbers, or not in their order"
                )

    # -- the change of owner

    def _owner(self) -> str | None:
        """Return the broker that serves all of the topics."""
        for name, broker in self._cluster.brokers_up():
            if all(broker.serves_topic(topic.topic) for topic in self._topics):
                return name
        return None

    async def _change(self, way: str) -> None:
        await self._until(lambda: self._owner() is not None, "no broker serves all topics")
        owner = self._owner()
        assert owner is not None
        self._plan(owner).start()
        await asyncio.sleep(self._rng.uniform(0.5, _CHANGE_SECONDS))
        self.sim.trace(f"failover of {owner} by {way}")
        began = self.sim.loop.time()
        match way:
            case "crash":
                self.sim.nodes[owner].crash()
                self.sim.at(self._rng.choice((1.0, 20.0)), self.sim.nodes[owner].revive)
            case "stop":
                await self._cluster.restart_gracefully(owner)
            case _:
                await self._unload(owner)
        wanted = [topic.sent for topic in self._topics]
        while late := [
            topic
            for topic, sent in zip(self._topics, wanted, strict=True)
            if sent not in topic.receipts
        ]:
            seconds = self.sim.loop.time() - began
            assert seconds < SERVED_SECONDS, (
                f"{len(late)} of {TOPICS_COUNT} topics are not served {seconds:.0f} s after the "
                f"{way} of {owner}"
            )
            await asyncio.sleep(_LOOK_SECONDS)
        self.counts.slowest_seconds = max(self.counts.slowest_seconds, self.sim.loop.time() - began)

    async def _unload(self, owner: str) -> None:
        async def inside(world: World) -> None:
            _ = await administer(self._stage, world, owner, "PUT", f"{NAMESPACE}/unload")

        try:
            await self.sim.nodes["operator"].run(inside)
        except (StreamBroken, TimeoutError, NodeDied) as error:
            self.sim.trace(f"unload at {owner} has no answer: {error!r}")

    def _plan(self, owner: str) -> FaultPlan:
        """Return short faults of servers. The owner only gets its own change."""
        servers = [*self._cluster.bookies, *self._cluster.brokers]
        nodes = [name for name in servers if name != owner]
        drawn = draw_faults(self.sim.faults, nodes, [*servers, METADATA], _FAULTS_SECONDS, _KINDS)
        return FaultPlan(
            self.sim, nodes, _FAULTS_SECONDS, faults=[_brief(fault) for fault in drawn]
        )

    def _found_on_disks(self, name: str, what: str) -> None:
        self._oracle.report(name, what)


def _brief(fault: Fault) -> Fault:
    return replace(fault, lasts_seconds=min(fault.lasts_seconds, _LASTS_SECONDS))


def run_failover(seed: int) -> FailoverCounts:
    """Run one seed. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)
    run = _Run(sim)
    sim.run(run.run, max_virtual_seconds=600)
    return run.counts
