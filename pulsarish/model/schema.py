"""A schema as brokers and clients use it: a type by Apache Pulsar's number, the bytes that define
it, its name and properties.

The bytes are kept unchanged. ``fingerprint`` decides whether two schemas are the same; it ignores
the layout of a definition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import msgspec

from pulsarish.model.errors import InvalidSchema

__all__ = [
    "AVRO_DEFINED",
    "KEY_VALUE_ENCODING",
    "Schema",
    "SchemaType",
    "VersionedSchema",
    "fingerprint",
    "join_key_value",
    "meant",
    "split_key_value",
    "version_bytes",
    "version_number",
]

_LENGTH_BYTES: Final = 4
_VERSION_BYTES: Final = 8

KEY_VALUE_ENCODING: Final = "kv.encoding.type"
_PARTS: Final = ("key", "value")


class SchemaType(IntEnum):
    """The numbers of Apache Pulsar's protocol; the names are those of its HTTP interface."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21
    EXTERNAL = 22


AVRO_DEFINED: Final = frozenset({SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF})
"""Types whose definition is an Avro schema in JSON."""


@dataclass(frozen=True, slots=True)
class Schema:
    type: SchemaType
    data: bytes = b""
    name: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VersionedSchema:
    """A schema in the registry."""

    version: int
    schema: Schema
    created_ms: int = 0


def meant(schema: Schema | None) -> Schema | None:
    """Return the schema; ``None`` if it does not describe the content: no schema, bytes, or the
    topic's own schema.
    """
    return (
        None
        if schema is None or schema.type in (SchemaType.NONE, SchemaType.AUTO_CONSUME)
        else schema
    )


def version_bytes(version: int) -> bytes:
    """Return a version in the form of the protocol and the metadata of messages."""
    return version.to_bytes(_VERSION_BYTES, "big")


def version_number(version: bytes) -> int:
    """Return the number of a version. Raises ``InvalidSchema`` for bytes that are not a version."""
    if len(version) != _VERSION_BYTES:
        raise InvalidSchema(f"a schema's version has {_VERSION_BYTES} bytes, not {len(version)}")
    return int.from_bytes(version, "big", signed=True)


def fingerprint(schema: Schema) -> str:
    """Return a hexadecimal text that is equal for schemas of one type and meaning, in any layout of
    the definition.
    """
    data: bytes = schema.data
    if schema.type in AVRO_DEFINED:
        data = _canonical(data)
    elif schema.type is SchemaType.STRING and data == b"null":
        data = b""  # what Apache Pulsar's Python client sends for "no definition"
    elif schema.type is SchemaType.KEY_VALUE:
        names = (KEY_VALUE_ENCODING, *(f"{part}.schema.type" for part in _PARTS))
        data = msgspec.json.encode([schema.properties.get(name, "") for name in names]) + data
    return hashlib.sha256(b"%d " % schema.type + data).hexdigest()


def _canonical(data: bytes) -> bytes:
    try:
        return msgspec.json.encode(_without_docs(msgspec.json.decode(data)), order="deterministic")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError):
        return data  # no definition; ``check_valid`` reports it


def _without_docs(value: Any) -> Any:
    if isinstance(value, dict):
        is_definition = "type" in value
        return {
            key: _without_docs(each)
            for key, each in value.items()
            if not (is_definition and key == "doc")
        }
    if isinstance(value, list):
        return [_without_docs(each) for each in value]
    return value


def split_key_value(schema: Schema) -> tuple[Schema, Schema]:
    """Return the schemas of key and value.

    Raises ``InvalidSchema`` for a schema that does not consist of two.
    """
    parts: list[Schema] = []
    data = schema.data
    for part in _PARTS:
        length = int.from_bytes(data[:_LENGTH_BYTES], "big", signed=True)
        if len(data) < _LENGTH_BYTES or length > len(data) - _LENGTH_BYTES:
            raise InvalidSchema(
                f"the definition of a KEY_VALUE schema ends within that of its {part}"
            )
        length = max(length, 0)
        parts.append(_part(schema, part, data[_LENGTH_BYTES : _LENGTH_BYTES + length]))
        data = data[_LENGTH_BYTES + length :]
    if data:
        raise InvalidSchema(f"{len(data)} bytes follow the definition of a KEY_VALUE schema")
    return parts[0], parts[1]


def _part(schema: Schema, part: str, data: bytes) -> Schema:
    name = schema.properties.get(f"{part}.schema.type", "")
    raw = schema.properties.get(f"{part}.schema.properties", "")
    try:
        kind = SchemaType.NONE if name in ("", "BYTES") else SchemaType[name]
        properties = msgspec.json.decode(raw or "{}", type=dict[str, str])
    except KeyError:
        raise InvalidSchema(
            f"the property {part}.schema.type of a KEY_VALUE schema is {name!r}, which is no type "
            "of schema"
        ) from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidSchema(
            f"the property {part}.schema.properties of a KEY_VALUE schema cannot be read: {error}"
        ) from None
    return Schema(kind, data, schema.properties.get(f"{part}.schema.name", ""), properties)


def join_key_value(
    key: Schema, value: Schema, *, encoding: str = "INLINE", name: str = "KeyValue"
) -> Schema:
    """Return a KEY_VALUE schema.

    ``encoding``: ``INLINE`` (both in the payload) or ``SEPARATED`` (the key is the message's key).
    """
    properties = {KEY_VALUE_ENCODING: encoding}
    for part, schema in zip(_PARTS, (key, value), strict=True):
        properties[f"{part}.schema.name"] = schema.name
        properties[f"{part}.schema.type"] = (
            "BYTES" if schema.type is SchemaType.NONE else schema.type.name
        )
        properties[f"{part}.schema.properties"] = msgspec.json.encode(
            dict(schema.properties)
        ).decode()
    data = b"".join(
        [len(schema.data).to_bytes(_LENGTH_BYTES, "big") + schema.data for schema in (key, value)]
    )
    return Schema(SchemaType.KEY_VALUE, data, name, properties)
