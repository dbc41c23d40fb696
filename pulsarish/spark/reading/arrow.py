"""Rows of messages as Arrow batches with the requested columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pulsarish.model.topic_name import TopicName
from pulsarish.spark.columns import VALUE
from pulsarish.spark.reading.filters import Condition
from pulsarish.spark.reading.unpack import Rows
from pulsarish.spark.reading.values import DecodedValues, ValueDecoder

__all__ = ["ArrowRows", "binary_array"]

_TIME: Final = pa.timestamp("us", tz="UTC")


def binary_array(lengths: Any, parts: list[Any], nulls: list[int]) -> Any:
    """Return one column of bytes from consecutive values in ``parts``: bytes, or tables with a
    value in each row.
    """
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = pa.py_buffer(_gathered(parts, int(offsets[-1])))
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [_validity(len(lengths), nulls), pa.py_buffer(offsets), data]
    )


def _gathered(parts: list[Any], size_bytes: int) -> Any:
    """Return everything in one buffer.

    Tables stay scattered in their batches until here, so their values are copied once.
    """
    if not any(isinstance(part, np.ndarray) for part in parts):
        return parts[0] if len(parts) == 1 else b"".join(parts)
    gathered = np.empty(size_bytes, np.uint8)
    at = 0
    for part in parts:
        table = part if isinstance(part, np.ndarray) else np.frombuffer(part, np.uint8)
        gathered[at : at + table.size].reshape(table.shape)[...] = table
        at += table.size
    return gathered


def _validity(count: int, nulls: list[int]) -> Any:
    if not nulls:
        return None
    valid = np.ones(count, bool)
    valid[nulls] = False
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


class ArrowRows:
    """Makes batches of the rows of one topic that satisfy all conditions, with the columns of
    ``schema``, an Arrow schema.
    """

    def __init__(
        self,
        topic: str,
        schema: Any,
        conditions: Sequence[Condition] = (),
        decoder: ValueDecoder | None = None,
    ) -> None:
        name = TopicName.parse(topic)
        self._topic = name.partitioned.full
        self._partition = name.partition
        self._schema = schema
        self._conditions = conditions
        self._decoder = decoder
        self._columns: dict[str, Callable[[Rows], Any]] = {
            VALUE: _values,
            "key": _keys,
            "properties": _properties,
            "topic": lambda rows: pa.repeat(pa.scalar(self._topic), rows.count),
            "partition": lambda rows: pa.repeat(pa.scalar(self._partition, pa.int32()), rows.count),
            "message_id": self._ids,
            "publish_time": lambda rows: _times(
                np.repeat(np.array(rows.publish_times, np.int64), rows.counts)
            ),
            "event_time": _event_times,
            "sequence_id": lambda rows: pa.array(_joined(rows.numbers)),
            "producer_name": _producers,
        }

    def column(self, name: str, rows: Rows) -> Any:
        return self._columns[name](rows)

    def batch(self, rows: Rows) -> Any:
        decoded = (
            DecodedValues({}, None)
            if self._decoder is None
            else self._decoder.decode(rows, _values(rows))
        )
        columns = [
            decoded.columns[field.name]
            if field.name in decoded.columns
            else self.column(field.name, rows).cast(field.type)
            for field in self._schema
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if decoded.keep is not None:
            batch = batch.filter(decoded.keep)
        for condition in self._conditions:
            batch = batch.filter(condition.mask(batch.column(condition.column)))
        return batch

    def _ids(self, rows: Rows) -> Any:
        columns = [
            pa.array(np.repeat(np.array(rows.ledgers, np.int64), rows.counts)),
            pa.array(np.repeat(np.array(rows.entries, np.int64), rows.counts)),
            pa.repeat(pa.scalar(self._partition, pa.int32()), rows.count),
            pa.array(_joined(rows.indexes).astype(np.int32)),
        ]
        return pa.StructArray.from_arrays(
            columns, fields=list(self._schema.field("message_id").type)
        )


def _joined(parts: list[Any]) -> Any:
    """Return arrays and single numbers as one array."""
    joined: list[Any] = []
    single: list[int] = []
    for part in parts:
        if isinstance(part, int):
            single.append(part)
            continue
        if single:
            joined.append(np.array(single, np.int64))
            single = []
        joined.append(part)
    if single:
        joined.append(np.array(single, np.int64))
    return np.concatenate(joined) if joined else np.empty(0, np.int64)


def _values(rows: Rows) -> Any:
    return binary_array(_joined(rows.lengths), rows.values, rows.own.nulls)


def _times(milliseconds: Any) -> Any:
    return pa.array(milliseconds * 1_000).cast(_TIME)


def _keys(rows: Rows) -> Any:
    keys = rows.own.keys
    if not keys:
        return pa.nulls(rows.count, pa.string())
    if len(keys) == rows.count:
        return pa.array(keys.values(), pa.string(), size=rows.count)  # rows are in order
    return pa.array([keys.get(row) for row in range(rows.count)], pa.string())


def _properties(rows: Rows) -> Any:
    lengths = np.zeros(rows.count, np.int32)
    names: list[str] = []
    values: list[str] = []
    for row, pairs in rows.own.properties.items():
        lengths[row] = len(pairs)
        names += pairs
        values += pairs.values()
    offsets = np.zeros(rows.count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.MapArray.from_arrays(
        pa.array(offsets), pa.array(names, pa.string()), pa.array(values, pa.string())
    )


def _event_times(rows: Rows) -> Any:
    events = rows.own.events
    if not events:
        return pa.nulls(rows.count, _TIME)
    found = np.zeros(rows.count, np.int64)
    mask = np.ones(rows.count, bool)
    places = np.fromiter(events.keys(), np.int64, len(events))
    found[places], mask[places] = np.fromiter(events.values(), np.int64, len(events)) * 1_000, False
    return pa.array(found, mask=mask).cast(_TIME)


def _producers(rows: Rows) -> Any:
    names = sorted(set(rows.producers))
    if len(names) == 1:
        return pa.repeat(pa.scalar(names[0]), rows.count)
    numbers = {name: number for number, name in enumerate(names)}
    indexes = np.repeat(np.array([numbers[name] for name in rows.producers], np.int32), rows.counts)
    return pa.DictionaryArray.from_arrays(pa.array(indexes), pa.array(names)).cast(pa.string())
