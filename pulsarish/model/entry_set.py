"""A set of entry ids of one ledger, in little memory: one bit for each entry where holes are, next
to nothing where there are none.

Ids lie in chunks of 1,024. A chunk without members is not stored, one that is full is a member of
the set ``_full`` of chunk numbers, which is of the same kind, and any other one is a bitmap of 128
bytes. So each stored bitmap has a member and a hole, and a run of a thousand million members takes
a few bitmaps.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from pulsarish.model.errors import CorruptData
from pulsarish.model.position import ID_MAX

__all__ = ["BITMAP_BYTES", "EntrySet", "StoredSet"]

_SHIFT: Final = 10
_SIZE: Final = 1 << _SHIFT
_MASK: Final = _SIZE - 1
_BYTES: Final = _SIZE // 8
_EMPTY: Final = bytes(_BYTES)
_FULL: Final = b"\xff" * _BYTES
_ONES: Final = (1 << _SIZE) - 1
_LEVELS_MAX: Final = 7  # 1,024 to the seventh is beyond every entry id

BITMAP_BYTES: Final = 320
"""What one bitmap takes in memory, with its object and its place in the table."""


StoredSet: TypeAlias = tuple[tuple[tuple[int, bytes], ...], ...]


class EntrySet:
    """The set.

    ``count`` is the number of members, ``runs`` the number of ranges that they form, ``bitmaps``
    the number of stored bitmaps.
    """

    __slots__ = ("_chunks", "_full", "bitmaps", "count", "runs")

    def __init__(self) -> None:
        self.count = 0
        self.runs = 0
        self.bitmaps = 0
        self._chunks: dict[int, bytearray] = {}
        self._full: EntrySet | None = None

    @property
    def size(self) -> tuple[int, int, int]:
        """The numbers of members, of runs and of bitmaps."""
        return self.count, self.runs, self.bitmaps

    def __contains__(self, entry: int) -> bool:
        chunk = self._chunks.get(entry >> _SHIFT)
        if chunk is None:
            full = self._full
            return full is not None and entry >> _SHIFT in full
        return chunk[entry >> 3 & 127] >> (entry & 7) & 1 == 1

    def add(self, entry: int) -> bool:
        """Add a member; ``False`` when it was there."""
        number = entry >> _SHIFT
        chunk = self._chunks.get(number)
        if chunk is None:
            if self._full is not None and number in self._full:
                return False
            chunk = self._chunks[number] = bytearray(_BYTES)
            self.bitmaps += 1
        at, bit = entry >> 3 & 127, 1 << (entry & 7)
        before = chunk[at]
        if before & bit:
            return False
        chunk[at] = after = before | bit
        self.count += 1
        follows = before & bit >> 1 if bit > 1 else entry - 1 in self
        if before & bit << 1 if bit < 128 else entry + 1 in self:
            if follows:
                self.runs -= 1
        elif not follows:
            self.runs += 1
        if after == 255 and chunk == _FULL:
            del self._chunks[number]
            _ = self._whole().add(number)
            self._count_bitmaps()
        return True

    def add_range(self, first: int, last: int) -> int:
        """Add members, both ends included. Return how many were not there."""
        if first == last:
            return int(self.add(first))
        new = last - first + 1 - self._members(first, last)
        if not new:
            return 0
        touching = int(first - 1 in self) + self._starts(first, last + 1)
        low, high = first >> _SHIFT, last >> _SHIFT
        full_low = low if not first & _MASK else low + 1
        full_high = high if last & _MASK == _MASK else high - 1
        if full_low <= full_high:
            for number in self._stored(full_low, full_high):
                del self._chunks[number]
            self._whole().add_range(full_low, full_high)
        for number in {low, high}:
            if not full_low <= number <= full_high:
                self._fill(number, first, last)
        self.count += new
        self.runs += 1 - touching
        self._count_bitmaps()
        return new

    def run_end(self, entry: int) -> int | None:
        """Return the last member of the run that ``entry`` is in; ``None`` when it is no member."""
        end: int | None = None
        while True:
            number = entry >> _SHIFT
            chunk = self._chunks.get(number)
            if chunk is not None:
                holes = ~(int.from_bytes(chunk, "little") >> (entry & _MASK))
                length = (holes & -holes).bit_length() - 1
                if not length:
                    return end
                end = entry + length - 1
                if end & _MASK != _MASK:
                    return end
            else:
                last = None if self._full is None else self._full.run_end(number)
                if last is None:
                    return end
                end = (last << _SHIFT) + _MASK
            entry = end + 1

    @property
    def last(self) -> int:
        """The greatest member; -1 without one. Costs a step for each bitmap."""
        last = -1 if self._full is None else (self._full.last << _SHIFT) + _MASK
        number = max(self._chunks, default=-1)
        if number << _SHIFT > last:
            last = (number << _SHIFT) + int.from_bytes(self._chunks[number], "little").bit_length()
            last -= 1
        return last

    def drop_first_run(self, first: int, last: int) -> None:
        """Remove the first run of the set."""
        number = first >> _SHIFT
        chunk = self._chunks.get(number)
        if chunk is None or last >> _SHIFT != number:
            self.drop_through(last)
            return
        if first == last:
            chunk[first >> 3 & 127] &= ~(1 << (first & 7))
        else:
            value = int.from_bytes(chunk, "little") & ~_between(number, first, last)
            chunk[:] = value.to_bytes(_BYTES, "little")
        if chunk == _EMPTY:
            del self._chunks[number]
            self.bitmaps -= 1
        self.count -= last - first + 1
        self.runs -= 1

    def drop_through(self, last: int) -> None:
        """Remove all members up to ``last``, which is the last one of its run, or no member."""
        _ = self._take(last)

    def _take(self, last: int) -> EntrySet:
        """Move all members up to ``last`` to a set of their own, and return it."""
        number = last >> _SHIFT
        taken = EntrySet()
        for below in [found for found in self._chunks if found < number]:
            taken._chunks[below] = self._chunks.pop(below)
        chunk = self._chunks.pop(number, None)
        if chunk is not None:
            value = int.from_bytes(chunk, "little")
            gone = value & _between(number, 0, last)
            if gone:
                taken._chunks[number] = bytearray(gone.to_bytes(_BYTES, "little"))
            if gone != value:
                self._chunks[number] = bytearray((value ^ gone).to_bytes(_BYTES, "little"))
        full = self._full
        if full is not None:
            taken._full = full._take(number if last & _MASK == _MASK else number - 1)
            if not full.count:
                self._full = None
        taken._recount()
        self.count -= taken.count
        self.runs -= taken.runs
        self._count_bitmaps()
        return taken

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the runs, in order, both ends included."""
        whole: Iterator[tuple[int, int]] = iter(())
        if self._full is not None:
            whole = (
                (first << _SHIFT, (last << _SHIFT) + _MASK) for first, last in self._full.ranges()
            )
        return _joined(heapq.merge(whole, self._stored_runs()))

    def _stored_runs(self) -> Iterator[tuple[int, int]]:
        for number in sorted(self._chunks):
            yield from _runs(number, int.from_bytes(self._chunks[number], "little"))

    def gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the runs of entries from ``first`` to ``last`` that are no members, in order.

        What lies before ``first`` costs nothing.
        """
        return _joined(self._gaps(first, last))

    def _gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        low, high = first >> _SHIFT, last >> _SHIFT
        not_full = ((low, high),) if self._full is None else self._full.gaps(low, high)
        for begin, end in not_full:
            for number in range(begin, end + 1):
                value = _between(number, first, last)
                chunk = self._chunks.get(number)
                if chunk is not None:
                    value &= ~int.from_bytes(chunk, "little")
                yield from _runs(number, value)

    # -- the stored form

    def levels(self) -> StoredSet:
        """Return the stored form: for each level its bitmaps, as the number of their first byte
        that is not zero, and the bytes up to the last that is not.

        The members of the first level are entries, those of any other one are full chunks of the
        level before.
        """
        found = []
        for number in sorted(self._chunks):
            chunk = self._chunks[number]
            bits = bytes(chunk.strip(b"\0"))
            found.append((number * _BYTES + chunk.find(bits[0]), bits))
        return (tuple(found), *(() if self._full is None else self._full.levels()))

    def merge(self, levels: StoredSet, *, greatest: int = ID_MAX) -> None:
        """Add the members of a stored form, which are at most ``greatest``.

        Raises ``CorruptData`` when it is none; then the set may have some of them.
        """
        if not 0 < len(levels) <= _LEVELS_MAX:
            raise CorruptData(f"a stored set of entries has {len(levels)} levels")
        if len(levels) > 1:
            self._whole().merge(levels[1:], greatest=greatest >> _SHIFT)
        for at, bits in levels[0]:
            number, offset = divmod(at, _BYTES)
            if number < 0 or not bits or offset + len(bits) > _BYTES or at * 8 > greatest:
                raise CorruptData(f"a stored set of entries has {len(bits)} bytes at {at}")
            if self._full is not None and number in self._full:
                continue
            value = int.from_bytes(bits, "little") << offset * 8
            chunk = self._chunks.get(number)
            if chunk is not None:
                value |= int.from_bytes(chunk, "little")
            if value == _ONES:
                self._chunks.pop(number, None)
                _ = self._whole().add(number)
            elif value:
                self._chunks[number] = bytearray(value.to_bytes(_BYTES, "little"))
        if self._full is not None:
            for number in [found for found in self._chunks if found in self._full]:
                del self._chunks[number]
            if not self._full.count:
                self._full = None
        self._recount()

    # -- parts

    def _count_bitmaps(self) -> None:
        self.bitmaps = len(self._chunks) + (0 if self._full is None else self._full.bitmaps)

    def _whole(self) -> EntrySet:
        if self._full is None:
            self._full = EntrySet()
        return self._full

    def _stored(self, low: int, high: int) -> list[int]:
        """Return the numbers of the stored bitmaps from ``low`` to ``high``."""
        chunks = self._chunks
        if high - low < len(chunks):
            return [number for number in range(low, high + 1) if number in chunks]
        return [number for number in chunks if low <= number <= high]

    def _fill(self, number: int, first: int, last: int) -> None:
        """Add the members of one chunk to it, without a count."""
        if self._full is not None and number in self._full:
            return
        value = _between(number, first, last)
        chunk = self._chunks.get(number)
        if chunk is not None:
            value |= int.from_bytes(chunk, "little")
        if value == _ONES:
            del self._chunks[number]
            _ = self._whole().add(number)
        else:
            self._chunks[number] = bytearray(value.to_bytes(_BYTES, "little"))

    def _members(self, first: int, last: int) -> int:
        low, high = first >> _SHIFT, last >> _SHIFT
        found = 0
        for number in self._stored(low, high):
            value = int.from_bytes(self._chunks[number], "little")
            found += (value & _between(number, first, last)).bit_count()
        full = self._full
        if full is not None:
            found += full._members(low, high) << _SHIFT
            if low in full:
                found -= first & _MASK
            if high in full:
                found -= _MASK - (last & _MASK)
        return found

    def _starts(self, first: int, last: int) -> int:
        """Return how many runs begin from ``first`` to ``last``."""
        low, high = first >> _SHIFT, last >> _SHIFT
        found = 0
        for number in self._stored(low, high):
            value = int.from_bytes(self._chunks[number], "little")
            starts = value & ~(value << 1)
            if value & 1 and (number << _SHIFT) - 1 in self:
                starts ^= 1
            found += (starts & _between(number, first, last)).bit_count()
        full = self._full
        if full is not None:
            low += 1 if first & _MASK else 0
            if low <= high:
                found += full._starts(low, high)
                for number in self._stored(low - 1, high - 1):
                    if self._chunks[number][-1] & 128 and number + 1 in full:
                        found -= 1
        return found

    def _recount(self) -> None:
        full = self._full
        count, runs = (0, 0) if full is None else (full.count << _SHIFT, full.runs)
        for number, chunk in self._chunks.items():
            value = int.from_bytes(chunk, "little")
            count += value.bit_count()
            runs += (value & ~(value << 1)).bit_count()
            if value & 1 and (number << _SHIFT) - 1 in self:
                runs -= 1
            if full is not None and chunk[-1] & 128 and number + 1 in full:
                runs -= 1
        self.count, self.runs = count, runs
        self._count_bitmaps()

    def check(self) -> None:
        """Assert that each chunk has the one form that fits it, and that the counts are right."""
        for number, chunk in self._chunks.items():
            assert chunk not in (_EMPTY, _FULL)
            assert self._full is None or number not in self._full
        if self._full is not None:
            assert self._full.count
            self._full.check()
        size = self.size
        self._recount()
        assert size == self.size, "the counts are those of the members"


def _runs(number: int, value: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of bits in the value of chunk ``number``."""
    base = number << _SHIFT
    while value:
        gap = (value & -value).bit_length() - 1
        value >>= gap
        length = (~value & (value + 1)).bit_length() - 1
        yield base + gap, base + gap + length - 1
        value >>= length
        base += gap + length


def _joined(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield runs in order, those that continue each other as one."""
    begin = end = -2
    for first, last in runs:
        if first != end + 1:
            if end >= 0:
                yield begin, end
            begin = first
        end = last
    if end >= 0:
        yield begin, end


def _between(number: int, first: int, last: int) -> int:
    """Return the bits of chunk ``number`` that lie from ``first`` to ``last``."""
    base = number << _SHIFT
    low, high = max(first - base, 0), min(last - base, _MASK)
    return (1 << high + 1) - (1 << low) if low <= high else 0
