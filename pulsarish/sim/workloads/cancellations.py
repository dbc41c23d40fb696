"""An asyncio program that cancels what it awaits: sends, receives, acknowledgements, openings and
closings, each at any moment, and then does it again.

What must hold:

* Each message whose ``send`` returned is stored, once; one whose ``send`` was cancelled at most
  once. All are stored in the order of their sends.
* No message is taken by a cancelled receive: while nothing dies, each consumer gets all that is
  not acknowledged, once, in order. When owners die, nothing is lost.
* What has an acknowledgement with a receipt does not come to a later consumer.
* A cancelled opening or closing leaves no producer and no consumer at the broker: the exclusive
  subscription and the producer's name are free for the next one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_policies import ConsumerBatchReceivePolicy
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import ConsumerBusy, ProducerBusy, PulsarishError, Timeout
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.cluster import ClusterSettings, SimCluster
from pulsarish.sim.cluster.oracle import Oracle, Promises
from pulsarish.sim.cluster.stage import LAST_SECONDS, Counts, Stage
from pulsarish.sim.workloads.result import BOOT_SECONDS
from pulsarish.sim.world.world import Simulation

__all__ = ["Cancelled", "run_cancellations"]

T = TypeVar("T")

_TOPIC: Final = "persistent://public/default/cancelled"
_SUBSCRIPTION: Final = "work"
_PRODUCER: Final = "program"
_MESSAGES: Final = 150
_FAULTS_SECONDS: Final = 20.0
_ALL_SECONDS: Final = 120.0
_FREE_SECONDS: Final = 5.0
"""How long a place may still be taken after an owner died."""


@dataclass(slots=True)
class Cancelled:
    """How often each kind of call was cancelled before it had ended."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1


