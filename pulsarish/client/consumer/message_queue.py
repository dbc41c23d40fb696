"""Where the messages of a consumer's topics come together for the program."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from pulsarish.client.messages.message import Message
from pulsarish.model.errors import CryptoError, PulsarishError

__all__ = ["MessageQueue"]


class _Source(Protocol):
    def open_next(self) -> bool: ...


class MessageQueue:
    """One lock and one queue of messages for all topics of a consumer.

    ``ready.popleft()`` needs no lock and is the way of most messages; ``take`` cuts further entries when it is empty.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self.lock = lock
        self.ready: deque[Message] = deque()
        self.sources: list[_Source] = []
        self.failure: PulsarishError | None = None
        """Why nothing comes any more."""
        self.unreadable: deque[CryptoError] = deque()
        """Errors for encrypted messages: each is raised once, in its place among the messages."""
        self.arrived: Callable[[], None] = lambda: None
        """Called in the loop when there may be something to take, or a failure."""
        self._turn = 0

    def check_open(self) -> None:
        """Raises why nothing comes any more."""
        if self.failure is not None:
            # One error serves all calls: without this it would collect where each of them was.
            raise self.failure.with_traceback(None)

    def take(self) -> Message | None:
        """The next message, ``None`` when there is none now.

        Raises ``CryptoError`` in place of an encrypted message, once, and why nothing comes any more.
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

    def add_encrypted(self, place: str, error: CryptoError) -> None:
        """Raise ``error`` to the program in place of the message at ``place``. The caller holds the lock."""
        self.unreadable.append(CryptoError(f"{place}: {error}"))

    def has_message(self) -> bool:
        with self.lock:
            return bool(self.ready or self.unreadable) or self._cut() or bool(self.unreadable)

    def _cut(self) -> bool:
        """Cut an entry of the next topic that has one; topics take turns."""
        for _ in range(len(self.sources)):
            self._turn = (self._turn + 1) % len(self.sources)
            if self.sources[self._turn].open_next():
                return True
        return False

    def fail(self, error: PulsarishError) -> None:
        with self.lock:
            if self.failure is None:
                self.failure = error
            # After a close every call says so, and what was refused for good is delivered to somebody else.
            self.ready.clear()
        self.arrived()
