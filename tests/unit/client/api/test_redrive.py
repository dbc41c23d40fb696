"""Dead letters that are moved back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from pulsarish.client.api.redrive import Redrive
from pulsarish.client.enums import ConsumerType
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import ConsumerBusy, NotAllowedError, PulsarishError
from tests.support.client_world import Cast, play

BASE = "persistent://public/default/t"
RETRY = f"{BASE}-s-RETRY"
DEAD = f"{BASE}-s-DLQ"


async def letters(cast: Cast, *contents: bytes, batching: bool = False) -> None:
    """Publish dead letters, which the subscription "look" keeps."""
    client = cast.client()
    await (await client.subscribe(DEAD, "look")).close()
    producer = await client.create_producer(DEAD, batching_enabled=batching)
    sends = (
        producer.send_soon(
            each,
            partition_key="k",
            properties={
                "kind": each[:1].decode(),
                "RECONSUMETIMES": "3",
                "DELAY_TIME": "5",
                "REAL_TOPIC": BASE,
                "REAL_SUBSCRIPTION": "s",
                "ORIGIN_MESSAGE_ID": "(1,2,-1,-1)",
            },
        )
        for each in contents
    )
    await asyncio.gather(*sends)


async def redrive(
    cast: Cast,
    *,
    target: str = RETRY,
    count: int | None = None,
    size: int = 2,
    dry_run: bool = False,
    properties: Mapping[str, str] | None = None,
) -> list[list[bytes]]:
    moving = Redrive(
        cast.client(), "look", target, for_all=target == BASE, properties=properties or {}
    )
    return [
        [message.data() for message in page]
        async for page in moving.pages(DEAD, count=count, size=size, dry_run=dry_run)
    ]


async def received(cast: Cast, topic: str, count: int) -> list[Message]:
    consumer = await cast.client().subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    await consumer.seek(0)
    return [await consumer.receive(5_000) for _ in range(count)]


def acked(cast: Cast) -> set[int]:
    return cast.cluster.topic(DEAD).subscriptions["look"].acked


def test_letters_are_moved_in_order_and_in_pages() -> None:
    async def scenario(cast: Cast) -> None:
        await letters(cast, b"a0", b"a1", b"a2")
        assert await redrive(cast, dry_run=True) == [[b"a0", b"a1"], [b"a2"]]
        assert not acked(cast)
        assert await redrive(cast, count=1) == [[b"a0"]]
        assert await redrive(cast) == [[b"a1", b"a2"]]
        assert acked(cast) == {0, 1, 2}
        assert await redrive(cast) == []
        moved = await received(cast, RETRY, 3)
        assert [message.data() for message in moved] == [b"a0", b"a1", b"a2"]
        assert moved[0].partition_key() == "k"
        assert moved[0].properties() == {
            "kind": "a",
            "REAL_TOPIC": BASE,
            "REAL_SUBSCRIPTION": "s",
            "ORIGIN_MESSAGE_ID": "(1,2,-1,-1)",
            "REDRIVE_TIMES": "1",
        }

    play(scenario)


def test_messages_for_every_subscription_name_none() -> None:
    async def scenario(cast: Cast) -> None:
        await letters(cast, b"a0")
        assert await redrive(cast, target=BASE) == [[b"a0"]]
        (moved,) = await received(cast, BASE, 1)
        assert moved.properties() == {"kind": "a", "REDRIVE_TIMES": "1"}

    play(scenario)


def test_what_a_filter_leaves_stays() -> None:
    async def scenario(cast: Cast) -> None:
        await letters(cast, b"a0", b"b1", b"a2", b"b3", b"a4", batching=False)
        assert await redrive(cast, properties={"kind": "b"}) == [[b"b1", b"b3"]]
        assert acked(cast) == {1, 3}
        assert await redrive(cast, properties={"kind": "b"}) == []
        assert await redrive(cast) == [[b"a0", b"a2"], [b"a4"]]

    play(scenario)


def test_letters_of_one_batch() -> None:
    async def scenario(cast: Cast) -> None:
        await letters(cast, b"a0", b"b1", b"a2", batching=True)
        assert len(cast.cluster.topic(DEAD).entries) == 1
        assert await redrive(cast) == [[b"a0", b"b1"], [b"a2"]]
        assert acked(cast) == {0}

    play(scenario)


def test_what_could_not_be_stored_stays_and_is_moved_by_the_next() -> None:
    async def scenario(cast: Cast) -> None:
        await letters(cast, b"a0", b"a1", b"a2")
        cast.broker.refuse_entries = [NotAllowedError("the topic is read only")]
        with pytest.raises(PulsarishError, match="read only"):
            await redrive(cast)
        assert acked(cast) == {1}, "the second one was stored"
        assert await redrive(cast) == [[b"a0", b"a2"]]

    play(scenario)


def test_one_redrive_at_a_time() -> None:
    async def scenario(cast: Cast) -> None:
        await letters(cast, b"a0")
        other = await cast.client().subscribe(DEAD, "look")
        with pytest.raises(ConsumerBusy):
            await redrive(cast)
        await other.close()
        assert await redrive(cast) == [[b"a0"]]

    play(scenario, seeds=1)


def test_letters_that_come_back_meanwhile_stay() -> None:
    async def scenario(cast: Cast) -> None:
        await letters(cast, b"a0", b"a1", b"a2")
        producer = await cast.client().create_producer(DEAD)
        moving = Redrive(cast.client(), "look", RETRY, for_all=False, properties={})
        pages = []
        async for page in moving.pages(DEAD, count=None, size=1, dry_run=False):
            pages.append([message.data() for message in page])
            await producer.send(page[0].data())
        assert pages == [[b"a0"], [b"a1"], [b"a2"]]
        assert acked(cast) == {0, 1, 2}
        assert len(cast.cluster.topic(DEAD).entries) == 6

    play(scenario)
