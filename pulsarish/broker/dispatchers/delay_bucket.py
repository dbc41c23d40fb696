"""A bucket of delayed entries: a sorted set that never changes, and its bytes in a ledger.

A bucket says of some entries when they are due. Both are facts that stay true, so a bucket stays
valid whatever happens to the subscription, and one that is lost only has to be read again from the
log. Nothing in it speaks of other entries: those are read as always.

Its ledger holds segments of a fixed number of entries, then one entry with the time at which each
segment begins and, for each ledger of the log, the bits of the entries in the bucket. Only this
last entry stays in memory. Segments are loaded when they come due.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from pulsarish.model.errors import CorruptData
from pulsarish.model.position import Position

__all__ = ["ENTRY_BYTES", "POSITION_MASK", "Bucket", "EntryBits", "due_of", "pack", "position_of"]

ENTRY_BYTES: Final = 60
"""Memory of one packed entry in a list, about."""
_ID_BITS: Final = 64
_ID_MASK: Final = (1 << _ID_BITS) - 1
POSITION_MASK: Final = (1 << 2 * _ID_BITS) - 1
"""The bits of a packed entry that are its position."""
_VERSION: Final = 1
_LOADED_MAX: Final = (
    2  # segments of one bucket in memory: the one that is being taken, and the next
)
_LEVEL: Final = 1  # of compression: the fastest


def pack(due_ms: int, position: Position) -> int:
    """Return time, ledger and entry in one number, which takes a quarter of a tuple's memory."""
    return due_ms << 2 * _ID_BITS | position.ledger_id << _ID_BITS | position.entry_id


def due_of(packed: int) -> int:
    return packed >> 2 * _ID_BITS


def position_of(packed: int) -> Position:
    return Position(packed >> _ID_BITS & _ID_MASK, packed & _ID_MASK)


class _Bits(msgspec.Struct, frozen=True, array_like=True):
    """The entries of one ledger of the log that are in a bucket.

    ``packed``: compressed bits from the lowest, the first one for entry ``8 * first_byte``.
    """

    ledger_id: int
    first_byte: int
    last_entry: int
    count: int
    packed: bytes


class _Index(msgspec.Struct, frozen=True, array_like=True):
    """The last entry of a bucket's ledger."""

    version: int
    segment_entries: int
    count: int
    firsts: list[int]  # when the first entry of each segment is due
    bits: list[_Bits]


