"""Redelivery on subscriptions in order, in virtual time: the consumer stays subscribed, and what
was on the wire when it asked is not handed out.
"""

from __future__ import annotations

from typing import Any

import pytest

from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.messages.message import Message
from tests.support.client_world import Cast, play

COUNT = 60


async def publish(cast: Cast, topic: str = "t", count: int = COUNT) -> None:
    producer = await cast.client().create_producer(topic, batching_enabled=False)
    for number in range(count):
        _ = producer.send_soon(str(number).encode())
    await producer.flush()


async def subscribe(cast: Cast, topic: str = "t", **options: Any) -> Any:
    options.setdefault("consumer_type", ConsumerType.Failover)
    return await cast.client(operation_timeout_seconds=5).subscribe(
        topic, "s", initial_position=InitialPosition.Earliest, receiver_queue_size=10, **options
    )


async def received(consumer: Any, count: int) -> list[Message]:
    return [await consumer.receive(20_000) for _ in range(count)]


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.data()) for message in messages]


async def refuse(consumer: Any, message: Message) -> None:
    await consumer.negative_acknowledge(message)


async def redeliver(consumer: Any, _message: Message) -> None:
    consumer.redeliver_unacknowledged_messages()


async def wait(consumer: Any, _message: Message) -> None:
    """Let the acknowledgement timeout pass."""


@pytest.mark.parametrize("kind", [ConsumerType.Failover, ConsumerType.Exclusive])
@pytest.mark.parametrize("ask", [refuse, redeliver, wait])
@pytest.mark.parametrize("is_old", [False, True])
def test_it_begins_again_after_what_is_acknowledged(
    kind: ConsumerType, ask: Any, is_old: bool
) -> None:
    async def scenario(cast: Cast) -> None:
        cast.broker.is_old = is_old
        await publish(cast)
        consumer = await subscribe(
            cast,
            consumer_type=kind,
            negative_ack_redelivery_delay_ms=100,
            unacked_messages_timeout_ms=10_000 if ask is wait else None,
        )
        first = await received(consumer, 5)
        await consumer.acknowledge_cumulative(first[2])
        await ask(consumer, first[3])
        found = await received(consumer, 4)
        while numbers(found)[-4:] != [3, 4, 5, 6]:
            found += await received(consumer, 1)
            assert len(found) < 2 * COUNT
        again = numbers(found[:-4])
        assert again == list(range(5, 5 + len(again))), "what the program took before it is due"
        rest = found[-4:] + await received(consumer, COUNT - 7)
        assert numbers(rest) == list(range(3, COUNT))
        assert [message.redelivery_count() for message in rest[:2]] == [1 + is_old] * 2
        await consumer.acknowledge_cumulative(rest[-1])
        await cast.sleep(1.0)
        topic = cast.cluster.topic("persistent://public/default/t")
        assert topic.subscriptions["s"].acked == set(range(COUNT))
        assert consumer._consuming.subscribed_count == (2 if is_old else 1)

    play(scenario)


def test_an_acknowledged_message_of_the_time_before_is_not_skipped() -> None:
    """The program acknowledges whatever it got last, while redeliveries are under way."""

    async def scenario(cast: Cast) -> None:
        await publish(cast)
        consumer = await subscribe(cast, negative_ack_redelivery_delay_ms=1)
        refused: set[int] = set()
        seen: set[int] = set()
        while len(seen) < COUNT:
            message = await consumer.receive(20_000)
            (number,) = numbers([message])
            if number % 7 == 3 and number not in refused:
                refused.add(number)
                await consumer.negative_acknowledge(message)
                await cast.sleep(0.01)
                continue
            assert number <= len(seen), "it comes before one that was refused"
            seen.add(number)
            await consumer.acknowledge_cumulative(message)
        assert consumer._consuming.subscribed_count == 1

    play(scenario)


def test_a_topic_that_stores_nothing_keeps_what_is_queued() -> None:
    async def scenario(cast: Cast) -> None:
        name = "non-persistent://public/default/t"
        consumer = await subscribe(cast, name)
        await publish(cast, name, 5)
        await cast.sleep(1.0)
        consumer.redeliver_unacknowledged_messages()
        assert numbers(await received(consumer, 5)) == list(range(5))

    play(scenario)
