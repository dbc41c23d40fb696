"""What a subscription has acknowledged: everything up to the mark (the mark-delete position), and
ranges and batch indexes above it.

Acknowledging in order costs one comparison; out of order, one binary search. Nothing is ever
dropped here to save space (rule 16): the owner checks ``hole_count`` and stops dispatching instead.
A range lies within one ledger. Only the log knows that the last entry of one ledger is followed by
the first of the next; ``successor`` asks it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from pulsarish.model.errors import InvalidArgument
from pulsarish.model.position import Position

__all__ = ["AckRanges", "AckedRange"]


class AckedRange(NamedTuple):
    """Acknowledged entries of one ledger, both ends included."""

    ledger_id: int
    first_entry: int
    last_entry: int


class AckRanges:
    """The acknowledgements of one cursor.

    ``successor(p)`` returns the position that follows p in the log, whether it is written yet or
    not.
    """

    __slots__ = ("_batches", "_firsts", "_lasts", "_successor", "batch_bits", "entry_count", "mark")

    def __init__(self, mark: Position, successor: Callable[[Position], Position]) -> None:
        self.mark = mark
        self.entry_count = 0  # entries in ranges, above the mark
        self.batch_bits = 0  # the size of the kept index sets, in bits
        self._successor = successor
        self._firsts: list[Position] = []
        self._lasts: list[Position] = []
        # partly acknowledged batches: the remaining indexes, as bits
        self._batches: dict[Position, int] = {}

    @property
    def hole_count(self) -> int:
        """The number of separate items above the mark: ranges and partly acknowledged batches."""
        return len(self._firsts) + len(self._batches)

    def contains(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""
        if position <= self.mark:
            return True
        index = bisect_right(self._firsts, position) - 1
        return index >= 0 and position <= self._lasts[index]

    def remaining(self, position: Position) -> int | None:
        """Return the unacknowledged indexes of a partly acknowledged batch, as bits; ``None`` for
        any other entry.
        """
        return self._batches.get(position)

    def ranges(self) -> Iterator[AckedRange]:
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield AckedRange(first.ledger_id, first.entry_id, last.entry_id)

    def batches(self) -> Iterator[tuple[Position, int]]:
        """Yield the partly acknowledged batches in the order of the log."""
        for position in sorted(self._batches):
            yield position, self._batches[position]

    def add(self, position: Position) -> bool:
        """Acknowledge one entry; ``False`` when it was acknowledged before."""
        mark = self.mark
        if position.ledger_id == mark.ledger_id and position.entry_id == mark.entry_id + 1:
            self.mark = position
            if self._batches:
                self._drop_batch(position)
            if self._firsts:
                self._absorb()
            return True
        return self.add_range(position.ledger_id, position.entry_id, position.entry_id) > 0

    def add_range(self, ledger_id: int, first_entry: int, last_entry: int) -> int:
        """Acknowledge entries of one ledger, both ends included.

        Return how many were not acknowledged before.
        """
        assert 0 <= first_entry <= last_entry
        first, last = Position(ledger_id, first_entry), Position(ledger_id, last_entry)
        if last <= self.mark:
            return 0
        if first <= self.mark:
            first = Position(ledger_id, self.mark.entry_id + 1)
        firsts, lasts = self._firsts, self._lasts
        # The ranges from ``low`` up to ``high`` touch or overlap the new one. They are merged with
        # it.
        low = bisect_right(lasts, Position(ledger_id, first.entry_id - 2))
        high = bisect_right(firsts, Position(ledger_id, last.entry_id + 1))
        new = last.entry_id - first.entry_id + 1
        if low < high:
            for index in range(low, high):
                overlap = (
                    min(lasts[index].entry_id, last.entry_id)
                    - max(firsts[index].entry_id, first.entry_id)
                    + 1
                )
                new -= max(0, overlap)
            if new == 0:
                return 0
            firsts[low:high] = [min(firsts[low], first)]
            lasts[low:high] = [max(lasts[high - 1], last)]
        else:
            firsts.insert(low, first)
            lasts.insert(low, last)
        self.entry_count += new
        if self._batches:
            self._drop_batches(first, last)
        if low == 0:
            self._absorb()
        return new

    def add_indexes(self, position: Position, batch_size: int, indexes: Iterable[int]) -> bool:
        """Acknowledge some messages of a batch.

        The last one acknowledges the entry. ``False`` when all were acknowledged before.

        Raises ``InvalidArgument`` for an index outside ``0..batch_size - 1``.
        """
        if batch_size < 1:
            raise InvalidArgument(f"a batch has at least one message, not {batch_size}")
        done = 0
        for index in indexes:
            if not 0 <= index < batch_size:
                raise InvalidArgument(
                    f"batch index {index} is outside 0..{batch_size - 1} of entry {position}"
                )
            done |= 1 << index
        if self.contains(position):
            return False
        before = self._batches.get(position, (1 << batch_size) - 1)
        after = before & ~done
        if after == before:
            return False
        if after == 0:
            return self.add(position)
        self.set_remaining(position, after)
        return True

    def set_remaining(self, position: Position, remaining: int) -> None:
        """Limit the unacknowledged indexes of a batch to these.

        Never makes an acknowledged index unacknowledged.
        """
        assert remaining > 0
        if self.contains(position):
            return
        remaining &= self._batches.get(position, remaining)
        if remaining == 0:
            self.add(position)
            return
        self._drop_batch(position)
        self._batches[position] = remaining
        self.batch_bits += remaining.bit_length()

    def advance(self, position: Position) -> bool:
        """Acknowledge everything up to ``position``; ``False`` when the mark is already there or
        beyond.
        """
        if position <= self.mark:
            return False
        self.mark = position
        self._drop_batches_to_mark()
        if self._firsts:
            covered = bisect_right(self._firsts, position)
            if covered and self._lasts[covered - 1] > position:
                self.mark = self._lasts[covered - 1]
            self._forget_first(covered)
            self._absorb()
        return True

    def reset(self, mark: Position) -> None:
        """Move the mark anywhere. Everything above it is to be delivered again."""
        self.mark = mark
        self.entry_count = 0
        self.batch_bits = 0
        self._firsts.clear()
        self._lasts.clear()
        self._batches.clear()

    def _absorb(self) -> None:
        """Move the mark over the ranges that now follow it."""
        count = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            if first != self._successor(self.mark):
                break
            self.mark = last
            count += 1
        if count:
            self._forget_first(count)
            # Stored acknowledgements are older than the log: a ledger with a partly acknowledged
            # batch may be trimmed by now, and then the mark runs over it.
            self._drop_batches_to_mark()

    def _forget_first(self, count: int) -> None:
        if count:
            for first, last in zip(self._firsts[:count], self._lasts[:count], strict=True):
                self.entry_count -= last.entry_id - first.entry_id + 1
            del self._firsts[:count]
            del self._lasts[:count]

    def _drop_batch(self, position: Position) -> None:
        remaining = self._batches.pop(position, None)
        if remaining is not None:
            self.batch_bits -= remaining.bit_length()

    def _drop_batches_to_mark(self) -> None:
        if self._batches:
            for done in [found for found in self._batches if found <= self.mark]:
                self._drop_batch(done)

    def _drop_batches(self, first: Position, last: Position) -> None:
        if first == last:
            self._drop_batch(first)
            return
        for done in [found for found in self._batches if first <= found <= last]:
            self._drop_batch(done)

    def check(self) -> None:
        """Assert that ranges are sorted, separate, above the mark, and that the counts are
        right.
        """
        assert len(self._firsts) == len(self._lasts)
        for first, last in zip(self._firsts, self._lasts, strict=True):
            assert first.ledger_id == last.ledger_id
            assert 0 <= first.entry_id <= last.entry_id
        for before, after in pairwise(zip(self._firsts, self._lasts, strict=True)):
            assert before[1] < after[0]
            assert Position(before[1].ledger_id, before[1].entry_id + 1) != after[0], (
                "two ranges that touch are one"
            )
        if self._firsts:
            assert self._firsts[0] > self.mark
            assert self._firsts[0] != self._successor(self.mark), (
                "the mark must have run over the first range"
            )
        assert self.entry_count == sum(
            found.last_entry - found.first_entry + 1 for found in self.ranges()
        )
        assert self.batch_bits == sum(
            remaining.bit_length() for remaining in self._batches.values()
        )
        for position, remaining in self._batches.items():
            assert remaining > 0
            assert not self.contains(position), "an acknowledged entry keeps no indexes"
