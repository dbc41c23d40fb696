"""Check a pipeline beyond its keys, still without Spark: references, cycles, streams and what may
be done with them.
"""

from __future__ import annotations

import ast
import graphlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pulsarish.spark.pipelines.declaration import Part
from pulsarish.spark.pipelines.nodes import Reading, near
from pulsarish.spark.pipelines.parts import (
    ConsoleSink,
    CsvSink,
    FileSource,
    ParquetSink,
    PictureSink,
    Pipeline,
    ResultSource,
    Sink,
    TableSink,
    TopicSink,
    TopicSource,
)
from pulsarish.spark.pipelines.sql_names import QueryError, tables_of
from pulsarish.spark.pipelines.steps import (
    DeduplicateStep,
    GroupStep,
    JoinStep,
    OneInput,
    PythonStep,
    SessionStep,
    SortStep,
    SqlStep,
    Step,
    UnionStep,
    WatermarkStep,
    WindowStep,
)

__all__ = ["check", "inputs_of"]


def check(pipeline: Pipeline, reading: Reading) -> Pipeline:
    """Return the pipeline with its order and its streams.

    With mistakes recorded in ``reading``, the result is meaningless.
    """
    for check_part in (_check_names, _check_sources, _check_steps, _check_sinks, _check_run):
        check_part(pipeline, reading)
    edges = _edges(pipeline, reading)
    try:
        order = tuple(graphlib.TopologicalSorter(edges).static_order())
    except graphlib.CycleError as error:
        names = [name.removeprefix("sink ") for name in reversed(error.args[1])]
        first = (
            pipeline.steps.get(names[0])
            or pipeline.sources.get(names[0])
            or pipeline.sinks[names[0]]
        )
        reading.wrong(first.at, f"{first.place}: it reads itself: {' from '.join(names)}")
        return pipeline
    pipeline = replace(pipeline, order=order, streams=frozenset(_streams(pipeline, order, edges)))
    _check_streams(pipeline, edges, reading)
    _warn_unused(pipeline, edges, reading)
    return pipeline


def inputs_of(part: Part) -> list[tuple[str, int]]:
    """Return what a step or sink reads, by name and line. For a query, the tables that it names."""
    match part:
        case SqlStep():
            first = part.line("sql")
            return [(each.name, first + each.line) for each in tables_of(part.sql)]
        case JoinStep():
            return [(part.left, part.line("left")), (part.right, part.line("right"))]
        case UnionStep() | PythonStep():
            return [(name, part.line("inputs")) for name in part.inputs]
        case _:
            assert isinstance(part, Sink | OneInput)
            return [(part.input, part.line("input"))]


def _check_names(pipeline: Pipeline, reading: Reading) -> None:
    tables: dict[str, str] = {}
    for part in [*pipeline.sources.values(), *pipeline.steps.values()]:
        # SQL does not distinguish upper from lower case.
        other = tables.setdefault(part.name.lower(), part.place)
        if other != part.place:
            reading.wrong(
                part.at,
                f"{part.place}: {other} has this name already, and both are tables of queries",
            )


def _edges(pipeline: Pipeline, reading: Reading) -> dict[str, list[str]]:
    """Return what each table and sink reads; a sink's key is ``sink NAME``.

    Names that refer to nothing are mistakes and left out.
    """
    tables = {name.lower(): name for name in [*pipeline.sources, *pipeline.steps]}
    edges: dict[str, list[str]] = {name: [] for name in pipeline.sources}
    for source in pipeline.sources.values():
        if isinstance(source, ResultSource):
            sink = pipeline.sinks.get(source.of)
            if sink is None:
                known = ", ".join(pipeline.sinks)
                reading.wrong(
                    source.line("of"),
                    f"{source.place}.of: there is no sink {source.of!r}; sinks are "
                    f"{known}.{near(source.of, pipeline.sinks)}",
                )
            else:
                edges[source.name].append(f"sink {sink.name}")
                _check_readable(source, sink, reading)
    for part in [*pipeline.steps.values(), *pipeline.sinks.values()]:
        name = part.name if isinstance(part, Step) else f"sink {part.name}"
        edges[name] = []
        try:
            inputs = inputs_of(part)
        except QueryError as error:
            reading.wrong(part.line("sql") + error.line, f"{part.place}.sql: {error}")
            continue
        for word, line in inputs:
            # A query names tables as SQL does, other keys exactly.
            table = (
                tables.get(word.lower())
                if isinstance(part, SqlStep)
                else (word if word in tables.values() else None)
            )
            if table is None:
                what = "the query names" if isinstance(part, SqlStep) else "it reads"
                known = ", ".join(tables.values())
                hint = near(word, tables.values())
                reading.wrong(
                    line,
                    f"{part.place}: {what} {word!r}, which is no source and no step; there are "
                    f"{known}.{hint}",
                )
            else:
                edges[name].append(table)
    return edges


