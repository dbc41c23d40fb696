"""A topic's schema as Arrow columns: their names and types are those of the Spark source.

A record's fields become columns; any other value is the column ``value``. A field with the name of
a fixed column gets the prefix ``value_``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID  # noqa: TID251  # the type only

import pyarrow as pa

from pulsarish.client.schemas.auto_consume import AutoConsumeSchema
from pulsarish.client.schemas.schema import JsonSchema, Schema, schema_info
from pulsarish.model import schema as model
from pulsarish.model.errors import OperationNotSupported
from pulsarish.model.schema import SchemaType

__all__ = ["CORRUPT", "FIXED", "VALUE", "ValueColumns", "value_columns"]

VALUE: Final = "value"
CORRUPT: Final = "_corrupt"
"""The column with the payload of a message whose value the other columns do not hold."""
_TIME: Final = pa.timestamp("us", tz="UTC")
_ID: Final = pa.struct(
    [
        ("ledger", pa.int64()),
        ("entry", pa.int64()),
        ("partition", pa.int32()),
        ("batch_index", pa.int32()),
    ]
)
FIXED: Final[Mapping[str, Any]] = {
    CORRUPT: pa.binary(),
    "key": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "topic": pa.string(),
    "partition": pa.int32(),
    "message_id": _ID,
    "publish_time": _TIME,
    "event_time": _TIME,
    "sequence_id": pa.int64(),
    "producer_name": pa.string(),
}
"""The columns that follow those of the value, and their types."""
_DEPTH_MAX: Final = 50
_PRIMITIVE: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
# Conversions of Avro only: JSON does not define how a program writes its times.
_LOGICAL: Final = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": _TIME,
    "timestamp-micros": _TIME,
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_NUMBERS: Final = {
    SchemaType.BOOLEAN: pa.bool_(),
    SchemaType.INT8: pa.int8(),
    SchemaType.INT16: pa.int16(),
    SchemaType.INT32: pa.int32(),
    SchemaType.INT64: pa.int64(),
    SchemaType.FLOAT: pa.float32(),
    SchemaType.DOUBLE: pa.float64(),
    SchemaType.DATE: pa.int64(),
    SchemaType.TIME: pa.int64(),
    SchemaType.TIMESTAMP: pa.int64(),
}


@dataclass(frozen=True)
class ValueColumns:
    """The columns of a topic's values.

    Args:
        types: by column.
        fields: the record's field of each column; empty for a value that is not a record.
        plain: turns a value of the consumer's schema into what Arrow takes.
        defaults: of fields that an older writer did not have.
        is_payload: the column ``value`` holds the payload itself.
    """

    types: Mapping[str, Any]
    fields: Mapping[str, str] = field(default_factory=dict)
    plain: Callable[[Any], Any] = lambda value: value
    defaults: Mapping[str, Any] = field(default_factory=dict)
    is_payload: bool = False

    def schema(self) -> pa.Schema:
        """Return the schema of the whole table."""
        return pa.schema([*self.types.items(), *FIXED.items()])


def value_columns(schema: Schema, of_topic: model.Schema | None) -> ValueColumns:
    """Return the columns of what a consumer with ``schema`` receives.

    Args:
        of_topic: the newest schema of the topic, for ``AutoConsumeSchema``.

    Raises ``OperationNotSupported`` for a schema whose values are no columns.
    """
    info = of_topic if isinstance(schema, AutoConsumeSchema) else schema_info(schema)
    if info is None or info.type is SchemaType.NONE:
        # JSON of any shape is text; other schemas say nothing about their values.
        kind = pa.string() if isinstance(schema, JsonSchema) else pa.binary()
        return ValueColumns({VALUE: kind}, is_payload=True)
    if info.type is SchemaType.STRING:
        return ValueColumns({VALUE: pa.string()})
    if info.type in _NUMBERS:
        return ValueColumns({VALUE: _NUMBERS[info.type]})
    if info.type not in (SchemaType.AVRO, SchemaType.JSON):
        raise OperationNotSupported(
            f"values of schema type {info.type.name} cannot become columns: take them with "
            "receive() and value()"
        )
    return _defined(schema, info)


def _defined(schema: Schema, info: model.Schema) -> ValueColumns:
    is_avro = info.type is SchemaType.AVRO
    definition = json.loads(info.data)
    plain = getattr(schema, "to_plain", None) or _unchanged
    if is_avro and "uuid" in info.data.decode():
        plain = _with_texts(plain)
    types = _Types(is_avro=is_avro)
    if not isinstance(definition, dict) or definition.get("type") != "record":
        return ValueColumns({VALUE: types.of(definition, VALUE)}, plain=plain)
    types.remember(definition)
    fields: dict[str, str] = {}
    names = [str(each["name"]) for each in definition["fields"]]
    for name in names:
        fields[_column(name, names, fields)] = name
    return ValueColumns(
        {
            column: types.of(each["type"], f"field {each['name']!r}")
            for column, each in zip(fields, definition["fields"], strict=True)
        },
        fields,
        plain,
        {
            each["name"]: each["default"]
            for each in definition["fields"]
            if is_avro and "default" in each
        },
    )


def _unchanged(value: Any) -> Any:
    return value


def _with_texts(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: _texts(plain(value))


def _texts(value: Any) -> Any:
    """Return the value with each UUID as its text."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _texts(each) for key, each in value.items()}
    return [_texts(each) for each in value] if isinstance(value, list) else value


