"""The journal's bytes: what a record is, and how a torn tail differs from damage.

A file is a sequence of records, each 8-byte aligned:

``magic u32 | file id u32 | length u32 | type u8, 3 zero bytes | sequence u64 | durable up to u64 |
crc32c u32 | key u32 | payload``,

big-endian. The CRC covers the head (with a zero CRC field) and the payload. ``sequence`` counts
records through all files without a gap. ``durable up to`` says that every record with a smaller
sequence was synced when this one was written. Rule 10 uses it to tell a torn tail, which no client
was promised, from damage to acknowledged data.

Behind the last record a file has zeroes, or records of an earlier life: a file that is not needed
any more becomes the next one under another name. The file id tells these records from the new ones.
It does not protect from bytes that a client chose: a message may contain what looks like a record
of a file to come. So each life of a bookie draws a key of 64 bits. The file's header has it, and
every other record depends on it: its CRC begins with the upper half, and ``key`` is the lower half.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final

import msgspec
from google_crc32c import extend

from pulsarish.model.errors import CorruptData

__all__ = [
    "EXPLICIT_LAC_PAYLOAD",
    "FENCE_PAYLOAD",
    "FILE_SUFFIX",
    "HEAD_SIZE",
    "JournalGap",
    "JournalRecord",
    "JournalScanner",
    "RecordType",
    "ScanEnd",
    "file_id_of",
    "file_name",
    "frame_header",
    "frame_record",
    "header_instance_id",
    "header_size",
    "key_of",
    "padded_size",
    "read_past_damage",
]

Buffer = bytes | bytearray | memoryview

_MAGIC: Final = 0x504A4C31  # "PJL1"
_HEAD: Final = struct.Struct(">IIIBxxxQQII")
_FIND: Final = struct.Struct(">II")
HEAD_SIZE: Final = _HEAD.size
_ALIGN: Final = 8
_PADS: Final = tuple(bytes(count) for count in range(_ALIGN))
FILE_SUFFIX: Final = ".journal"


class RecordType(IntEnum):
    KEYLESS_FILE_HEADER = 1  # payload: the bookie's instance id; only read, with the key 0
    ADD = 2  # payload: an AddRequest as it came over the wire
    FENCE = 3  # payload: FENCE_PAYLOAD
    EXPLICIT_LAC = 4  # payload: EXPLICIT_LAC_PAYLOAD
    FILE_HEADER = 5  # payload: the key of the file's records, and the bookie's instance id


FENCE_PAYLOAD: Final = struct.Struct(">q")  # ledger
EXPLICIT_LAC_PAYLOAD: Final = struct.Struct(">qq")  # ledger, LAC
_TYPES: Final = frozenset(RecordType)
_HEADERS: Final = frozenset((RecordType.KEYLESS_FILE_HEADER, RecordType.FILE_HEADER))
_KEY: Final = struct.Struct(">Q")
_NO_KEY: Final = 0

assert HEAD_SIZE == 40


class JournalRecord(msgspec.Struct, frozen=True):
    file_id: int
    offset: int
    type: RecordType
    sequence: int
    durable_up_to: int
    payload: memoryview
    end: int  # the offset after it


class ScanEnd(msgspec.Struct, frozen=True):
    """Where the journal ends.

    ``torn``: bytes other than zeroes follow, to be cut off. They are of a torn record, or of the
    file's earlier life.
    """

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
    key: int,
    kind: RecordType,
    sequence: int,
    durable_up_to: int,
    parts: Sequence[Buffer],
    size_bytes: int,
) -> list[Buffer]:
    """Return the parts of one record, padded.

    The payload's own parts are not copied; ``size_bytes`` is their sum.
    """
    upper, lower = key >> 32, key & 0xFFFFFFFF
    head = _HEAD.pack(_MAGIC, file_id, size_bytes, kind, sequence, durable_up_to, 0, lower)
    crc = extend(upper, head)
    for part in parts:
        crc = extend(crc, part if isinstance(part, bytes) else bytes(part))
    head = _HEAD.pack(_MAGIC, file_id, size_bytes, kind, sequence, durable_up_to, crc, lower)
    return [head, *parts, _PADS[-size_bytes % _ALIGN]]


def header_size(instance_id: bytes) -> int:
    """Return the size of a file's header on disk."""
    return padded_size(_KEY.size + len(instance_id))


