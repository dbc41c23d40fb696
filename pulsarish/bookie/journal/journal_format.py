"""The journal's bytes: what a record is, and how a torn tail differs from damage.

A file is a sequence of records, each 8-byte aligned:

``magic u32 | file id u32 | length u32 | type u8, 3 zero bytes | sequence u64 | durable up to u64 |
crc32c u32 | 4 zero bytes | payload``,

big-endian. The CRC covers the head (with a zero CRC field) and the payload. The file id keeps stale
bytes of another file from passing as records. ``sequence`` counts records through all files without
a gap. ``durable up to`` says that every record with a smaller sequence was synced when this one was
written. Rule 10 uses it to tell a torn tail, which no client was promised, from damage to
acknowledged data. Preallocated space is zero and is not a record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from google_crc32c import extend

from pulsarish.model.errors import CorruptData

__all__ = [
    "EXPLICIT_LAC_PAYLOAD",
    "FENCE_PAYLOAD",
    "FILE_SUFFIX",
    "HEAD_SIZE",
    "JournalRecord",
    "JournalScanner",
    "RecordType",
    "ScanEnd",
    "file_id_of",
    "file_name",
    "frame_record",
    "padded_size",
]

Buffer = bytes | bytearray | memoryview

_MAGIC: Final = 0x504A4C31  # "PJL1"
_HEAD: Final = struct.Struct(">IIIBxxxQQI4x")
_FIND: Final = struct.Struct(">II")
HEAD_SIZE: Final = _HEAD.size
_ALIGN: Final = 8
_PADS: Final = tuple(bytes(count) for count in range(_ALIGN))
FILE_SUFFIX: Final = ".journal"


class RecordType(IntEnum):
    FILE_HEADER = 1  # payload: the bookie's instance id
    ADD = 2  # payload: an AddRequest as it came over the wire
    FENCE = 3  # payload: FENCE_PAYLOAD
    EXPLICIT_LAC = 4  # payload: EXPLICIT_LAC_PAYLOAD


FENCE_PAYLOAD: Final = struct.Struct(">q")  # ledger
EXPLICIT_LAC_PAYLOAD: Final = struct.Struct(">qq")  # ledger, LAC
_TYPES: Final = frozenset(RecordType)

assert HEAD_SIZE == 40


@dataclass(frozen=True, slots=True)
class JournalRecord:
    file_id: int
    offset: int
    type: RecordType
    sequence: int
    durable_up_to: int
    payload: memoryview
    end: int  # the offset after it


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """Where the journal ends. ``torn``: bytes other than zeroes follow, to be cut off."""

    file_id: int
    offset: int
    next_sequence: int
    torn: bool


def file_name(file_id: int) -> str:
    return f"{file_id:010d}{FILE_SUFFIX}"


def file_id_of(name: str) -> int | None:
    """Return the id in a journal file's name; ``None`` for any other file."""
    stem = name.removesuffix(FILE_SUFFIX)
    return int(stem) if stem != name and stem.isdigit() else None


def padded_size(payload_size: int) -> int:
    """Return the size of a record on disk."""
    return (HEAD_SIZE + payload_size + _ALIGN - 1) & -_ALIGN


def frame_record(
    file_id: int,
    kind: RecordType,
    sequence: int,
    durable_up_to: int,
    parts: Sequence[Buffer],
    size_bytes: int,
) -> list[Buffer]:
    """Return the parts of one record, padded.

    The payload's own parts are not copied; ``size_bytes`` is their sum.
    """
    crc = extend(0, _HEAD.pack(_MAGIC, file_id, size_bytes, kind, sequence, durable_up_to, 0))
    for part in parts:
        crc = extend(crc, part if isinstance(part, bytes) else bytes(part))
    head = _HEAD.pack(_MAGIC, file_id, size_bytes, kind, sequence, durable_up_to, crc)
    return [head, *parts, _PADS[-size_bytes % _ALIGN]]


