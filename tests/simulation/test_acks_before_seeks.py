"""An acknowledgement of a part of a batch, which asks the log how great the batch is, and a seek right behind it."""

from __future__ import annotations

import asyncio

from pulsarish.broker.commands import Acknowledge
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
        subscription.acknowledge(connected, Acknowledge(connected.consumer_id, [position], batch_indexes=[3]))
        await asyncio.ensure_future(subscription.seek(EARLIEST, 0, by=connected))
        await brokered.world.clock.sleep(2.0)
        assert subscription.cursor.ack_set(position) is None, "what was sought is not delivered whole"
        await consumer.close()

    play_with_brokers(scenario)
