"""The programs of a soak: one producer for each of several topics, at a steady rate, and readers of
all that they sent.
"""

from __future__ import annotations

import random
import threading
import time
from array import array
from collections.abc import Callable
from typing import Final

import pulsarish
from pulsarish.chaos.soak_history import SoakHistory, TopicHistory
from pulsarish.model.errors import PulsarishError

__all__ = ["KEYS", "Payloads", "SoakLoad", "read_topics"]

KEYS: Final = 16
"""Keys of a topic whose messages have keys: the number of the message modulo this."""

_SUBSCRIPTION: Final = "chaos"
"""Holds back trimming: all that was published is read at the end."""
_NAP_SECONDS: Final = 0.01
_LATE_SECONDS: Final = 1.0  # of lateness are caught up
_BLOCK_BYTES: Final = 1 << 20
_TIMES_APART_SECONDS: Final = 0.1
"""Acknowledgements closer to each other have one time, so that a long run needs little memory."""


class Payloads:
    """The bytes of each message: its number, and a part of a block that only the seed decides."""

    def __init__(self, seed: int, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._block = random.Random(f"payload:{seed}").randbytes(_BLOCK_BYTES)
        self._block += self._block[:size_bytes]

    def make(self, number: int) -> bytes:
        head = b"%d " % number
        start = number * 7_919 % _BLOCK_BYTES
        return head + self._block[start : start + max(0, self._size_bytes - len(head))]

    def number(self, content: bytes) -> int:
        """Return the number of a message; -1 when its bytes are not those that were sent."""
        head = content.partition(b" ")[0]
        number = int(head) if head.isdigit() else -1
        return number if number >= 0 and content == self.make(number) else -1


class SoakLoad:
    """Publishes to all topics, in a thread for each."""

    def __init__(
        self,
        client: pulsarish.Client,
        topics: list[str],
        history: SoakHistory,
        *,
        payloads: Payloads,
        window: int,
        send_timeout_ms: int,
        ack_seconds: array[float],
        keyed: frozenset[str] = frozenset(),
    ) -> None:
        """``ack_seconds`` gets the times of acknowledgements, in seconds since the beginning.
        ``keyed``: the topics whose messages have keys, and are not batched.
        """
        self.reached = threading.Event()
        self._ack_seconds = ack_seconds
        self._payloads = payloads
        self._keyed = keyed
        self._producers: list[tuple[pulsarish.Producer, TopicHistory]] = []
        for topic in topics:
            client.subscribe(
                topic, _SUBSCRIPTION, initial_position=pulsarish.InitialPosition.Earliest
            ).close()
            producer = client.create_producer(
                topic,
                producer_name="chaos",
                max_pending_messages=max(1, window // len(topics)),
                block_if_queue_full=True,
                batching_enabled=topic not in keyed,
                batching_max_publish_delay_ms=10,
                send_timeout_millis=send_timeout_ms,
            )
            history.topics.append(TopicHistory(topic))
            self._producers.append((producer, history.topics[-1]))
        self._began = time.perf_counter()

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._began

    def publish(
        self,
        *,
        messages: int,
        fault_at: int,
        rate: float | None,
        at_full_speed: bool,
        fault_is_over: Callable[[], bool],
    ) -> None:
        """Send at ``rate`` messages a second, all topics together, until the fault is over; return
        when each message has its outcome.

        ``reached`` is set once every topic has acknowledged a message. The other arguments are for
        loads of a fixed number of messages.
        """
        assert rate is not None, "a soak has a rate"
        each_rate = rate / len(self._producers)
        failures: list[PulsarishError] = []

        def send(producer: pulsarish.Producer, topic: TopicHistory) -> None:
            try:
                self._send_all(producer, topic, each_rate, fault_is_over)
            except PulsarishError as error:
                failures.append(error)

        threads = [
            threading.Thread(target=send, args=parts, name=f"load {parts[1].topic}")
            for parts in self._producers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _send_all(
        self,
        producer: pulsarish.Producer,
        topic: TopicHistory,
        rate: float,
        is_over: Callable[[], bool],
    ) -> None:
        due = self.elapsed()
        while not is_over():
            now = self.elapsed()
            due = max(due, now - _LATE_SECONDS)
            while due <= now:
                self._send(producer, topic)
                due += 1 / rate
            time.sleep(max(_NAP_SECONDS, due - self.elapsed()))
        producer.flush()
        producer.close()

    def _send(self, producer: pulsarish.Producer, topic: TopicHistory) -> None:
        number = topic.send()

        def done(result: object, _message_id: object) -> None:
            if result != pulsarish.Result.Ok:
                topic.failed(number, getattr(result, "name", str(result)))
                return
            topic.acked(number)
            now, times = self.elapsed(), self._ack_seconds
            if not times or now - times[-1] >= _TIMES_APART_SECONDS:
                times.append(now)
            if not self.reached.is_set() and all(each.acked_count for _, each in self._producers):
                self.reached.set()

        key = f"key-{number % KEYS}" if topic.topic in self._keyed else None
        producer.send_async(self._payloads.make(number), done, partition_key=key)


def read_topics(
    client: pulsarish.Client, history: SoakHistory, payloads: Payloads, *, silence_seconds: float
) -> None:
    """Read every topic from its earliest message to its end."""
    for topic in history.topics:
        reader = client.create_reader(topic.topic, pulsarish.MessageId.earliest)
        try:
            while reader.has_message_available():
                message = reader.read_next(timeout_millis=int(silence_seconds * 1_000))
                place = message.message_id()
                topic.received(
                    payloads.number(message.data()),
                    (0, place.ledger_id(), place.entry_id(), place.batch_index()),
                )
        except pulsarish.Timeout:
            continue  # what was not read counts as missing
        finally:
            reader.close()
    history.end_reading()
