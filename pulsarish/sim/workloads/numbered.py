"""Numbered messages on one topic: what a program sent with deduplication, and what must be read and
delivered in the end.

The programs of ``failover`` and ``quiet_hours`` publish to many topics, or for hours. There an
oracle of positions would be most of the cost.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.seams import World

__all__ = ["Numbered"]

_RETRY_SECONDS: Final = 0.3
_PADDING: Final = 30


@dataclass(slots=True)
class Numbered:
    """The messages 0, 1, 2, ... of one topic, from one producer with deduplication: each is sent
    again until it has a receipt.
    """

    topic: str
    sent: int = 0
    receipts: dict[int, MessageId] = field(default_factory=dict)
    delivered: dict[int, int] = field(default_factory=dict)
    """How often each number was delivered and acknowledged."""
    out_of_order: list[int] = field(default_factory=list)
    """Numbers whose first delivery came after that of a later one."""

    async def open(
        self, world: World, client: AsyncClient, subscriptions: tuple[str, ...] = ()
    ) -> AsyncProducer:
        """Make the subscriptions and a producer. Try until it works."""
        for subscription in subscriptions:
            consumer = await _again(
                world,
                lambda name=subscription: client.subscribe(
                    self.topic, name, initial_position=InitialPosition.Earliest
                ),
            )
            await consumer.close()
        producer: AsyncProducer = await _again(
            world,
            lambda: client.create_producer(
                self.topic, producer_name="numbered", batching_enabled=False, send_timeout_millis=0
            ),
        )
        return producer

    def send(self, producer: AsyncProducer) -> asyncio.Future[MessageId]:
        """Send the next number."""
        number = self.sent
        self.sent += 1
        future = producer.send_soon(b"%d" % number + b"." * _PADDING, sequence_id=number)

        def answered(done: asyncio.Future[MessageId]) -> None:
            if not done.cancelled() and done.exception() is None:
                self.receipts[number] = done.result()

        future.add_done_callback(answered)
        return future

    async def consume(self, world: World, client: AsyncClient, subscription: str) -> None:
        """Receive and acknowledge until cancelled."""
        consumer = await _again(
            world,
            lambda: client.subscribe(
                self.topic, subscription, receiver_queue_size=10, ack_receipt_enabled=True
            ),
        )
        while True:
            message = await consumer.receive()
            number = number_of(message.data())
            if number not in self.delivered and self.delivered and number < max(self.delivered):
                self.out_of_order.append(number)
            try:
                await consumer.acknowledge(message)
            except PulsarishError:
                continue  # it will be redelivered
            self.delivered[number] = self.delivered.get(number, 0) + 1

    async def read(self, client: AsyncClient) -> list[int]:
        """Read the topic from its first message to its last."""
        found: list[int] = []
        reader = await client.create_reader(self.topic, MessageId.earliest)
        while await reader.has_message_available():
            found.append(number_of((await reader.read_next()).data()))
        await reader.close()
        return found


def number_of(data: bytes) -> int:
    return int(data.split(b".", 1)[0])


async def _again(world: World, work: Any) -> Any:
    while True:
        try:
            return await work()
        except PulsarishError:
            await world.clock.sleep(_RETRY_SECONDS)
