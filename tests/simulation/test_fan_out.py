"""Many subscriptions of one topic: what was just confirmed is read once for all that wait for it,
and those that are behind read for themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import pytest

from pulsarish.broker.subscriptions import new_entries
from pulsarish.broker.subscriptions.subscriptions import TopicSubscriptions
from pulsarish.client.api.asyncio_consumer import AsyncConsumer, AsyncReader
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import ConsumerType
from pulsarish.client.message_id import MessageId
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"


def same_calendar(brokered: Brokered) -> None:
    clock = brokered.node("broker0").clock
    clock.wall_offset_ms += brokered.world.clock.wall_ms() - clock.wall_ms()


async def opened(brokered: Brokered, *names: str, **options: Any) -> list[AsyncConsumer]:
    client = brokered.client()
    return [await client.subscribe(TOPIC, name, **options) for name in names]


async def publish(producer: AsyncProducer, first: int, count: int) -> None:
    for number in range(first, first + count):
        await producer.send(b"%d" % number, partition_key=str(number % 3))


async def take(consumer: AsyncConsumer | AsyncReader, count: int) -> list[int]:
    found = []
    for _ in range(count):
        receiving: Awaitable[Any] = (
            consumer.read_next(20_000)
            if isinstance(consumer, AsyncReader)
            else consumer.receive(20_000)
        )
        message = await receiving
        found.append(int(message.data()))
        if isinstance(consumer, AsyncConsumer):
            await consumer.acknowledge(message)
    return found


def test_what_is_new_is_decoded_once_for_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = 0
    was = new_entries.shared_ready

    def shared_ready(*args: Any, **named: Any) -> Any:
        nonlocal decoded
        decoded += 1
        return was(*args, **named)

    monkeypatch.setattr(new_entries, "shared_ready", shared_ready)

    async def scenario(brokered: Brokered) -> None:
        nonlocal decoded
        client = brokered.client()
        readers = [await client.create_reader(TOPIC, MessageId.latest) for _ in range(8)]
        kinds = [each for each in ConsumerType if each is not ConsumerType.KeyShared]
        consumers = [
            (await opened(brokered, f"s{kind.name}", consumer_type=kind))[0] for kind in kinds
        ]
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        decoded = 0
        await publish(producer, 0, 10)
        for each in (*readers, *consumers):
            assert await take(each, 10) == list(range(10))
        assert decoded == 10
        # with the hashes of its key, it is another one
        (keyed,) = await opened(brokered, "keyed", consumer_type=ConsumerType.KeyShared)
        await publish(producer, 10, 10)
        for each in (*readers, *consumers, keyed):
            assert await take(each, 10) == list(range(10, 20))
        assert decoded == 30
        for subscription in brokered.topic(TOPIC).subscriptions.values():
            assert not subscription.dispatch_loop.reads_begun
            subscription.check()

    play_with_brokers(scenario)


@pytest.mark.parametrize("kind", list(ConsumerType))
def test_what_is_behind_stays_in_order_beside_what_is_not(kind: ConsumerType) -> None:
    async def scenario(brokered: Brokered) -> None:
        (quick,) = await opened(brokered, "quick")
        (slow,) = await opened(brokered, "slow", consumer_type=kind, receiver_queue_size=1)
        producer = await brokered.client().create_producer(TOPIC, batching_enabled=False)
        await publish(producer, 0, 10)
        assert await take(slow, 4) == [0, 1, 2, 3]
        await publish(producer, 10, 10)
        assert await take(quick, 20) == list(range(20))
        assert await take(slow, 16) == list(range(4, 20))
        await publish(producer, 20, 2)
        assert await take(quick, 2) == await take(slow, 2) == [20, 21]
        for name in ("quick", "slow"):
            subscription = brokered.subscription(TOPIC, name)
            await brokered.until(lambda each=subscription: not each.backlog)  # type: ignore[misc]
            subscription.check()

    play_with_brokers(scenario)


def test_delayed_and_compacted_ones_are_read_by_each_subscription() -> None:
    async def scenario(brokered: Brokered) -> None:
        same_calendar(brokered)
        (spread,) = await opened(brokered, "spread", consumer_type=ConsumerType.Shared)
        client = brokered.client()
        plain = await client.create_reader(TOPIC, MessageId.latest)
        compacted = await client.create_reader(TOPIC, MessageId.earliest, is_read_compacted=True)
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        await producer.send(b"0", partition_key="k", deliver_after=timedelta(seconds=20))
        await publish(producer, 1, 2)
        assert await take(spread, 3) == [1, 2, 0]
        assert await take(plain, 3) == [0, 1, 2]
        assert await take(compacted, 3) == [0, 1, 2]

    play_with_brokers(scenario)


class Defect(Exception):
    """What no code of the broker raises."""


def test_a_subscription_that_fails_there_ends_alone() -> None:
    async def scenario(brokered: Brokered) -> None:
        brokered.node("broker0").expect(Defect)
        first, broken, last = await opened(brokered, "first", "broken", "last")
        producer = await brokered.client().create_producer(TOPIC, batching_enabled=False)
        await publish(producer, 0, 1)
        topic, failed = brokered.topic(TOPIC), brokered.subscription(TOPIC, "broken")

        def deliver() -> None:
            del failed.dispatcher.deliver
            raise Defect

        failed.dispatcher.deliver = deliver  # type: ignore[method-assign]
        await publish(producer, 1, 1)
        for consumer in (first, last):
            assert await take(consumer, 2) == [0, 1]

        def subscribed_again() -> bool:
            # Until then, the client may hand out a message and acknowledge it to the old one.
            now = topic.subscriptions.get("broken", failed)
            return now is not failed and bool(now.consumers) and broken.is_connected()

        await brokered.until(subscribed_again)
        assert await take(broken, 2) == [0, 1]
        assert brokered.topic(TOPIC) is topic

    play_with_brokers(scenario)


def test_entries_gather_after_a_pass_that_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledgements that come in the meantime do not make a subscription read for itself."""

    async def scenario(brokered: Brokered) -> None:
        consumers = await opened(brokered, "one", "two")
        producer = await brokered.client().create_producer(TOPIC, batching_enabled=False)
        await publish(producer, 0, 1)
        received = [await each.receive(20_000) for each in consumers]
        clock, passes = brokered.node("broker0").clock, 0
        subscriptions = brokered.topic(TOPIC)._subscribing
        deliver = TopicSubscriptions._deliver_new

        def counted(these: TopicSubscriptions) -> None:
            nonlocal passes
            passes += these is subscriptions
            deliver(these)

        monkeypatch.setattr(TopicSubscriptions, "_deliver_new", counted)
        subscriptions._next_pass_at = clock.monotonic() + 2.0
        await publish(producer, 1, 5)
        for consumer, message in zip(consumers, received, strict=True):
            await consumer.acknowledge(message)
        await brokered.until(
            lambda: all(each.backlog == 5 for each in subscriptions.by_name.values())
        )
        assert passes == 0
        assert [await take(each, 5) for each in consumers] == [[1, 2, 3, 4, 5]] * 2
        assert passes == 1
        assert clock.monotonic() >= subscriptions._next_pass_at
        for subscription in subscriptions.by_name.values():
            assert not subscription.dispatch_loop.reads_begun

    play_with_brokers(scenario)
