"""What the driver sends to the tasks of a write, and what they return.

Fast to import, since the driver makes it in its own process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from pulsarish.model.schema import Schema
from pulsarish.spark.access import BrokerAccess
from pulsarish.spark.writing.plan import Plan
from pulsarish.spark.writing.targets import Target

__all__ = ["Job", "Written"]


@dataclass(frozen=True, slots=True)
class Job:
    brokers: BrokerAccess
    plan: Plan
    schema: Schema | None
    """The schema that encodes records and is registered with the broker; ``None`` for a value of
    bytes.
    """
    target: Target | None
    """The one topic; ``None``: the column ``topic`` names it."""
    name: str
    """Where ``version`` is the micro-batch, tasks add the query's id."""
    version: int | None
    """``None``: the number of the micro-batch."""
    planned_ms: int
    needs_deduplication: bool
    enables_deduplication: bool
    is_repeatable: bool
    """Whether a later run may repeat this one, so that it must be routed to the same number of
    partitions.
    """
    is_sorted: bool
    compression: str
    send_timeout_ms: int


@dataclass
class Written(WriterCommitMessage):
    """What one task has written, all of it stored."""

    messages: int = 0
    repeated: int = 0
    """Rows that an earlier attempt had written."""
    size_bytes: int = 0
    name: str = ""
    version: int = 0
    targets: dict[str, Target] = field(default_factory=dict)