class EntryBits:
    """Collects the entries of a bucket by ledger of the log, in steps, since many take long."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[int, set[int]] = {}

    def add(self, entries: Iterable[int]) -> None:
        """Add packed entries."""
        ids = self._ids
        for packed in entries:
            ledger_id, entry_id = packed >> _ID_BITS & _ID_MASK, packed & _ID_MASK
            if (known := ids.get(ledger_id)) is not None:
                known.add(entry_id)
            else:
                ids[ledger_id] = {entry_id}

    def remove(self, entries: Iterable[int]) -> None:
        """Remove packed entries that were added."""
        for packed in entries:
            self._ids[packed >> _ID_BITS & _ID_MASK].remove(packed & _ID_MASK)

    def pack(self) -> list[_Bits]:
        found: list[_Bits] = []
        for ledger_id, ids in sorted(self._ids.items()):
            if not ids:
                continue
            last, first_byte = max(ids), min(ids) >> 3
            bits = bytearray((last >> 3) - first_byte + 1)
            for entry_id in ids:
                bits[(entry_id >> 3) - first_byte] |= 1 << (entry_id & 7)
            packed = zlib.compress(bits, _LEVEL)
            found.append(_Bits(ledger_id, first_byte, last, len(ids), packed))
        return found


class Bucket:
    """A sorted set of delayed entries, and which of them were taken: the first ``taken``.

    It begins in memory. Once ``stored`` it loads what it needs from its ledger.
    """

    __slots__ = (
        "_above",
        "_bits",
        "_firsts",
        "_loaded",
        "_whole",
        "count",
        "is_loading",
        "last",
        "ledger_id",
        "replaces",
        "segment_entries",
        "taken",
    )

    def __init__(self, index: _Index, whole: list[int] | None) -> None:
        self.ledger_id = -1
        """The ledger that stores it; -1: it is in memory only."""
        self.replaces: tuple[int, ...] = ()
        """Ledgers that are named until this bucket, made of their entries, is stored."""
        self.is_loading = False
        self.segment_entries = index.segment_entries
        self.count = index.count
        self.taken = 0
        self._above = index.count
        self._firsts = array("q", index.firsts)
        self._bits = {bits.ledger_id: bits for bits in index.bits}
        ledger_id = max(self._bits)
        self.last = Position(ledger_id, self._bits[ledger_id].last_entry)
        """The highest position in it."""
        self._whole = whole
        self._loaded: deque[list[int]] = deque()

    @classmethod
    def of(cls, entries: list[int], segment_entries: int, known: EntryBits | None = None) -> Bucket:
        """Return a bucket of packed entries, in order.

        Args:
            known: the bits of these entries; by default they are found here.
        """
        bits = EntryBits() if known is None else known
        if known is None:
            bits.add(entries)
        firsts = [due_of(entry) for entry in entries[::segment_entries]]
        return cls(_Index(_VERSION, segment_entries, len(entries), firsts, bits.pack()), entries)

    @classmethod
    def decode(cls, ledger_id: int, index: bytes | memoryview) -> Bucket:
        """Return the bucket of a ledger, by the ledger's last entry. Raises ``CorruptData``."""
        try:
            decoded = msgspec.msgpack.decode(index, type=_Index)
        except msgspec.MsgspecError as error:
            raise CorruptData(
                f"the index of bucket ledger {ledger_id} is damaged: {error}"
            ) from None
        if decoded.version != _VERSION:
            raise CorruptData(
                f"bucket ledger {ledger_id} has version {decoded.version}, and this broker reads "
                f"{_VERSION}"
            )
        size, count = decoded.segment_entries, decoded.count
        if (
            size < 1
            or count < 1
            or len(decoded.firsts) != -(-count // size)
            or sum(bits.count for bits in decoded.bits) != count
        ):
            raise CorruptData(f"the index of bucket ledger {ledger_id} contradicts itself")
        self = cls(decoded, None)
        self.ledger_id = ledger_id
        return self

    # -- what is left

    @property
    def left(self) -> int:
        """How many entries are left to take, without those that were dropped."""
        return min(self.count - self.taken, self._above)

    @property
    def in_memory(self) -> int:
        """How many entries only memory has."""
        return 0 if self._whole is None else self.count

    @property
    def size_bytes(self) -> int:
        """About what the bucket takes in memory."""
        loaded = sum([len(segment) for segment in self._loaded]) + self.in_memory
        bits = sum([len(bits.packed) + 200 for bits in self._bits.values()])
        return loaded * ENTRY_BYTES + bits + len(self._firsts) * 8

    @property
    def head(self) -> int | None:
        """The next entry, packed; ``None`` when there is none or it must be loaded first."""
        if self._whole is not None:
            return self._whole[self.taken] if self.taken < self.count else None
        return self._loaded[0][self.taken % self.segment_entries] if self._loaded else None

    @property
    def next_due_ms(self) -> int | None:
        """When the next entry is due; ``None`` when none is left."""
        if (head := self.head) is not None:
            return due_of(head)
        return self._firsts[self.taken // self.segment_entries] if self.taken < self.count else None

    def take(self) -> None:
        """Take the head."""
        self.taken += 1
        if self._whole is None and (
            self.taken % self.segment_entries == 0 or self.taken == self.count
        ):
            self._loaded.popleft()

    def rewind(self, position: Position) -> None:
        """Begin again with the first entry. Those below the position are not counted."""
        self.taken = 0
        self._loaded.clear()
        self.drop_through(Position(position.ledger_id, position.entry_id - 1))

    def drop_through(self, position: Position) -> None:
        """Do not count entries up to a position. They are still taken."""
        above = 0
        for bits in self._bits.values():
            if bits.ledger_id > position.ledger_id:
                above += bits.count
            elif bits.ledger_id == position.ledger_id:
                shift = max(0, position.entry_id + 1 - 8 * bits.first_byte)
                above += (int.from_bytes(_unpacked(bits), "little") >> shift).bit_count()
        self._above = above

    # -- which entries there are

    def bits(self, ledger_id: int) -> tuple[int, bytes] | None:
        """Return the bits of the entries of one ledger of the log, as first byte and bytes."""
        bits = self._bits.get(ledger_id)
        return None if bits is None else (bits.first_byte, _unpacked(bits))

    def due_ms(self, position: Position) -> int | None:
        """Return when the next entry is due, if one is left and the bucket has this entry; else
        ``None``.
        """
        bits = self._bits.get(position.ledger_id)
        if bits is None:
            return None
        at = position.entry_id - 8 * bits.first_byte
        unpacked = _unpacked(bits)
        is_there = 0 <= at < 8 * len(unpacked) and unpacked[at >> 3] >> (at & 7) & 1
        return self.next_due_ms if is_there else None

    # -- the stored form

    def encode_segment(self, number: int) -> bytes:
        """Return a segment of a bucket that is in memory."""
        assert self._whole is not None
        first = number * self.segment_entries
        return _encode_segment(self._whole[first : first + self.segment_entries])

    @property
    def segments(self) -> int:
        return len(self._firsts)

    def encode_index(self) -> bytes:
        return msgspec.msgpack.encode(
            _Index(
                _VERSION,
                self.segment_entries,
                self.count,
                self._firsts.tolist(),
                list(self._bits.values()),
            )
        )

    def stored(self, ledger_id: int) -> None:
        """Note that the ledger holds the bucket, and is named durably. Free the memory."""
        assert self._whole is not None
        self.ledger_id = ledger_id
        self.replaces = ()
        size = self.segment_entries
        if self.taken % size and self.taken < self.count:
            first = self.taken - self.taken % size
            self._loaded.append(self._whole[first : first + size])
        self._whole = None

    # -- loading

    def segment_due(self, until_ms: int) -> int | None:
        """Return the segment to load next, if it begins until then and has room in memory."""
        if self._whole is not None or len(self._loaded) >= _LOADED_MAX:
            return None
        number = self.next_segment
        return number if number < self.segments and self._firsts[number] <= until_ms else None

    @property
    def next_segment(self) -> int:
        """The first segment that is neither taken nor loaded; ``segments`` when there is none."""
        if self.taken == self.count:
            return self.segments
        return self.taken // self.segment_entries + len(self._loaded)

    def decode_segment(self, number: int, data: bytes | memoryview) -> list[int]:
        """Return the entries of a segment. Raises ``CorruptData``."""
        entries = _decode_segment(data)
        first = number * self.segment_entries
        if len(entries) != min(self.segment_entries, self.count - first):
            raise CorruptData(
                f"segment {number} of bucket ledger {self.ledger_id} has {len(entries)} entries"
            )
        return entries

    def loaded(self, number: int, entries: list[int]) -> None:
        """Take a segment that was loaded. One that is not the next one any more is ignored."""
        if self._whole is None and number == self.next_segment:
            self._loaded.append(entries)

    def check(self) -> None:
        assert 0 <= self.taken <= self.count
        if self._whole is not None:
            assert self.ledger_id < 0
            assert all(one < other for one, other in pairwise(self._whole))
            assert not self._loaded
        else:
            assert self.ledger_id >= 0
            assert (
                self._loaded or self.taken % self.segment_entries == 0 or self.taken == self.count
            )


def _unpacked(bits: _Bits) -> bytes:
    return zlib.decompress(bits.packed)


def _encode_segment(entries: Sequence[int]) -> bytes:
    # Columns of small differences take less room than rows.
    dues = [due_of(entry) for entry in entries]
    ledgers = [entry >> _ID_BITS & _ID_MASK for entry in entries]
    ids = [entry & _ID_MASK for entry in entries]
    steps = [dues[0], *[later - earlier for earlier, later in pairwise(dues)]]
    return zlib.compress(struct.pack(f"<{3 * len(dues)}q", *steps, *ledgers, *ids), _LEVEL)


def _decode_segment(data: bytes | memoryview) -> list[int]:
    """Return the packed entries of a segment. Raises ``CorruptData``."""
    try:
        raw = zlib.decompress(data)
        count = len(raw) // 24
        numbers = struct.unpack(f"<{3 * count}q", raw)
    except (zlib.error, struct.error) as error:
        raise CorruptData(f"a segment of delayed entries is damaged: {error}") from None
    return [
        due << 2 * _ID_BITS | ledger_id << _ID_BITS | entry_id
        for due, ledger_id, entry_id in zip(
            accumulate(numbers[:count]),
            numbers[count : 2 * count],
            numbers[2 * count :],
            strict=True,
        )
    ]
