"""The journal: one writer, with one write and one sync for all records that wait (rule 9).

A failed write or sync raises out of the writer's task. That task is critical, so this ends the
process without a retry. The next file is prepared while the current one fills
(``journal_prepare``): the switch to it waits for nothing, and ``fdatasync`` carries no change of
size. Files below the mark become next ones; what is more than two of them is deleted. Only files
that this life of the bookie has written are used again: their blocks are allocated, and all their
records are older than the mark.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pulsarish.bookie.journal.group_commit import Group, GroupCommit
from pulsarish.bookie.journal.journal_format import (
    Buffer,
    RecordType,
    file_name,
    frame_header,
    frame_record,
    header_size,
)
from pulsarish.bookie.journal.journal_prepare import NextFile
from pulsarish.runtime.containment import Critical
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.metrics import Histogram
from pulsarish.runtime.seams import Clock, File, Files, Tasks

__all__ = ["Journal"]

_log = get_logger("bookie.journal")

_LANE: Final = "journal"
_SPARES_MAX: Final = 2
"""Files below the mark that are kept. A checkpoint of the default write cache frees one, at most
two.
"""


@dataclass(slots=True)
class _Written:
    """A file that has, or had, records at or above the mark."""

    file_id: int
    first_sequence: int
    is_longer: bool = False  # than the files are preallocated


class Journal:
    """An open journal. Call ``open`` first, then append from the event loop.

    Args:
        directory: of the journal files.
        record_key: of all records; drawn for this life of the bookie, so that no client knows it.
        first_file_id: of the file that ``open`` makes; greater than any that was ever used.
        next_sequence: of the first record.
        file_size_bytes: preallocated for a file; a larger record is still written whole, past this
            size.
        group_size_bytes: written and synced at a time, at most.
        prepare_slice_bytes: of the next file, preallocated at a time.
        slow_sync_ms: a write and sync that took longer is logged.
    """

    def __init__(
        self,
        files: Files,
        tasks: Tasks,
        clock: Clock,
        *,
        directory: str,
        instance_id: str,
        record_key: int,
        first_file_id: int,
        next_sequence: int,
        file_size_bytes: int,
        group_size_bytes: int,
        prepare_slice_bytes: int,
        slow_sync_ms: int,
    ) -> None:
        self.queue = GroupCommit(next_sequence, group_size_bytes)
        self.synced_bytes = 0
        self.sync_seconds = Histogram()
        """The time to write and sync a group."""
        self._files = files
        self._tasks = tasks
        self._clock = clock
        self._directory = directory
        self._instance_id = instance_id.encode()
        self._record_key = record_key
        self._file_size_bytes = file_size_bytes
        self._prepare_slice_bytes = prepare_slice_bytes
        self._slow_sync_seconds = slow_sync_ms / 1000
        self._file_id = first_file_id
        self._file: File | None = None
        self._offset = 0
        self._kept: deque[_Written] = deque()  # oldest first; the last one is the current file
        self._spares: list[str] = []
        self._keeps_spares = True
        self._next: NextFile | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._progress: list[tuple[int, asyncio.Future[None]]] = []
        self._stopping = False
        self._failure: Exception | None = None
        self._writer: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Make the first file durably, and start the writer."""
        self._prepare(self._file_id)
        await self._begin_file()
        self._writer = self._tasks.spawn(self._run(), name="journal", critical=Critical.JOURNAL)

    def append(
        self,
        kind: RecordType,
        parts: Sequence[Buffer],
        size_bytes: int,
        durable: Callable[[], None] | None = None,
    ) -> int:
        """Queue a record whose payload is ``parts`` (``size_bytes`` in all), and return its
        sequence.

        ``durable`` is called once the record is synced.
        """
        assert not self._stopping, "the journal is stopping"
        self._check_failure()
        sequence = self.queue.append(kind, parts, size_bytes, durable)
        self._wake.set()
        return sequence

    def append_barrier(self, durable: Callable[[], None]) -> None:
        """Call ``durable`` once everything queued so far is synced."""
        self._check_failure()
        self.queue.append_barrier(durable)
        self._wake.set()

    async def wait_synced(self, sequence: int) -> None:
        """Wait until the record ``sequence`` is durable."""
        if sequence < self.queue.synced_sequence:
            return
        self._check_failure()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._progress.append((sequence, done))
        await done

    def fail(self, error: Exception) -> None:
        """Take, write and answer nothing any more: who waits for a sync gets ``OSError``."""
        self._failure = error
        waiting, self._progress = self._progress, []
        for _, done in waiting:
            if not done.done():
                done.set_exception(_failed(error))

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise _failed(self._failure)

    def file_of(self, sequence: int) -> int:
        """Return the file in which the record ``sequence`` lies or will lie, or an older one."""
        found = self._kept[0].file_id
        for each in self._kept:
            if each.first_sequence > sequence:
                break
            found = each.file_id
        return found

    async def release_below(self, file_id: int) -> None:
        """Keep some of the files before ``file_id`` for new records, and delete the others.

        The caller has a durable mark at or after the beginning of that file.
        """
        gone = []
        while self._kept[0].file_id < file_id and len(self._kept) > 1:
            released = self._kept.popleft()
            path = self._path(released.file_id)
            if self._keeps_spares and not released.is_longer and len(self._spares) < _SPARES_MAX:
                self._spares.append(path)
            else:
                gone.append(path)
        if gone:
            await self._files.remove(gone)

    async def keep_spares(self, keep: bool) -> None:
        """Say whether files below the mark may be kept. If not, those that are kept are deleted:
        their space is needed.
        """
        self._keeps_spares = keep
        if not keep and self._spares:
            gone, self._spares = self._spares, []
            await self._files.remove(gone)

    async def stop(self) -> None:
        """Write what waits, then close."""
        self._stopping = True
        self._wake.set()
        if self._writer is not None:
            await self._writer
        if self._next is not None and self._preparing is not None:
            self._next.give_up()
            await self._preparing
            # The prepared file is not needed any more, nor are the spares. A start would remove
            # them, too.
            await self._files.remove([self._next.path])
            await self.keep_spares(False)
        if self._file is not None:
            await self._file.close()

    async def _run(self) -> None:
        while True:
            if not self.queue:
                if self._stopping:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            group = self.queue.take()
            if group.size_bytes:
                await self._write(group)
            self._check_failure()
            self.queue.synced(group)
            self._report()
            self.queue.answer(group)

    async def _write(self, group: Group) -> None:
        if (
            self._offset + group.size_bytes > self._file_size_bytes
            and self._offset > self._header_size
        ):
            await self._roll()
        assert self._file is not None
        durable_up_to = self.queue.synced_sequence
        parts: list[Buffer] = []
        for pending in group.records:
            if pending.kind is not None:
                parts += frame_record(
                    self._file_id,
                    self._record_key,
                    pending.kind,
                    pending.sequence,
                    durable_up_to,
                    pending.parts,
                    pending.size_bytes,
                )
        began = self._clock.monotonic()
        await self._file.write(self._offset, parts, sync=True)
        took = self._clock.monotonic() - began
        self.sync_seconds.observe(took)
        if took >= self._slow_sync_seconds:
            _log.warning(
                "slow journal sync",
                took_ms=round(took * 1000),
                size_bytes=group.size_bytes,
                records=len(group.records),
            )
        self._offset += group.size_bytes
        self.synced_bytes += group.size_bytes
        if self._next is not None:
            self._next.reached(self._offset)

    def _report(self) -> None:
        if self._progress:
            synced = self.queue.synced_sequence
            for sequence, done in self._progress:
                if sequence < synced and not done.done():
                    done.set_result(None)
            self._progress = [waiter for waiter in self._progress if not waiter[1].done()]

    @property
    def _header_size(self) -> int:
        return header_size(self._instance_id)

    def _path(self, file_id: int) -> str:
        return f"{self._directory}/{file_name(file_id)}"

    async def _roll(self) -> None:
        assert self._file is not None
        await self._file.close()
        self._kept[-1].is_longer = self._offset > self._file_size_bytes
        self._file_id += 1
        await self._begin_file()

    def _prepare(self, file_id: int) -> None:
        self._next = NextFile(
            self._files,
            self._path(file_id),
            self._spares.pop() if self._spares else None,
            size_bytes=self._file_size_bytes,
            slice_bytes=self._prepare_slice_bytes,
        )
        self._preparing = self._tasks.spawn(
            self._next.run(), name="journal-prepare", critical=Critical.JOURNAL
        )

    async def _begin_file(self) -> None:
        """Switch to the prepared file.

        Its header is durable before the mark may name the file, and before records follow. It is
        written over the header of the file's earlier life, if it had one.
        """
        assert self._next is not None
        assert self._preparing is not None
        self._next.hurry()
        await self._preparing
        self._file = await self._files.open(self._next.path, lane=_LANE)
        synced = self.queue.synced_sequence
        await self._write_header(self._file, synced)
        self._offset = self._header_size
        self._kept.append(_Written(self._file_id, synced))
        self._prepare(self._file_id + 1)

    async def _write_header(self, file: File, sequence: int) -> None:
        header = frame_header(self._file_id, self._record_key, sequence, self._instance_id)
        await file.write(0, header, sync=True)


def _failed(error: Exception) -> OSError:
    return OSError(errno.EIO, f"the volume of this journal has failed: {error}")
