"""Programs that consume from the simulated cluster: each type of subscription, each kind of
acknowledgement.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from typing import Any, Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import ConsumerBusy, PulsarishError, Timeout
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.oracle import Oracle, Place, Subscription
from pulsarish.sim.cluster.stage import LAST_SECONDS, Stage, place_of, text_of

__all__ = ["Reading", "acknowledge", "consume", "drain", "draw_reading", "got", "subscribe_first"]

_GONE_SECONDS: Final = 10.0
"""A broker notices the connection of a dead client within this time."""


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
    """The share of messages that are neither acknowledged nor negatively acknowledged."""
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
    async with stage.connected(world, LAST_SECONDS) as client:
        await client.subscribe(stage.topic, reading.subscription.name, **reading.options())


async def consume(stage: Stage, world: World, reading: Reading, who: str) -> None:
    """Run one session of a consumer."""
    rng, subscription = stage.rng, reading.subscription
    async with stage.connected(world) as client:
        consumer = await client.subscribe(
            stage.topic, subscription.name, consumer_name=who, **reading.options()
        )
        session: list[Place] = []
        subscription.sessions.append(session)
        ends = rng.uniform(1.0, 12.0) + world.clock.monotonic()
        while not stage.over and world.clock.monotonic() < ends:
            try:
                message = await consumer.receive(timeout_millis=500)
            except Timeout:
                continue
            place = got(stage, subscription, session, message)
            if rng.random() < 0.02:
                await world.clock.sleep(rng.uniform(0.0, 1.0))
            if rng.random() < reading.forgets:
                continue
            if rng.random() < reading.refuses:
                await consumer.negative_acknowledge(message)
                continue
            if reading.cumulative and rng.random() < 0.7:
                continue
            await acknowledge(stage, consumer, reading, message, place)


def got(stage: Stage, subscription: Subscription, session: list[Place], message: Message) -> Place:
    """Note that a consumer got a message."""
    place = place_of(message.message_id())
    assert place is not None
    stage.counts.delivered += 1
    stage.counts.redelivered += place in subscription.delivered
    stage.trace(f"delivered {text_of(message)} at {place} to {subscription.name}")
    stage.oracle.delivered(subscription, session, place, text_of(message))
    return place


async def acknowledge(
    stage: Stage, consumer: AsyncConsumer, reading: Reading, message: Message, place: Place
) -> None:
    """Acknowledge in the way of the subscription. Note what is known of it before and after."""
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
    if whole:
        stage.oracle.watch_receipts(subscription.name, place)
    if not reading.cumulative:
        # Without batch index acknowledgement, the whole batch is delivered again for a part of it.
        if whole:
            subscription.confirmed.add(place)
    elif whole:
        subscription.confirm_up_to(place)
    else:
        subscription.confirm_up_to(Place(place.partition, place.ledger, place.entry, -1))


async def _subscribe_last(
    stage: Stage, world: World, client: AsyncClient, reading: Reading
) -> AsyncConsumer:
    """Subscribe.

    A broker may need its keep-alive timeout to notice that the consumer before is gone.
    """
    deadline = world.clock.monotonic() + _GONE_SECONDS
    while True:
        try:
            return await client.subscribe(
                stage.topic,
                reading.subscription.name,
                **{**reading.options(), "receiver_queue_size": 100},
            )
        except ConsumerBusy:
            if world.clock.monotonic() > deadline:
                raise
            await world.clock.sleep(0.5)


async def drain(stage: Stage, world: World, reading: Reading, log: list[Place]) -> None:
    """Drain the subscription once everything has healed: a new consumer gets all that was never
    acknowledged.

    Then receive a little longer.
    """
    subscription = reading.subscription
    async with stage.connected(world, LAST_SECONDS) as client:
        consumer = await _subscribe_last(stage, world, client, reading)
        missing = {place for place in log if not subscription.may_be_acknowledged(place)}
        deadline = world.clock.monotonic() + LAST_SECONDS
        session: list[Place] = []
        subscription.sessions.append(session)
        while True:
            try:
                message = await consumer.receive(timeout_millis=2_000)
            except Timeout:
                if not missing or world.clock.monotonic() > deadline:
                    break
                continue
            place = got(stage, subscription, session, message)
            subscription.final.append(place)
            missing.discard(place)
            # A shared consumer that acknowledges nothing gets no more at some limit. No receipt is
            # awaited, because no check needs it.
            _ = world.tasks.spawn(_let_go(consumer, message), name="final acknowledgement")


async def _let_go(consumer: AsyncConsumer, message: Message) -> None:
    with contextlib.suppress(PulsarishError):
        await consumer.acknowledge(message)
