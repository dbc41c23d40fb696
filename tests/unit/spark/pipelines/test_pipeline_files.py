"""Pipelines' files, read without Spark: what they may say, and that every mistake is named with its
line.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.spark.pipelines.nodes import InvalidPipeline, Mistake
from pulsarish.spark.pipelines.parts import Pipeline, TopicSource
from pulsarish.spark.pipelines.reading import read_pipeline
from pulsarish.spark.pipelines.reference import reference
from pulsarish.spark.pipelines.steps import WindowStep

ROOT = Path(__file__).parents[4]

GOOD = """\
name: delays
parameters: {out: /data, late: 2h}
checkpoints: ${out}/checkpoints
spark:
  master: local[2]
  conf: {spark.sql.shuffle.partitions: 2}
sources:
  flights:
    type: topic
    topic: flights
    streaming: true
    value: json
    fields: carrier string, delay int
  airlines: {type: csv, path: "${here}/airlines.csv", null: NA}
  hours: {type: result, of: hourly}
steps:
  named:
    type: sql
    sql: |
      WITH big AS (SELECT * FROM airlines WHERE name IS DISTINCT FROM 'FROM nowhere')
      SELECT f.*, extract(HOUR FROM f.event_time) AS hour
      FROM Flights f LEFT JOIN big USING (carrier)  -- FROM a comment
  marked: {type: watermark, input: named, time: event_time, delay: "${late}"}
  by_hour:
    type: window
    input: marked
    time: event_time
    length: 1h
    slide: 30m
    by: carrier
    aggregate: {flights: count(*)}
sinks:
  hourly: {type: parquet, input: by_hour, path: "${out}/hourly", partition_by: [carrier]}
  plot:
    type: picture
    input: hours
    path: "${out}/plot.png"
    chart: line
    x: window_start
    y: flights
    title: Flights
    x_label: ""
