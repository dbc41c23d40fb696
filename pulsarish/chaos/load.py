"""The programs of a run: one that publishes the integers from 0 on, and one that reads everything
from the earliest message on.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import pulsarish
from pulsarish.chaos.history import EntryId, History

__all__ = ["Load", "Publisher", "Reading"]

_AFTERWARDS_PER_SECOND: Final = 2_000.0
"""What is published beyond the wanted number of messages, while a fault has not yet come to its
end.
"""
_AFTER_FAULT: Final = 2_000
"""Messages that are published at least after the end of the fault."""
_LATE_SECONDS: Final = 0.05  # of lateness are caught up
_NAP_SECONDS: Final = 0.002  # shorter sleeps are not worth a system call
# holds back trimming: nothing that was published is anybody's to delete
_SUBSCRIPTION: Final = "chaos"


class Publisher(Protocol):
    """What publishes during a run. ``reached`` is set when the fault may come."""

    reached: threading.Event

    def elapsed(self) -> float:
        """Return the seconds since the beginning."""
        ...

    def publish(
        self,
        *,
        messages: int,
        fault_at: int,
        rate: float | None,
        at_full_speed: bool,
        fault_is_over: Callable[[], bool],
    ) -> None:
        """Publish until the fault is over; return when each message has its outcome."""
        ...


class Load:
    """Publishes in the caller's thread.

    Outcomes arrive in the client's thread, in the order of sending.
    """

    def __init__(
        self,
        client: pulsarish.Client,
        topic: str,
        history: History,
        *,
        window: int,
        send_timeout_ms: int,
        keys: int,
        ack_seconds: array[float],
    ) -> None:
        """``ack_seconds`` gets the time of each positive acknowledgement, in seconds since the
        beginning.
        """
        self.history = history
        self.reached = threading.Event()
        self.ack_seconds = ack_seconds
        self._keys = keys
        self._fault_at = 0
        self._due = 0.0
        client.subscribe(
            topic, _SUBSCRIPTION, initial_position=pulsarish.InitialPosition.Earliest
        ).close()
        self._producer = client.create_producer(
            topic,
            producer_name="chaos",
            max_pending_messages=window,
            block_if_queue_full=True,
            batching_enabled=True,
            batching_max_publish_delay_ms=10,
            send_timeout_millis=send_timeout_ms,
        )
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
        """Send ``messages``, and more until the fault has come to its end; returns when every one
        has its outcome.

        ``reached`` is set at the ``fault_at``-th acknowledgement.
        """
        self._fault_at = fault_at
        last = messages
        was_over = False
        while True:
            if not was_over and fault_is_over():
                was_over = True
                last = max(last, self.history.sent + _AFTER_FAULT)
            if was_over and self.history.sent >= last:
                break
            self._pace(
                rate
                if at_full_speed or self.history.sent < messages
                else min(rate or _AFTERWARDS_PER_SECOND, _AFTERWARDS_PER_SECOND)
            )
            self._send()
        self._producer.flush()
        self._producer.close()

    def _pace(self, rate: float | None) -> None:
        """Sleep until the next message is due; never hurry to catch up what a blocked send has
        missed.
        """
        if rate is None:
            return
        self._due = max(self._due + 1 / rate, self.elapsed() - _LATE_SECONDS)
        if (early := self._due - self.elapsed()) > _NAP_SECONDS:
            time.sleep(early)

    def _send(self) -> None:
        number = self.history.send()

        def done(result: object, _message_id: object) -> None:
            if result == pulsarish.Result.Ok:
                self.history.acked(number)
                self.ack_seconds.append(self.elapsed())
                if len(self.ack_seconds) == self._fault_at:
                    self.reached.set()
            else:
                self.history.failed(number, getattr(result, "name", str(result)))

        key = f"key-{number % self._keys}" if self._keys else None
        self._producer.send_async(b"%d" % number, done, partition_key=key)


class Reading:
    """Readers of all partitions, from the earliest message on.

    They stay open, so that a reading may stop and go on.
    """

    def __init__(self, client: pulsarish.Client, topic: str, history: History) -> None:
        self._history = history
        self._readers = [
            client.create_reader(name, pulsarish.MessageId.earliest)
            for name in client.get_topic_partitions(topic)
        ]
        history.begin_reading()

    def read(self, *, silence_seconds: float, wait_for_all: bool) -> None:
        """Read on, to the end of each partition, or until nothing came for so long.

        ``wait_for_all``: the end is where the reader says that there is nothing more; otherwise
        only silence is an end.
        """
        for partition, reader in enumerate(self._readers):
            for message in _messages(reader, silence_seconds, wait_for_all):
                key = message.partition_key() if message.has_partition_key() else ""
                self._history.received(
                    int(message.data()), _place(partition, message.message_id()), key
                )

    def close(self) -> None:
        for reader in self._readers:
            reader.close()


def _messages(
    reader: pulsarish.Reader, silence_seconds: float, wait_for_all: bool
) -> Iterator[pulsarish.Message]:
    while not wait_for_all or reader.has_message_available():
        try:
            yield reader.read_next(timeout_millis=int(silence_seconds * 1_000))
        except pulsarish.Timeout:
            return


def _place(partition: int, message_id: pulsarish.MessageId) -> EntryId:
    return partition, message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()
