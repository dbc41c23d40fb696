"""When a message goes: TTL, delays and expiry of its own, over real brokers, bookies and clients in
virtual time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.model.errors import NotAllowedError, Timeout
from pulsarish.sim.workloads.message_life import run_lives
from pulsarish.wire.entry import EXPIRES_PROPERTY
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/life"
UPKEEP = {"managed_ledger_maintenance_interval_seconds": 1.0}
NO_UPKEEP = {"managed_ledger_maintenance_interval_seconds": 3_600.0}


async def take(consumer: AsyncConsumer, milliseconds: int = 15_000) -> list[str]:
    """Return the messages that come, acknowledged, until none comes for this time."""
    taken: list[str] = []
    while True:
        try:
            message = await consumer.receive(timeout_millis=milliseconds)
        except Timeout:
            return taken
        taken.append(message.data().decode())
        await consumer.acknowledge(message)


def same_calendar(env: Brokered) -> None:
    """Set the brokers' calendars to the client's."""
    for name in env.cluster.brokers:
        clock = env.node(name).clock
        clock.wall_offset_ms += env.world.clock.wall_ms() - clock.wall_ms()


def test_ttl_of_a_delayed_message_counts_from_when_it_is_due() -> None:
    async def scenario(env: Brokered) -> None:
        same_calendar(env)
        client = env.client()
        consumer = await client.subscribe(TOPIC, "s", consumer_type=ConsumerType.Shared)
        producer = await client.create_producer(TOPIC)
        await producer.send(b"later", deliver_after=timedelta(seconds=15))
        await producer.send(b"now")
        assert (await consumer.receive()).data() == b"now"
        late = await consumer.receive(timeout_millis=30_000)
        assert late.data() == b"later"
        subscription = env.subscription(TOPIC, "s")
        assert subscription.backlog == 1, "the other one is older than the TTL"
        await env.until(lambda: subscription.backlog == 0, seconds=10)

    play_with_brokers(scenario, seeds=1, ttl_duration_default_in_seconds=2, **UPKEEP)


@pytest.mark.parametrize("kind", ConsumerType.__members__.values())
def test_an_expired_message_is_not_delivered(kind: ConsumerType) -> None:
    """Neither one that had expired when it was read, nor one that waited for permits, nor one that
    a consumer gave back.
    """

    async def scenario(env: Brokered) -> None:
        same_calendar(env)
        client = env.client()
        producer = await client.create_producer(TOPIC)
        options: Any = {"consumer_type": kind, "initial_position": InitialPosition.Earliest}
        held = await client.subscribe(
            TOPIC, "held", negative_ack_redelivery_delay_ms=20_000, **options
        )
        full = await client.subscribe(TOPIC, "full", receiver_queue_size=1, **options)
        closed = await client.subscribe(TOPIC, "closed", **options)
        await closed.close()
        for number in range(6):
            expires_after = timedelta(seconds=10) if number % 2 else None
            await producer.send(str(number).encode(), expires_after=expires_after)
        for number in range(6):
            message = await held.receive(timeout_millis=5_000)
            assert message.data() == str(number).encode()
            await held.negative_acknowledge(message)
        await env.world.clock.sleep(11.0)
        assert await take(full) == ["0", "2", "4"]
        again = await client.subscribe(TOPIC, "closed", **options)
        assert await take(again) == ["0", "2", "4"]
        assert await take(held) == ["0", "2", "4"]
        for name in ("held", "full", "closed"):
            assert env.subscription(TOPIC, name).backlog == 0, name

    play_with_brokers(scenario, seeds=1, **NO_UPKEEP)


@pytest.mark.parametrize("seed", range(2))
def test_messages_go_when_the_table_says(seed: int) -> None:
    run_lives(seed)


def test_a_value_that_is_no_time_is_refused_by_name() -> None:
    async def scenario(env: Brokered) -> None:
        producer = await env.client().create_producer(TOPIC)
        with pytest.raises(
            NotAllowedError, match=r"pulsarish-expires-at-ms.*'soon'.*since the epoch"
        ):
            await producer.send(b"it", properties={EXPIRES_PROPERTY: "soon"})
        await producer.send(b"the next one")

    play_with_brokers(scenario, seeds=1)


@pytest.mark.parametrize("crash", [True, False])
def test_the_next_owner_knows_what_expires_and_what_is_delayed(crash: bool) -> None:
    """After a crash no owner has noted which times the last ledger names."""

    async def scenario(env: Brokered) -> None:
        same_calendar(env)
        client = env.client()
        consumer = await client.subscribe(TOPIC, "s", consumer_type=ConsumerType.Shared)
        await consumer.close()
        producer = await client.create_producer(TOPIC)
        await producer.send(b"first")
        await producer.send(b"brief", expires_after=timedelta(seconds=10))
        await producer.send(b"later", deliver_after=timedelta(seconds=40))
        await producer.send(b"last")
        await producer.close()
        if crash:
            env.node("broker0").crash()
        else:
            await env.cluster.stop_broker("broker0")
            env.node("broker0").crash()
        await env.world.clock.sleep(20.0)
        await env.cluster.start_broker("broker0")
        same_calendar(env)
        await client.create_producer(TOPIC)
        first = env.topic(TOPIC).log.ledgers[0]
        assert first.own_times_ms == -1 if crash else first.own_times_ms > 0
        subscription = env.subscription(TOPIC, "s")
        await env.until(lambda: subscription.backlog == 3, seconds=10)
        assert env.topic(TOPIC).log.ledgers[0].own_times_ms > 0
        await env.until(lambda: subscription.backlog == 1, seconds=30)
        consumer = await client.subscribe(TOPIC, "s", consumer_type=ConsumerType.Shared)
        assert await take(consumer, 30_000) == ["later"]

    play_with_brokers(scenario, seeds=1, ttl_duration_default_in_seconds=30, **UPKEEP)
