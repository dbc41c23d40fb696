"""Messages with priorities, on one topic of a cluster: a work queue with workers that come and go.

In rounds: a backlog that one worker takes one by one, with and without a change of the owner
meanwhile; and workers that acknowledge and refuse while more is published, some of it delayed, and
the policy is switched, without faults or with crashes of workers and owners.

What must hold: a worker gets a backlog that the window covers in the order of priorities, and in
that of the log within one; across a change of the owner, too. Every message with a receipt comes.
Without faults each comes once, and once more for each time that a worker refused it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.model.errors import PulsarishError, Timeout
from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.cluster.cluster import ClusterSettings, SimCluster
from pulsarish.sim.cluster.operator import TOPICS, administer
from pulsarish.sim.cluster.oracle import Oracle, Promises
from pulsarish.sim.cluster.stage import LAST_SECONDS, Counts, Stage
from pulsarish.sim.workloads.result import BOOT_SECONDS
from pulsarish.sim.world.nodes import NodeDied
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.entry import PRIORITIES, PRIORITY_DEFAULT

__all__ = ["run_priorities"]

_NAME: Final = "jobs"
_TOPIC: Final = f"persistent://public/default/{_NAME}"
_SUBSCRIPTION: Final = "work"
_BACKLOG: Final = 40
_BURSTS: Final = 8
_BURST: Final = 12
_WORKERS: Final = ("worker0", "worker1", "worker2")
_WINDOWS: Final = (0, 3, 20, 1_000)
_RECEIVE_MS: Final = 200
_JOB_SECONDS: Final = 0.15
_LOOK_SECONDS: Final = 0.1
_ALL_SECONDS: Final = 90.0


class _Jobs:
    """The messages that were sent, and what became of them."""

    def __init__(self) -> None:
        self.priorities: dict[str, int] = {}
        """By value, in the order of the log; only those with a receipt."""
        self.came: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.acknowledged: set[str] = set()

    @property
    def left(self) -> set[str]:
        return self.priorities.keys() - self.acknowledged


class _Run:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self._rng = rng = random.Random(f"{sim.seed}:priorities")
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
                cursor_flush_interval_ms=rng.choice((50, 1_000)),
                read_batch=rng.choice((4, 30)),
                bundles=1,
                repair=False,
            ),
        )
        self._oracle = Oracle(Promises(deduplication=False, trimmed=True))
        self._stage = Stage(rng, self._cluster.service_url, "", self._oracle, Counts(), sim.trace)
        self._jobs = _Jobs()
        self._sent = 0
        self._is_over = False

    async def run(self) -> None:
        sim = self.sim
        self._cluster.boot()
        app = sim.node("app").clock
        for name in self._cluster.brokers:
            clock = sim.nodes[name].clock
            clock.rate = app.rate
            clock.wall_offset_ms += app.wall_ms() - clock.wall_ms()
        for name in (*_WORKERS, "operator"):
            sim.node(name)
        await asyncio.sleep(BOOT_SECONDS)
        await sim.nodes["app"].run(self._subscribe_first)
        await self._backlog(owner_changes=False)
        await self._work(faults=False)
        await self._backlog(owner_changes=True)
        await self._work(faults=True)
        anomalies = self._oracle.anomalies
        assert not anomalies, "; ".join(map(str, anomalies[:5]))

    async def _subscribe_first(self, world: World) -> None:
        async with self._stage.connected(world, LAST_SECONDS) as client:
            await (await self._consumer(client, 1)).close()

    async def _consumer(self, client: AsyncClient, queue_size: int) -> AsyncConsumer:
        return await client.subscribe(
            _TOPIC,
            _SUBSCRIPTION,
            consumer_type=ConsumerType.Shared,
            initial_position=InitialPosition.Earliest,
            receiver_queue_size=queue_size,
            negative_ack_redelivery_delay_ms=200,
        )

    async def _publish(self, producer: AsyncProducer, count: int, later_chance: float) -> list[str]:
        """Send messages, and return those with a receipt."""
        sent: list[tuple[str, int, Awaitable[Any]]] = []
        for _ in range(count):
            self._sent += 1
            value, priority = f"{self._sent}", self._rng.randrange(-2, PRIORITIES)
            extras: dict[str, Any] = {"priority": priority} if priority >= 0 else {}
            if self._rng.random() < later_chance:
                extras["deliver_after"] = timedelta(seconds=self._rng.uniform(0.1, 2.0))
            known = priority if priority >= 0 else PRIORITY_DEFAULT
            sent.append((value, known, producer.send_soon(value.encode(), **extras)))
        stored: list[str] = []
        for value, priority, receipt in sent:
            try:
                await receipt
            except PulsarishError as error:
                self.sim.trace(f"no receipt for {value}: {error}")
            else:
                self._jobs.priorities[value] = priority
                stored.append(value)
        return stored

    async def _set_window(self, world: World, entries: int) -> None:
        """Set the policy. During faults it may not be possible."""
        brokers = [name for name in self._cluster.brokers if self.sim.nodes[name].alive]
        target = f"{TOPICS}/{_NAME}/messagePriorityWindow"
        try:
            await administer(self._stage, world, self._rng.choice(brokers), "POST", target, entries)
        except (PulsarishError, StreamBroken, OSError) as error:
            self.sim.trace(f"window of {entries} not set: {error}")

    def _note(self, value: str) -> bool:
        """Count a delivery. Return whether it is the first one."""
        self._jobs.came[value] += 1
        return self._jobs.came[value] == 1

    # -- a backlog, one by one

    async def _backlog(self, *, owner_changes: bool) -> None:
        async def inside(world: World) -> None:
            await self._take_in_order(world, owner_changes=owner_changes)

        await self.sim.nodes["app"].run(inside)

    async def _take_in_order(self, world: World, *, owner_changes: bool) -> None:
        jobs = self._jobs
        async with self._stage.connected(world, LAST_SECONDS) as client:
            await self._set_window(world, 1_000)
            producer = await client.create_producer(_TOPIC)
            backlog = await self._publish(producer, _BACKLOG, 0.0)
            assert len(backlog) == _BACKLOG
            wanted = sorted(backlog, key=lambda value: -jobs.priorities[value])
            consumer = await self._consumer(client, 1)
            got: list[str] = []
            change_at = self._rng.randrange(_BACKLOG) if owner_changes else -1
            while len(got) < len(wanted):
                message = await consumer.receive(timeout_millis=int(LAST_SECONDS * 1000))
                value = message.data().decode()
                if self._note(value):
                    got.append(value)
                else:
                    assert owner_changes, f"{value} came twice"
                await consumer.acknowledge(message)
                jobs.acknowledged.add(value)
                if len(got) == change_at:
                    change_at = -1
                    await self._change_owner()
            assert got == wanted, "out of order: " + ", ".join(
                f"{value} ({jobs.priorities[value]})" for value in got
            )
            await consumer.close()

    async def _change_owner(self) -> None:
        for name, topic in self._cluster.loaded_topics():
            if topic.name.full == _TOPIC:
                self.sim.nodes[name].crash()
                await asyncio.sleep(self._rng.uniform(0.1, 2.0))
                self.sim.nodes[name].revive()
                return

    # -- workers

    async def _work(self, *, faults: bool) -> None:
        loop = asyncio.get_running_loop()
        self._is_over = False
        tasks = [loop.create_task(self._keep_on(name, faults=faults)) for name in _WORKERS]
        tasks.append(loop.create_task(self._operate(faults=faults)))
        publishing = loop.create_task(self.sim.nodes["app"].run(self._publish_bursts))
        deadline = loop.time() + _ALL_SECONDS
        while not publishing.done() or self._jobs.left:
            await asyncio.sleep(_LOOK_SECONDS)
            self._check_cores()
            assert loop.time() < deadline, f"{sorted(self._jobs.left)} never came"
        self._is_over = True
        await asyncio.gather(publishing, *tasks)
        jobs = self._jobs
        if not faults:
            wrong = [
                value for value in jobs.priorities if jobs.came[value] != 1 + jobs.refused[value]
            ]
            assert not wrong, f"{wrong} did not come once, and once more for each refusal"

    async def _publish_bursts(self, world: World) -> None:
        async with self._stage.connected(world, LAST_SECONDS) as client:
            # A batch comes again as a whole when a worker refuses one of its messages.
            producer = await client.create_producer(_TOPIC, batching_enabled=False)
            for _ in range(_BURSTS):
                await self._publish(producer, _BURST, 0.1)
                await world.clock.sleep(self._rng.uniform(0.0, 0.4))

    def _check_cores(self) -> None:
        for _, topic in self._cluster.loaded_topics():
            for subscription in topic.subscriptions.values():
                subscription.check()
        for name, broker in self._cluster.brokers_up():
            assert not broker.stalls_count, f"the watchdog of {name} has restarted a dispatcher"

    async def _operate(self, *, faults: bool) -> None:
        """Switch the policy, and let owners die."""
        rng = self._rng
        node = self.sim.nodes["operator"]
        while not self._is_over:
            entries = rng.choice(_WINDOWS)
            await node.run(self._setting(entries))
            await asyncio.sleep(rng.uniform(0.1, 0.8))
            if faults and rng.random() < 0.2:
                await self._change_owner()

    def _setting(self, entries: int) -> Callable[[World], Any]:
        async def inside(world: World) -> None:
            await self._set_window(world, entries)

        return inside

    async def _keep_on(self, name: str, *, faults: bool) -> None:
        """Let a worker work. With faults its sessions end, and its machine crashes."""
        node, rng = self.sim.nodes[name], self._rng

        async def inside(world: World) -> None:
            await self._take_some(world, rng.uniform(0.5, 5.0) if faults else _ALL_SECONDS)

        while not self._is_over:
            working = asyncio.get_running_loop().create_task(node.run(inside))
            if faults and rng.random() < 0.3:
                await asyncio.sleep(rng.uniform(0.2, 2.0))
                node.crash()
                node.revive()
            try:
                await working
            except (NodeDied, PulsarishError):
                if not faults:
                    raise
                await asyncio.sleep(0.1)

    async def _take_some(self, world: World, seconds: float) -> None:
        rng, jobs = self._rng, self._jobs
        ends = world.clock.monotonic() + seconds
        async with self._stage.connected(world, LAST_SECONDS) as client:
            consumer = await self._consumer(client, rng.choice((1, 3, 20)))
            while not self._is_over and world.clock.monotonic() < ends:
                try:
                    message = await consumer.receive(timeout_millis=_RECEIVE_MS)
                except Timeout:
                    continue
                value = message.data().decode()
                self._note(value)
                await world.clock.sleep(rng.uniform(0.0, _JOB_SECONDS))
                if rng.random() < 0.15:
                    jobs.refused[value] += 1
                    await consumer.negative_acknowledge(message)
                else:
                    await consumer.acknowledge(message)
                    jobs.acknowledged.add(value)


def run_priorities(seed: int) -> None:
    """Run one seed. Raises ``AssertionError`` when a message is lost, comes twice or too late."""
    sim = Simulation(seed)
    sim.run(_Run(sim).run, max_virtual_seconds=600.0)
