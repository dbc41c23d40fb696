"""Moving entries from the write cache to the entry logs, in the flush order of rule 11.

Entry logs synced, then the index's rows, then the ledgers' flags, then the mark, and only then are journal files below the mark deleted.
Each step makes durable what the next one points to, so a crash between any two of them only leaves more to replay. The mark never moves
back, and it moves only over records that are synced themselves.
"""

from __future__ import annotations

import asyncio
from itertools import accumulate
from typing import Final

from pulsarish.bookie.entry_log import EntryLogs
from pulsarish.bookie.journal import Journal
from pulsarish.bookie.ledger_index import ROWS_MAX, LedgerIndex, entry_rows
from pulsarish.bookie.ledger_state import LocalLedgerStates
from pulsarish.bookie.mark import Mark, write_mark
from pulsarish.bookie.write_cache import Generation, WriteCache
from pulsarish.runtime.seams import Files

__all__ = ["Checkpointer", "Placement"]

_CHUNK_ENTRIES_MAX: Final = 2000
_CHUNK_BYTES_MAX: Final = 1 << 20
_COMMIT_ENTRIES: Final = 16_000


class Placement:
    """Puts records into the entry logs and their locations into the index, the one in durable form before the other."""

    def __init__(self, logs: EntryLogs, index: LedgerIndex) -> None:
        self._logs = logs
        self._index = index
        self._rows: list[tuple[bytes, bytes]] = []
        self._log_bytes: dict[tuple[int, int], int] = {}  # log, ledger: of the log being written
        self._touched: dict[tuple[int, int], None] = {}

    @property
    def pending_rows(self) -> int:
        return len(self._rows)

    async def put(self, ledger_id: int, entry_ids: list[int], records: list[memoryview]) -> None:
        """Append one chunk."""
        log_id, offset = await self._logs.write(ledger_id, records)
        if self._log_bytes and next(iter(self._log_bytes))[0] != log_id:
            self._log_bytes = {key: size for key, size in self._log_bytes.items() if key[0] == log_id or key in self._touched}
        sizes = [len(record) for record in records]
        ends = list(accumulate(sizes, initial=offset))
        self._rows += entry_rows(ledger_id, entry_ids, log_id, ends, sizes)
        key = (log_id, ledger_id)
        self._log_bytes[key] = self._log_bytes.get(key, 0) + ends[-1] - offset
        self._touched[key] = None

    async def commit(self, *, sync: bool) -> None:
        """Make the logs durable, then write the rows that point into them; ``sync``: these too."""
        rows, self._rows = self._rows, []
        touched, self._touched = self._touched, {}
        if rows:
            await self._logs.sync()
            # Counts first: a location that nobody counted would let its log pass for dead.
            counts = [self._index.log_ledger_row(log_id, ledger_id, self._log_bytes[log_id, ledger_id]) for log_id, ledger_id in touched]
            for first in range(0, len(counts), ROWS_MAX):
                await self._index.rows.write(counts[first : first + ROWS_MAX], sync=False)
            for first in range(0, len(rows), ROWS_MAX):
                await self._index.rows.write(rows[first : first + ROWS_MAX], sync=False)
        if sync:
            await self._index.rows.write([], sync=True)


class Checkpointer:
    """Decides nothing about when. ``lock`` is held by whoever moves or deletes entries: checkpoint, compaction, deletion."""

    def __init__(
        self, *, files: Files, directory: str, cache: WriteCache, states: LocalLedgerStates, logs: EntryLogs, index: LedgerIndex, mark: Mark
    ) -> None:
        self.lock = asyncio.Lock()
        self.mark = mark
        self.count = 0
        self.placement = Placement(logs, index)
        self._files = files
        self._directory = directory
        self._cache = cache
        self._states = states
        self._index = index
        self._room: list[asyncio.Future[None]] = []

    async def checkpoint(self, journal: Journal) -> None:
        """One checkpoint of everything that was added before the call."""
        async with self.lock:
            sequence = journal.queue.next_sequence
            # An empty write cache is no reason to stop here: fences and LACs live in the ledgers' rows alone once the mark has moved.
            if not self._cache.active.size_bytes and not self._states.has_changes and sequence == self.mark.sequence:
                return
            await self._flush()
            # The mark must not pass a record that a crash could still take away from the journal's sequence.
            await journal.wait_synced(sequence - 1)
            await self.move_mark(Mark(journal.file_of(sequence), sequence))
            await journal.remove_below(self.mark.file_id)

    async def flush(self) -> None:
        """Entries to the logs, rows to the index, without moving the mark."""
        async with self.lock:
            await self._flush()

    async def _flush(self) -> None:
        generation = self._cache.begin_flush()
        ledger_rows = self._states.begin_flush()
        await self._place(generation)
        for first in range(0, len(ledger_rows), ROWS_MAX):
            await self._index.rows.write(ledger_rows[first : first + ROWS_MAX], sync=False)
        # One sync covers the locations and, behind them in the same log, the flags.
        await self.placement.commit(sync=True)
        self._cache.end_flush()
        self._states.end_flush()
        self.count += 1
        waiting, self._room = self._room, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _place(self, generation: Generation) -> None:
        for ledger_id in sorted(generation.ledgers):
            entries = generation.ledgers[ledger_id]
            entry_ids = sorted(entries)
            chunk: list[memoryview] = []
            first = size_bytes = 0
            for place, entry_id in enumerate(entry_ids):
                record = entries[entry_id]
                chunk.append(record)
                size_bytes += len(record)
                if len(chunk) >= _CHUNK_ENTRIES_MAX or size_bytes >= _CHUNK_BYTES_MAX:
                    await self.placement.put(ledger_id, entry_ids[first : place + 1], chunk)
                    first, chunk, size_bytes = place + 1, [], 0
            if chunk:
                await self.placement.put(ledger_id, entry_ids[first:], chunk)
            if self.placement.pending_rows >= _COMMIT_ENTRIES:
                await self.placement.commit(sync=False)
        await self.placement.commit(sync=False)

    async def move_mark(self, mark: Mark) -> None:
        """Durably move the mark on."""
        assert mark.sequence >= self.mark.sequence, "the mark never moves back"
        assert mark.file_id >= self.mark.file_id, "the mark never moves back"
        await write_mark(self._files, self._directory, mark)
        self.mark = mark

    async def wait_for_room(self) -> None:
        """Wait until the write cache is no longer full."""
        while self._cache.is_full:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(done)
            await done
