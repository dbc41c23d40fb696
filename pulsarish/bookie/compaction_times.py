"""When a round of garbage collection rewrites logs as major compaction does."""

from __future__ import annotations

from typing import Final

from pulsarish.bookie.config import BookieConfig
from pulsarish.runtime.seams import Clock

__all__ = ["CompactionTimes", "is_in_window"]

_DAY_MINUTES: Final = 24 * 60


class CompactionTimes:
    """The times of major compaction. The first is due an interval after the start."""

    def __init__(self, clock: Clock, config: BookieConfig) -> None:
        self._clock = clock
        self._config = config
        self._last = clock.monotonic()

    def threshold(self, *, is_forced: bool) -> float:
        """Return the share of live bytes below which this round rewrites a log.

        Args:
            is_forced: an operator asked for the round. It counts as major, whatever the time is.
        """
        config, now = self._config, self._clock.monotonic()
        is_major = is_forced or (
            now - self._last >= config.major_compaction_interval_seconds
            and is_in_window(config.major_compaction_window, self._clock.wall_ms())
        )
        if not is_major:
            return config.compaction_threshold
        self._last = now
        return max(config.compaction_threshold, config.major_compaction_threshold)


def is_in_window(window: str, wall_ms: int) -> bool:
    """Return whether a time lies in a window of the day such as ``22:00-06:00``, in UTC.

    An empty window is the whole day. The window ends before its second time.
    """
    if not window:
        return True
    first, last = (int(each[:2]) * 60 + int(each[3:]) for each in window.split("-"))
    length_minutes = (last - first) % _DAY_MINUTES or _DAY_MINUTES
    return (wall_ms // 60_000 - first) % _DAY_MINUTES < length_minutes
