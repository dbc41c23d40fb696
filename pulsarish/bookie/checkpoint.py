"""Move entries from the write cache to the entry logs, in the flush order of rule 11.

The entry logs are synced first, then the index's rows, then the ledgers' flags, then the mark. Only
then are journal files below the mark used again or deleted. Each step makes durable what the next
one points to, so a crash between two steps only leaves more to replay. The mark never moves back,
and it moves only over records that are synced themselves. The work is cut into slices, and a slice
waits for its time (``pace``): adds that arrive in the meantime are served between two slices.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.entry_logs.entry_log import EntryLogs
from pulsarish.bookie.journal.journal import Journal
from pulsarish.bookie.journal.mark import Mark, write_mark
from pulsarish.bookie.ledger_index import ROWS_MAX, LedgerIndex, entry_rows
from pulsarish.bookie.ledger_state import LocalLedgerStates
from pulsarish.bookie.pace import Pace
from pulsarish.bookie.write_cache import Generation, WriteCache
from pulsarish.runtime.metrics import Histogram
from pulsarish.runtime.seams import Clock, Files

__all__ = ["Checkpointer", "Placement", "Run", "slices"]


async def _at_once(_rows_count: int) -> None:
    """Wait for nothing: the pace of a caller in a hurry."""


class Run(NamedTuple):
    """Some entries of one ledger, in order."""

    ledger_id: int
    entry_ids: list[int]
    records: list[memoryview]


class Placement:
    """Put records into the entry logs and their locations into the index; the records are durable
    first.
    """

    def __init__(self, logs: EntryLogs, index: LedgerIndex) -> None:
        self.pending_bytes = 0
        """Bytes that were put and not committed yet."""
        self._logs = logs
        self._index = index
        self._rows: list[tuple[bytes, bytes]] = []
        # log and ledger: bytes for the log that is being written
        self._log_bytes: dict[tuple[int, int], int] = {}
        self._touched: dict[tuple[int, int], None] = {}

    async def put(self, runs: Sequence[Run]) -> None:
        """Append one chunk for each run, all with one write.

        Most ledgers have few entries between two checkpoints.
        """
        log_id, offsets = await self._logs.write([(run.ledger_id, run.records) for run in runs])
        if self._log_bytes and next(iter(self._log_bytes))[0] != log_id:
            self._log_bytes = {
                key: size
                for key, size in self._log_bytes.items()
                if key[0] == log_id or key in self._touched
            }
        for run, offset in zip(runs, offsets, strict=True):
            sizes = [len(record) for record in run.records]
            ends = list(accumulate(sizes, initial=offset))
            self._rows += entry_rows(run.ledger_id, run.entry_ids, log_id, ends, sizes)
            key = (log_id, run.ledger_id)
            self._log_bytes[key] = self._log_bytes.get(key, 0) + ends[-1] - offset
            self._touched[key] = None
            self.pending_bytes += ends[-1] - offset

    async def commit(
        self,
        *,
        sync: bool,
        slice_rows: int = ROWS_MAX,
        wrote: Callable[[int], Awaitable[None]] = _at_once,
    ) -> None:
        """Make the logs durable, then write the rows that point into them.

        Args:
            sync: make these rows durable, too.
            slice_rows: locations written at once.
            wrote: awaited after each such write, with their number.
        """
        self.pending_bytes = 0
        rows, self._rows = self._rows, []
        touched, self._touched = self._touched, {}
        if rows:
            await self._logs.sync()
            # Write the counts first: if a location were not counted, its log would look dead.
            counts = [
                self._index.log_ledger_row(log_id, ledger_id, self._log_bytes[log_id, ledger_id])
                for log_id, ledger_id in touched
            ]
            for first in range(0, len(counts), ROWS_MAX):
                await self._index.rows.write(counts[first : first + ROWS_MAX], sync=False)
            for first in range(0, len(rows), slice_rows):
                some = rows[first : first + slice_rows]
                await self._index.rows.write(some, sync=False)
                await wrote(len(some))
        if sync:
            await self._index.rows.write([], sync=True)


class Checkpointer:
    """Carry out checkpoints. The caller decides when.

    A task holds ``lock`` while it moves or deletes entries: checkpoint, compaction, deletion.
    """

    def __init__(
        self,
        *,
        files: Files,
        clock: Clock,
        config: BookieConfig,
        cache: WriteCache,
        states: LocalLedgerStates,
        logs: EntryLogs,
        index: LedgerIndex,
        mark: Mark,
    ) -> None:
        self.lock = asyncio.Lock()
        self.mark = mark
        self.count = 0
        self.flush_seconds = Histogram()
        """The time that it took to move one generation of the write cache to the logs."""
        self.flushed_bytes = 0
        self.hurry = False
        """Set when the bookie stops: from then on nothing is paced."""
        self.placement = Placement(logs, index)
        self._files = files
        self._clock = clock
        self._config = config
        self._cache = cache
        self._states = states
        self._index = index
        self._room: list[asyncio.Future[None]] = []
        self._failed: Exception | None = None

    async def checkpoint(self, journal: Journal, *, probes: int = 0) -> None:
        """Make one checkpoint of everything that was added before the call.

        ``probes`` is the number of records since the mark that hold no entry. They cause no
        checkpoint before they fill a file of the journal.
        """
        async with self.lock:
            sequence = journal.queue.next_sequence
            # Do not stop at an empty write cache: once the mark has moved, only the ledgers' rows
            # have the fences and LACs.
            only_probes = (
                sequence - probes == self.mark.sequence
                and journal.file_of(sequence) == self.mark.file_id
            )
            if not self._cache.active.size_bytes and not self._states.has_changes and only_probes:
                return
            await self._flush(
                self._config.checkpoint_spread * self._config.checkpoint_interval_seconds
            )
            # The mark must not pass a record that a crash could still remove from the journal's
            # sequence.
            await journal.wait_synced(sequence - 1)
            await self.move_mark(Mark(journal.file_of(sequence), sequence))
            await journal.release_below(self.mark.file_id)

    def fail(self, error: Exception) -> None:
        """Make no more checkpoints, and let those who wait for room go on: they fail."""
        self._failed = error
        waiting, self._room = self._room, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def flush(self) -> None:
        """Move entries to the logs and rows to the index at once, without moving the mark."""
        async with self.lock:
            await self._flush(0.0)

    async def _flush(self, seconds: float) -> None:
        if self._failed is not None:
            # For a task that waited for the lock in the meantime: that failure ends the process,
            # and nothing is flushed after it.
            raise OSError(
                errno.EIO, "an earlier checkpoint of this process failed"
            ) from self._failed
        try:
            await self._flush_generation(seconds)
        except Exception as error:
            self._failed = error
            raise

    async def _flush_generation(self, seconds: float) -> None:
        began = self._clock.monotonic()
        generation = self._cache.begin_flush()
        ledger_rows = self._states.begin_flush()
        await self._place(generation, seconds)
        for first in range(0, len(ledger_rows), ROWS_MAX):
            await self._index.rows.write(ledger_rows[first : first + ROWS_MAX], sync=False)
        # One sync covers the locations and, after them in the same log, the flags.
        await self.placement.commit(sync=True)
        self._cache.end_flush()
        self._states.end_flush()
        self.count += 1
        self.flushed_bytes += generation.size_bytes
        self.flush_seconds.observe(self._clock.monotonic() - began)
        waiting, self._room = self._room, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _place(self, generation: Generation, seconds: float) -> None:
        """Move a whole generation to the logs and the index, spread over about ``seconds``."""
        config, placement = self._config, self.placement
        # Each entry takes two steps, one into a log and one into the index.
        pace = Pace(2 * sum(len(entries) for entries in generation.ledgers.values()), seconds)
        began = self._clock.monotonic()

        async def step(entries_count: int) -> None:
            pace.did(entries_count)
            while not self.hurry:
                pause_seconds = pace.pause_seconds(
                    self._clock.monotonic() - began, self._cache.filled_share
                )
                if pause_seconds <= 0:
                    break
                await self._clock.sleep(pause_seconds)

        for runs, entries_count in slices(
            generation, config.checkpoint_slice_entries, config.checkpoint_slice_bytes
        ):
            await placement.put(runs)
            await step(entries_count)
            if placement.pending_bytes >= config.checkpoint_sync_bytes:
                await placement.commit(
                    sync=False, slice_rows=config.checkpoint_slice_entries, wrote=step
                )
        await placement.commit(sync=False, slice_rows=config.checkpoint_slice_entries, wrote=step)

    async def move_mark(self, mark: Mark) -> None:
        """Move the mark durably, and note in it how far the index is synced."""
        assert mark.sequence >= self.mark.sequence, "the mark never moves back"
        assert mark.file_id >= self.mark.file_id, "the mark never moves back"
        mark = Mark(mark.file_id, mark.sequence, self._index.rows.synced)
        await write_mark(self._files, self._config.ledger_path, mark)
        self.mark = mark

    async def wait_for_room(self) -> None:
        """Wait until the write cache is no longer full."""
        while self._cache.is_full:
            if self._failed is not None:
                raise OSError(errno.EIO, "this volume has failed") from self._failed
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(done)
            await done


def slices(
    generation: Generation, entries_max: int, bytes_max: int
) -> Iterator[tuple[list[Run], int]]:
    """Cut a generation, ordered by ledger and entry, into slices.

    Yield each with the number of its entries.

    A slice ends with the entry that brings it to ``entries_max`` entries or ``bytes_max`` bytes.
    """
    runs: list[Run] = []
    entries_count = size_bytes = 0
    for ledger_id in sorted(generation.ledgers):
        entries = generation.ledgers[ledger_id]
        run = Run(ledger_id, [], [])
        for entry_id in sorted(entries):
            record = entries[entry_id]
            if not run.entry_ids:
                runs.append(run)
            run.entry_ids.append(entry_id)
            run.records.append(record)
            entries_count += 1
            size_bytes += len(record)
            if entries_count >= entries_max or size_bytes >= bytes_max:
                yield runs, entries_count
                runs, run = [], Run(ledger_id, [], [])
                entries_count = size_bytes = 0
    if runs:
        yield runs, entries_count