def _check_readable(source: ResultSource, sink: Sink, reading: Reading) -> None:
    if not sink.READABLE:
        reading.wrong(
            source.line("of"),
            f"{source.place}.of: sink {sink.name} is of type {sink.TYPE}, which cannot be read "
            "again",
        )
    elif isinstance(sink, TopicSink) and (sink.value != "json" or not sink.topic):
        reading.wrong(
            source.line("of"),
            f"{source.place}.of: only a topic sink with `topic` and `value: json` can be read "
            "again",
        )


def _check_sources(pipeline: Pipeline, reading: Reading) -> None:
    for source in pipeline.sources.values():
        match source:
            case TopicSource():
                if sum(map(bool, (source.topic, source.topics, source.pattern))) != 1:
                    reading.wrong(
                        source.at,
                        f"{source.place}: exactly one of topic, topics and pattern says what to "
                        "read",
                    )
                if (source.value == "json") != bool(source.fields):
                    text = (
                        "fields is missing: the columns to take from the JSON"
                        if not source.fields
                        else "fields are for `value: json`"
                    )
                    reading.wrong(source.line("value"), f"{source.place}: {text}")
                if source.value != "json" and "on_bad_value" in source.lines:
                    text = (
                        "this is for `value: json`; for the topic's schema options have "
                        "onDecodeError: fail, drop or keep"
                    )
                    reading.wrong(
                        source.line("on_bad_value"), f"{source.place}.on_bad_value: {text}"
                    )
                time = next(
                    (word for word in source.options if word.lower() == "startingtime"), None
                )
                if time is not None and "start" in source.lines:
                    reading.wrong(
                        source.line("start"),
                        f"{source.place}.start: {time} in options says it already; leave one of "
                        "them out",
                    )
                if source.value == "schema" and source.columns:
                    reading.wrong(
                        source.line("columns"),
                        f"{source.place}.columns: with the topic's schema all columns are read",
                    )
                if source.streaming and source.end:
                    reading.wrong(
                        source.line("end"),
                        f"{source.place}.end: a stream has no end; leave it out, or streaming",
                    )
                for word in ("messages_per_batch", "subscription"):
                    if word in source.lines and not source.streaming:
                        reading.wrong(
                            source.line(word),
                            f"{source.place}.{word}: this is for streams; set streaming: true",
                        )
            case FileSource():
                if source.streaming and not source.fields:
                    reading.wrong(
                        source.line("streaming"),
                        f"{source.place}: fields is missing: a stream of files must be told its "
                        "columns",
                    )
                if source.files_per_batch and not source.streaming:
                    reading.wrong(
                        source.line("files_per_batch"),
                        f"{source.place}.files_per_batch: this is for streams; set streaming: true",
                    )
            case _:
                pass


def _check_steps(pipeline: Pipeline, reading: Reading) -> None:
    for step in pipeline.steps.values():
        match step:
            case JoinStep() if bool(step.on) == bool(step.condition):
                reading.wrong(
                    step.at, f"{step.place}: one of on and condition says what belongs together"
                )
            case WindowStep() if step.slide is not None and step.slide > step.length:
                reading.wrong(
                    step.line("slide"),
                    f"{step.place}.slide: it is longer than the window; rows between windows "
                    "would be lost",
                )
            case WindowStep() | SessionStep() | GroupStep() if not step.aggregate:
                reading.wrong(
                    step.line("aggregate"),
                    f"{step.place}.aggregate: there is nothing to compute; write name: expression",
                )
            case PythonStep():
                _check_function(step, pipeline.file, reading)
            case _:
                pass


