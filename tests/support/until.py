"""Waiting for what other processes do: looks again and again until a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["stands_still", "until"]

_LOOK_SECONDS = 0.05


def until(what: str | Callable[[], str], done: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return once ``done`` holds. Fails with ``what`` after so long."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, (
            f"still not: {what if isinstance(what, str) else what()}"
        )
        time.sleep(_LOOK_SECONDS)


def stands_still(pid: int) -> bool:
    """Whether all threads of a process are stopped."""
    states = [
        line.split()[1]
        for status in Path(f"/proc/{pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
        if line.startswith("State:")
    ]
    return set(states) == {"T"}
