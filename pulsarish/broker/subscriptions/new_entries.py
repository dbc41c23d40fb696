"""Entries that a log just confirmed, decoded once for all subscriptions that wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsarish.broker.dispatchers.factory import shared_ready
from pulsarish.wire.entry import message_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsarish.broker.dispatchers.reads import Ready
    from pulsarish.managed_ledger.log_reader import LogEntry
    from pulsarish.managed_ledger.readable_log import ReadableLog

__all__ = ["NewEntries"]


class NewEntries:
    """Consecutive entries of one ledger.

    Args:
        is_whole: a subscription that gets them need not look for more.
    """

    __slots__ = ("_entries", "_hashed", "_may_have_own_times", "_plain", "is_whole")

    def __init__(self, log: ReadableLog, entries: Sequence[LogEntry], *, is_whole: bool) -> None:
        self.is_whole = is_whole
        self._entries = entries
        self._may_have_own_times = log.has_own_times(entries)
        self._plain: list[Ready] | None = None
        self._hashed: list[Ready] | None = None

    def ready(self, *, hashes_keys: bool) -> list[Ready]:
        """Return them as entries for a dispatcher; [] when each subscription has to read them.

        Raises ``ChecksumError``.

        Args:
            hashes_keys: with the hash of each entry's key, for key-shared subscriptions.
        """
        known = self._hashed if hashes_keys else self._plain
        if known is None:
            # When an entry with times of its own is delivered depends on the subscription.
            known = (
                []
                if self._may_have_own_times
                and any(any(message_times(entry.payload)[1:]) for entry in self._entries)
                else [shared_ready(entry, hashes_keys=hashes_keys) for entry in self._entries]
            )
            if hashes_keys:
                self._hashed = known
            else:
                self._plain = known
        return known
