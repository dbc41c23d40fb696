"""Log lines in both forms."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from pulsarish.runtime.log import (
    RepeatLimit,
    configure_logs,
    flush_logs,
    get_logger,
    lines_by_level,
)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger("pulsarish")
    before = (root.handlers[:], root.level, root.propagate)
    yield
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def test_text_is_one_line_with_fields() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    get_logger("bookie.journal").info("100% full", ledger=7, path="/a b", empty="", lines="x\ny")
    (line,) = stream.getvalue().splitlines()
    assert (
        line.split(" ", 1)[1]
        == 'INFO    bookie.journal 100% full ledger=7 path="/a b" empty="" lines="x\\ny"'
    )


def test_json_keeps_its_own_names_and_the_traceback() -> None:
    stream = io.StringIO()
    configure_logs(form="json", stream=stream)
    get_logger("x").error("failed", exception=ValueError("why"), event="mine", number=1)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["event_"], line["number"], line["level"]) == (
        "failed",
        "mine",
        1,
        "error",
    )
    assert "ValueError: why" in line["traceback"]


def test_levels_below_the_configured_one_are_silent() -> None:
    stream = io.StringIO()
    configure_logs(level="warning", stream=stream)
    get_logger("x").info("quiet")
    get_logger("x").warning("loud")
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["loud"]
    with pytest.raises(ValueError, match="unknown log level"):
        configure_logs(level="chatty")


def test_text_lines_name_the_process_where_several_write() -> None:
    stream = io.StringIO()
    identity = {"broker": "b-1"}
    configure_logs(stream=stream, identity=identity, is_one_of_several=True)
    get_logger("broker.topic").info("loaded", topic="t")
    configure_logs(stream=stream, identity=identity)
    get_logger("broker.topic").info("loaded", topic="t")
    assert [line.split()[1:] for line in stream.getvalue().splitlines()] == [
        ["INFO", "b-1", "broker.topic", "loaded", "topic=t"],
        ["INFO", "broker.topic", "loaded", "topic=t"],
    ]


def test_machine_forms_name_component_and_process() -> None:
    stream = io.StringIO()
    configure_logs(form="logfmt", stream=stream, identity={"bookie": "b1"})
    get_logger("bookie.journal").warning("slow sync", seconds=1.5, path="/a b", bookie="other")
    (line,) = stream.getvalue().splitlines()
    assert line.split(" ", 1)[1] == (
        'level=warning component=bookie.journal event="slow sync" bookie=b1 seconds=1.5 path="/a '
        'b" bookie_=other'
    )
    stream = io.StringIO()
    configure_logs(form="json", stream=stream, identity={"broker": "x"})
    get_logger("broker.topic").info("loaded", topic="t")
    line_json = json.loads(stream.getvalue())
    assert {key: line_json[key] for key in ("component", "broker", "event", "topic")} == {
        "component": "broker.topic",
        "broker": "x",
        "event": "loaded",
        "topic": "t",
    }


def test_an_event_is_written_so_often_in_a_window_and_what_was_held_back_is_counted() -> None:
    limit = RepeatLimit(2)
    event, other = ("ledger", 30, "bookie failed"), ("ledger", 30, "other")
    assert [limit.admit(event, now) for now in (0.0, 1.0, 2.0, 9.9)] == [0, 0, None, None]
    assert limit.admit(other, 5.0) == 0
    assert limit.admit(event, 10.0) == 2, (
        "the first line of the next window says what the last one held back"
    )
    assert [limit.admit(event, 11.0), limit.admit(event, 12.0)] == [0, None]
    assert limit.over(15.0) == [], (
        "the other's window ends with nothing held back, this one's is not over"
    )
    assert limit.over(20.0) == [(event, 1)]
    assert limit.over(99.0) == []


def test_without_a_limit_everything_is_written() -> None:
    limit = RepeatLimit(0)
    assert [limit.admit(("a", 20, "b"), 0.0) for _ in range(100)] == [0] * 100


def test_lines_held_back_are_told_at_the_end_and_counted_by_level() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream, repeats_max=2)
    before = lines_by_level()["warning"]
    for number in range(5):
        get_logger("x").warning("again", number=number)
    get_logger("x").info("again")
    flush_logs()
    said = [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()]
    assert said == [
        "WARNING x again number=0",
        "WARNING x again number=1",
        "INFO    x again",
        "WARNING x again held_back=3",
    ]
    assert lines_by_level()["warning"] == before + 5
