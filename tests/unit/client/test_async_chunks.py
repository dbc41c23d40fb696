"""Messages in chunks through the awaitable face, against the fake broker in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.client.enums import CompressionType, ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_policies import (
    ConsumerDeadLetterPolicy,
)
from pulsarish.model.errors import NotAllowedError, Timeout
from pulsarish.wire.entry import parse_metadata
from tests.support.client_world import Cast, play

TOPIC = "persistent://public/default/t"
BIG = bytes(index * index % 251 for index in range(5_000))


def limited(cast: Cast, max_message_bytes: int = 1_000) -> None:
    for broker in cast.brokers:
        broker.max_message_bytes = max_message_bytes


@pytest.mark.parametrize("kind", list(CompressionType))
@pytest.mark.parametrize("queue_size", [0, 1, 3, 1_000])
def test_sent_received_and_acknowledged(kind: CompressionType, queue_size: int) -> None:
    async def scenario(cast: Cast) -> None:
        limited(cast)
        client = cast.client()
        consumer = await client.subscribe("t", "s", receiver_queue_size=queue_size)
        producer = await client.create_producer("t", chunking_enabled=True, compression_type=kind)
        for number in range(3):
            content = BIG + b"%d" % number
            sent = await producer.send(content, properties={"n": str(number)}, partition_key="k")
            message = await consumer.receive(timeout_millis=5_000)
            assert message.data() == content
            assert (message.message_id(), message.message_id().chunks()) == (sent, sent.chunks())
            assert (message.properties(), message.partition_key(), message.sequence_id()) == (
                {"n": str(number)},
                "k",
                number,
            )
            await consumer.acknowledge(message)
        await cast.sleep(1)
        topic = cast.cluster.topic(TOPIC)
        assert topic.subscriptions["s"].acked == set(range(len(topic.entries)))
        assert (len(topic.entries) > 3) == bool(sent.chunks())
        assert producer.last_sequence_id() == 2

    play(scenario, seeds=1)


def test_two_producers_at_once() -> None:
    async def scenario(cast: Cast) -> None:
        limited(cast)
        client = cast.client()
        consumer = await client.subscribe("t", "s", receiver_queue_size=2)
        producers = [await client.create_producer("t", chunking_enabled=True) for _ in range(2)]
        wanted = {BIG + b"%d.%d" % (number, turn) for number in range(2) for turn in range(5)}
        sends = [
            producers[number].send(BIG + b"%d.%d" % (number, turn))
            for turn in range(5)
            for number in range(2)
        ]
        sent = asyncio.gather(*sends)
        found = set()
        for _ in range(10):
            message = await consumer.receive(timeout_millis=5_000)
            found.add(message.data())
            await consumer.acknowledge_cumulative(message)
        assert found == wanted
        await sent
        await cast.sleep(1)
        topic = cast.cluster.topic(TOPIC)
        assert topic.subscriptions["s"].mark_delete == len(topic.entries) - 1

    play(scenario)


def test_refused_and_dead() -> None:
    async def scenario(cast: Cast) -> None:
        limited(cast)
        client = cast.client()
        consumer = await client.subscribe(
            "t",
            "s",
            consumer_type=ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=ConsumerDeadLetterPolicy(1, "dead"),
        )
        dead = await client.subscribe("dead", "s")
        producer = await client.create_producer("t", chunking_enabled=True)
        await producer.send(BIG[:900])
        await producer.send(BIG[:2_000])
        for count in range(2):
            for size in (900, 2_000):
                message = await consumer.receive(timeout_millis=5_000)
                assert (message.redelivery_count(), message.size()) == (count, size)
                await consumer.negative_acknowledge(message)
        assert (await dead.receive(timeout_millis=5_000)).data() == BIG[:900]
        # The producer of dead letters cuts up as well, or what was received could not be buried.
        assert (await dead.receive(timeout_millis=5_000)).data() == BIG[:2_000]
        await cast.sleep(1)
        topic = cast.cluster.topic(TOPIC)
        assert topic.subscriptions["s"].acked == set(range(len(topic.entries)))

    play(scenario, seeds=1)


def test_what_is_not_acknowledged_in_time_comes_again_whole() -> None:
    async def scenario(cast: Cast) -> None:
        limited(cast)
        client = cast.client()
        consumer = await client.subscribe(
            "t", "s", consumer_type=ConsumerType.Shared, unacked_messages_timeout_ms=10_000
        )
        producer = await client.create_producer("t", chunking_enabled=True)
        await producer.send(BIG)
        for count in range(3):
            message = await consumer.receive(timeout_millis=20_000)
            assert (message.data(), message.redelivery_count()) == (BIG, count)
        await consumer.acknowledge(MessageId.deserialize(message.message_id().serialize()))
        with pytest.raises(Timeout):
            await consumer.receive(timeout_millis=15_000)
        topic = cast.cluster.topic(TOPIC)
        assert topic.subscriptions["s"].acked == set(range(len(topic.entries)))

    play(scenario, seeds=1)


def test_readers_and_seeks() -> None:
    async def scenario(cast: Cast) -> None:
        limited(cast)
        client = cast.client()
        producer = await client.create_producer("t", chunking_enabled=True)
        ids = [await producer.send(BIG + b"%d" % number) for number in range(4)]
        reader = await client.create_reader("t", ids[1], start_message_id_inclusive=True)
        assert (await reader.read_next(timeout_millis=5_000)).data() == BIG + b"1"
        after = await client.create_reader("t", MessageId.deserialize(ids[1].serialize()))
        assert (await after.read_next(timeout_millis=5_000)).data() == BIG + b"2"
        for broker in cast.brokers:
            broker.break_streams()
        assert (await after.read_next(timeout_millis=15_000)).data() == BIG + b"3"
        assert not await after.has_message_available()
        consumer = await client.subscribe(
            "t", "s", start_message_id_inclusive=True, initial_position=InitialPosition.Earliest
        )
        assert (await consumer.receive(timeout_millis=5_000)).data() == BIG + b"0"
        await consumer.seek(ids[2])
        assert (await consumer.receive(timeout_millis=5_000)).data() == BIG + b"2"

    play(scenario)


def test_a_refused_chunk_fails_the_message_and_no_other() -> None:
    async def scenario(cast: Cast) -> None:
        limited(cast)
        client = cast.client()
        consumer = await client.subscribe("t", "s")
        producer = await client.create_producer("t", chunking_enabled=True)
        cast.broker.refuse_entries.append(NotAllowedError("the test refuses it"))
        sends = [producer.send_soon(BIG), producer.send_soon(b"small")]
        with pytest.raises(NotAllowedError):
            await sends[0]
        await sends[1]
        assert (await consumer.receive(timeout_millis=5_000)).data() == b"small"
        await producer.send(BIG)
        assert (await consumer.receive(timeout_millis=5_000)).data() == BIG

    play(scenario)


def test_connections_that_break_in_the_middle() -> None:
    async def scenario(cast: Cast) -> None:
        limited(cast)
        client = cast.client()
        consumer = await client.subscribe(
            "t", "s", consumer_type=ConsumerType.Shared, receiver_queue_size=3
        )
        producer = await client.create_producer("t", chunking_enabled=True)
        sends = [producer.send_soon(BIG + b"%d" % number) for number in range(5)]
        found = set()
        while len(found) < 5:
            await cast.sleep(cast.world.random.random() / 50)
            if len(found) < 3:
                cast.broker.break_streams()
            message = await consumer.receive(timeout_millis=60_000)
            found.add(message.data())
            await consumer.acknowledge(message)
        assert found == {BIG + b"%d" % number for number in range(5)}
        await asyncio.gather(*sends)

    play(scenario, seeds=5)


def test_a_message_without_an_end_is_given_up_and_stops_nobody() -> None:
    async def scenario(cast: Cast) -> None:
        limited(cast)
        client = cast.client()
        consumer = await client.subscribe(
            "t", "s", receiver_queue_size=1, expire_time_of_incomplete_chunked_message_ms=10_000
        )
        producer = await client.create_producer("t", chunking_enabled=True)
        await producer.send(BIG)
        topic = cast.cluster.topic(TOPIC)
        # All but the last chunk of it, as a producer leaves it that ends in the middle.
        for kept in (topic.entries, topic.times, topic.messages):
            kept.pop()
        await producer.send(b"after")
        message = await consumer.receive(timeout_millis=5_000)
        assert message.data() == b"after"
        await consumer.acknowledge(message)
        with pytest.raises(Timeout):
            await consumer.receive(timeout_millis=15_000)
        await cast.sleep(1)
        assert topic.subscriptions["s"].acked == set(range(len(topic.entries)))
        assert parse_metadata(topic.entries[0]).num_chunks_from_msg > 1

    play(scenario, seeds=1)
