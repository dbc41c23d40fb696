"""What reads and acknowledges while a seek is waiting to become durable does not undo it."""

from __future__ import annotations

import asyncio

from pulsarish.broker.clients.commands import Acknowledge, InitialPosition, Subscribe
from pulsarish.model.position import EARLIEST
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.dispatching import Outlet

TOPIC = "persistent://public/default/t"


def test_reading_behind_the_last_message_of_a_view_does_not_undo_a_seek() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        for key, value in (("a", b"1"), ("b", b"1"), ("c", b"")):
            await producer.send(value, partition_key=key)
        topic = brokered.topic(TOPIC)
        topic.compaction.start()
        await brokered.until(lambda: not topic.compaction.running)
        command = Subscribe(
            1, 1, TOPIC, "s", initial_position=InitialPosition.EARLIEST, read_compacted=True
        )
        outlet = Outlet()
        subscription, consumer = await topic.subscribe(command, outlet, "")
        subscription.flow(consumer, 2)
        await brokered.until(lambda: len(outlet.got) == 2)
        subscription.acknowledge(
            consumer, Acknowledge(1, [delivery.position for delivery in outlet.got])
        )
        seek = asyncio.ensure_future(subscription.seek(EARLIEST, 0, by=consumer))
        for _ in range(10):
            if not consumer.seeks:
                await asyncio.sleep(0)
        assert consumer.seeks
        # Its client has dropped what it had, and asks for as much again.
        subscription.flow(consumer, 10)
        await seek
        assert subscription.backlog == 3, "what was sought counts as acknowledged"
        outlet.got.clear()
        await brokered.world.clock.sleep(1)
        assert outlet.entries == [0, 1]

    play_with_brokers(scenario)
