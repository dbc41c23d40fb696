"""The bytes of an entry log: a header, then chunks, each with consecutive records of one ledger.

Header, 24 bytes: ``magic u32 | version u32 | log id u32 | crc32c u32 | 8 zero bytes``. Chunk:
``magic u32 | log id u32 | ledger i64 | count u32 | crc32c u32 | sizes u32 * count | records``,
big-endian. The chunk's CRC covers its head (with a zero CRC field) and the sizes. Each record
carries its own CRC. A record is the entry exactly as it came over the wire, so the index can point
straight at it: log id, offset, size. Bytes after the last chunk that the index knows have no
meaning.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from google_crc32c import extend

from pulsarish.model.errors import CorruptData

__all__ = [
    "CHUNK_HEAD_SIZE",
    "HEADER_SIZE",
    "LOG_SUFFIX",
    "ChunkHead",
    "SizesCheck",
    "check_header",
    "chunk_beginning",
    "decode_chunk_head",
    "decode_chunk_sizes",
    "encode_chunk_head",
    "encode_header",
    "log_id_of",
    "log_name",
]

LOG_SUFFIX: Final = ".log"
_MAGIC: Final = 0x50454C31  # "PEL1"
_VERSION: Final = 1
_HEADER: Final = struct.Struct(">IIII8x")
_CHUNK_MAGIC: Final = 0x50454331  # "PEC1"
_CHUNK: Final = struct.Struct(">IIqII")
HEADER_SIZE: Final = _HEADER.size
CHUNK_HEAD_SIZE: Final = _CHUNK.size
_RECORD_BYTES_MAX: Final = 64 << 20
"""As large as the largest message that a bookie can be told to receive."""

assert HEADER_SIZE == 24
assert CHUNK_HEAD_SIZE == 24


@dataclass(frozen=True, slots=True)
class ChunkHead:
    ledger_id: int
    count: int
    crc: int

    @property
    def sizes_size(self) -> int:
        return 4 * self.count


class SizesCheck:
    """Checks the sizes of a chunk piece by piece, so that a damaged count costs no memory."""

    def __init__(self, log_id: int, head: ChunkHead) -> None:
        self._crc: int = _head_crc(log_id, head)
        self._wanted = head.crc

    def take(self, piece: bytes) -> bool:
        """Add the next sizes. Return whether they may be those of records."""
        if not piece or len(piece) % 4:
            return False
        self._crc = extend(self._crc, piece)
        sizes: tuple[int, ...] = struct.unpack(f">{len(piece) // 4}I", piece)
        return max(sizes) <= _RECORD_BYTES_MAX

    @property
    def is_whole(self) -> bool:
        """Whether head and sizes match their CRC, once all sizes were taken."""
        return self._crc == self._wanted


def log_name(log_id: int) -> str:
    return f"{log_id:010d}{LOG_SUFFIX}"


def log_id_of(name: str) -> int | None:
    """Return the id in an entry log's name; ``None`` for any other file."""
    stem = name.removesuffix(LOG_SUFFIX)
    return int(stem) if stem != name and stem.isdigit() else None


def encode_header(log_id: int) -> bytes:
    return _HEADER.pack(
        _MAGIC, _VERSION, log_id, extend(0, _HEADER.pack(_MAGIC, _VERSION, log_id, 0))
    )


def check_header(data: bytes, log_id: int, path: str) -> None:
    """Raise ``CorruptData`` for an unreadable header: it tells nothing about what follows it (rule
    12).
    """
    if data != encode_header(log_id):
        raise CorruptData(f"the entry log {path} has no valid header of log {log_id} at offset 0")


def chunk_beginning(log_id: int) -> bytes:
    """Return the bytes with which every chunk of a log begins."""
    return _CHUNK.pack(_CHUNK_MAGIC, log_id, 0, 0, 0)[:8]


def encode_chunk_head(log_id: int, ledger_id: int, sizes: Sequence[int]) -> bytes:
    """Return the head and the sizes; the records follow."""
    table = struct.pack(f">{len(sizes)}I", *sizes)
    crc = extend(extend(0, _CHUNK.pack(_CHUNK_MAGIC, log_id, ledger_id, len(sizes), 0)), table)
    return _CHUNK.pack(_CHUNK_MAGIC, log_id, ledger_id, len(sizes), crc) + table


def decode_chunk_head(data: bytes, log_id: int) -> ChunkHead | None:
    """Return the head of a chunk, or ``None`` when there is none.

    It must still be checked together with its sizes.
    """
    if len(data) < CHUNK_HEAD_SIZE:
        return None
    magic, found_id, ledger_id, count, crc = _CHUNK.unpack_from(data)
    if magic != _CHUNK_MAGIC or found_id != log_id:
        return None
    return ChunkHead(ledger_id, count, crc)


def decode_chunk_sizes(data: bytes, log_id: int, head: ChunkHead) -> list[tuple[int, int]] | None:
    """Return ``(offset from the end of the sizes, size)`` of each record, or ``None`` when head and
    sizes do not match their CRC.
    """
    if len(data) != head.sizes_size:
        return None
    if extend(_head_crc(log_id, head), data) != head.crc:
        return None
    sizes = struct.unpack(f">{head.count}I", data)
    return list(zip(accumulate(sizes, initial=0), sizes, strict=False))


def _head_crc(log_id: int, head: ChunkHead) -> int:
    packed = _CHUNK.pack(_CHUNK_MAGIC, log_id, head.ledger_id, head.count, 0)
    crc: int = extend(0, packed)
    return crc
