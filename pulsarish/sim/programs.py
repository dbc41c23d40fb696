"""The programs that use the simulated cluster: publishers, consumers and readers, on the real asyncio client.

Each runs on a node of its own in sessions: it makes a client, works for a while and leaves, by closing, by letting go, or by the crash of
its node; then it begins again. What it learns goes to the oracle at once, so that a crash takes nothing back.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pulsarish.client.aio import AsyncClient, AsyncProducer
from pulsarish.client.aio_consumer import AsyncConsumer
from pulsarish.client.enums import CompressionType, ConsumerType, InitialPosition
from pulsarish.client.message import Message
from pulsarish.client.message_id import MessageId
from pulsarish.client.streams import StreamLimits
from pulsarish.model.errors import ConsumerBusy, MessageTooBig, ProducerBusy, ProducerQueueIsFull, PulsarishError, Timeout, UnknownError
from pulsarish.runtime.seams import World
from pulsarish.sim.nodes import Node, NodeDied
from pulsarish.sim.oracle import Attempt, Oracle, Outcome, Place, Subscription

__all__ = [
    "Counts",
    "Stage",
    "drain",
    "place_of",
    "publish",
    "publish_last",
    "read_everything",
    "read_first",
    "read_tail",
    "subscribe_first",
]

_LIMITS: Final = StreamLimits(
    heartbeat_seconds=2.0, silence_seconds=6.0, unanswered_seconds=1.0, ping_timeout_seconds=1.0, message_bytes=1_024
)
_OPERATION_SECONDS: Final = 5.0
_LAST_SECONDS: Final = 60.0
"""After everything has healed, what a client asks for must have happened within this."""
_GONE_SECONDS: Final = 10.0
"""A dead client's connection is noticed within this."""
_TOO_BIG: Final = 5_000


