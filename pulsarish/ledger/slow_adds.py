"""The bookies whose adds take far longer than those of the others that this process writes to.

No I/O, no clock, no randomness: the caller brings the time, in seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final, NamedTuple

from pulsarish.ledger.options import LedgerOptions

__all__ = ["AddTimes", "SlowAdd", "SlowAdds"]

_OTHERS_MIN: Final = 2
"""Other bookies that are needed for a comparison: of two bookies either may be the odd one."""


class AddTimes(NamedTuple):
    """How long adds to one bookie took between two looks."""

    mean_seconds: float | None  # of those that were answered; None: none was
    oldest_seconds: float  # the age of the oldest one without an answer


class SlowAdd(NamedTuple):
    """A bookie that was slow for the whole period, and how slow the middle one of the others is."""

    member: str
    took_seconds: float
    others_seconds: float


class _Spell:
    """Since when a bookie is slow at every look, and when it was last looked at."""

    __slots__ = ("last", "since")

    def __init__(self, now: float) -> None:
        self.since = self.last = now


class SlowAdds:
    def __init__(self, options: LedgerOptions) -> None:
        self._ratio = options.slow_adds_ratio
        self._min_seconds = options.slow_adds_min_ms / 1000
        self._period_seconds = options.slow_adds_period_ms / 1000
        self._spells: dict[str, _Spell] = {}

    @property
    def is_used(self) -> bool:
        return self._ratio > 0

    def look(self, times: Mapping[str, AddTimes], now: float) -> list[SlowAdd]:
        """Return the bookies that have been slow for the whole period, once for each period.

        Args:
            times: by bookie. One without adds is not there, and is judged by the looks before and
                after. What is not answered yet may prove that a bookie is slow, never the opposite.
        """
        means = {
            member: each.mean_seconds
            for member, each in times.items()
            if each.mean_seconds is not None
        }
        found: list[SlowAdd] = []
        for member, (mean, oldest) in times.items():
            others = [each for other, each in means.items() if other != member]
            if len(others) < _OTHERS_MIN:
                continue
            usual, took = median(others), max(mean or 0.0, oldest)
            if took < max(self._min_seconds, self._ratio * usual):
                if mean is not None:
                    self._spells.pop(member, None)
                continue
            spell = self._spells.get(member)
            if spell is None or now - spell.last > self._period_seconds:
                spell = self._spells[member] = _Spell(now)
            spell.last = now
            if now - spell.since >= self._period_seconds:
                del self._spells[member]
                found.append(SlowAdd(member, took, usual))
        return found

    def forget(self, member: str) -> None:
        """Drop what is known of a bookie that is gone."""
        self._spells.pop(member, None)

    def forget_all(self) -> None:
        """Begin again, because this process itself stood still."""
        self._spells.clear()
