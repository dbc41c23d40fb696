"""Delayed messages in bucket ledgers: what is read again, and what is lost, when an owner crashes,
all consumers leave, or a bucket's ledger is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from pulsarish.broker.progress.collect import snapshot_of
from pulsarish.broker.progress.explain import explain
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.managed_ledger.cursors.delay_ledgers import DelayLedgers
from pulsarish.metadata import paths
from pulsarish.model.errors import NotEnoughBookies, Timeout
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Op, World
from tests.support.brokered import Brokered, play_with_brokers

NAME = TopicName.parse("t")
TOPIC = NAME.full
KINDS = (ConsumerType.Shared, ConsumerType.KeyShared)
SMALL: dict[str, Any] = {
    "delayed_delivery_min_index_count_per_bucket": 10,
    "delayed_delivery_max_num_buckets": 2,
    "delayed_delivery_max_indexes_per_bucket_snapshot_segment": 4,
    "dispatcher_max_read_batch_size": 8,
}
HOUR = timedelta(hours=1)
AHEAD_SECONDS = 2 * 3600  # more than wall clocks of brokers differ, and the hour


async def subscribed(brokered: Brokered, kind: ConsumerType) -> AsyncConsumer:
    return await brokered.client().subscribe(
        TOPIC,
        "s",
        consumer_type=kind,
        initial_position=InitialPosition.Earliest,
        ack_receipt_enabled=True,
    )


async def send_later(producer: AsyncProducer, first: int, end: int) -> set[str]:
    for number in range(first, end):
        _ = producer.send_soon(
            b"%d" % number, deliver_after=HOUR + timedelta(minutes=(number * 7) % 31)
        )
    await producer.flush()
    return {str(number) for number in range(first, end)}


async def take(
    consumer: AsyncConsumer, milliseconds: int, *, acknowledge: bool = True
) -> list[str]:
    """Return the messages that come, until none comes for this time."""
    taken: list[str] = []
    while True:
        try:
            message = await consumer.receive(timeout_millis=milliseconds)
        except Timeout:
            return taken
        taken.append(message.data().decode())
        if acknowledge:
            await consumer.acknowledge(message)


async def stored(brokered: Brokered, delayed: int) -> None:
    """Wait until so many wait, and most of them are in ledgers."""
    delays = brokered.subscription(TOPIC, "s").dispatcher.reads.delayed
    await brokered.until(lambda: len(delays) == delayed and delays.in_memory <= 12)
    assert 0 < len(delays.buckets) <= 3
    delays.check()


def owner_of(brokered: Brokered) -> str:
    return next(
        name
        for name, broker in brokered.cluster.brokers.items()
        if TOPIC in broker._topics.loaded and brokered.cluster.nodes[name].alive
    )


def named(brokered: Brokered) -> tuple[int, ...]:
    """The bucket ledgers that the owner last named in the cursor's record."""
    ledgers = brokered.subscription(TOPIC, "s").cursor.delay_ledgers
    assert ledgers is not None
    return ledgers.named


async def delete(brokered: Brokered, ledger_ids: Sequence[int]) -> None:
    """Delete ledgers as a mistaken operator would."""

    async def work(world: World) -> None:
        for ledger_id in ledger_ids:
            _ = await world.metadata.commit([Op("delete", paths.ledger(ledger_id))])

    await brokered.node(owner_of(brokered)).run(work)


