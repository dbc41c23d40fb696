"""Messages in chunks and delayed messages, on a topic of their own.

Consumers share a subscription; they connect and leave. Brokers store delayed messages in buckets of
a few (``with_small_buckets``).

What must hold: a message arrives whole and as it was sent (``torn``). A message with a receipt is
delivered to the subscription in the end (``skipped``). Early delivery is not judged: calendars are
wrong by up to an hour.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import PulsarishError, Timeout
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.stage import LAST_SECONDS, Stage

__all__ = ["SUBSCRIPTION", "Parcels"]

SUBSCRIPTION: Final = "parcels"
_TOPIC: Final = "persistent://public/default/parcels"
_SIZES: Final = (0, 100, 5_000, 9_000, 14_000)
"""Brokers take messages of 4,096 bytes here: some are sent in one piece, others in up to four."""
_LATER_CHANCES: Final = (0.3, 0.3, 0.8)
_LATER_SECONDS: Final = (0.2, 1.0, 4.0, 8.0, 60.0)
_PAUSE_SECONDS: Final = 0.3
_LAST_MESSAGES: Final = 10

Report = Callable[[str, str, str], None]


@dataclass(slots=True)
class Parcels:
    """``rng`` decides what its programs do. ``stage`` gives its counts, its trace and its end."""

    stage: Stage
    rng: random.Random
    report: Report
    hasten: Callable[[], None]
    """Set the brokers' calendars forward, so that every delayed message is due."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Sizes of the messages that were sent, by value."""
    stored: set[str] = field(default_factory=set)
    came: set[str] = field(default_factory=set)
    _session: int = 0

    async def subscribe_first(self, world: World) -> None:
        async with self.stage.connected(world, LAST_SECONDS) as client:
            await self._subscribe(client)

    async def _subscribe(self, client: AsyncClient) -> AsyncConsumer:
        return await client.subscribe(
            _TOPIC,
            SUBSCRIPTION,
            consumer_type=ConsumerType.Shared,
            initial_position=InitialPosition.Earliest,
            receiver_queue_size=self.rng.choice((1, 5, 50)),
            negative_ack_redelivery_delay_ms=300,
        )

    # -- during faults

    async def publish(self, world: World) -> None:
        self._session += 1
        rng = self.rng
        async with self.stage.connected(world) as client:
            producer = await self._producer(client, 3_000)
            ends = world.clock.monotonic() + rng.uniform(1.0, 8.0)
            number = 0
            later_chance = rng.choice(_LATER_CHANCES)
            while (
                not self.stage.over
                and world.clock.monotonic() < ends
                and not producer._publishing.is_closed
            ):
                number += 1
                self._send(producer, f"b{self._session}.{number}", rng.random() < later_chance)
                await world.clock.sleep(_PAUSE_SECONDS * 2 * rng.random())

    async def _producer(self, client: AsyncClient, timeout_ms: int) -> AsyncProducer:
        return await client.create_producer(
            _TOPIC, chunking_enabled=True, max_pending_messages=30, send_timeout_millis=timeout_ms
        )

    def _send(
        self, producer: AsyncProducer, value: str, later: bool
    ) -> asyncio.Future[MessageId] | None:
        size = self.sizes[value] = self.rng.choice(_SIZES)
        # Only a message in one piece may be delayed.
        extras: dict[str, Any] = {}
        if later:
            size = self.sizes[value] = min(size, 100)
            extras["deliver_after"] = timedelta(seconds=self.rng.choice(_LATER_SECONDS))
        self.stage.trace(
            f"sending {value} of {size} bytes{f', later by {extras}' if extras else ''}"
        )
        try:
            future = producer.send_soon(_content(value, size), **extras)
        except PulsarishError as error:
            self.stage.trace(f"not sent {value}: {error}")
            return None
        future.add_done_callback(lambda done: self._answered(value, done))
        return future

    def _answered(self, value: str, done: asyncio.Future[MessageId]) -> None:
        if (error := done.exception()) is None:
            self.stored.add(value)
            self.stage.trace(f"stored {value} at {done.result()}")
        else:
            self.stage.trace(f"not stored {value}: {type(error).__name__}: {error}")

    async def consume(self, world: World, who: str) -> None:
        rng = self.rng
        async with self.stage.connected(world) as client:
            consumer = await self._subscribe(client)
            ends = world.clock.monotonic() + rng.uniform(0.5, 6.0)
            while not self.stage.over and world.clock.monotonic() < ends:
                try:
                    message = await consumer.receive(timeout_millis=400)
                except Timeout:
                    continue
                self._came(message, who)
                if rng.random() < 0.05:
                    await consumer.negative_acknowledge(message)
                elif rng.random() < 0.95:
                    await consumer.acknowledge(message)

    def _came(self, message: Message, who: str) -> None:
        value = message.data().partition(b" ")[0].decode()
        self.stage.counts.parcels += 1
        self.stage.trace(f"delivered {value} at {message.message_id()} to {who} of {SUBSCRIPTION}")
        if value not in self.sizes or message.data() != _content(value, self.sizes[value]):
            self.report(
                "torn",
                f"{who} got {len(message.data())} bytes at {message.message_id()} that no "
                "producer sent so",
                value,
            )
        self.came.add(value)

    # -- when everything has healed

    async def conclude(self, world: World) -> None:
        """Send some more of both kinds, and receive everything that is left."""
        async with self.stage.connected(world, LAST_SECONDS) as client:
            consumers = [await self._subscribe(client) for _ in range(2)]
            producer = await self._producer(client, int(LAST_SECONDS * 1000))
            for number in range(_LAST_MESSAGES):
                self._send(producer, f"last{number}", number % 3 == 0)
            await producer.flush()
            self.hasten()
            deadline = world.clock.monotonic() + LAST_SECONDS
            while not self.stored <= self.came and world.clock.monotonic() < deadline:
                for number, consumer in enumerate(consumers):
                    await self._take(consumer, f"last{number}")
        for value in sorted(self.stored - self.came):
            self.report("skipped", f"{value} never came to {SUBSCRIPTION}", value)

    async def _take(self, consumer: AsyncConsumer, who: str) -> None:
        try:
            while True:
                message = await consumer.receive(timeout_millis=50)
                self._came(message, who)
                await consumer.acknowledge(message)
        except Timeout:
            pass


def _content(value: str, size: int) -> bytes:
    """Return bytes that differ at every place, so that chunks in a wrong order are noticed."""
    return f"{value} ".encode() + bytes(index * index % 251 for index in range(size))
