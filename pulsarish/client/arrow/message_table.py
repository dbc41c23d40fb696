"""Messages as an Arrow table: one row a message, in their order.

No message is left out. What cannot be read keeps its row: its value is null, and its payload is in
the column ``_corrupt``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from pulsarish.client.arrow.value_columns import CORRUPT, FIXED, ValueColumns
from pulsarish.client.messages.message import Message
from pulsarish.model.topic_name import TopicName
from pulsarish.wire.entry import as_text

__all__ = ["message_table"]

_MICROSECONDS: Final = 1_000
_NONE: Final[list[tuple[str, str]]] = []
_INT64_MAX: Final = 2**63 - 1
_MS_MAX: Final = _INT64_MAX // _MICROSECONDS
"""Numbers above are shown as the greatest that a column holds: other programs may write any."""
_UNFIT: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


def message_table(messages: Sequence[Message], columns: ValueColumns) -> pa.Table:
    """Return the table of messages, with the schema ``columns.schema()``."""
    schema = columns.schema()
    bad: set[int] = set()
    values = _values(messages, columns, bad)
    arrays = {name: _array(values, columns, name, bad) for name in columns.types}
    if bad and any(values[row] is not None for row in bad):
        # A value that one column cannot hold is null in the others, too.
        values = [None if row in bad else value for row, value in enumerate(values)]
        arrays = {name: _array(values, columns, name, bad) for name in columns.types}
    corrupt = [message.data() if row in bad else None for row, message in enumerate(messages)]
    arrays[CORRUPT] = pa.array(corrupt, pa.binary())
    arrays.update(_fixed(messages))
    return pa.table([arrays[name] for name in schema.names], schema=schema)


def _values(messages: Sequence[Message], columns: ValueColumns, bad: set[int]) -> list[Any]:
    found: list[Any] = []
    plain = columns.plain
    for row, message in enumerate(messages):
        value = None
        try:
            value = message.value()
            if value is not None:
                value = message.data() if columns.is_payload else plain(value)
        except Exception:  # noqa: BLE001
            # A schema of the program may raise anything. The row says so.
            bad.add(row)
            value = None
        found.append(value)
    return found


def _array(values: Sequence[Any], columns: ValueColumns, name: str, bad: set[int]) -> Any:
    """Return a column. Adds to ``bad`` the rows whose values it cannot hold."""
    kind = columns.types[name]
    try:
        return pa.array(_picked(values, columns, name), kind)
    except _UNFIT:
        pass
    fitting: list[Any] = []
    for row, value in enumerate(values):
        one = None
        try:
            (one,) = _picked([value], columns, name)
            _ = pa.array([one], kind)
        except _UNFIT:
            bad.add(row)
            one = None
        fitting.append(one)
    return pa.array(fitting, kind)


def _picked(values: Sequence[Any], columns: ValueColumns, name: str) -> Sequence[Any]:
    field = columns.fields.get(name)
    if field is None:
        return values
    default = columns.defaults.get(field)
    return [None if value is None else value.get(field, default) for value in values]


def _fixed(messages: Sequence[Message]) -> Mapping[str, Any]:
    """Return the columns that every topic has, but ``_corrupt``."""
    keys: list[str | None] = []
    properties: list[list[tuple[str, str]]] = []
    ledgers: list[int] = []
    entries: list[int] = []
    partitions: list[int] = []
    indexes: list[int] = []
    topics: list[str] = []
    published: list[int] = []
    events: list[int | None] = []
    sequence_ids: list[int] = []
    names: list[str] = []
    of_topic: dict[str, str] = {}
    for opened, run in groupby(messages, attrgetter("_entry")):
        whole = opened.metadata
        publish_time = min(whole.publish_time, _MS_MAX) * _MICROSECONDS
        topic = of_topic.get(opened.topic)
        if topic is None:
            topic = of_topic[opened.topic] = TopicName.parse(opened.topic).partitioned.full
        for message in run:
            index, own = message._index, message._metadata()
            keys.append(as_text(own.partition_key) if own.HasField("partition_key") else None)
            pairs = own.properties
            properties.append(
                [(as_text(each.key), as_text(each.value)) for each in pairs] if pairs else _NONE
            )
            ledgers.append(opened.ledger_id)
            entries.append(opened.entry_id)
            partitions.append(opened.partition)
            indexes.append(index)
            topics.append(topic)
            published.append(publish_time)
            events.append(min(own.event_time, _MS_MAX) * _MICROSECONDS or None)
            is_counted = index >= 0 and not own.HasField("sequence_id")
            sequence_id = whole.sequence_id + index if is_counted else own.sequence_id
            sequence_ids.append(min(sequence_id, _INT64_MAX))
            names.append(whole.producer_name)
    found: dict[str, Any] = {
        "key": keys,
        "properties": properties,
        "topic": topics,
        "partition": partitions,
        "publish_time": published,
        "event_time": events,
        "sequence_id": sequence_ids,
        "producer_name": names,
    }
    arrays = {name: pa.array(column, FIXED[name]) for name, column in found.items()}
    kind = FIXED["message_id"]
    arrays["message_id"] = pa.StructArray.from_arrays(
        [
            pa.array(each, part.type)
            for each, part in zip((ledgers, entries, partitions, indexes), kind, strict=True)
        ],
        fields=list(kind),
    )
    return arrays