async def pass_time(brokered: Brokered, seconds: int) -> None:
    """Move the brokers' calendars, and wait until they have noticed it."""
    for name in brokered.cluster.brokers:
        brokered.node(name).clock.wall_offset_ms += 1000 * seconds
    await brokered.world.clock.sleep(12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_owner_takes_the_buckets_and_reads_little_again(kind: ConsumerType) -> None:
    async def scenario(brokered: Brokered) -> None:
        consumer = await subscribed(brokered, kind)
        producer = await brokered.client().create_producer(TOPIC)
        later = await send_later(producer, 0, 100)
        await producer.send(b"now")
        assert await take(consumer, 2_000) == ["now"]
        await stored(brokered, 100)
        brokered.node(owner_of(brokered)).crash()
        await producer.send(b"more")
        assert await take(consumer, 5_000) == ["more"]
        subscription = brokered.subscription(TOPIC, "s")
        assert subscription.dispatch_loop.reads_begun <= 6, "most of them are not read again"
        await stored(brokered, 100)
        await pass_time(brokered, AHEAD_SECONDS)
        assert sorted(await take(consumer, 5_000)) == sorted(later)
        await brokered.until(lambda: not subscription.dispatcher.reads.delayed.buckets)
        await brokered.world.clock.sleep(5)
        assert named(brokered) == ()

    play_with_brokers(scenario, brokers=2, **SMALL)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_delivered_among_delayed_ones_comes_again_unless_acknowledged(
    kind: ConsumerType,
) -> None:
    async def scenario(brokered: Brokered) -> None:
        consumer = await subscribed(brokered, kind)
        producer = await brokered.client().create_producer(TOPIC)
        later: set[str] = set()
        for first in range(0, 80, 20):
            later |= await send_later(producer, first, first + 20)
            await producer.send(b"acked%d" % first)
            assert await take(consumer, 2_000) == [f"acked{first}"]
            await producer.send(b"held%d" % first)
            assert await take(consumer, 2_000, acknowledge=False) == [f"held{first}"]
        await stored(brokered, 80)
        held = [f"held{first}" for first in range(0, 80, 20)]
        for crash in (False, True):
            if crash:
                brokered.node(owner_of(brokered)).crash()
            else:
                await consumer.close()
                consumer = await subscribed(brokered, kind)
            assert sorted(await take(consumer, 5_000, acknowledge=False)) == sorted(held)
            await stored(brokered, 80)
        await pass_time(brokered, AHEAD_SECONDS)
        assert sorted(await take(consumer, 5_000)) == sorted(later)

    play_with_brokers(scenario, brokers=2, **SMALL)


def test_what_a_bucket_delivered_comes_again_after_its_consumer_has_left() -> None:
    async def scenario(brokered: Brokered) -> None:
        consumer = await subscribed(brokered, ConsumerType.Shared)
        producer = await brokered.client().create_producer(TOPIC)
        later = await send_later(producer, 0, 60)
        await stored(brokered, 60)
        await pass_time(brokered, 3600 + 15 * 60)
        some = await take(consumer, 200, acknowledge=False)
        assert 0 < len(some) < 60
        await consumer.close()
        consumer = await subscribed(brokered, ConsumerType.Shared)
        assert set(some) <= set(await take(consumer, 500, acknowledge=False))
        await consumer.close()
        await pass_time(brokered, 3600)
        consumer = await subscribed(brokered, ConsumerType.Shared)
        assert sorted(await take(consumer, 30_000)) == sorted(later)

    play_with_brokers(scenario, brokers=1, **SMALL)


@pytest.mark.parametrize("after", ["crash", "due"])
def test_a_lost_bucket_is_read_again_from_the_log(after: str) -> None:
    async def scenario(brokered: Brokered) -> None:
        consumer = await subscribed(brokered, ConsumerType.Shared)
        producer = await brokered.client().create_producer(TOPIC)
        later = await send_later(producer, 0, 60)
        await producer.send(b"now")
        assert await take(consumer, 2_000) == ["now"]
        await stored(brokered, 60)
        await delete(brokered, named(brokered))
        if after == "crash":
            brokered.node(owner_of(brokered)).crash()
            assert await take(consumer, 5_000) == []
            assert len(brokered.subscription(TOPIC, "s").dispatcher.reads.delayed) == 60
        await pass_time(brokered, AHEAD_SECONDS)
        assert sorted(await take(consumer, 30_000)) == sorted(later)

    play_with_brokers(scenario, brokers=2, **SMALL)


def test_skipped_entries_and_deleted_subscriptions_leave_no_bucket() -> None:
    async def scenario(brokered: Brokered) -> None:
        consumer = await subscribed(brokered, ConsumerType.Shared)
        producer = await brokered.client().create_producer(TOPIC)
        _ = await send_later(producer, 0, 40)
        await stored(brokered, 40)
        assert named(brokered)
        subscription = brokered.subscription(TOPIC, "s")
        await subscription.skip(None)
        await brokered.world.clock.sleep(5)
        assert named(brokered) == ()
        later = await send_later(producer, 40, 80)
        await stored(brokered, len(later))
        ids = named(brokered)
        assert ids
        await consumer.unsubscribe()

        async def left(world: World) -> list[bool]:
            nodes = await world.metadata.get_many([paths.ledger(each) for each in ids])
            return [node is not None for node in nodes]

        assert not any(await brokered.node(owner_of(brokered)).run(left))

    play_with_brokers(scenario, brokers=1, **SMALL)


def test_what_cannot_be_written_stays_in_memory_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = DelayLedgers.write

    async def scenario(brokered: Brokered) -> None:
        broken = [True]

        async def fails(ledgers: DelayLedgers, payloads: Sequence[bytes]) -> LedgerWriter:
            if broken:
                raise NotEnoughBookies("none is writable")
            return await write(ledgers, payloads)

        monkeypatch.setattr(DelayLedgers, "write", fails)
        consumer = await subscribed(brokered, ConsumerType.Shared)
        producer = await brokered.client().create_producer(TOPIC)
        later = await send_later(producer, 0, 40)
        await producer.send(b"now")
        delays = brokered.subscription(TOPIC, "s").dispatcher.reads.delayed
        await brokered.until(lambda: delays.is_full)
        assert await take(consumer, 2_000) == []
        found = (await brokered.stats(TOPIC))["subscriptions"]["s"]
        assert found["waiting"]["reason"] == "too_many_delayed"
        broken.clear()
        assert await take(consumer, 10_000) == ["now"]
        await stored(brokered, 40)
        found = (await brokered.stats(TOPIC))["subscriptions"]["s"]
        assert (found["msgDelayed"], found["delayedMessageBuckets"]) == (40, len(delays.buckets))
        assert found["delayedMessageIndexSizeInBytes"] == delays.size_bytes > 0
        await pass_time(brokered, AHEAD_SECONDS)
        assert sorted(await take(consumer, 5_000)) == sorted(later)

    play_with_brokers(
        scenario, brokers=1, **SMALL, delayed_delivery_max_entries_per_subscription=20
    )


@pytest.mark.parametrize("given_up", [False, True])
def test_a_bucket_that_is_unreadable_is_waited_for_and_then_given_up(
    monkeypatch: pytest.MonkeyPatch, given_up: bool
) -> None:
    read = DelayLedgers.read

    async def scenario(brokered: Brokered) -> None:
        broken: list[bool] = []

        async def fails(reader: LedgerReader, entry_id: int) -> bytes | memoryview:
            if broken:
                raise NotEnoughBookies("none answers")
            return await read(reader, entry_id)

        monkeypatch.setattr(DelayLedgers, "read", staticmethod(fails))
        consumer = await subscribed(brokered, ConsumerType.Shared)
        producer = await brokered.client().create_producer(TOPIC)
        later = await send_later(producer, 0, 60)
        await stored(brokered, 60)
        broken.append(True)
        brokered.node(owner_of(brokered)).crash()
        await producer.send(b"now")
        assert await take(consumer, 10_000) == []
        subscription = brokered.subscription(TOPIC, "s")
        assert "none answers" in subscription.dispatcher.reads.failure
        now_ms = brokered.world.clock.wall_ms()
        waiting = explain(snapshot_of(subscription, now_ms))
        assert waiting.reason == "read_failed", "the watchdog leaves it alone"
        if given_up:
            await brokered.world.clock.sleep(120)
        broken.clear()
        assert await take(consumer, 15_000) == ["now"]
        reads = brokered.subscription(TOPIC, "s").dispatcher.reads
        assert (reads.failure, len(reads.delayed)) == ("", 60)
        await pass_time(brokered, AHEAD_SECONDS)
        assert sorted(await take(consumer, 5_000)) == sorted(later)

    play_with_brokers(scenario, brokers=2, **SMALL)
