"""Structured logs on the standard library's ``logging``.

An event is a short constant phrase. What varies is in fields: topic, ledger, entry, subscription,
bookie, broker. The text form is for people, JSON and logfmt are for machines; all go to standard
error. A disabled level costs one comparison. Code on the path of a single entry must not log. An
event that repeats is written a limited number of times in each window. The next written line of the
event carries the count of suppressed lines.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TextIO

from pulsarish.model.printable import printable, printable_json

__all__ = [
    "REPEATS_MAX",
    "LogForm",
    "Logger",
    "RepeatLimit",
    "configure_logs",
    "flush_logs",
    "forward_logs",
    "get_logger",
    "lines_by_level",
    "set_log_level",
]

LogForm = Literal["text", "json", "logfmt"]

REPEATS_MAX: Final = 50
"""Lines of one event of one component that are written in a window, unless configured otherwise."""

_ROOT = "pulsarish"
# A value in a text line is cut at this length: a log line must not carry a payload by accident.
_VALUE_CHARS_MAX = 1_000
_WINDOW_SECONDS: Final = 10.0
_EVENTS_MAX: Final = 1_000  # distinct events; they are constant phrases, so there are fewer
_lines_by_level = dict.fromkeys(("debug", "info", "warning", "error"), 0)


class Logger:
    """Writes events with fields under one name. Made by ``get_logger``."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    @property
    def writes_debug(self) -> bool:
        """Whether debug lines are written now."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, event: str, /, **fields: object) -> None:
        self._log(logging.DEBUG, event, None, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._log(logging.INFO, event, None, fields)

    def warning(
        self, event: str, /, *, exception: BaseException | None = None, **fields: object
    ) -> None:
        self._log(logging.WARNING, event, exception, fields)

    def error(
        self, event: str, /, *, exception: BaseException | None = None, **fields: object
    ) -> None:
        """Log an error. With ``exception``, its traceback is written too."""
        self._log(logging.ERROR, event, exception, fields)

    def _log(
        self, level: int, event: str, exception: BaseException | None, fields: dict[str, object]
    ) -> None:
        if self._logger.isEnabledFor(level):
            # Made here: the standard library would look up the caller's file and line, which no
            # form shows, and take twice the time.
            raised = (
                None if exception is None else (type(exception), exception, exception.__traceback__)
            )
            self._logger.handle(_Record(self._logger.name, level, event, fields, raised))


class _Record(logging.LogRecord):
    """One line: the event in ``msg``, its fields in ``fields``.

    Its message has both, for programs with their own handlers.
    """

    def __init__(
        self, name: str, level: int, event: str, fields: dict[str, object], raised: Any = None
    ) -> None:
        super().__init__(name, level, "", 0, event, (), raised)
        self.fields = fields

    def getMessage(self) -> str:  # noqa: N802 - the standard library's name
        return _line([str(self.msg)], self.fields)


_Event = tuple[str, int, str]
"""Component, level and phrase."""


class RepeatLimit:
    """Decides which lines are written: the first ``repeats_max`` of an event in each window.

    0: all.
    """

    __slots__ = ("_repeats_max", "_windows")

    def __init__(self, repeats_max: int) -> None:
        self._repeats_max = repeats_max
        # in the order of their start: the start, and the lines since
        self._windows: dict[_Event, tuple[float, int]] = {}

    def admit(self, event: _Event, now: float) -> int | None:
        """Return ``None`` to suppress this line.

        Otherwise return the count of lines suppressed since the event was last written.
        """
        if not self._repeats_max:
            return 0
        window = self._windows.get(event)
        if window is not None and now - window[0] < _WINDOW_SECONDS:
            self._windows[event] = (window[0], window[1] + 1)
            return 0 if window[1] < self._repeats_max else None
        self._windows.pop(event, None)
        if len(self._windows) >= _EVENTS_MAX:
            del self._windows[next(iter(self._windows))]
        self._windows[event] = (now, 1)
        return 0 if window is None else max(0, window[1] - self._repeats_max)

    def over(self, now: float) -> list[tuple[_Event, int]]:
        """Forget the windows that have ended.

        Return the events with suppressed lines, and their counts.
        """
        ended: list[tuple[_Event, int]] = []
        while self._windows:
            event, (began, count) = next(iter(self._windows.items()))
            if now - began < _WINDOW_SECONDS:
                break
            del self._windows[event]
            if count > self._repeats_max:
                ended.append((event, count - self._repeats_max))
        return ended


class _LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes lines within the limit.

    Has no timer: it reports suppressed lines with the next line of any kind, or at the end of the
    process.
    """

    def __init__(self, stream: TextIO, repeats_max: int) -> None:
        super().__init__(stream)
        self._limit = RepeatLimit(repeats_max)

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        _lines_by_level[level] = _lines_by_level.get(level, 0) + 1
        now = time.monotonic()
        event = (record.name, record.levelno, str(record.msg))
        held_back = self._limit.admit(event, now)
        self.log_held_back(now)
        if held_back is None:
            return
        if held_back and isinstance(record, _Record):
            record.fields = {**record.fields, "held_back": held_back}
        super().emit(record)

    def log_held_back(self, now: float) -> None:
        """Report the suppressed lines of windows that are over."""
        for (name, level, phrase), count in self._limit.over(now):
            super().emit(_Record(name, level, phrase, {"held_back": count}))


