"""The parts of a pipeline's file, except its steps (`steps.py`).

`reading.py` reads it. `checking.py` checks what the keys alone do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from pulsarish.spark.columns import COLUMNS, VALUE
from pulsarish.spark.pipelines.declaration import (
    Choice,
    Columns,
    Duration,
    Flag,
    Integer,
    ListOf,
    MapOf,
    Name,
    Part,
    PartOf,
    Reference,
    Text,
    declared,
)
from pulsarish.spark.pipelines.steps import Step

__all__ = [
    "SINKS",
    "SOURCES",
    "Cluster",
    "ConsoleSink",
    "CsvSink",
    "CsvSource",
    "FileSource",
    "FolderSink",
    "JsonSource",
    "ParquetSink",
    "ParquetSource",
    "PictureSink",
    "Pipeline",
    "ResultSource",
    "Run",
    "Sink",
    "Source",
    "SparkSettings",
    "TableSink",
    "TopicSink",
    "TopicSource",
]

_EXPRESSION: Final = Text("an expression of SQL")
_LABEL: Final = Text("text; empty for none", empty=True)
_COLUMN: Final = Text("the name of a column")
_FIELDS: Final = Columns()
_PLOT_INCHES_MAX: Final = 40
_PLOT_ROWS_MAX: Final = 100_000


@dataclass(frozen=True, kw_only=True)
class Cluster(Part):
    """Where topics are.

    The command's `--url` and `--admin-url` (`PULSARISH_URL`, `PULSARISH_ADMIN_URL`) stand in for
    what is left out.
    """

    service_url: str = declared(Text(), "gRPC address of any brokers", default="")
    admin_url: str = declared(Text(), "HTTP address of any brokers", default="")


@dataclass(frozen=True, kw_only=True)
class SparkSettings(Part):
    """The Spark session the pipeline gets."""

    master: str = declared(
        Text(), "the master; the command's `--master` goes before it", default="local[*]"
    )
    conf: dict[str, str] = declared(
        MapOf(Text(), "Spark's settings"), "Spark's settings by their names", default={}
    )


@dataclass(frozen=True, kw_only=True)
class Run(Part):
    """When the pipeline runs, and how long."""

    mode: str = declared(
        Choice(("once", "scheduled", "continuous")),
        "`once`: take what is there and end; `scheduled`: the same every so often; `continuous`: "
        "go on until stopped",
        default="once",
    )
    every: int | None = declared(
        Duration(), "from the start of one round of `scheduled` to the next", default=None
    )
    rounds: int | None = declared(
        Integer(1),
        "end after this number of rounds of `scheduled`; without it, go on until stopped",
        default=None,
    )
    trigger: int = declared(
        Duration(), "from the start of one batch of `continuous` to the next", default=10
    )
    refresh: int = declared(
        Duration(),
        "how often `continuous` writes sinks that read another sink's result",
        default=60,
    )


@dataclass(frozen=True, kw_only=True)
class Source(Part):
    STREAMS: ClassVar[bool] = True

    streaming: bool = False


@dataclass(frozen=True, kw_only=True)
class TopicSource(Source):
    """Messages of topics: the columns of their values, and beside them `key`, `properties`,
    `topic`, `partition`, `message_id`, `publish_time`, `event_time`, `sequence_id`,
    `producer_name`. One of `topic`, `topics` and `pattern` says which.
    """

    TYPE = "topic"

    topic: str = declared(Text(), "a topic", default="")
    topics: list[str] = declared(ListOf(Text(), "topics"), "several topics", default=[])
    pattern: str = declared(Text(), "a regular expression for topics", default="")
    streaming: bool = declared(
        Flag(),
        "read on from where the checkpoint stands; otherwise all that is there now",
        default=False,
    )
    value: str = declared(
        Choice(("raw", "text", "json", "schema")),
        "`raw`: a column `value` of bytes; `text`: of text; `json`: the columns of `fields`; "
        "`schema`: the columns of the topic's schema",
        default="raw",
    )
    fields: str = declared(_FIELDS, "what to take from JSON values", default="")
    columns: list[str] = declared(
        ListOf(
            Choice(tuple(name for name in COLUMNS if name != VALUE)),
            "the columns that every message has",
        ),
        "which of these to read beside the value; all without it, and fewer are read faster",
        default=[],
    )
    on_bad_value: str = declared(
        Choice(("fail", "drop", "keep")),
        "a value that is no JSON of these fields: end with an error, leave the message out, or "
        "keep it with its text in the column `bad_value` (null otherwise) for a step to send "
        "elsewhere",
        default="fail",
    )
    start: str = declared(
        Text("earliest, latest or a message id"),
        "where to begin when no checkpoint says so",
        default="earliest",
    )
    end: str = declared(
        Text("latest or a message id"), "where to end when not streaming", default=""
    )
    messages_per_batch: int | None = declared(
        Integer(1), "greatest number of messages in one batch of a stream, about", default=None
    )
    subscription: str = declared(
        Text(),
        "a durable subscription that follows the checkpoint, so that retention keeps what is "
        "unread",
        default="",
    )
    options: dict[str, str] = declared(
        MapOf(Text(), "options"), "more options of the connector, by their names", default={}
    )


@dataclass(frozen=True, kw_only=True)
class FileSource(Source):
    path: str = declared(Text(), "a file or folder; `*` stands for several")
    streaming: bool = declared(
        Flag(), "take files as they appear; `fields` must be given", default=False
    )
    fields: str = declared(
        _FIELDS, "columns and their types; found out from the files without it", default=""
    )
    files_per_batch: int | None = declared(
        Integer(1), "greatest number of files in one batch of a stream", default=None
    )
    options: dict[str, str] = declared(
        MapOf(Text(), "options"), "more options of Spark's reader, by their names", default={}
    )


@dataclass(frozen=True, kw_only=True)
class ParquetSource(FileSource):
    """A Parquet file, or a folder of them."""

    TYPE = "parquet"


@dataclass(frozen=True, kw_only=True)
class CsvSource(FileSource):
    """CSV files."""

    TYPE = "csv"

    header: bool = declared(Flag(), "the first line has the names of the columns", default=True)
    null: str = declared(Text(empty=True), "the word that stands for no value", default="")


@dataclass(frozen=True, kw_only=True)
class JsonSource(FileSource):
    """Files with a JSON object a line."""

    TYPE = "json"


@dataclass(frozen=True, kw_only=True)
class ResultSource(Source):
    """What a sink of this pipeline has written, read as a table after that sink is done: how a
    stream gets its picture.
    """

    TYPE = "result"
    STREAMS = False

    of: str = declared(Reference("sink"), "a sink of type topic (as JSON), parquet, csv or table")


@dataclass(frozen=True, kw_only=True)
class Sink(Part):
    STREAMS: ClassVar[bool] = True
    READABLE: ClassVar[bool] = False
    """Whether a ``result`` source can read what the sink wrote."""

    input: str = declared(Reference(), "the rows it writes")


_OUTPUT: Final = (
    "of a stream with groups: each once it is complete (`append`), each when it has changed "
    "(`update`)"
)


@dataclass(frozen=True, kw_only=True)
class TopicSink(Sink):
    """Messages of a topic.

    A stream is written exactly once: what is tried again after a failure is dropped by the topic's
    deduplication, which is switched on (`deduplication` in `options` says otherwise).
    """

    TYPE = "topic"
    READABLE = True

    topic: str = declared(Text(), "the topic", default="")
    partitions: int = declared(
        Integer(0, 1_000),
        "partitions of a topic that is not there and is made; 0: without partitions",
        default=0,
    )
    topic_column: str = declared(
        _COLUMN, "in place of `topic`: a column that names each message's topic", default=""
    )
    value: str = declared(
        Choice(("json", "raw", "schema")),
        "`json`: a JSON object of the columns; `raw`: the column `value`, bytes or text; "
        "`schema`: the columns, in the topic's schema",
        default="json",
    )
    columns: list[str] = declared(
        ListOf(_COLUMN, "columns"), "the columns of the value; all without it", default=[]
    )
    key: str = declared(_COLUMN, "a column for the message's key", default="")
    event_time: str = declared(
        _COLUMN, "a column, a timestamp, for the message's event time", default=""
    )
    properties: dict[str, str] = declared(
        MapOf(_EXPRESSION, "names to expressions of SQL"), "the message's properties", default={}
    )
    output: str = declared(Choice(("append", "update")), _OUTPUT, default="append")
    row_order: str = declared(
        Choice(("auto", "plan", "content")),
        "by what a task's rows are numbered, so that a task tried again numbers them alike: "
        "`plan`: as they come, `content`: sorted. `auto` takes `content` when Spark's plan has a "
        "shuffle and does not sort behind it",
        default="auto",
    )
    messages_per_second: int | None = declared(
        Integer(1, 1_000_000),
        "not faster than this, by one task in the order of the input; not for streams",
        default=None,
    )
    options: dict[str, str] = declared(
        MapOf(Text(), "options"), "more options of the connector, by their names", default={}
    )


@dataclass(frozen=True, kw_only=True)
class FolderSink(Sink):
    READABLE = True

    path: str = declared(Text(), "the folder")
    partition_by: list[str] = declared(
        ListOf(_COLUMN, "columns"),
        "columns that become folders, `column=value`, as with Delta, but without Delta's log",
        default=[],
    )
    when_there: str = declared(
        Choice(("overwrite", "append", "fail")),
        "when the folder has something already; a stream always appends",
        default="overwrite",
    )
    files: int | None = declared(
        Integer(1, 10_000), "number of files of each round or batch", default=None
    )


@dataclass(frozen=True, kw_only=True)
class ParquetSink(FolderSink):
    """A folder of Parquet files.

    A stream writes each row once, as Spark's own list in the folder says, which readers on Spark
    follow.
    """

    TYPE = "parquet"


@dataclass(frozen=True, kw_only=True)
class CsvSink(FolderSink):
    """A folder of CSV files with a header."""

    TYPE = "csv"


@dataclass(frozen=True, kw_only=True)
class TableSink(Sink):
    """The newest row of each key, kept as Parquet: what changed is merged into the table, which is
    written again to `version=N` below the folder. The highest with `_SUCCESS` counts, one before it
    is kept for those who are reading it.
    """

    TYPE = "table"
    READABLE = True

    path: str = declared(Text(), "the folder")
    keys: list[str] = declared(ListOf(_COLUMN, "columns"), "columns that say which row it is")
    newest_by: list[str] = declared(
        ListOf(_EXPRESSION, "expressions of SQL"), "the greatest counts, such as `message_id`"
    )
    delete_when: str = declared(
        _EXPRESSION, "when this holds for the newest row of a key, the key is gone", default=""
    )


@dataclass(frozen=True, kw_only=True)
class ConsoleSink(Sink):
    """A table on the terminal."""

    TYPE = "console"

    title: str = declared(Text(), "a line above it", default="")
    columns: list[str] = declared(
        ListOf(_COLUMN, "columns"), "the columns; all without it", default=[]
    )
    rows: int = declared(Integer(1, 10_000), "greatest number of rows", default=20)
    output: str = declared(
        Choice(("append", "update", "complete")),
        _OUTPUT + ", or all each time (`complete`)",
        default="append",
    )


@dataclass(frozen=True, kw_only=True)
class PictureSink(Sink):
    """A plot as PNG. Not of a stream: of its result."""

    TYPE = "picture"
    STREAMS = False

    path: str = declared(Text(), "the file, `.png`")
    chart: str = declared(
        Choice(("line", "bar", "ranking", "scatter", "heatmap", "histogram", "spans")),
        "the kind of plot, see below",
    )
    x: str = declared(_COLUMN, "the column along the bottom; a time is written as one")
    y: list[str] = declared(
        ListOf(_COLUMN, "columns"),
        "the columns to show; several are several lines or bars",
        default=[],
    )
    series: str = declared(
        _COLUMN, "a column with a line, colour or row for each of its values", default=""
    )
    value: str = declared(_COLUMN, "heatmap: the column that gives the colour", default="")
    title: str = declared(Text(), "above the plot")
    subtitle: str = declared(Text(), "below the title, in small letters", default="")
    x_label: str | None = declared(_LABEL, "what is along the bottom, with its unit", default=None)
    y_label: str | None = declared(_LABEL, "what is along the side, with its unit", default=None)
    value_label: str | None = declared(
        _LABEL, "heatmap: what the colour says, with its unit", default=None
    )
    width: int = declared(Integer(3, _PLOT_INCHES_MAX), "in inches, of 120 dots", default=11)
    height: int = declared(Integer(2, _PLOT_INCHES_MAX), "in inches", default=6)
    rows_max: int = declared(
        Integer(1, _PLOT_ROWS_MAX),
        "more rows than this are an error: a plot is of results, not of everything",
        default=20_000,
    )


SOURCES: Final[dict[str, type[Source]]] = {
    each.TYPE: each for each in (TopicSource, ParquetSource, CsvSource, JsonSource, ResultSource)
}
SINKS: Final[dict[str, type[Sink]]] = {
    each.TYPE: each
    for each in (TopicSink, ParquetSink, CsvSink, TableSink, ConsoleSink, PictureSink)
}


@dataclass(frozen=True, kw_only=True)
class Pipeline(Part):
    """A whole file."""

    name: str = declared(
        Name(), "the pipeline's name, also of its Spark application and its queries"
    )
    description: str = declared(Text(), "what it is for", default="")
    parameters: dict[str, str] = declared(
        MapOf(Text(), "names to values"),
        "`${name}` anywhere below stands for the value, which `--set name=value` replaces",
        default={},
    )
    cluster: Cluster = declared(PartOf(Cluster), "where topics are", default=Cluster())
    spark: SparkSettings = declared(
        PartOf(SparkSettings), "the Spark session", default=SparkSettings()
    )
    run: Run = declared(PartOf(Run), "when it runs", default=Run())
    checkpoints: str = declared(
        Text("a folder"),
        "where streams keep how far they are; needed by a sink of a stream",
        default="",
    )
    sources: Mapping[str, Source] = field(default_factory=dict)
    steps: Mapping[str, Step] = field(default_factory=dict)
    sinks: Mapping[str, Sink] = field(default_factory=dict)
    file: str = ""
    streams: frozenset[str] = frozenset()
    """The sources and steps whose rows come as a stream."""
    order: tuple[str, ...] = ()
    """Sources, steps and sinks, each after what it reads."""
