"""Log lines in both forms."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from pulsarish.runtime.log import configure_logs, get_logger


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
    assert line.split(" ", 1)[1] == 'INFO    bookie.journal 100% full ledger=7 path="/a b" empty="" lines="x\\ny"'


def test_json_keeps_its_own_names_and_the_traceback() -> None:
    stream = io.StringIO()
    configure_logs(form="json", stream=stream)
    get_logger("x").error("failed", exception=ValueError("why"), event="mine", number=1)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["event_"], line["number"], line["level"]) == ("failed", "mine", 1, "error")
    assert "ValueError: why" in line["traceback"]


def test_levels_below_the_configured_one_are_silent() -> None:
    stream = io.StringIO()
    configure_logs(level="warning", stream=stream)
    get_logger("x").info("quiet")
    get_logger("x").warning("loud")
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["loud"]
    with pytest.raises(ValueError, match="unknown log level"):
        configure_logs(level="chatty")
