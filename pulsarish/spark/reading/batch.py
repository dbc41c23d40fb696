"""Read a batch: planned once on the driver, then read split by split in executors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pulsarish.spark.options import ReadOptions
from pulsarish.spark.positions import EARLIEST
from pulsarish.spark.reading.filters import Condition, condition_of, selects_topic, without_old
from pulsarish.spark.reading.log import ClusterView, TopicLog
from pulsarish.spark.reading.planning import (
    Piece,
    cut,
    inside,
    pieces_of,
    split_bytes_for,
    total_bytes,
)
from pulsarish.spark.reading.read_bounds import ending_place, starting_place, starts_by, warn_of
from pulsarish.spark.reading.schemas import check_columns, value_schema
from pulsarish.spark.reading.task_inputs import options_of_tasks, task_inputs

__all__ = ["BatchReader"]


class BatchReader(DataSourceReader):
    """``parallelism``: how many tasks the session runs at a time."""

    def __init__(self, options: ReadOptions, schema: Any, *, parallelism: int) -> None:
        self._options = options
        self._schema = schema
        self._parallelism = parallelism
        self._conditions: list[Condition] = []

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:  # noqa: N802 - Spark's name
        """Accept the filters that can be applied here; return those that Spark must apply."""
        for each in filters:
            condition = condition_of(each)
            if condition is None:
                yield each
            else:
                self._conditions.append(condition)

    def partitions(self) -> list[InputPartition]:
        """Plan the read. Called once, on the driver, in its own process."""
        options = self._options
        view = ClusterView(options.brokers)
        ranges: list[tuple[TopicLog, list[Piece], int, int]] = []
        topics = [topic for topic in view.topics(options) if selects_topic(self._conditions, topic)]
        for log in view.logs(topics).values():
            if log is None:
                continue  # a partition that no client has used yet
            start, end = (
                starting_place(view, options, log, EARLIEST),
                ending_place(view, options, log),
            )
            pieces, lost = pieces_of(
                log,
                start,
                end,
                fail_on_loss=options.fail_on_data_loss,
                option=starts_by(options),
                end_option="option 'endingOffsets'",
            )
            warn_of(lost)
            edges = inside(pieces, start, end)
            kept = without_old(log, pieces, self._conditions, options.publish_time_slack_ms)
            ranges.append(
                (
                    log,
                    kept,
                    edges[0] if kept[:1] == pieces[:1] else -1,
                    edges[1] if kept[-1:] == pieces[-1:] else -1,
                )
            )
        size = split_bytes_for(
            sum(total_bytes(pieces) for _, pieces, _, _ in ranges),
            options.split_bytes,
            self._parallelism,
        )
        splits = [
            split
            for log, pieces, after, upto in ranges
            for split in cut(log, pieces, size, after=after, upto=upto)
        ]
        values = value_schema(view, options, topics)
        if splits:
            check_columns(self._schema.fieldNames(), values)
        # What was learned for the tasks travels with each split: this object was sent to the
        # executors before it planned.
        return task_inputs(options, splits, view.bookies(options), values)

    def __getstate__(self) -> dict[str, Any]:
        """Return what executors get of this object."""
        return self.__dict__ | {"_options": options_of_tasks(self._options)}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Called in an executor for each split."""
        from pulsarish.spark.reading.task import ReadSpec, read_split

        if partition.value is None:
            return iter(())  # an empty partition means that there is nothing to read
        options = self._options
        split, addresses, tokens, values = partition.value
        spec = ReadSpec(
            options.brokers,
            options.bookies,
            options.direct_reads,
            addresses,
            options.fail_on_data_loss,
            tuple(self._conditions),
            values,
            tokens,
            options.subscription_role_prefix,
        )
        return read_split(spec, split, self._schema)
