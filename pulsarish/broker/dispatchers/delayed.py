"""Delayed entries: which, and when they are due.

Kept in memory as one number each; after a loss they are read again.

Times are rounded up to a tick, so that no entry is early and many are due together. At a limit
nothing more is read ahead.
"""

from __future__ import annotations

import heapq
from typing import Final

from pulsarish.model.position import Position

__all__ = ["DELAYS_OVER", "DelayedEntries"]

DELAYS_OVER: Final = 1 << 62
"""A time at which everything is due."""
_ID_BITS: Final = 64
_ID_MASK: Final = (1 << _ID_BITS) - 1


class DelayedEntries:
    """The delayed entries of one subscription, by the time at which they are due."""

    def __init__(self, entries_max: int) -> None:
        self.tick_ms = 1
        self.entries_max = entries_max
        # time, ledger and entry in one number: a tuple would take four times the memory
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def is_full(self) -> bool:
        return len(self._heap) >= self.entries_max

    @property
    def next_due_ms(self) -> int | None:
        """When the first entry is due (wall clock); ``None`` when there is none."""
        return self._heap[0] >> 2 * _ID_BITS if self._heap else None

    def add(self, position: Position, due_ms: int) -> None:
        """Add an entry that is due at a time (wall clock)."""
        tick = self.tick_ms
        due_ms = -(-due_ms // tick) * tick
        heapq.heappush(
            self._heap, due_ms << 2 * _ID_BITS | position.ledger_id << _ID_BITS | position.entry_id
        )

    def take_due(self, now_ms: int, count_max: int) -> list[Position]:
        """Remove and return the next entries that are due."""
        taken: list[Position] = []
        heap = self._heap
        while heap and len(taken) < count_max and heap[0] >> 2 * _ID_BITS <= now_ms:
            taken.append(_position(heapq.heappop(heap)))
        return taken

    def drop_through(self, position: Position) -> None:
        """Drop the entries up to this position: they need no delivery any more."""
        if self._heap:
            self._heap = [each for each in self._heap if _position(each) > position]
            heapq.heapify(self._heap)

    def clear(self) -> None:
        self._heap.clear()


def _position(packed: int) -> Position:
    return Position(packed >> _ID_BITS & _ID_MASK, packed & _ID_MASK)
