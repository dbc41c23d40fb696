"""A file that is read again when it changes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from pulsarish.model.errors import ConfigError

__all__ = ["FILE_BYTES_MAX", "WatchedFile", "check_private", "read_bounded"]

T = TypeVar("T")

FILE_BYTES_MAX: Final = 16 << 20
_CHECK_INTERVAL_MS: Final = 1_000

_Mark = tuple[int, int, int]
"""Time of modification in ns, size in bytes, inode. A replaced file has another inode."""


def read_bounded(option: str, path: str) -> bytes:
    """Return the content of a file of at most ``FILE_BYTES_MAX`` bytes.

    Raises ``ConfigError`` that names the option and the file.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{option}: the file {path} cannot be read: {reason}; give a file that this process "
            "may read"
        ) from None
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{option}: the file {path} has more than {FILE_BYTES_MAX >> 20} MiB")
    return content


def check_private(option: str, path: str) -> None:
    """Raise ``ConfigError`` for a file that other users can read."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ConfigError(f"{option}: {path} cannot be read: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"{option}: {path} can be read by other users: chmod 600 {path}")


class WatchedFile(Generic[T]):
    """The parsed content of a file.

    A change is looked for at most once in a second. A file that becomes unreadable or wrong leaves
    the content before it in force, and is reported once.

    Args:
        option: the option that names the file, for errors.
        parse: makes the content from the file's bytes and its path, or raises ``ConfigError``.
        on_problem: gets a sentence when a changed file cannot be taken.

    Raises ``ConfigError`` when the file is wrong at the start.
    """

    def __init__(
        self,
        option: str,
        path: str,
        parse: Callable[[bytes, str], T],
        wall_ms: Callable[[], int],
        on_problem: Callable[[str], None],
    ) -> None:
        self._option = option
        self._path = path
        self._parse = parse
        self._wall_ms = wall_ms
        self._on_problem = on_problem
        self._checked_ms = wall_ms()
        # The mark is taken before the content: a change in between is found at the next check.
        self._mark = self._read_mark()
        self._content = parse(read_bounded(option, path), path)
        self._changes = 0

    def read(self) -> T:
        """Return the content, from the file again if that has changed."""
        now = self._wall_ms()
        # Either way: a clock that was set back must not stop the checks.
        if abs(now - self._checked_ms) >= _CHECK_INTERVAL_MS:
            self._checked_ms = now
            self._check()
        return self._content

    def count_changes(self) -> int:
        """Return how often the content was taken again since the start."""
        self.read()
        return self._changes

    def _check(self) -> None:
        mark = self._read_mark()
        if mark == self._mark:
            return
        self._mark = mark
        try:
            self._content = self._parse(read_bounded(self._option, self._path), self._path)
        except ConfigError as error:
            self._on_problem(f"{error}. What was read before stays in force")
        else:
            self._changes += 1

    def _read_mark(self) -> _Mark | None:
        try:
            found = os.stat(self._path)
        except (OSError, ValueError):
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
