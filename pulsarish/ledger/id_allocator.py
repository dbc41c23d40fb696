"""Ledger ids: never used twice, drawn from metadata in blocks."""

from __future__ import annotations

import asyncio

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import LedgerIds
from pulsarish.model.errors import LimitReached
from pulsarish.model.position import ID_MAX

__all__ = ["LedgerIdAllocator"]


class LedgerIdAllocator:
    """Ids for one process. The rest of a block is never used after the process ends."""

    def __init__(self, records: Records, block: int) -> None:
        self._records = records
        self._block = block
        self._next = 0
        self._end = 0
        self._in_vain = 0  # a block was given up for this id, and the next one was below it, too
        self._drawing = asyncio.Lock()

    async def next_id(self, *, above: int = -1, clear_of: int = 0) -> int:
        """Return an id greater than ``above``, an id that this or another process has already used.

        ``clear_of``: from this id on the bookies of the ledger are in no doubt. The rest of a block
        below it is given up. A bookie may be in doubt about ids that no metadata gave out; where
        the next block is below them, too, the id is, and no further block is given up for them.

        When the request for a block gets no answer, the block is lost; it is never used again.

        Raises ``MetadataUnavailable``, and ``LimitReached`` when all ids have been given out.
        """
        async with self._drawing:
            # Another process may have drawn a newer block since, and ``above`` may come from it.
            self._next = max(self._next, min(above + 1, self._end))
            # A block that is drawn now ends at least so far above the present one.
            helps = clear_of < self._end + self._block or clear_of > self._in_vain
            if clear_of > self._next and helps:
                self._next = min(clear_of, self._end)
            if self._next == self._end:
                drawn = await self._records.update(paths.LEDGER_IDS, LedgerIds, self._draw)
                assert drawn is not None
                self._end = drawn[0].next_id
                self._next = self._end - self._block
                if clear_of < self._end:
                    self._next = max(self._next, clear_of)
                else:
                    self._in_vain = max(self._in_vain, clear_of)
            assert self._next > above, (
                f"ledger id {above} was never given out: blocks end at {self._end}"
            )
            self._next += 1
            return self._next - 1

    def _draw(self, ids: LedgerIds | None) -> LedgerIds:
        next_id = (ids.next_id if ids else 0) + self._block
        if next_id > ID_MAX:
            raise LimitReached(
                f"the counter of ledger ids, {paths.LEDGER_IDS}, is at {next_id}, above the "
                f"greatest id {ID_MAX}"
            )
        return LedgerIds(next_id)
