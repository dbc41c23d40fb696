"""Sinks: where a pipeline's tables and streams are written, and how results are read again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.types import StructType, TimestampType

from pulsarish.spark import FORMAT
from pulsarish.spark.pipelines.building import json_columns, quoted
from pulsarish.spark.pipelines.pacing import paced
from pulsarish.spark.pipelines.parts import (
    ConsoleSink,
    CsvSink,
    FolderSink,
    ParquetSink,
    PictureSink,
    Pipeline,
    Sink,
    TableSink,
    TopicSink,
)
from pulsarish.spark.pipelines.tables import render
from pulsarish.spark.pipelines.versions import Versions

__all__ = ["Writing", "frame_of", "plan_of", "query_name", "readable", "row_order", "throttled"]

# In a physical plan, read from its end. A BroadcastExchange sends a small side whole and leaves the
# order of the other unchanged. A Sort with true sorts all rows, not each part.
_SHUFFLE: Final = re.compile(r"\bExchange\b")
_SORT: Final = re.compile(r"\bSort \[.*\], true\b")


@dataclass
class Writing:
    """Writes the sinks of one pipeline.

    Args:
        spark: the session.
        pipeline: a checked one.
        cluster: options that locate the topics.
        show: receives output for the user, tables included.
    """

    spark: SparkSession
    pipeline: Pipeline
    cluster: Mapping[str, str]
    show: Callable[[str], None]
    schemas: dict[str, StructType] = field(default_factory=dict)
    """Schemas of the sinks' inputs, so that a result can be read even when nothing was written
    yet.
    """

    def start(self, sink: Sink, table: DataFrame, trigger: Mapping[str, Any]) -> StreamingQuery:
        """Start writing a stream; the query continues by itself."""
        frame = frame_of(sink, table)
        self.schemas[sink.name] = (
            frame.schema if not isinstance(sink, TopicSink) else _value_columns(sink, table).schema
        )
        writer = frame.writeStream.queryName(query_name(self.pipeline, sink)).trigger(**trigger)
        writer = writer.option(
            "checkpointLocation",
            f"{self.pipeline.checkpoints.rstrip('/')}/{query_name(self.pipeline, sink)}",
        )
        return self._streaming(sink, frame, writer).start()

    def _streaming(
        self, sink: Sink, frame: DataFrame, writer: DataStreamWriter
    ) -> DataStreamWriter:
        match sink:
            case TopicSink():
                writer = writer.format(FORMAT).options(**self._topic_options(sink, frame))
                return writer.outputMode(sink.output)
            case FolderSink():
                writer = writer.format(sink.TYPE).option("path", sink.path)
                writer = writer.option("header", "true") if isinstance(sink, CsvSink) else writer
                return writer.partitionBy(*sink.partition_by) if sink.partition_by else writer
            case TableSink():
                return writer.outputMode("update").foreachBatch(self.versions(sink).merge)
            case ConsoleSink():
                show = self._show_table
                return writer.outputMode(sink.output).foreachBatch(
                    lambda batch, number: show(sink, batch, f"batch {number}")
                )
            case _:
                raise AssertionError(f"a sink of type {sink.TYPE} takes no stream")

    def write(self, sink: Sink, table: DataFrame) -> None:
        """Write a table."""
        frame = frame_of(sink, table)
        self.schemas[sink.name] = (
            frame.schema if not isinstance(sink, TopicSink) else _value_columns(sink, table).schema
        )
        match sink:
            case TopicSink():
                options = self._topic_options(sink, frame)
                if sink.messages_per_second:
                    frame = throttled(frame, sink.messages_per_second)
                frame.write.format(FORMAT).mode("append").options(**options).save()
            case FolderSink():
                mode = "error" if sink.when_there == "fail" else sink.when_there
                writer = frame.write.format(sink.TYPE).mode(mode)
                writer = writer.option("header", "true") if isinstance(sink, CsvSink) else writer
                (writer.partitionBy(*sink.partition_by) if sink.partition_by else writer).save(
                    sink.path
                )
            case TableSink():
                self.versions(sink).merge(frame, None)
            case ConsoleSink():
                self._show_table(sink, frame, "")
            case PictureSink():
                self._draw(sink, frame)
            case _:
                raise AssertionError(f"a sink of type {sink.TYPE} is not written")

    def result(self, sink: Sink) -> DataFrame:
        """Return what a sink has written, as a table; empty when there is nothing yet."""
        match sink:
            case TopicSink():
                table = (
                    self.spark.read.format(FORMAT)
                    .options(**self.cluster)
                    .option("topic", sink.topic)
                    .load()
                )
                return json_columns(table, _ddl(self.schemas[sink.name]), "fail")
            case TableSink():
                found = self.versions(sink).current()
                return found if found is not None else self.empty(sink)
            case ParquetSink() | CsvSink():
                if not Versions.exists(self.spark, sink.path):
                    return self.empty(sink)
                reader = self.spark.read.format(sink.TYPE).schema(self.schemas[sink.name])
                return reader.option("header", "true").load(sink.path)
            case _:
                raise AssertionError(f"a sink of type {sink.TYPE} is not read")

    def empty(self, sink: Sink) -> DataFrame:
        return self.spark.createDataFrame([], self.schemas[sink.name])

    def versions(self, sink: TableSink) -> Versions:
        return Versions(self.spark, sink.path, sink.keys, sink.newest_by, sink.delete_when)

    def _topic_options(self, sink: TopicSink, frame: DataFrame) -> dict[str, str]:
        options = {**self.cluster, "topic": sink.topic, "rowOrder": row_order(sink, frame)}
        if sink.topic:
            options["createTopic"] = str(sink.partitions)
        if frame.isStreaming:
            options["deduplication"] = "enable"
        if sink.value == "schema":
            options["valueSchema"] = "topic"
        return {word: value for word, value in options.items() if value} | dict(sink.options)

    def _show_table(self, sink: ConsoleSink, table: DataFrame, word: str) -> None:
        rows = readable(table.limit(sink.rows + 1)).collect()
        title = ", ".join(part for part in (sink.title, word) if part)
        more = f"\n(more than these {sink.rows:,} rows)" if len(rows) > sink.rows else ""
        self.show(
            (f"{title}\n" if title else "") + render(table.columns, rows[: sink.rows]) + more + "\n"
        )

    def _draw(self, sink: PictureSink, table: DataFrame) -> None:
        from pulsarish.spark.pipelines.pictures import draw

        names = dict.fromkeys(name for name in (sink.x, *sink.y, sink.series, sink.value) if name)
        rows = table.select(*quoted(list(names))).limit(sink.rows_max + 1).toArrow().to_pandas()
        draw(sink, rows)
        self.show(f"{sink.place}: {len(rows):,} rows drawn to {sink.path}")


def frame_of(sink: Sink, table: DataFrame) -> DataFrame:
    """Return the columns to write, in the requested number of pieces."""
    match sink:
        case TopicSink():
            return _messages(sink, table)
        case FolderSink() if sink.files:
            return table.coalesce(sink.files)
        case ConsoleSink() if sink.columns:
            return table.select(*quoted(sink.columns))
        case _:
            return table


def _value_columns(sink: TopicSink, table: DataFrame) -> DataFrame:
    return table.select(*quoted(sink.columns)) if sink.columns else table


def _messages(sink: TopicSink, table: DataFrame) -> DataFrame:
    names = sink.columns or table.columns
    match sink.value:
        case "json":
            columns = [sf.to_json(sf.struct(*quoted(names))).cast("binary").alias("value")]
        case "raw":
            columns = [sf.col("value").cast("binary").alias("value")]
        case _:
            columns = quoted(names)
    if sink.key:
        columns.append(sf.col(f"`{sink.key}`").cast("string").alias("key"))
    if sink.event_time:
        columns.append(sf.col(f"`{sink.event_time}`").cast("timestamp").alias("event_time"))
    if sink.topic_column:
        columns.append(sf.col(f"`{sink.topic_column}`").cast("string").alias("topic"))
    if sink.properties:
        pairs = [
            part
            for name, text in sink.properties.items()
            for part in (sf.lit(name), sf.expr(text).cast("string"))
        ]
        columns.append(sf.create_map(*pairs).alias("properties"))
    return table.select(*columns)


def query_name(pipeline: Pipeline, sink: Sink) -> str:
    """Return the name of a sink's stream and of its checkpoint: two pipelines may share a
    checkpoint folder.
    """
    return f"{pipeline.name}-{sink.name}"


def readable(table: DataFrame) -> DataFrame:
    """Return the table with times as text in the session's zone: as Python rows they would be in
    this machine's zone.
    """
    times = [each.name for each in table.schema.fields if isinstance(each.dataType, TimestampType)]
    return (
        table.withColumns({name: sf.col(f"`{name}`").cast("string") for name in times})
        if times
        else table
    )


def row_order(sink: TopicSink, frame: DataFrame) -> str:
    """Return ``content`` when a task's rows may arrive in another order next time, which a shuffle
    causes; otherwise ``plan``.

    Rows that are sorted after the shuffle keep the requested order.
    """
    if sink.row_order != "auto":
        return sink.row_order
    plan = plan_of(frame, "simple")
    shuffle, sort = _SHUFFLE.search(plan), _SORT.search(plan)
    return (
        "content"
        if shuffle is not None and (sort is None or sort.start() > shuffle.start())
        else "plan"
    )


def plan_of(frame: DataFrame, mode: str) -> str:
    """Return Spark's plan as text, also for a stream. ``mode`` is one of ``DataFrame.explain``."""
    return str(
        frame.sparkSession._jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), mode)
    )


def throttled(frame: DataFrame, rows_per_second: int) -> DataFrame:
    """Return the same rows in one task, in order, at most ``rows_per_second``."""
    return frame.coalesce(1).mapInArrow(
        lambda batches: paced(batches, rows_per_second, time.perf_counter, time.sleep), frame.schema
    )


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in schema.fields)
