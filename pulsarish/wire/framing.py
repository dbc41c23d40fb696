"""A protobuf message whose last field is one ``bytes`` field that holds many records.

On the wire it is an ordinary protobuf message. This code copies the records neither into it nor out
of it: a sender joins them after the encoded small fields, a receiver slices them from the received
buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Final

from google.protobuf.message import DecodeError, Message

from pulsarish.model.errors import ChecksumError
from pulsarish.wire.varint import encode_varint

__all__ = ["RECORDS_FIELD", "join_encoded", "join_records", "slice_records", "split_records"]

RECORDS_FIELD: Final = 15
_TAG: Final = RECORDS_FIELD << 3 | 2  # one byte: fields up to 15 have a tag of one byte

Buffer = bytes | bytearray | memoryview


def join_records(header: Message, records: Sequence[Buffer], size_bytes: int) -> list[Buffer]:
    """Return the parts of one message: the header's fields, then the records as field 15.

    ``size_bytes`` is the sum of their sizes.
    """
    return join_encoded(header.SerializeToString(), records, size_bytes)


def join_encoded(head: bytes, records: Sequence[Buffer], size_bytes: int) -> list[Buffer]:
    """Return the parts like ``join_records``, for fields that are already encoded."""
    if not records:
        return [head]
    return [head + bytes((_TAG,)) + encode_varint(size_bytes), *records]


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise DecodeError("a varint is too long")


def split_records(data: bytes) -> tuple[bytes, memoryview]:
    """Split a received message into its small fields (to be parsed) and the records field (a view,
    empty when absent).

    Raises ``DecodeError`` for bytes that are not such a message.
    """
    at, end = 0, len(data)
    try:
        while at < end:
            start = at
            tag, at = _read_varint(data, at)
            kind = tag & 7
            if kind == 2:
                size, at = _read_varint(data, at)
                if tag == _TAG:
                    if at + size != end:
                        raise DecodeError("the records field is not the last one or is cut")
                    return data[:start], memoryview(data)[at:]
                at += size
            elif kind == 0:
                _, at = _read_varint(data, at)
            elif kind == 1:
                at += 8
            elif kind == 5:
                at += 4
            else:
                raise DecodeError(f"wire type {kind} is not known")
    except IndexError:
        raise DecodeError("the message is cut") from None
    if at != end:
        raise DecodeError("the message is cut")
    return data, memoryview(b"")


def slice_records(records: memoryview, sizes: Iterable[int]) -> list[memoryview]:
    """Return the single records, as views of the received buffer.

    Raises ``ChecksumError`` when the sizes do not fit the bytes.
    """
    ends = list(accumulate(sizes, initial=0))
    if ends[-1] != len(records):
        raise ChecksumError(f"records of {ends[-1]} bytes were announced, {len(records)} came")
    return [records[start:end] for start, end in pairwise(ends)]
