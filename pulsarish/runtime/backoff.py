"""Growing waits between attempts."""

from __future__ import annotations

import random

__all__ = ["Backoff"]


class Backoff:
    """Waits that double from ``first_seconds`` to ``most_seconds``.

    Args:
        jitter: shortens each wait by up to a fifth, so that many that wait spread out.
    """

    __slots__ = ("_first", "_jitter", "_most", "_next")

    def __init__(
        self, first_seconds: float, most_seconds: float, *, jitter: random.Random | None = None
    ) -> None:
        self._first = first_seconds
        self._most = most_seconds
        self._jitter = jitter
        self._next = first_seconds

    def next_seconds(self) -> float:
        """Return the wait before the next attempt. The one after that is twice as long."""
        wait = self._next
        self._next = min(self._most, wait * 2)
        return wait if self._jitter is None else wait * (1 - 0.2 * self._jitter.random())

    def reset(self) -> None:
        """Begin with the first wait again, after a success."""
        self._next = self._first
