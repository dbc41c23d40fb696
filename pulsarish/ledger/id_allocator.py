"""Ledger ids: never used twice, drawn from metadata in blocks."""

from __future__ import annotations

import asyncio

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import LedgerIds

__all__ = ["LedgerIdAllocator"]


class LedgerIdAllocator:
    """Ids for one process. What is left of a block when the process ends is never given out."""

    def __init__(self, records: Records, block: int) -> None:
        self._records = records
        self._block = block
        self._next = 0
        self._end = 0
        self._drawing = asyncio.Lock()

    async def next_id(self, *, above: int = -1) -> int:
        """An id greater than ``above``, which is one that was given out before, here or by another process.

        Raises ``MetadataUnavailable``; a block whose drawing got no answer is lost, not reused.
        """
        async with self._drawing:
            # What is left of this block may be older than a block that another process drew since.
            self._next = max(self._next, min(above + 1, self._end))
            if self._next == self._end:
                drawn = await self._records.update(paths.LEDGER_IDS, LedgerIds, self._draw)
                assert drawn is not None
                self._end = drawn[0].next_id
                self._next = self._end - self._block
            assert self._next > above, f"ledger id {above} was never given out: blocks end at {self._end}"
            self._next += 1
            return self._next - 1

    def _draw(self, ids: LedgerIds | None) -> LedgerIds:
        return LedgerIds(next_id=(ids.next_id if ids else 0) + self._block)
