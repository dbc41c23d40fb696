"""Names, numbers and epochs by which a repeated task writes nothing twice.

A task publishes under a name made from the query's name and its Spark partition, with the sequence
id ``version << 32 | row``. The version is the micro-batch; the row counts within the task, over all
topics and partitions that it writes to. The broker's deduplication keeps the last sequence id of
each name in each log, so

* a retry or a re-run leaves out rows at or below that mark, since they are stored. This requires
  that the same row has the same number: rows come in the same order, and go to the same partition
  (``routing.py``);
* a mark of a later version means that this run is older than what was written: it is rejected,
  never dropped silently.

Of two concurrent attempts the one with the higher epoch ends the other
(``client/api/batch_publisher.py``), on any host. The epoch is the time at which the driver planned
the job, then the number of the task's attempt in that application.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pulsarish.model.errors import InvalidArgument

__all__ = ["Attempt", "attempt_epoch", "check_mark", "sequence_id", "task_name"]

ROWS_MAX: Final = 1 << 32
VERSION_MAX: Final = (1 << 31) - 1
_ROW_BITS: Final = 32

# From the least significant: reopenings of one attempt, attempts of one application, milliseconds
# since 2020. Together 63 bits.
_REOPEN_BITS: Final = 8
_ATTEMPT_BITS: Final = 15
_TIME_BITS: Final = 40
_TIME_ORIGIN_MS: Final = 1_577_836_800_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one task."""

    name: str
    """The name of the query or job."""
    version: int
    spark_partition: int
    epoch: int

    @property
    def producer_name(self) -> str:
        return task_name(self.name, self.spark_partition)


def task_name(name: str, spark_partition: int) -> str:
    """Return the producer name of a task."""
    return f"{name}-{spark_partition}"


def sequence_id(version: int, row: int) -> int:
    """Return a row's sequence id. Raises ``InvalidArgument`` beyond what a sequence id holds."""
    if not 0 <= version <= VERSION_MAX:
        raise InvalidArgument(f"version {version} of a write must be 0 to {VERSION_MAX}")
    if row >= ROWS_MAX:
        raise InvalidArgument(f"a task has more than {ROWS_MAX} rows: repartition what is written")
    return version << _ROW_BITS | row


def attempt_epoch(planned_ms: int, task_attempt_id: int) -> int:
    """Return an epoch. Later plans have higher epochs, and later attempts of one plan."""
    elapsed_ms = min(max(0, planned_ms - _TIME_ORIGIN_MS), (1 << _TIME_BITS) - 1)
    attempt = task_attempt_id & ((1 << _ATTEMPT_BITS) - 1)
    return (elapsed_ms << _ATTEMPT_BITS | attempt) << _REOPEN_BITS | 1


def check_mark(mark: int, attempt: Attempt, topic: str) -> None:
    """Check the last sequence id that the attempt's name has in ``topic``; -1: none.

    Raises ``InvalidArgument`` when it belongs to a later version.
    """
    if mark >> _ROW_BITS > attempt.version:
        raise InvalidArgument(
            f"topic {topic} has rows of {attempt.producer_name!r} up to version "
            f"{mark >> _ROW_BITS}, and this is version"
            f" {attempt.version}: what it writes would be dropped as repeated. The checkpoint "
            "was deleted, set back, or is older than the"
            " topic; start with another exactlyOnceName"
        )
