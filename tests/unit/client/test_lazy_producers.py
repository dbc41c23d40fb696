"""Producers of partitions that are opened for their first message."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.client.enums import ProducerAccessMode
from pulsarish.model.errors import (
    AuthorizationError,
    InvalidArgument,
    MessageTooBig,
    PulsarishError,
    Timeout,
)
from tests.support.client_world import Cast, play

TOPIC = "persistent://public/default/wide"


def _opened(cast: Cast) -> list[bool]:
    return [bool(cast.cluster.topic(f"{TOPIC}-partition-{at}").producers) for at in range(4)]


@pytest.mark.parametrize("batching", [False, True])
def test_a_partition_is_opened_for_its_first_message(batching: bool) -> None:
    async def scenario(cast: Cast) -> None:
        cast.cluster.partitions[TOPIC] = 4
        producer = await cast.client().create_producer(
            TOPIC,
            lazy_start_partitioned_producers=True,
            batching_enabled=batching,
            message_router=lambda message, _: int(message.data()),
        )
        assert _opened(cast) == [True, False, False, False]
        assert producer.is_connected()
        ids = await asyncio.gather(*(producer.send_soon(b"2") for _ in range(3)))
        assert [each.partition() for each in ids] == [2, 2, 2]
        assert ids == sorted(set(ids))
        assert _opened(cast) == [True, False, True, False]
        await producer.flush()
        sent = producer.send_soon(b"1")
        await producer.flush()
        assert sent.done()
        assert (await producer.send(b"0")).partition() == 0
        last = producer.send_soon(b"3")
        await producer.close()
        assert (await last).partition() == 3

    play(scenario)


def test_a_refusal_fails_the_messages_of_the_partition() -> None:
    async def scenario(cast: Cast) -> None:
        cast.cluster.partitions[TOPIC] = 4
        producer = await cast.client().create_producer(
            TOPIC,
            lazy_start_partitioned_producers=True,
            message_router=lambda message, _: int(message.data()),
        )
        cast.broker.refuse_open.append(AuthorizationError("no"))
        sent = producer.send_soon(b"1")
        with pytest.raises(AuthorizationError):
            await sent
        with pytest.raises(AuthorizationError):
            await producer.send(b"1")
        await producer.send(b"2")

    play(scenario)


def test_messages_time_out_that_no_broker_takes() -> None:
    async def scenario(cast: Cast) -> None:
        cast.cluster.partitions[TOPIC] = 4
        producer = await cast.client().create_producer(
            TOPIC,
            lazy_start_partitioned_producers=True,
            send_timeout_millis=2_000,
            max_pending_messages=8,
            message_router=lambda message, _: int(message.data()[:1]),
        )
        cast.broker.max_message_bytes = 10
        with pytest.raises(MessageTooBig):
            await producer.send(b"1" * 11)
        for broker in cast.brokers:
            await broker.stop()
        sent = [producer.send_soon(b"2") for _ in range(2)]
        found: list[PulsarishError | object] = list(
            await asyncio.gather(*sent, return_exceptions=True)
        )
        assert [type(each) for each in found] == [Timeout, Timeout]

    play(scenario)


def test_an_exclusive_producer_has_all_partitions() -> None:
    async def scenario(cast: Cast) -> None:
        cast.cluster.partitions[TOPIC] = 4
        client = cast.client()
        with pytest.raises(InvalidArgument, match="lazy_start"):
            await client.create_producer(TOPIC, lazy_start_partitioned_producers="yes")
        await client.create_producer(
            TOPIC,
            lazy_start_partitioned_producers=True,
            access_mode=ProducerAccessMode.Exclusive,
        )
        assert _opened(cast) == [True] * 4

    play(scenario)
