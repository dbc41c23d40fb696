"""What runs of pipelines without Spark: tables for people, rates, the order of stages, and names in
queries.
"""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow
import pytest

from pulsarish.spark.error_text import sentence
from pulsarish.spark.pipelines.building import options_of
from pulsarish.spark.pipelines.ddl import ColumnsError, column_names
from pulsarish.spark.pipelines.pacing import paced
from pulsarish.spark.pipelines.parts import Pipeline, TopicSink, TopicSource
from pulsarish.spark.pipelines.sinks import Writing, query_name
from pulsarish.spark.pipelines.sql_names import QueryError, tables_of
from pulsarish.spark.pipelines.tables import render


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM a", ["a"]),
        (
            "select * from a, b x join `c d` using (k) left join e on a.x = e.x, f",
            ["a", "b", "c d", "e", "f"],
        ),
        (
            "WITH x AS (SELECT * FROM a), y (p, q) AS (SELECT * FROM x) SELECT * FROM y JOIN b",
            ["a", "b"],
        ),
        (
            "SELECT (SELECT max(t) FROM b) FROM (SELECT * FROM a) WHERE k IN (SELECT k FROM c)",
            ["b", "a", "c"],
        ),
        (
            (
                "SELECT extract(YEAR FROM t), trim(BOTH 'x' FROM s), substring(s FROM 2) FROM a "
                "WHERE x IS NOT DISTINCT FROM y"
            ),
            ["a"],
        ),
        ("SELECT 'it''s FROM nowhere' FROM a -- FROM b\nJOIN c /* FROM d */", ["a", "c"]),
        ("SELECT * FROM range(10), a LATERAL VIEW explode(l) t AS v", ["a"]),
        ("SELECT * FROM (a JOIN b USING (k))", ["a", "b"]),
        ("FROM a SELECT k GROUP BY k, v UNION ALL SELECT k FROM db.b", ["a", "db.b"]),
        ("SELECT * FROM VALUES (1), (2)", []),
    ],
)
def test_the_tables_of_a_query(query: str, names: list[str]) -> None:
    assert [each.name for each in tables_of(query)] == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a string", ["a"]),
        (
            (
                "a: INT, `b c` decimal(10, 2) NOT NULL, c array<struct<x: int, y: map<string, "
                "double>>> COMMENT 'note', d varchar(3)"
            ),
            ["a", "b c", "c", "d"],
        ),
    ],
)
def test_columns(text: str, names: list[str]) -> None:
    assert column_names(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the name of a column is missing at the end"),
        ("a", "the type of a is missing at the end"),
        ("a strng", "'strng' is no type of Spark for a. Did you mean string?"),
        ("a int b int", "'b' where a comma or the end should be"),
        ("a int,", "the name of a column is missing"),
        ("a array<int", "the end where > should be"),
        ("a int, A string", "a is there twice"),
        ("1 int", "'1' is no name of a column"),
    ],
)
def test_columns_that_are_none(text: str, why: str) -> None:
    with pytest.raises(ColumnsError) as raised:
        column_names(text)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    ("query", "line", "text"),
    [
        ("", 0, "empty"),
        ("INSERT INTO a SELECT 1", 0, "begins with SELECT or WITH"),
        ("SELECT (1\nFROM a", 0, "( is not closed"),
        ("SELECT 1)\nFROM a", 0, ") closes nothing"),
        ("SELECT 1\nFROM a\nWHERE x = 'open", 2, "' is not closed"),
        ("SELECT 1 FROM a;\nSELECT 2 FROM b", 0, "one query, not several"),
        ("SELECT 1 /* open", 0, "/* is not closed"),
    ],
)
def test_queries_that_are_none(query: str, line: int, text: str) -> None:
    with pytest.raises(QueryError) as raised:
        tables_of(query)
    assert raised.value.line == line
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            (
                "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call "
                "last):\n  File x\n"
                "pulsarish.model.errors.ServiceNotReady: no broker\n SQLSTATE: 38000\n\tat "
                "org.apache.spark.A(B.scala:1)"
            ),
            "pulsarish.model.errors.ServiceNotReady: no broker",
        ),
        (
            "Traceback (most recent call last):\n  File x\nZeroDivisionError: division by zero\n",
            "ZeroDivisionError: division by zero",
        ),
        (
            (
                "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: "
                "Job aborted\n\tat a.B(C:1)\n"
                "Caused by: org.apache.spark.SparkException: [MALFORMED] Bad records\n\tat "
                "a.B(C:1)\n"
                "Caused by: a.b.JsonParseException: Unexpected character\n\t... 9 more"
            ),
            "Unexpected character",
        ),
        (
            (
                "[UNRESOLVED_COLUMN.WITH_SUGGESTION] No column `yaer`. SQLSTATE: 42703; line 2 "
                "pos 2;\n'Project [manufacturer#1]\n+- R"
            ),
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] No column `yaer`. SQLSTATE: 42703; line 2 pos 2",
        ),
    ],
)
def test_errors_of_spark_in_a_sentence(text: str, words: str) -> None:
    assert sentence(Exception(text)) == words


