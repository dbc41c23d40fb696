"""Batches and chunks: when they are sent, and what becomes of their messages."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.clients.differential.helpers import Sends, consume, data_of, take


def _entries(messages: list[Any]) -> list[int]:
    """Return the number of messages of each entry, in order."""
    places = [(each.message_id().ledger_id(), each.message_id().entry_id()) for each in messages]
    return [places.count(place) for place in dict.fromkeys(places)]


def _sent(pulsar: ModuleType, client: Any, topic: str, count: int, **options: Any) -> Any:
    producer = client.create_producer(topic, batching_enabled=True, **options)
    for number in range(count):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 2}")
    producer.flush()
    return take(consume(pulsar, client, topic), count)


def full_by_number(pulsar: ModuleType, client: Any, topic: str) -> object:
    messages = _sent(
        pulsar, client, topic, 9, batching_max_messages=4, batching_max_publish_delay_ms=60_000
    )
    return data_of(messages), _entries(messages)


def full_by_size(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_allowed_size_in_bytes=1_000,
        batching_max_publish_delay_ms=60_000,
    )
    for _ in range(4):
        producer.send_async(bytes(400), None)
    producer.flush()
    return len(_entries(take(consume(pulsar, client, topic), 4))) > 1


def sent_by_time(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=300
    )
    sends = Sends()
    for number in range(3):
        producer.send_async(b"%d" % number, sends)
    return sends.wait(3), _entries(take(consume(pulsar, client, topic), 3))


def send_does_not_wait_for_the_time(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000
    )
    return producer.send(b"x").batch_index() in (-1, 0)


def by_key(pulsar: ModuleType, client: Any, topic: str) -> object:
    messages = _sent(
        pulsar,
        client,
        topic,
        6,
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_publish_delay_ms=60_000,
    )
    by_entry: dict[int, set[str]] = {}
    for each in messages:
        by_entry.setdefault(each.message_id().entry_id(), set()).add(each.partition_key())
    return sorted(data_of(messages)), [len(keys) for keys in by_entry.values()]


def compressed(pulsar: ModuleType, client: Any, topic: str) -> object:
    messages = _sent(
        pulsar,
        client,
        topic,
        5,
        compression_type=pulsar.CompressionType.LZ4,
        batching_max_publish_delay_ms=60_000,
    )
    return data_of(messages), _entries(messages)


def batch_of_one(pulsar: ModuleType, client: Any, topic: str) -> object:
    (message,) = _sent(pulsar, client, topic, 1, batching_max_publish_delay_ms=60_000)
    return message.data(), message.partition_key()


def off_by_default(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    for number in range(4):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    return _entries(take(consume(pulsar, client, topic), 4))


def flush_twice(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000
    )
    for number in range(2):
        producer.send_async(b"%d" % number, None)
        producer.flush()
    return _entries(take(consume(pulsar, client, topic), 2))


def chunks_come_as_one(pulsar: ModuleType, client: Any, topic: str) -> object:
    content = bytes(range(256)) * (44 << 10)
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send(content, {"a": "1"}, "k", event_timestamp=5)
    (message,) = take(consume(pulsar, client, topic), 1, ack=True)
    return (
        message.data() == content,
        message.properties(),
        message.partition_key(),
        message.event_timestamp(),
    )


def small_message_of_a_chunking_producer(pulsar: ModuleType, client: Any, topic: str) -> object:
    client.create_producer(topic, chunking_enabled=True).send(b"small")
    return take(consume(pulsar, client, topic), 1)[0].data()


def chunks_and_small_messages(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic, chunking_enabled=True)
    for size in (1, 6 << 20, 2):
        producer.send(bytes(size))
    return [len(each.data()) for each in take(consume(pulsar, client, topic), 3)]
