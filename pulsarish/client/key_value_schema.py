"""A key and a value in one message, each by a schema of its own, in the form of Apache Pulsar's Java client.

Both are in the payload (its ``INLINE`` encoding). That which makes the key the message's own (``SEPARATED``) is not written, and refused
where it is read.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pulsarish.client.schema import Decode, Schema, reader_for, schema_info
from pulsarish.model import schema as model
from pulsarish.model.errors import InvalidArgument, UnsupportedFeature
from pulsarish.model.schema import KEY_VALUE_ENCODING, SchemaType, join_key_value, split_key_value

__all__ = ["KeyValue", "KeyValueSchema"]

_LENGTH_BYTES: Final = 4
_NULL: Final = -1
_BYTES: Final = model.Schema(SchemaType.NONE, b"", "BYTES")


class KeyValue(NamedTuple):
    key: Any
    value: Any


class KeyValueSchema:
    """Takes and gives ``KeyValue``, or a pair; either part may be ``None``."""

    def __init__(self, key_schema: Schema, value_schema: Schema) -> None:
        self._key = key_schema
        self._value = value_schema
        self._info = join_key_value(schema_info(key_schema) or _BYTES, schema_info(value_schema) or _BYTES)

    def encode(self, value: object) -> bytes:
        if not isinstance(value, tuple) or len(value) != 2:
            raise InvalidArgument(f"content is of type {type(value).__name__}: KeyValueSchema takes a KeyValue")
        parts = (None if each is None else schema.encode(each) for schema, each in zip((self._key, self._value), value, strict=True))
        return b"".join([_sized(part) for part in parts])

    def decode(self, data: bytes) -> KeyValue:
        return _read(data, self._key.decode, self._value.decode)

    def reader_for(self, writer: model.Schema) -> Decode:
        """How to read what was written with another version of either part. Raises ``InvalidArgument``, ``UnsupportedFeature``."""
        parts = key_value_parts(writer)
        decodes = [_part_reader(schema, part) for schema, part in zip((self._key, self._value), parts, strict=True)]
        return lambda data: _read(data, *decodes)

    def schema_info(self) -> model.Schema:
        return self._info


def key_value_parts(writer: model.Schema) -> tuple[model.Schema, model.Schema]:
    """Raises ``InvalidArgument`` for another type, ``UnsupportedFeature`` for another encoding."""
    if writer.type is not SchemaType.KEY_VALUE:
        raise InvalidArgument(f"it was written with a schema of type {writer.type.name}, not KEY_VALUE: read it with data()")
    encoding = writer.properties.get(KEY_VALUE_ENCODING, "INLINE")
    if encoding != "INLINE":
        raise UnsupportedFeature(
            f"this client does not read key and value in the encoding {encoding}: read them with partition_key() and data()"
        )
    return split_key_value(writer)


def key_value_decoder(key: Decode, value: Decode) -> Decode:
    """How to read both by what reads each."""
    return lambda data: _read(data, key, value)


def _part_reader(schema: Schema, writer: model.Schema) -> Decode:
    found = reader_for(schema)
    return schema.decode if found is None else found(writer)


def _sized(data: bytes | None) -> bytes:
    if data is None:
        return _NULL.to_bytes(_LENGTH_BYTES, "big", signed=True)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def _read(data: bytes, key: Decode, value: Decode) -> KeyValue:
    found: list[Any] = []
    for decode in (key, value):
        length = int.from_bytes(data[:_LENGTH_BYTES], "big", signed=True)
        if len(data) < _LENGTH_BYTES or not _NULL <= length <= len(data) - _LENGTH_BYTES:
            raise InvalidArgument("the message does not hold a key and a value: read it with data()")
        end = _LENGTH_BYTES + max(length, 0)
        found.append(None if length == _NULL else decode(data[_LENGTH_BYTES:end]))
        data = data[end:]
    if data:
        raise InvalidArgument(f"{len(data)} bytes follow key and value in the message: read it with data()")
    return KeyValue(*found)
