"""Points in time and properties as people write them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import click

from pulsarish.model.units import parse_duration

__all__ = ["FiniteRange", "duration", "properties", "time_ms"]


class FiniteRange(click.FloatRange):
    """A number within bounds. Infinity is refused, and nan, which no bound refuses."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def time_ms(text: str) -> int:
    """Return milliseconds since the epoch, from milliseconds, an ISO date and time in this
    machine's zone, or an age (``2h``).

    Raises ``click.BadParameter`` saying so.
    """
    if text.isdecimal() and len(text) > 10:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        pass
    try:
        return int(time.time() * 1000) - 1000 * parse_duration(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} must be a time like 2026-11-21T08:00, an age like 2h, or milliseconds"
        ) from None


def duration(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> timedelta | None:
    """Return the duration in an option, such as ``90s``; ``None`` without one."""
    if text is None:
        return None
    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def properties(
    context: click.Context, parameter: click.Parameter, pairs: Iterable[str]
) -> dict[str, str]:
    """Return a record from the values of a repeatable option ``NAME=VALUE``."""
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{pair!r} must look like name=value")
        found[name] = value
    return found
