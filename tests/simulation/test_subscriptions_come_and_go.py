"""Subscriptions that are made, used and deleted by several at once."""

from __future__ import annotations

import asyncio

from pulsarish.broker.commands import Subscribe
from pulsarish.broker.topic import READER_RETURN_SECONDS
from pulsarish.model.position import EARLIEST
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.dispatching import Outlet

TOPIC = "persistent://public/default/t"


def test_a_subscription_that_is_deleted_while_several_open_it_is_served_with_its_cursor_or_not_at_all() -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await brokered.client().create_producer(TOPIC)
        topic = brokered.topic(TOPIC)
        for turns in range(10):
            name = f"s{turns}"
            opening = [asyncio.ensure_future(topic.create_subscription(name, EARLIEST)) for _ in range(20)]
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
            assert topic.subscriptions["r"] is subscription, "the wait after another seek has ended with that of the first"
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
            topic.log._forget_cached()
            skipping = asyncio.ensure_future(subscription.skip(2))
            for _ in range(turns):
                await asyncio.sleep(0)
            await subscription.seek(EARLIEST, 0)
            await skipping
            assert subscription.backlog >= 8, f"{turns}: more is skipped than the next two"

    play_with_brokers(scenario, seeds=1)
