"""Acknowledgements of what a seek delivers again: one that asks the log something while the seek
comes, one that comes during the seek.
"""

from __future__ import annotations

import asyncio

from pulsarish.broker.clients.commands import Acknowledge
from pulsarish.model.position import EARLIEST
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"


def test_what_was_acknowledged_before_a_seek_comes_again_after_it() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        _ = await client.subscribe(TOPIC, "keep")
        first = await client.subscribe(TOPIC, "s")
        producer = await client.create_producer(TOPIC, batching_max_messages=10)
        _ = await asyncio.gather(*[producer.send_soon(b"%d" % number) for number in range(10)])
        await first.close()
        await brokered.administer("PUT", "persistent/public/default/t/unload")
        consumer = await client.subscribe(TOPIC, "s")
        subscription = brokered.subscription(TOPIC, "s")
        position = (await subscription.unacknowledged(1))[0].position
        connected = subscription.consumers[0]
        # As a session does with what comes on its stream.
        subscription.acknowledge(
            connected, Acknowledge(connected.consumer_id, [position], batch_indexes=[3])
        )
        await asyncio.ensure_future(subscription.seek(EARLIEST, 0, by=connected))
        await brokered.world.clock.sleep(2.0)
        assert subscription.cursor.ack_set(position) is None, (
            "what was sought is not delivered whole"
        )
        await consumer.close()

    play_with_brokers(scenario)


def test_what_is_acknowledged_during_a_seek_comes_again_after_it() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.create_producer(TOPIC)
        _ = await producer.send(b"0")
        subscription = brokered.subscription(TOPIC, "s")
        position = (await subscription.unacknowledged(1))[0].position
        connected = subscription.consumers[0]
        seek = asyncio.ensure_future(subscription.seek(EARLIEST, 0, by=connected))
        for _ in range(20):
            await asyncio.sleep(0)
        assert connected.seeks
        assert not seek.done()
        subscription.acknowledge(connected, Acknowledge(connected.consumer_id, [position]))
        await seek
        assert not subscription.cursor.is_acknowledged(position), "it is not delivered again"
        subscription.acknowledge(connected, Acknowledge(connected.consumer_id, [position]))
        assert subscription.cursor.is_acknowledged(position)
        await consumer.close()

    play_with_brokers(scenario)
