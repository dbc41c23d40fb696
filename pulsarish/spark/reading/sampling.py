"""How many messages entries hold, of which only a look at each one tells: the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["Sample", "looks_at_one", "sample"]

_LOOKS: Final = 16
"""So many entries are looked at one by one before the steps grow; every look is a request to a broker, which answers the whole entry. Of
entries that are whole batches a few make a great difference, and as few are counted exactly by this."""
_LOOKS_LEAST: Final = 4


class Sample:
    """What looks along some entries showed: all up to a place, how many messages they hold."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, int]] = [(0, 0)]

    def add(self, entries: int, each: int) -> None:
        """The next so many entries hold ``each`` messages, as one of them shows."""
        before, counted = self._seen[-1]
        self._seen.append((before + entries, counted + entries * each))

    @property
    def entries(self) -> int:
        return self._seen[-1][0]

    @property
    def messages(self) -> int:
        return self._seen[-1][1]

    @property
    def per_entry(self) -> float:
        return self.messages / self.entries

    def entries_with(self, messages: float) -> float:
        """The first so many entries, and a part of the next, hold ``messages``; what was not looked at is taken to be as the rest."""
        for (entries, counted), (entries_next, counted_next) in zip(self._seen, self._seen[1:], strict=False):
            if counted_next > messages:
                return entries + (messages - counted) * (entries_next - entries) / (counted_next - counted)
        return self.entries + (messages - self.messages) / self.per_entry


def looks_at_one(topics: int) -> int:
    """How many entries of each topic are looked at, where there are so many topics."""
    return max(_LOOKS_LEAST, _LOOKS // topics)


def sample(entries: int, messages_max: float, looks: int, before: float, messages_in: Callable[[int], int]) -> Sample:
    """Look along the first of ``entries`` until they hold ``messages_max``.

    Args:
        looks: after so many the steps grow, each twice as long as the one before; what an entry shows counts for its whole step.
        before: messages in an entry as last seen, which makes the steps as long as ``looks`` of them need; 0: not known.
        messages_in: of an entry, by its number from 0.
    """
    found = Sample()
    looked, step = 0, max(1, int(messages_max / before / looks)) if before else 1
    while found.entries < entries and found.messages < messages_max:
        if looked >= looks:
            step *= 2
        step = min(step, entries - found.entries)
        found.add(step, max(1, messages_in(found.entries + step - 1)))
        looked += 1
    return found
