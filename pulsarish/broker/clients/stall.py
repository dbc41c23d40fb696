"""How often a subscription that should move did not: the core of the watchdog and of the
simulator's invariant.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mark", "Stall"]

Mark = tuple[int, int]
"""A value that changes with everything that a subscription reads or delivers."""


@dataclass(slots=True)
class Stall:
    """Checks of one subscription without progress.

    Checks are counted, not time: a broker that was stopped, or whose event loop was late, does not
    count as stalled.
    """

    mark: Mark = (-1, -1)
    looks: int = 0
    since_ms: int = 0

    def moved(self, mark: Mark) -> bool:
        """Return whether anything was read or delivered since the last check."""
        return mark != self.mark

    def look(self, mark: Mark, now_ms: int, *, must_move: bool) -> int:
        """Check for progress.

        Return the number of consecutive checks without it, although it must move. ``now_ms``: the
        wall clock.
        """
        if must_move and not self.moved(mark):
            self.looks += 1
        else:
            self.mark, self.looks, self.since_ms = mark, 0, now_ms
        return self.looks

    def since(self, mark: Mark) -> int:
        """Return since when (wall clock) it has not moved although it must; 0: it moves, or has a
        reason to wait.
        """
        return 0 if self.moved(mark) or not self.looks else self.since_ms
