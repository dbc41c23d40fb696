"""Where a program sends the log of its clients, with the classes of Apache Pulsar's Python client.

All clients of a process have one log, so the last client that was made with a logger decides.
"""

from __future__ import annotations

import logging
import sys
from enum import Enum, IntEnum
from typing import Final, TextIO

from pulsarish.model.errors import InvalidArgument, InvalidType
from pulsarish.runtime.log import configure_logs, forward_logs

__all__ = ["AnyLogger", "ConsoleLogger", "FileLogger", "LoggerLevel", "check_logger", "use_logger"]


class LoggerLevel(IntEnum):
    """The least level of the events that are written."""

    __str__ = Enum.__str__

    Debug = 0
    Info = 1
    Warn = 2
    Error = 3


_LEVELS: Final = {
    LoggerLevel.Debug: "debug",
    LoggerLevel.Info: "info",
    LoggerLevel.Warn: "warning",
    LoggerLevel.Error: "error",
}


def _check_level(level: object) -> LoggerLevel:
    if not isinstance(level, LoggerLevel):
        raise InvalidType(f"log_level is {level!r}: pass a pulsarish.LoggerLevel")
    return level


class ConsoleLogger:
    """Writes the log to standard output."""

    def __init__(self, log_level: LoggerLevel = LoggerLevel.Info) -> None:
        """Raises ``InvalidArgument``."""
        self.log_level = _check_level(log_level)


class FileLogger:
    """Appends the log to a file."""

    def __init__(self, log_level: LoggerLevel, log_file: str) -> None:
        """Raises ``InvalidArgument``."""
        self.log_level = _check_level(log_level)
        if not isinstance(log_file, str):
            raise InvalidType(f"log_file is {log_file!r}: pass the path of a file as a str")
        self.log_file = log_file


AnyLogger = logging.Logger | ConsoleLogger | FileLogger

_files: Final[dict[str, TextIO]] = {}
"""By path: a file stays open, since another thread may be writing to it."""


def check_logger(logger: object) -> None:
    """Raises ``InvalidType`` for what is not a logger."""
    if logger is not None and not isinstance(logger, AnyLogger):
        raise InvalidType(
            f"logger is of type {type(logger).__name__}: pass a logging.Logger, a "
            "pulsarish.ConsoleLogger or a pulsarish.FileLogger"
        )


def use_logger(logger: AnyLogger) -> None:
    """Send the log of this process's clients there.

    Raises ``InvalidArgument`` for a file that cannot be written.
    """
    if isinstance(logger, logging.Logger):
        forward_logs(logger)
    elif isinstance(logger, ConsoleLogger):
        configure_logs(level=_LEVELS[logger.log_level], stream=sys.stdout)
    else:
        configure_logs(level=_LEVELS[logger.log_level], stream=_opened(logger.log_file))


def _opened(path: str) -> TextIO:
    if path not in _files:
        try:
            _files[path] = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        except OSError as error:
            raise InvalidArgument(
                f"log_file is {path!r}, which cannot be written: {error.strerror}"
            ) from None
    return _files[path]
