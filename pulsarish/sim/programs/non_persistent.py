"""A non-persistent topic: programs publish to it and consumers listen, through subscriptions of
every type, during faults.

Most of the messages may get lost. What must hold at any time, of each message that was sent once:

* A subscription gets it at most once (``duplicate``), as it was sent and where its receipt says. It
  does not get the message at all when the receipt says that it was dropped (``phantom``,
  ``inconsistent-offsets``).
* Each consumer gets messages in the order in which the owner took them (``reorder``,
  ``nonmonotonic-send``).
* A consumer that subscribed after the receipt does not get it (``kept``).

A client that loses its connection sends again what has no receipt, as to any topic. Of a message
that was sent more than once only this holds: a producer sent it.

When everything has healed: a message that is published slowly comes to one consumer of each
subscription (``skipped``), and of a failover subscription and of a key always to the same one
(``two-active``, ``key-shared``). At the end of the run: nothing was ever stored for the topic, at
most one broker has it, and no client counts as connected (``garbage``, ``two-owners``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import BatchingType, ConsumerType
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.metadata import paths
from pulsarish.model.errors import MessageTooBig, ProducerQueueIsFull, PulsarishError, Timeout
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.cluster.cluster import SimCluster
from pulsarish.sim.cluster.invariants import Invariants
from pulsarish.sim.cluster.operator import NAMESPACE, administer
from pulsarish.sim.cluster.oracle import Place
from pulsarish.sim.cluster.stage import LAST_SECONDS, Stage, place_of, text_of

__all__ = ["Fleeting"]

_NAME: Final = "fleeting"
_TOPIC: Final = f"non-persistent://public/default/{_NAME}"
_TOPICS: Final = "/admin/v2/non-persistent/public/default"
_TYPES: Final = (
    ConsumerType.Exclusive,
    ConsumerType.Failover,
    ConsumerType.Shared,
    ConsumerType.KeyShared,
)
_KEYS: Final = 5
_BURST: Final = 8
"""A burst.

Here brokers have at most five entries of a connection under way, and drop what comes beyond them.
"""
_PAUSE_SECONDS: Final = 0.4
_UNLOAD_CHANCE: Final = 0.3
_TAKEN_MAX: Final = 20
_LAST_MESSAGES: Final = 6
_PERMITS_SECONDS: Final = 0.5
"""Within this time a consumer that has subscribed has sent its permits."""
_COMES_SECONDS: Final = 5.0

Report = Callable[[str, str, str], None]
_Group = tuple[AsyncConsumer, "_Listening"]


@dataclass(slots=True)
class _Sent:
    value: str
    producer: str
    key: str
    by_key: bool
    """It may be in a batch that is made by key, so that messages of one key pass those of
    another.
    """
    opened: list[int]
    """How often each partition's producer had been opened when it was sent; -1: it was not open."""
    failed: bool = False
    once: int = -1
    """The opening during which it was both sent and answered, so that it was sent once."""
    place: Place | None = None
    """``None`` with a receipt: it was dropped."""
    answered: int = 0
    receipt: asyncio.Future[MessageId] | None = None


@dataclass(slots=True)
class _Listening:
    """One consumer from its subscription on.

    ``began`` and ``_Sent.answered`` count the same events.
    """

    subscription: str
    began: int
    came: list[tuple[str, Place]] = field(default_factory=list)


