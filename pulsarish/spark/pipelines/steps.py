"""The steps of a pipeline's file: how rows change between sources and sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pulsarish.spark.pipelines.declaration import (
    Choice,
    Duration,
    Flag,
    Integer,
    ListOf,
    MapOf,
    Part,
    Reference,
    Text,
    declared,
)

__all__ = [
    "STEPS",
    "Aggregating",
    "DeduplicateStep",
    "FilterStep",
    "GroupStep",
    "JoinStep",
    "OneInput",
    "PythonStep",
    "SelectStep",
    "SessionStep",
    "SortStep",
    "SqlStep",
    "Step",
    "UnionStep",
    "WatermarkStep",
    "WindowStep",
    "WithColumnsStep",
]

_EXPRESSION: Final = Text("an expression of SQL")
_COLUMN: Final = Text("the name of a column")


@dataclass(frozen=True, kw_only=True)
class Step(Part):
    pass


@dataclass(frozen=True, kw_only=True)
class OneInput(Step):
    input: str = declared(Reference(), "the rows it takes")


@dataclass(frozen=True, kw_only=True)
class SqlStep(Step):
    """A query in Spark's SQL; tables are the names of sources and steps."""

    TYPE = "sql"

    sql: str = declared(Text("a query"), "the query")


@dataclass(frozen=True, kw_only=True)
class SelectStep(OneInput):
    """Columns, chosen or computed."""

    TYPE = "select"

    columns: list[str] = declared(
        ListOf(_EXPRESSION, "expressions of SQL"),
        "such as `carrier` or `dep_delay / 60 AS delay_hours`",
    )


@dataclass(frozen=True, kw_only=True)
class FilterStep(OneInput):
    """Only the rows for which something is true."""

    TYPE = "filter"

    where: str = declared(_EXPRESSION, "the condition")


@dataclass(frozen=True, kw_only=True)
class WithColumnsStep(OneInput):
    """All columns and further ones, or others in place of those with the same name."""

    TYPE = "with_columns"

    columns: dict[str, str] = declared(
        MapOf(_EXPRESSION, "names to expressions of SQL"), "the columns"
    )


@dataclass(frozen=True, kw_only=True)
class WatermarkStep(OneInput):
    """How late rows of a stream may come.

    What is older than the newest time seen less `delay` when a batch begins is dropped by the next
    window, session or deduplicate step, and counted in the summary; windows end when they are so
    old.
    """

    TYPE = "watermark"

    time: str = declared(_COLUMN, "a column with the time of the event")
    delay: int = declared(Duration(), "how late a row may be")


@dataclass(frozen=True, kw_only=True)
class JoinStep(Step):
    """Rows of two inputs together; a stream with a table, or two tables or streams."""

    TYPE = "join"

    left: str = declared(Reference(), "the rows on the left; the stream, if one of both is none")
    right: str = declared(Reference(), "the rows on the right")
    on: list[str] = declared(
        ListOf(_COLUMN, "columns"),
        "columns that both have and that must be equal; each is there once",
        default=[],
    )
    condition: str = declared(
        _EXPRESSION,
        "in place of `on`: an expression with `left.column` and `right.column`",
        default="",
    )
    how: str = declared(
        Choice(("inner", "left", "right", "full", "semi", "anti")),
        "what becomes of rows without a partner",
        default="inner",
    )
    broadcast: bool = declared(
        Flag(),
        "send the whole right side to every task: for small tables, keeps the order of the left",
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class Aggregating(OneInput):
    by: list[str] = declared(
        ListOf(_EXPRESSION, "expressions of SQL"), "what else rows are grouped by", default=[]
    )
    aggregate: dict[str, str] = declared(
        MapOf(_EXPRESSION, "names to expressions of SQL"), "such as `flights: count(*)`"
    )


@dataclass(frozen=True, kw_only=True)
class WindowStep(Aggregating):
    """Groups of rows in windows of time.

    Columns: `window_start`, `window_end`, those of `by`, those of `aggregate`.
    """

    TYPE = "window"

    time: str = declared(_COLUMN, "a column with the time of the event")
    length: int = declared(Duration(), "of a window")
    slide: int | None = declared(
        Duration(),
        "from the start of a window to that of the next; without it they do not overlap",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class SessionStep(Aggregating):
    """Groups of rows that follow each other without a longer pause.

    Columns: `session_start`, `session_end` (the last row's time and the gap), those of `by`, those
    of `aggregate`.
    """

    TYPE = "session"

    time: str = declared(_COLUMN, "a column with the time of the event")
    gap: int = declared(Duration(), "a session ends with a pause that is longer")


@dataclass(frozen=True, kw_only=True)
class GroupStep(Aggregating):
    """Groups of rows without regard to time.

    Of a stream they grow forever: their sinks say `output: update`.
    """

    TYPE = "group"


@dataclass(frozen=True, kw_only=True)
class DeduplicateStep(OneInput):
    """One row of each that have the same values in some columns; of a stream the first that comes
    within the watermark's delay.
    """

    TYPE = "deduplicate"

    columns: list[str] = declared(ListOf(_COLUMN, "columns"), "the columns")


@dataclass(frozen=True, kw_only=True)
class SortStep(OneInput):
    """Rows in order, or the first of them."""

    TYPE = "sort"

    by: list[str] = declared(ListOf(_EXPRESSION, "expressions of SQL"), "such as `delay DESC`")
    limit: int | None = declared(Integer(1), "greatest number of rows", default=None)


@dataclass(frozen=True, kw_only=True)
class UnionStep(Step):
    """All rows of several inputs, columns matched by name."""

    TYPE = "union"

    inputs: list[str] = declared(ListOf(Reference(), "names of sources or steps"), "the inputs")


@dataclass(frozen=True, kw_only=True)
class PythonStep(Step):
    """A function of Python that takes the inputs as DataFrames, in their order, and the arguments
    by name, and returns a DataFrame. The module is looked for beside the file first.
    """

    TYPE = "python"

    function: str = declared(Text("module:function"), "such as `cleaning:drop_outliers`")
    inputs: list[str] = declared(ListOf(Reference(), "names of sources or steps"), "the inputs")
    arguments: dict[str, str] = declared(
        MapOf(Text(), "arguments"), "further arguments, as text", default={}
    )


STEPS: Final[dict[str, type[Step]]] = {
    each.TYPE: each
    for each in (
        SqlStep,
        SelectStep,
        FilterStep,
        WithColumnsStep,
        WatermarkStep,
        JoinStep,
        WindowStep,
        SessionStep,
        GroupStep,
        DeduplicateStep,
        SortStep,
        UnionStep,
        PythonStep,
    )
}