"""


def read(tmp_path: Path, text: str, **values: str) -> Pipeline:
    file = tmp_path / "it.yaml"
    file.write_text(dedent(text))
    return read_pipeline(str(file), values)[0]


def mistakes(tmp_path: Path, text: str, **values: str) -> list[tuple[int, str]]:
    with pytest.raises(InvalidPipeline) as raised:
        read(tmp_path, text, **values)
    assert all(
        f"it.yaml:{each.line}: {each.text}" in str(raised.value) for each in raised.value.mistakes
    )
    return [(each.line, each.text) for each in raised.value.mistakes]


def test_a_file_becomes_typed_parts_in_their_order(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD, late="90m")
    assert found.name == "delays"
    assert found.checkpoints == "/data/checkpoints"
    assert found.spark.conf == {"spark.sql.shuffle.partitions": "2"}
    flights = found.sources["flights"]
    assert isinstance(flights, TopicSource)
    assert (flights.streaming, flights.start, flights.at) == (True, "earliest", 9)
    window = found.steps["by_hour"]
    assert isinstance(window, WindowStep)
    assert (window.length, window.slide, window.by, window.aggregate) == (
        3600,
        1800,
        ["carrier"],
        {"flights": "count(*)"},
    )
    assert found.steps["marked"].delay == 5400  # type: ignore[attr-defined]
    assert found.sources["airlines"].path == f"{tmp_path}/airlines.csv"  # type: ignore[attr-defined]
    assert found.streams == {"flights", "named", "marked", "by_hour"}
    order = found.order
    for before, behind in [
        ("airlines", "named"),
        ("named", "marked"),
        ("by_hour", "sink hourly"),
        ("sink hourly", "hours"),
        ("hours", "sink plot"),
    ]:
        assert order.index(before) < order.index(behind)


def test_several_mistakes_are_said_in_one_go_each_with_its_line(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        """\
        name: two words
        sourcs: {}
        sources:
          flights: {type: topic, topic: flights, value: jsn, streaming: yes}
          planes: {type: parqet, path: x}
        steps:
          late: {type: filter, input: flights, were: delay > 15}
          late: {type: filter, input: flights, where: delay > 15}
          hourly:
            type: window
            input: late
            time: event_time
            length: 60
            aggregate: {n: count(*)}
        sinks:
          out: {type: parquet, input: hourly, path: "${out}", files: 0}
        """,
    )
    expected = [
        (1, 'name: here stands "two words"; it must be a name of letters, digits and _'),
        (2, "there is no key 'sourcs'"),
        (
            4,
            (
                'sources.flights.value: here stands "jsn"; it must be raw, text, json or schema. '
                "Did you mean json?"
            ),
        ),
        (4, 'sources.flights.streaming: here stands "yes"; it must be true or false'),
        (
            5,
            (
                "sources.planes.type: there is no source 'parqet'; it is one of topic, parquet, "
                "csv, json, result. Did you mean parquet?"
            ),
        ),
        (7, "steps.late: there is no key 'were'; keys are input, where. Did you mean where?"),
        (7, "steps.late: where is missing"),
        (8, "steps: late stands here a second time; the first is on line 7"),
        (13, "steps.hourly.length: '60' has no unit; write 60s, 60m, 60h or 60d"),
        (16, "${out}: there is no parameter 'out'"),
        (16, 'sinks.out.files: here stands "0"; it must be a whole number from 1 to 10,000'),
    ]
    for line, text in expected:
        assert any(at == line and text in what for at, what in found), (line, text, found)


@pytest.mark.parametrize(
    ("before", "after", "line", "text"),
    [
        (
            "FROM Flights f",
            "FROM Flihgts f",
            22,
            "steps.named: the query names 'Flihgts', which is no source and no step",
        ),
        ("'FROM nowhere')", "'FROM nowhere'", 20, "steps.named.sql: ( is not closed"),
        ("'FROM nowhere'", "'FROM nowhere", 20, "steps.named.sql: ' is not closed"),
        (
            "WITH big AS (SELECT",
            "DELETE FROM big AS (SELECT",
            20,
            "a query begins with SELECT or WITH, this one with 'DELETE'",
        ),
        (
            "of: hourly",
            "of: horly",
            15,
            "there is no sink 'horly'; sinks are hourly, plot. Did you mean hourly?",
        ),
        ("of: hourly", "of: plot", 15, "type picture, which cannot be read again"),
        (
            "input: by_hour",
            "input: by_hours",
            33,
            "sinks.hourly: it reads 'by_hours', which is no source and no step",
        ),
        (
            "input: marked",
            "input: named",
            33,
            "windows and sessions of a stream end by a watermark",
        ),
        ("input: named", "input: by_hour", 23, "it reads itself: marked from by_hour from marked"),
        (
            "checkpoints: ${out}/checkpoints\n",
            "",
            32,
            "checkpoints must say where it keeps how far it is",
        ),
        (
            "input: hours",
            "input: by_hour",
            36,
            "write it to parquet or a topic and draw the result",
        ),
        ("slide: 30m", "slide: 2h", 29, "it is longer than the window"),
        ("plot.png", "plot.gif", 37, "a picture is a .png"),
        ("    fields: carrier string, delay int\n", "", 12, "fields is missing"),
        ("    topic: flights\n", "", 9, "exactly one of topic, topics and pattern"),
        (
            "streaming: true",
            "streaming: false\n    messages_per_batch: 5",
            12,
            "this is for streams",
        ),
        (
            "{out: /data, late: 2h}",
            "{out: /data, late: }",
            2,
            "parameters.late: it has no default: give it with --set late=VALUE",
        ),
        (
            "spark.sql.shuffle.partitions: 2",
            "sql.shuffle.partitions: 2",
            6,
            "Spark's settings begin with spark.",
        ),
        ("name: delays\n", "name: delays\nrun: {mode: scheduled}\n", 2, "every is missing"),
        (
            "name: delays\n",
            "name: delays\nrun: {mode: once, trigger: 5s}\n",
            2,
            "run.trigger: this is for mode: continuous, not for once",
        ),
        ("null: NA", "null: &x NA", None, ""),
        ("null: NA", "null: *x", 14, "alias *x: say it twice, or use a parameter"),
        ("name: delays", "name: !!python/object:os.system delays", 1, "the tag"),
        ("name: delays", "name: [delays", 2, "this is no YAML"),
    ],
)
def test_mistakes(tmp_path: Path, before: str, after: str, line: int | None, text: str) -> None:
    assert before in GOOD
    changed = GOOD.replace(before, after, 1)
    if line is None:
        read(tmp_path, changed)
        return
    found = mistakes(tmp_path, changed)
    if text:
        assert any(at == line and text in what for at, what in found), found


@pytest.mark.parametrize(
    ("source", "sink", "line", "text"),
    [
        (
            "value: schema, on_bad_value: drop",
            "topic: out",
            2,
            "on_bad_value: this is for `value: json`; for the topic's schema",
        ),
        (
            "value: text",
            "topic_column: t, partitions: 4",
            3,
            "partitions: topics of a column must be there",
        ),
        (
            "value: raw",
            "topic: out, value: raw, columns: [key]",
            3,
            "columns: with `value: raw` the column `value` is the message",
        ),
        (
            "value: raw, start: earliest, options: {startingtime: 5}",
            "topic: out",
            2,
            "start: startingtime in options says it already",
        ),
    ],
)
def test_what_would_not_be_heeded_is_refused(
    tmp_path: Path, source: str, sink: str, line: int, text: str
) -> None:
    file = (
        f"name: it\nsources: {{a: {{type: topic, topic: t, {source}}}}}\nsinks: {{b: {{type: "
        f"topic, input: a, {sink}}}}}\n"
    )
    assert [(at, text in what) for at, what in mistakes(tmp_path, file)] == [(line, True)]


def test_what_is_set_must_be_declared(tmp_path: Path) -> None:
    assert mistakes(tmp_path, GOOD, lates="1h") == [
        (
            1,
            (
                "--set lates: there is no parameter 'lates'; parameters are out, late. Did you "
                "mean late?"
            ),
        )
    ]


def test_python_functions_are_found_without_being_run(tmp_path: Path) -> None:
    (tmp_path / "cleaning.py").write_text(
        "raise SystemExit(9)\ndef tidy(rows, *, least):\n    return rows\ndef plain(rows):\n    "
        "return rows\n"
    )
    text = """\
        name: it
        sources: {rows: {type: json, path: x}}
        steps: {tidied: {type: python, function: "FUNCTION", inputs: rows, arguments: {least: 3}}}
        sinks: {shown: {type: console, input: tidied}}
        """
    assert (
        read(tmp_path, text.replace("FUNCTION", "cleaning:tidy")).steps["tidied"].TYPE == "python"
    )
    assert (
        "has no function tidi. Did you mean tidy?"
        in mistakes(tmp_path, text.replace("FUNCTION", "cleaning:tidi"))[0][1]
    )
    assert (
        "there is no module claening"
        in mistakes(tmp_path, text.replace("FUNCTION", "claening:tidy"))[0][1]
    )
    assert (
        "takes no 'least'" in mistakes(tmp_path, text.replace("FUNCTION", "cleaning:plain"))[0][1]
    )


def test_a_check_imports_no_spark(tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(GOOD)
    code = (
        "import sys; from pulsarish.spark.pipelines.reading import read_pipeline; "
        "read_pipeline(sys.argv[1], {});"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'matplotlib', 'grpc', 'asyncio'} & "
        "set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "it.yaml")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_spoiled_file_is_refused_with_lines_or_read_never_worse(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    lines = GOOD.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, len(lines) - 1))
        words = st.text(alphabet="abz: -{}[]'\"#&*!|>%@`,\n\t0é$", max_size=12)
        at = data.draw(st.integers(0, len(lines[number])))
        lines[number] = (
            lines[number][:at]
            + data.draw(words)
            + lines[number][at + data.draw(st.integers(0, 6)) :]
        )
    file = tmp_path_factory.getbasetemp() / "spoiled.yaml"
    file.write_text("\n".join(lines))
    found: tuple[Mistake, ...] | None = None
    try:
        read_pipeline(str(file), {})
    except InvalidPipeline as error:
        found = error.mistakes
    assert found is None or found
    assert all(1 <= each.line <= len("\n".join(lines).splitlines()) + 1 for each in found or ())


def test_the_reference_in_the_documentation_is_that_of_the_declarations() -> None:
    """To repair it: put what ``pulsarish pipeline keys`` prints between the two marks."""
    text = (ROOT / "docs/spark.md").read_text()
    assert (
        text.partition("<!-- keys -->\n")[2].partition("<!-- end of keys -->")[0].strip()
        == reference().strip()
    )
