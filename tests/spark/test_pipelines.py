"""Each pipeline that is shipped, run on a part of its data against a real cluster, and its result
computed again without Spark.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pyspark.sql import SparkSession

import pulsarish
import pulsarish.spark
from pulsarish.local_cluster.processes import Cluster
from pulsarish.runtime.stop_flag import StopFlag
from pulsarish.spark.pipelines.nodes import InvalidPipeline
from pulsarish.spark.pipelines.reading import read_pipeline
from pulsarish.spark.pipelines.running import PipelineFailed, Runner

EXAMPLES = Path(__file__).parents[2] / "examples/pipelines"
sys.path.insert(0, str(EXAMPLES))
import load  # noqa: E402

pytestmark = pytest.mark.timeout(400)  # a Spark session, and a cluster beside it

ROWS = 4_000
BATCH = 1_000


@dataclass
class Site:
    """A cluster with the flights in it."""

    spark: SparkSession
    cluster: dict[str, str]
    url: str
    folder: Path
    flights: list[load.Row]
    messages: list[load.Message]

    @property
    def data(self) -> str:
        return str(self.folder / "data")


@dataclass
class Ran:
    spark: SparkSession
    runner: Runner
    shown: list[str] = field(default_factory=list)

    def rows(self, path: Path) -> list[Any]:
        return self.spark.read.parquet(str(path)).collect()


@pytest.fixture(scope="module")
def site(spark: SparkSession, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Site:
    urls = cluster.service_urls()
    folder = tmp_path_factory.mktemp("pipelines")
    flights = list(islice(load.read_flights(), ROWS))
    messages = load.flight_messages(flights)
    load.write_tables(flights, folder / "data")
    load.keep(urls["http"])
    pulsarish.spark.register(spark)
    load.send(urls["pulsarish"], "flown", messages)
    return Site(
        spark,
        {"service.url": urls["pulsarish"], "admin.url": urls["http"]},
        urls["pulsarish"],
        folder,
        flights,
        messages,
    )


def run(
    site: Site, file: Path | str, act: Callable[[Runner], None] = Runner.run, **settings: object
) -> Ran:
    pipeline, _ = read_pipeline(str(file), {name: str(value) for name, value in settings.items()})
    shown: list[str] = []
    runner = Runner(site.spark, pipeline, site.cluster, shown.append)
    try:
        act(runner)
    finally:
        for name in [*pipeline.sources, *pipeline.steps]:
            site.spark.catalog.dropTempView(name)
    return Ran(site.spark, runner, shown)


def described(site: Site, name: str, text: str, act: Callable[[Runner], None] = Runner.run) -> Ran:
    """Run a pipeline of the test's own."""
    file = site.folder / f"{name}.yaml"
    file.write_text(
        dedent(text).replace("FOLDER", str(site.folder)).replace("URL", site.cluster["service.url"])
    )
    return run(site, file, act)


def is_picture(path: Path, width: int, height: int) -> bool:
    head = path.read_bytes()[:24]
    return head[:8] == b"\x89PNG\r\n\x1a\n" and (
        int.from_bytes(head[16:20]),
        int.from_bytes(head[20:24]),
    ) == (width * 120, height * 120)


def utc(row: Any, name: str) -> datetime:
    """A time of a collected row, which Spark gives in this machine's zone, without it."""
    value: datetime = row[name]
    return value.astimezone(UTC)


def in_time(
    messages: list[load.Message],
    batch_rows: list[int],
    delay: timedelta,
    ends: Callable[[datetime], datetime],
) -> tuple[list[load.Message], datetime]:
    """What a watermark lets through, and where it stands at the end.

    A batch drops what belongs to a window that ended by the watermark under which the batch before
    closed windows: that of all events before that batch.
    """
    kept: list[load.Message] = []
    marks = [datetime.min.replace(tzinfo=UTC)] * 2
    place = 0
    for count in batch_rows:
        batch = messages[place : place + count]
        place += count
        kept += [message for message in batch if ends(message.time) > marks[-2]]
        newest = max((message.time for message in batch), default=None)
        marks.append(marks[-1] if newest is None else max(marks[-1], newest - delay))
    assert place == len(messages)
    return kept, marks[-1]


