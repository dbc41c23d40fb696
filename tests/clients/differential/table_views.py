"""Table views."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

from tests.clients.differential.helpers import RECEIVE_MS, batch
from tests.clients.differential.outcomes import caught


def _fill(client: Any, topic: str, **options: Any) -> None:
    producer = client.create_producer(topic, **options)
    for number in range(6):
        producer.send(b"%d" % number, partition_key=f"k{number % 3}")


def latest_values(pulsar: ModuleType, client: Any, topic: str) -> object:
    _fill(client, topic)
    view = client.create_table_view(topic)
    return [view.get(key) for key in ("k0", "k1", "k2", "absent", "")], len(view)


def empty_topic(pulsar: ModuleType, client: Any, topic: str) -> object:
    view = client.create_table_view(topic)
    return view.get("k"), len(view)


def each_value(pulsar: ModuleType, client: Any, topic: str) -> object:
    _fill(client, topic)
    found: dict[str, bytes] = {}
    result = client.create_table_view(topic).for_each(found.__setitem__)
    return result, found


def later_values(pulsar: ModuleType, client: Any, topic: str) -> object:
    _fill(client, topic)
    found: dict[str, bytes] = {}
    changed = threading.Event()

    def on_value(key: str, value: bytes) -> None:
        found[key] = value
        if value == b"new":
            changed.set()

    view = client.create_table_view(topic)
    view.for_each_and_listen(on_value)
    client.create_producer(topic).send(b"new", partition_key="k1")
    changed.wait(RECEIVE_MS / 1_000)
    return found, view.get("k1")


def messages_without_keys(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    producer.send(b"none")
    producer.send(b"some", partition_key="k")
    view = client.create_table_view(topic)
    return len(view), view.get("k")


def empty_value_removes(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    for content, key in ((b"1", "a"), (b"2", "b"), (b"", "a")):
        producer.send(content, partition_key=key)
    view = client.create_table_view(topic)
    return view.get("a"), view.get("b"), len(view)


def with_a_schema(pulsar: ModuleType, client: Any, topic: str) -> object:
    schema = pulsar.schema.StringSchema()
    client.create_producer(topic, schema=schema).send("téxt", partition_key="k")
    return client.create_table_view(topic, schema=schema).get("k")


def of_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    _fill(client, topic)
    view = client.create_table_view(topic)
    return [view.get(f"k{number}") for number in range(3)], len(view)


def texts(pulsar: ModuleType, client: Any, topic: str) -> object:
    return str(client.create_table_view(topic)), str(client.create_table_view(topic, "sub"))


def closed(pulsar: ModuleType, client: Any, topic: str) -> object:
    _fill(client, topic)
    return client.create_table_view(topic).close()


def without_keys_in_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 3)
    return len(client.create_table_view(topic))


def wrong_key(pulsar: ModuleType, client: Any, topic: str) -> object:
    view = client.create_table_view(topic)
    return [caught(pulsar, lambda key=key: view.get(key)) for key in (None, 1)]
