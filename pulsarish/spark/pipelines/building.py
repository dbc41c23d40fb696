"""The DataFrames of a pipeline. An error of Spark is reported with the step and its line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructType

from pulsarish.spark import FORMAT
from pulsarish.spark.columns import COLUMNS, VALUE
from pulsarish.spark.options import STREAM_NAMES
from pulsarish.spark.pipelines.checking import inputs_of
from pulsarish.spark.pipelines.declaration import Part
from pulsarish.spark.pipelines.nodes import InvalidPipeline
from pulsarish.spark.pipelines.parts import (
    CsvSource,
    FileSource,
    Pipeline,
    ResultSource,
    Source,
    TopicSource,
)
from pulsarish.spark.pipelines.spark_errors import blamed
from pulsarish.spark.pipelines.steps import (
    Aggregating,
    DeduplicateStep,
    FilterStep,
    GroupStep,
    JoinStep,
    PythonStep,
    SelectStep,
    SessionStep,
    SortStep,
    SqlStep,
    UnionStep,
    WatermarkStep,
    WindowStep,
    WithColumnsStep,
)

__all__ = ["Builder", "json_columns", "options_of", "quoted"]

BAD_VALUE: Final = "bad_value"

Result = Callable[[str, Mapping[str, DataFrame]], DataFrame]


class Builder:
    """Makes the tables of a pipeline in their order.

    Args:
        spark: a session with the connector registered; the tables become views of it.
        pipeline: a checked one.
        cluster: options that locate the topics.
        result: returns the table that a sink has written, by the sink's name.
        streaming: whether streams are read as streams, or as tables of their current content.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        cluster: Mapping[str, str],
        result: Result,
        *,
        streaming: bool = True,
    ) -> None:
        self.tables: dict[str, DataFrame] = {}
        self._spark = spark
        self._pipeline = pipeline
        self._cluster = cluster
        self._result = result
        self._streaming = streaming

    def build(self, name: str) -> DataFrame:
        """Return the table of a source or step. Those that it reads must be built."""
        pipeline = self._pipeline
        part: Part = pipeline.sources[name] if name in pipeline.sources else pipeline.steps[name]
        with blamed(pipeline, part):
            table = self._source(part) if isinstance(part, Source) else self._step(part)
            # Python workers and streams find a mistake late; Spark's analysis of the columns finds
            # most mistakes now.
            _ = table.schema
            table.createOrReplaceTempView(name)
        self.tables[name] = table
        return table

    def _source(self, source: Source) -> DataFrame:
        match source:
            case TopicSource():
                return self._topic(source)
            case FileSource():
                return self._files(source)
            case ResultSource():
                return self._result(source.of, self.tables)
            case _:
                raise AssertionError(f"a source of type {source.TYPE} is not built")

    def _topic(self, source: TopicSource) -> DataFrame:
        streaming = source.streaming and self._streaming
        reader = self._spark.readStream if streaming else self._spark.read
        if source.columns:
            reader = reader.schema(
                ", ".join(f"{name} {COLUMNS[name]}" for name in (VALUE, *source.columns))
            )
        table = (
            reader.format(FORMAT)
            .options(**options_of(source, self._cluster, streaming=streaming))
            .load()
        )
        if source.value == "text":
            return table.withColumn("value", sf.col("value").cast("string"))
        return (
            json_columns(table, source.fields, source.on_bad_value)
            if source.value == "json"
            else table
        )

    def _files(self, source: FileSource) -> DataFrame:
        streaming = source.streaming and self._streaming
        reader = self._spark.readStream if streaming else self._spark.read
        if source.fields:
            reader = reader.schema(source.fields)
        if isinstance(source, CsvSource):
            reader = reader.options(
                header=source.header, nullValue=source.null, inferSchema=not source.fields
            )
        if streaming and source.files_per_batch:
            reader = reader.option("maxFilesPerTrigger", source.files_per_batch)
        return reader.format(source.TYPE).options(**source.options).load(source.path)

    def _step(self, step: Part) -> DataFrame:
        tables = {name.lower(): table for name, table in self.tables.items()}
        inputs = [tables[name.lower()] for name, _ in inputs_of(step)]
        match step:
            case SqlStep():
                return self._spark.sql(step.sql)
            case JoinStep():
                return _join(step, inputs[0], inputs[1])
            case UnionStep():
                table = inputs[0]
                for other in inputs[1:]:
                    table = table.unionByName(other)
                return table
            case PythonStep():
                return self._python(step, inputs)
            case _:
                return self._of_one(step, inputs[0])

    def _of_one(self, step: Part, table: DataFrame) -> DataFrame:
        match step:
            case SelectStep():
                return table.selectExpr(*step.columns)
            case FilterStep():
                return table.where(step.where)
            case WithColumnsStep():
                return table.withColumns(
                    {name: sf.expr(text) for name, text in step.columns.items()}
                )
            case WatermarkStep():
                return (
                    table.withWatermark(step.time, f"{step.delay} seconds")
                    if table.isStreaming
                    else table
                )
            case WindowStep():
                slide = f"{step.slide} seconds" if step.slide else None
                return _grouped(
                    step, table, sf.window(step.time, f"{step.length} seconds", slide), "window"
                )
            case SessionStep():
                return _grouped(
                    step, table, sf.session_window(step.time, f"{step.gap} seconds"), "session"
                )
            case GroupStep():
                return _grouped(step, table)
            case DeduplicateStep():
                return (
                    table.dropDuplicatesWithinWatermark(step.columns)
                    if table.isStreaming
                    else table.dropDuplicates(step.columns)
                )
            case SortStep():
                table = table.orderBy(*[_ordering(text) for text in step.by])
                return table.limit(step.limit) if step.limit else table
            case _:
                raise AssertionError(f"a step of type {type(step).__name__} is not built")

    def _python(self, step: PythonStep, inputs: Sequence[DataFrame]) -> DataFrame:
        module_name, _, function = step.function.partition(":")
        folder = Path(self._pipeline.file).resolve().parent
        file = folder / f"{module_name}.py"
        if file.is_file():
            # For functions that the module's author passes to workers.
            self._spark.sparkContext.addPyFile(str(file))
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        found = getattr(importlib.import_module(module_name), function)(*inputs, **step.arguments)
        if not isinstance(found, DataFrame):
            raise InvalidPipeline(
                f"{self._pipeline.file}:{step.line('function')}: {step.place}: {step.function} "
                f"must return a DataFrame, not {found!r}"
            )
        return found