def _check_function(step: PythonStep, file: str, reading: Reading) -> None:
    """Check that the function exists by parsing its module. An import would import Spark."""
    line = step.line("function")
    module, colon, name = step.function.partition(":")
    if (
        not colon
        or not name.isidentifier()
        or not all(part.isidentifier() for part in module.split("."))
    ):
        reading.wrong(line, f"{step.place}.function: {step.function!r} must be module:function")
        return
    found = _module_file(module, Path(file).resolve().parent)
    if found is None:
        reading.wrong(
            line,
            f"{step.place}.function: there is no module {module}, neither beside the file nor "
            "installed",
        )
        return
    try:
        body = ast.parse(found.read_text(encoding="utf-8")).body
    except (SyntaxError, UnicodeDecodeError) as error:
        reading.wrong(line, f"{step.place}.function: {found} is no Python: {error}")
        return
    functions = {each.name: each for each in body if isinstance(each, ast.FunctionDef)}
    if name not in functions:
        reading.wrong(
            line, f"{step.place}.function: {found} has no function {name}.{near(name, functions)}"
        )
        return
    arguments = functions[name].args
    words = {each.arg for each in [*arguments.args, *arguments.kwonlyargs]}
    for word in step.arguments:
        if word not in words and arguments.kwarg is None:
            reading.wrong(
                step.line("arguments"),
                f"{step.place}.arguments: {step.function} takes no {word!r}.{near(word, words)}",
            )
    places = len(arguments.posonlyargs) + len(arguments.args)
    if len(step.inputs) > places and arguments.vararg is None:
        reading.wrong(
            step.line("inputs"),
            f"{step.place}.inputs: {step.function} takes {places}, here stand {len(step.inputs)}",
        )


def _module_file(module: str, beside: Path) -> Path | None:
    local = beside.joinpath(*module.split(".")).with_suffix(".py")
    if local.is_file():
        return local
    package, _, _ = module.partition(".")
    if package in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return (
        Path(spec.origin)
        if spec is not None and spec.origin and spec.origin.endswith(".py")
        else None
    )


def _check_sinks(pipeline: Pipeline, reading: Reading) -> None:
    paths: dict[str, str] = {}
    for sink in pipeline.sinks.values():
        match sink:
            case TopicSink():
                if bool(sink.topic) == bool(sink.topic_column):
                    reading.wrong(
                        sink.at,
                        f"{sink.place}: one of topic and topic_column says where messages go",
                    )
                if sink.topic_column and "partitions" in sink.lines:
                    text = "topics of a column must be there; leave it out"
                    reading.wrong(sink.line("partitions"), f"{sink.place}.partitions: {text}")
                if sink.value == "raw" and sink.columns:
                    text = "with `value: raw` the column `value` is the message; leave it out"
                    reading.wrong(sink.line("columns"), f"{sink.place}.columns: {text}")
            case ParquetSink() | CsvSink() | TableSink() | PictureSink():
                other = paths.setdefault(sink.path.rstrip("/"), sink.place)
                if other != sink.place:
                    reading.wrong(
                        sink.line("path"), f"{sink.place}: {other} writes to {sink.path} too"
                    )
                if isinstance(sink, PictureSink):
                    _check_picture(sink, reading)
            case _:
                pass


def _check_picture(sink: PictureSink, reading: Reading) -> None:
    if not sink.path.lower().endswith(".png"):
        reading.wrong(
            sink.line("path"), f"{sink.place}.path: a picture is a .png; here stands {sink.path!r}"
        )
    needed = {"heatmap": ("series", "value"), "histogram": (), "spans": ("y", "series")}.get(
        sink.chart, ("y",)
    )
    for word in needed:
        if not getattr(sink, word):
            reading.wrong(
                sink.line("chart"), f"{sink.place}: {word} is missing: a {sink.chart} needs it"
            )


def _check_run(pipeline: Pipeline, reading: Reading) -> None:
    run = pipeline.run
    for name in pipeline.spark.conf:
        if not name.startswith("spark."):
            reading.wrong(
                pipeline.spark.line("conf"),
                f"spark.conf: Spark's settings begin with spark., not {name!r}",
            )
    if run.mode == "scheduled" and run.every is None:
        reading.wrong(run.line("mode"), "run: every is missing: how often `scheduled` runs")
    for word, mode in (
        ("every", "scheduled"),
        ("rounds", "scheduled"),
        ("trigger", "continuous"),
        ("refresh", "continuous"),
    ):
        if word in run.lines and run.mode != mode:
            reading.wrong(
                run.line(word), f"run.{word}: this is for mode: {mode}, not for {run.mode}"
            )


def _streams(
    pipeline: Pipeline, order: tuple[str, ...], edges: Mapping[str, list[str]]
) -> set[str]:
    found = {source.name for source in pipeline.sources.values() if source.streaming}
    for name in order:
        if name in pipeline.steps and any(each in found for each in edges[name]):
            found.add(name)
    return found


