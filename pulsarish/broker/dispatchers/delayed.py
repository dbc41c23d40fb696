"""Delayed entries: which, and when they are due.

The entries that came last, and those that are due soon, are numbers in memory. The others are in
buckets (``delay_bucket.py``), most of which are in ledgers. Reading from the log again skips what
is in a bucket, and finds everything else.

Times are rounded up to a tick, so that no entry is early and many are due together. At a limit of
entries in memory nothing more is read ahead.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from pulsarish.broker.dispatchers.delay_bucket import (
    ENTRY_BYTES,
    POSITION_MASK,
    Bucket,
    EntryBits,
    due_of,
    pack,
    position_of,
)
from pulsarish.model.position import EARLIEST, Position

__all__ = ["DELAYS_OVER", "DelayedEntries"]

DELAYS_OVER: Final = 1 << 62
"""A time at which everything is due."""
_SOON_TICKS: Final = 20  # entries that are due within this number of ticks go into no bucket
_SEALED_MAX: Final = 4  # entries of a new bucket, as a multiple of the fewest
_FULL_BYTE: Final = b"\xff"
_NOT_FULL: Final = re.compile(rb"[^\xff]")


class DelayedEntries:
    """The delayed entries of one subscription, by the time at which they are due."""

    def __init__(self, entries_max: int) -> None:
        self.tick_ms = 1
        self.entries_max = entries_max
        """The greatest number of entries that only memory has."""
        self.buckets: list[Bucket] = []
        self._heap: list[int] = []
        self._tried_ms = DELAYS_OVER  # when there were too few entries for a new bucket
        self._last = EARLIEST  # the highest position in a bucket
        # the bits of all buckets for the ledger of the log that was asked for last
        self._bits: tuple[int, int, bytes] = (-1, 0, b"")

    def __len__(self) -> int:
        count = len(self._heap)
        return count + sum([bucket.left for bucket in self.buckets]) if self.buckets else count

    @property
    def in_memory(self) -> int:
        """How many entries only memory has."""
        return len(self._heap) + sum([bucket.in_memory for bucket in self.buckets])

    @property
    def size_bytes(self) -> int:
        """About what the entries take in memory."""
        return len(self._heap) * ENTRY_BYTES + sum([each.size_bytes for each in self.buckets])

    @property
    def is_full(self) -> bool:
        return self.in_memory >= self.entries_max

    @property
    def next_due_ms(self) -> int | None:
        """When the first entry is due (wall clock); ``None`` when there is none."""
        found = [bucket.next_due_ms for bucket in self.buckets]
        if self._heap:
            found.append(due_of(self._heap[0]))
        return min([due_ms for due_ms in found if due_ms is not None], default=None)

    @property
    def next_ready_ms(self) -> int | None:
        """When the first entry is due that need not wait for loading; ``None``: there is none."""
        found = [bucket.next_due_ms for bucket in self.buckets if not _waits(bucket)]
        if self._heap:
            found.append(due_of(self._heap[0]))
        return min([due_ms for due_ms in found if due_ms is not None], default=None)

    def add(self, position: Position, due_ms: int) -> None:
        """Add an entry that is due at a time (wall clock) and is in no bucket."""
        tick = self.tick_ms
        heapq.heappush(self._heap, pack(-(-due_ms // tick) * tick, position))

    def take_due(self, now_ms: int, count_max: int) -> list[Position]:
        """Remove and return the next entries that are due, without those that must be loaded."""
        taken: list[Position] = []
        heap = self._heap
        heads = [
            (head, number)
            for number, bucket in enumerate(self.buckets)
            if (head := bucket.head) is not None and due_of(head) <= now_ms
        ]
        heapq.heapify(heads)
        while len(taken) < count_max:
            if heads and not (heap and heap[0] < heads[0][0]):
                packed, number = heads[0]
                bucket = self.buckets[number]
                bucket.take()
                head = bucket.head
                if head is not None and due_of(head) <= now_ms:
                    heapq.heapreplace(heads, (head, number))
                else:
                    heapq.heappop(heads)
                taken.append(position_of(packed))
            elif heap and due_of(heap[0]) <= now_ms:
                taken.append(position_of(heapq.heappop(heap)))
            else:
                break
        return taken

    def drop_through(self, position: Position) -> None:
        """Drop the entries up to this position: they need no delivery any more.

        Buckets still return some of them.
        """
        if self._heap:
            self._heap = [each for each in self._heap if position_of(each) > position]
            heapq.heapify(self._heap)
        if self.buckets:
            self._use([bucket for bucket in self.buckets if bucket.last > position])
            for bucket in self.buckets:
                bucket.drop_through(position)

    def rewind(self, position: Position) -> None:
        """Begin again from a position: entries in no bucket are read again, and buckets return all
        of theirs again.
        """
        self._heap.clear()
        self._tried_ms = DELAYS_OVER
        if self.buckets:
            self._use([bucket for bucket in self.buckets if bucket.last >= position])
            for bucket in self.buckets:
                bucket.rewind(position)

    # -- buckets

    def may_seal(self, now_ms: int, entries_min: int) -> bool:
        """Return whether to look for enough entries for a bucket, which takes time."""
        return (
            len(self._heap) >= entries_min
            and now_ms < DELAYS_OVER
            and not self._tried_ms <= now_ms < self._tried_ms + self._soon_ms // 2
        )

    @property
    def _soon_ms(self) -> int:
        return _SOON_TICKS * self.tick_ms

    def seal(self, now_ms: int, entries_min: int, segment_entries: int) -> Bucket | None:
        """Move entries that are not due soon into a new bucket, if there are enough of them."""
        entries = sorted(self._heap)
        first = bisect_right(entries, now_ms + self._soon_ms, key=due_of)
        end = min(len(entries), first + _SEALED_MAX * entries_min)
        if end - first < max(1, entries_min // 2):
            self._tried_ms = now_ms
            return None
        bucket = Bucket.of(entries[first:end], segment_entries)
        self._heap = entries[:first] + entries[end:]  # in order, so it is a heap
        self._use([*self.buckets, bucket])
        return bucket

    def adopt(self, buckets: Iterable[Bucket]) -> None:
        """Take the stored buckets, before anything is read."""
        self._use([*self.buckets, *buckets])

    def remove(self, *removed: Bucket) -> None:
        """Forget buckets. Their entries are read when reading begins again."""
        self._use([bucket for bucket in self.buckets if bucket not in removed])

    def passed(self, position: Position) -> list[Bucket]:
        """Return the buckets that reading has passed, at this position.

        Only these may be merged, or removed once nothing is left: before, reading would find
        entries that were taken from them.
        """
        return [bucket for bucket in self.buckets if bucket.last < position]

    def merge(
        self,
        parts: Sequence[tuple[Bucket, int, list[int]]],
        bits: EntryBits,
        segment_entries: int,
    ) -> None:
        """Replace stored buckets by one in memory, made of what is left of each.

        Args:
            parts: buckets, each with its entries from a number on, at most the number taken.
            bits: of these entries.
        """
        entries: list[int] = []
        for bucket, first, loaded in parts:
            assert first <= bucket.taken
            bits.remove(loaded[: bucket.taken - first])
            entries += loaded[bucket.taken - first :]
        entries.sort()
        merged = [bucket for bucket, _, _ in parts]
        kept = [bucket for bucket in self.buckets if bucket not in merged]
        if entries:
            made = Bucket.of(entries, segment_entries, bits)
            made.replaces = tuple(bucket.ledger_id for bucket in merged)
            kept.append(made)
        self._use(kept)

    def _use(self, buckets: list[Bucket]) -> None:
        self.buckets = buckets
        self._last = max([bucket.last for bucket in buckets], default=EARLIEST)
        self._bits = (-1, 0, b"")

    # -- which entries are in buckets

    def reaches(self, position: Position) -> bool:
        """Return whether a bucket holds this entry or later ones."""
        return bool(self.buckets) and position <= self._last

    def holds(self, position: Position) -> bool:
        """Return whether an entry is in a bucket."""
        first_byte, bits = self._bits_for(position.ledger_id)
        byte = (position.entry_id >> 3) - first_byte
        return 0 <= byte < len(bits) and bool(bits[byte] >> (position.entry_id & 7) & 1)

    def next_to_read(self, position: Position) -> Position:
        """Return the first position from this one on that is in no bucket.

        It may lie behind the end of its ledger.
        """
        if not self.reaches(position):
            return position
        ledger_id, entry_id = position
        first_byte, bits = self._bits_for(ledger_id)
        byte = (entry_id >> 3) - first_byte
        if not 0 <= byte < len(bits):
            return position
        value = bits[byte] | ((1 << (entry_id & 7)) - 1)  # those before do not matter
        if value == 0xFF:
            found = _NOT_FULL.search(bits, byte + 1)
            byte = len(bits) if found is None else found.start()
            value = bits[byte] if found is not None else 0
        return Position(ledger_id, 8 * (first_byte + byte) + (~value & -~value).bit_length() - 1)

    def read_length(self, position: Position, entries_max: int) -> int:
        """Return how many entries to read from a position on, up to a run that is in buckets."""
        if not self.reaches(position):
            return entries_max
        first_byte, bits = self._bits_for(position.ledger_id)
        byte = max(0, (position.entry_id >> 3) + 1 - first_byte)
        end = max(0, ((position.entry_id + entries_max) >> 3) - first_byte)
        found = bits.find(_FULL_BYTE, byte, end)
        return entries_max if found < 0 else 8 * (first_byte + found) - position.entry_id

    def not_in_memory(self, positions: Iterable[Position]) -> list[Position]:
        """Return those of the entries that are not delayed in memory, outside of buckets."""
        delayed = {packed & POSITION_MASK for packed in self._heap}
        return [each for each in positions if pack(0, each) not in delayed]

    def due_times(self, positions: Iterable[Position]) -> dict[Position, int]:
        """Return those of the entries that are delayed, and when they are due (wall clock).

        Of an entry whose time only a ledger has: when the next entry of its bucket is due.
        """
        found: dict[Position, int] = {}
        wanted = {pack(0, position): position for position in positions}
        for packed in self._heap:
            if (position := wanted.get(packed & POSITION_MASK)) is not None:
                found[position] = due_of(packed)
        for position in wanted.values():
            if position not in found and self.reaches(position) and self.holds(position):
                due_ms = [each.due_ms(position) for each in self.buckets]
                known = [each for each in due_ms if each is not None]
                if known:
                    found[position] = min(known)
        return found

    def _bits_for(self, ledger_id: int) -> tuple[int, bytes]:
        if self._bits[0] != ledger_id:
            parts = [bucket.bits(ledger_id) for bucket in self.buckets]
            found = [part for part in parts if part is not None]
            first = min([first_byte for first_byte, _ in found], default=0)
            end = max([first_byte + len(bits) for first_byte, bits in found], default=0)
            union = 0
            for first_byte, bits in found:
                union |= int.from_bytes(bits, "little") << 8 * (first_byte - first)
            self._bits = (ledger_id, first, union.to_bytes(end - first, "little"))
        return self._bits[1:]

    def check(self) -> None:
        for bucket in self.buckets:
            bucket.check()


def _waits(bucket: Bucket) -> bool:
    """Return whether the bucket's next entry must be loaded, and is being loaded."""
    return bucket.is_loading and bucket.head is None
