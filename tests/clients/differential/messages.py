"""Messages: contents, properties, keys, times, and what each accessor returns."""

from __future__ import annotations

import time
from datetime import timedelta
from types import ModuleType
from typing import Any

from tests.clients.differential.helpers import batch, consume, data_of, is_empty, publish, take
from tests.clients.differential.outcomes import caught


def _sent(
    pulsar: ModuleType, client: Any, topic: str, content: bytes = b"x", **options: Any
) -> Any:
    client.create_producer(topic).send(content, **options)
    return take(consume(pulsar, client, topic), 1)[0]


def defaults(pulsar: ModuleType, client: Any, topic: str) -> object:
    message = _sent(pulsar, client, topic)
    return {
        "data": message.data(),
        "value": message.value(),
        "properties": message.properties(),
        "partition_key": message.partition_key(),
        "ordering_key": message.ordering_key(),
        "event_timestamp": message.event_timestamp(),
        "topic_name": message.topic_name(),
        "redelivery_count": message.redelivery_count(),
        "schema_version": message.schema_version(),
    }


def properties_both_ways(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _sent(
        pulsar, client, topic, properties={"b": "2", "a": "1", "": "", "ü": "ß"}
    ).properties()


def properties_are_a_copy(pulsar: ModuleType, client: Any, topic: str) -> object:
    message = _sent(pulsar, client, topic, properties={"a": "1"})
    message.properties()["b"] = "2"
    return message.properties(), type(message.properties()).__name__


def many_properties(pulsar: ModuleType, client: Any, topic: str) -> object:
    return len(
        _sent(pulsar, client, topic, properties={str(n): "x" * n for n in range(200)}).properties()
    )


def keys(pulsar: ModuleType, client: Any, topic: str) -> object:
    message = _sent(pulsar, client, topic, partition_key="k", ordering_key="o")
    return message.partition_key(), message.ordering_key()


def key_that_is_not_ascii(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _sent(pulsar, client, topic, partition_key="schlüssel-☃").partition_key()


def ordering_key_alone(pulsar: ModuleType, client: Any, topic: str) -> object:
    message = _sent(pulsar, client, topic, ordering_key="o")
    return message.partition_key(), message.ordering_key(), type(message.ordering_key()).__name__


def event_timestamp(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _sent(pulsar, client, topic, event_timestamp=1_234_567_890_123).event_timestamp()


def event_timestamp_of_zero(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _sent(pulsar, client, topic, event_timestamp=0).event_timestamp()


def publish_timestamp_is_now(pulsar: ModuleType, client: Any, topic: str) -> object:
    before = int(time.time() * 1_000)
    found = _sent(pulsar, client, topic).publish_timestamp()
    return before <= found <= int(time.time() * 1_000), type(found).__name__


def publish_timestamps_in_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 3)
    found = [message.publish_timestamp() for message in take(consume(pulsar, client, topic), 3)]
    return len(set(found))


def metadata_in_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000
    )
    for number in range(4):
        producer.send_async(
            b"%d" % number,
            None,
            properties={"n": str(number)},
            partition_key=f"k{number}",
            ordering_key=f"o{number}",
            event_timestamp=number + 1,
        )
    producer.flush()
    return [
        (
            message.data(),
            message.properties(),
            message.partition_key(),
            message.ordering_key(),
            message.event_timestamp(),
            message.message_id().batch_index(),
        )
        for message in take(consume(pulsar, client, topic), 4)
    ]


def producer_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    client.create_producer(topic, "me").send(b"x")
    return take(consume(pulsar, client, topic), 1)[0].producer_name()


def topic_name_of_a_partition(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    producer = client.create_producer(topic)
    for _ in range(4):
        producer.send(b"x")
    messages = take(consume(pulsar, client, topic), 4)
    return (
        {message.topic_name() for message in messages},
        {message.message_id().partition() for message in messages},
    )


def value_is_bytes(pulsar: ModuleType, client: Any, topic: str) -> object:
    message = _sent(pulsar, client, topic, b"\x00\xff")
    return message.value(), message.data(), type(message.data()).__name__


def large_content(pulsar: ModuleType, client: Any, topic: str) -> object:
    content = bytes(range(256)) * 4_096
    return _sent(pulsar, client, topic, content).data() == content


def delivered_after(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = consume(pulsar, client, topic, consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    producer.send(b"late", deliver_after=timedelta(seconds=2))
    producer.send(b"now")
    return data_of(take(consumer, 2))


def delivered_at(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = consume(pulsar, client, topic, consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    producer.send(b"late", deliver_at=int(time.time() * 1_000) + 2_000)
    producer.send(b"now")
    return data_of(take(consumer, 2))


def delay_on_an_exclusive_subscription(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = consume(pulsar, client, topic)
    producer = client.create_producer(topic)
    producer.send(b"late", deliver_after=timedelta(hours=1))
    producer.send(b"now")
    return data_of(take(consumer, 2))


def delay_in_a_batching_producer(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = consume(pulsar, client, topic, consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=True)
    producer.send_async(b"late", None, deliver_after=timedelta(seconds=2))
    producer.send_async(b"now", None)
    producer.flush()
    return data_of(take(consumer, 2))


def delivered_at_a_past_time(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = consume(pulsar, client, topic, consumer_type=pulsar.ConsumerType.Shared)
    client.create_producer(topic).send(b"x", deliver_at=1)
    return data_of(take(consumer, 1))


def both_delays(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = consume(pulsar, client, topic, consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    found = caught(
        pulsar,
        lambda: producer.send(b"x", deliver_at=1, deliver_after=timedelta(hours=1)).partition(),
    )
    return found, is_empty(pulsar, consumer)


def delay_below_zero(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = consume(pulsar, client, topic, consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    found = caught(
        pulsar, lambda: producer.send(b"x", deliver_after=timedelta(seconds=-5)).partition()
    )
    return found, is_empty(pulsar, consumer)


def disabled_replication(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _sent(pulsar, client, topic, disable_replication=True).data()


def replication_clusters(pulsar: ModuleType, client: Any, topic: str) -> object:
    return caught(
        pulsar, lambda: _sent(pulsar, client, topic, replication_clusters=["other"]).data()
    )


def null_value(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    producer.send(None, partition_key="k")
    producer.send(b"", partition_key="k")
    first, second = take(consume(pulsar, client, topic), 2)
    return (
        (first.data(), first.has_null_value(), first.partition_key()),
        (second.data(), second.has_null_value()),
    )


def encryption_context_of_plain_text(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _sent(pulsar, client, topic).encryption_context()


def redelivery_count_in_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 3)
    consumer = consume(pulsar, client, topic, consumer_type=pulsar.ConsumerType.Shared)
    take(consumer, 3)
    consumer.redeliver_unacknowledged_messages()
    return [message.redelivery_count() for message in take(consumer, 3)]


def messages_outlive_their_consumer(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    consumer = consume(pulsar, client, topic)
    (message,) = take(consumer, 1)
    consumer.close()
    return message.data(), message.topic_name(), message.message_id().entry_id() >= 0
