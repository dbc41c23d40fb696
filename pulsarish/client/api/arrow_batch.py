"""Received messages as Arrow tables and pandas frames: what the blocking and the asyncio client
share.

The libraries are those of the extra ``arrow``; nothing of them is imported before the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pulsarish.client.checks import check_number, check_timeout
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.multi_consumer import MultiConsumer
from pulsarish.client.messages.message import Message
from pulsarish.client.schemas.auto_consume import AutoConsumeSchema
from pulsarish.model import schema as model
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.extras import optional_module

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from pulsarish.client.arrow.value_columns import ValueColumns

__all__ = [
    "FETCH_BYTES",
    "FETCH_MILLIS",
    "FETCH_ROWS",
    "READ_BYTES",
    "ArrowBatch",
    "ArrowLimits",
    "Made",
    "arrow_limits",
    "columns_of",
    "frame_of",
    "need_pandas",
    "only_table",
    "tabled",
]

Made = TypeVar("Made")

FETCH_ROWS: Final = 10_000
FETCH_BYTES: Final = 64 << 20
FETCH_MILLIS: Final = 1_000
READ_BYTES: Final = 256 << 20
_ROWS_MAX: Final = 2**31 - 1

_LIBRARY = ("pyarrow", "arrow", "reading messages as Arrow")
_PANDAS = ("pandas", "arrow", "reading messages as pandas")


@dataclass(frozen=True)
class ArrowBatch:
    """Messages that were fetched, as a table: row ``i`` is ``messages[i]``.

    Fetching acknowledges nothing. ``consumer.acknowledge(batch.messages)`` acknowledges all;
    messages by their row acknowledge some.
    """

    table: pa.Table
    messages: list[Message]

    def __len__(self) -> int:
        return len(self.messages)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame. Raises ``OperationNotSupported`` without pandas."""
        need_pandas()
        return frame_of(self.table, self.messages)


@dataclass(frozen=True)
class ArrowLimits:
    """When to stop: at the first of these."""

    rows: int
    size: int
    seconds: float | None


def arrow_limits(max_rows: int | None, max_bytes: int, timeout_millis: int | None) -> ArrowLimits:
    """Return the checked limits. Raises ``InvalidArgument``; ``OperationNotSupported`` without
    pyarrow.
    """
    rows = _ROWS_MAX if max_rows is None else check_number("max_rows", max_rows, 1, _ROWS_MAX)
    size = check_number("max_bytes", max_bytes, 1)
    seconds = check_timeout("timeout_millis", timeout_millis)
    _ = optional_module(*_LIBRARY)
    return ArrowLimits(rows, size, seconds)


def need_pandas() -> None:
    """Raise ``OperationNotSupported`` without pandas."""
    _ = optional_module(*_PANDAS)


async def columns_of(consuming: MultiConsumer) -> ValueColumns:
    """Return the columns of what a consumer receives; asks a broker where the schema is the
    topic's.

    Called before a message is taken, so that nothing is lost by a refusal.

    Raises ``OperationNotSupported``, ``InvalidArgument`` for topics with several schemas, or why
    no broker answered.
    """
    schema = consuming.options.schema
    found: list[model.Schema | None] = []
    if isinstance(schema, AutoConsumeSchema):
        topics = dict.fromkeys(child.topic.partitioned.full for child in consuming.children)
        for topic in topics:
            of_topic = await consuming.newest_schema(topic)
            if of_topic not in found:
                found.append(of_topic)
    if len(found) > 1:
        raise InvalidArgument(
            f"the topics of {consuming.topic} have {len(found)} schemas: give the consumer the "
            "schema to read all of them by, or fetch them one by one"
        )
    from pulsarish.client.arrow.value_columns import value_columns

    return value_columns(schema, found[0] if found else None)


def tabled(
    inbox: MessageQueue,
    messages: list[Message],
    columns: ValueColumns,
    make: Callable[[pa.Table, list[Message]], Made],
) -> Made:
    """Return what ``make`` makes of messages and their table.

    When that fails, or is interrupted, they come again with the next call.
    """
    from pulsarish.client.arrow.message_table import message_table

    try:
        return make(message_table(messages, columns), messages)
    except BaseException:
        inbox.put_back(messages)
        raise


def only_table(table: pa.Table, _messages: list[Message]) -> pa.Table:
    """Return the table."""
    return table


def frame_of(table: pa.Table, _messages: list[Message]) -> pd.DataFrame:
    """Return a table as a pandas frame. Whole numbers stay whole numbers where some are null."""
    pyarrow, pandas = optional_module(*_LIBRARY), optional_module(*_PANDAS)
    kinds: dict[Any, Any] = {
        getattr(pyarrow, name)(): getattr(pandas, dtype)()
        for name, dtype in (
            ("int8", "Int8Dtype"),
            ("int16", "Int16Dtype"),
            ("int32", "Int32Dtype"),
            ("int64", "Int64Dtype"),
            ("bool_", "BooleanDtype"),
        )
    }
    return table.to_pandas(types_mapper=kinds.get, maps_as_pydicts="lossy")
