"""Delayed messages through the client, over whole brokers and bookies in virtual time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.model.errors import NotAllowedError, Timeout
from pulsarish.model.policies import DELAYED_DELIVERY
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"
EARLIEST = InitialPosition.Earliest


async def take(consumer: AsyncConsumer, milliseconds: int) -> list[str]:
    """Return the messages that come, until none comes for this time."""
    taken: list[str] = []
    while True:
        try:
            message = await consumer.receive(timeout_millis=milliseconds)
        except Timeout:
            return taken
        taken.append(message.data().decode())
        await consumer.acknowledge(message)


def broker_ms(brokered: Brokered, name: str = "broker0") -> int:
    """Return the wall clock that decides."""
    world = brokered.node(name).world
    assert world is not None
    return world.clock.wall_ms()


@pytest.mark.parametrize("kind", [ConsumerType.Shared, ConsumerType.KeyShared])
def test_messages_come_when_they_are_due_and_not_before(kind: ConsumerType) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(TOPIC, "s", consumer_type=kind, initial_position=EARLIEST)
        ordered = await client.subscribe(TOPIC, "ordered", initial_position=EARLIEST)
        producer = await client.create_producer(TOPIC, batching_enabled=True)
        now = broker_ms(brokered)
        late = now // 60_000 * 60_000 + 120_001  # just after a tick, so that rounding delays most
        dues = {
            "soon": late - 57_000,
            "late": late,
            "past": now - 5_000,
            "later": late - 30_000,
        }
        for name, due in dues.items():
            _ = producer.send_soon(name.encode(), deliver_at=due, partition_key=name)
        _ = producer.send_soon(b"now")
        await producer.flush()
        assert set(await take(consumer, 500)) == {"past", "now"}
        assert await take(ordered, 500) == ["soon", "late", "past", "later", "now"], (
            "exclusive subscriptions heed no time"
        )
        stats = (await brokered.stats(TOPIC))["subscriptions"]["s"]
        assert (stats["msgDelayed"], stats["waiting"]["reason"]) == (3, "delayed")
        for name in ("soon", "later", "late"):
            message = await consumer.receive()
            assert message.data().decode() == name
            waited = broker_ms(brokered) - dues[name]
            assert 0 <= waited <= 600, "with a slow network and client, less than a second"
            assert message.redelivery_count() == 0
            await consumer.acknowledge(message)
        assert (await brokered.stats(TOPIC))["subscriptions"]["s"]["msgDelayed"] == 0

    play_with_brokers(scenario)


def test_a_delay_may_be_given_and_outlasts_the_owner() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(
            TOPIC,
            "s",
            consumer_type=ConsumerType.Shared,
            initial_position=EARLIEST,
            ack_receipt_enabled=True,
        )
        producer = await client.create_producer(TOPIC)
        # Wall clocks differ by up to 1,001 s in simulation; the owner's counts.
        for number in range(5):
            await producer.send(f"late{number}".encode(), deliver_after=timedelta(minutes=20))
            await producer.send(f"now{number}".encode())
        assert await take(consumer, 500) == [f"now{number}" for number in range(5)]
        owner = next(
            name
            for name, broker in brokered.cluster.brokers.items()
            if TOPIC in broker._topics.loaded
        )
        brokered.node(owner).crash()
        await producer.send(b"more")
        assert await take(consumer, 5_000) == ["more"], (
            "what was acknowledged individually does not come again, what is delayed not yet"
        )
        await brokered.world.clock.sleep(1_200 + 1_001)
        assert sorted(await take(consumer, 500)) == [f"late{number}" for number in range(5)]

    play_with_brokers(scenario, brokers=2, max_virtual_seconds=20_000)


def test_policies_switch_it_off_at_once_and_limit_how_far_ahead() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(
            TOPIC, "s", consumer_type=ConsumerType.Shared, initial_position=EARLIEST
        )
        producer = await client.create_producer(TOPIC)
        await producer.send(b"1", deliver_at=broker_ms(brokered) + 500_000)
        assert await take(consumer, 500) == []
        policy = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 60_000}
        await brokered.administer("POST", "namespaces/public/default/delayedDelivery", policy)
        assert (
            await brokered.administer("GET", "namespaces/public/default/delayedDelivery") == policy
        )
        await brokered.until(
            lambda: (
                brokered.topic(TOPIC).topic_limits.policies[DELAYED_DELIVERY].max_delay_ms == 60_000
            )
        )
        with pytest.raises(NotAllowedError, match="more than 60000 ms from now"):
            await producer.send(b"2", deliver_at=broker_ms(brokered) + 500_000)
        await producer.send(b"3", deliver_at=broker_ms(brokered) + 50_000)
        assert await take(consumer, 500) == []
        await brokered.administer(
            "POST", "namespaces/public/default/delayedDelivery", {"active": False}
        )
        assert await take(consumer, 2_000) == ["1", "3"]

    play_with_brokers(scenario)


def test_too_many_are_visible_and_stop_reading() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(
            TOPIC, "s", consumer_type=ConsumerType.Shared, initial_position=EARLIEST
        )
        producer = await client.create_producer(TOPIC)
        due = broker_ms(brokered) + 4_000  # too soon to be stored
        for number in range(8):
            await producer.send(str(number).encode(), deliver_at=due)
        await producer.send(b"now")
        assert await take(consumer, 500) == []
        stats = (await brokered.stats(TOPIC))["subscriptions"]["s"]
        assert (stats["msgDelayed"], stats["waiting"]["reason"]) == (5, "too_many_delayed")
        assert sorted(await take(consumer, 30_000)) == [
            *(str(number) for number in range(8)),
            "now",
        ]

    play_with_brokers(
        scenario, delayed_delivery_max_entries_per_subscription=5, dispatcher_max_read_batch_size=5
    )