def frame_header(file_id: int, key: int, sequence: int, instance_id: bytes) -> list[Buffer]:
    """Return the header of a file, which tells the key of its records and needs none itself.

    It uses up no sequence: ``sequence`` is that of the next record, and all before it are durable.
    """
    payload = _KEY.pack(key) + instance_id
    return frame_record(
        file_id, _NO_KEY, RecordType.FILE_HEADER, sequence, sequence, [payload], len(payload)
    )


def header_instance_id(header: JournalRecord) -> bytes:
    """Return the instance id of the bookie to which the file belongs."""
    with_key = header.type is RecordType.FILE_HEADER
    return bytes(header.payload[_KEY.size if with_key else 0 :])


def key_of(header: JournalRecord) -> int:
    """Return the key of a file's records, from its header."""
    if header.type is RecordType.KEYLESS_FILE_HEADER:
        return _NO_KEY
    key: int = _KEY.unpack_from(header.payload)[0]
    return key


def _record_at(data: bytes, offset: int, file_id: int, key: int) -> JournalRecord | None:
    """Return the valid record at an offset, or ``None``."""
    if offset + HEAD_SIZE > len(data):
        return None
    magic, found_id, size, kind, sequence, durable, crc, lower = _HEAD.unpack_from(data, offset)
    start = offset + HEAD_SIZE
    if magic != _MAGIC or found_id != file_id or kind not in _TYPES or start + size > len(data):
        return None
    payload = memoryview(data)[start : start + size]
    head = _HEAD.pack(magic, found_id, size, kind, sequence, durable, 0, lower)
    # The CRC is made of the head as it should be. A changed bit in its zero bytes must be found,
    # too.
    if data[offset + 13 : offset + 16] != b"\0\0\0" or lower != key & 0xFFFFFFFF:
        return None
    if extend(extend(key >> 32, head), bytes(payload)) != crc:
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


def _header_of(data: bytes, file_id: int) -> JournalRecord | None:
    """Return the header of a file that was begun under this id, or ``None``."""
    found = _record_at(data, 0, file_id, _NO_KEY)
    return found if found is not None and found.type in _HEADERS else None


def _heads_behind(data: bytes, offset: int, file_id: int) -> Iterator[int]:
    """Yield the places at or after an offset at which a record of the file may begin, by its first
    eight bytes.
    """
    wanted = _FIND.pack(_MAGIC, file_id)
    at = offset - 1
    while (at := data.find(wanted, at + 1)) >= 0:
        if at % _ALIGN == 0:
            yield at


def _records_behind(data: bytes, offset: int, file_id: int, key: int) -> Iterator[JournalRecord]:
    """Yield valid records at or after an offset, at any place."""
    end = offset
    for at in _heads_behind(data, offset, file_id):
        record = None if at < end else _record_at(data, at, file_id, key)
        if record is not None:
            yield record
            end = record.end


class JournalGap(msgspec.Struct, frozen=True):
    """A part of a file, from ``offset`` to ``end``, in which no record can be read."""

    file_id: int
    offset: int
    end: int
    reason: str
    is_damage: bool
    """Whether a record was there that is proved to have been synced, or may have been.

    Otherwise no client was promised anything that is missing here.
    """


