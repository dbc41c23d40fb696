"""Records of columns as JSON or Avro, and the definition for the topic's registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec
from pyspark.sql import types

from pulsarish.model.errors import InvalidArgument
from pulsarish.model.schema import Schema, SchemaType
from pulsarish.runtime.extras import install_command

__all__ = ["Encode", "RecordSchema", "check_fields", "definition_of", "encoder", "schema_of"]

Encode = Callable[[dict[str, Any]], bytes]
"""Encodes a record, a dict of Arrow's Python values, to the payload of a message."""

_Convert = Callable[[Any], Any]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_LOCAL: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - Spark's timestamps without a zone
_EPOCH_DATE: Final = date(1970, 1, 1)

_PLAIN: Final = {
    types.BooleanType: "boolean",
    types.ByteType: "int",
    types.ShortType: "int",
    types.IntegerType: "int",
    types.LongType: "long",
    types.FloatType: "float",
    types.DoubleType: "double",
    types.StringType: "string",
    types.BinaryType: "bytes",
}
_LOGICAL: Final = {
    types.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    types.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
    types.DateType: {"type": "int", "logicalType": "date"},
}


def definition_of(record: Any, name: str = "Record") -> dict[str, Any]:
    """Return the Avro definition of a ``StructType``, fields in its order.

    A nullable field is a union with null, and null by default.

    Raises ``InvalidArgument`` for a type that Avro does not have.
    """
    fields = []
    for field in record.fields:
        kind = _type_of(field.dataType, f"{name}_{field.name}", field.name)
        fields.append(
            {"name": field.name, "type": ["null", kind], "default": None}
            if field.nullable
            else {"name": field.name, "type": kind}
        )
    return {"type": "record", "name": name, "fields": fields}


def _type_of(kind: Any, name: str, path: str) -> Any:
    for known, avro in (*_PLAIN.items(), *_LOGICAL.items()):
        if type(kind) is known:
            return avro
    if isinstance(kind, types.DecimalType):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if isinstance(kind, types.StructType):
        return definition_of(kind, name)
    if isinstance(kind, types.ArrayType):
        inner = _type_of(kind.elementType, name, path)
        return {"type": "array", "items": ["null", inner] if kind.containsNull else inner}
    if isinstance(kind, types.MapType) and isinstance(kind.keyType, types.StringType):
        inner = _type_of(kind.valueType, name, path)
        return {"type": "map", "values": ["null", inner] if kind.valueContainsNull else inner}
    raise InvalidArgument(
        f"column {path!r} is {kind.simpleString()}, for which a record has no type: cast it, for "
        "example to string"
    )


def schema_of(record: Any, kind: SchemaType) -> Schema:
    """Return the schema to register for records of a ``StructType``."""
    return Schema(kind, json.dumps(definition_of(record)).encode(), kind.name)


def check_fields(record: Any, schema: Schema, topic: str) -> None:
    """Check that a ``StructType`` has the fields of a topic's schema.

    Raises ``InvalidArgument`` naming a column or field that would be lost.
    """
    definition = json.loads(schema.data)
    if not isinstance(definition, dict) or definition.get("type") != "record":
        raise InvalidArgument(
            f"the schema of topic {topic} is none of records: make 'value' binary or string"
        )
    fields = {str(field["name"]): field for field in definition["fields"]}
    for name in record.names:
        if name not in fields:
            raise InvalidArgument(
                f"column {name!r} is no field of the schema of topic {topic}, which has "
                f"{', '.join(fields)}; drop it"
            )
    for name, field in fields.items():
        may_lack = "default" in field or (
            isinstance(field["type"], list) and "null" in field["type"]
        )
        if name not in record.names and not may_lack:
            raise InvalidArgument(
                f"field {name!r} of the schema of topic {topic} has no default, and there is no "
                "column of that name"
            )


class RecordSchema:
    """The producer's schema.

    Records are already encoded, so it only registers the definition with the broker.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        return data

    def schema_info(self) -> Schema:
        return self._schema


def encoder(record: Any, schema: Schema) -> Encode:
    """Return how to encode records of a ``StructType`` by a schema of type JSON or AVRO.

    The function raises ``InvalidArgument`` for a record that does not fit the schema.
    """
    return (
        _avro_encoder(record, schema)
        if schema.type is SchemaType.AVRO
        else _json_encoder(record, schema)
    )


def _json_encoder(record: Any, schema: Schema) -> Encode:
    convert = _converter(record, is_json=True, avro=json.loads(schema.data))
    encode = msgspec.json.Encoder(decimal_format="number").encode

    def to_json(value: dict[str, Any]) -> bytes:
        return encode(convert(value) if convert is not None else value)

    return to_json


def _avro_encoder(record: Any, schema: Schema) -> Encode:
    try:
        import fastavro
    except ImportError:
        raise InvalidArgument(f"writing Avro needs fastavro: {install_command('avro')}") from None
    parsed = fastavro.parse_schema(json.loads(schema.data))
    convert = _converter(record, is_json=False)

    def to_avro(value: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(
                out,
                parsed,
                convert(value) if convert is not None else value,
                strict_allow_default=True,
            )
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            raise InvalidArgument(f"a record does not fit the Avro schema: {error}") from None
        return out.getvalue()

    return to_avro


def _converter(kind: Any, *, is_json: bool, avro: Any = None) -> _Convert | None:
    """Return the conversion from Arrow's Python value to the encoder's; ``None`` where they are
    equal.

    ``avro``: its definition.
    """
    avro = next((each for each in avro if each != "null"), None) if isinstance(avro, list) else avro
    said = avro if isinstance(avro, dict) else {}
    if isinstance(kind, types.StructType):
        inner = {field["name"]: field["type"] for field in said.get("fields", ())}
        return _of_fields(
            {
                each.name: _converter(each.dataType, is_json=is_json, avro=inner.get(each.name))
                for each in kind.fields
            }
        )
    if isinstance(kind, types.ArrayType):
        of_each = _converter(kind.elementType, is_json=is_json, avro=said.get("items"))
        return (
            None
            if of_each is None
            else lambda values: [None if value is None else of_each(value) for value in values]
        )
    if isinstance(kind, types.MapType):
        of_value = _converter(kind.valueType, is_json=is_json, avro=said.get("values")) or (
            lambda value: value
        )
        return lambda pairs: {
            key: None if value is None else of_value(value) for key, value in pairs
        }
    if not is_json:
        return None
    unit = 1_000 if str(said.get("logicalType", "")).endswith("-millis") else 1
    if isinstance(kind, types.TimestampType):
        return lambda value: _micros(value - _EPOCH) // unit
    if isinstance(kind, types.TimestampNTZType):
        return lambda value: _micros(value - _EPOCH_LOCAL) // unit
    if isinstance(kind, types.DateType):
        return lambda value: (value - _EPOCH_DATE).days
    return None


def _micros(since: timedelta) -> int:
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _of_fields(fields: dict[str, _Convert | None]) -> _Convert | None:
    changed = {name: convert for name, convert in fields.items() if convert is not None}
    if not changed:
        return None

    def convert_fields(value: dict[str, Any]) -> dict[str, Any]:
        found = dict(value)
        for name, convert in changed.items():
            if found[name] is not None:
                found[name] = convert(found[name])
        return found

    return convert_fields
