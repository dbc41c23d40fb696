"""Priorities of messages, over real brokers, bookies and clients in virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.model.errors import NotAllowedError, Timeout
from pulsarish.sim.workloads.priorities import run_priorities
from pulsarish.wire.entry import PRIORITY_PROPERTY
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/jobs"
PATH = "persistent/public/default/jobs"
ON = {"message_priority_window": 100}
SHARED: Any = {
    "consumer_type": ConsumerType.Shared,
    "initial_position": InitialPosition.Earliest,
    "receiver_queue_size": 1,
}


async def send(producer: AsyncProducer, *priorities: int) -> None:
    """Send a message for each priority, with that as its value."""
    for priority in priorities:
        await producer.send(str(priority).encode(), priority=priority)


async def take(consumer: AsyncConsumer, milliseconds: int = 5_000) -> str:
    """Return the values that come, acknowledged, until none comes for this time."""
    taken = ""
    while True:
        try:
            message = await consumer.receive(timeout_millis=milliseconds)
        except Timeout:
            return taken
        taken += message.data().decode()
        await consumer.acknowledge(message)


def same_calendar(env: Brokered) -> None:
    """Set the brokers' calendars to the client's."""
    for name in env.cluster.brokers:
        clock = env.node(name).clock
        clock.wall_offset_ms += env.world.clock.wall_ms() - clock.wall_ms()


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_comes_twice_and_the_order_is_kept(seed: int) -> None:
    run_priorities(seed)


def test_a_value_that_is_no_priority_is_refused_by_name_while_the_policy_is_on() -> None:
    async def scenario(env: Brokered) -> None:
        producer = await env.client().create_producer(TOPIC)
        odd = {PRIORITY_PROPERTY: "high"}
        await producer.send(b"a", properties=odd)
        await env.administer("POST", f"{PATH}/messagePriorityWindow", 100)
        await env.until(lambda: env.topic(TOPIC).topic_limits.has_priorities)
        with pytest.raises(
            NotAllowedError, match=r"pulsarish-priority.*'high'.*0 .*to 9 .*leave it out"
        ):
            await producer.send(b"b", properties=odd)
        with pytest.raises(NotAllowedError, match=r"pulsarish-priority.*'11'.*one digit"):
            await producer.send(b"c", properties={PRIORITY_PROPERTY: "11"})
        await producer.send(b"9", properties={PRIORITY_PROPERTY: "9"})
        await producer.send(b"3", priority=3)
        assert await take(await env.client().subscribe(TOPIC, "s", **SHARED)) == "9a3"

    play_with_brokers(scenario, seeds=1)


@pytest.mark.parametrize("kind", ConsumerType.__members__.values())
def test_only_shared_subscriptions_deliver_by_priority(kind: ConsumerType) -> None:
    async def scenario(env: Brokered) -> None:
        client = env.client()
        producer = await client.create_producer(TOPIC)
        await send(producer, 1, 9, 4, 0, 9)
        consumer = await client.subscribe(TOPIC, "s", **(SHARED | {"consumer_type": kind}))
        assert await take(consumer) == ("99410" if kind is ConsumerType.Shared else "19409")
        assert ("messagePriorities" in (await env.stats(TOPIC))["subscriptions"]["s"]) == (
            kind is ConsumerType.Shared
        )

    play_with_brokers(scenario, seeds=1, **ON)


def test_a_policy_of_the_namespace_and_what_statistics_say() -> None:
    async def scenario(env: Brokered) -> None:
        client = env.client()
        producer = await client.create_producer(TOPIC)
        consumer = await client.subscribe(TOPIC, "s", **SHARED)
        await env.administer("POST", "namespaces/public/default/messagePriorityWindow", 50)
        await env.until(lambda: env.topic(TOPIC).topic_limits.has_priorities)
        await send(producer, 7, 7, 2, 9, 2)
        await consumer.acknowledge(await consumer.receive())
        await env.until(lambda: env.subscription(TOPIC, "s").dispatcher.waiting_count == 3)
        found = (await env.stats(TOPIC))["subscriptions"]["s"]["messagePriorities"]
        assert found == {"window": 50, "entries": {"7": 1, "2": 2}, "unsorted": 0}
        await env.administer("DELETE", "namespaces/public/default/messagePriorityWindow")
        await env.until(lambda: not env.topic(TOPIC).topic_limits.has_priorities)
        assert "messagePriorities" not in (await env.stats(TOPIC))["subscriptions"]["s"]
        assert await take(consumer) == "9722", "9 had been sent to the client"

    play_with_brokers(scenario, seeds=1)


def test_ttl_takes_what_waits_for_too_long() -> None:
    async def scenario(env: Brokered) -> None:
        same_calendar(env)
        client = env.client()
        producer = await client.create_producer(TOPIC)
        await send(producer, 0, 0, 5, 5)
        consumer = await client.subscribe(TOPIC, "s", **SHARED)
        held = await consumer.receive()
        await env.world.clock.sleep(10.0)
        await env.until(lambda: env.subscription(TOPIC, "s").backlog == 0)
        await send(producer, 1)
        await consumer.acknowledge(held)
        # One more had been sent to the client.
        assert await take(consumer) in {"51", "1"}
        assert env.subscription(TOPIC, "s").dispatcher.waiting_count == 0

    play_with_brokers(
        scenario,
        seeds=1,
        ttl_duration_default_in_seconds=5,
        managed_ledger_maintenance_interval_seconds=1.0,
        **ON,
    )


def test_a_consumer_that_hangs_loses_its_messages_to_another_by_priority() -> None:
    async def scenario(env: Brokered) -> None:
        client = env.client()
        producer = await client.create_producer(TOPIC)
        await send(producer, 3, 8)
        await client.subscribe(TOPIC, "s", **(SHARED | {"receiver_queue_size": 2}))
        await env.until(lambda: env.subscription(TOPIC, "s").unacked == 2)
        await send(producer, 0, 5)
        other = await env.client().subscribe(TOPIC, "s", **SHARED)
        assert await take(other, 12_000) == "5083"

    play_with_brokers(scenario, seeds=1, unacked_redelivery_seconds=8, **ON)


def test_a_dispatch_rate_counts_each_message_once() -> None:
    async def scenario(env: Brokered) -> None:
        client, clock = env.client(), env.world.clock
        producer = await client.create_producer(TOPIC)
        await send(producer, *[0, 9] * 20)
        began = clock.monotonic()
        consumer = await client.subscribe(TOPIC, "s", **(SHARED | {"receiver_queue_size": 100}))
        assert await take(consumer) == "9" * 20 + "0" * 20
        took_seconds = clock.monotonic() - 5.0 - began
        assert 40 / 10 - 1.5 < took_seconds < 40 / 10 + 1.5

    play_with_brokers(scenario, seeds=1, dispatch_throttling_rate_per_subscription_in_msg=10, **ON)


def test_a_filter_judges_each_message_once() -> None:
    async def scenario(env: Brokered) -> None:
        client = env.client()
        producer = await client.create_producer(TOPIC)
        for number in range(300):
            await producer.send(
                b"x", properties={"n": "odd" if number % 2 else "even"}, priority=number % 10
            )
        consumer = await client.subscribe(
            TOPIC,
            "s",
            subscription_properties={"pulsarish.filter": "n = 'odd'"},
            **SHARED,
        )
        assert len(await take(consumer)) == 150
        counts = env.subscription(TOPIC, "s").filter_counts
        assert (counts.accepted, counts.rejected) == (150, 150)

    play_with_brokers(scenario, seeds=1, **(ON | {"message_priority_window": 1_000}))


def test_chunks_of_a_message_stay_together() -> None:
    async def scenario(env: Brokered) -> None:
        client = env.client()
        producer = await client.create_producer(
            TOPIC, chunking_enabled=True, batching_enabled=False
        )
        contents = [bytes([48 + number]) * 9_000 for number in range(6)]
        for number, content in enumerate(contents):
            await producer.send(content, priority=number)
            await producer.send(b"", priority=number)
        consumers = [await env.client().subscribe(TOPIC, "s", **SHARED) for _ in range(2)]
        got: list[bytes] = []
        while len(got) < 12:
            for consumer in consumers:
                try:
                    message = await consumer.receive(timeout_millis=200)
                except Timeout:
                    continue
                got.append(message.data())
                await consumer.acknowledge(message)
        assert sorted(got) == sorted([*contents, *[b""] * 6])

    play_with_brokers(scenario, seeds=2, max_message_size_bytes=4_096, **ON)


@pytest.mark.parametrize("crash", [True, False])
def test_the_next_owner_goes_on_by_priority(crash: bool) -> None:
    async def scenario(env: Brokered) -> None:
        same_calendar(env)
        client = env.client()
        producer = await client.create_producer(TOPIC)
        await producer.send(b"d", deliver_after=timedelta(seconds=25), priority=6)
        await send(producer, 1, 9, 4)
        consumer = await client.subscribe(TOPIC, "s", **(SHARED | {"ack_receipt_enabled": True}))
        message = await consumer.receive()
        assert message.data() == b"9"
        await consumer.acknowledge(message)
        if crash:
            env.node("broker0").crash()
        else:
            await env.cluster.stop_broker("broker0")
            env.node("broker0").crash()
        await send(producer, 8, 2)
        taken = await take(consumer, 40_000)
        assert taken.replace("d", "") in {"4821", "8421"}, "one had been sent to the client"
        assert taken.count("d") == 1

    play_with_brokers(scenario, seeds=1, brokers=2, **ON)


def test_the_event_loop_goes_on_during_a_look_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(env: Brokered) -> None:
        client, world = env.client(), env.world
        producer = await client.create_producer(TOPIC)
        await asyncio.gather(*[producer.send_soon(b"x", priority=5) for _ in range(80)])
        await (await client.subscribe(TOPIC, "s", **SHARED)).close()
        source = env.subscription(TOPIC, "s").source
        read, reads, turns = source.read, 0, 0
        seen: set[int] = set()

        async def look() -> None:
            nonlocal turns
            while turns < 60:
                turns += 1
                seen.add(reads)
                await world.clock.sleep(0)

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            if reads == 1:
                world.tasks.spawn(look(), name="look")
            return await read(*args, **options)

        monkeypatch.setattr(source, "read", counted)
        await client.subscribe(TOPIC, "s", **SHARED)
        await env.until(lambda: turns == 60)
        assert len(seen) > 10, "other tasks had a turn between the reads"

    play_with_brokers(scenario, seeds=1, dispatcher_max_read_batch_size=4, **ON)
