"""Run a pipeline on Spark: once, periodically, or until it is stopped.

Show its plans and samples of its rows.

Sinks are written in stages. First those that read no result: streams concurrently, then tables one
by one. Then those that read what the first have written, and so on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.stop_flag import StopFlag
from pulsarish.spark.error_text import sentence
from pulsarish.spark.pipelines.building import Builder
from pulsarish.spark.pipelines.checking import inputs_of
from pulsarish.spark.pipelines.nodes import InvalidPipeline
from pulsarish.spark.pipelines.parts import Pipeline, ResultSource, Sink, TableSink, TopicSink
from pulsarish.spark.pipelines.sinks import Writing, frame_of, plan_of, readable, row_order
from pulsarish.spark.pipelines.spark_errors import blamed
from pulsarish.spark.pipelines.tables import render

__all__ = ["PipelineFailed", "Runner", "StreamCounts"]

_POLL_SECONDS: Final = 0.2
SETTINGS: Final = {
    # A time in a file or a topic means the same everywhere, and a batch's statistics are kept until
    # they were counted.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


class PipelineFailed(PulsarishError):
    """A step or sink failed at run time; the text names it with its line."""


@dataclass
class StreamCounts:
    """Statistics of a sink's stream in a run."""

    batch_rows: list[int] = field(default_factory=list)
    """Rows read, by batch."""
    late: int = 0
    """Rows too late for their window or session, as Spark counts them: after it merged rows of one
    task and group.
    """
    _seen: int = -1

    def take(self, progress: Iterable[Mapping[str, Any]]) -> None:
        for each in progress:
            if each["batchId"] > self._seen:
                self._seen = each["batchId"]
                self.batch_rows.append(each["numInputRows"])
                self.late += sum(
                    operator["numRowsDroppedByWatermark"] for operator in each["stateOperators"]
                )


