"""Consumers of patterns, while topics come and go and brokers fail."""

from __future__ import annotations

import re

import pytest

from pulsarish.client.enums import ConsumerType, RegexSubscriptionMode
from pulsarish.client.messages.topic_filter import Wildcard
from pulsarish.model.errors import AlreadyClosed, ConsumerBusy, Timeout
from pulsarish.model.topic_name import TopicName
from pulsarish.sim.workloads.found_topics import run_found
from tests.support.brokered import Brokered, play_with_brokers

ORDERS = re.compile("persistent://public/default/orders-.*")


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_missed_of_topics_that_come_while_brokers_fail(seed: int) -> None:
    counts = run_found(seed)
    assert counts.delivered > 10


def test_old_topics_begin_at_the_initial_position_and_new_ones_at_their_first_message() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        old = await client.create_producer("orders-1")
        await old.send(b"before")
        consumer = await client.subscribe(ORDERS, "s")
        new = await client.create_producer("orders-2")
        await new.send(b"new")
        assert (await consumer.receive(5_000)).data() == b"new"
        await old.send(b"after")
        assert (await consumer.receive(5_000)).data() == b"after"
        assert consumer.topic() == ORDERS.pattern

    play_with_brokers(scenario, seeds=1)


def test_each_partition_is_read_also_of_what_came_later() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(ORDERS, "s", pattern_auto_discovery_period=5)
        await brokered.administer("PUT", "persistent/public/default/orders-p/partitions", 2)
        producer = await client.create_producer("orders-p", batching_enabled=False)
        for number in range(4):
            await producer.send(b"%d" % number)
        await brokered.administer("POST", "persistent/public/default/orders-p/partitions", 3)
        last = await client.create_producer("orders-p-partition-2")
        await last.send(b"4")
        found = {(await consumer.receive(10_000)).data() for _ in range(5)}
        assert found == {b"%d" % number for number in range(5)}

    play_with_brokers(scenario, seeds=1)


def test_topics_that_are_not_kept_are_found_in_each_discovery_period() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(
            Wildcard("events.*"),
            "s",
            pattern_auto_discovery_period=2,
            regex_subscription_mode=RegexSubscriptionMode.AllTopics,
        )
        producer = await client.create_producer("non-persistent://public/default/events.now")
        kept = await client.create_producer("events.kept")
        await kept.send(b"kept")
        assert (await consumer.receive(5_000)).data() == b"kept"
        await brokered.world.clock.sleep(3.0)
        await producer.send(b"now")
        assert (await consumer.receive(5_000)).data() == b"now"

    play_with_brokers(scenario, seeds=1)


def test_messages_of_a_deleted_topic_need_no_acknowledgement() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(
            ORDERS, "s", consumer_type=ConsumerType.Shared, ack_receipt_enabled=True
        )
        producers = {name: await client.create_producer(name) for name in ("orders-1", "orders-2")}
        for producer in producers.values():
            await producer.send(b"m")
        messages = [await consumer.receive(5_000) for _ in producers]
        gone = TopicName.parse("orders-1")
        await producers["orders-1"].close()
        await brokered.administer(
            "DELETE", "persistent/public/default/orders-1", query={"force": "true"}, owner=gone
        )
        await brokered.until(lambda: gone.full not in consumer._consuming._by_topic)
        await consumer.negative_acknowledge(
            next(each for each in messages if "-1" in each.topic_name())
        )
        await consumer.acknowledge(messages)
        await consumer.acknowledge(messages[0])
        stats = await brokered.stats("orders-2")
        assert stats["subscriptions"]["s"]["msgBacklog"] == 0
        await consumer.unsubscribe()
        assert not (await brokered.stats("orders-2"))["subscriptions"]
        with pytest.raises(AlreadyClosed, match="orders-"):
            await consumer.receive(1_000)

    play_with_brokers(scenario, seeds=1)


def test_without_a_discovery_period_the_topics_stay_those_of_the_first_list() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        old = await client.create_producer("orders-1")
        consumer = await client.subscribe(ORDERS, "s", pattern_auto_discovery_period=0)
        new = await client.create_producer("orders-2")
        await new.send(b"new")
        with pytest.raises(Timeout):
            await consumer.receive(5_000)
        await old.send(b"old")
        assert (await consumer.receive(5_000)).data() == b"old"

    play_with_brokers(scenario, seeds=1)


def test_a_refusal_of_one_topic_is_that_of_the_consumer() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        for number in range(3):
            _ = await client.create_producer(f"orders-{number}")
        _ = await client.subscribe("orders-1", "s")
        with pytest.raises(ConsumerBusy):
            _ = await client.subscribe(ORDERS, "s")
        await brokered.world.clock.sleep(1.0)
        for name in ("orders-0", "orders-2"):
            found = brokered.topic(name).subscriptions.get("s")
            assert found is None or not found.consumers

    play_with_brokers(scenario, seeds=1)
