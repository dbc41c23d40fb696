"""Arrow batches into rows for messages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa

from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.model.errors import InvalidArgument
from pulsarish.spark.writing.plan import Plan
from pulsarish.spark.writing.records import Encode

__all__ = ["Row", "in_content_order", "rows_of"]

Row = tuple[bytes, Extras | None, str | None, str | None, int | None]
"""Payload, extras, key, topic, requested partition."""


def rows_of(batch: Any, plan: Plan, encode: Encode | None) -> Iterator[Row]:
    """Yield the rows of a ``pyarrow.RecordBatch`` in order.

    ``encode`` encodes a record, given as a dict.

    Raises ``InvalidArgument`` naming the column.
    """
    count = batch.num_rows
    nothing: list[Any] = [None] * count
    values = _values(batch, plan, encode)
    keys = _keys(batch.column(plan.key)) if plan.key >= 0 else nothing
    topics = batch.column(plan.topic).to_pylist() if plan.topic >= 0 else nothing
    partitions = batch.column(plan.partition).to_pylist() if plan.partition >= 0 else nothing
    if plan.event_time < 0 and plan.properties < 0:
        extras = _of_keys(keys, values)
    else:
        times = _times_ms(batch.column(plan.event_time)) if plan.event_time >= 0 else [0] * count
        properties = _properties(batch.column(plan.properties)) if plan.properties >= 0 else nothing
        extras = [
            Extras(beside, key, None, time, 0, value is None)
            if beside or key is not None or time or value is None
            else None
            for beside, key, time, value in zip(properties, keys, times, values, strict=True)
        ]
    # A message without content has an empty payload and the field for null.
    payloads = [value or b"" for value in values]
    return zip(payloads, extras, keys, topics, partitions, strict=True)


def _of_keys(keys: list[str | None], values: list[bytes | None]) -> list[Extras | None]:
    """Return the extras of rows.

    Rows with the same key share one object: one for each row would cost more than encoding it.
    """
    shared = {key: None if key is None else Extras(partition_key=key) for key in set(keys)}
    extras = [shared[key] for key in keys]
    if None in values:
        for row, value in enumerate(values):
            if value is None:
                extras[row] = Extras(partition_key=keys[row], is_null=True)
    return extras


def in_content_order(rows: list[Row]) -> list[Row]:
    """Return the rows in an order that a shuffle cannot change.

    Fully equal rows may change places; that makes no difference.
    """

    def content(row: Row) -> tuple[Any, ...]:
        payload, extras, key, topic, partition = row
        beside = sorted((extras.properties or {}).items()) if extras is not None else []
        time = extras.event_timestamp_ms if extras is not None else 0
        is_null = extras is not None and extras.is_null
        return (
            is_null,
            topic or "",
            -1 if partition is None else partition,
            key is not None,
            key or "",
            time,
            payload,
            beside,
        )

    return sorted(rows, key=content)


def _values(batch: Any, plan: Plan, encode: Encode | None) -> list[bytes | None]:
    if encode is None:
        return _bytes(batch.column(plan.value))
    if plan.value >= 0:
        records = batch.column(plan.value).to_pylist()
    else:
        names = [batch.schema.field(index).name for index in plan.fields]
        columns = [batch.column(index).to_pylist() for index in plan.fields]
        records = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return [None if record is None else encode(record) for record in records]


def _bytes(column: Any) -> list[bytes | None]:
    """Return the bytes of a text or bytes column, sliced from one buffer: an Arrow object for each
    would cost more than sending.
    """
    if not len(column):
        return []
    is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets, data = column.cast(pa.large_binary() if is_large else pa.binary()).buffers()
    ends = (
        memoryview(offsets)
        .cast("q" if is_large else "i")[column.offset : column.offset + len(column) + 1]
        .tolist()
    )
    raw = data.slice(ends[0], ends[-1] - ends[0]).to_pybytes() if data is not None else b""
    start = ends[0]
    values: list[bytes | None] = [
        raw[first - start : last - start] for first, last in pairwise(ends)
    ]
    if column.null_count:
        for index, is_null in enumerate(column.is_null().to_pylist()):
            if is_null:
                values[index] = None
    return values


def _keys(column: Any) -> list[str | None]:
    raw = _bytes(column)
    try:
        texts: dict[bytes | None, str | None] = {
            key: None if key is None else key.decode() for key in set(raw)
        }
        return [texts[key] for key in raw]
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"column 'key' has bytes that are no UTF-8 text ({error}): encode them, for example "
            "by base64(key)"
        ) from None


def _times_ms(column: Any) -> list[int]:
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    times = [0 if value is None else value // 1_000 for value in micros]
    if times and min(times) < 0:
        raise InvalidArgument(
            "column 'event_time' has a time before 1970-01-01T00:00:00Z, which a message cannot "
            "carry"
        )
    return times


def _properties(column: Any) -> list[dict[str, str] | None]:
    found: list[dict[str, str] | None] = []
    for pairs in column.to_pylist():
        properties = None if pairs is None else dict(pairs)
        if properties and None in properties.values():
            name = next(name for name, value in properties.items() if value is None)
            raise InvalidArgument(
                f"column 'properties' has no value for {name!r}: a property is a text, which may "
                "be empty"
            )
        found.append(properties)
    return found
