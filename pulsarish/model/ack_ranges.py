"""What a subscription has acknowledged: everything up to the mark (the mark-delete position), and
ranges and batch indexes above it.

Acknowledging in order costs one comparison; out of order, setting a bit. Nothing is ever dropped
here to save space (rule 16): the owner checks ``hole_count`` and ``memory_bytes``, and stops
dispatching instead. A range lies within one ledger. Only the log knows that the last entry of one
ledger is followed by the first of the next; ``successor`` asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from pulsarish.model.entry_set import BITMAP_BYTES, EntrySet, StoredSet
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.position import Position

__all__ = ["AckRanges", "AckedRange"]

# what a ledger's set and a partly acknowledged batch take in memory, beside their bits
_LEDGER_BYTES: Final = 512
_BATCH_BYTES: Final = 320
_NOTHING: Final = 0, 0, 0  # the size of an empty set


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

    __slots__ = (
        "_batches",
        "_bitmaps",
        "_member",
        "_sets",
        "_successor",
        "batch_bits",
        "batch_messages",
        "entry_count",
        "mark",
        "range_count",
    )

    def __init__(self, mark: Position, successor: Callable[[Position], Position]) -> None:
        self.mark = mark
        self.entry_count = 0  # entries in ranges, above the mark
        self.range_count = 0
        self.batch_bits = 0  # the size of the kept index sets, in bits
        self.batch_messages = 0  # what is left of partly acknowledged batches
        self._successor = successor
        self._bitmaps = 0
        self._sets: dict[int, EntrySet] = {}  # by ledger; none is empty, none reaches the mark
        # One of the ranges' entries, if it is known: what is above it does not follow the mark.
        self._member: Position | None = None
        # partly acknowledged batches: the remaining indexes, as bits
        self._batches: dict[Position, int] = {}

    @property
    def hole_count(self) -> int:
        """The number of separate items above the mark: ranges and partly acknowledged batches."""
        return self.range_count + len(self._batches)

    @property
    def batch_count(self) -> int:
        """The number of partly acknowledged batches."""
        return len(self._batches)

    @property
    def memory_bytes(self) -> int:
        """About what the ranges and batches take in memory."""
        return (
            self._bitmaps * BITMAP_BYTES
            + len(self._sets) * _LEDGER_BYTES
            + len(self._batches) * _BATCH_BYTES
            + self.batch_bits // 8
        )

    @property
    def highest(self) -> Position:
        """The highest acknowledged entry. Costs a step for each bitmap of its ledger."""
        if not self._sets:
            return self.mark
        ledger_id = max(self._sets)
        return Position(ledger_id, self._sets[ledger_id].last)

    def contains(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""
        if position <= self.mark:
            return True
        found = self._sets.get(position.ledger_id)
        return found is not None and position.entry_id in found

    def remaining(self, position: Position) -> int | None:
        """Return the unacknowledged indexes of a partly acknowledged batch, as bits; ``None`` for
        any other entry.
        """
        return self._batches.get(position)

    def ranges(self) -> Iterator[AckedRange]:
        """Yield the ranges in the order of the log."""
        for ledger_id in sorted(self._sets):
            for first, last in self._sets[ledger_id].ranges():
                yield AckedRange(ledger_id, first, last)

    def gaps(self, ledger_id: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the runs of unacknowledged entries from ``first``, which lies above the mark, to
        ``last`` of a ledger.
        """
        found = self._sets.get(ledger_id)
        return iter(((first, last),)) if found is None else found.gaps(first, last)

    def gap_count(self, ledger_id: int, first: int, last: int) -> int:
        """Return how many ``gaps`` there are, when no acknowledged entry of the ledger lies outside
        ``first`` to ``last``. Costs no more for many.
        """
        found = self._sets.get(ledger_id)
        return 1 if found is None else found.runs + 1 - (first in found) - (last in found)

    def stored_sets(self) -> Iterator[tuple[int, StoredSet]]:
        """Yield each ledger that has ranges, and them as a stored set."""
        for ledger_id in sorted(self._sets):
            yield ledger_id, self._sets[ledger_id].levels()

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
            if self._sets:
                self._absorb()
            return True
        if position <= mark:
            return False
        found = self._sets.get(position.ledger_id)
        if found is None:
            found = self._sets[position.ledger_id] = EntrySet()
        runs, bitmaps = found.runs, found.bitmaps
        if not found.add(position.entry_id):
            return False
        self.entry_count += 1
        self.range_count += found.runs - runs
        self._bitmaps += found.bitmaps - bitmaps
        if self._batches:
            self._drop_batch(position)
        if self._member is None or position < self._member:
            self._member = position
            self._absorb()
        return True

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
        found = self._sets.setdefault(ledger_id, EntrySet())
        size = found.size
        new = found.add_range(first.entry_id, last.entry_id)
        if not new:
            return 0
        self._grew(size, found.size)
        if self._batches:
            self._drop_batches(first, last)
        if self._member is None or first < self._member:
            self._member = first
            self._absorb()
        return new

    def add_stored_set(self, ledger_id: int, levels: StoredSet) -> None:
        """Acknowledge the entries of one ledger that are in a stored set.

        Raises ``CorruptData`` when it is none.
        """
        found = self._sets.get(ledger_id) or EntrySet()
        size = found.size
        found.merge(levels)
        if ledger_id < self.mark.ledger_id or not found.count:
            return
        self._sets[ledger_id] = found
        self._grew(size, found.size)
        for done in [each for each in self._batches if self.contains(each)]:
            self._drop_batch(done)
        self._run_over()
        self._absorb()

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
        self.batch_messages += remaining.bit_count()

    def advance(self, position: Position) -> bool:
        """Acknowledge everything up to ``position``; ``False`` when the mark is already there or
        beyond.
        """
        if position <= self.mark:
            return False
        self.mark = position
        self._drop_batches_to_mark()
        if self._sets:
            self._run_over()
            self._absorb()
        return True

    def reset(self, mark: Position) -> None:
        """Move the mark anywhere. Everything above it is to be delivered again."""
        self.mark = mark
        self.entry_count = 0
        self.range_count = 0
        self.batch_bits = self.batch_messages = 0
        self._bitmaps = 0
        self._sets.clear()
        self._member = None
        self._batches.clear()

    def _absorb(self) -> None:
        """Move the mark over the ranges that now follow it."""
        moved = False
        while self._sets:
            mark = self.mark
            following = self._successor(mark)
            found = self._sets.get(following.ledger_id)
            last = None if found is None else found.run_end(following.entry_id)
            if found is None or last is None:
                break
            self.mark = Position(following.ledger_id, last)
            moved = True
            if following.ledger_id != mark.ledger_id or following.entry_id != mark.entry_id + 1:
                self._run_over()  # there may be ranges of what the log has no longer
                continue
            size = found.size
            found.drop_first_run(following.entry_id, last)
            self._grew(size, found.size)
            if not found.count:
                del self._sets[following.ledger_id]
        if self._member is not None and self._member <= self.mark:
            self._member = None
        if moved:
            # Stored acknowledgements are older than the log: a ledger with a partly acknowledged
            # batch may be trimmed by now, and then the mark runs over it.
            self._drop_batches_to_mark()

    def _run_over(self) -> None:
        """Move the mark to the end of its range, and forget everything up to it."""
        for ledger_id in [found for found in self._sets if found <= self.mark.ledger_id]:
            found = self._sets[ledger_id]
            size, left = found.size, _NOTHING
            if ledger_id == self.mark.ledger_id:
                last = found.run_end(self.mark.entry_id)
                if last is not None:
                    self.mark = Position(ledger_id, last)
                found.drop_through(self.mark.entry_id)
                left = found.size
            self._grew(size, left)
            if left == _NOTHING:
                del self._sets[ledger_id]

    def _grew(self, before: tuple[int, int, int], after: tuple[int, int, int]) -> None:
        """Count the change of one ledger's set."""
        self.entry_count += after[0] - before[0]
        self.range_count += after[1] - before[1]
        self._bitmaps += after[2] - before[2]

    def _drop_batch(self, position: Position) -> None:
        remaining = self._batches.pop(position, None)
        if remaining is not None:
            self.batch_bits -= remaining.bit_length()
            self.batch_messages -= remaining.bit_count()

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
        for found in self._sets.values():
            assert found.count
            found.check()
        ranges = list(self.ranges())
        for before, after in pairwise(ranges):
            assert before.ledger_id < after.ledger_id or before.last_entry + 1 < after.first_entry
        if ranges:
            first = Position(ranges[0].ledger_id, ranges[0].first_entry)
            assert first > self.mark
            assert first != self._successor(self.mark), (
                "the mark must have run over the first range"
            )
        assert self._member is None or (self._member > self.mark and self.contains(self._member))
        assert self.range_count == len(ranges)
        assert self._bitmaps == sum(found.bitmaps for found in self._sets.values())
        assert self.entry_count == sum(found.last_entry - found.first_entry + 1 for found in ranges)
        left = [remaining.bit_count() for remaining in self._batches.values()]
        assert self.batch_messages == sum(left)
        assert self.batch_bits == sum(
            remaining.bit_length() for remaining in self._batches.values()
        )
        for position, remaining in self._batches.items():
            assert remaining > 0
            assert not self.contains(position), "an acknowledged entry keeps no indexes"
