"""A batch of which some messages are refused: only those are delivered again, and only those become
dead letters.
"""

from __future__ import annotations

import asyncio

from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.messages.consumer_policies import (
    ConsumerDeadLetterPolicy,
)
from pulsarish.model.errors import Timeout
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"
DEAD = "persistent://public/default/t-s-DLQ"


def test_the_refused_messages_alone_are_redelivered_and_dead_lettered() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        dead = await client.subscribe(DEAD, "look", initial_position=InitialPosition.Earliest)
        consumer = await client.subscribe(
            TOPIC,
            "s",
            consumer_type=ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=200,
            dead_letter_policy=ConsumerDeadLetterPolicy(2),
        )
        producer = await client.create_producer(TOPIC, batching_max_messages=10)
        await asyncio.gather(*(producer.send_soon(b"%d" % number) for number in range(10)))
        received: list[int] = []
        while True:
            try:
                message = await consumer.receive(timeout_millis=5_000)
            except Timeout:
                break
            number = int(message.data())
            received.append(number)
            if number in (3, 7):
                await consumer.negative_acknowledge(message)
            else:
                await consumer.acknowledge(message)
        assert sorted(received) == sorted([*range(10), 3, 7, 3, 7]), (
            "delivered once, and refused ones twice more"
        )
        buried = [int((await dead.receive(timeout_millis=5_000)).data()) for _ in range(2)]
        assert sorted(buried) == [3, 7]
        await brokered.until(lambda: brokered.subscription(TOPIC, "s").cursor.backlog() == 0)

    play_with_brokers(scenario)
