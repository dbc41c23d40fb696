"""Records of columns as JSON or Avro, and the definition that the topic's registry gets."""

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

__all__ = ["Encode", "RecordSchema", "definition_of", "encoder", "schema_of"]

Encode = Callable[[dict[str, Any]], bytes]
"""A record, as a dict of Arrow's Python values, into the payload of a message."""

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
    """The Avro definition of a ``StructType``, fields in its order; what may be null is a union with null, and null by default.

    Raises ``InvalidArgument`` for a type that Avro has not.
    """
    fields = []
    for field in record.fields:
        kind = _type_of(field.dataType, f"{name}_{field.name}", field.name)
        fields.append(
            {"name": field.name, "type": ["null", kind], "default": None} if field.nullable else {"name": field.name, "type": kind}
        )
    return {"type": "record", "name": name, "fields": fields}


def _type_of(kind: Any, name: str, path: str) -> Any:
    for known, avro in (*_PLAIN.items(), *_LOGICAL.items()):
        if type(kind) is known:
            return avro
    if isinstance(kind, types.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, types.StructType):
        return definition_of(kind, name)
    if isinstance(kind, types.ArrayType):
        inner = _type_of(kind.elementType, name, path)
        return {"type": "array", "items": ["null", inner] if kind.containsNull else inner}
    if isinstance(kind, types.MapType) and isinstance(kind.keyType, types.StringType):
        inner = _type_of(kind.valueType, name, path)
        return {"type": "map", "values": ["null", inner] if kind.valueContainsNull else inner}
    raise InvalidArgument(f"column {path!r} is {kind.simpleString()}, for which a record has no type: cast it, for example to string")


def schema_of(record: Any, kind: SchemaType) -> Schema:
    """What the registry is told of records of a ``StructType``."""
    return Schema(kind, json.dumps(definition_of(record)).encode(), kind.name)


class RecordSchema:
    """For a producer: records are bytes by then, so that it only tells the broker of the schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        return data

    def schema_info(self) -> Schema:
        return self._schema


def encoder(record: Any, schema: Schema) -> Encode:
    """How records of a ``StructType`` become messages of a schema of type JSON or AVRO.

    The function raises ``InvalidArgument`` for a record that the schema does not take.
    """
    return _avro_encoder(record, schema) if schema.type is SchemaType.AVRO else _json_encoder(record)


def _json_encoder(record: Any) -> Encode:
    convert = _converter(record, is_json=True)
    encode = msgspec.json.Encoder(decimal_format="number").encode

    def to_json(value: dict[str, Any]) -> bytes:
        return encode(convert(value) if convert is not None else value)

    return to_json


def _avro_encoder(record: Any, schema: Schema) -> Encode:
    try:
        import fastavro
    except ImportError:
        raise InvalidArgument("writing Avro needs fastavro: pip install 'pulsarish[avro]'") from None
    parsed = fastavro.parse_schema(json.loads(schema.data))
    convert = _converter(record, is_json=False)

    def to_avro(value: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, parsed, convert(value) if convert is not None else value)
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            raise InvalidArgument(f"a record does not fit the Avro schema: {error}") from None
        return out.getvalue()

    return to_avro


def _converter(kind: Any, *, is_json: bool) -> _Convert | None:
    """From Arrow's Python value to what the encoder takes; ``None`` where they are the same."""
    if isinstance(kind, types.StructType):
        return _of_fields({field.name: _converter(field.dataType, is_json=is_json) for field in kind.fields})
    if isinstance(kind, types.ArrayType):
        inner = _converter(kind.elementType, is_json=is_json)
        return None if inner is None else lambda values: [None if value is None else inner(value) for value in values]
    if isinstance(kind, types.MapType):
        of_value = _converter(kind.valueType, is_json=is_json) or (lambda value: value)
        return lambda pairs: {key: None if value is None else of_value(value) for key, value in pairs}
    if not is_json:
        return None
    if isinstance(kind, types.TimestampType):
        return lambda value: _micros(value - _EPOCH)
    if isinstance(kind, types.TimestampNTZType):
        return lambda value: _micros(value - _EPOCH_LOCAL)
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
