"""Messages that are consumed again later, by way of the retry letter topic."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import ConsumerType
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_policies import (
    ConsumerDeadLetterPolicy,
)
from pulsarish.model.errors import AlreadyClosed, NotAllowedError, PulsarishError, Timeout
from pulsarish.wire.entry import parse_metadata
from tests.support.client_world import Cast, play

BASE = "persistent://public/default/t"
RETRY = f"{BASE}-me-RETRY"
DEAD = f"{BASE}-me-DLQ"


async def worker(cast: Cast, topic: Any = "t", most: int = 2, **options: Any) -> AsyncConsumer:
    return await cast.client().subscribe(
        topic,
        "me",
        consumer_type=ConsumerType.Shared,
        dead_letter_policy=ConsumerDeadLetterPolicy(most),
        negative_ack_redelivery_delay_ms=100,
        retry_enabled=True,
        **options,
    )


async def publish(cast: Cast, *contents: bytes, batching: bool = False, **beside: Any) -> None:
    producer = await cast.client().create_producer("t", batching_enabled=batching)
    await asyncio.gather(*(producer.send_soon(each, **beside) for each in contents))


def acked(cast: Cast, topic: str = BASE) -> set[int]:
    return cast.cluster.topic(topic).subscriptions["me"].acked


def test_it_comes_again_with_a_count_and_in_the_end_is_dead() -> None:
    async def scenario(cast: Cast) -> None:
        consumer = await worker(cast)
        await publish(cast, b"job", properties={"a": "b"}, partition_key="k", ordering_key="o")
        message = await consumer.receive(5_000)
        origin = str(message.message_id())
        before_ms = cast.world.clock.wall_ms()
        for count in (1, 2):
            await consumer.reconsume_later(message, timedelta(seconds=7), {"why": f"try {count}"})
            message = await consumer.receive(5_000)
            assert message.topic_name() == RETRY
            assert message.properties() == {
                "a": "b",
                "why": f"try {count}",
                "RECONSUMETIMES": str(count),
                "DELAY_TIME": "7000",
                "REAL_TOPIC": BASE,
                "REAL_SUBSCRIPTION": "me",
                "ORIGIN_MESSAGE_ID": origin,
            }
            assert (message.data(), message.partition_key()) == (b"job", "k")
            assert message.ordering_key() == "o"
        due = [parse_metadata(entry).deliver_at_time for entry in cast.cluster.topic(RETRY).entries]
        assert all(before_ms + 7_000 <= at <= before_ms + 8_000 for at in due)
        await consumer.reconsume_later(message, timedelta(seconds=7))
        with pytest.raises(Timeout):
            await consumer.receive(2_000)
        (entry,) = cast.cluster.topic(DEAD).entries
        assert parse_metadata(entry).deliver_at_time == 0, "dead letters are not delayed"
        dead = await cast.client().create_reader(DEAD, MessageId.earliest)
        letter = await dead.read_next(1_000)
        assert letter.properties()["RECONSUMETIMES"] == "3"
        assert letter.properties()["REAL_TOPIC"] == BASE
        assert (acked(cast), acked(cast, RETRY)) == ({0}, {0, 1})

    play(scenario)


def test_it_is_not_acknowledged_before_the_copy_is_stored() -> None:
    async def scenario(cast: Cast) -> None:
        consumer = await worker(cast, ack_receipt_enabled=True)
        await publish(cast, b"job")
        message = await consumer.receive(5_000)
        cast.broker.hold_receipts = True
        later = asyncio.ensure_future(consumer.reconsume_later(message, timedelta(0)))
        await cast.sleep(5)
        assert cast.cluster.topic(RETRY).entries
        assert not acked(cast)
        # The answer is lost with the connection, and the copy is sent again: at least once.
        cast.broker.hold_receipts = False
        cast.broker.break_streams()
        await later
        assert acked(cast) == {0}

    play(scenario)


def test_what_could_not_be_stored_is_delivered_again() -> None:
    async def scenario(cast: Cast) -> None:
        consumer = await worker(cast)
        await publish(cast, b"job")
        message = await consumer.receive(5_000)
        cast.broker.refuse_entries = [NotAllowedError("the topic is read only")]
        with pytest.raises(PulsarishError, match="read only"):
            await consumer.reconsume_later(message, timedelta(0))
        again = await consumer.receive(5_000)
        assert (again.topic_name(), again.redelivery_count()) == (BASE, 1)
        await consumer.reconsume_later(again, timedelta(0))
        retried = await consumer.receive(5_000)
        assert (retried.topic_name(), retried.redelivery_count()) == (RETRY, 0)

    play(scenario)


def test_a_consumer_that_is_closed_meanwhile_loses_nothing() -> None:
    async def scenario(cast: Cast) -> None:
        consumer = await worker(cast)
        await publish(cast, b"job")
        message = await consumer.receive(5_000)
        cast.broker.drop_entries = True
        later = asyncio.ensure_future(consumer.reconsume_later(message, timedelta(0)))
        await cast.sleep(1)
        assert not later.done()
        cast.broker.drop_entries = False
        closing = asyncio.ensure_future(consumer.close())
        await cast.sleep(0.5)
        cast.broker.break_streams()
        await closing
        with pytest.raises(AlreadyClosed):
            await later
        assert not acked(cast)

    play(scenario)


def test_one_message_of_a_batch() -> None:
    async def scenario(cast: Cast) -> None:
        consumer = await worker(cast)
        await publish(cast, b"0", b"1", b"2", batching=True)
        messages = [await consumer.receive(5_000) for _ in range(3)]
        assert len({message.message_id().entry_id() for message in messages}) == 1
        await consumer.reconsume_later(messages[1], timedelta(0))
        assert (await consumer.receive(5_000)).data() == b"1"
        await cast.sleep(1)
        assert not acked(cast)
        await consumer.acknowledge([messages[0], messages[2]])
        await cast.sleep(1)
        assert acked(cast) == {0}

    play(scenario)


def test_a_count_that_a_program_spoiled_begins_again() -> None:
    async def scenario(cast: Cast) -> None:
        consumer = await worker(cast, most=1)
        for spoiled in ("many", "-5", "", "²"):
            await publish(cast, b"job", properties={"RECONSUMETIMES": spoiled})
            await consumer.reconsume_later(await consumer.receive(5_000), timedelta(0))
            message = await consumer.receive(5_000)
            assert message.properties()["RECONSUMETIMES"] == "1"
            await consumer.acknowledge(message)
        await publish(cast, b"job", properties={"RECONSUMETIMES": "9" * 5_000})
        await consumer.reconsume_later(await consumer.receive(5_000), timedelta(0))
        assert len(cast.cluster.topic(DEAD).entries) == 1

    play(scenario, seeds=1)


def test_all_topics_and_partitions_share_the_topics_of_the_first() -> None:
    async def scenario(cast: Cast) -> None:
        cast.cluster.partitions[BASE] = 2
        consumer = await worker(cast, ["t", "other"])
        assert consumer.topic().split(",") == [BASE, f"{BASE[:-1]}other", RETRY]
        other = await cast.client().create_producer("other")
        await other.send(b"job")
        message = await consumer.receive(5_000)
        while (count := message.properties().get("RECONSUMETIMES", "0")) != "2":
            await consumer.reconsume_later(message, timedelta(0))
            message = await consumer.receive(5_000)
            assert message.properties()["REAL_TOPIC"] == f"{BASE[:-1]}other"
            assert int(message.properties()["RECONSUMETIMES"]) == int(count) + 1
        # A message of the retry letter topic that is refused too often goes to the same place.
        for redeliveries in (1, 2):
            await consumer.negative_acknowledge(message)
            message = await consumer.receive(5_000)
            assert (message.topic_name(), message.redelivery_count()) == (RETRY, redeliveries)
        await consumer.negative_acknowledge(message)
        await cast.sleep(2)
        assert len(cast.cluster.topic(DEAD).entries) == 1

    play(scenario)


def test_a_new_subscription_gets_what_waits_in_its_retry_letter_topic() -> None:
    async def scenario(cast: Cast) -> None:
        producer = await cast.client().create_producer(RETRY)
        await producer.send(b"redriven")
        await publish(cast, b"before")
        consumer = await worker(cast)
        assert (await consumer.receive(5_000)).data() == b"redriven"

    play(scenario)


def test_without_a_policy_a_message_is_reconsumed_sixteen_times() -> None:
    async def scenario(cast: Cast) -> None:
        consumer = await cast.client().subscribe(
            "t", "me", consumer_type=ConsumerType.KeyShared, retry_enabled=True
        )
        await publish(cast, b"job")
        for _ in range(17):
            await consumer.reconsume_later(await consumer.receive(5_000), timedelta(0))
        with pytest.raises(Timeout):
            await consumer.receive(1_000)
        assert len(cast.cluster.topic(DEAD).entries) == 1

    play(scenario, seeds=1)
