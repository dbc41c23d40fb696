"""Programs that consume from a subscription with a filter, on a topic of their own.

They connect, leave and seek to the beginning during faults, and the filter changes between two.

What must hold: a message that no filter of the run accepts never comes (``unfiltered``). A message
with a receipt that both accept comes in the end (``skipped``). When everything was acknowledged,
nothing is left, whether it matched or not (``left``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import BatchingType, CompressionType, ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import PulsarishError, Timeout
from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.cluster.operator import TOPICS, administer
from pulsarish.sim.cluster.stage import LAST_SECONDS, Stage

__all__ = ["SUBSCRIPTION", "Sifters"]

SUBSCRIPTION: Final = "sifted"
_TOPIC: Final = "persistent://public/default/sifted"
_PARTS: Final = (0, 0, 1, 2, 3, None)
"""Values of the property by which messages are judged; ``None``: a message without it."""
_FILTERS: Final[tuple[tuple[str, frozenset[int]], ...]] = (
    ("part = 0", frozenset((0,))),
    ("NOT part > 1", frozenset((0, 1))),
    ("part IN ('0', '2') OR part = 7", frozenset((0, 2))),
    ("part <> 3 AND NOT part LIKE '2%'", frozenset((0, 1))),
)
_PAUSE_SECONDS: Final = 0.15
_LAST_MESSAGES: Final = 20

Report = Callable[[str, str, str], None]


@dataclass(slots=True)
class Sifters:
    """``rng`` decides what its programs do. ``stage`` gives its counts, its trace and its end."""

    stage: Stage
    rng: random.Random
    brokers: Sequence[str]
    report: Report
    parts: dict[str, int | None] = field(default_factory=dict)
    """Of the messages that were sent, by value."""
    stored: set[str] = field(default_factory=set)
    came: set[str] = field(default_factory=set)
    _filters: Sequence[tuple[str, frozenset[int]]] = field(init=False)
    _options: dict[str, Any] = field(init=False)
    _batching: dict[str, Any] = field(init=False)
    _session: int = 0

    def __post_init__(self) -> None:
        rng = self.rng
        self._filters = rng.sample(_FILTERS, 2)
        kind = rng.choice((ConsumerType.Failover, ConsumerType.Shared, ConsumerType.KeyShared))
        self._options = {
            "consumer_type": kind,
            "initial_position": InitialPosition.Earliest,
            "receiver_queue_size": rng.choice((1, 5, 50)),
            "batch_index_ack_enabled": rng.random() < 0.5,
            "negative_ack_redelivery_delay_ms": 300,
        }
        self._batching = {
            "batching_enabled": rng.random() < 0.7,
            "batching_type": BatchingType.KeyBased
            if kind is ConsumerType.KeyShared
            else BatchingType.Default,
            "batching_max_messages": rng.choice((2, 5, 50)),
            "compression_type": rng.choice((CompressionType.NONE, CompressionType.LZ4)),
        }

    async def subscribe_first(self, world: World) -> None:
        async with self.stage.connected(world, LAST_SECONDS) as client:
            await client.subscribe(
                _TOPIC, SUBSCRIPTION, filter=self._filters[0][0], **self._options
            )

    async def _subscribe(self, client: AsyncClient) -> AsyncConsumer:
        return await client.subscribe(_TOPIC, SUBSCRIPTION, **self._options)

    # -- during faults

    async def publish(self, world: World) -> None:
        """Publish for a while, and change the filter once or never."""
        self._session += 1
        rng = self.rng
        changes_after = rng.randrange(1, 40)
        async with self.stage.connected(world) as client:
            producer = await self._producer(client, 3_000)
            ends = world.clock.monotonic() + rng.uniform(1.0, 8.0)
            number = 0
            while (
                not self.stage.over
                and world.clock.monotonic() < ends
                and not producer._publishing.is_closed
            ):
                for _ in range(rng.choice((1, 6))):
                    number += 1
                    self._send(producer, f"f{self._session}.{number}")
                if changes_after <= number:
                    changes_after += 1_000
                    await self._change_filter(world)
                await world.clock.sleep(_PAUSE_SECONDS * 2 * rng.random())

    async def _producer(self, client: AsyncClient, timeout_ms: int) -> AsyncProducer:
        return await client.create_producer(
            _TOPIC, max_pending_messages=30, send_timeout_millis=timeout_ms, **self._batching
        )

    def _send(self, producer: AsyncProducer, value: str) -> None:
        part = self.parts[value] = self.rng.choice(_PARTS)
        properties = {} if part is None else {"part": str(part)}
        try:
            future = producer.send_soon(
                value.encode(), properties=properties, partition_key=str(self.rng.randrange(4))
            )
        except PulsarishError as error:
            self.stage.trace(f"not sent {value}: {error}")
            return
        future.add_done_callback(lambda done: self._answered(value, done))

    def _answered(self, value: str, done: asyncio.Future[MessageId]) -> None:
        if (error := done.exception()) is None:
            self.stored.add(value)
            self.stage.trace(f"stored {value} of part {self.parts[value]} at {done.result()}")
        else:
            self.stage.trace(f"not stored {value}: {type(error).__name__}: {error}")

    async def _change_filter(self, world: World) -> None:
        """Set one of the two filters. A request without an answer may be carried out later."""
        text, _ = self.rng.choice(self._filters)
        target = f"{TOPICS}/{_TOPIC.rpartition('/')[2]}/subscription/{SUBSCRIPTION}/filter"
        broker = self.rng.choice(list(self.brokers))
        try:
            response = await administer(self.stage, world, broker, "PUT", target, {"filter": text})
        except (StreamBroken, TimeoutError) as error:
            self.stage.trace(f"a change of the filter without an answer: {error!r}")
            return
        self.stage.trace(f"filter {text!r} answered with {response.status}")
        if 400 <= response.status < 500 and response.status not in (401, 403, 429):
            self.report("defect", f"the filter {text!r} was refused: {response.body!r}", text)

    async def consume(self, world: World, who: str) -> None:
        rng = self.rng
        async with self.stage.connected(world) as client:
            consumer = await self._subscribe(client)
            ends = world.clock.monotonic() + rng.uniform(0.5, 6.0)
            if rng.random() < 0.1:
                await consumer.seek(MessageId.earliest)
            while not self.stage.over and world.clock.monotonic() < ends:
                try:
                    message = await consumer.receive(timeout_millis=400)
                except Timeout:
                    continue
                self._came(message, who)
                await world.clock.sleep(rng.choice((0.0, 0.0, 0.1)))
                if rng.random() < 0.05:
                    await consumer.negative_acknowledge(message)
                elif rng.random() < 0.9:
                    await consumer.acknowledge(message)

    def _came(self, message: Message, who: str) -> None:
        value = message.data().decode()
        self.stage.counts.sifted += 1
        self.stage.trace(f"delivered {value} at {message.message_id()} to {who} of {SUBSCRIPTION}")
        part = self.parts.get(value)
        if not any(part in accepted for _, accepted in self._filters):
            self.report("unfiltered", f"{value} of part {part} came to {who}", value)
        self.came.add(value)

    # -- when everything has healed

    async def conclude(self, world: World) -> None:
        """Publish some more, and receive everything that is left."""
        async with self.stage.connected(world, LAST_SECONDS) as client:
            producer = await self._producer(client, int(LAST_SECONDS * 1000))
            for number in range(_LAST_MESSAGES):
                self._send(producer, f"last{number}")
            await producer.flush()
            consumer = await self._subscribe(client)
            deadline = world.clock.monotonic() + LAST_SECONDS
            while self._missing() and world.clock.monotonic() < deadline:
                await self._take(consumer)
            for value in self._missing():
                self.report("skipped", f"{value} never came to {SUBSCRIPTION}", value)
            while (left := await self._backlog(world)) and world.clock.monotonic() < deadline:
                await self._take(consumer)
            if left:
                self.report("left", f"{left} entries of {SUBSCRIPTION} stay unacknowledged", "")

    def _missing(self) -> list[str]:
        return sorted(
            value
            for value in self.stored - self.came
            if all(self.parts[value] in accepted for _, accepted in self._filters)
        )

    async def _take(self, consumer: AsyncConsumer) -> None:
        try:
            while True:
                message = await consumer.receive(timeout_millis=200)
                self._came(message, "the last consumer")
                await consumer.acknowledge(message)
        except Timeout:
            pass

    async def _backlog(self, world: World) -> int:
        """Return how many entries are not acknowledged; 1 while no broker can say it."""
        stats = f"{TOPICS}/{_TOPIC.rpartition('/')[2]}"
        found = 0
        for target in (f"{stats}/partitioned-stats", f"{stats}/stats"):
            try:
                response = await administer(
                    self.stage, world, next(iter(self.brokers)), "GET", target, None
                )
            except (StreamBroken, TimeoutError):
                return 1
            if response.status < 300:
                rows = msgspec.json.decode(response.body)["subscriptions"]
                return int(rows[SUBSCRIPTION]["msgBacklog"])
            found = response.status
        self.stage.trace(f"the backlog is not known: {found}")
        return 1
