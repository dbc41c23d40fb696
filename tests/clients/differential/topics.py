"""Several topics, patterns and partitions: routing, subscribing, receiving."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

from tests.clients.differential.helpers import consume, data_of, is_empty, publish, take
from tests.clients.differential.outcomes import caught


def a_list(pulsar: ModuleType, client: Any, topic: str) -> object:
    names = [f"{topic}-{letter}" for letter in "ab"]
    consumer = consume(pulsar, client, names)
    for name in names:
        publish(client, name, 2)
    messages = take(consumer, 4, ack=True)
    return (
        sorted((message.topic_name(), message.data()) for message in messages),
        is_empty(pulsar, consumer),
        consumer.subscription_name(),
        consumer.is_connected(),
    )


def a_list_of_one(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    return data_of(take(consume(pulsar, client, [topic]), 2, ack=True))


def a_list_by_short_names(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    (message,) = take(consume(pulsar, client, [topic.rpartition("/")[2]]), 1)
    return message.topic_name()


def a_list_with_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(f"{topic}-a", partitions=2)
    names = [f"{topic}-a", f"{topic}-b"]
    consumer = consume(pulsar, client, names)
    for name in names:
        publish(client, name, 4)
    return len({(m.topic_name(), m.data()) for m in take(consumer, 8)})


def a_list_is_acknowledged(pulsar: ModuleType, client: Any, topic: str) -> object:
    names = [f"{topic}-{letter}" for letter in "ab"]
    for name in names:
        publish(client, name, 2)
    shared = pulsar.ConsumerType.Shared
    consumer = consume(pulsar, client, names, consumer_type=shared)
    take(consumer, 4, ack=True)
    consumer.close()
    return is_empty(pulsar, consume(pulsar, client, names, consumer_type=shared))


def a_list_refused(pulsar: ModuleType, client: Any, topic: str) -> object:
    names = [f"{topic}-{letter}" for letter in "ab"]
    for name in names:
        publish(client, name, 1)
    shared = pulsar.ConsumerType.Shared
    consumer = consume(
        pulsar, client, names, consumer_type=shared, negative_ack_redelivery_delay_ms=200
    )
    for message in take(consumer, 2):
        consumer.negative_acknowledge(message)
    return sorted(message.topic_name() for message in take(consumer, 2))


def a_list_that_is_taken(pulsar: ModuleType, client: Any, topic: str) -> object:
    first = client.subscribe(f"{topic}-b", "s")
    names = [f"{topic}-{letter}" for letter in "ab"]
    return first.is_connected(), caught(pulsar, lambda: client.subscribe(names, "s"))


def a_list_unsubscribed(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    names = [f"{topic}-{letter}" for letter in "ab"]
    consumer = client.subscribe(names, "s")
    consumer.unsubscribe()
    return [admin.subscriptions.list(name) for name in names]


def a_pattern(pulsar: ModuleType, client: Any, topic: str) -> object:
    for letter in "ab":
        publish(client, f"{topic}-{letter}", 2)
    consumer = consume(pulsar, client, re.compile(f"{topic}-.*"))
    messages = take(consumer, 4, ack=True)
    return (
        sorted((message.topic_name(), message.data()) for message in messages),
        is_empty(pulsar, consumer),
    )


def a_pattern_without_topics(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(re.compile(f"{topic}-.*"), "s")
    return is_empty(pulsar, consumer), consumer.is_connected(), consumer.subscription_name()


def a_pattern_of_a_whole_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    for name in (topic, f"{topic}-longer"):
        publish(client, name, 1)
    consumer = consume(pulsar, client, re.compile(topic))
    return [message.topic_name() for message in take(consumer, 1)], is_empty(pulsar, consumer)


def a_pattern_closed(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, f"{topic}-a", 1)
    consumer = consume(pulsar, client, re.compile(f"{topic}-.*"))
    consumer.close()
    return caught(pulsar, lambda: consumer.receive(100))


def _partitions(messages: list[Any]) -> str:
    """Return the partitions of messages, in the order of their keys."""
    messages.sort(key=lambda message: message.partition_key())
    return " ".join(str(message.message_id().partition()) for message in messages)


def keys_choose_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=5)
    producer = client.create_producer(topic)
    for number in range(30):
        producer.send(b"%d" % number, partition_key=f"key-{number}")
    # The same key must go to the same partition, whichever client publishes.
    return _partitions(take(consume(pulsar, client, topic), 30))


def keys_that_are_not_ascii_choose_partitions(
    pulsar: ModuleType, client: Any, topic: str, admin: Any
) -> object:
    admin.topics.create(topic, partitions=7)
    producer = client.create_producer(topic)
    for key in ("ä", "schlüssel", "☃", "日本語", "a" * 500):
        producer.send(b"x", partition_key=key)
    return _partitions(take(consume(pulsar, client, topic), 5))


def ordering_keys_choose_partitions(
    pulsar: ModuleType, client: Any, topic: str, admin: Any
) -> object:
    admin.topics.create(topic, partitions=5)
    producer = client.create_producer(topic)
    for number in range(10):
        producer.send(b"%d" % number, partition_key=f"k{number}", ordering_key="same")
    return _partitions(take(consume(pulsar, client, topic), 10))


def one_after_the_other(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=3)
    ids = publish(client, topic, 6)
    partitions = [each.partition() for each in ids]
    return sorted(partitions), partitions[:3] == partitions[3:]


def single_partition(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=3)
    mode = pulsar.PartitionsRoutingMode.UseSinglePartition
    ids = publish(client, topic, 5, message_routing_mode=mode)
    return len({each.partition() for each in ids})


def single_partition_with_keys(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=5)
    mode = pulsar.PartitionsRoutingMode.UseSinglePartition
    producer = client.create_producer(topic, message_routing_mode=mode)
    ids = [producer.send(b"x", partition_key=f"key-{n}") for n in range(10)]
    return " ".join(str(each.partition()) for each in ids)


def own_router(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=4)
    seen: list[Any] = []

    def router(message: Any, count: int) -> int:
        seen.append((message.data(), message.properties(), message.partition_key(), count))
        return int(message.data()) % count

    producer = client.create_producer(topic, message_router=router)
    ids = [producer.send(b"%d" % n, {"n": str(n)}, f"k{n}") for n in range(6)]
    return [each.partition() for each in ids], seen


def sequence_ids_on_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    producer = client.create_producer(topic)
    for _ in range(4):
        producer.send(b"x")
    return producer.last_sequence_id()


def producer_of_a_partitioned_topic(
    pulsar: ModuleType, client: Any, topic: str, admin: Any
) -> object:
    admin.topics.create(topic, partitions=2)
    producer = client.create_producer(topic, producer_name="p")
    names = (producer.topic(), producer.producer_name(), producer.is_connected())
    producer.close()
    return names, producer.is_connected(), caught(pulsar, lambda: producer.send(b"x"))
