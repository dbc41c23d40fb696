"""Producers: names, sequence ids, access modes, limits, and how they end."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

from tests.clients.differential.helpers import (
    RECEIVE_MS,
    Sends,
    consume,
    data_of,
    publish,
    take,
)
from tests.clients.differential.outcomes import caught


def topic_is_the_full_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    short = client.create_producer(topic.rpartition("/")[2])
    return short.topic(), client.create_producer(topic).topic()


def given_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    return client.create_producer(topic, "first").producer_name()


def made_names_differ(pulsar: ModuleType, client: Any, topic: str) -> object:
    names = {client.create_producer(topic).producer_name() for _ in range(2)}
    return len(names), all(names)


def empty_name_is_none(pulsar: ModuleType, client: Any, topic: str) -> object:
    return client.create_producer(topic, producer_name="").producer_name() != ""


def taken_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    first = client.create_producer(topic, producer_name="p")
    return first.producer_name(), caught(pulsar, lambda: client.create_producer(topic, "p"))


def freed_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    client.create_producer(topic, producer_name="p").close()
    return client.create_producer(topic, producer_name="p").producer_name()


def last_sequence_id_grows(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    found = [producer.last_sequence_id()]
    for _ in range(3):
        producer.send(b"x")
        found.append(producer.last_sequence_id())
    return found


def last_sequence_id_in_batches(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic, batching_enabled=True)
    for _ in range(5):
        producer.send_async(b"x", None)
    producer.flush()
    return producer.last_sequence_id()


def initial_sequence_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic, initial_sequence_id=10)
    found = [producer.last_sequence_id()]
    producer.send(b"x")
    return [*found, producer.last_sequence_id()]


def initial_sequence_id_of_zero(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic, initial_sequence_id=0)
    found = [producer.last_sequence_id()]
    producer.send(b"x")
    return [*found, producer.last_sequence_id()]


def own_sequence_ids(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    found = []
    for number in (5, 9, 20):
        producer.send(b"x", sequence_id=number)
        found.append(producer.last_sequence_id())
    return found


def own_sequence_id_then_made_ones(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    producer.send(b"x", sequence_id=50)
    producer.send(b"y")
    return producer.last_sequence_id()


def sequence_id_that_falls(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    producer.send(b"x", sequence_id=9)
    again = caught(pulsar, lambda: producer.send(b"y", sequence_id=4).entry_id())
    return again, producer.last_sequence_id()


def last_sequence_id_of_a_former_producer(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic, producer_name="p")
    for _ in range(3):
        producer.send(b"x")
    producer.close()
    return client.create_producer(topic, producer_name="p").last_sequence_id()


def flush_of_nothing(pulsar: ModuleType, client: Any, topic: str) -> object:
    return client.create_producer(topic).flush()


def close_returns_none(pulsar: ModuleType, client: Any, topic: str) -> object:
    return client.create_producer(topic).close()


def connected_until_closed(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    before = producer.is_connected()
    producer.close()
    return before, producer.is_connected()


def closed_twice(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    producer.close()
    return caught(pulsar, producer.close)


def send_after_close(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    producer.close()
    return caught(pulsar, lambda: producer.send(b"x"))


def send_async_after_close(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    producer.close()
    sends = Sends()
    found = caught(pulsar, lambda: producer.send_async(b"x", sends))
    return found, sends.wait(1)


def flush_after_close(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    producer.close()
    return caught(pulsar, producer.flush)


def names_of_a_closed_producer(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic, "p")
    producer.send(b"x")
    producer.close()
    return producer.topic(), producer.producer_name(), producer.last_sequence_id()


def close_sends_what_waits(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000
    )
    sends = Sends()
    for number in range(3):
        producer.send_async(b"%d" % number, sends)
    producer.close()
    return sends.wait(3)


def send_returns_rising_ids(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 3)
    return (
        [each.entry_id() - ids[0].entry_id() for each in ids],
        [(each.batch_index(), each.partition()) for each in ids],
        ids == sorted(ids, key=lambda each: each.entry_id()),
    )


def callbacks_come_in_order(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    sends = Sends()
    for number in range(20):
        producer.send_async(b"%d" % number, sends)
    sends.wait(20)
    entries = [each.entry_id() for each in sends.ids]
    return sends.results, entries == sorted(entries)


def callback_comes_without_a_flush(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    sends = Sends()
    return producer.send_async(b"x", sends), sends.wait(1)


def send_async_without_a_callback(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    producer.send_async(b"x", None)
    producer.flush()
    return data_of(take(consume(pulsar, client, topic), 1))


def message_too_big(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    return caught(pulsar, lambda: producer.send(bytes(6 << 20)))


def message_too_big_in_a_callback(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    sends = Sends()
    producer.send_async(bytes(6 << 20), sends)
    producer.send_async(b"small", sends)
    return sorted(sends.wait(2))


def big_message_that_compresses(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic, compression_type=pulsar.CompressionType.ZLib)
    producer.send(bytes(6 << 20))
    return len(take(consume(pulsar, client, topic), 1)[0].data())


def queue_that_is_full(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(
        topic,
        max_pending_messages=3,
        batching_enabled=True,
        batching_max_publish_delay_ms=60_000,
    )
    sends = Sends()
    for _ in range(5):
        producer.send_async(b"x", sends)
    early = list(sends.results)
    producer.flush()
    return early, sorted(sends.wait(5))


def queue_that_is_full_blocks(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic, max_pending_messages=2, block_if_queue_full=True)
    sends = Sends()
    for number in range(30):
        producer.send_async(b"%d" % number, sends)
    producer.flush()
    return sends.wait(30)


def exclusive_alone(pulsar: ModuleType, client: Any, topic: str) -> object:
    modes = pulsar.ProducerAccessMode
    first = client.create_producer(topic, access_mode=modes.Exclusive)
    found = [
        caught(pulsar, lambda mode=mode: client.create_producer(topic, access_mode=mode))
        for mode in (modes.Shared, modes.Exclusive)
    ]
    first.send(b"x")
    return found


def exclusive_beside_shared(pulsar: ModuleType, client: Any, topic: str) -> object:
    first = client.create_producer(topic)
    modes = pulsar.ProducerAccessMode
    found = caught(pulsar, lambda: client.create_producer(topic, access_mode=modes.Exclusive))
    first.send(b"x")
    return found


def exclusive_after_close(pulsar: ModuleType, client: Any, topic: str) -> object:
    modes = pulsar.ProducerAccessMode
    client.create_producer(topic, access_mode=modes.Exclusive).close()
    return client.create_producer(topic, access_mode=modes.Exclusive).is_connected()


def waiting_for_exclusive(pulsar: ModuleType, client: Any, topic: str) -> object:
    modes = pulsar.ProducerAccessMode
    first = client.create_producer(topic, access_mode=modes.Exclusive)
    made: list[Any] = []
    waiter = threading.Thread(
        target=lambda: made.append(
            client.create_producer(topic, access_mode=modes.WaitForExclusive)
        )
    )
    waiter.start()
    first.send(b"first")
    before = len(made)
    first.close()
    waiter.join(RECEIVE_MS / 1_000)
    made[0].send(b"second")
    return before, data_of(take(consume(pulsar, client, topic), 2))


def fencing_producer(pulsar: ModuleType, client: Any, topic: str) -> object:
    modes = pulsar.ProducerAccessMode
    first = client.create_producer(topic, access_mode=modes.Exclusive)
    second = client.create_producer(topic, access_mode=modes.ExclusiveWithFencing)
    second.send(b"second")
    found = caught(pulsar, lambda: first.send(b"first"))
    if isinstance(found, dict):
        found = found["raised"] in ("ProducerFenced", "AlreadyClosed")
    return found, data_of(take(consume(pulsar, client, topic), 1))


def properties_of_a_producer(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    producer = client.create_producer(topic, "p", properties={"b": "2", "a": "1"})
    (found,) = admin.topics.stats(topic)["publishers"]
    return found["producerName"], found["metadata"], producer.is_connected()


def topic_that_is_terminated(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    producer = client.create_producer(topic)
    producer.send(b"x")
    admin.topics.terminate(topic)
    return caught(pulsar, lambda: client.create_producer(topic))


def empty_content(pulsar: ModuleType, client: Any, topic: str) -> object:
    client.create_producer(topic).send(b"")
    return take(consume(pulsar, client, topic), 1)[0].data()


def compression_of_each_kind(pulsar: ModuleType, client: Any, topic: str) -> object:
    kinds = pulsar.CompressionType
    for kind in (kinds.NONE, kinds.LZ4, kinds.ZLib, kinds.ZSTD, kinds.SNAPPY):
        client.create_producer(topic, compression_type=kind).send(b"abc" * 1_000)
    return {message.data() for message in take(consume(pulsar, client, topic), 5)}


def two_producers_of_a_topic(pulsar: ModuleType, client: Any, topic: str) -> object:
    producers = [client.create_producer(topic, name) for name in ("a", "b")]
    for number in range(4):
        producers[number % 2].send(b"%d" % number)
    messages = take(consume(pulsar, client, topic), 4)
    return data_of(messages), [message.producer_name() for message in messages]


def non_persistent_topic(pulsar: ModuleType, client: Any, topic: str) -> object:
    topic = topic.replace("persistent", "non-persistent")
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    message_id = producer.send(b"x")
    (message,) = take(consumer, 1)
    return (
        message.data(),
        message.topic_name() == topic,
        (message_id.partition(), message_id.batch_index()),
    )


def empty_options(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic, properties={}, message_router=None)
    producer.send(b"x", {}, "", "", None, [], False, 0, 0, None)
    (message,) = take(consume(pulsar, client, topic), 1)
    return message.properties(), message.partition_key(), message.ordering_key()
