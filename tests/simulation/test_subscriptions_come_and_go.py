"""Subscriptions that are made, used and deleted by several at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pulsarish.broker.clients.commands import Subscribe
from pulsarish.broker.subscriptions.subscriptions import READER_RETURN_SECONDS
from pulsarish.model.errors import ConsumerBusy, MetadataUnavailable
from pulsarish.model.position import EARLIEST, LATEST
from pulsarish.model.subscription_type import SubscriptionType
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.dispatching import Outlet

TOPIC = "persistent://public/default/t"


def test_a_subscription_deleted_while_it_is_opened_has_its_cursor_or_is_not_served() -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await brokered.client().create_producer(TOPIC)
        topic = brokered.topic(TOPIC)
        for turns in range(10):
            name = f"s{turns}"
            opening = [
                asyncio.ensure_future(topic.create_subscription(name, EARLIEST)) for _ in range(20)
            ]
            _ = await asyncio.wait(opening, return_when=asyncio.FIRST_COMPLETED)
            for _ in range(turns):
                await asyncio.sleep(0)
            await topic.unsubscribe(name, force=True)
            _ = await asyncio.gather(*opening, return_exceptions=True)
            found = topic.subscriptions.get(name)
            assert (found is not None) == (name in topic.log.cursor_names()), turns

    play_with_brokers(scenario, seeds=1)


def test_a_reader_that_seeks_often_keeps_its_cursor_as_long_after_each_seek() -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await brokered.client().create_producer(TOPIC)
        topic = brokered.topic(TOPIC)
        command = Subscribe(1, 1, TOPIC, "r", durable=False)
        for _ in range(2):
            subscription, consumer = await topic.subscribe(command, Outlet(), "")
            await brokered.world.clock.sleep(1.0)
            topic.remove_consumer(subscription, consumer, comes_back=True)
            await brokered.world.clock.sleep(READER_RETURN_SECONDS - 2.0)
            assert topic.subscriptions["r"] is subscription
            subscription, consumer = await topic.subscribe(command, Outlet(), "")
            topic.remove_consumer(subscription, consumer, comes_back=True)
            await brokered.world.clock.sleep(3.0)
            assert topic.subscriptions["r"] is subscription, (
                "the wait after another seek has ended with that of the first"
            )
        await brokered.world.clock.sleep(READER_RETURN_SECONDS)
        assert not topic.subscriptions

    play_with_brokers(scenario, seeds=1)


def test_skipping_messages_does_not_undo_a_seek_that_came_meanwhile() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        _ = await client.subscribe(TOPIC, "s")
        producer = await client.create_producer(TOPIC)
        for number in range(10):
            await producer.send(b"%d" % number)
        await brokered.administer("PUT", "persistent/public/default/t/unload")
        _ = await client.subscribe(TOPIC, "s")
        topic, subscription = brokered.topic(TOPIC), brokered.subscription(TOPIC, "s")
        for turns in range(8):
            await subscription.seek(EARLIEST, 0)
            await subscription.skip(6)
            topic.log._reader.close()
            skipping = asyncio.ensure_future(subscription.skip(2))
            for _ in range(turns):
                await asyncio.sleep(0)
            await subscription.seek(EARLIEST, 0)
            await skipping
            assert subscription.backlog >= 8, f"{turns}: more is skipped than the next two"

    play_with_brokers(scenario, seeds=1)


def test_a_consumer_whose_unsubscribing_fails_is_told_to_come_again() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(TOPIC, "s")
        log = brokered.topic(TOPIC).log
        delete_cursor = log.delete_cursor

        async def fails_once(_name: str) -> None:
            log.delete_cursor = delete_cursor  # type: ignore[method-assign]
            raise MetadataUnavailable("away")

        log.delete_cursor = fails_once  # type: ignore[method-assign]
        await consumer.unsubscribe()
        assert log.cursor_names() == []

    play_with_brokers(scenario, seeds=1)


def test_a_reader_that_is_refused_leaves_no_subscription_behind() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        _ = await client.subscribe(TOPIC, "s")
        topic = brokered.topic(TOPIC)
        with pytest.raises(ConsumerBusy):
            await topic.subscribe(Subscribe(1, 1, TOPIC, "r", durable=False), Outlet(), "")
        await brokered.world.clock.sleep(1.0)
        assert list(topic.subscriptions) == ["s"]
        assert [cursor.name for cursor in topic.log.open_cursors()] == ["s"]

    play_with_brokers(scenario, seeds=1, max_consumers_per_topic=1)


def test_of_a_consumer_and_a_reader_that_come_at_once_with_one_name_only_one_is_served() -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await brokered.client().create_producer(TOPIC)
        topic = brokered.topic(TOPIC)
        for durable in (True, False):
            name = f"s{durable}"
            commands = [
                Subscribe(1, 1, TOPIC, name, type=SubscriptionType.SHARED, durable=each)
                for each in (durable, not durable)
            ]
            answers = await asyncio.gather(
                *[topic.subscribe(each, Outlet(), "") for each in commands], return_exceptions=True
            )
            # Whichever the loop runs first is served.
            (served,) = [
                command
                for command, each in zip(commands, answers, strict=True)
                if not isinstance(each, ConsumerBusy)
            ]
            assert topic.subscriptions[name].cursor.durable == served.durable

    play_with_brokers(scenario, seeds=1)


def test_a_seek_whose_consumer_is_gone_moves_nothing() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        _ = await client.subscribe(TOPIC, "keep")
        producer = await client.create_producer(TOPIC)
        for number in range(10):
            await producer.send(b"%d" % number)
        topic = brokered.topic(TOPIC)
        command = Subscribe(1, 1, TOPIC, "s")
        for turns in range(8):
            subscription, consumer = await topic.subscribe(command, Outlet(), "")
            topic.log._reader.close()
            seek = asyncio.ensure_future(subscription.seek(None, 1, by=consumer))
            for _ in range(turns):
                await asyncio.sleep(0)
            topic.remove_consumer(subscription, consumer)
            subscription, consumer = await topic.subscribe(command, Outlet(), "")
            await subscription.seek(LATEST, 0, by=consumer)
            _ = await asyncio.gather(seek, return_exceptions=True)
            assert subscription.backlog == 0, (
                f"{turns}: a connection that is gone has moved the subscription"
            )
            topic.remove_consumer(subscription, consumer)

    play_with_brokers(scenario, seeds=1)


def test_a_hand_over_begins_although_the_type_has_changed_since_the_one_before_it() -> None:
    async def scenario(brokered: Brokered) -> None:
        producer = await brokered.client().create_producer(TOPIC)
        topic = brokered.topic(TOPIC)

        async def join(number: int, kind: SubscriptionType) -> tuple[Outlet, Callable[[], None]]:
            outlet = Outlet()
            command = Subscribe(number, number, TOPIC, "s", type=kind, name=f"c{9 - number}")
            subscription, consumer = await topic.subscribe(command, outlet, "")
            subscription.flow(consumer, 10)
            return outlet, lambda: topic.remove_consumer(subscription, consumer)

        for kind, count in ((SubscriptionType.FAILOVER, 2), (SubscriptionType.SHARED, 1)):
            for _, leave in [await join(number, kind) for number in range(count)]:
                leave()
        _ = await join(0, SubscriptionType.FAILOVER)
        outlet, _ = await join(1, SubscriptionType.FAILOVER)
        await producer.send(b"x")
        await brokered.world.clock.sleep(5.0)
        assert len(outlet.got) == 1

    play_with_brokers(scenario, seeds=1)
