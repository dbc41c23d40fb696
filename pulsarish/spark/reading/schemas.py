"""A topic's schema as Spark columns. Runs on the driver and uses only the admin API.

A record's fields become columns; any other value is the column ``value`` with a type. A field with
the name of a fixed column gets the prefix ``value_``.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pulsarish.model.errors import InvalidArgument, NotFound
from pulsarish.model.topic_name import TopicName
from pulsarish.spark.columns import COLUMNS, VALUE
from pulsarish.spark.options import OnDecodeError, OptionError, ReadOptions, ValueSchema
from pulsarish.spark.reading.log import ClusterView
from pulsarish.spark.retry import retry_while_retryable

__all__ = ["CORRUPT", "TopicSchema", "check_columns", "schema_ddl", "topic_schema", "value_schema"]

CORRUPT: Final = "_corrupt"
"""The column with the bytes of a value that its schema does not decode, where the read keeps
them.
"""

_PRIMITIVE: Final = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL: Final = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}
"""Conversions of Avro only.

JSON does not define how a program writes its times, so they stay unchanged.
"""
_VALUES: Final = {
    "STRING": "string",
    "BYTES": "binary",
    "NONE": "binary",
    "BOOLEAN": "boolean",
    "INT8": "tinyint",
    "INT16": "smallint",
    "INT32": "int",
    "INT64": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DATE": "bigint",
    "TIME": "bigint",
    "TIMESTAMP": "bigint",
}


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """``versions``: type, definition and properties by number.

    ``fields``: columns and their record fields; empty for a value that is not a record.
    """

    versions: Mapping[int, tuple[str, str, Mapping[str, str]]]
    newest: int
    fields: Mapping[str, str]
    types: Mapping[str, str]
    on_error: OnDecodeError


def topic_schema(view: ClusterView, options: ReadOptions, topics: Sequence[str]) -> TopicSchema:
    """Return the schema of all the topics.

    Raises ``OptionError`` when there is none, or when they differ.
    """
    found: dict[str, TopicSchema] = {}
    for topic in dict.fromkeys(TopicName.parse(each).partitioned.full for each in topics):
        found[topic] = _schema_of(view, topic, options.on_decode_error)
    if not found:
        raise OptionError("valueSchema", "topic", "there is no topic yet whose schema it could be")
    (first_topic, first), *others = found.items()
    for topic, each in others:
        if each.types != first.types or each.versions != first.versions:
            raise OptionError(
                "valueSchema",
                "topic",
                f"the schemas of {first_topic} and {topic} differ; read them one by one",
            )
    return first


def value_schema(
    view: ClusterView, options: ReadOptions, topics: Sequence[str]
) -> TopicSchema | None:
    """Return the schema; ``None`` where values are read as bytes, or there is nothing to read."""
    return (
        topic_schema(view, options, topics)
        if options.value_schema is ValueSchema.TOPIC and topics
        else None
    )


def _schema_of(view: ClusterView, topic: str, on_error: OnDecodeError) -> TopicSchema:
    try:
        rows = retry_while_retryable(lambda: view.admin.schemas.list(topic))
    except NotFound:
        rows = []
    if not rows:
        raise OptionError(
            "valueSchema",
            "topic",
            f"topic {topic} has no schema; leave the option out to read bytes",
        )
    versions = {
        int(row["version"]): (str(row["type"]), str(row["data"]), dict(row.get("properties") or {}))
        for row in rows
    }
    newest = max(versions)
    kind, definition, _ = versions[newest]
    fields, types = _columns(topic, kind, definition)
    return TopicSchema(versions, newest, fields, types, on_error)


def _columns(topic: str, kind: str, definition: str) -> tuple[dict[str, str], dict[str, str]]:
    if kind in _VALUES:
        return {}, {VALUE: _VALUES[kind]}
    if kind not in ("AVRO", "JSON"):
        raise OptionError(
            "valueSchema",
            "topic",
            f"values of topic {topic} are of type {kind}, which cannot become columns",
        )
    record = json.loads(definition)
    if not isinstance(record, dict) or record.get("type") != "record":
        return {}, {VALUE: _type_of(record, {}, topic, is_avro=kind == "AVRO")}
    named: dict[str, Any] = {}
    fields: dict[str, str] = {}
    types: dict[str, str] = {}
    _ = _remember(record, named)
    names = [str(each["name"]) for each in record["fields"]]
    for name, each in zip(names, record["fields"], strict=True):
        column = _column(name, names, fields)
        fields[column] = name
        types[column] = _type_of(
            each["type"], named, f"{topic}, field {name!r}", is_avro=kind == "AVRO"
        )
    return fields, types


def _column(name: str, names: Sequence[str], taken: Collection[str]) -> str:
    """Return a name that no other column has. Spark does not distinguish upper from lower case."""
    others = {each.lower() for each in (*COLUMNS, CORRUPT, *taken)}
    column = name
    while column.lower() in others or (column != name and column.lower() in map(str.lower, names)):
        column = f"value_{column}"
    return column


def _remember(kind: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Remember named types: later fields may give a type by its name only."""
    if "name" in kind:
        named[kind["name"]] = kind
        named[".".join(filter(None, (kind.get("namespace", ""), kind["name"])))] = kind
    return kind


