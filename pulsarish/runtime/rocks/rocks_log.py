"""The records of RocksDB's logs and manifests, as far as they must be checked before RocksDB reads
them.

A file is a sequence of blocks of 32 KiB, each with records ``crc32c u32 | length u16 | type u8 |
data``, little-endian. The masked CRC covers type and data. Types 5 to 8 belong to recycled logs,
which are not used here. One flipped bit turns type 1 into type 5, and RocksDB 9.8 then reads the
same place forever.
"""

from __future__ import annotations

import struct
from typing import Final

from google_crc32c import extend

__all__ = ["recycled_record_at"]

_BLOCK_BYTES: Final = 32 << 10
_HEAD: Final = struct.Struct("<IHB")
_RECYCLED: Final = range(5, 9)
_MASK: Final = 0xA282EAD8


def recycled_record_at(data: bytes) -> int | None:
    """Return the offset of a record with a type of recycled logs that RocksDB would reach; ``None``
    when there is none.
    """
    at = 0
    while True:
        left = _BLOCK_BYTES - at % _BLOCK_BYTES
        if left < _HEAD.size:
            at += left
        if at + _HEAD.size > len(data):
            return None
        crc, size, kind = _HEAD.unpack_from(data, at)
        if kind in _RECYCLED:
            return at
        end = at + _HEAD.size + size
        if end > len(data) or _masked(extend(0, data[at + 6 : end])) != crc:
            return None  # RocksDB stops here by itself
        at = end


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