def hour_of(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def test_hourly_delays_with_late_events(site: Site) -> None:
    out = site.folder / "hourly"
    late = timedelta(hours=1)
    messages = [
        message for number, message in enumerate(site.messages) if number % 100
    ] + site.messages[::100]
    load.send(site.url, "flown-late", messages)
    ran = run(
        site,
        EXAMPLES / "hourly_delays.yaml",
        data=site.data,
        out=out,
        flights="flown-late",
        hourly="by-hour",
        late="1h",
        batch=BATCH,
    )

    counts = ran.runner.counts["parquet"]
    kept, mark = in_time(
        messages, counts.batch_rows, late, lambda time: hour_of(time) + timedelta(hours=1)
    )
    expected: dict[tuple[datetime, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for message in kept:
        if hour_of(message.time) + timedelta(hours=1) <= mark:
            sums = expected[hour_of(message.time), message.value["carrier"]]
            delay = message.value["dep_delay"]
            sums[0] += 1
            sums[1] += delay is None
            sums[2] += delay or 0
    rows = ran.rows(out / "hours")
    found = {
        (utc(row, "window_start"), row.carrier): [
            row.flights,
            row.cancelled,
            row.delay_minutes or 0,
        ]
        for row in rows
    }
    assert len(rows) == len(found)
    assert found == expected
    assert 0 < len(kept) < len(messages), "some came too late, most did not"
    assert 0 < counts.late <= len(messages) - len(kept), (
        "Spark counts what it drops after it put rows of a task together"
    )
    assert any(f"{counts.late:,} dropped as late" in line for line in ran.shown)

    by_topic = read_json(site, "by-hour")
    assert sorted(
        (each["window_start"], each["carrier"], each["flights"]) for _, each, _ in by_topic
    ) == sorted(
        (
            utc(row, "window_start").isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            row.carrier,
            row.flights,
        )
        for row in rows
    )
    assert all(
        key == each["carrier"] and time == each["window_start"] for key, each, time in by_topic
    )
    assert is_picture(out / "delays.png", 11, 7)
    assert any("The ten worst hours" in text and "average_delay" in text for text in ran.shown)


def read_json(site: Site, topic: str) -> list[tuple[str, Any, str]]:
    """Key, value and event time of the messages of a topic, read by a client of our own."""
    found = []
    with pulsarish.Client(site.url) as client:
        reader = client.create_reader(topic, pulsarish.MessageId.earliest)
        while reader.has_message_available():
            message = reader.read_next(timeout_millis=30_000)
            time = (
                datetime.fromtimestamp(message.event_timestamp() / 1000, UTC)
                .isoformat(timespec="milliseconds")
                .replace("+00:00", "Z")
            )
            found.append((message.partition_key(), json.loads(message.data()), time))
    return found


def table(name: str, *keys: str) -> dict[Any, dict[str, str]]:
    with load.data_file(f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]: row for row in rows}


def test_enrichment(site: Site) -> None:
    out = site.folder / "enriched"
    ran = run(
        site, EXAMPLES / "enrichment.yaml", data=site.data, out=out, flights="flown", batch=ROWS
    )

    airlines, airports, planes = (
        table("airlines", "carrier"),
        table("airports", "faa"),
        table("planes", "tailnum"),
    )
    weather = table("weather", "origin", "time_hour")
    nothing: dict[str, str] = {}
    expected = {}
    for flight in site.flights:
        hour = hour_of(flight["time"]).isoformat().replace("+00:00", "Z")
        plane, sky = (
            planes.get(flight["tailnum"], nothing),
            weather.get((flight["origin"], hour), nothing),
        )
        expected[flight["row"]] = (
            flight["origin"],
            airlines[flight["carrier"]]["name"],
            airports.get(flight["dest"], nothing).get("name"),
            plane.get("manufacturer"),
            int(plane["seats"]) if plane else None,
            float(sky["visib"]) if sky else None,
            flight["dep_delay"],
        )
    rows = ran.rows(out / "flights")
    names = (
        "origin",
        "airline",
        "destination",
        "manufacturer",
        "seats",
        "visibility_miles",
        "dep_delay",
    )
    assert len(rows) == len(expected)
    assert {row.row: tuple(row[name] for name in names) for row in rows} == expected
    assert {path.name for path in (out / "flights").glob("origin=*")} == {
        "origin=EWR",
        "origin=JFK",
        "origin=LGA",
    }
    assert is_picture(out / "visibility.png", 11, 6)


def test_sessions_of_aircraft(site: Site) -> None:
    out = site.folder / "sessions"
    gap = timedelta(hours=8)
    ran = run(
        site,
        EXAMPLES / "aircraft_sessions.yaml",
        out=out,
        flights="flown",
        gap="8h",
        late="1d",
        batch=BATCH,
    )

    counts = ran.runner.counts["sessions"]
    flown = [
        message
        for message in site.messages
        if message.key != "NA" and message.value["air_time"] is not None
    ]
    mark = max(message.time for message in flown) - timedelta(days=1)
    expected = {}
    by_aircraft: dict[str, list[load.Message]] = defaultdict(list)
    for message in sorted(flown, key=lambda message: message.time):
        by_aircraft[message.key].append(message)
    for key, messages in by_aircraft.items():
        session: list[load.Message] = []
        for message in [*messages, None]:
            if session and (message is None or message.time > session[-1].time + gap):
                end = session[-1].time + gap
                if end <= mark:
                    expected[key, session[0].time] = (
                        end,
                        len(session),
                        sum(each.value["air_time"] for each in session),
                    )
                session = []
            if message is not None:
                session.append(message)
    rows = ran.rows(out / "sessions")
    assert counts.late == 0
    assert {
        (row.tailnum, utc(row, "session_start")): (
            utc(row, "session_end"),
            row.flights,
            row.air_minutes,
        )
        for row in rows
    } == expected
    assert len(rows) == len(expected)
    assert any(flights > 1 for _, flights, _ in expected.values())
    assert is_picture(out / "sessions.png", 11, 7)


def test_replay_of_a_month(site: Site) -> None:
    out = site.folder / "replayed"
    run(
        site,
        EXAMPLES / "replay.yaml",
        data=site.data,
        out=out,
        month=1,
        topic="again",
        rate=4 * ROWS,
    )

    found = read_json(site, "again")
    month = [
        message for message in load.flight_messages(site.flights) if message.value["month"] == 1
    ]
    assert [(key, each["row"]) for key, each, _ in found] == [
        (message.key, message.value["row"]) for message in month
    ]
    assert [datetime.fromisoformat(time) for _, _, time in found] == [
        message.time for message in month
    ]
    assert is_picture(out / "replayed.png", 11, 6)


def test_a_table_of_what_changed_is_kept_over_runs(site: Site) -> None:
    out = site.folder / "table"
    changes = load.aircraft_messages(site.flights)
    gone = next(message.key for message in changes if message.value["carrier"] == "UA")
    changes.append(load.Message(gone, changes[-1].time, {"op": "d", "tailnum": gone}))
    half = len(changes) // 2
    for part in (changes[:half], changes[half:]):
        load.send(site.url, "aircraft-changes", part)
        ran = run(
            site,
            EXAMPLES / "aircraft_table.yaml",
            data=site.data,
            out=out,
            changes="aircraft-changes",
            batch=half // 2,
        )
        assert sum(ran.runner.counts["aircraft"].batch_rows) == len(part), (
            "each run goes on where the one before ended"
        )

    expected = {message.key: message.value for message in changes}
    expected = {
        key: (value["airport"], value["flights"])
        for key, value in expected.items()
        if value["op"] != "d"
    }
    newest = max((out / "aircraft").glob("version=*"))
    rows = ran.rows(newest)
    assert {row.key: (row.airport, row.flights) for row in rows} == expected
    assert len(rows) == len(expected)
    assert gone not in expected
    assert len(list((out / "aircraft").glob("version=*"))) == 2, (
        "the newest, and the one before for those who read it"
    )
    assert is_picture(out / "fleets.png", 11, 6)


def test_what_spark_finds_wrong_is_said_with_the_step_and_its_line(site: Site) -> None:
    text = """\
        name: it
        sources:
          planes: {type: csv, path: FOLDER/data/planes.csv, null: NA}
        steps:
          old:
            type: sql
            sql: |
              SELECT manufacturer,
                yaer FROM planes
        sinks:
          shown: {type: console, input: old}
        """
    with pytest.raises(InvalidPipeline) as raised:
        described(site, "wrong", text)
    assert "wrong.yaml:8: steps.old: " in str(raised.value)
    assert "yaer" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_values_that_are_no_json(site: Site) -> None:
    with pulsarish.Client(site.url) as client:
        producer = client.create_producer("spoiled")
        for value in (b'{"n": 1}', b"{oh", b'{"n": "two"}', b'{"n": 4}'):
            producer.send(value)
    text = """\
        name: it
        sources:
          numbers: {type: topic, topic: spoiled, value: json, fields: n int, on_bad_value: POLICY}
        sinks:
          shown: {type: parquet, input: numbers, path: FOLDER/POLICY}
        """
    with pytest.raises(PipelineFailed, match=r"sinks\.shown"):
        described(site, "fail", text.replace("POLICY", "fail"))
    dropped = described(site, "drop", text.replace("POLICY", "drop"))
    assert sorted(row.n for row in dropped.rows(site.folder / "drop")) == [1, 4]
    kept = described(site, "keep", text.replace("POLICY", "keep")).rows(site.folder / "keep")
    assert sorted(row.bad_value for row in kept if row.bad_value is not None) == [
        '{"n": "two"}',
        "{oh",
    ]


def test_plans_and_samples_write_nothing(site: Site) -> None:
    out = site.folder / "unwritten"
    settings = {"data": site.data, "out": out, "flights": "flown", "hourly": "unwritten"}
    plans = "\n".join(run(site, EXAMPLES / "hourly_delays.yaml", Runner.explain, **settings).shown)
    assert re.search(r"sinks\.topic \(line \d+\): a stream, rowOrder content", plans)
    assert re.search(r"sinks\.picture \(line \d+\): a table", plans)
    assert plans.count("== Physical Plan ==") >= 4
    sample = "\n".join(
        run(
            site, EXAMPLES / "hourly_delays.yaml", lambda runner: runner.sample(2), **settings
        ).shown
    )
    for name in ("sources.flights", "steps.hours", "sources.written", "steps.worst_hours"):
        assert name in sample
    assert not out.exists()


def test_files_every_so_often_with_a_function_of_python(site: Site) -> None:
    folder = site.folder / "numbers"
    folder.mkdir()
    (site.folder / "doubling.py").write_text(
        "def double(rows, *, column):\n    return rows.withColumn(column, rows[column] * 2)\n"
    )
    text = """\
        name: it
        run: {mode: scheduled, every: 1s, rounds: 2}
        checkpoints: FOLDER/numbers-checkpoints
        sources:
          numbers: {type: json, path: FOLDER/numbers, streaming: true, fields: "n int, note string"}
        steps:
          doubled:
            {type: python, function: "doubling:double", inputs: numbers, arguments: {column: n}}
          some: {type: filter, input: doubled, where: n > 2}
          more: {type: with_columns, input: some, columns: {big: n > 4}}
        sinks:
          out: {type: csv, input: more, path: FOLDER/doubled}
          each: {type: console, input: more, title: numbers}
        """
    (folder / "1.json").write_text('{"n": 1}\n{"n": 2, "note": "x"}\n')

    def second_file(runner: Runner) -> None:
        show = runner.show

        def shown(line: str) -> None:
            show(line)
            if line == "round 2":
                (folder / "2.json").write_text('{"n": 3}\n')

        runner.show = shown
        runner.run()

    ran = described(site, "numbers", text, second_file)
    rows = ran.spark.read.option("header", "true").csv(str(site.folder / "doubled")).collect()
    assert sorted((row.n, row.note, row.big) for row in rows) == [
        ("4", "x", "false"),
        ("6", None, "true"),
    ]
    assert ran.shown[0] == "round 1"
    assert sum(text.startswith("numbers, batch") for text in ran.shown) == 2


def test_a_pipeline_that_goes_on_until_it_is_stopped(site: Site) -> None:
    text = """\
        name: it
        run: {mode: continuous, trigger: 1s, refresh: 1s}
        checkpoints: FOLDER/continuous-checkpoints
        cluster: {service_url: URL}
        sources:
          flights:
            type: topic
            topic: flown
            streaming: true
            columns: [event_time]
            value: json
            fields: origin string
          written: {type: result, of: kept}
        steps:
          counted: {type: group, input: written, by: origin, aggregate: {flights: count(*)}}
        sinks:
          kept: {type: parquet, input: flights, path: FOLDER/continuous}
          shown: {type: console, input: counted}
        """
    expected = sum(flight["origin"] == "EWR" for flight in site.flights)

    def until_all_came(runner: Runner) -> None:
        stop = StopFlag()
        show = runner.show

        def shown(line: str) -> None:
            show(line)
            if f"{expected}" in line:
                stop.set()

        runner.show, runner.stop = shown, stop
        runner._writing.show = shown
        runner.run()

    ran = described(site, "continuous", text, until_all_came)
    assert any("EWR" in text and str(expected) in text for text in ran.shown)
    assert not ran.spark.streams.active
