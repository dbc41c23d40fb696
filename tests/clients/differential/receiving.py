"""Batch receive, listeners and time-outs."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

from tests.clients.differential.helpers import (
    RECEIVE_MS,
    Sends,
    consume,
    data_of,
    is_empty,
    publish,
    take,
)
from tests.clients.differential.outcomes import caught


def _policy(pulsar: ModuleType, *limits: int) -> dict[str, Any]:
    return {"batch_receive_policy": pulsar.ConsumerBatchReceivePolicy(*limits)}


def batch_by_number(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 5)
    consumer = consume(pulsar, client, topic, **_policy(pulsar, 3, -1, 60_000))
    return data_of(consumer.batch_receive())


def batch_by_time(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = consume(pulsar, client, topic, **_policy(pulsar, 10, -1, 1_500))
    publish(client, topic, 2)
    return data_of(consumer.batch_receive())


def batch_of_nothing(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = consume(pulsar, client, topic, **_policy(pulsar, 10, -1, 200))
    return consumer.batch_receive()


def batch_by_bytes(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    for _ in range(4):
        producer.send(bytes(600))
    consumer = consume(pulsar, client, topic, **_policy(pulsar, -1, 1_000, 3_000))
    return [len(consumer.batch_receive()) for _ in range(2)]


def batch_without_a_policy(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic)
    found: list[str] = []
    while len(found) < 3:
        found += data_of(consumer.batch_receive())
    return found, consumer.batch_receive()


def batch_is_acknowledged(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic, **_policy(pulsar, 3, -1, 60_000))
    for message in consumer.batch_receive():
        consumer.acknowledge(message)
    consumer.close()
    return is_empty(pulsar, consume(pulsar, client, topic))


def batch_of_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    publish(client, topic, 4)
    consumer = consume(pulsar, client, topic, **_policy(pulsar, 4, -1, 60_000))
    return sorted(data_of(consumer.batch_receive()))


def batch_then_single(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 4)
    consumer = consume(pulsar, client, topic, **_policy(pulsar, 2, -1, 60_000))
    return data_of(consumer.batch_receive()), data_of(take(consumer, 2))


def listener(pulsar: ModuleType, client: Any, topic: str) -> object:
    found: list[Any] = []
    done = threading.Event()

    def on_message(consumer: Any, message: Any) -> None:
        found.append((message.data(), message.value(), message.topic_name(), consumer.topic()))
        consumer.acknowledge(message)
        if len(found) == 3:
            done.set()

    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic, message_listener=on_message)
    done.wait(RECEIVE_MS / 1_000)
    calls = (lambda: consumer.receive(100), consumer.receive, consumer.batch_receive)
    return found, [caught(pulsar, call) for call in calls]


def listener_paused(pulsar: ModuleType, client: Any, topic: str) -> object:
    found: list[str] = []
    came = threading.Semaphore(0)

    def on_message(consumer: Any, message: Any) -> None:
        found.append(message.data().decode())
        consumer.acknowledge(message)
        came.release()

    consumer = consume(pulsar, client, topic, message_listener=on_message)
    producer = client.create_producer(topic)
    producer.send(b"first")
    came.acquire(timeout=RECEIVE_MS / 1_000)
    consumer.pause_message_listener()
    producer.send(b"second")
    paused = came.acquire(timeout=0.5)
    consumer.resume_message_listener()
    came.acquire(timeout=RECEIVE_MS / 1_000)
    return paused, found


def pause_without_a_listener(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "s")
    return caught(pulsar, consumer.pause_message_listener), caught(
        pulsar, consumer.resume_message_listener
    )


def listener_of_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    found: list[str] = []
    came = threading.Semaphore(0)

    def on_message(_consumer: Any, message: Any) -> None:
        found.append(message.data().decode())
        came.release()

    consume(pulsar, client, topic, message_listener=on_message)
    publish(client, topic, 4)
    for _ in range(4):
        came.acquire(timeout=RECEIVE_MS / 1_000)
    return sorted(found)


def listener_that_publishes(pulsar: ModuleType, client: Any, topic: str) -> object:
    out = client.create_producer(f"{topic}-out")
    sends = Sends()

    def on_message(consumer: Any, message: Any) -> None:
        out.send_async(message.data() + b"!", sends)
        consumer.acknowledge(message)

    consume(pulsar, client, topic, message_listener=on_message)
    publish(client, topic, 2)
    sends.wait(2)
    return data_of(take(consume(pulsar, client, f"{topic}-out"), 2))


def callback_that_publishes(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    sends = Sends()
    producer.send_async(b"first", lambda _result, _id: producer.send_async(b"second", sends))
    sends.wait(1)
    return data_of(take(consume(pulsar, client, topic), 2))


def time_out_of_one_millisecond(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "s")
    return [caught(pulsar, lambda: consumer.receive(1)) for _ in range(3)]


def receive_waits_in_another_thread(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "s")
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(consumer.receive().data()))
    waiter.start()
    publish(client, topic, 1)
    waiter.join(RECEIVE_MS / 1_000)
    return found


def close_ends_a_receive(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "s")
    found: list[Any] = []
    waiter = threading.Thread(
        target=lambda: found.append(caught(pulsar, lambda: consumer.receive(10_000)))
    )
    waiter.start()
    waiter.join(0.5)
    consumer.close()
    waiter.join(RECEIVE_MS / 1_000)
    return found
