"""The two hashes by which Apache Pulsar's clients map a key to a partition.

Both are cut to 31 bits, as in Apache Pulsar.

Brokers use the second for key-shared subscriptions.
"""

from __future__ import annotations

from typing import Final

__all__ = ["java_string_hash", "murmur3_32_hash"]

_MASK: Final = 0xFFFF_FFFF
_POSITIVE: Final = 0x7FFF_FFFF


def java_string_hash(key: str) -> int:
    """Return Java's ``String.hashCode`` over UTF-16 code units, without the sign."""
    units = key.encode("utf-16-le", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + units[at] + (units[at + 1] << 8)) & _MASK
    return value & _POSITIVE


def murmur3_32_hash(key: bytes) -> int:
    """Return MurmurHash3 x86 32 bit with seed 0, without the sign.

    Source: Austin Appleby's public-domain description.
    """
    value = 0
    end = len(key) & ~3
    for at in range(0, end, 4):
        block = int.from_bytes(key[at : at + 4], "little") * 0xCC9E2D51 & _MASK
        block = (block << 15 | block >> 17) & _MASK
        value ^= block * 0x1B873593 & _MASK
        value = (value << 13 | value >> 19) & _MASK
        value = (value * 5 + 0xE6546B64) & _MASK
    if tail := key[end:]:
        block = int.from_bytes(tail, "little") * 0xCC9E2D51 & _MASK
        block = (block << 15 | block >> 17) & _MASK
        value ^= block * 0x1B873593 & _MASK
    value ^= len(key)
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return (value ^ value >> 16) & _POSITIVE
