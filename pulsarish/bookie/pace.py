"""The pace of a checkpoint: even over the time that it has, faster only when the write cache fills
in the meantime.

At full speed a checkpoint takes the core and the disk away from the adds of a tenth of a second,
and all bookies of a ledger begin theirs at about the same entry. With pauses, adds are served
between the slices. The other half of the write cache has room for what arrives during a checkpoint.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PAUSE_SECONDS_MAX", "Pace"]

PAUSE_SECONDS_MAX: Final = 0.05
"""The longest single pause, so that a checkpoint soon notices when the cache fills or the bookie
stops.
"""

_FILLED_SHARE_MAX: Final = 0.5


class Pace:
    """The pace of one checkpoint.

    Args:
        steps: the amount of work, in any unit.
        seconds: the time that it may take.
    """

    def __init__(self, steps: int, seconds: float) -> None:
        self._steps = max(1, steps)
        self._seconds = seconds
        self._done = 0

    def did(self, steps: int) -> None:
        """Note that this number of steps is done."""
        self._done += steps
        self.check()

    def pause_seconds(self, elapsed_seconds: float, filled_share: float) -> float:
        """Return how long to pause now; 0 when the checkpoint is late.

        Args:
            elapsed_seconds: since the checkpoint began.
            filled_share: of the room for new adds, 0 to 1. The checkpoint ends before half of it is
                taken.
        """
        done_share = self._done / self._steps
        if filled_share >= done_share * _FILLED_SHARE_MAX:
            return 0.0
        return min(PAUSE_SECONDS_MAX, max(0.0, done_share * self._seconds - elapsed_seconds))

    def check(self) -> None:
        assert 0 <= self._done <= self._steps, f"{self._done} of {self._steps} steps are done"
