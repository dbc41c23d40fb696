"""Seeks of consumers: by id, by time, to the ends."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.clients.differential.helpers import batch, consume, data_of, is_empty, publish, take
from tests.clients.differential.outcomes import caught


def to_an_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 4)
    consumer = consume(pulsar, client, topic)
    take(consumer, 4)
    return consumer.seek(ids[1]), data_of(take(consumer, 2)), is_empty(pulsar, consumer)


def to_an_id_inclusive(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 4)
    consumer = consume(pulsar, client, topic, start_message_id_inclusive=True)
    take(consumer, 4)
    consumer.seek(ids[1])
    return data_of(take(consumer, 3))


def to_the_id_of_a_message(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic)
    first = take(consumer, 3)[0]
    consumer.seek(first.message_id())
    return data_of(take(consumer, 2))


def to_a_stored_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic)
    stored = take(consumer, 3)[1].message_id().serialize()
    consumer.seek(pulsar.MessageId.deserialize(stored))
    return data_of(take(consumer, 1)), is_empty(pulsar, consumer)


def to_a_made_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    first = publish(client, topic, 3)[0]
    consumer = consume(pulsar, client, topic)
    take(consumer, 3)
    consumer.seek(pulsar.MessageId(-1, first.ledger_id(), first.entry_id(), -1))
    return data_of(take(consumer, 2))


def to_the_earliest(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic)
    take(consumer, 3, ack=True)
    consumer.seek(pulsar.MessageId.earliest)
    return data_of(take(consumer, 3)), is_empty(pulsar, consumer)


def to_the_latest(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic)
    consumer.seek(pulsar.MessageId.latest)
    empty = is_empty(pulsar, consumer)
    client.create_producer(topic).send(b"new")
    return empty, data_of(take(consumer, 1))


def to_a_time(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic)
    times = [message.publish_timestamp() for message in take(consumer, 3)]
    consumer.seek(times[0])
    first = data_of(take(consumer, 3))
    consumer.seek(times[-1] + 60_000)
    return first, is_empty(pulsar, consumer)


def to_a_time_of_zero(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    consumer = consume(pulsar, client, topic)
    take(consumer, 2, ack=True)
    consumer.seek(0)
    return data_of(take(consumer, 2))


def into_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 4)
    consumer = consume(pulsar, client, topic)
    ids = [message.message_id() for message in take(consumer, 4)]
    consumer.seek(ids[1])
    return data_of(take(consumer, 2)), is_empty(pulsar, consumer)


def into_a_batch_inclusive(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 4)
    consumer = consume(pulsar, client, topic, start_message_id_inclusive=True)
    ids = [message.message_id() for message in take(consumer, 4)]
    consumer.seek(ids[2])
    return data_of(take(consumer, 2))


def on_shared(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic, consumer_type=pulsar.ConsumerType.Shared)
    take(consumer, 3, ack=True)
    consumer.seek(pulsar.MessageId.earliest)
    return sorted(data_of(take(consumer, 3)))


def on_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    publish(client, topic, 4)
    consumer = consume(pulsar, client, topic)
    take(consumer, 4, ack=True)
    consumer.seek(pulsar.MessageId.earliest)
    first = sorted(data_of(take(consumer, 4)))
    consumer.seek(0)
    again = sorted(data_of(take(consumer, 4)))
    consumer.seek(pulsar.MessageId.latest)
    return first, again, is_empty(pulsar, consumer)


def to_the_id_of_one_partition(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    publish(client, topic, 2)
    consumer = consume(pulsar, client, topic)
    message = take(consumer, 2)[0]
    return caught(pulsar, lambda: consumer.seek(message.message_id()))


def drops_what_was_received(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 5)
    consumer = consume(pulsar, client, topic)
    take(consumer, 1)
    consumer.seek(pulsar.MessageId.earliest)
    return data_of(take(consumer, 5)), is_empty(pulsar, consumer)
