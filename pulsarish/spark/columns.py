"""The columns that every message has, as the reader gives them and the writer takes them."""

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
"""Names and Spark's types. ``topic`` is the full name, of a partitioned topic without the partition, whose number is ``partition``, -1
where there are none. ``key`` and ``event_time`` are null where the producer gave none; ``batch_index`` is -1 outside of a batch."""


def ddl() -> str:
    """All columns in Spark's words."""
    return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
