"""The look-ahead of a shared subscription that delivers by priority: which entries were read and
wait, by priority.

An entry waits by its position; its payload is read again when it is its turn. Only the payloads of
the last reads are kept, so that consumers that keep up cost no second read. Entries to be
redelivered, and delayed ones that are due, come without their priority: they are *unsorted* until a
read has shown it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from pulsarish.model.position import Position
from pulsarish.wire.entry import PRIORITIES, stored_priority

__all__ = ["PriorityWindow", "pop_run"]

_UNSORTED: Final = -1
_KEPT_READS: Final = 2
"""Payloads are kept of this many full reads."""
_STEPS: Final = 4
"""The window is filled again when this part of it, or a full read, has room."""
_SPARSE_MAX: Final = 16
"""Entries that a read may bring for each one that is wanted."""


def pop_run(heap: list[Position], entries_max: int, sparse_max: int) -> list[Position]:
    """Remove and return the first positions of a heap that one read brings.

    Args:
        entries_max: the most entries of the read.
        sparse_max: entries that the read may bring for each one that is wanted.
    """
    first = heapq.heappop(heap)
    run = [first]
    while heap and heap[0].ledger_id == first.ledger_id:
        span = heap[0].entry_id - first.entry_id + 1
        if span > min(entries_max, (len(run) + 1) * sparse_max):
            break
        run.append(heapq.heappop(heap))
    return run


class _Entry(Protocol):
    """What the window needs of an entry that was read."""

    @property
    def position(self) -> Position: ...
    @property
    def payload(self) -> bytes | memoryview: ...
    @property
    def messages(self) -> int: ...
    @property
    def expires_ms(self) -> int: ...


E = TypeVar("E", bound=_Entry)


class PriorityWindow(Generic[E]):
    """What one subscription has read ahead and not delivered.

    Args:
        read_entries_max: the most entries of one read.
        read_bytes_max: the most bytes of one read.
    """

    def __init__(self, read_entries_max: int, read_bytes_max: int) -> None:
        self.entries_max = 0
        """At this number of waiting entries nothing new is read ahead."""
        self._read_entries_max = read_entries_max
        self._read_bytes_max = read_bytes_max
        self._waiting: dict[Position, int] = {}  # with their priorities
        self._unsorted: list[Position] = []  # a heap
        self._sorted: tuple[list[Position], ...] = tuple([] for _ in range(PRIORITIES))  # heaps
        self._kept: dict[Position, E] = {}
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def positions(self) -> Iterable[Position]:
        return self._waiting.keys()

    @property
    def unsorted_count(self) -> int:
        return len(self._unsorted)

    @property
    def has_sorted(self) -> bool:
        return len(self._waiting) > len(self._unsorted)

    @property
    def has_room(self) -> bool:
        """Whether a read of ``step`` new entries fits in."""
        return len(self._waiting) + self.step <= self.entries_max

    @property
    def step(self) -> int:
        """The most new entries to read ahead at once."""
        return max(1, min(self._read_entries_max, self.entries_max // _STEPS))

    def counts(self) -> dict[int, int]:
        """Return how many entries wait, by priority, the highest first. Unsorted ones are not
        among them.
        """
        return {
            priority: len(heap)
            for priority, heap in reversed(list(enumerate(self._sorted)))
            if heap
        }

    # -- what comes in

    def add_unsorted(self, positions: Iterable[Position]) -> None:
        """Let entries wait whose priority is not known. Those that wait already stay so."""
        for position in positions:
            if position not in self._waiting:
                self._waiting[position] = _UNSORTED
                heapq.heappush(self._unsorted, position)

    def add(self, entries: Sequence[E]) -> None:
        """Let entries wait that were just read."""
        size_bytes = sum(len(entry.payload) for entry in entries)
        if (
            len(self._kept) + len(entries) > _KEPT_READS * self._read_entries_max
            or self._kept_bytes + size_bytes > _KEPT_READS * self._read_bytes_max
        ):
            self.forget_payloads()
        for entry in entries:
            position = entry.position
            if position not in self._waiting:
                self._put(position, stored_priority(entry.payload))
                self._kept[position] = entry
                self._kept_bytes += len(entry.payload)

    def put_back(self, positions: Iterable[Position], priority: int) -> None:
        """Let entries wait again that were taken for a read, with the priority they had."""
        for position in positions:
            if position not in self._waiting:
                self._put(position, priority)

    def _put(self, position: Position, priority: int) -> None:
        self._waiting[position] = priority
        heapq.heappush(self._sorted[priority], position)

    # -- what goes out

    def take_unsorted(self, entries_max: int) -> list[Position]:
        """Remove and return the unsorted entries that the next read is to bring, in log order."""
        run = pop_run(self._unsorted, entries_max, _SPARSE_MAX)
        for position in run:
            del self._waiting[position]
        return run

    def take_first(self, entries_max: int) -> tuple[list[Position], int]:
        """Remove and return the entries that are next by priority and must be read, and their
        priority.

        Nothing is returned when the payload of the first one is kept, or nothing waits.
        """
        priority = self._highest()
        if priority == _UNSORTED or self._sorted[priority][0] in self._kept:
            return [], priority
        run = pop_run(self._sorted[priority], entries_max, _SPARSE_MAX)
        for position in run:
            del self._waiting[position]
            self.forget(position)
        return run, priority

    def take_kept(self, messages_max: int, is_done: Callable[[Position], bool]) -> list[E]:
        """Remove and return the entries that are next by priority, as far as their payloads are
        kept, up to ``messages_max`` messages. The last entry may exceed it.

        Args:
            is_done: whether an entry needs no delivery any more; such ones are dropped.
        """
        taken: list[E] = []
        while messages_max > 0 and (priority := self._highest()) != _UNSORTED:
            heap = self._sorted[priority]
            entry = self._kept.get(heap[0])
            if entry is None:
                break
            heapq.heappop(heap)
            del self._waiting[entry.position]
            self.forget(entry.position)
            if not is_done(entry.position):
                taken.append(entry)
                messages_max -= entry.messages
        return taken

    def _highest(self) -> int:
        """Return the highest priority that an entry waits with; ``_UNSORTED``: none does."""
        for priority in range(PRIORITIES - 1, -1, -1):
            if self._sorted[priority]:
                return priority
        return _UNSORTED

    def forget(self, position: Position) -> None:
        """Forget a payload: the entry is read again when it is its turn."""
        entry = self._kept.pop(position, None)
        if entry is not None:
            self._kept_bytes -= len(entry.payload)

    def forget_payloads(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0

    def take_expired(self, is_expired: Callable[[E], bool]) -> list[Position]:
        """Remove and return those of the kept entries that have expired."""
        expired = [position for position, entry in self._kept.items() if is_expired(entry)]
        self.drop(expired)
        return expired

    def first_expiry_ms(self) -> int:
        """Return when the first kept entry expires (wall clock); 0: none does."""
        return min((each.expires_ms for each in self._kept.values() if each.expires_ms), default=0)

    def drop(self, positions: Iterable[Position]) -> None:
        """Drop entries that need no delivery any more."""
        gone = self._waiting.keys() & set(positions)
        if not gone:
            return
        for position in gone:
            del self._waiting[position]
            self.forget(position)
        for heap in (self._unsorted, *self._sorted):
            if not gone.isdisjoint(heap):
                heap[:] = [position for position in heap if position not in gone]
                heapq.heapify(heap)

    def drop_through(self, last: Position) -> None:
        """Drop everything up to and including ``last``."""
        self.drop([position for position in self._waiting if position <= last])

    def clear(self) -> None:
        self._waiting.clear()
        self._unsorted.clear()
        for heap in self._sorted:
            heap.clear()
        self.forget_payloads()

    def check(self) -> None:
        assert len(self._waiting) == len(self._unsorted) + sum(len(heap) for heap in self._sorted)
        assert all(self._waiting[position] == _UNSORTED for position in self._unsorted)
        for priority, heap in enumerate(self._sorted):
            assert all(self._waiting[position] == priority for position in heap)
        assert self._kept.keys() <= self._waiting.keys()
        assert self._kept_bytes == sum(len(entry.payload) for entry in self._kept.values())
        assert len(self._kept) <= max(_KEPT_READS * self._read_entries_max, 1)
