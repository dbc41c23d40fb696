"""Clients that are closed, and what becomes of their producers, consumers and readers."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.clients.differential.harness import own_client
from tests.clients.differential.helpers import consume, publish, take
from tests.clients.differential.outcomes import caught


@own_client
def close_returns_none(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    return client.close()


@own_client
def closed_without_use(pulsar: ModuleType, client: Any, topic: str) -> object:
    return client.close()


@own_client
def closed_twice(pulsar: ModuleType, client: Any, topic: str) -> object:
    client.close()
    return caught(pulsar, client.close)


@own_client
def calls_of_a_closed_client(pulsar: ModuleType, client: Any, topic: str) -> object:
    client.close()
    start = pulsar.MessageId.earliest
    return {
        "create_producer": caught(pulsar, lambda: client.create_producer(topic)),
        "subscribe": caught(pulsar, lambda: client.subscribe(topic, "s")),
        "create_reader": caught(pulsar, lambda: client.create_reader(topic, start)),
        "get_topic_partitions": caught(pulsar, lambda: client.get_topic_partitions(topic)),
    }


@own_client
def closes_its_producers(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    client.close()
    return producer.is_connected(), caught(pulsar, lambda: producer.send(b"x"))


@own_client
def closes_its_consumers(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    consumer = consume(pulsar, client, topic)
    take(consumer, 1)
    client.close()
    return consumer.is_connected(), caught(pulsar, lambda: consumer.receive(100))


@own_client
def closes_its_readers(pulsar: ModuleType, client: Any, topic: str) -> object:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    client.close()
    return reader.is_connected(), caught(pulsar, lambda: reader.read_next(100))


@own_client
def shut_down(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    producer.send(b"x")
    found = client.shutdown()
    return found, caught(pulsar, lambda: producer.send(b"y"))


@own_client
def shut_down_and_closed(pulsar: ModuleType, client: Any, topic: str) -> object:
    client.create_producer(topic)
    client.shutdown()
    return caught(pulsar, lambda: client.create_producer(topic))


@own_client
def acknowledgements_before_close(
    pulsar: ModuleType, client: Any, topic: str, admin: Any
) -> object:
    publish(client, topic, 5)
    take(consume(pulsar, client, topic), 5, ack=True)
    client.close()
    return admin.topics.stats(topic)["subscriptions"]["s"]["msgBacklog"]
