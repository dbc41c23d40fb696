"""The core of seeks that are not answered yet: what comes meanwhile is from before them, unless they are refused.

No lock: all of it belongs to the loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from pulsarish.client.consumer.redelivery import EntryKey
from pulsarish.client.messages.message import Entry

__all__ = ["SeekTracker"]


class SeekTracker:
    """The seeks of one consumer."""

    def __init__(self) -> None:
        self._under_way = 0
        self._passed: list[EntryKey] = []
        self._late = 0

    @property
    def is_under_way(self) -> bool:
        return self._under_way > 0

    def began(self) -> None:
        self._under_way += 1

    def passed(self, entries: Iterable[Entry]) -> None:
        """They came while a seek was under way and were dropped."""
        self._passed += [(entry.ledger_id, entry.entry_id) for entry in entries]

    def answered(self, *, of_now: bool, done: bool) -> list[EntryKey]:
        """Answers what is to be asked for again, as it was dropped because of seeks that were refused.

        Args:
            of_now: it was asked of the subscription that there is now.
            done: it was not refused.
        """
        if done:
            self._passed.clear()
        if not of_now:
            return []
        self._under_way -= 1
        if self._under_way:
            return []
        passed, self._passed = self._passed, []
        return passed

    @property
    def late_count(self) -> int:
        """How many had their answer, or knew their place, only after the subscription that they were asked of."""
        return self._late

    def came_late(self) -> None:
        self._late += 1

    def subscribed_anew(self) -> None:
        """What an earlier broker was asked for drops nothing that comes from this one."""
        self._under_way = 0
        self._passed.clear()
