"""The roles of a DataFrame's columns in a write.

Decided on the driver, before anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import types

from pulsarish.model.errors import InvalidArgument
from pulsarish.spark.columns import VALUE

__all__ = ["Plan", "plan_columns"]

_TOLD: Final = ("message_id", "publish_time", "sequence_id", "producer_name")
"""Columns of a read that only a broker can fill.

They are not written, so a DataFrame can be written as it was read.
"""
_WANTED: Final = {
    "key": ("string or binary", (types.StringType, types.BinaryType)),
    "topic": ("string", (types.StringType,)),
    "partition": ("int", (types.IntegerType, types.ShortType, types.ByteType, types.LongType)),
    "event_time": ("timestamp", (types.TimestampType,)),
    "properties": ("map<string,string>", (types.MapType,)),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The column indexes of each part of a message; -1 where there is none."""

    value: int
    fields: tuple[int, ...]
    """Without a ``value``: the columns that are a record's fields."""
    record: Any
    """The type of the record (a ``StructType``) when there is one to encode, else ``None``."""
    key: int
    topic: int
    partition: int
    event_time: int
    properties: int


def plan_columns(schema: Any) -> Plan:
    """Return the plan.

    Raises ``InvalidArgument`` naming the column, its type and what is allowed.
    """
    at: dict[str, int] = {}
    others: list[int] = []
    for index, field in enumerate(schema.fields):
        if field.name in at:
            raise InvalidArgument(
                f"there are two columns {field.name!r}: give one of them another name"
            )
        if field.name == VALUE or field.name in _WANTED:
            at[field.name] = index
            _check_type(field)
        elif field.name not in _TOLD:
            others.append(index)
    record = None
    if VALUE in at:
        if others:
            names = ", ".join(repr(schema.fields[index].name) for index in others)
            raise InvalidArgument(
                f"columns {names} stand beside 'value', and a message has no place for them: "
                f"it has value, {', '.join(_WANTED)}; drop them,"
                " or put them into a struct 'value'"
            )
        if isinstance(schema.fields[at[VALUE]].dataType, types.StructType):
            record = schema.fields[at[VALUE]].dataType
    elif others:
        record = types.StructType([schema.fields[index] for index in others])
    else:
        raise InvalidArgument(
            "there is no column 'value' (binary, string or a struct), nor columns to make a "
            "record of"
        )
    return Plan(
        value=at.get(VALUE, -1),
        fields=() if VALUE in at else tuple(others),
        record=record,
        **{name: at.get(name, -1) for name in _WANTED},
    )


def _check_type(field: Any) -> None:
    kind = field.dataType
    if field.name == VALUE:
        allowed, kinds = (
            "binary, string or a struct",
            (types.BinaryType, types.StringType, types.StructType),
        )
    else:
        allowed, kinds = _WANTED[field.name]
    fits = isinstance(kind, kinds)
    if field.name == "properties" and fits:
        fits = isinstance(kind.keyType, types.StringType) and isinstance(
            kind.valueType, types.StringType
        )
    if not fits:
        raise InvalidArgument(
            f"column {field.name!r} is {kind.simpleString()}: it must be {allowed}; cast it"
        )
