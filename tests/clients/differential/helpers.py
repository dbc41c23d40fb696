"""What programs of the differential suite share."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any, Final

from tests.clients.differential.outcomes import caught, differing

__all__ = ["RECEIVE_MS", "Sends", "consume", "data_of", "is_empty", "publish", "take"]

RECEIVE_MS: Final = 20_000


def consume(pulsar: ModuleType, client: Any, topic: Any, name: str = "s", **options: Any) -> Any:
    """Return a consumer that begins with the first message."""
    options.setdefault("initial_position", pulsar.InitialPosition.Earliest)
    return client.subscribe(topic, name, **options)


def publish(client: Any, topic: str, count: int, **options: Any) -> list[Any]:
    """Publish ``0``, ``1``... each as an entry of its own, and return their ids."""
    producer = client.create_producer(topic, **options)
    ids = [producer.send(b"%d" % number) for number in range(count)]
    producer.close()
    return ids


def batch(client: Any, topic: str, count: int, **options: Any) -> None:
    """Publish ``0``, ``1``... in one batch."""
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=count,
        batching_max_publish_delay_ms=60_000,
        **options,
    )
    sends = Sends()
    for number in range(count):
        producer.send_async(b"%d" % number, sends)
    producer.flush()
    sends.wait(count)
    producer.close()


def take(consumer: Any, count: int, *, ack: bool = False) -> list[Any]:
    """Receive messages."""
    messages = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS)
        messages.append(message)
        if ack:
            consumer.acknowledge(message)
    return messages


def data_of(messages: list[Any]) -> list[str]:
    return [message.data().decode() for message in messages]


def is_empty(pulsar: ModuleType, consumer: Any, wait_ms: int = 300) -> Any:
    """Return whether nothing comes: True, or what came or was raised."""
    found = caught(pulsar, lambda: consumer.receive(wait_ms).data())
    return not differing({"raised": "Timeout"}, found) or found


class Sends:
    """A callback of ``send_async`` that keeps its calls."""

    def __init__(self) -> None:
        self.results: list[str] = []
        self.ids: list[Any] = []
        self._called = threading.Condition()

    def __call__(self, result: Any, message_id: Any) -> None:
        with self._called:
            self.results.append(result.name)
            self.ids.append(message_id)
            self._called.notify_all()

    def wait(self, count: int) -> list[str]:
        """Return the results after ``count`` calls."""
        with self._called:
            self._called.wait_for(lambda: len(self.results) >= count, RECEIVE_MS / 1_000)
            return list(self.results)