def _check_streams(pipeline: Pipeline, edges: Mapping[str, list[str]], reading: Reading) -> None:
    watermarked = _behind(pipeline, edges, WatermarkStep)
    for step in pipeline.steps.values():
        if step.name in pipeline.streams:
            _check_stream_step(step, pipeline.streams, watermarked, reading)
    endless = _behind(pipeline, edges, WindowStep, SessionStep) - watermarked
    growing = _behind(pipeline, edges, GroupStep)
    for sink in pipeline.sinks.values():
        if sink.input in pipeline.streams:
            _check_stream_sink(sink, pipeline, endless, growing, reading)
        elif isinstance(sink, TopicSink | ConsoleSink) and sink.output != "append":
            reading.wrong(
                sink.line("output"), f"{sink.place}.output: {sink.input} is no stream; leave it out"
            )
    if pipeline.run.mode == "continuous":
        _check_continuous(pipeline, edges, reading)


def _check_stream_step(
    step: Step, streams: frozenset[str], watermarked: set[str], reading: Reading
) -> None:
    match step:
        case DeduplicateStep() if step.name not in watermarked:
            reading.wrong(
                step.at,
                f"{step.place}: of a stream this would remember all rows forever; put a watermark "
                "step before it",
            )
        case SortStep():
            reading.wrong(
                step.at,
                f"{step.place}: a stream has no end and cannot be sorted; sort its result (a "
                "source of type result)",
            )
        case JoinStep() if step.left not in streams:
            reading.wrong(
                step.at,
                f"{step.place}: {step.right} is the stream, {step.left} is none: the stream "
                "stands left",
            )
        case _:
            pass


def _check_stream_sink(
    sink: Sink, pipeline: Pipeline, endless: set[str], growing: set[str], reading: Reading
) -> None:
    line = sink.line("input")
    if not sink.STREAMS:
        text = "write it to parquet or a topic and draw the result (a source of type result)"
        reading.wrong(line, f"{sink.place}: {sink.input} is a stream; {text}")
        return
    if not pipeline.checkpoints:
        reading.wrong(
            line,
            f"{sink.place}: {sink.input} is a stream; checkpoints must say where it keeps how far "
            "it is",
        )
    output = "update" if isinstance(sink, TableSink) else getattr(sink, "output", "append")
    if output == "append" and sink.input in endless:
        text = "windows and sessions of a stream end by a watermark; put a watermark step before"
        reading.wrong(line, f"{sink.place}: {text}, or say output: update")
    if output == "append" and sink.input in growing:
        reading.wrong(
            line,
            f"{sink.place}: groups of a stream grow forever; only a sink with output: update "
            "takes them",
        )
    if isinstance(sink, TopicSink) and sink.messages_per_second:
        text = (
            "a stream is bounded where it is read: messages_per_batch of its source, and "
            "run.trigger"
        )
        reading.wrong(sink.line("messages_per_second"), f"{sink.place}.messages_per_second: {text}")


def _check_continuous(pipeline: Pipeline, edges: Mapping[str, list[str]], reading: Reading) -> None:
    if not any(sink.input in pipeline.streams for sink in pipeline.sinks.values()):
        reading.wrong(
            pipeline.run.line("mode"),
            "run.mode: nothing here is a stream, which continuous is for; use once or scheduled",
        )
    results = _behind(pipeline, edges, ResultSource)
    for sink in pipeline.sinks.values():
        if sink.input in pipeline.streams and sink.input in results:
            text = (
                f"{sink.place}: a stream that goes on cannot be joined with a result of this "
                "run; use once or scheduled"
            )
            reading.wrong(sink.line("input"), text)


def _behind(pipeline: Pipeline, edges: Mapping[str, list[str]], *kinds: type) -> set[str]:
    """Return the tables that are, or directly or indirectly read from, parts of these kinds."""
    found: set[str] = set()
    for name in pipeline.order:
        part = pipeline.sources.get(name) or pipeline.steps.get(name)
        if isinstance(part, kinds) or any(
            each in found for each in edges[name] if not name.startswith("sink ")
        ):
            found.add(name)
    return found


def _warn_unused(pipeline: Pipeline, edges: Mapping[str, list[str]], reading: Reading) -> None:
    used = {each for inputs in edges.values() for each in inputs}
    for part in [*pipeline.sources.values(), *pipeline.steps.values()]:
        if part.name not in used:
            reading.warn(part.at, f"{part.place}: nothing reads it")
