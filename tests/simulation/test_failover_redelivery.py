"""Messages that the active consumer of a failover subscription has delivered again."""

from __future__ import annotations

from pulsarish.client.enums import ConsumerType
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/jobs"
COUNT = 40


def test_the_active_consumer_stays_the_active_one() -> None:
    async def scenario(brokered: Brokered) -> None:
        client, clock = brokered.client(), brokered.world.clock
        active, standby = [
            await client.subscribe(
                TOPIC,
                "s",
                consumer_type=ConsumerType.Failover,
                consumer_name=name,
                negative_ack_redelivery_delay_ms=100,
            )
            for name in ("a", "b")
        ]
        taken: list[bytes] = []

        async def take() -> None:
            taken.append((await standby.receive()).data())

        taking = brokered.world.tasks.spawn(take(), name="take")
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        for number in range(COUNT):
            _ = producer.send_soon(str(number).encode())
        due = 0
        while due < COUNT:
            message = await active.receive()
            number = int(message.data())
            assert number <= due
            if number == due and number % 10 == 5 and not message.redelivery_count():
                await active.negative_acknowledge(message)
                await clock.sleep(0.2)
            elif number == due:
                await active.acknowledge_cumulative(message)
                due += 1
        assert taken == []
        taking.cancel()

    play_with_brokers(scenario)
