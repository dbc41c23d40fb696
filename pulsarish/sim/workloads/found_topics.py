"""Topics that come and go below a consumer of a pattern, while brokers die, stop or lose the
metadata.

A program creates topic after topic and sends a few messages to each, at once. Some topics are
deleted once all is delivered, and some of those are created again. What must hold:

* every message with a receipt reaches the consumer within ``DELIVERED_SECONDS``, by changes of the
  list alone: the consumer reads the list for no other reason;
* a topic that was deleted does not come back by the consumer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.enums import ConsumerType
from pulsarish.client.messages.topic_filter import Wildcard
from pulsarish.metadata import paths
from pulsarish.model.errors import PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.cluster.cluster import ClusterSettings, SimCluster
from pulsarish.sim.cluster.operator import TOPICS, administer
from pulsarish.sim.cluster.oracle import Oracle, Promises
from pulsarish.sim.cluster.stage import LAST_SECONDS, Counts, Stage
from pulsarish.sim.workloads.result import BOOT_SECONDS
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.world import Simulation

__all__ = ["DELIVERED_SECONDS", "FoundCounts", "run_found"]

DELIVERED_SECONDS: Final = 40.0
"""Virtual seconds. A broker without metadata is noticed when its session is over, after 10 s, and
a call that waits at it ends after 10 more.
"""
_WAYS: Final = ("crash", "stop", "cut", "pause")
_ROUNDS: Final = 4
_MESSAGES: Final = 3
_NEVER_SECONDS: Final = 1_000_000
_RETRY_SECONDS: Final = 0.3
_LOOK_SECONDS: Final = 0.1
_DELETED_SHARE: Final = 0.4
_RENEWED_SHARE: Final = 0.5
_AWAITED_SHARE: Final = 0.5

_Sent = tuple[str, int, int]  # topic, its generation, number


@dataclass(slots=True)
class FoundCounts:
    """Counts of one run."""

    created: int = 0
    deleted: int = 0
    delivered: int = 0
    slowest_seconds: float = 0.0
    """The longest time from a receipt to the first delivery."""


class _Run:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.counts = FoundCounts()
        self.over = False
        self.is_subscribed = False
        self.receipts: dict[_Sent, float] = {}
        self.delivered: dict[_Sent, float] = {}
        self.deleted: set[str] = set()
        self.rng = rng = random.Random(f"{sim.seed}:found")
        self.cluster = SimCluster(
            sim,
            ClusterSettings(
                bookies=3,
                brokers=rng.choice((2, 3)),
                quorums=(3, 3, 2),
                deduplication=True,
                partitions=0,
                entries_per_ledger=15,
                cursor_node_writes_max=rng.choice((0, 3)),
                cursor_flush_interval_ms=200,
                read_batch=30,
                bundles=rng.choice((1, 4)),
                repair=False,
            ),
        )
        self.oracle = Oracle(Promises(deduplication=True, trimmed=False))
        self.stage = Stage(rng, self.cluster.service_url, "", self.oracle, Counts(), sim.trace)

    async def run(self) -> None:
        sim, loop = self.sim, asyncio.get_running_loop()
        self.cluster.boot()
        for name in ("app", "consumer"):
            sim.node(name)
        await asyncio.sleep(BOOT_SECONDS)
        consuming = loop.create_task(sim.nodes["consumer"].run(self._consume))
        await self._until(lambda: self.is_subscribed, "the consumer is not open")
        publishing = loop.create_task(sim.nodes["app"].run(self._publish))
        for _ in range(_ROUNDS):
            await asyncio.sleep(self.rng.uniform(0.5, 4.0))
            await self._fail(self.rng.choice(self.cluster.brokers), self.rng.choice(_WAYS))
        self.over = True
        await self._until(publishing.done, "messages are missed")
        await publishing
        await self._until(
            lambda: self.receipts.keys() <= self.delivered.keys(), "messages are missed"
        )
        sim.nodes["consumer"].crash()
        _ = await asyncio.gather(consuming, return_exceptions=True)
        self._look()

    # -- the programs

    async def _publish(self, world: World) -> None:
        async with self.stage.connected(world, LAST_SECONDS) as client:
            number = 0
            while not self.over:
                await self._use(world, client, f"persistent://public/default/found.{number}.x")
                number += 1
                if self.rng.random() < _AWAITED_SHARE:
                    # No later change of the list makes up for one that was missed.
                    while not self.receipts.keys() <= self.delivered.keys():
                        await world.clock.sleep(_LOOK_SECONDS)
                await world.clock.sleep(self.rng.uniform(0.0, 1.0))

    async def _use(self, world: World, client: AsyncClient, topic: str) -> None:
        """Create a topic by sending to it; perhaps delete it, and create it again."""
        for generation in range(3):
            await self._send(world, client, topic, generation)
            self.counts.created += 1
            if self.rng.random() >= _DELETED_SHARE:
                return
            sent = {(topic, generation, number) for number in range(_MESSAGES)}
            while not sent <= self.delivered.keys():
                await world.clock.sleep(_LOOK_SECONDS)
            await self._delete(world, topic)
            self.deleted.add(topic)
            self.counts.deleted += 1
            if self.rng.random() >= _RENEWED_SHARE:
                return
            self.deleted.discard(topic)

    async def _send(self, world: World, client: AsyncClient, topic: str, generation: int) -> None:
        producer = await _again(
            world,
            lambda: client.create_producer(
                topic, producer_name="app", batching_enabled=False, send_timeout_millis=0
            ),
        )
        for number in range(_MESSAGES):
            await producer.send(b"%d.%d" % (generation, number), sequence_id=number)
            self.receipts[topic, generation, number] = self.sim.loop.time()
        await producer.close()

    async def _delete(self, world: World, topic: str) -> None:
        target = f"{TOPICS}/{topic.rpartition('/')[2]}?force=true"
        while True:
            broker = self.rng.choice(self.cluster.brokers)
            try:
                answer = await administer(self.stage, world, broker, "DELETE", target)
            except (StreamBroken, TimeoutError, PulsarishError) as error:
                self.sim.trace(f"DELETE {target} has no answer: {error!r}")
            else:
                if answer.status in (204, 404):
                    return
            await world.clock.sleep(_RETRY_SECONDS)

    async def _consume(self, world: World) -> None:
        async with self.stage.connected(world, LAST_SECONDS) as client:
            consumer = await _again(
                world,
                lambda: client.subscribe(
                    Wildcard("found.*.x"),
                    "work",
                    consumer_type=self.rng.choice((ConsumerType.Failover, ConsumerType.Shared)),
                    pattern_auto_discovery_period=_NEVER_SECONDS,
                ),
            )
            self.is_subscribed = True
            while True:
                message = await consumer.receive()
                generation, number = map(int, message.data().split(b"."))
                sent = message.topic_name(), generation, number
                if sent not in self.delivered:
                    self.delivered[sent] = self.sim.loop.time()
                await consumer.acknowledge(message)

    # -- faults and the end

    async def _fail(self, name: str, way: str) -> None:
        """Have a broker fail for some seconds. At the end all is well again."""
        sim, lasts = self.sim, self.rng.uniform(1.0, 15.0)
        sim.trace(f"{way} of {name} for {lasts:.1f} s")
        match way:
            case "crash":
                sim.nodes[name].crash()
                await asyncio.sleep(lasts)
                sim.nodes[name].revive()
            case "stop":
                await self.cluster.restart_gracefully(name)
            case "cut":
                sim.network.partition([name], [METADATA])
                await asyncio.sleep(lasts)
                sim.network.heal_all()
            case _:
                sim.nodes[name].pause()
                await asyncio.sleep(lasts)
                sim.nodes[name].resume()

    async def _until(self, done: Callable[[], bool], problem: str) -> None:
        deadline = self.sim.loop.time() + DELIVERED_SECONDS
        while not done():
            assert self.sim.loop.time() < deadline, (
                f"{problem}: {sorted(self.receipts.keys() - self.delivered.keys())[:5]}"
            )
            await asyncio.sleep(_LOOK_SECONDS)

    def _look(self) -> None:
        self.counts.delivered = len(self.delivered)
        for sent, at in self.receipts.items():
            seconds = self.delivered[sent] - at
            self.counts.slowest_seconds = max(self.counts.slowest_seconds, seconds)
            assert seconds < DELIVERED_SECONDS, f"{sent} was delivered after {seconds:.0f} s"
        for topic in self.deleted:
            node = self.sim.metadata.tree.get(paths.topic(TopicName.parse(topic)))
            assert node is None, f"{topic} was deleted, and is there"
        assert not self.oracle.anomalies, "; ".join(map(str, self.oracle.anomalies[:5]))


async def _again(world: World, work: Any) -> Any:
    while True:
        try:
            return await work()
        except PulsarishError:
            await world.clock.sleep(_RETRY_SECONDS)


def run_found(seed: int) -> FoundCounts:
    """Run one seed. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)
    run = _Run(sim)
    sim.run(run.run, max_virtual_seconds=600)
    return run.counts
