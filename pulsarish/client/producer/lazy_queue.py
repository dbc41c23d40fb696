"""The messages of a producer that is opened for its first one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.client.messages.pending_entries import Callback, PendingEntry
from pulsarish.client.producer.send_limits import SendLimits
from pulsarish.client.producer.send_queue import SendQueue
from pulsarish.model.errors import MessageTooBig, PulsarishError

__all__ = ["LazyQueue"]


class _Kept(NamedTuple):
    payload: bytes
    callback: Callback
    extras: Extras | None
    sequence_id: int | None
    deadline: float


class LazyQueue(SendQueue):
    """A send queue that keeps messages as they are until ``release``: an entry has the producer's
    name and the version of its schema, which the broker says when it opens the producer.
    """

    def __init__(self, limits: SendLimits, **parts: Any) -> None:
        super().__init__(limits, **parts)
        self._kept: list[_Kept] = []
        self._flushed: list[Callable[[], None]] = []
        self._is_released = False

    @property
    def is_waiting(self) -> bool:
        return bool(self._kept)

    @property
    def is_filling(self) -> bool:
        return super().is_filling or (self._limits.batching and bool(self._kept))

    def add(
        self,
        payload: bytes,
        callback: Callback,
        extras: Extras | None = None,
        sequence_id: int | None = None,
    ) -> bool:
        if self._is_released:
            return super().add(payload, callback, extras, sequence_id)
        deadline = self._stamp()[0] + self._limits.timeout_seconds
        self._kept.append(_Kept(payload, callback, extras, sequence_id, deadline))
        self.pending_count += 1
        return True

    def release(self) -> Sequence[tuple[PendingEntry, PulsarishError]]:
        if self._is_released:
            return ()
        self._is_released = True
        refused: list[tuple[PendingEntry, PulsarishError]] = []
        kept, self._kept = self._kept, []
        for each in kept:
            self.pending_count -= 1
            try:
                super().add(each.payload, each.callback, each.extras, each.sequence_id)
            except MessageTooBig as error:
                refused.append((_entry_of(each), error))
        self.seal()
        for done in self._flushed:
            super().flush(done)
        self._flushed.clear()
        return refused

    def flush(self, done: Callable[[], None]) -> None:
        if self._kept:
            self._flushed.append(done)
        else:
            super().flush(done)

    def next_deadline(self) -> float | None:
        return self._kept[0].deadline if self._kept else super().next_deadline()

    def expired(self, now: float) -> list[PendingEntry]:
        if not self._kept:
            return super().expired(now)
        return self._take_kept() if self._kept[0].deadline <= now else []

    def end(self) -> list[PendingEntry]:
        return [*self._take_kept(), *super().end()]

    def _take_kept(self) -> list[PendingEntry]:
        """Remove the kept messages, and return them as entries that are to fail."""
        entries = [_entry_of(each) for each in self._kept]
        self.pending_count -= len(entries)
        self._kept.clear()
        if entries:
            entries[-1].flushes = tuple(self._flushed)
            self._flushed.clear()
        return entries


def _entry_of(kept: _Kept) -> PendingEntry:
    return PendingEntry(-1, -1, (kept.callback,), (b"", b""), kept.deadline)
