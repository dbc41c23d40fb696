"""Jobs that workers consume again later or bury, and that redrives move back, while workers,
redrives and brokers die.

Of each message a worker either says that it is done, has it consumed again later, or refuses it
until it is a dead letter. What was moved back is done at the next attempt. A machine dies most
often while it copies.

What must hold: every job with a receipt is done at last, so no message is acknowledged before its
copy is stored; and no copy comes before its time. At last nothing waits in the topic and the retry
letter topic. Jobs may come more than once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.api.redrive import Redrive
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.messages.consumer_policies import (
    ConsumerDeadLetterPolicy,
)
from pulsarish.client.messages.letters import RECONSUME_TIMES, REDRIVE_TIMES, times
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.cluster import ClusterSettings, SimCluster
from pulsarish.sim.cluster.oracle import Oracle, Promises
from pulsarish.sim.cluster.stage import LAST_SECONDS, Counts, Stage
from pulsarish.sim.workloads.result import BOOT_SECONDS
from pulsarish.sim.world.nodes import NodeDied
from pulsarish.sim.world.world import Simulation

__all__ = ["run_letters"]

_TOPIC: Final = "persistent://public/default/jobs"
_SUBSCRIPTION: Final = "work"
_RETRY: Final = f"{_TOPIC}-{_SUBSCRIPTION}-RETRY"
_DEAD: Final = f"{_TOPIC}-{_SUBSCRIPTION}-DLQ"
_WORKERS: Final = ("worker0", "worker1")
_JOBS: Final = 24
_ATTEMPTS: Final = (0, 1, 99, 99)
"""How often a job is tried in vain, by its number modulo 4. The last ones are refused, and the
others consumed again later.
"""
_DUE: Final = "due"
_REFUSALS_MAX: Final = 2
_REFUSED_MS: Final = 200
_DELAY_MS_MAX: Final = 2_000
_FAULTS_SECONDS: Final = 25.0
_ALL_SECONDS: Final = 90.0


class _Run:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self._rng = rng = random.Random(f"{sim.seed}:letters")
        self._cluster = SimCluster(
            sim,
            ClusterSettings(
                bookies=3,
                brokers=2,
                quorums=(3, 3, 2),
                deduplication=False,
                partitions=0,
                entries_per_ledger=rng.choice((7, 1_000)),
                cursor_node_writes_max=3,
                cursor_flush_interval_ms=rng.choice((200, 1_000)),
                read_batch=rng.choice((4, 30)),
                bundles=1,
                repair=False,
            ),
        )
        oracle = Oracle(Promises(deduplication=False, trimmed=True))
        self._stage = Stage(rng, self._cluster.service_url, "", oracle, Counts(), sim.trace)
        self._left = set(range(_JOBS))
        self._faults = True
        self._copying = {name: asyncio.Event() for name in (*_WORKERS, "operator")}

    async def run(self) -> None:
        loop, sim = asyncio.get_running_loop(), self.sim
        self._cluster.boot()
        for name in self._copying:
            sim.node(name)
        # A delay ends by the owner's calendar.
        app = sim.node("app").clock
        for node in sim.nodes.values():
            node.clock.rate = app.rate
            node.clock.wall_offset_ms += app.wall_ms() - node.clock.wall_ms()
        await asyncio.sleep(BOOT_SECONDS)
        await sim.nodes["app"].run(self._publish)
        tasks = [loop.create_task(self._keep_on(name, self._work)) for name in _WORKERS]
        tasks.append(loop.create_task(self._keep_on("operator", self._redrive)))
        tasks.append(loop.create_task(self._change_owners()))
        ends = loop.time() + _ALL_SECONDS
        calm = loop.time() + _FAULTS_SECONDS
        while self._left or self._has_backlog():
            await asyncio.sleep(0.1)
            self._faults = loop.time() < calm
            if loop.time() >= ends:
                assert not self._left, f"the jobs {sorted(self._left)} were lost"
                raise AssertionError("not everything was acknowledged")
            for task in tasks:
                if task.done():
                    task.result()
        for task in tasks:
            _ = task.cancel()

    def _has_backlog(self) -> bool:
        found = [
            topic.subscription(_SUBSCRIPTION).backlog
            for _, topic in self._cluster.loaded_topics()
            if topic.name.full in (_TOPIC, _RETRY)
        ]
        return found != [0, 0]

    async def _publish(self, world: World) -> None:
        async with self._stage.connected(world, LAST_SECONDS) as client:
            for topic in (_TOPIC, _RETRY, _DEAD):
                first = await client.subscribe(
                    topic,
                    _SUBSCRIPTION,
                    consumer_type=ConsumerType.Exclusive if topic == _DEAD else ConsumerType.Shared,
                    initial_position=InitialPosition.Earliest,
                )
                await first.close()
            producer = await client.create_producer(_TOPIC, batching_max_messages=4)
            receipts = [producer.send_soon(b"%d" % number) for number in range(_JOBS)]
            await asyncio.gather(*receipts)

    async def _keep_on(
        self, name: str, session: Callable[[AsyncClient, World], Awaitable[None]]
    ) -> None:
        """Run session after session on a node, which dies while it copies during faults."""
        node, loop = self.sim.nodes[name], asyncio.get_running_loop()

        async def inside(world: World) -> None:
            async with self._stage.connected(world) as client:
                await session(client, world)

        while True:
            self._copying[name].clear()
            running = loop.create_task(node.run(inside))
            if self._faults:
                copies = loop.create_task(self._copying[name].wait())
                _ = await asyncio.wait((running, copies), return_when=asyncio.FIRST_COMPLETED)
                _ = copies.cancel()
                await asyncio.sleep(self._rng.choice((0.01, 0.1, 3.0)) * self._rng.random())
                node.crash()
                node.revive()
            try:
                await running
            except (NodeDied, PulsarishError) as error:
                self.sim.trace(f"{name}: {error}")
            await asyncio.sleep(0.1)

    async def _work(self, client: AsyncClient, world: World) -> None:
        consumer = await client.subscribe(
            _TOPIC,
            _SUBSCRIPTION,
            consumer_type=ConsumerType.Shared,
            ack_receipt_enabled=True,
            negative_ack_redelivery_delay_ms=_REFUSED_MS,
            dead_letter_policy=ConsumerDeadLetterPolicy(_REFUSALS_MAX),
            retry_enabled=True,
            receiver_queue_size=self._rng.choice((1, 5)),
        )
        while True:
            await self._attempt(consumer, await consumer.receive(), world)

    async def _attempt(self, consumer: AsyncConsumer, message: Message, world: World) -> None:
        properties, number = message.properties(), int(message.data())
        is_redriven = REDRIVE_TIMES in properties
        # A dead letter does not wait, so what is moved back need not. Calendars are 1 ms apart.
        early_ms = int(properties.get(_DUE, "0")) - world.clock.wall_ms()
        assert early_ms <= 1 or is_redriven, f"a copy of job {number} came {early_ms} ms too early"
        attempts = times(properties, RECONSUME_TIMES)
        if is_redriven or attempts >= _ATTEMPTS[number % 4]:
            # Before the acknowledgement: a worker may die when only the broker knows of it.
            self._left.discard(number)
            await consumer.acknowledge(message)
        elif number % 4 == 3:
            await consumer.negative_acknowledge(message)
            if message.redelivery_count() >= _REFUSALS_MAX:
                await world.clock.sleep(_REFUSED_MS / 1000)
                self._on_copying(world)  # the client gets it once more, and buries it
        else:
            self._on_copying(world)
            delay_ms = self._rng.randrange(_DELAY_MS_MAX)
            due = {_DUE: str(world.clock.wall_ms() + delay_ms)}
            try:
                await consumer.reconsume_later(message, timedelta(milliseconds=delay_ms), due)
            except PulsarishError as error:
                self.sim.trace(f"job {number} comes again: {error}")

    def _on_copying(self, world: World) -> None:
        for name, copying in self._copying.items():
            if self.sim.nodes[name].world is world:
                copying.set()

    async def _redrive(self, client: AsyncClient, world: World) -> None:
        redrive = Redrive(client, _SUBSCRIPTION, _RETRY, for_all=False, properties={})
        size = self._rng.choice((1, 4))
        self._on_copying(world)
        async for page in redrive.pages(_DEAD, count=None, size=size, dry_run=False):
            self.sim.trace(f"{len(page)} letters were moved back")

    async def _change_owners(self) -> None:
        while self._faults:
            await asyncio.sleep(self._rng.uniform(1.0, 8.0))
            owners = sorted({name for name, _ in self._cluster.loaded_topics()})
            if owners:
                owner = self.sim.nodes[self._rng.choice(owners)]
                owner.crash()
                await asyncio.sleep(self._rng.uniform(0.1, 2.0))
                owner.revive()


def run_letters(seed: int) -> None:
    """Run one seed.

    Raises ``AssertionError`` when a job is lost or never acknowledged, or a copy comes too early.
    """
    sim = Simulation(seed)
    sim.run(_Run(sim).run, max_virtual_seconds=300.0)