def _record_at(data: bytes, offset: int, file_id: int) -> JournalRecord | None:
    """Return the valid record at an offset, or ``None``."""
    if offset + HEAD_SIZE > len(data):
        return None
    magic, found_id, size, kind, sequence, durable, crc = _HEAD.unpack_from(data, offset)
    start = offset + HEAD_SIZE
    if magic != _MAGIC or found_id != file_id or kind not in _TYPES or start + size > len(data):
        return None
    payload = memoryview(data)[start : start + size]
    head = _HEAD.pack(magic, found_id, size, kind, sequence, durable, 0)
    # The CRC does not cover the spare bytes of the head. A changed bit there must be found, too.
    if data[offset + 13 : offset + 16] != b"\0\0\0" or data[offset + 36 : start] != b"\0\0\0\0":
        return None
    if extend(extend(0, head), bytes(payload)) != crc:
        return None
    return JournalRecord(
        file_id,
        offset,
        RecordType(kind),
        sequence,
        durable,
        payload,
        (start + size + _ALIGN - 1) & -_ALIGN,
    )


def _records_behind(data: bytes, offset: int, file_id: int) -> Iterator[JournalRecord]:
    """Yield valid records at or after an offset, at any place, found by their first eight bytes."""
    wanted = _FIND.pack(_MAGIC, file_id)
    at = offset
    while (at := data.find(wanted, at)) >= 0:
        record = None if at % _ALIGN else _record_at(data, at, file_id)
        if record is None:
            at += 1
        else:
            yield record
            at = record.end


class JournalScanner:
    """Read files in order, yield their records, and decide what the end means.

    Pass every file, oldest first, to ``scan``; then call ``finish``. ``durable_up_to`` is a
    sequence that is known to be durable from another source: the mark.
    """

    def __init__(self, directory: str, durable_up_to: int) -> None:
        self._directory = directory
        self._durable_up_to = durable_up_to
        self._next: int | None = None  # the expected sequence
        # where the good records ended, in the newest file that had any
        self._bad: ScanEnd | None = None

    def scan(self, file_id: int, data: bytes) -> Iterator[JournalRecord]:
        """Yield the records of one file. Raises ``CorruptData`` as soon as damage is proved."""
        offset = 0
        if self._bad is not None:
            first = _record_at(data, 0, file_id)
            if first is None:
                # This file does not count yet, but its content may prove that records before it are
                # missing.
                self._need_no_evidence(_records_behind(data, 0, file_id))
                return
            if first.sequence != self._bad.next_sequence:
                # A file begins only when all before it is synced, so its first record proves what
                # should have been there.
                raise self._corrupt(
                    f"the next file, {file_name(file_id)}, goes on with record {first.sequence}"
                )
            self._bad = None
        while (record := _record_at(data, offset, file_id)) is not None and self._next in (
            None,
            record.sequence,
        ):
            # A file's header stands before the record whose sequence it carries.
            self._next = record.sequence + (record.type is not RecordType.FILE_HEADER)
            self._durable_up_to = max(self._durable_up_to, record.durable_up_to)
            offset = record.end
            yield record
        torn = data.count(0, offset) != len(data) - offset
        self._bad = ScanEnd(file_id, offset, self._next or 0, torn)
        self._need_no_evidence(_records_behind(data, offset, file_id))

    def finish(self) -> ScanEnd:
        """Return the end of the journal.

        Raises ``CorruptData`` when the mark proves that there was more.
        """
        assert self._bad is not None, "no file was scanned"
        if self._durable_up_to > self._bad.next_sequence:
            raise self._corrupt(f"all up to record {self._durable_up_to - 1} was synced")
        return self._bad

    def _need_no_evidence(self, later: Iterator[JournalRecord]) -> None:
        assert self._bad is not None
        for record in later:
            # A record of the same unsynced group may have survived without its neighbour, so it
            # proves nothing.
            if record.durable_up_to > self._bad.next_sequence:
                raise self._corrupt(
                    f"the record at offset {record.offset} of {file_name(record.file_id)} says "
                    "that it was synced"
                )

    def _corrupt(self, why: str) -> CorruptData:
        assert self._bad is not None
        return CorruptData(
            f"the journal file {self._directory}/{file_name(self._bad.file_id)} is damaged at "
            f"offset {self._bad.offset}: "
            f"record {self._bad.next_sequence} cannot be read, and {why}. Acknowledged entries "
            "may be lost here: restore the file, or "
            'start once with journal_corruption = "limbo": this bookie then answers "unknown" '
            "for every ledger that existed, and readers "
            "go to the other copies"
        )
