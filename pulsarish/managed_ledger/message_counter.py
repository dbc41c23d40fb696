"""Counts the messages of a topic's log that a cursor has not acknowledged, and reads what it lacks
for an exact number.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.cursors.cursor import Cursor
from pulsarish.managed_ledger.ledger_counts import BLOCK_ENTRIES
from pulsarish.managed_ledger.log_reader import LogEntry, LogReader
from pulsarish.managed_ledger.message_counts import (
    Block,
    BlockCounts,
    MessageBacklog,
    MessageCounts,
)
from pulsarish.model.position import Position

__all__ = ["HOLES_MAX", "MessageCounter"]

HOLES_MAX: Final = 1_000
"""Acknowledged ranges and partly acknowledged batches of a cursor up to which a count is cheap."""

_READ_BYTES_MAX: Final = 1 << 20


class MessageCounter:
    """The messages of one topic's log."""

    __slots__ = ("_chain", "_counts", "_reader", "_reading")

    def __init__(self, chain: Chain, reader: LogReader, blocks: BlockCounts) -> None:
        self._chain = chain
        self._counts = MessageCounts(chain, blocks)
        self._reader = reader
        self._reading: asyncio.Lock | None = None  # made with the first reading

    def add(self, first_entry: int, counts: Sequence[int]) -> None:
        """Note how many messages each of some entries has that were confirmed in the open
        ledger.
        """
        self._counts.add(first_entry, counts)

    def backlog(self, cursor: Cursor, *, holes_max: int | None = None) -> MessageBacklog:
        """Return the messages that a cursor has not acknowledged, from what is in memory.

        Holes beyond ``holes_max`` are estimated. Then the number is not exact.
        """
        holes = cursor.hole_count
        if holes_max is None or holes <= holes_max:
            return self._counts.unacknowledged(
                cursor.mark_delete, cursor.acked_ranges(holes), cursor.partly_acknowledged()
            )
        above = self._counts.unacknowledged(cursor.mark_delete)
        entries = self._chain.entries_between(cursor.mark_delete, self._chain.last_position())
        batches, left = cursor.parts  # of these it is known what is left
        whole = max(0, cursor.backlog() - batches)
        messages = above.messages * whole // entries if entries else 0
        return MessageBacklog(messages + left, is_estimate=True)

    async def complete(
        self,
        cursors: Iterable[Cursor],
        messages_of: Callable[[LogEntry], int],
        *,
        entries_max: int,
    ) -> None:
        """Read what ``backlog`` of the cursors lacks for exact numbers, up to about ``entries_max``
        entries. The next call goes on from there.

        Raises as ``LogReader.read``.
        """
        left = entries_max
        self._reading = self._reading or asyncio.Lock()
        async with self._reading:
            for cursor in cursors:
                while left > 0 and (missing := self.backlog(cursor).missing):
                    for block in missing[: 1 + left // BLOCK_ENTRIES]:
                        await self._read_block(block, messages_of)
                        left -= BLOCK_ENTRIES

    async def _read_block(self, block: Block, messages_of: Callable[[LogEntry], int]) -> None:
        link = self._chain.find(block.ledger_id)
        if link is None:
            return  # trimmed
        first = block.number * BLOCK_ENTRIES
        end = min(first + BLOCK_ENTRIES, link.entries)
        counts = array("I")
        while first + len(counts) < end:
            position = Position(block.ledger_id, first + len(counts))
            entries = await self._reader.read(
                position, max_entries=end - position.entry_id, max_bytes=_READ_BYTES_MAX
            )
            for entry in entries:
                if entry.position.ledger_id != block.ledger_id or entry.position.entry_id >= end:
                    break
                # The entries between are lost.
                counts.extend([0] * (entry.position.entry_id - first - len(counts)))
                counts.append(messages_of(entry))
            if first + len(counts) == position.entry_id:
                counts.extend([0] * (end - position.entry_id))
        self._counts.put(block, counts)
