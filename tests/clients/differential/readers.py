"""Readers: where they start, what they read, and how they move."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

from tests.clients.differential.helpers import RECEIVE_MS, batch, data_of, publish
from tests.clients.differential.outcomes import caught


def _read(reader: Any, count: int) -> list[str]:
    return data_of([reader.read_next(RECEIVE_MS) for _ in range(count)])


def _rest(reader: Any) -> list[str]:
    found = []
    while reader.has_message_available():
        found += _read(reader, 1)
    return found


def _at(pulsar: ModuleType, client: Any, topic: str, **options: Any) -> Any:
    return client.create_reader(topic, options.pop("start", pulsar.MessageId.earliest), **options)


def from_the_earliest(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 4)
    return _rest(_at(pulsar, client, topic))


def from_the_latest(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    before = reader.has_message_available()
    client.create_producer(topic).send(b"new")
    return before, _read(reader, 1), reader.has_message_available()


def from_the_latest_inclusive(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    reader = client.create_reader(topic, pulsar.MessageId.latest, start_message_id_inclusive=True)
    return reader.has_message_available(), _rest(reader)


def after_an_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 4)
    return _rest(client.create_reader(topic, ids[1]))


def at_an_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 4)
    return _rest(client.create_reader(topic, ids[1], start_message_id_inclusive=True))


def after_the_last_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 2)
    reader = client.create_reader(topic, ids[-1])
    before = reader.has_message_available()
    client.create_producer(topic).send(b"new")
    return before, _read(reader, 1)


def at_the_last_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 2)
    return _rest(client.create_reader(topic, ids[-1], start_message_id_inclusive=True))


def after_a_stored_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    stored = publish(client, topic, 3)[0].serialize()
    return _rest(client.create_reader(topic, pulsar.MessageId.deserialize(stored)))


def after_a_made_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    first = publish(client, topic, 3)[0]
    made = pulsar.MessageId(-1, first.ledger_id(), first.entry_id(), -1)
    return _rest(client.create_reader(topic, made))


def inside_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 5)
    reader = _at(pulsar, client, topic)
    ids = [reader.read_next(RECEIVE_MS).message_id() for _ in range(5)]
    return (
        _rest(client.create_reader(topic, ids[2])),
        _rest(client.create_reader(topic, ids[2], start_message_id_inclusive=True)),
    )


def at_the_end_of_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 3)
    reader = _at(pulsar, client, topic)
    last = [reader.read_next(RECEIVE_MS).message_id() for _ in range(3)][-1]
    after = client.create_reader(topic, last)
    return after.has_message_available(), reader.has_message_available()


def latest_inclusive_in_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 3)
    reader = client.create_reader(topic, pulsar.MessageId.latest, start_message_id_inclusive=True)
    return _rest(reader)


def empty_topic(pulsar: ModuleType, client: Any, topic: str) -> object:
    reader = _at(pulsar, client, topic)
    return reader.has_message_available(), caught(pulsar, lambda: reader.read_next(100))


def names(pulsar: ModuleType, client: Any, topic: str) -> object:
    reader = _at(pulsar, client, topic, reader_name="me")
    return reader.topic(), reader.is_connected()


def subscription_of_a_reader(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    _at(pulsar, client, topic, subscription_role_prefix="role")
    _at(pulsar, client, topic)
    found = sorted(admin.topics.stats(topic)["subscriptions"])
    return [each.rpartition("-")[0] for each in found]


def name_of_the_subscription_goes_with_it(
    pulsar: ModuleType, client: Any, topic: str, admin: Any
) -> object:
    reader = _at(pulsar, client, topic)
    before = len(admin.topics.stats(topic)["subscriptions"])
    reader.close()
    return before, len(admin.topics.stats(topic)["subscriptions"])


def two_readers_read_alike(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    readers = [_at(pulsar, client, topic, reader_name="same") for _ in range(2)]
    return [_rest(each) for each in readers]


def message_of_a_reader(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic, "p")
    producer.send(b"x", {"a": "1"}, "k")
    message = _at(pulsar, client, topic).read_next(RECEIVE_MS)
    return message.value(), message.properties(), message.partition_key(), message.topic_name()


def small_queue(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 5)
    return _rest(_at(pulsar, client, topic, receiver_queue_size=1))


def seek_to_an_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 4)
    reader = _at(pulsar, client, topic)
    _read(reader, 4)
    found = reader.seek(ids[1])
    return found, _read(reader, 2), reader.has_message_available()


def seek_to_an_id_inclusive(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 4)
    reader = _at(pulsar, client, topic, start_message_id_inclusive=True)
    _read(reader, 4)
    reader.seek(ids[1])
    return _read(reader, 3)


def seek_to_the_ends(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    reader = _at(pulsar, client, topic)
    _read(reader, 2)
    reader.seek(pulsar.MessageId.earliest)
    first = _read(reader, 1)
    reader.seek(pulsar.MessageId.latest)
    at_the_end = reader.has_message_available()
    client.create_producer(topic).send(b"new")
    return first, at_the_end, _read(reader, 1)


def seek_to_a_time(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    reader = _at(pulsar, client, topic)
    times = [reader.read_next(RECEIVE_MS).publish_timestamp() for _ in range(3)]
    reader.seek(times[0])
    first = _read(reader, 1)
    reader.seek(0)
    return first, _read(reader, 1)


def seek_to_a_time_to_come(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    reader = _at(pulsar, client, topic)
    reader.seek(4_000_000_000_000)
    before = reader.has_message_available()
    client.create_producer(topic).send(b"new")
    return before, _read(reader, 1)


def available_after_a_seek(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 2)
    reader = _at(pulsar, client, topic)
    _read(reader, 2)
    found = [reader.has_message_available()]
    for position in (ids[0], ids[1], pulsar.MessageId.earliest, pulsar.MessageId.latest):
        reader.seek(position)
        found.append(reader.has_message_available())
    return found


def closed(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    reader = _at(pulsar, client, topic)
    return {
        "close": reader.close(),
        "again": caught(pulsar, reader.close),
        "connected": reader.is_connected(),
        "read_next": caught(pulsar, lambda: reader.read_next(100)),
        "available": caught(pulsar, reader.has_message_available),
        "seek": caught(pulsar, lambda: reader.seek(pulsar.MessageId.earliest)),
        "topic": reader.topic(),
    }


def listener(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    found: list[str] = []
    done = threading.Event()

    def on_message(_reader: Any, message: Any) -> None:
        found.append(message.data().decode())
        if len(found) == 3:
            done.set()

    reader = _at(pulsar, client, topic, reader_listener=on_message)
    done.wait(RECEIVE_MS / 1_000)
    return found, caught(pulsar, lambda: reader.read_next(100).data())


def partitioned_topic(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    publish(client, topic, 6)

    def read() -> object:
        reader = _at(pulsar, client, topic)
        return sorted(_rest(reader)), reader.topic(), reader.is_connected()

    return caught(pulsar, read)


def partitioned_topic_from_the_latest(
    pulsar: ModuleType, client: Any, topic: str, admin: Any
) -> object:
    admin.topics.create(topic, partitions=2)
    publish(client, topic, 4)

    def read() -> object:
        reader = client.create_reader(topic, pulsar.MessageId.latest)
        before = reader.has_message_available()
        publish(client, topic, 2)
        return before, sorted(_read(reader, 2))

    return caught(pulsar, read)


def partitioned_topic_after_an_id(
    pulsar: ModuleType, client: Any, topic: str, admin: Any
) -> object:
    admin.topics.create(topic, partitions=2)
    ids = publish(client, topic, 2)
    return caught(pulsar, lambda: client.create_reader(topic, ids[0]).topic())


def seek_on_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    publish(client, topic, 4)

    def read() -> object:
        reader = _at(pulsar, client, topic)
        first = sorted(_read(reader, 4))
        reader.seek(pulsar.MessageId.earliest)
        again = sorted(_read(reader, 4))
        reader.seek(0)
        return first, again, sorted(_read(reader, 4))

    return caught(pulsar, read)


def one_partition(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    client.create_producer(f"{topic}-partition-1").send(b"x")
    reader = _at(pulsar, client, f"{topic}-partition-1")
    return _rest(reader), reader.topic()


def compacted(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    for number in range(3):
        producer.send(b"%d" % number, partition_key="k")
    return _rest(_at(pulsar, client, topic, is_read_compacted=True))


def chunked_message(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send(bytes(11 << 20))
    producer.send(b"small")
    reader = _at(pulsar, client, topic)
    return [len(reader.read_next(RECEIVE_MS).data()) for _ in range(2)]
