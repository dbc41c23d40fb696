"""The stored state of a cursor.

It has two forms: a record in the topic's subtree while it is small, entries of a cursor ledger
otherwise.

A cursor ledger holds changes, and a snapshot from time to time. Each entry contains the entry id
where the last complete snapshot begins. So recovery reads the last entry first, and then everything
from that snapshot on. A snapshot that is too large for one entry is cut into parts. It is valid
from its last part on.

What is acknowledged above the mark-delete position is stored as ranges while they are few, and as
sets of bits otherwise. A snapshot with sets ends with an entry of a kind of its own, so that a
version that does not know sets refuses it and redelivers, instead of reading it without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from pulsarish.metadata.records import CursorRecord
from pulsarish.model.ack_ranges import AckRanges
from pulsarish.model.entry_set import StoredSet
from pulsarish.model.errors import CorruptData
from pulsarish.model.position import Position

__all__ = [
    "CursorEntry",
    "CursorImage",
    "EntryKind",
    "bits_of",
    "decode_entry",
    "decode_image",
    "encode_entry",
    "encode_image",
    "restore",
]


class CursorImage(msgspec.Struct, frozen=True, array_like=True):
    """A cursor's state, or the changes in it.

    To apply one twice, or after a newer one, changes nothing.
    """

    mark_ledger: int
    mark_entry: int
    ranges: tuple[int, ...] = ()  # ledger, first, last (inclusive), flattened
    # ledger, entry, remaining indexes as little-endian bits
    batches: tuple[tuple[int, int, bytes], ...] = ()
    properties: dict[str, int] | None = None  # None in a delta: unchanged
    # in place of ranges: ledgers with the stored form of their sets, see ``EntrySet.levels``
    sets: tuple[tuple[int, StoredSet], ...] = ()

    @property
    def mark(self) -> Position:
        return Position(self.mark_ledger, self.mark_entry)

    @classmethod
    def of(cls, acks: AckRanges, properties: Mapping[str, int], ranges_max: int) -> CursorImage:
        """Return the image of the full state: with ranges, or with sets if there are more than
        ``ranges_max``.
        """
        has_sets = acks.range_count > ranges_max
        return cls(
            acks.mark.ledger_id,
            acks.mark.entry_id,
            () if has_sets else tuple(number for found in acks.ranges() for number in found),
            tuple(
                (position.ledger_id, position.entry_id, bits_of(remaining))
                for position, remaining in acks.batches()
            ),
            dict(properties),
            tuple(acks.stored_sets()) if has_sets else (),
        )

    def record(self, base: CursorRecord, cursor_ledger: int) -> CursorRecord:
        """Return the record for the cursor's node."""
        return msgspec.structs.replace(
            base,
            mark_ledger=self.mark_ledger,
            mark_entry=self.mark_entry,
            ranges=self.ranges,
            batches=tuple((ledger, entry, bits.hex()) for ledger, entry, bits in self.batches),
            properties={} if self.properties is None else self.properties,
            cursor_ledger=cursor_ledger,
        )

    @classmethod
    def from_record(cls, record: CursorRecord, path: str) -> CursorImage:
        """Return the image in a cursor's record. Raises ``CorruptData``."""
        try:
            batches = tuple(
                (ledger, entry, bytes.fromhex(bits)) for ledger, entry, bits in record.batches
            )
        except ValueError as error:
            raise CorruptData(
                f"metadata node {path} holds a batch that is no hexadecimal bit set: {error}"
            ) from None
        return cls(record.mark_ledger, record.mark_entry, record.ranges, batches, record.properties)


def bits_of(remaining: int) -> bytes:
    return remaining.to_bytes((remaining.bit_length() + 7) // 8, "little")


def apply(image: CursorImage, acks: AckRanges) -> None:
    """Apply an image. Raises ``CorruptData`` when the image is invalid."""
    acks.advance(image.mark)
    if len(image.ranges) % 3:
        raise CorruptData("a cursor's ranges are not in threes")
    for ledger_id, first, last in zip(
        image.ranges[::3], image.ranges[1::3], image.ranges[2::3], strict=True
    ):
        if not 0 <= first <= last:
            raise CorruptData(f"a cursor's range {ledger_id}:{first}..{last} is upside down")
        acks.add_range(ledger_id, first, last)
    for ledger_id, levels in image.sets:
        if ledger_id < 0:
            raise CorruptData(f"a cursor has a set of ledger {ledger_id}")
        acks.add_stored_set(ledger_id, levels)
    for ledger_id, entry_id, bits in image.batches:
        remaining = int.from_bytes(bits, "little")
        if remaining == 0:
            raise CorruptData(
                f"a cursor's batch {ledger_id}:{entry_id} has nothing left to acknowledge"
            )
        acks.set_remaining(Position(ledger_id, entry_id), remaining)


def restore(
    images: Sequence[CursorImage], successor: Callable[[Position], Position]
) -> tuple[AckRanges, dict[str, int]]:
    """Restore a cursor from a full image and the deltas after it. Raises ``CorruptData``."""
    acks = AckRanges(images[0].mark, successor)
    properties: dict[str, int] = {}
    for image in images:
        apply(image, acks)
        if image.properties is not None:
            properties = dict(image.properties)
    return acks, properties


class EntryKind:
    DELTA: Final = 0
    SNAPSHOT_PART: Final = 1
    SNAPSHOT_END: Final = 2
    SETS_END: Final = 3  # ends a snapshot that has sets


class CursorEntry(msgspec.Struct, frozen=True, array_like=True):
    """One entry of a cursor ledger."""

    kind: int
    # the entry where the last complete snapshot begins; includes this entry when it ends a snapshot
    snapshot: int
    body: bytes  # a part of an encoded image


_encoder: Final = msgspec.msgpack.Encoder()


def encode_image(image: CursorImage) -> bytes:
    return _encoder.encode(image)


def encode_entry(kind: int, snapshot: int, body: bytes) -> bytes:
    return _encoder.encode(CursorEntry(kind, snapshot, body))


def decode_entry(payload: bytes | memoryview) -> CursorEntry:
    """Decode an entry of a cursor ledger. Raises ``CorruptData``."""
    try:
        return msgspec.msgpack.decode(payload, type=CursorEntry)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptData(f"a cursor ledger's entry is damaged: {error}") from None


def decode_image(body: bytes) -> CursorImage:
    """Decode an image. Raises ``CorruptData``."""
    try:
        return msgspec.msgpack.decode(body, type=CursorImage)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptData(f"a cursor ledger's image is damaged: {error}") from None
