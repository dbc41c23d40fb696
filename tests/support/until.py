"""Waiting for what other processes do: looks again and again until a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["until"]

_LOOK_SECONDS = 0.05


def until(what: str | Callable[[], str], done: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return once ``done`` holds. Fails with ``what`` after so long."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, (
            f"still not: {what if isinstance(what, str) else what()}"
        )
        time.sleep(_LOOK_SECONDS)
