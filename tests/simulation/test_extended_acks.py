"""Work that takes longer than a message's time, by consumers that say so."""

from __future__ import annotations

import pytest

from pulsarish.client.enums import ConsumerType
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/jobs"
TIME_SECONDS = 10


@pytest.mark.parametrize("at_the_broker", [True, False])
def test_only_what_is_not_extended_is_delivered_again(at_the_broker: bool) -> None:
    async def scenario(brokered: Brokered) -> None:
        client, clock = brokered.client(), brokered.world.clock
        own = 0 if at_the_broker else TIME_SECONDS * 1000
        consumer = await client.subscribe(
            TOPIC, "s", consumer_type=ConsumerType.Shared, unacked_messages_timeout_ms=own
        )
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        for data in (b"long", b"forgotten"):
            await producer.send(data)
        long, forgotten = await consumer.receive(), await consumer.receive()
        again: list[bytes] = []

        async def receive() -> None:
            again.append((await consumer.receive()).data())

        receiving = brokered.world.tasks.spawn(receive(), name="receive")
        for _ in range(3 * TIME_SECONDS):
            await clock.sleep(1.0)
            await consumer.ack_extend(long)
        assert again == [forgotten.data()]
        await consumer.acknowledge(long)
        receiving.cancel()

    play_with_brokers(scenario, unacked_redelivery_seconds=TIME_SECONDS if at_the_broker else 0)
