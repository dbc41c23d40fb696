"""A key and a value in one message, each with its own schema, in the form of Apache Pulsar's Java
client.

Both are in the payload (``INLINE``), or the key is the message's key (``SEPARATED``). The broker
and the client route, order and compact by a message's key.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Generic, NamedTuple

from pulsarish.client.checks import check_type
from pulsarish.client.errors import InvalidType
from pulsarish.client.schemas.schema import (
    Decode,
    KeyedDecode,
    MessageKey,
    Schema,
    reader_for,
    schema_info,
)
from pulsarish.client.type_variables import Key, Value
from pulsarish.model import schema as model
from pulsarish.model.errors import InvalidArgument, OperationNotSupported
from pulsarish.model.schema import KEY_VALUE_ENCODING, SchemaType, join_key_value, split_key_value

__all__ = [
    "KeyValue",
    "KeyValueEncodingType",
    "KeyValueSchema",
    "key_value_decoder",
    "key_value_parts",
]

_LENGTH_BYTES: Final = 4
_NULL: Final = -1
_BYTES: Final = model.Schema(SchemaType.NONE, b"", "BYTES")


class KeyValue(NamedTuple, Generic[Key, Value]):
    key: Key
    value: Value


class KeyValueEncodingType(Enum):
    """Where the key is. The values are those of the topic's schema."""

    INLINE = "INLINE"
    """In the payload, before the value."""
    SEPARATED = "SEPARATED"
    """In the message's key; the payload holds only the value."""


class KeyValueSchema(Generic[Key, Value]):
    """Encodes and decodes ``KeyValue``, or a pair. Either part may be ``None``."""

    def __init__(
        self,
        key_schema: Schema[Key],
        value_schema: Schema[Value],
        encoding: KeyValueEncodingType = KeyValueEncodingType.INLINE,
    ) -> None:
        """Raises ``InvalidArgument`` for an unknown encoding."""
        check_type("encoding", encoding, KeyValueEncodingType, "a KeyValueEncodingType")
        self._key = key_schema
        self._value = value_schema
        self._is_separated = encoding is KeyValueEncodingType.SEPARATED
        self._info = join_key_value(
            schema_info(key_schema) or _BYTES,
            schema_info(value_schema) or _BYTES,
            encoding=encoding.value,
        )
        self.decode: Callable[[bytes], KeyValue[Key, Value]] = key_value_decoder(
            self._info, key_schema.decode, value_schema.decode
        )
        self.message_key = self._message_key if self._is_separated else None

    def encode(self, value: KeyValue[Key, Value] | tuple[Key, Value]) -> bytes:
        key, content = _pair(value)
        if self._is_separated:
            return b"" if content is None else self._value.encode(content)
        return _sized(None if key is None else self._key.encode(key)) + _sized(
            None if content is None else self._value.encode(content)
        )

    def _message_key(self, value: object) -> MessageKey:
        key, content = _pair(value)
        return MessageKey(None if key is None else self._key.encode(key), content is None)

    def reader_for(self, writer: model.Schema) -> Decode:
        """Return how to decode what was written with another version of either part, or another
        encoding.

        Raises ``InvalidArgument``, ``OperationNotSupported``.
        """
        parts = key_value_parts(writer)
        return key_value_decoder(
            writer, _part_reader(self._key, parts[0]), _part_reader(self._value, parts[1])
        )

    def schema_info(self) -> model.Schema:
        return self._info


def key_value_parts(writer: model.Schema) -> tuple[model.Schema, model.Schema]:
    """Return the schemas of key and value.

    Raises ``InvalidArgument`` for another type, ``InvalidSchema``.
    """
    if writer.type is not SchemaType.KEY_VALUE:
        raise InvalidArgument(
            f"it was written with a schema of type {writer.type.name}, not KEY_VALUE: read it "
            "with data()"
        )
    return split_key_value(writer)


def key_value_decoder(writer: model.Schema, key: Decode, value: Decode) -> Decode:
    """Return how to decode pairs of a schema, from a decoder for each part.

    Raises ``OperationNotSupported`` for another encoding.
    """
    match writer.properties.get(KEY_VALUE_ENCODING, KeyValueEncodingType.INLINE.value):
        case KeyValueEncodingType.INLINE.value:
            return lambda data: _read(data, key, value)
        case KeyValueEncodingType.SEPARATED.value:
            return KeyedDecode(
                lambda own, data: KeyValue(
                    None if own is None else key(own), None if data is None else value(data)
                )
            )
        case encoding:
            raise OperationNotSupported(
                f"this client does not read key and value in the encoding {encoding}: read them "
                "with partition_key() and data()"
            )


def _pair(value: object) -> tuple[Any, Any]:
    if not isinstance(value, tuple) or len(value) != 2:
        raise InvalidType(
            f"content is of type {type(value).__name__}: KeyValueSchema takes a KeyValue"
        )
    return value


def _part_reader(schema: Schema[Any], writer: model.Schema) -> Decode:
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
            raise InvalidArgument(
                "the message does not hold a key and a value: read it with data()"
            )
        end = _LENGTH_BYTES + max(length, 0)
        found.append(None if length == _NULL else decode(data[_LENGTH_BYTES:end]))
        data = data[end:]
    if data:
        raise InvalidArgument(
            f"{len(data)} bytes follow key and value in the message: read it with data()"
        )
    return KeyValue(*found)