class _TextForm(logging.Formatter):
    """Lines for people; ``names`` of the process stand before the component."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self._names = tuple(names)

    def format(self, record: logging.LogRecord) -> str:
        line = " ".join(
            [
                _stamp(record),
                f"{record.levelname:<7}",
                *self._names,
                record.name.removeprefix(_ROOT + "."),
                record.getMessage(),
            ]
        )
        if record.exc_info:
            line += "\n" + printable(self.formatException(record.exc_info), keep="\n")
        return line


class _MachineForm(logging.Formatter):
    """JSON or logfmt; ``identity`` names the process on every line."""

    def __init__(self, identity: Mapping[str, str], *, as_json: bool) -> None:
        super().__init__()
        self._identity = dict(identity)
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _stamp(record),
            "level": record.levelname.lower(),
            "component": record.name.removeprefix(_ROOT + "."),
            "event": str(record.msg),
            **self._identity,
        }
        for key, value in record.fields.items() if isinstance(record, _Record) else ():
            # A field never hides the names above.
            line[f"{key}_" if key in line else key] = value
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        if self._as_json:
            return json.dumps(line, default=str)
        return _line([], line)


def _line(words: list[str], fields: Mapping[str, object]) -> str:
    return " ".join([*words, *(f"{key}={_text(value)}" for key, value in fields.items())])


def _stamp(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _text(value: object) -> str:
    text = str(value)
    if len(text) > _VALUE_CHARS_MAX:
        text = text[:_VALUE_CHARS_MAX] + "..."
    if text == "" or any(character in ' "=' or not character.isprintable() for character in text):
        return printable_json(json.dumps(text, ensure_ascii=False))
    return text


def get_logger(name: str) -> Logger:
    """Return a logger below ``pulsarish``. ``name`` is dotted, for example ``bookie.journal``."""
    return Logger(logging.getLogger(f"{_ROOT}.{name}"))


def configure_logs(
    *,
    level: str = "info",
    form: LogForm = "text",
    stream: TextIO | None = None,
    identity: Mapping[str, str] | None = None,
    is_one_of_several: bool = False,
    repeats_max: int = REPEATS_MAX,
) -> None:
    """Write all events of ``level`` (debug, info, warning, error) and above to ``stream`` (default:
    standard error).

    Args:
        identity: put on every line of the forms for machines, such as ``{"bookie": "b1"}``.
        is_one_of_several: other processes write to the same place: lines of the text form carry the
            identity, too.
        repeats_max: lines of one event in ten seconds; 0: no limit.

    Raises ``ValueError`` for an unknown level. A second call replaces the earlier setting.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"unknown log level {level!r}: use debug, info, warning or error")
    handler = _LimitedHandler(stream if stream is not None else sys.stderr, repeats_max)
    handler.setFormatter(
        _TextForm((identity or {}).values() if is_one_of_several else ())
        if form == "text"
        else _MachineForm(identity or {}, as_json=form == "json")
    )
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.setLevel(number)
    root.propagate = False


class _Forwarding(logging.Handler):
    """Hands every record to another logger, which decides by its own level."""

    def __init__(self, target: logging.Logger) -> None:
        super().__init__()
        self._target = target

    def emit(self, record: logging.LogRecord) -> None:
        if self._target.isEnabledFor(record.levelno):
            self._target.handle(record)


def forward_logs(target: logging.Logger) -> None:
    """Hand all events to another logger of the program, which decides by its level at that time.

    A logger below ``pulsarish`` gets its own events already, so nothing changes for it.
    """
    if target.name == _ROOT or target.name.startswith(f"{_ROOT}."):
        return
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [_Forwarding(target)]
    root.setLevel(logging.DEBUG)
    root.propagate = False


def set_log_level(level: str) -> None:
    """Write events of ``level`` and above from now on, wherever they go.

    ``level``: debug, info, warning or error.
    """
    logging.getLogger(_ROOT).setLevel(level.upper())


def lines_by_level() -> Mapping[str, float]:
    """Return the events logged so far by level, including suppressed ones."""
    return dict(_lines_by_level)


def flush_logs() -> None:
    """Flush the handlers, before the process ends without cleaning up."""
    for handler in logging.getLogger(_ROOT).handlers or logging.getLogger().handlers:
        if isinstance(handler, _LimitedHandler):
            handler.log_held_back(float("inf"))
        handler.flush()