def test_a_table_for_people() -> None:
    rows = [("UA", 1234, 1.5, None, True, "2013-01-01"), ("B6", 7, None, b"\xff!", False, (1, -1))]
    assert render(["airline", "flights", "delay", "note", "late", "time"], rows).splitlines() == [
        "airline  flights  delay  note   late  time",
        "-------  -------  -----  -----  ----  ----------",
        "UA          1234   1.50  -      yes   2013-01-01",
        "B6             7      -  \\xff!  no    (1, -1)",
    ]
    assert render(["a"], []).endswith("(no rows)")


def test_rows_pass_at_their_rate_in_their_order() -> None:
    now = 0.0
    passed: list[tuple[float, int]] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    batches = [
        pyarrow.RecordBatch.from_pydict({"n": list(range(start, start + 250))})
        for start in (0, 250, 500, 750)
    ]
    numbers: list[int] = []
    for piece in paced(batches, 100, lambda: now, sleep):
        numbers += piece.column(0).to_pylist()
        passed.append((now, len(numbers)))
    assert numbers == list(range(1000))
    assert all(count <= 100 * at + 10.001 for at, count in passed)
    assert passed[-1][0] == pytest.approx(9.9)


def test_options_of_a_topic_say_nothing_twice_and_nothing_that_is_for_streams_of_a_table() -> None:
    source = TopicSource(
        topic="t",
        streaming=True,
        messages_per_batch=5,
        options={"startingtime": "7", "MaxBytesPerTrigger": "1m", "valueSchema": "raw"},
    )
    same = {"service.url": "u", "topic": "t", "startingtime": "7", "valueSchema": "raw"}
    assert options_of(source, {"service.url": "u"}, streaming=False) == same
    assert options_of(source, {"service.url": "u"}, streaming=True) == same | {
        "MaxBytesPerTrigger": "1m",
        "maxMessagesPerTrigger": "5",
    }


def test_a_sink_by_a_column_of_topics_makes_no_topic() -> None:
    sinks = (
        TopicSink(input="a", topic_column="t", row_order="plan"),
        TopicSink(input="a", topic="t", row_order="plan"),
    )
    made = [
        Writing(None, Pipeline(name="it"), {}, print)._topic_options(
            sink, SimpleNamespace(isStreaming=False)
        )
        for sink in sinks
    ]
    assert made == [{"rowOrder": "plan"}, {"topic": "t", "createTopic": "0", "rowOrder": "plan"}]


def test_two_pipelines_in_one_folder_have_checkpoints_of_their_own() -> None:
    sink = TopicSink(name="out", input="a", topic="t")
    assert query_name(Pipeline(name="one"), sink) != query_name(Pipeline(name="other"), sink)
