"""Programs that publish to the simulated cluster with the real asyncio client: with and without
deduplication, batched or not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import CompressionType
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import (
    MessageTooBig,
    ProducerBusy,
    ProducerQueueIsFull,
    PulsarishError,
    Timeout,
    UnknownError,
)
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.oracle import Attempt, Outcome
from pulsarish.sim.cluster.stage import LAST_SECONDS, Stage, place_of

__all__ = ["Publisher", "draw_publisher", "publish", "publish_last", "publish_rest", "send_one"]

_TOO_BIG: Final = 5_000


@dataclass(slots=True)
class Publisher:
    """One program.

    With deduplication its values are its sequence ids, and a new session sends again what has no
    receipt.
    """

    name: str
    exact: bool
    options: dict[str, Any]
    pause: float
    burst: int
    pace_seconds: float = 0.0
    """After a burst it pauses at least this long for each message of the burst."""
    sizes: Sequence[int] = (0, 0, 30, 700)
    session: int = 0
    number: int = 0
    acknowledged: int = -1
    """Everything up to this number has a receipt."""
    stored: set[int] = field(default_factory=set)


def draw_publisher(rng: random.Random, name: str, *, exact: bool) -> Publisher:
    options: dict[str, Any] = {
        "batching_enabled": rng.random() < 0.5,
        "batching_max_messages": rng.choice((2, 5, 50)),
        # The broker refuses a whole batch that is above its limit for a message.
        "batching_max_allowed_size_in_bytes": 2_048,
        "batching_max_publish_delay_ms": rng.choice((1, 20)),
        "compression_type": rng.choice((CompressionType.NONE, CompressionType.LZ4)),
        "max_pending_messages": rng.choice((3, 30, 200)),
        "send_timeout_millis": rng.choice((1_500, 5_000, 15_000)),
    }
    if exact:
        # No timeout: a message that was given up could never be sent again once a later one is
        # stored, because its sequence id is behind.
        options["send_timeout_millis"] = 0
    if exact or rng.random() < 0.5:
        options["producer_name"] = name
    return Publisher(
        name, exact, options, pause=rng.choice((0.06, 0.15, 0.4)), burst=rng.choice((1, 4, 12))
    )


async def publish(stage: Stage, world: World, publisher: Publisher) -> None:
    """Run one session of a publisher."""
    rng = stage.rng
    publisher.session += 1
    if publisher.exact:
        # What has no receipt is sent again under its old number. Some of it is stored already.
        publisher.number = publisher.acknowledged + 1
    async with stage.connected(world) as client:
        producer = await client.create_producer(stage.topic, **publisher.options)
        ends = rng.uniform(1.0, 12.0) + world.clock.monotonic()
        while not stage.over and world.clock.monotonic() < ends:
            burst = rng.randrange(1, publisher.burst + 1)
            for _ in range(burst):
                if not send_one(stage, producer, publisher):
                    break
            await world.clock.sleep(
                max(publisher.pause * 2 * rng.random(), burst * publisher.pace_seconds)
            )
            if producer._publishing.is_closed:
                break


def send_one(stage: Stage, producer: AsyncProducer, publisher: Publisher) -> bool:
    """Queue one message. Return whether another may follow at once."""
    number = publisher.number
    value = (
        f"{publisher.name}-{number}"
        if publisher.exact
        else f"{publisher.name}-{publisher.session}.{number}"
    )
    # The name that the broker knows. A session that let the broker choose a name is a producer of
    # its own. What it left in the stream when it was dropped may still arrive after the first
    # messages of the next session: order is promised only within one producer. With deduplication a
    # value must reach its own partition again.
    key = str(number % 5) if publisher.exact or number % 3 else None
    attempt = stage.oracle.attempt(producer.producer_name(), publisher.session, number, value, key)
    too_big = not publisher.exact and stage.rng.random() < 0.01
    content = value + " " + "." * (_TOO_BIG if too_big else stage.rng.choice(publisher.sizes))
    publisher.number += 1
    try:
        future = producer.send_soon(
            content.encode(), sequence_id=number if publisher.exact else None, partition_key=key
        )
    except PulsarishError as error:
        _failed(stage, attempt, error)
        if publisher.exact:
            publisher.number = number
        return False
    future.add_done_callback(lambda done: _answered(stage, publisher, attempt, done))
    return True


def _answered(
    stage: Stage, publisher: Publisher, attempt: Attempt, done: asyncio.Future[MessageId]
) -> None:
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


async def publish_rest(stage: Stage, world: World, publisher: Publisher) -> None:
    """Send again, once everything has healed, what a publisher with deduplication has no receipt
    for. Each number gets a receipt.

    Raises ``TimeoutError`` when it does not.
    """
    last = max(
        (attempt.number for attempt in stage.oracle.attempts if attempt.producer == publisher.name),
        default=-1,
    )
    publisher.session += 1
    publisher.number = publisher.acknowledged + 1
    async with stage.connected(world, LAST_SECONDS) as client, world.clock.timeout(LAST_SECONDS):
        producer = await _open_last(stage, world, client, publisher)
        while publisher.number <= last:
            if not send_one(stage, producer, publisher):
                await producer.flush()
        await producer.flush()


async def _open_last(
    stage: Stage, world: World, client: AsyncClient, publisher: Publisher
) -> AsyncProducer:
    """Open a producer.

    A broker may need its keep-alive timeout to notice that the producer before is gone.
    """
    while True:
        try:
            return await client.create_producer(stage.topic, **publisher.options)
        except ProducerBusy:
            await world.clock.sleep(0.5)


async def publish_last(stage: Stage, world: World, name: str, count: int) -> None:
    """Publish and get the receipts, once everything has healed.

    Raises ``Timeout`` when a receipt does not come.
    """
    async with stage.connected(world, LAST_SECONDS) as client:
        publisher = Publisher(
            name, False, {"send_timeout_millis": int(LAST_SECONDS * 1000)}, 0, count
        )
        producer = await client.create_producer(stage.topic, **publisher.options)
        for _ in range(count):
            send_one(stage, producer, publisher)
        await producer.flush()
    unknown = [
        attempt.value
        for attempt in stage.oracle.attempts[-count:]
        if attempt.outcome is Outcome.UNKNOWN
    ]
    if unknown:
        raise Timeout(f"{', '.join(unknown)} got no receipt")
