"""When acknowledgements are sent, and sent again: the shell of
``client/connection/ack_tracker.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pulsarish.client.connection.ack_tracker import AckBatch, AckTracker
from pulsarish.client.connection.consume_stream import ConsumeStream
from pulsarish.client.connection.timers import Timer
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.seams import Clock

__all__ = ["ACK_GROUP_MAX", "AckSender"]

_GROUP_SECONDS: Final = 0.1
"""How long acknowledgements wait for others, as in Apache Pulsar's clients."""
ACK_GROUP_MAX: Final = 1_000
"""This many acknowledgements are sent at once."""


class AckSender:
    """Send acknowledgements by count and by time.

    Args:
        alarm: rings when ``take_due`` has something to send.
        means_gone: whether an answer says only that no broker serves the consumer at the moment.
    """

    def __init__(
        self,
        acks: AckTracker,
        inbox: MessageQueue,
        clock: Clock,
        alarm: Timer,
        means_gone: Callable[[PulsarishError], bool],
    ) -> None:
        self._acks = acks
        self._inbox = inbox
        self._clock = clock
        self._alarm = alarm
        self._means_gone = means_gone
        self._since: float | None = None  # when the first waiting one was added

    def take_due(self, now: float, *, connected: bool) -> AckBatch | None:
        """Return what is due; the caller holds the queue's lock.

        Without a connection acknowledgements wait for the next one.
        """
        if not self._acks.is_waiting:
            self._since = None
        elif connected:
            if self._since is None:
                self._since = now
            if self._acks.is_full or now - self._since >= _GROUP_SECONDS:
                self._since = None
                return self._acks.take()
        return None

    def set_alarm(self) -> None:
        """Set the timer, only while connected: a time in the past would ring without end."""
        if self._since is not None:
            self._alarm.set(self._since + _GROUP_SECONDS)

    def send(self, stream: ConsumeStream, consumer_id: int, batch: AckBatch) -> None:
        def answered(error: PulsarishError | None) -> None:
            with self._inbox.lock:
                if error is not None and self._means_gone(error):
                    self._acks.again(batch)
                    self._since = self._clock.monotonic()
                    waiters = []
                else:
                    waiters = self._acks.answered(batch)
            if not waiters:
                self._alarm.set(self._clock.monotonic() + _GROUP_SECONDS)
            for done in waiters:
                done(error)

        stream.acknowledge_batch(consumer_id, batch, answered if batch.waiters else None)

    def end(self, error: PulsarishError) -> None:
        """Fail the callers that still wait."""
        self._alarm.cancel()
        with self._inbox.lock:
            waiters = self._acks.end()
        for done in waiters:
            done(error)
