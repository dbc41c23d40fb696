"""What a consumer does with messages that it cannot decrypt: ``crypto_failure_action`` decides."""

from __future__ import annotations

import pytest

from pulsarish.client.api.asyncio_client import AsyncConsumer, AsyncReader
from pulsarish.client.enums import ConsumerCryptoFailureAction, ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import CryptoError, Timeout
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry
from tests.support.client_world import Cast, play

TOPIC = "persistent://public/default/t"


async def with_encrypted(cast: Cast, messages_in_batch: int = 3) -> None:
    """Publish "before", an encrypted batch, and "after"."""
    client = cast.client()
    producer = await client.create_producer("t", batching_enabled=False)
    await producer.send(b"before")
    topic = cast.cluster.topic(TOPIC)
    metadata = MessageMetadata(
        producer_name="other",
        sequence_id=0,
        publish_time=1,
        compression=4,
        uncompressed_size=50,
        num_messages_in_batch=messages_in_batch,
    )
    metadata.encryption_keys.add(key="k", value=b"v")
    topic.entries.append(encode_entry(metadata, b"sealed"))
    topic.times.append(1)
    topic.messages.append(messages_in_batch)
    await producer.send(b"after")


def test_receive_raises_once_in_its_place_and_goes_on() -> None:
    async def scenario(cast: Cast) -> None:
        await with_encrypted(cast)
        consumer = await cast.client().subscribe(
            "t", "s", initial_position=InitialPosition.Earliest
        )
        assert (await consumer.receive(1_000)).data() == b"before"
        with pytest.raises(
            CryptoError,
            match=r"\d+:1 of persistent://public/default/t: .*encrypted.*DISCARD or CONSUME",
        ):
            await consumer.receive(1_000)
        last = await consumer.receive(1_000)
        assert last.data() == b"after"
        await consumer.acknowledge(last)
        await cast.sleep(1)
        assert 1 not in cast.cluster.topic(TOPIC).subscriptions["s"].acked, (
            "the message stays for a client that can decrypt it"
        )

    play(scenario)


def test_a_batch_receive_returns_what_came_before_first() -> None:
    async def scenario(cast: Cast) -> None:
        await with_encrypted(cast)
        consumer = await cast.client().subscribe(
            "t", "s", initial_position=InitialPosition.Earliest
        )
        assert [message.data() for message in await consumer.batch_receive()] == [b"before"]
        with pytest.raises(CryptoError):
            await consumer.batch_receive()
        assert [message.data() for message in await consumer.batch_receive()] == [b"after"]

    play(scenario)


def test_a_reader_is_told_that_there_is_something() -> None:
    async def scenario(cast: Cast) -> None:
        await with_encrypted(cast)
        reader = await cast.client().create_reader("t", MessageId.earliest)
        assert isinstance(reader, AsyncReader)
        assert (await reader.read_next(1_000)).data() == b"before"
        assert await reader.has_message_available()
        with pytest.raises(CryptoError):
            await reader.read_next(1_000)
        assert (await reader.read_next(1_000)).data() == b"after"

    play(scenario)


def test_discard_acknowledges() -> None:
    async def scenario(cast: Cast) -> None:
        await with_encrypted(cast)
        consumer = await cast.client().subscribe(
            "t",
            "s",
            initial_position=InitialPosition.Earliest,
            crypto_failure_action=ConsumerCryptoFailureAction.DISCARD,
        )
        assert [(await consumer.receive(1_000)).data() for _ in range(2)] == [b"before", b"after"]
        await cast.sleep(1)
        assert 1 in cast.cluster.topic(TOPIC).subscriptions["s"].acked

    play(scenario)


def test_consume_delivers_it_as_it_is_stored() -> None:
    async def scenario(cast: Cast) -> None:
        await with_encrypted(cast)
        consumer = await cast.client().subscribe(
            "t",
            "s",
            ConsumerType.Shared,
            initial_position=InitialPosition.Earliest,
            crypto_failure_action=ConsumerCryptoFailureAction.CONSUME,
        )
        received = [await consumer.receive(1_000) for _ in range(3)]
        assert [message.data() for message in received] == [b"before", b"sealed", b"after"]
        with pytest.raises(CryptoError):
            received[1].value()
        for message in received:
            await consumer.acknowledge(message)
        await cast.sleep(1)
        assert cast.cluster.topic(TOPIC).subscriptions["s"].acked == {0, 1, 2}

    play(scenario)


def test_encrypted_batches_do_not_use_up_permits() -> None:
    """A consumer with a small queue passes many encrypted batches."""

    async def scenario(cast: Cast) -> None:
        consumer = await cast.client().subscribe("t", "s", receiver_queue_size=6)
        assert isinstance(consumer, AsyncConsumer)
        for _ in range(10):
            await with_encrypted(cast)
        received = 0
        refused = 0
        while True:
            try:
                await consumer.receive(3_000)
                received += 1
            except CryptoError:
                refused += 1
            except Timeout:
                break
        assert (received, refused) == (20, 10)

    play(scenario)