def read_past_damage(
    file_id: int, data: bytes, key: int | None = None
) -> Iterator[JournalRecord | JournalGap]:
    """Yield all records of one file that can be read, and the gaps between and after them.

    ``JournalScanner`` decides what a bookie can start with; this only shows what is there.

    Args:
        key: that of the file before, for a file whose header cannot be read; ``None``: not known.
    """
    header = _header_of(data, file_id)
    size = len(data)
    if header is not None:
        key = key_of(header)
        sequence, offset = header.sequence, header.end
        yield header
    else:
        begins = _FIND.unpack_from(data) if size >= _FIND.size else (0, 0)
        if begins[0] == _MAGIC and begins[1] != file_id:
            reason = f"not begun yet: it has the records of file {begins[1]}, which it was before"
            yield JournalGap(file_id, 0, size, reason, is_damage=False)
            return
        if data.count(0) == size:
            yield JournalGap(file_id, 0, size, "not begun yet", is_damage=False)
            return
        sequence, offset = -1, 0
    while True:
        record = _record_at(data, offset, file_id, key or _NO_KEY) if offset else None
        if record is not None and (sequence < 0 or record.sequence >= sequence):
            if sequence >= 0 and record.sequence > sequence:
                missing = f"records {sequence} to {record.sequence - 1} are missing before it"
                yield JournalGap(
                    file_id, offset, offset, missing, is_damage=record.durable_up_to > sequence
                )
            yield record
            sequence, offset = record.sequence + 1, record.end
            continue
        later = (
            None
            if key is None
            else next(
                (
                    each
                    for each in _records_behind(data, offset + _ALIGN, file_id, key)
                    if each.sequence >= sequence
                ),
                None,
            )
        )
        yield _gap(file_id, data, offset, sequence, later)
        if later is None:
            return
        sequence, offset = later.sequence, later.offset


def _gap(
    file_id: int, data: bytes, offset: int, sequence: int, later: JournalRecord | None
) -> JournalGap:
    end = len(data) if later is None else later.offset
    if sequence < 0:
        return JournalGap(file_id, offset, end, "the header cannot be read", is_damage=True)
    if later is None:
        torn = data.count(0, offset) != end - offset
        reason = (
            "after the last record: a torn record, or records of the file's earlier life"
            if torn
            else "after the last record: unused"
        )
        return JournalGap(file_id, offset, end, reason, is_damage=False)
    proved = later.durable_up_to > sequence
    reason = f"record {sequence} cannot be read, and record {later.sequence} follows, " + (
        "which says that it was synced" if proved else "of the same unsynced group"
    )
    return JournalGap(file_id, offset, end, reason, is_damage=proved)


class JournalScanner:
    """Read files in order, yield their records, and decide what the end means.

    Pass every file, oldest first, to ``scan``; then call ``finish``. ``durable_up_to`` is a
    sequence that is known to be durable from another source: the mark.
    """

    def __init__(self, directory: str, durable_up_to: int) -> None:
        self._directory = directory
        self._durable_up_to = durable_up_to
        self._key = _NO_KEY  # of the newest file that has a header
        # where the good records ended, in the newest file that had any
        self._bad: ScanEnd | None = None

    def scan(self, file_id: int, data: bytes) -> Iterator[JournalRecord]:
        """Yield the records of one file. Raises ``CorruptData`` as soon as damage is proved."""
        header = _header_of(data, file_id)
        if header is None:
            self._scan_without_header(file_id, data)
            return
        if self._bad is not None and header.sequence != self._bad.next_sequence:
            # A file begins only when all before it is synced, so its header proves what should have
            # been there.
            raise self._corrupt(
                f"the next file, {file_name(file_id)}, goes on with record {header.sequence}"
            )
        self._key = key_of(header)
        self._durable_up_to = max(self._durable_up_to, header.durable_up_to)
        sequence, offset = header.sequence, header.end
        yield header
        while (
            record := _record_at(data, offset, file_id, self._key)
        ) is not None and record.sequence == sequence:
            self._durable_up_to = max(self._durable_up_to, record.durable_up_to)
            sequence, offset = sequence + 1, record.end
            yield record
        self._end(file_id, data, offset, sequence)
        self._need_no_evidence(_records_behind(data, offset, file_id, self._key))

    def _scan_without_header(self, file_id: int, data: bytes) -> None:
        """Look at a file that was not begun under this id, or has lost its header."""
        if self._bad is not None:
            # The file does not count yet, but its content may prove that records before it are
            # missing. Its records have the key of those before it: from the mark on all files with
            # records are of one life of the bookie.
            self._need_no_evidence(_records_behind(data, 0, file_id, self._key))
            return
        self._end(file_id, data, 0, 0)
        # No key is known, so what looks like a head counts as a record.
        if any(_heads_behind(data, HEAD_SIZE, file_id)):
            raise self._corrupt("records follow the header of the file, which is damaged")

    def _end(self, file_id: int, data: bytes, offset: int, sequence: int) -> None:
        torn = data.count(0, offset) != len(data) - offset
        self._bad = ScanEnd(file_id, offset, sequence, torn)

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
