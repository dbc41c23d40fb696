"""What a process keeps of its topics' logs in memory: the newest entries, and what was read from
bookies.
"""

from __future__ import annotations

from pulsarish.managed_ledger.read_cache import ReadCache
from pulsarish.managed_ledger.tail_cache import TailCache

__all__ = ["EntryCaches"]


class EntryCaches:
    """The caches of a process, each with its limit in bytes; 0 caches nothing."""

    def __init__(self, tail_bytes: int, read_bytes: int) -> None:
        self.tail = TailCache(tail_bytes)
        self.reads = ReadCache(read_bytes)
        self.ahead_bytes = 0
        """Bytes that may come of requests ahead of their readers."""

    @property
    def ahead_bytes_max(self) -> int:
        """The most that one request ahead of a reader may bring.

        It and the next one have room in the part of the read cache that is for what is read once,
        whatever the rest is used for.
        """
        return self.reads.small_limit_bytes // 2

    def has_ahead_room(self, size_bytes: int) -> bool:
        """Return whether that part has room for such a request, beside those of other topics."""
        return self.ahead_bytes + size_bytes <= self.reads.small_limit_bytes

    def forget(self, ledger_id: int) -> None:
        """Drop a ledger, because it was deleted or its topic left this process."""
        self.tail.forget(ledger_id)
        self.reads.forget(ledger_id)