@dataclass
class Runner:
    """Runs one pipeline.

    Args:
        spark: a session with the connector registered. Its views and settings become the
            pipeline's.
        pipeline: a checked one.
        cluster: options that locate the topics.
        show: receives output for the user.
        stop: set to end the run gracefully.
    """

    spark: SparkSession
    pipeline: Pipeline
    cluster: Mapping[str, str]
    show: Callable[[str], None]
    stop: StopFlag = field(default_factory=StopFlag)
    counts: dict[str, StreamCounts] = field(default_factory=dict)
    """Statistics of the streams, by the sink's name."""

    def __post_init__(self) -> None:
        for name, value in {**SETTINGS, **self.pipeline.spark.conf}.items():
            if self.spark.conf.isModifiable(name):
                self.spark.conf.set(name, value)
        self._writing = Writing(self.spark, self.pipeline, self.cluster, self.show)

    def run(self) -> None:
        """Run the pipeline.

        Raises ``InvalidPipeline`` when Spark rejects it before reading, ``PipelineFailed`` for a
        later failure.
        """
        run = self.pipeline.run
        match run.mode:
            case "once":
                self._round()
            case "scheduled":
                assert run.every is not None
                number, due = 0, time.perf_counter()
                while not self.stop.is_set() and number != run.rounds:
                    number += 1
                    self.show(f"round {number}")
                    self._round()
                    # A round that took longer than the interval is followed at once by one round,
                    # not by all that were missed.
                    due = max(due + run.every, time.perf_counter())
                    if number != run.rounds:
                        self.stop.wait(due - time.perf_counter())
            case _:
                self._continuous()

    def explain(self) -> None:
        """Show Spark's plan for each sink. Nothing is read or written."""
        builder = self._build(streaming=True, result=self._stand_in(rows=False))
        for sink in self.pipeline.sinks.values():
            with blamed(self.pipeline, sink):
                frame = frame_of(sink, builder.tables[sink.input])
                order = (
                    f", rowOrder {row_order(sink, frame)}"
                    if isinstance(sink, TopicSink) and frame.isStreaming
                    else ""
                )
                self.show(
                    f"{sink.place} (line {sink.at}): "
                    f"{'a stream' if frame.isStreaming else 'a table'}{order}"
                )
                self.show(plan_of(frame, "formatted"))

    def sample(self, rows: int) -> None:
        """Show the first rows of each source and step, streams read as tables.

        Nothing is written.
        """
        builder = self._build(streaming=False, result=self._stand_in(rows=True))
        for name, table in builder.tables.items():
            part = self.pipeline.sources.get(name) or self.pipeline.steps[name]
            with blamed(self.pipeline, part):
                found = readable(table.limit(rows)).collect()
            self.show(f"{part.place} (line {part.at})\n{render(table.columns, found)}\n")

    def _stand_in(self, *, rows: bool) -> Callable[[str, Mapping[str, DataFrame]], DataFrame]:
        """Return a replacement for a sink's result where nothing is written: the sink's input, or
        an empty table of that form.
        """

        def result(name: str, tables: Mapping[str, DataFrame]) -> DataFrame:
            sink = self.pipeline.sinks[name]
            table = tables[sink.input]
            columns = (
                sink.columns if isinstance(sink, TopicSink) and sink.columns else table.columns
            )
            found = table.select(*columns)
            if isinstance(sink, TableSink) and rows:
                found = self._writing.versions(sink).newest(found)
            return found if rows else self.spark.createDataFrame([], found.schema)

        return result

    def _build(
        self, *, streaming: bool, result: Callable[[str, Mapping[str, DataFrame]], DataFrame]
    ) -> Builder:
        builder = Builder(self.spark, self.pipeline, self.cluster, result, streaming=streaming)
        for name in self.pipeline.order:
            if not name.startswith("sink "):
                builder.build(name)
        return builder

    def _round(self) -> None:
        stages = stages_of(self.pipeline)
        builder = self._builder()
        built: set[str] = set()
        for number in range(max(stages.values()) + 1):
            if self.stop.is_set():
                return
            self._build_stage(builder, stages, number, built)
            sinks = [
                sink
                for sink in self.pipeline.sinks.values()
                if stages[f"sink {sink.name}"] == number
            ]
            queries = {
                sink.name: self._start(sink, builder, {"availableNow": True})
                for sink in sinks
                if self._streams(sink)
            }
            self._await(queries, until_end=True)
            for name in queries:
                self._tell(name)
            for sink in sinks:
                if not self._streams(sink) and not self.stop.is_set():
                    self._write(sink, builder)

    def _continuous(self) -> None:
        stages = stages_of(self.pipeline)
        builder = self._builder()
        self._build_stage(builder, stages, 0, set())
        first = [sink for sink in self.pipeline.sinks.values() if stages[f"sink {sink.name}"] == 0]
        trigger = {"processingTime": f"{self.pipeline.run.trigger} seconds"}
        queries = {
            sink.name: self._start(sink, builder, trigger) for sink in first if self._streams(sink)
        }
        try:
            for sink in first:
                if not self._streams(sink):
                    self._write(sink, builder)
            while not self.stop.is_set():
                self._await(queries, until_end=False, seconds=self.pipeline.run.refresh)
                for name in queries:
                    self._tell(name)
                built = {name for name, stage in stages.items() if stage == 0}
                for number in range(1, max(stages.values()) + 1):
                    self._build_stage(builder, stages, number, built)
                    for sink in self.pipeline.sinks.values():
                        if stages[f"sink {sink.name}"] == number:
                            self._write(sink, builder)
        finally:
            for query in queries.values():
                query.stop()

    def _builder(self) -> Builder:
        sinks = self.pipeline.sinks
        return Builder(
            self.spark,
            self.pipeline,
            self.cluster,
            lambda name, _: self._writing.result(sinks[name]),
        )

    def _build_stage(
        self, builder: Builder, stages: Mapping[str, int], number: int, built: set[str]
    ) -> None:
        for name in self.pipeline.order:
            if not name.startswith("sink ") and name not in built and stages[name] == number:
                builder.build(name)
                built.add(name)

    def _streams(self, sink: Sink) -> bool:
        return sink.input in self.pipeline.streams

    def _start(self, sink: Sink, builder: Builder, trigger: Mapping[str, Any]) -> StreamingQuery:
        self.counts[sink.name] = StreamCounts()
        with blamed(self.pipeline, sink):
            return self._writing.start(sink, builder.tables[sink.input], trigger)

    def _await(
        self,
        queries: Mapping[str, StreamingQuery],
        *,
        until_end: bool,
        seconds: float | None = None,
    ) -> None:
        """Wait until all have ended, or for ``seconds``, and count what each one does.

        When one fails, stop the others.
        """
        end = None if seconds is None else time.perf_counter() + seconds
        try:
            while True:
                active = False
                for name, query in queries.items():
                    active |= query.isActive
                    self.counts[name].take(query.recentProgress)
                    if query.exception() is not None:
                        raise self._failure(self.pipeline.sinks[name], query)
                if (
                    (until_end and not active)
                    or (end is not None and time.perf_counter() >= end)
                    or self.stop.wait(_POLL_SECONDS)
                ):
                    break
            for name, query in queries.items():
                self.counts[name].take(query.recentProgress)
        except BaseException:
            for query in queries.values():
                query.stop()
            raise
        if until_end:
            for query in queries.values():
                query.stop()

    def _failure(self, sink: Sink, query: StreamingQuery) -> PipelineFailed:
        error = query.exception()
        assert error is not None
        return PipelineFailed(
            f"{self.pipeline.file}:{sink.at}: {sink.place}: its stream failed: {sentence(error)}"
        )

    def _write(self, sink: Sink, builder: Builder) -> None:
        try:
            with blamed(self.pipeline, sink):
                self._writing.write(sink, builder.tables[sink.input])
        except InvalidPipeline as error:
            raise PipelineFailed(str(error)) from error

    def _tell(self, name: str) -> None:
        counts = self.counts[name]
        late = f", {counts.late:,} dropped as late" if counts.late else ""
        sink = self.pipeline.sinks[name]
        self.show(
            f"{sink.place}: {sum(counts.batch_rows):,} rows read in {len(counts.batch_rows):,} "
            f"batches{late}"
        )


def stages_of(pipeline: Pipeline) -> dict[str, int]:
    """Return the stage of each source, step and sink (``sink NAME``): how many results must be
    written before.
    """
    stages: dict[str, int] = {}
    by_word = {name.lower(): name for name in [*pipeline.sources, *pipeline.steps]}
    for name in pipeline.order:
        if name.startswith("sink "):
            stages[name] = stages[pipeline.sinks[name.removeprefix("sink ")].input]
            continue
        source = pipeline.sources.get(name)
        if source is not None:
            stages[name] = (
                stages[f"sink {source.of}"] + 1 if isinstance(source, ResultSource) else 0
            )
        else:
            stages[name] = max(
                (stages[by_word[word.lower()]] for word, _ in inputs_of(pipeline.steps[name])),
                default=0,
            )
    return stages
