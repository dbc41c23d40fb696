"""The newest entries of all topics of a process, within one limit in bytes.

The entries inserted first are dropped first.

Filled as entries are confirmed, so that consumers at the tail never read from a bookie. Payloads
are shared with the writer, not copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

__all__ = ["ENTRY_OVERHEAD_BYTES", "TailCache"]

# the cost of an entry besides its payload: its object, its key, its place in the table
ENTRY_OVERHEAD_BYTES: Final = 120
_STALE_BLOCKS_MAX: Final = 1_000


class _Tail:
    """The cached entries of one ledger: consecutive, up to the last one inserted."""

    __slots__ = ("blocks", "first", "payloads", "size_bytes")

    def __init__(self, first: int) -> None:
        self.first = first
        self.payloads: dict[int, bytes] = {}
        self.size_bytes = 0
        self.blocks = 0


class TailCache:
    """The cache, shared by the topics of a process. ``limit_bytes`` 0 caches nothing."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self.evicted = 0
        self._tails: dict[int, _Tail] = {}
        # in the order of insertion: tail, ledger, entries, bytes
        self._blocks: deque[tuple[_Tail, int, int, int]] = deque()
        self._live_blocks = 0

    def insert(self, ledger_id: int, first_entry: int, payloads: Sequence[bytes]) -> None:
        """Add consecutive entries that were just confirmed.

        They must follow those inserted before for the same ledger.
        """
        if self.limit_bytes == 0:
            return
        tail = self._tails.get(ledger_id)
        if tail is None:
            tail = self._tails[ledger_id] = _Tail(first_entry)
        assert first_entry == tail.first + len(tail.payloads), "cached entries follow each other"
        size = sum(map(len, payloads)) + ENTRY_OVERHEAD_BYTES * len(payloads)
        tail.payloads.update(
            zip(range(first_entry, first_entry + len(payloads)), payloads, strict=True)
        )
        tail.size_bytes += size
        tail.blocks += 1
        self._blocks.append((tail, ledger_id, len(payloads), size))
        self._live_blocks += 1
        self.size_bytes += size
        while self.size_bytes > self.limit_bytes:
            self._evict_oldest()

    def _evict_oldest(self) -> None:
        tail, ledger_id, count, size = self._blocks.popleft()
        if self._tails.get(ledger_id) is not tail:
            return  # dropped as a whole before
        for entry_id in range(tail.first, tail.first + count):
            del tail.payloads[entry_id]
        tail.first += count
        tail.size_bytes -= size
        tail.blocks -= 1
        self._live_blocks -= 1
        self.size_bytes -= size
        self.evicted += count
        if not tail.payloads:
            del self._tails[ledger_id]

    def first_entry(self, ledger_id: int) -> int | None:
        """Return from which entry on a ledger is here, up to its end; ``None``: nothing is."""
        tail = self._tails.get(ledger_id)
        return None if tail is None else tail.first

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, max_bytes: int
    ) -> list[bytes]:
        """Return consecutive payloads from ``first_entry`` on, up to ``last_entry`` and
        ``max_bytes`` but at least one; [] on a miss.
        """
        tail = self._tails.get(ledger_id)
        if tail is None or first_entry < tail.first or first_entry not in tail.payloads:
            self.misses += 1
            return []
        found: list[bytes] = []
        size = 0
        payloads = tail.payloads
        for entry_id in range(first_entry, last_entry + 1):
            payload = payloads.get(entry_id)
            if payload is None:
                break
            size += len(payload)
            if size > max_bytes and found:
                break
            found.append(payload)
        self.hits += len(found)
        return found

    def forget(self, ledger_id: int) -> None:
        """Drop a ledger, because it was deleted or its topic left this process."""
        tail = self._tails.pop(ledger_id, None)
        if tail is None:
            return
        self.size_bytes -= tail.size_bytes
        self._live_blocks -= tail.blocks
        tail.payloads = {}  # the stale blocks still hold the tail
        if len(self._blocks) > 2 * self._live_blocks + _STALE_BLOCKS_MAX:
            self._blocks = deque(
                block for block in self._blocks if self._tails.get(block[1]) is block[0]
            )

    def check(self) -> None:
        assert self.size_bytes == sum(tail.size_bytes for tail in self._tails.values())
        assert self.size_bytes <= self.limit_bytes
        assert self._live_blocks == sum(tail.blocks for tail in self._tails.values())
        for tail in self._tails.values():
            assert tail.size_bytes == sum(
                map(len, tail.payloads.values())
            ) + ENTRY_OVERHEAD_BYTES * len(tail.payloads)
            assert sorted(tail.payloads) == list(range(tail.first, tail.first + len(tail.payloads)))