class _Run:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.cancelled = Cancelled()
        self._rng = rng = random.Random(f"{sim.seed}:cancellations")
        self._is_calm = rng.random() < 0.5
        """Nothing dies, so that each message comes once to each consumer."""
        self._cluster = SimCluster(
            sim,
            ClusterSettings(
                bookies=3,
                brokers=2,
                quorums=(3, 3, 2),
                deduplication=True,
                partitions=0,
                entries_per_ledger=rng.choice((7, 1_000)),
                cursor_node_writes_max=3,
                cursor_flush_interval_ms=rng.choice((200, 1_000)),
                read_batch=rng.choice((4, 30)),
                bundles=1,
                repair=False,
            ),
        )
        oracle = Oracle(Promises(deduplication=True, trimmed=True))
        self._stage = Stage(rng, self._cluster.service_url, "", oracle, Counts(), sim.trace)
        self._returned: set[int] = set()
        """Messages whose ``send`` returned."""
        self._begun = 0
        """Messages whose ``send`` was called."""
        self._acknowledged: set[int] = set()
        """Messages whose acknowledgement has a receipt."""
        self._perhaps: set[int] = set()
        """Messages whose acknowledgement was cancelled or failed."""
        self._sessions: list[tuple[set[int], set[int], list[int]]] = []
        """Of each consumer: what was acknowledged, and perhaps acknowledged, before it got each
        message, and the messages.
        """
        self._all_sent = False
        self._faults = not self._is_calm

    async def run(self) -> None:
        loop, sim = asyncio.get_running_loop(), self.sim
        self._cluster.boot()
        sim.node("program")
        await asyncio.sleep(BOOT_SECONDS)
        # Before the first message, so that none is trimmed.
        await sim.nodes["program"].run(self._prepare)
        running = loop.create_task(sim.nodes["program"].run(self._program))
        faults = loop.create_task(self._change_owners())
        calm = loop.time() + _FAULTS_SECONDS
        ends = loop.time() + _ALL_SECONDS
        while not running.done():
            await asyncio.sleep(0.1)
            self._faults = self._faults and loop.time() < calm
            assert loop.time() < ends, self._left()
        await running
        self._faults = False
        await faults

    def _left(self) -> str:
        return (
            f"{self._begun} of {_MESSAGES} were sent and {len(self._returned)} have receipts; "
            f"{sorted(self._returned - self._acknowledged - self._perhaps)} did not come"
        )

    async def _prepare(self, world: World) -> None:
        async with self._stage.connected(world, LAST_SECONDS) as client:
            consumer = await client.subscribe(
                _TOPIC, _SUBSCRIPTION, initial_position=InitialPosition.Earliest
            )
            await consumer.close()

    async def _program(self, world: World) -> None:
        async with self._stage.connected(world, LAST_SECONDS) as client:
            tasks = asyncio.get_running_loop()
            publishing = tasks.create_task(self._publish(client, world))
            consuming = tasks.create_task(self._consume(client, world))
            looking = tasks.create_task(self._look(client, world))
            for task in (publishing, consuming, looking):
                await task
            self._check_log(await self._stored(client))
            self._check_sessions()
            # A close that was cancelled may be under way.
            await world.clock.sleep(1.0)
            for name, topic in self._cluster.loaded_topics():
                if topic.name.full == _TOPIC:
                    busy = [each for each in topic.subscriptions.values() if each.consumers]
                    assert not topic.producers, f"{name} still has {list(topic.producers)}"
                    assert not busy, f"{name} still has consumers of {[s.name for s in busy]}"

    # -- cancelling

    async def _moment(self) -> None:
        """Wait for a moment at which something is cancelled."""
        if self._rng.random() < 0.3:
            for _ in range(self._rng.randrange(6)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._rng.random() ** 3 * self._rng.choice((0.003, 0.03, 0.3)))

    async def _once(self, kind: str, work: Awaitable[T]) -> T:
        """Do it, or cancel it on the way. Raises ``CancelledError`` then."""
        task = asyncio.ensure_future(work)
        if self._rng.random() < 0.5:
            await self._moment()
            if task.cancel():
                try:
                    return await task
                except asyncio.CancelledError:
                    self.cancelled.add(kind)
                    raise
        return await task

    async def _again(self, kind: str, call: Callable[[], Awaitable[T]]) -> T:
        """Do it until it was not cancelled."""
        busy_until = 0.0
        while True:
            try:
                return await self._once(kind, call())
            except asyncio.CancelledError:
                continue
            except (ProducerBusy, ConsumerBusy):
                # The owner that died may not be known as dead to its successor's client.
                now = self.sim.loop.time()
                busy_until = busy_until or now + _FREE_SECONDS
                if self._is_calm or now > busy_until:
                    raise
                await asyncio.sleep(0.1)

    # -- the program

    async def _publish(self, client: AsyncClient, world: World) -> None:
        rng = self._rng
        while self._begun < _MESSAGES:
            producer = await self._again(
                "create_producer",
                lambda: client.create_producer(
                    _TOPIC,
                    _PRODUCER,
                    max_pending_messages=rng.choice((1, 3, 1_000)),
                    block_if_queue_full=True,
                    batching_max_messages=rng.choice((1, 4, 1_000)),
                    send_timeout_millis=0,
                ),
            )
            for _ in range(rng.randrange(1, 9)):
                await self._send_some(producer)
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.random())
            await self._again("producer.close", producer.close)
        self._all_sent = True

    async def _send_some(self, producer: AsyncProducer) -> None:
        async def send() -> None:
            # What follows a receipt may meet room that was freed for those that wait.
            for _ in range(self._rng.choice((1, 3))):
                number, self._begun = self._begun, self._begun + 1
                await producer.send(b"%d" % number)
                self._returned.add(number)

        sends = [asyncio.ensure_future(send()) for _ in range(self._rng.choice((1, 1, 5)))]
        await asyncio.sleep(0)
        for sent in sends:
            try:
                await self._once("send", sent)
            except asyncio.CancelledError:
                continue

    async def _consume(self, client: AsyncClient, world: World) -> None:
        rng = self._rng
        while not self._all_sent or self._returned - self._acknowledged - self._perhaps:
            consumer = await self._again(
                "subscribe",
                lambda: client.subscribe(
                    _TOPIC,
                    _SUBSCRIPTION,
                    ack_receipt_enabled=True,
                    receiver_queue_size=rng.choice((1, 5, 1_000)),
                    batch_receive_policy=ConsumerBatchReceivePolicy(rng.choice((2, 10)), -1, 200),
                ),
            )
            session: list[int] = []
            self._sessions.append((set(self._acknowledged), set(self._perhaps), session))
            for _ in range(rng.randrange(3, 40)):
                for message in await self._receive(consumer):
                    number = int(message.data())
                    session.append(number)
                    await self._acknowledge(consumer, message, number)
            await self._again("consumer.close", consumer.close)

    async def _receive(self, consumer: AsyncConsumer) -> list[Message]:
        way = self._rng.randrange(3)
        try:
            if way == 0:
                return await self._once("batch_receive", consumer.batch_receive())
            if way == 1:
                return [await self._once("receive", consumer.receive(100))]
            return [await self._once("receive", _in_time(consumer))]
        except (asyncio.CancelledError, Timeout, TimeoutError):
            return []

    async def _acknowledge(self, consumer: AsyncConsumer, message: Message, number: int) -> None:
        if self._rng.random() < 0.2:
            return  # for the next consumer
        try:
            await self._once("acknowledge", consumer.acknowledge(message))
        except (asyncio.CancelledError, PulsarishError):
            self._perhaps.add(number)
        else:
            self._acknowledged.add(number)

    async def _look(self, client: AsyncClient, world: World) -> None:
        """Open and close what leaves no trace."""
        while not self._all_sent:
            reader = await self._again(
                "create_reader", lambda: client.create_reader(_TOPIC, MessageId.earliest)
            )
            await self._again("reader.close", reader.close)
            view = await self._again("create_table_view", lambda: client.create_table_view(_TOPIC))
            await self._again("table_view.close", view.close)
            await asyncio.sleep(self._rng.random())

    async def _change_owners(self) -> None:
        while self._faults:
            await asyncio.sleep(self._rng.uniform(1.0, 8.0))
            owners = sorted({name for name, _ in self._cluster.loaded_topics()})
            if owners and self._faults:
                owner = self.sim.nodes[self._rng.choice(owners)]
                owner.crash()
                await asyncio.sleep(self._rng.uniform(0.1, 2.0))
                owner.revive()

    # -- what must hold

    async def _stored(self, client: AsyncClient) -> list[int]:
        reader = await client.create_reader(_TOPIC, MessageId.earliest)
        found: list[int] = []
        while await reader.has_message_available():
            found.append(int((await reader.read_next()).data()))
        await reader.close()
        return found

    def _check_log(self, stored: list[int]) -> None:
        assert stored == sorted(set(stored)), f"stored twice or out of order: {stored}"
        lost = sorted(self._returned - set(stored) - self._acknowledged - self._perhaps)
        assert not lost, f"{lost} have receipts and are not stored"

    def _check_sessions(self) -> None:
        came = {number for _, _, session in self._sessions for number in session}
        lost = sorted(self._returned - came)
        assert not lost, f"{lost} have receipts and came to no consumer"
        for acknowledged, perhaps, session in self._sessions:
            again = sorted(acknowledged & set(session))
            assert not again, f"{again} came again after the receipts of their acknowledgements"
            if not self._is_calm:
                continue
            assert session == sorted(set(session)), f"twice or out of order: {session}"
            if session:
                wanted = {number for number in self._returned if number <= session[-1]}
                passed = sorted(wanted - acknowledged - perhaps - set(session))
                assert not passed, f"{passed} were passed over in {session}"


async def _in_time(consumer: AsyncConsumer) -> Message:
    return await asyncio.wait_for(consumer.receive(), 0.1)


def run_cancellations(seed: int) -> Cancelled:
    """Run one seed, and return what was cancelled.

    Raises ``AssertionError`` when one of the rules above does not hold.
    """
    sim = Simulation(seed)
    run = _Run(sim)
    sim.run(run.run, max_virtual_seconds=300.0)
    return run.cancelled
