"""The core of unanswered seeks, and of redeliveries of everything in order, which count as seeks to
the first unacknowledged message: entries that arrive in the meantime are from before them, unless
the seeks are refused.

No lock: it runs in the loop only.
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
        self._dropped: list[EntryKey] = []
        self._late = 0

    @property
    def is_under_way(self) -> bool:
        return self._under_way > 0

    def on_request(self) -> None:
        self._under_way += 1

    def on_dropped(self, entries: Iterable[Entry]) -> None:
        """Note entries that were dropped because of a seek."""
        self._dropped += [(entry.ledger_id, entry.entry_id) for entry in entries]

    def on_answer(self, *, is_current: bool, is_done: bool) -> list[EntryKey]:
        """Note an answer.

        Returns the entries to request again, which were dropped because of seeks that were refused.

        Args:
            is_current: the seek was requested on the present subscription.
            is_done: the seek was not refused.
        """
        if is_done:
            self._dropped.clear()
        if not is_current:
            return []
        self._under_way -= 1
        if self._under_way:
            return []
        dropped, self._dropped = self._dropped, []
        return dropped

    @property
    def late_count(self) -> int:
        """How many seeks were answered, or knew their position, only after the subscription on
        which they were requested.
        """
        return self._late

    def on_late(self) -> None:
        self._late += 1

    def on_subscribed(self) -> None:
        """Forget seeks at an earlier broker: they drop nothing that comes from this one."""
        self._under_way = 0
        self._dropped.clear()
