"""The columns that every message has, for the reader and the writer."""

from __future__ import annotations

from typing import Final

__all__ = ["COLUMNS", "VALUE", "ddl"]

VALUE: Final = "value"

COLUMNS: Final[dict[str, str]] = {
    VALUE: "binary",
    "key": "string",
    "properties": "map<string,string>",
    "topic": "string",
    "partition": "int",
    "message_id": "struct<ledger:bigint,entry:bigint,partition:int,batch_index:int>",
    "publish_time": "timestamp",
    "event_time": "timestamp",
    "sequence_id": "bigint",
    "producer_name": "string",
}
"""Names and Spark types.

``topic`` is the full name; of a partition, the partitioned topic's name. ``partition`` is the
partition's number, -1 where there are none. ``key`` and ``event_time`` are null where the producer
set none; ``batch_index`` is -1 outside of a batch.
"""


def ddl() -> str:
    """Return all columns as Spark DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
