"""Reading a batch: planned once on the driver, then split by split in executors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pulsarish.spark.options import DirectReads, ReadOptions
from pulsarish.spark.places import EARLIEST, LATEST, Bound, Place
from pulsarish.spark.reading.log import ClusterView, TopicLog
from pulsarish.spark.reading.planning import Piece, cut, pieces_of, split_bytes_for, total_bytes

__all__ = ["BatchReader"]


class BatchReader(DataSourceReader):
    """``parallelism``: how many tasks the session runs at a time."""

    def __init__(self, options: ReadOptions, schema: Any, *, parallelism: int) -> None:
        self._options = options
        self._schema = schema
        self._parallelism = parallelism
        self._bookies: dict[str, str] = {}

    def partitions(self) -> list[InputPartition]:
        """Called once, on the driver, in a process of its own."""
        options = self._options
        view = ClusterView(options.admin_url)
        ranges: list[tuple[TopicLog, list[Piece], int, int]] = []
        for topic in view.topics(options):
            log = view.log(topic)
            if log is None:
                # A partition that nobody has used yet.
                continue
            start, end = _start(options.starting, log), _end(options.ending, log)
            pieces, _ = pieces_of(log, start, end, fail_on_loss=options.fail_on_data_loss, option="option 'startingOffsets'")
            ranges.append((log, pieces, start.batch_index if start else -1, end.batch_index if end else -1))
        if options.direct_reads is not DirectReads.NEVER:
            self._bookies = view.bookies()
        size = split_bytes_for(sum(total_bytes(pieces) for _, pieces, _, _ in ranges), options.split_bytes, self._parallelism)
        splits = [split for log, pieces, after, upto in ranges for split in cut(log, pieces, size, after=after, upto=upto)]
        return [InputPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Called in an executor for each split."""
        from pulsarish.spark.reading.task import ReadSpec, read_split

        if partition.value is None:
            return iter(())  # nothing to be read is one partition of nothing
        options = self._options
        spec = ReadSpec(options.service_url, options.direct_reads, self._bookies, options.fail_on_data_loss)
        return read_split(spec, partition.value, self._schema)


def _start(bound: Bound | None, log: TopicLog) -> Place | None:
    """The place behind which reading begins."""
    edge = bound.of(log.topic, EARLIEST) if bound is not None else EARLIEST
    if isinstance(edge, Place):
        return edge.before
    return log.last if edge == LATEST else None


def _end(bound: Bound | None, log: TopicLog) -> Place | None:
    """The last place that is read."""
    edge = bound.of(log.topic, LATEST) if bound is not None else LATEST
    if isinstance(edge, Place):
        return edge
    return log.last if edge == LATEST else log.before_first