def options_of(
    source: TopicSource, cluster: Mapping[str, str], *, streaming: bool
) -> dict[str, str]:
    """Return the connector's options for a topic; a stream may be read as a table."""
    own = {name.lower(): name for name in source.options}
    options = {
        **cluster,
        "topic": source.topic,
        "topics": ",".join(source.topics),
        "topicsPattern": source.pattern,
        "startingOffsets": "" if "startingtime" in own else source.start,
        "endingOffsets": source.end,
        "valueSchema": "topic" if source.value == "schema" else "",
        "maxMessagesPerTrigger": str(source.messages_per_batch or ""),
        "subscription": source.subscription,
    }
    found = {
        name: value for name, value in options.items() if value and name.lower() not in own
    } | dict(source.options)
    of_streams = set() if streaming else {name.lower() for name in STREAM_NAMES}
    return {name: value for name, value in found.items() if name.lower() not in of_streams}


def json_columns(table: DataFrame, fields: str, on_bad_value: str) -> DataFrame:
    """Return a topic's table with the fields of its JSON values instead of ``value``.

    A field replaces a fixed column of its name.
    """
    schema = StructType.fromDDL(fields)
    text = sf.col("value").cast("string")
    if on_bad_value == "fail":
        value = sf.from_json(text, schema, {"mode": "FAILFAST"})
    else:
        marked = StructType([*schema.fields]).add(BAD_VALUE, StringType())
        value = sf.from_json(
            text, marked, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD_VALUE}
        )
    rest = [name for name in table.columns if name != "value" and name not in schema.names]
    fields_of_value = [sf.col(f"`(value)`.`{name}`").alias(name) for name in schema.names]
    decoded = table.withColumn("(value)", value)
    if on_bad_value == "fail":
        return decoded.select(*fields_of_value, *rest)
    bad = sf.col(f"`(value)`.{BAD_VALUE}").alias(BAD_VALUE)
    whole = decoded.select(*fields_of_value, bad, *rest)
    return (
        whole if on_bad_value == "keep" else whole.where(sf.col(BAD_VALUE).isNull()).drop(BAD_VALUE)
    )


def _join(step: JoinStep, left: DataFrame, right: DataFrame) -> DataFrame:
    if step.broadcast:
        right = sf.broadcast(right)
    if step.on:
        return left.join(right, step.on, step.how)
    return left.alias("left").join(right.alias("right"), sf.expr(step.condition), step.how)


def _grouped(
    step: Aggregating, table: DataFrame, window: Column | None = None, word: str = ""
) -> DataFrame:
    by = [sf.expr(text) for text in step.by]
    grouped = table.groupBy(*([window.alias("(window)")] if window is not None else []), *by)
    result = grouped.agg(*[sf.expr(text).alias(name) for name, text in step.aggregate.items()])
    if window is None:
        return result
    bounds = [
        sf.col("`(window)`.start").alias(f"{word}_start"),
        sf.col("`(window)`.end").alias(f"{word}_end"),
    ]
    return result.select(
        *bounds, *[sf.col(f"`{name}`") for name in result.columns if name != "(window)"]
    )


def _ordering(text: str) -> Column:
    body, _, direction = text.rpartition(" ")
    if direction.upper() in ("ASC", "DESC") and body:
        return sf.expr(body).desc() if direction.upper() == "DESC" else sf.expr(body).asc()
    return sf.expr(text)


def quoted(names: Sequence[str]) -> list[Any]:
    return [sf.col(f"`{name}`") for name in names]
