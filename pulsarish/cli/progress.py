"""The progress of long work: a line on the terminal, after the first second. Without a terminal at
stderr nothing is written, or a line now and then where that is asked for.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

import click

__all__ = ["Progress"]

_FIRST_SECONDS: Final = 1.0
_EVERY_SECONDS: Final = 0.2
_MEASURE_SECONDS: Final = 2.0
_LINE_SECONDS: Final = 30.0
_LINE_PERCENT: Final = 10


class Progress:
    """``with Progress("creating partitions", total=5000) as progress: ... progress.done(500)``.

    Args:
        total: without one it shows the elapsed time, also while the work itself blocks.
        measure: returns how many are done in all; called from time to time on a thread of its own,
            for work that cannot report it.
        in_logs: without a terminal, write a line every 30 seconds and for every 10 percent.
    """

    def __init__(
        self,
        label: str,
        *,
        total: int | None = None,
        measure: Callable[[], int] | None = None,
        in_logs: bool = False,
    ) -> None:
        self._label = label
        self._total = total
        self._measure = measure
        self._count = 0
        self._lined_at = 0.0
        self._lined_percent = 0
        self._shown = ""
        self._started = time.monotonic()
        self._ended = threading.Event()
        self._thread = (
            threading.Thread(target=self._draw, name="progress", daemon=True)
            if sys.stderr.isatty()
            else threading.Thread(target=self._log, name="progress", daemon=True)
            if in_logs
            else None
        )

    def __enter__(self) -> Progress:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            if self._shown:
                click.echo("\r" + " " * len(self._shown) + "\r", err=True, nl=False)

    def done(self, count: int, *, total: int | None = None) -> None:
        """Set how many are done in all, and how many there are, if that has changed."""
        self._count = count
        if total is not None:
            self._total = total

    def show(self, label: str) -> None:
        """Set what is done now, with how much of it."""
        self._label = label

    def line(self, seconds: float) -> str:
        """Return the line to show after this time."""
        if self._total is None:
            return f"{self._label}  {seconds:.0f} s"
        percent = self._percent()
        return f"{self._label}  {self._count:,} of {self._total:,} ({percent} %)  {seconds:.0f} s"

    def line_due(self, seconds: float) -> str:
        """Return the line to write after this time without a terminal; empty: none is due."""
        percent = self._percent()
        if (
            seconds - self._lined_at < _LINE_SECONDS
            and percent // _LINE_PERCENT <= self._lined_percent // _LINE_PERCENT
        ):
            return ""
        self._lined_at, self._lined_percent = seconds, percent
        return self.line(seconds)

    def _percent(self) -> int:
        if self._total is None:
            return 0
        return 100 * self._count // self._total if self._total else 100

    def _log(self) -> None:
        while not self._ended.wait(_MEASURE_SECONDS):
            if text := self.line_due(time.monotonic() - self._started):
                click.echo(text, err=True)

    def _draw(self) -> None:
        if self._ended.wait(_FIRST_SECONDS):
            return
        while True:
            if self._measure is not None:
                self._count = self._measure()
            text = self.line(time.monotonic() - self._started)
            click.echo("\r" + text.ljust(len(self._shown)), err=True, nl=False)
            self._shown = text
            if self._ended.wait(_EVERY_SECONDS if self._measure is None else _MEASURE_SECONDS):
                return
