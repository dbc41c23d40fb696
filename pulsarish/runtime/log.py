"""Structured logs on the standard library's ``logging``.

An event is a short constant phrase; what varies travels in fields. Text form (``key=value``, one line) is for people, JSON form for
machines; both go to standard error. A disabled level costs one comparison. Nothing on the path of a single entry may log.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Literal, TextIO

__all__ = ["LogForm", "Logger", "configure_logs", "flush_logs", "get_logger"]

LogForm = Literal["text", "json"]

_ROOT = "pulsarish"
_FIELDS = "pulsarish_fields"
# A value in a text line is cut here: a log line must not carry a payload by accident.
_VALUE_CHARS_MAX = 1_000


class Logger:
    """Writes events with fields under one name. Made by ``get_logger``."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, /, **fields: object) -> None:
        self._log(logging.DEBUG, event, None, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._log(logging.INFO, event, None, fields)

    def warning(self, event: str, /, *, exception: BaseException | None = None, **fields: object) -> None:
        self._log(logging.WARNING, event, exception, fields)

    def error(self, event: str, /, *, exception: BaseException | None = None, **fields: object) -> None:
        """With ``exception`` its traceback is written too."""
        self._log(logging.ERROR, event, exception, fields)

    def _log(self, level: int, event: str, exception: BaseException | None, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            # The event goes in as an argument, so that a per cent sign in it is never taken for a format.
            self._logger.log(level, "%s", event, exc_info=exception, extra={_FIELDS: fields})


class _TextForm(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = getattr(record, _FIELDS, {})
        line = " ".join(
            [_stamp(record), f"{record.levelname:<7}", record.name.removeprefix(_ROOT + "."), record.getMessage()]
            + [f"{key}={_text(value)}" for key, value in fields.items()]
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _JsonForm(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        for key, value in getattr(record, _FIELDS, {}).items():
            # A field never hides the four names above.
            line[f"{key}_" if key in line else key] = value
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _stamp(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _text(value: object) -> str:
    text = str(value)
    if len(text) > _VALUE_CHARS_MAX:
        text = text[:_VALUE_CHARS_MAX] + "..."
    if text == "" or any(character in ' "=' or not character.isprintable() for character in text):
        return json.dumps(text, ensure_ascii=False)
    return text


def get_logger(name: str) -> Logger:
    """A logger below ``pulsarish``; ``name`` is dotted, for example ``bookie.journal``."""
    return Logger(logging.getLogger(f"{_ROOT}.{name}"))


def configure_logs(*, level: str = "info", form: LogForm = "text", stream: TextIO | None = None) -> None:
    """Send all events of ``level`` (debug, info, warning, error) and above to ``stream`` (standard error when none is given).

    Raises ``ValueError`` for an unknown level. Calling it again replaces the earlier setting.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"unknown log level {level!r}: use debug, info, warning or error")
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_JsonForm() if form == "json" else _TextForm())
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.setLevel(number)
    root.propagate = False


def flush_logs() -> None:
    """Push out what the handlers hold: for the moment before the process ends without cleaning up."""
    for handler in logging.getLogger(_ROOT).handlers or logging.getLogger().handlers:
        handler.flush()
