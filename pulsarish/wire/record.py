"""One ledger entry as bookies carry and store it.

``crc32c u32 | ledger i64 | entry i64 | lac i64 | length i64 | payload``, big-endian. The CRC covers
everything after itself, so a change of the ids or the payload is always detected. ``lac`` is the
last confirmed entry that the writer knew when it sent this one. ``length`` is the sum of the
payload sizes up to and including this entry.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from google_crc32c import extend

from pulsarish.model.errors import ChecksumError

__all__ = [
    "RECORD_HEAD",
    "RECORD_HEAD_SIZE",
    "Record",
    "decode_entry_record",
    "encode_record_head",
    "matches_crc",
    "peek_ids",
    "restamp_lac",
    "verify_record",
]

RECORD_HEAD: Final = struct.Struct(">Iqqqq")
"""crc, ledger, entry, LAC, length: for code that decodes thousands of heads."""
_IDS: Final = struct.Struct(">qqqq")
_CRC: Final = struct.Struct(">I")
RECORD_HEAD_SIZE: Final = RECORD_HEAD.size  # 36


class Record(NamedTuple):
    ledger_id: int
    entry_id: int
    lac: int
    length_bytes: int
    payload: memoryview


def encode_record_head(
    ledger_id: int, entry_id: int, lac: int, length_bytes: int, payload: bytes
) -> bytes:
    """Return the 36 bytes before a payload.

    The record is these bytes and the payload, which is not copied.
    """
    ids = _IDS.pack(ledger_id, entry_id, lac, length_bytes)
    return _CRC.pack(extend(extend(0, ids), payload)) + ids


def verify_record(record: bytes | memoryview) -> None:
    """Check size and CRC. Raises ``ChecksumError``."""
    if len(record) < RECORD_HEAD_SIZE:
        raise ChecksumError(f"an entry record of {len(record)} bytes is shorter than its head")
    if not matches_crc(record):
        _, ledger_id, entry_id, _, _ = RECORD_HEAD.unpack_from(record)
        raise ChecksumError(f"entry {entry_id} of ledger {ledger_id} does not match its CRC32C")


def matches_crc(record: bytes | memoryview) -> bool:
    """Whether these bytes are a whole record. ``peek_ids`` of other bytes is meaningless."""
    return (
        len(record) >= RECORD_HEAD_SIZE
        and extend(0, bytes(record[4:])) == _CRC.unpack_from(record)[0]
    )


def peek_ids(record: bytes | memoryview) -> tuple[int, int, int, int, int]:
    """Return ``(crc, ledger, entry, lac, length)`` without a check."""
    return RECORD_HEAD.unpack_from(record)


def decode_entry_record(record: bytes | memoryview, ledger_id: int, entry_id: int) -> Record:
    """Verify and decode a record that was read for the given ids.

    Raises ``ChecksumError`` also when it is another entry.
    """
    verify_record(record)
    _, found_ledger, found_entry, lac, length = RECORD_HEAD.unpack_from(record)
    if (found_ledger, found_entry) != (ledger_id, entry_id):
        raise ChecksumError(
            f"asked for entry {entry_id} of ledger {ledger_id}, got {found_entry} of {found_ledger}"
        )
    return Record(found_ledger, found_entry, lac, length, memoryview(record)[RECORD_HEAD_SIZE:])


def restamp_lac(record: Record, lac: int) -> bytes:
    """Return the whole record with another LAC: recovery writes carry the LAC that was frozen at
    its start (rule 6).
    """
    payload = bytes(record.payload)
    return (
        encode_record_head(record.ledger_id, record.entry_id, lac, record.length_bytes, payload)
        + payload
    )
