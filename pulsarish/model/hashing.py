"""The hashes by which Apache Pulsar's clients map a key to a partition, cut to 31 bits as there.

Brokers use MurmurHash3 for key-shared subscriptions.
"""

from __future__ import annotations

from typing import Final

__all__ = ["boost_hash", "java_string_hash", "murmur3_32_hash"]

_MASK: Final = 0xFFFF_FFFF
_POSITIVE: Final = 0x7FFF_FFFF
_LONG: Final = 0xFFFF_FFFF_FFFF_FFFF
_BOOST_STEP: Final = 0x9E37_79B9_7F4A_7C15
_BOOST_FACTOR: Final = 0xDF44_2D22_CE48_59B9


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


def boost_hash(key: bytes) -> int:
    """Return ``boost::hash`` of a ``std::string``, of 64 bits and Boost 1.81 or newer.

    Apache Pulsar's clients in C++ and Python have it as their default.
    """
    count = len(key)
    step = _folded(_BOOST_STEP)
    value = step ^ count
    whole = count & ~7
    for at in range(0, whole, 8):
        step = (step + _BOOST_STEP) & _LONG
        value ^= _folded(int.from_bytes(key[at : at + 8], "little") + step)
    tail = key[whole:]
    last = 0
    if len(tail) >= 4:
        last = int.from_bytes(tail[-4:], "little") << (len(tail) - 4) * 8
        last |= int.from_bytes(tail[:4], "little")
    elif tail:
        # The first, middle and last of up to three bytes, which may be the same.
        second, third = (len(tail) - 1) & 2, len(tail) >> 1
        last = tail[0] | tail[second] << second * 8 | tail[third] << third * 8
    step = (step + _BOOST_STEP) & _LONG
    value ^= _folded(last + step)
    return _folded(value + step) & _POSITIVE


def _folded(value: int) -> int:
    """Return a product of 128 bits with its halves combined."""
    product = (value & _LONG) * _BOOST_FACTOR
    return (product ^ product >> 64) & _LONG