def _column(name: str, names: Sequence[str], taken: Collection[str]) -> str:
    """Return a name that no other column has in any case, as Spark compares them."""
    others = {each.lower() for each in (VALUE, *FIXED, *taken)}
    column = name
    while column.lower() in others or (column != name and column.lower() in map(str.lower, names)):
        column = f"value_{column}"
    return column


class _Types:
    """The Arrow types of one Avro definition."""

    def __init__(self, *, is_avro: bool) -> None:
        self._is_avro = is_avro
        self._named: dict[str, Any] = {}

    def remember(self, kind: dict[str, Any]) -> None:
        """Remember a named type: later fields may give it by its name only."""
        if "name" in kind:
            self._named[kind["name"]] = kind
            full = ".".join(filter(None, (kind.get("namespace", ""), kind["name"])))
            self._named[full] = kind

    def of(self, kind: Any, where: str, depth: int = 0) -> pa.DataType:
        if depth > _DEPTH_MAX:
            raise OperationNotSupported(f"{where}: a type that holds itself cannot be a column")
        if isinstance(kind, str):
            if kind in self._named:
                return self.of(self._named[kind], where, depth + 1)
            if kind in _PRIMITIVE:
                return _PRIMITIVE[kind]
            raise OperationNotSupported(f"{where}: type {kind!r} is not known")
        if isinstance(kind, list):
            others = [each for each in kind if each != "null"]
            if len(others) != 1:
                raise OperationNotSupported(
                    f"{where}: a union of {len(others)} types cannot be a column"
                )
            return self.of(others[0], where, depth + 1)
        logical = kind.get("logicalType")
        if self._is_avro and logical in _LOGICAL:
            return _LOGICAL[logical]
        if logical == "decimal":
            return pa.decimal128(kind["precision"], kind.get("scale", 0))
        self.remember(kind)
        match kind.get("type"):
            case "record":
                inner = [
                    (each["name"], self.of(each["type"], where, depth + 1))
                    for each in kind["fields"]
                ]
                return pa.struct(inner)
            case "array":
                return pa.list_(self.of(kind["items"], where, depth + 1))
            case "map":
                return pa.map_(pa.string(), self.of(kind["values"], where, depth + 1))
            case "enum" | "fixed" as simple:
                return _PRIMITIVE[simple]
            case other:
                return self.of(other, where, depth + 1)
