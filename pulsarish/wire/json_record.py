"""The records in the metadata store: JSON, so that an operator can read them with any ZooKeeper
shell.

Fields that a newer version added are ignored; missing ones get their defaults.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from pulsarish.model.errors import CorruptData

__all__ = ["decode_record", "encode_record"]

T = TypeVar("T", bound=msgspec.Struct)


def encode_record(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


def decode_record(data: bytes, kind: type[T], path: str) -> T:
    """Decode a record.

    Raises ``CorruptData`` naming the path when the bytes are not such a record.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptData(f"metadata node {path} is no valid {kind.__name__}: {error}") from None
