"""Estimate how many messages entries hold. Only reading an entry shows its number. The core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["Sample", "looks_at_one", "sample"]

_LOOKS: Final = 16
"""Entries that are read one by one before the steps grow.

Every read is a request to a broker, which returns the whole entry. Where entries are whole batches,
a few entries make a great difference; one by one they are counted exactly.
"""
_LOOKS_LEAST: Final = 4


class Sample:
    """The result of reading some entries: how many messages all entries up to a position hold."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, int]] = [(0, 0)]

    def add(self, entries: int, each: int) -> None:
        """Record that each of the next ``entries`` entries holds ``each`` messages, as one of them
        shows.
        """
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
        """Return how many entries, the last one in part, hold ``messages``.

        Entries that were not read count like the others.
        """
        for (entries, counted), (entries_next, counted_next) in zip(
            self._seen, self._seen[1:], strict=False
        ):
            if counted_next > messages:
                return entries + (messages - counted) * (entries_next - entries) / (
                    counted_next - counted
                )
        return self.entries + (messages - self.messages) / self.per_entry


def looks_at_one(topics: int) -> int:
    """Return how many entries of each topic are read one by one, for this number of topics."""
    return max(_LOOKS_LEAST, _LOOKS // topics)


def sample(
    entries: int, messages_max: float, looks: int, before: float, messages_in: Callable[[int], int]
) -> Sample:
    """Read some of the first of ``entries`` until they hold ``messages_max``.

    Args:
        looks: after this number of reads the steps grow, each twice as long as the one before. An
            entry's number counts for its whole step.
        before: messages in an entry at the last estimate. It makes the steps as long as ``looks``
            of them need; 0: unknown.
        messages_in: returns the messages of an entry, by its number from 0.
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
