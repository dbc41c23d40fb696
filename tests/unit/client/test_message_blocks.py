"""``async with message:`` acknowledges at the end of the block, negatively when it raises."""

from __future__ import annotations

import pytest

from pulsarish.client.enums import ConsumerType
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import NotAllowedError, Timeout
from tests.support.client_world import Cast, play

TOPIC = "persistent://public/default/t"


@pytest.mark.parametrize("with_receipt", [False, True])
def test_a_block_acknowledges_its_message(with_receipt: bool) -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe(TOPIC, "s", ack_receipt_enabled=with_receipt)
        producer = await client.create_producer(TOPIC)
        for content in (b"1", b"2"):
            await producer.send(content)
        async with await consumer.receive() as message:
            assert message.value() == b"1"
            await cast.sleep(1)
            assert cast.cluster.topic(TOPIC).subscriptions["s"].acked == set()
        if not with_receipt:
            await cast.sleep(1)
        assert cast.cluster.topic(TOPIC).subscriptions["s"].acked == {0}

    play(scenario)


def test_a_block_that_raises_has_the_message_delivered_again() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe(
            TOPIC, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=500
        )
        await (await client.create_producer(TOPIC)).send(b"1")
        with pytest.raises(ZeroDivisionError):
            async with await consumer.receive():
                raise ZeroDivisionError
        async with await consumer.receive(timeout_millis=5_000) as message:
            assert message.data() == b"1"
        await cast.sleep(1)
        assert cast.cluster.topic(TOPIC).subscriptions["s"].acked == {0}

    play(scenario)


def test_the_error_of_a_block_goes_to_the_caller_when_the_consumer_is_closed() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe(TOPIC, "s")
        await (await client.create_producer(TOPIC)).send(b"1")
        with pytest.raises(ZeroDivisionError):
            async with await consumer.receive():
                await consumer.close()
                raise ZeroDivisionError

    play(scenario)


def test_messages_of_readers_have_no_block() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        await (await client.create_producer(TOPIC)).send(b"1")
        reader = await client.create_reader(TOPIC, MessageId.earliest)
        message = await reader.read_next()
        with pytest.raises(NotAllowedError, match="did not come to a consumer"):
            async with message:
                raise AssertionError("the block does not begin")

    play(scenario)


def test_a_message_of_an_asyncio_client_is_awaited() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe(TOPIC, "s")
        await (await client.create_producer(TOPIC)).send(b"1")
        message = await consumer.receive()
        with pytest.raises(NotAllowedError, match="write async with message"), message:
            raise AssertionError("the block does not begin")

    play(scenario)


def test_the_end_of_a_block_undoes_a_negative_acknowledgement_in_it() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe(
            TOPIC, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=500
        )
        await (await client.create_producer(TOPIC)).send(b"1")
        async with await consumer.receive() as message:
            await consumer.negative_acknowledge(message)
        with pytest.raises(Timeout):
            await consumer.receive(timeout_millis=5_000)
        assert cast.cluster.topic(TOPIC).subscriptions["s"].acked == {0}

    play(scenario)