@dataclass(slots=True)
class Fleeting:
    """``rng`` decides what its programs do. ``stage`` gives its counts, its trace and its end."""

    stage: Stage
    rng: random.Random
    cluster: SimCluster
    report: Report
    sent: dict[str, _Sent] = field(default_factory=dict)
    """Messages by value."""
    listening: list[_Listening] = field(default_factory=list)
    _session: int = 0
    _events: int = 0

    def _event(self) -> int:
        self._events += 1
        return self._events

    # -- during faults

    async def publish(self, world: World) -> None:
        rng = self.rng
        self._session += 1
        by_key = rng.random() < 0.5
        options: dict[str, Any] = {
            "batching_enabled": rng.random() < 0.5,
            "batching_type": BatchingType.KeyBased if by_key else BatchingType.Default,
            "batching_max_messages": rng.choice((2, 50)),
            "send_timeout_millis": 3_000,
            "max_pending_messages": 30,
        }
        if rng.random() < _UNLOAD_CHANCE:
            await self._unload(world)
        async with self.stage.connected(world) as client:
            names = [f"s{self._session}{letter}" for letter in rng.choice(("a", "ab"))]
            producers = [(name, await client.create_producer(_TOPIC, **options)) for name in names]
            ends = world.clock.monotonic() + rng.uniform(1.0, 8.0)
            while not self.stage.over and world.clock.monotonic() < ends:
                name, producer = rng.choice(producers)
                if producer._publishing.is_closed:
                    break
                for _ in range(rng.choice((1, 1, _BURST))):
                    self._send(producer, name, by_key=by_key)
                await world.clock.sleep(_PAUSE_SECONDS * 2 * rng.random())

    async def _unload(self, world: World) -> None:
        """Unload the topic, a partition of it, or the whole namespace."""
        partitions = self.cluster.settings.partitions
        partition = f"-partition-{self.rng.randrange(partitions)}" if partitions else ""
        what = self.rng.choice((f"{_TOPICS}/{_NAME}{partition}", NAMESPACE))
        broker = self.rng.choice(self.cluster.brokers)
        try:
            await administer(self.stage, world, broker, "PUT", f"{what}/unload")
        except (StreamBroken, TimeoutError) as error:
            self.stage.trace(f"unload of {what} has no outcome: {error!r}")

    def _send(self, producer: AsyncProducer, name: str, *, by_key: bool) -> _Sent:
        opened = [child._epoch if child.is_open else -1 for child in producer._publishing.children]
        sent = _Sent(
            f"{name}.{self._event()}", name, f"k{self.rng.randrange(_KEYS)}", by_key, opened
        )
        self.sent[sent.value] = sent
        try:
            sent.receipt = producer.send_soon(sent.value.encode(), partition_key=sent.key)
        except PulsarishError as error:
            sent.failed = True
            self.stage.trace(f"not sent {sent.value}: {error}")
        else:
            sent.receipt.add_done_callback(lambda done: self._answered(sent, producer, done))
        return sent

    def _answered(
        self, sent: _Sent, producer: AsyncProducer, done: asyncio.Future[MessageId]
    ) -> None:
        sent.answered = self._event()
        if (error := done.exception()) is not None:
            self.stage.trace(f"no receipt for {sent.value}: {type(error).__name__}: {error}")
            sent.failed = isinstance(error, MessageTooBig | ProducerQueueIsFull)
            return
        message_id = done.result()
        sent.place = place_of(message_id)
        partition = max(0, message_id.partition())
        if sent.opened[partition] == producer._publishing.children[partition]._epoch:
            sent.once = sent.opened[partition]
        self.stage.counts.fleeting_sent += 1
        self.stage.trace(f"receipt of {sent.value}: {sent.place}, opening {sent.once}")

    async def consume(self, world: World, who: str) -> None:
        """Run one session of two consumers, of which one may be an exclusive one."""
        rng = self.rng
        async with self.stage.connected(world) as client:
            consumers = [
                await self._subscribe(client, kind)
                for kind in (rng.choice(_TYPES), rng.choice(_TYPES[1:]))
            ]
            ends = world.clock.monotonic() + rng.uniform(0.5, 6.0)
            while not self.stage.over and world.clock.monotonic() < ends:
                for consumer, listening in consumers:
                    await self._take(consumer, listening, who)
            if rng.random() < 0.2:
                consumer, _ = consumers[0]
                try:
                    await consumer.unsubscribe()
                except PulsarishError as error:
                    self.stage.trace(f"{who} did not unsubscribe: {type(error).__name__}: {error}")

    async def _subscribe(
        self, client: AsyncClient, kind: ConsumerType, *, last: bool = False
    ) -> _Group:
        listening = _Listening(f"{'last' if last else 'any'}-{kind.name.lower()}", self._event())
        self.listening.append(listening)
        queue = 50 if last else self.rng.choice((1, 5, 50))
        consumer = await client.subscribe(
            _TOPIC,
            listening.subscription,
            consumer_type=kind,
            receiver_queue_size=queue,
            negative_ack_redelivery_delay_ms=300,
        )
        return consumer, listening

    async def _take(self, consumer: AsyncConsumer, listening: _Listening, who: str) -> None:
        """Receive what is there, and what comes at once."""
        rng = self.rng
        try:
            for _ in range(_TAKEN_MAX):
                message = await consumer.receive(timeout_millis=150)
                self._came(message, listening, who)
                # Neither has a meaning here.
                if rng.random() < 0.1:
                    await consumer.negative_acknowledge(message)
                elif rng.random() < 0.5:
                    await consumer.acknowledge(message)
        except Timeout:
            pass

    def _came(self, message: Message, listening: _Listening, who: str) -> None:
        place, value = place_of(message.message_id()), text_of(message)
        assert place is not None
        self.stage.counts.fleeting += 1
        self.stage.trace(f"delivered {value} at {place} to {who} of {listening.subscription}")
        listening.came.append((value, place))

    # -- when everything has healed

    async def conclude(self, world: World) -> None:
        """Check that no message that is published slowly is lost, whatever happened before."""
        async with self.stage.connected(world, LAST_SECONDS) as client:
            groups = [
                [
                    await self._subscribe(client, kind, last=True)
                    for _ in range(1 + (kind in _TYPES[1:]))
                ]
                for kind in _TYPES
            ]
            producer = await client.create_producer(
                _TOPIC, batching_enabled=False, send_timeout_millis=int(LAST_SECONDS * 1000)
            )
            await world.clock.sleep(_PERMITS_SECONDS)
            takers: dict[tuple[str, str], int] = {}
            for _ in range(_LAST_MESSAGES):
                sent = self._send(producer, "last", by_key=False)
                if sent.receipt is not None:
                    await sent.receipt
                for group in groups:
                    await self._comes(world, sent, group, takers)

    async def _comes(
        self, world: World, sent: _Sent, group: Sequence[_Group], takers: dict[tuple[str, str], int]
    ) -> None:
        """Check that one consumer of this group gets it: where required, the one that got earlier
        messages of the same key or partition.
        """
        deadline = world.clock.monotonic() + _COMES_SECONDS
        subscription = group[0][1].subscription
        while world.clock.monotonic() < deadline:
            for index, (consumer, listening) in enumerate(group):
                await self._take(consumer, listening, f"last{index}")
                if not listening.came or listening.came[-1][0] != sent.value:
                    continue
                place = listening.came[-1][1]
                same = {"last-failover": str(place.partition), "last-keyshared": sent.key}.get(
                    subscription, sent.value
                )
                if takers.setdefault((subscription, same), index) != index:
                    name = "key-shared" if same == sent.key else "two-active"
                    self.report(
                        name,
                        f"{sent.value} of {sent.key} at {place} came to consumer {index} of "
                        f"{subscription}",
                        sent.value,
                    )
                return
        self.report(
            "skipped",
            f"{sent.value} never came to {subscription}, although all was well when it was sent",
            sent.value,
        )

    def look(self, invariants: Invariants) -> None:
        """Check at the end of the run that nothing is left, and that nothing was ever stored."""
        mine = TopicName.parse(_TOPIC)
        for path in self.cluster.sim.metadata.tree.nodes:
            if _NAME in path and path != paths.partitioned_topic(mine):
                self.report("garbage", f"{path} is in metadata, and {mine} keeps nothing", "")
        for record in invariants.ledgers.values():
            if _NAME in record.purpose.owner:
                self.report(
                    "garbage",
                    f"ledger {record.ledger_id} was made for {record.purpose.owner}, which keeps "
                    "nothing",
                    "",
                )
        holders: dict[str, str] = {}
        for name, broker in self.cluster.brokers_up():
            for full, topic in broker._topics.not_kept.open.items():
                if holders.setdefault(full, name) != name:
                    self.report(
                        "two-owners", f"{full} is open on {holders[full]} and on {name}", ""
                    )
                if topic.connected:
                    self.report(
                        "garbage",
                        f"{full} on {name} counts a client as connected, and all have left",
                        "",
                    )

    # -- judgement

    def judge(self) -> None:
        self._judge_receipts()
        came: dict[tuple[str, str], Place] = {}
        for listening in self.listening:
            last: dict[tuple[str, int], tuple[int, Place]] = {}
            for value, place in listening.came:
                sent = self.sent.get(value)
                if sent is None or sent.failed:
                    self.report(
                        "phantom",
                        f"{value} at {place} came to {listening.subscription}, and no producer "
                        "sent it",
                        value,
                    )
                elif sent.once >= 0:
                    self._judge_place(sent, listening, place)
                    before = came.setdefault((listening.subscription, value), place)
                    if before is not place:
                        self.report(
                            "duplicate",
                            f"{value} came to {listening.subscription} at {before} and at {place}",
                            value,
                        )
                    producer = (sent.producer, place.partition)
                    at = (sent.once, place)
                    if at <= last.get(producer, (-1, place)):
                        what = (
                            f"{value} at {place} came to a consumer of "
                            f"{listening.subscription} after {last[producer][1]}"
                        )
                        self.report("reorder", what, value)
                    last[producer] = at

    def _judge_place(self, sent: _Sent, listening: _Listening, place: Place) -> None:
        value, name = sent.value, listening.subscription
        if sent.place is None:
            self.report(
                "phantom",
                f"{value} at {place} came to {name}, and its receipt says that it was dropped",
                value,
            )
        elif sent.place != place:
            self.report(
                "inconsistent-offsets",
                f"{value} came to {name} at {place}, its receipt says {sent.place}",
                value,
            )
        if sent.answered < listening.began:
            self.report(
                "kept",
                f"{value} at {place} came to a consumer of {name} that subscribed after its "
                "receipt",
                value,
            )

    def _judge_receipts(self) -> None:
        """Check that the receipts of one opening of a producer are in its order, unless it makes
        batches by key.
        """
        last: dict[tuple[str, int, int], Place] = {}
        for sent in self.sent.values():
            if sent.once < 0 or sent.place is None or sent.by_key:
                continue
            producer = (sent.producer, sent.place.partition, sent.once)
            before = last.get(producer)
            if before is not None and sent.place <= before:
                self.report(
                    "nonmonotonic-send",
                    f"{sent.value} got {sent.place}, after {before} was given to an earlier send",
                    sent.value,
                )
            last[producer] = sent.place
