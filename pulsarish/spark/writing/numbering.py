"""Names, numbers and epochs by which a repeated task writes nothing twice.

A task publishes under a name made of the query's and of its Spark partition, with the sequence id ``version << 32 | row``: the version is
the micro-batch, the row counts within the task, over all topics and partitions it writes to. The broker's deduplication keeps the last
sequence id of each name in each log, so

* what a retry or a re-run finds at or below that mark is there already and is left out, provided that the same row has the same number:
  rows come in the same order, and go to the same partition (``routing.py``);
* a mark of a later version means that this run is older than what was written: it is refused, never dropped silently.

Of two attempts that run at once the one with the higher epoch ends the other (``client/api/batch_publisher.py``), whatever host either is
on. The epoch is the time at which the driver planned the job, then the number of the task's attempt in that application.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pulsarish.model.errors import InvalidArgument

__all__ = ["Attempt", "attempt_epoch", "check_mark", "sequence_id", "task_name"]

ROWS_MAX: Final = 1 << 32
VERSION_MAX: Final = (1 << 31) - 1
_ROW_BITS: Final = 32

# From the least significant: reopenings of one attempt, attempts of one application, milliseconds since 2020. Together 63 bits.
_REOPEN_BITS: Final = 8
_ATTEMPT_BITS: Final = 15
_TIME_BITS: Final = 40
_TIME_ORIGIN_MS: Final = 1_577_836_800_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one task."""

    name: str
    """What the query or job calls itself."""
    version: int
    spark_partition: int
    epoch: int

    @property
    def producer_name(self) -> str:
        return task_name(self.name, self.spark_partition)


def task_name(name: str, spark_partition: int) -> str:
    """The producer name of a task."""
    return f"{name}-{spark_partition}"


def sequence_id(version: int, row: int) -> int:
    """Raises ``InvalidArgument`` beyond what a sequence id holds."""
    if not 0 <= version <= VERSION_MAX:
        raise InvalidArgument(f"version {version} of a write must be 0 to {VERSION_MAX}")
    if row >= ROWS_MAX:
        raise InvalidArgument(f"a task has more than {ROWS_MAX} rows: repartition what is written")
    return version << _ROW_BITS | row


def attempt_epoch(planned_ms: int, task_attempt_id: int) -> int:
    """Later plans have higher epochs, and later attempts of one plan."""
    elapsed_ms = min(max(0, planned_ms - _TIME_ORIGIN_MS), (1 << _TIME_BITS) - 1)
    attempt = task_attempt_id & ((1 << _ATTEMPT_BITS) - 1)
    return (elapsed_ms << _ATTEMPT_BITS | attempt) << _REOPEN_BITS | 1


def check_mark(mark: int, attempt: Attempt, topic: str) -> None:
    """``mark``: the last sequence id that the attempt's name has in ``topic``, -1 for none. Raises ``InvalidArgument`` when it belongs to a
    later version."""
    if mark >> _ROW_BITS > attempt.version:
        raise InvalidArgument(
            f"topic {topic} has rows of {attempt.producer_name!r} up to version {mark >> _ROW_BITS}, and this is version"
            f" {attempt.version}: what it writes would be dropped as repeated. The checkpoint was deleted, set back, or is older than the"
            " topic; start with another exactlyOnceName"
        )