def _type_of(kind: Any, named: dict[str, Any], where: str, *, is_avro: bool, depth: int = 0) -> str:
    if depth > 50:
        raise OptionError(
            "valueSchema", "topic", f"{where}: a type that holds itself cannot become a column"
        )
    if isinstance(kind, str) and kind in named:
        kind = named[kind]
    if isinstance(kind, str):
        if kind in _PRIMITIVE:
            return _PRIMITIVE[kind]
        raise OptionError("valueSchema", "topic", f"{where}: type {kind!r} is not known")
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        if len(others) != 1:
            raise OptionError(
                "valueSchema",
                "topic",
                f"{where}: a union of {len(others)} types cannot become a column",
            )
        return _type_of(others[0], named, where, is_avro=is_avro, depth=depth + 1)
    logical = kind.get("logicalType")
    if is_avro and logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == "decimal":
        return f"decimal({kind['precision']},{kind.get('scale', 0)})"
    match kind.get("type"):
        case "record":
            record = _remember(kind, named)
            inner = [
                (
                    each["name"],
                    _type_of(each["type"], named, where, is_avro=is_avro, depth=depth + 1),
                )
                for each in record["fields"]
            ]
            return "struct<" + ",".join(f"`{name}`:{each}" for name, each in inner) + ">"
        case "array":
            return (
                f"array<{_type_of(kind['items'], named, where, is_avro=is_avro, depth=depth + 1)}>"
            )
        case "map":
            inner_type = _type_of(kind["values"], named, where, is_avro=is_avro, depth=depth + 1)
            return f"map<string,{inner_type}>"
        case "enum" | "fixed" as simple:
            _ = _remember(kind, named)
            return _PRIMITIVE[simple]
        case other:
            return _type_of(other, named, where, is_avro=is_avro, depth=depth + 1)


def schema_ddl(schema: TopicSchema) -> str:
    """Return all columns of a decoded read: those of the value first, then the fixed ones."""
    columns = [f"`{name}` {kind}" for name, kind in schema.types.items()]
    if schema.on_error is OnDecodeError.KEEP:
        columns.append(f"{CORRUPT} binary")
    return ", ".join(
        [*columns, *(f"{name} {kind}" for name, kind in COLUMNS.items() if name != VALUE)]
    )


def check_columns(names: Sequence[str], values: TopicSchema | None) -> None:
    """Raise ``InvalidArgument`` for a column that the read does not have: the user wrote it, or an
    older schema had it.
    """
    known = (
        [*COLUMNS] if values is None else list(dict.fromkeys((*values.types, CORRUPT, *COLUMNS)))
    )
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            option = "" if values is not None else ", unless option 'valueSchema' is 'topic'"
            raise InvalidArgument(
                f"there is no column {name!r}{hint} The columns are {', '.join(known)}{option}"
            )