@dataclass(slots=True)
class Counts:
    """What was reached in a run: a branch that no seed reaches is not tested."""

    ok: int = 0
    known_duplicates: int = 0
    unknown: int = 0
    failed: int = 0
    delivered: int = 0
    redelivered: int = 0
    receipts: int = 0
    read: int = 0
    sessions: int = 0
    refused: int = 0
    acquired: int = 0
    ledgers: int = 0
    trimmed: int = 0
    node_ends: int = 0

    def add(self, other: Counts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Stage:
    """What the programs of one run share. ``over`` is set when the load ends."""

    rng: random.Random
    url: str
    topic: str
    oracle: Oracle
    counts: Counts
    trace: Callable[[str], None]
    over: bool = False

    def refused(self, who: str, error: PulsarishError) -> None:
        """The cluster refused: in order while things fail, if it says so in a way that a program can act on."""
        self.counts.refused += 1
        self.trace(f"{who} refused: {type(error).__name__}: {error}")
        if isinstance(error, UnknownError) or not (error.retryable or isinstance(error, ProducerBusy | ConsumerBusy)):
            self.oracle.report("defect", f"{who} was refused with {type(error).__name__}: {error}")

    @asynccontextmanager
    async def connected(self, world: World, seconds: float = _OPERATION_SECONDS) -> AsyncGenerator[AsyncClient]:
        """A client for a session, which ends by closing or by letting go."""
        client = AsyncClient(
            self.url,
            clock=world.clock,
            random=world.random,
            tasks=world.tasks,
            connections=world.connections,
            stream_limits=_LIMITS,
            operation_timeout_seconds=seconds,
            connection_timeout_ms=2_000,
        )
        try:
            yield client
            if self.rng.random() < 0.5:
                await client.close()
        finally:
            client.shutdown()

    async def keep_running(self, node: Node, who: str, session: Callable[[World], Awaitable[Any]]) -> None:
        """Session after session on a node until the load is over."""

        async def inside(world: World) -> None:
            await session(world)

        while not self.over:
            self.counts.sessions += 1
            try:
                await node.run(inside)
            except NodeDied:
                await asyncio.sleep(0.3)
            except PulsarishError as error:
                self.refused(who, error)
                await asyncio.sleep(self.rng.uniform(0.05, 0.5))


def place_of(message_id: MessageId) -> Place | None:
    """``None`` for the id of what was stored before."""
    if message_id.ledger_id() < 0:
        return None
    return Place(message_id.partition(), message_id.ledger_id(), message_id.entry_id(), max(0, message_id.batch_index()))


def _text(message: Message) -> str:
    return message.data().decode().partition(" ")[0]


# -- publishing


@dataclass(slots=True)
class Publisher:
    """One program. With deduplication its values are its sequence ids, and a new session sends again what has no receipt."""

    name: str
    exact: bool
    options: dict[str, Any]
    pause: float
    burst: int
    session: int = 0
    number: int = 0
    acknowledged: int = -1
    """Everything up to this number has a receipt."""
    stored: set[int] = field(default_factory=set)


def draw_publisher(rng: random.Random, name: str, *, exact: bool) -> Publisher:
    options: dict[str, Any] = {
        "batching_enabled": rng.random() < 0.5,
        "batching_max_messages": rng.choice((2, 5, 50)),
        # A batch above the limit of the broker for a message is refused as a whole.
        "batching_max_allowed_size_in_bytes": 2_048,
        "batching_max_publish_delay_ms": rng.choice((1, 20)),
        "compression_type": rng.choice((CompressionType.NONE, CompressionType.LZ4)),
        "max_pending_messages": rng.choice((3, 30, 200)),
        "send_timeout_millis": rng.choice((1_500, 5_000, 15_000)),
    }
    if exact:
        # No time-out: a message that was given up could never be sent again once a later one is stored, as its sequence id is behind.
        options["send_timeout_millis"] = 0
    if exact or rng.random() < 0.5:
        options["producer_name"] = name
    return Publisher(name, exact, options, pause=rng.choice((0.02, 0.1, 0.4)), burst=rng.choice((1, 4, 12)))


async def publish(stage: Stage, world: World, publisher: Publisher) -> None:
    """One session of a publisher."""
    rng = stage.rng
    publisher.session += 1
    if publisher.exact:
        # What has no receipt is sent again under its old number; some of it is stored already.
        publisher.number = publisher.acknowledged + 1
    async with stage.connected(world) as client:
        producer = await client.create_producer(stage.topic, **publisher.options)
        ends = rng.uniform(1.0, 12.0) + world.clock.monotonic()
        while not stage.over and world.clock.monotonic() < ends:
            for _ in range(rng.randrange(1, publisher.burst + 1)):
                if not _send_one(stage, producer, publisher):
                    break
            await world.clock.sleep(publisher.pause * 2 * rng.random())
            if producer._publishing.is_closed:
                break


def _send_one(stage: Stage, producer: AsyncProducer, publisher: Publisher) -> bool:
    """Queue one message; whether another may follow at once."""
    number = publisher.number
    value = f"{publisher.name}-{number}" if publisher.exact else f"{publisher.name}-{publisher.session}.{number}"
    # By the name that the broker knows: a session that let the broker choose one is a producer of its own, and what it left in the stream
    # when it let go may still come after the first messages of the next session (only within one producer is order promised).
    attempt = stage.oracle.attempt(producer.producer_name(), publisher.session, number, value)
    too_big = not publisher.exact and stage.rng.random() < 0.01
    content = value + " " + "." * (_TOO_BIG if too_big else stage.rng.choice((0, 0, 30, 700)))
    publisher.number += 1
    # With deduplication a value must meet its own partition again.
    key = str(number % 5) if publisher.exact or number % 3 else None
    try:
        future = producer.send_soon(content.encode(), sequence_id=number if publisher.exact else None, partition_key=key)
    except PulsarishError as error:
        _failed(stage, attempt, error)
        if publisher.exact:
            publisher.number = number
        return False
    future.add_done_callback(lambda done: _answered(stage, publisher, attempt, done))
    return True


def _answered(stage: Stage, publisher: Publisher, attempt: Attempt, done: asyncio.Future[MessageId]) -> None:
    error = done.exception()
    if error is not None:
        assert isinstance(error, PulsarishError), error
        _failed(stage, attempt, error)
        return
    place = place_of(done.result())
    stage.trace(f"stored {attempt.value} at {place}")
    stage.counts.ok += 1
    stage.counts.known_duplicates += place is None
    stage.oracle.stored(attempt, place)
    publisher.stored.add(attempt.number)
    while publisher.acknowledged + 1 in publisher.stored:
        publisher.acknowledged += 1


def _failed(stage: Stage, attempt: Attempt, error: PulsarishError) -> None:
    stage.trace(f"not stored {attempt.value}: {type(error).__name__}: {error}")
    if isinstance(error, MessageTooBig | ProducerQueueIsFull):
        # Refused before anything was sent.
        attempt.outcome = Outcome.FAILED
        stage.counts.failed += 1
        return
    stage.counts.unknown += 1
    if isinstance(error, UnknownError):
        stage.oracle.report("defect", f"sending {attempt.value} failed with {error}", attempt.value)


async def publish_last(stage: Stage, world: World, name: str, count: int) -> None:
    """All is well again: a publisher gets its receipts. Raises ``Timeout`` when it does not."""
    async with stage.connected(world, _LAST_SECONDS) as client:
        publisher = Publisher(name, False, {"send_timeout_millis": int(_LAST_SECONDS * 1000)}, 0, count)
        producer = await client.create_producer(stage.topic, **publisher.options)
        for _ in range(count):
            _send_one(stage, producer, publisher)
        await producer.flush()
    unknown = [attempt.value for attempt in stage.oracle.attempts[-count:] if attempt.outcome is Outcome.UNKNOWN]
    if unknown:
        raise Timeout(f"{', '.join(unknown)} got no receipt")


# -- consuming


@dataclass(slots=True)
class Reading:
    """How the consumers of one subscription behave."""

    subscription: Subscription
    kind: ConsumerType
    cumulative: bool
    receipts: bool
    batch_index: bool
    queue: int
    forgets: float
    """The share of messages that are neither acknowledged nor refused."""
    refuses: float

    def options(self) -> dict[str, Any]:
        return {
            "consumer_type": self.kind,
            "initial_position": InitialPosition.Earliest,
            "ack_receipt_enabled": self.receipts,
            "receiver_queue_size": self.queue,
            "negative_ack_redelivery_delay_ms": 300,
            "batch_index_ack_enabled": self.batch_index,
        }


def draw_reading(rng: random.Random, oracle: Oracle, name: str) -> Reading:
    kind = rng.choice((ConsumerType.Exclusive, ConsumerType.Failover, ConsumerType.Shared))
    ordered = kind is not ConsumerType.Shared
    subscription = oracle.subscriptions[name] = Subscription(name, ordered)
    return Reading(
        subscription,
        kind,
        cumulative=ordered and rng.random() < 0.5,
        receipts=rng.random() < 0.6,
        batch_index=rng.random() < 0.5,
        queue=rng.choice((1, 5, 50)),
        forgets=rng.choice((0.0, 0.0, 0.05)),
        refuses=rng.choice((0.0, 0.1)),
    )


async def subscribe_first(stage: Stage, world: World, reading: Reading) -> None:
    """Make the subscription before anything is published, so that it must get everything."""
    async with stage.connected(world, _LAST_SECONDS) as client:
        await client.subscribe(stage.topic, reading.subscription.name, **reading.options())


async def consume(stage: Stage, world: World, reading: Reading, who: str) -> None:
    """One session of a consumer."""
    rng, subscription = stage.rng, reading.subscription
    async with stage.connected(world) as client:
        consumer = await client.subscribe(stage.topic, subscription.name, consumer_name=who, **reading.options())
        session: list[Place] = []
        subscription.sessions.append(session)
        ends = rng.uniform(1.0, 12.0) + world.clock.monotonic()
        while not stage.over and world.clock.monotonic() < ends:
            try:
                message = await consumer.receive(timeout_millis=500)
            except Timeout:
                continue
            place = _got(stage, subscription, session, message)
            if rng.random() < 0.02:
                await world.clock.sleep(rng.uniform(0.0, 1.0))
            if rng.random() < reading.forgets:
                continue
            if rng.random() < reading.refuses:
                await consumer.negative_acknowledge(message)
                continue
            if reading.cumulative and rng.random() < 0.7:
                continue
            await _acknowledge(stage, consumer, reading, message, place)


def _got(stage: Stage, subscription: Subscription, session: list[Place], message: Message) -> Place:
    place = place_of(message.message_id())
    assert place is not None
    stage.counts.delivered += 1
    stage.counts.redelivered += place in subscription.delivered
    stage.trace(f"delivered {_text(message)} at {place} to {subscription.name}")
    stage.oracle.delivered(subscription, session, place, _text(message))
    return place


async def _acknowledge(stage: Stage, consumer: AsyncConsumer, reading: Reading, message: Message, place: Place) -> None:
    subscription = reading.subscription
    if reading.cumulative:
        subscription.try_up_to(place)
        await consumer.acknowledge_cumulative(message)
    else:
        subscription.tried.add(place)
        await consumer.acknowledge(message)
    if not reading.receipts:
        return
    stage.counts.receipts += 1
    stage.trace(f"receipt for {place} of {subscription.name}")
    whole = reading.batch_index or message.message_id().batch_size() <= 1
    if not reading.cumulative:
        # Without batch index acknowledgement a part of a batch comes again with the whole of it.
        if whole:
            subscription.confirmed.add(place)
    elif whole:
        subscription.confirm_up_to(place)
    else:
        subscription.confirm_up_to(Place(place.partition, place.ledger, place.entry, -1))


async def _subscribe_last(stage: Stage, world: World, client: AsyncClient, reading: Reading) -> AsyncConsumer:
    """A broker may take its keep-alive time-out to notice that the one before is gone."""
    deadline = world.clock.monotonic() + _GONE_SECONDS
    while True:
        try:
            return await client.subscribe(stage.topic, reading.subscription.name, **{**reading.options(), "receiver_queue_size": 100})
        except ConsumerBusy:
            if world.clock.monotonic() > deadline:
                raise
            await world.clock.sleep(0.5)


async def drain(stage: Stage, world: World, reading: Reading, log: list[Place]) -> None:
    """All is well again: a new consumer is given everything that was never acknowledged, and then a little longer what comes."""
    subscription = reading.subscription
    async with stage.connected(world, _LAST_SECONDS) as client:
        consumer = await _subscribe_last(stage, world, client, reading)
        missing = {place for place in log if not subscription.may_be_acknowledged(place)}
        deadline = world.clock.monotonic() + _LAST_SECONDS
        session: list[Place] = []
        subscription.sessions.append(session)
        while True:
            try:
                message = await consumer.receive(timeout_millis=2_000)
            except Timeout:
                if not missing or world.clock.monotonic() > deadline:
                    break
                continue
            place = _got(stage, subscription, session, message)
            subscription.final.append(place)
            missing.discard(place)
            # A shared consumer that acknowledges nothing is given no more at some limit. No receipt is awaited: nothing rests on it.
            _ = world.tasks.spawn(_let_go(consumer, message), name="final acknowledgement", critical=False)


async def _let_go(consumer: AsyncConsumer, message: Message) -> None:
    with contextlib.suppress(PulsarishError):
        await consumer.acknowledge(message)


# -- reading


async def read_tail(stage: Stage, world: World) -> None:
    """One session of a reader: from the earliest, or on from where the log ends."""
    rng = stage.rng
    async with stage.connected(world) as client:
        start = rng.choice((MessageId.earliest, MessageId.latest))
        topic = rng.choice(await client.get_topic_partitions(stage.topic))
        reader = await client.create_reader(topic, start, receiver_queue_size=rng.choice((1, 10)))
        seen: list[Place] = []
        stage.oracle.tails.append(seen)
        ends = rng.uniform(2.0, 12.0) + world.clock.monotonic()
        while not stage.over and world.clock.monotonic() < ends:
            try:
                message = await reader.read_next(timeout_millis=500)
            except Timeout:
                continue
            _saw(stage, seen, message, "a reader")


async def read_everything(stage: Stage, world: World) -> list[Place]:
    """From the earliest to the end."""
    async with stage.connected(world, _LAST_SECONDS) as client:
        seen: list[Place] = []
        async with world.clock.timeout(_LAST_SECONDS):
            for topic in await client.get_topic_partitions(stage.topic):
                reader = await client.create_reader(topic, MessageId.earliest, receiver_queue_size=50)
                while await reader.has_message_available():
                    _saw(stage, seen, await reader.read_next(), "a final reader")
        return seen


async def read_first(stage: Stage, world: World) -> dict[int, Place]:
    """The first place that is left of each partition; an empty partition has none."""
    async with stage.connected(world, _LAST_SECONDS) as client:
        first: dict[int, Place] = {}
        async with world.clock.timeout(_LAST_SECONDS):
            for topic in await client.get_topic_partitions(stage.topic):
                reader = await client.create_reader(topic, MessageId.earliest, receiver_queue_size=1)
                if await reader.has_message_available():
                    seen: list[Place] = []
                    _saw(stage, seen, await reader.read_next(), "a final reader")
                    first[seen[0].partition] = seen[0]
        return first


def _saw(stage: Stage, seen: list[Place], message: Message, who: str) -> None:
    place = place_of(message.message_id())
    assert place is not None
    stage.counts.read += 1
    stage.oracle.saw(place, _text(message), who)
    seen.append(place)
