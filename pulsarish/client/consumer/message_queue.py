"""The queue in which the messages of all topics of a consumer wait for the program."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from pulsarish.client.message_log import MessageLog, message_log
from pulsarish.client.messages.message import Message
from pulsarish.client.messages.message_block import Acknowledges
from pulsarish.model.errors import CryptoError, PulsarishError

__all__ = ["MessageQueue"]


class _Source(Protocol):
    def open_next(self) -> bool: ...


class _LoggedQueue(deque[Message]):
    """Logs each message that is taken."""

    def popleft(self) -> Message:
        message = super().popleft()
        MessageLog(message.topic_name()).handed_out(
            message.message_id(), message.sequence_id(), message.producer_name()
        )
        return message


class MessageQueue:
    """One lock and one queue of messages for all topics of a consumer.

    ``ready.popleft()`` needs no lock; most messages take that way. When it is empty, ``take`` opens
    further entries.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self.lock = lock
        self.ready: deque[Message] = deque()
        if message_log("") is not None:
            self.ready = _LoggedQueue()
        self.sources: list[_Source] = []
        self.failure: PulsarishError | None = None
        """Why no more messages come."""
        self.unreadable: deque[CryptoError] = deque()
        """Errors for encrypted messages. Each is raised once, in the message's place."""
        self.arrived: Callable[[], None] = lambda: None
        """Called in the loop when there may be a message, or a failure."""
        self.consumer: Acknowledges | None = None
        """The program's consumer; ``None``: a reader, whose messages nothing acknowledges."""
        self._turn = 0
        self.opened_count = 0
        """Messages that were put into ``ready``; each is taken, waits there, or was dropped."""
        self.opened_bytes = 0
        self.redelivered_count = 0
        self.dropped_count = 0

    @property
    def taken_count(self) -> int:
        return self.opened_count - self.dropped_count - len(self.ready)

    def on_opened(self, messages_count: int, size_bytes: int, *, again: bool) -> None:
        """Count the messages of an entry that are handed out; ``again``: a redelivery."""
        self.opened_count += messages_count
        self.opened_bytes += size_bytes
        if again:
            self.redelivered_count += messages_count

    def on_dropped(self, messages_count: int) -> None:
        """Count messages that left ``ready`` untaken."""
        self.dropped_count += messages_count

    def check_open(self) -> None:
        """Raise why no more messages come, if so."""
        if self.failure is not None:
            # One error object serves all calls: clear its traceback, or it would grow with each of
            # them.
            raise self.failure.with_traceback(None)

    def take(self) -> Message | None:
        """Return the next message, ``None`` when there is none now.

        Raises ``CryptoError`` in place of an encrypted message, once, and the reason when no more
        messages come.
        """
        with self.lock:
            self.check_open()
            if not self.ready and not self.unreadable:
                self._cut()
            if self.ready:
                return self.ready.popleft()
            if self.unreadable:
                raise self.unreadable.popleft()
            return None

    def put_back(self, messages: Sequence[Message]) -> None:
        """Have messages come next that were taken and did not reach the program."""
        with self.lock:
            if self.failure is None:
                self.ready.extendleft(reversed(messages))
        self.arrived()

    def add_encrypted(self, place: str, error: CryptoError) -> None:
        """Raise ``error`` to the program in place of the message at ``place``.

        The caller holds the lock.
        """
        self.unreadable.append(CryptoError(f"{place}: {error}"))

    def has_message(self) -> bool:
        with self.lock:
            return bool(self.ready or self.unreadable) or self._cut() or bool(self.unreadable)

    def _cut(self) -> bool:
        """Open an entry of the next topic that has one; topics take turns."""
        for _ in range(len(self.sources)):
            self._turn = (self._turn + 1) % len(self.sources)
            if self.sources[self._turn].open_next():
                return True
        return False

    def fail(self, error: PulsarishError) -> None:
        with self.lock:
            if self.failure is None:
                self.failure = error
            # After a close every call raises. A message that was finally refused is delivered to
            # another consumer.
            self.dropped_count += len(self.ready)
            self.ready.clear()
        self.arrived()
