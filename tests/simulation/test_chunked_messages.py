"""Messages in chunks through the client, over whole brokers and bookies in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"


def content(number: int) -> bytes:
    return bytes(index * index % 251 for index in range(5_000 + 700 * number)) + b"%d" % number


CONTENTS = [content(number) for number in range(8)]


@pytest.mark.parametrize("consumer_type", [ConsumerType.Failover, ConsumerType.Shared])
def test_owner_killed_among_the_chunks(consumer_type: ConsumerType) -> None:
    """With deduplication the log then has each chunk once, and the consumer each message at least
    once, in order where order counts.
    """

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(
            TOPIC, "s", consumer_type=consumer_type, receiver_queue_size=3
        )
        producer = await client.create_producer(
            TOPIC, producer_name="p", chunking_enabled=True, send_timeout_millis=0
        )
        sends = [producer.send_soon(each) for each in CONTENTS]
        await sends[1]
        owner = next(
            name
            for name, broker in brokered.cluster.brokers.items()
            if TOPIC in broker._topics.loaded
        )
        brokered.node(owner).crash()
        ids = await asyncio.gather(*sends)
        assert ids == sorted(ids)
        found: list[bytes] = []
        while set(found) < set(CONTENTS):
            message = await consumer.receive(timeout_millis=60_000)
            found.append(message.data())
            await consumer.acknowledge(message)
        if consumer_type is ConsumerType.Failover:
            assert list(dict.fromkeys(found)) == CONTENTS
        await brokered.until(lambda: brokered.subscription(TOPIC, "s").cursor.backlog() == 0)
        reader = await client.create_reader(TOPIC, MessageId.earliest)
        read = [(await reader.read_next(timeout_millis=10_000)).data() for _ in CONTENTS]
        assert read == CONTENTS
        assert not await reader.has_message_available()

    play_with_brokers(
        scenario, brokers=2, max_message_size_bytes=1_024, broker_deduplication_enabled=True
    )


def test_two_shared_consumers_get_every_message_whole() -> None:
    """With queues of one, so that chunks often wait for the consumer that has those before them.

    None comes twice.
    """

    async def take(consumer: AsyncConsumer, found: set[bytes]) -> None:
        while len(found) < len(CONTENTS):
            message = await consumer.receive()
            found.add(message.data())
            await consumer.acknowledge(message)

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        found: set[bytes] = set()
        consumers = [
            await client.subscribe(
                TOPIC,
                "s",
                consumer_type=ConsumerType.Shared,
                initial_position=InitialPosition.Earliest,
                receiver_queue_size=1,
            )
            for _ in range(2)
        ]
        producer = await client.create_producer(TOPIC, chunking_enabled=True)
        takers = [asyncio.ensure_future(take(consumer, found)) for consumer in consumers]
        for each in CONTENTS:
            await producer.send(each)
        await brokered.until(lambda: len(found) == len(CONTENTS), seconds=300.0)
        assert found == set(CONTENTS)
        assert brokered.subscription(TOPIC, "s").redelivered.messages == 0
        await brokered.until(lambda: brokered.subscription(TOPIC, "s").cursor.backlog() == 0)
        for taker in takers:
            taker.cancel()

    play_with_brokers(scenario, max_message_size_bytes=1_024)
