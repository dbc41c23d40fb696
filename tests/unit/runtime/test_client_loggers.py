"""Where the log of a program's clients goes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import pulsarish
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.client_loggers import check_logger, use_logger
from pulsarish.runtime.log import get_logger


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    root = logging.getLogger("pulsarish")
    before = (root.handlers[:], root.level, root.propagate)
    yield
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def _write() -> None:
    log = get_logger("client.test")
    log.debug("a detail", topic="t")
    log.info("a fact", topic="t")
    log.warning("a doubt", topic="t")


def test_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    use_logger(pulsarish.ConsoleLogger())
    _write()
    out = capsys.readouterr()
    assert ("a detail" in out.out, "a fact topic=t" in out.out, out.err) == (False, True, "")
    use_logger(pulsarish.ConsoleLogger(pulsarish.LoggerLevel.Error))
    _write()
    assert capsys.readouterr().out == ""


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "client.log"
    for _ in range(2):
        use_logger(pulsarish.FileLogger(pulsarish.LoggerLevel.Debug, str(file)))
        _write()
    assert [line.split(" ", 1)[1].split()[0] for line in file.read_text().splitlines()] == [
        "DEBUG",
        "INFO",
        "WARNING",
    ] * 2
    with pytest.raises(InvalidArgument, match="which cannot be written: Is a directory"):
        use_logger(pulsarish.FileLogger(pulsarish.LoggerLevel.Debug, str(tmp_path)))


def test_a_logger_of_the_program(caplog: pytest.LogCaptureFixture) -> None:
    own = logging.getLogger("program")
    with caplog.at_level(logging.WARNING, "program"):
        use_logger(own)
        _write()
        assert [record.getMessage() for record in caplog.records] == ["a doubt topic=t"]
        caplog.set_level(logging.DEBUG, "program")  # later than the client got the logger
        _write()
    assert [record.levelname for record in caplog.records[1:]] == ["DEBUG", "INFO", "WARNING"]
    use_logger(logging.getLogger("pulsarish.client"))  # would be its own target


def test_what_is_no_logger() -> None:
    with pytest.raises(ValueError, match=r"logger is of type int: pass a logging\.Logger"):
        check_logger(5)
    with pytest.raises(ValueError, match=r"log_level is 1: pass a pulsarish\.LoggerLevel"):
        pulsarish.ConsoleLogger(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="log_file is 5"):
        pulsarish.FileLogger(pulsarish.LoggerLevel.Info, 5)  # type: ignore[arg-type]
