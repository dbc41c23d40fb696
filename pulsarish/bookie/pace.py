"""How fast a checkpoint goes: evenly over the time it has, faster only when the write cache fills meanwhile.

A checkpoint that runs at full speed takes the core and the disk from the adds of a tenth of a second, and all bookies of a ledger begin
theirs at about the same entry. Adds are served before and after, never behind; the room for what arrives while a checkpoint runs is the
other half of the write cache.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PAUSE_SECONDS_MAX", "Pace"]

PAUSE_SECONDS_MAX: Final = 0.05
"""The longest pause at once, so that a pace looks up soon when the cache fills or the bookie stops."""

_FILLED_SHARE_MAX: Final = 0.5


class Pace:
    """The pace of one checkpoint.

    Args:
        steps: how much there is to do, in any unit.
        seconds: the time it may take.
    """

    def __init__(self, steps: int, seconds: float) -> None:
        self._steps = max(1, steps)
        self._seconds = seconds
        self._done = 0

    def did(self, steps: int) -> None:
        """So much more is done."""
        self._done += steps
        self.check()

    def pause_seconds(self, elapsed_seconds: float, filled_share: float) -> float:
        """How long to pause now; 0 when it is late.

        Args:
            elapsed_seconds: since the checkpoint began.
            filled_share: of the room for new adds, 0 to 1. The checkpoint is through before half of it is taken.
        """
        done_share = self._done / self._steps
        if filled_share >= done_share * _FILLED_SHARE_MAX:
            return 0.0
        return min(PAUSE_SECONDS_MAX, max(0.0, done_share * self._seconds - elapsed_seconds))

    def check(self) -> None:
        assert 0 <= self._done <= self._steps, f"{self._done} of {self._steps} steps are done"
