"""Protobuf's variable-length numbers, for the few messages that are encoded by hand because they
are so frequent.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ONE_BYTE", "encode_varint"]

ONE_BYTE: Final = [bytes((value,)) for value in range(128)]
"""The numbers that need one byte."""


def encode_varint(value: int) -> bytes:
    """Encode a number of 64 bits. A negative one is encoded as its complement, as in protobuf."""
    if value < 0x80:
        return ONE_BYTE[value] if value >= 0 else encode_varint(value + (1 << 64))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
