"""The journal: one writer, and one write and one sync for all that waits (rule 9).

A failed write or sync raises out of the writer's task, which is critical: it ends the process, without a retry. The next file is
preallocated while the current one fills, on a lane of its own, so that rolling waits for nothing and ``fdatasync`` carries no change of
size.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from pulsarish.bookie.group_commit import Group, GroupCommit
from pulsarish.bookie.journal_format import Buffer, RecordType, file_name, frame_record, padded_size
from pulsarish.runtime.metrics import Histogram
from pulsarish.runtime.seams import Clock, File, Files, Tasks

__all__ = ["Journal"]

_LANE = "journal"
_PREPARE_LANE = "journal-prepare"


class Journal:
    """An open journal. ``open`` first; then append from the event loop.

    Args:
        directory: of the journal files.
        first_file_id: of the file that ``open`` makes; greater than any that was ever used.
        next_sequence: of the first record.
        file_size_bytes: how much a file preallocates; a greater record still gets written whole, past it.
    """

    def __init__(
        self,
        files: Files,
        tasks: Tasks,
        clock: Clock,
        *,
        directory: str,
        instance_id: str,
        first_file_id: int,
        next_sequence: int,
        file_size_bytes: int,
        group_size_bytes: int,
    ) -> None:
        self.queue = GroupCommit(next_sequence, group_size_bytes)
        self.synced_bytes = 0
        self.sync_seconds = Histogram()
        """How long writing and syncing a group took."""
        self._files = files
        self._tasks = tasks
        self._clock = clock
        self._directory = directory
        self._instance_id = instance_id.encode()
        self._file_size_bytes = file_size_bytes
        self._file_id = first_file_id
        self._file: File | None = None
        self._offset = 0
        self._kept: deque[tuple[int, int]] = deque()  # file id and its first sequence, oldest first; the last is the current one
        self._prepared: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._progress: list[tuple[int, asyncio.Future[None]]] = []
        self._stopping = False
        self._writer: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Make the first file, durably, and start to write."""
        await self._create(self._file_id)
        await self._begin_file()
        self._writer = self._tasks.spawn(self._run(), name="journal")

    # What the loop asks of it.

    def append(self, kind: RecordType, parts: Sequence[Buffer], size_bytes: int, durable: Callable[[], None] | None = None) -> int:
        """Queue a record whose payload is ``parts`` (``size_bytes`` in all); its sequence. ``durable`` is called once it is synced."""
        assert not self._stopping, "the journal is stopping"
        sequence = self.queue.append(kind, parts, size_bytes, durable)
        self._wake.set()
        return sequence

    def append_barrier(self, durable: Callable[[], None]) -> None:
        """Call ``durable`` once everything queued so far is synced."""
        self.queue.append_barrier(durable)
        self._wake.set()

    async def wait_synced(self, sequence: int) -> None:
        """Wait until the record ``sequence`` is durable."""
        if sequence < self.queue.synced_sequence:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._progress.append((sequence, done))
        await done

    def file_of(self, sequence: int) -> int:
        """The file in which the record ``sequence`` lies or will lie, or an older one."""
        found = self._kept[0][0]
        for file_id, first in self._kept:
            if first > sequence:
                break
            found = file_id
        return found

    async def remove_below(self, file_id: int) -> None:
        """Delete the files before ``file_id``: the mark is durable at or behind its beginning."""
        gone = []
        while self._kept[0][0] < file_id and len(self._kept) > 1:
            gone.append(f"{self._directory}/{file_name(self._kept.popleft()[0])}")
        if gone:
            await self._files.remove(gone)

    async def stop(self) -> None:
        """Write what waits, then close."""
        self._stopping = True
        self._wake.set()
        if self._writer is not None:
            await self._writer
        if self._prepared is not None:
            await self._prepared
            # Not needed any more; a start would take it for an empty journal file and remove it.
            await self._files.remove([f"{self._directory}/{file_name(self._file_id + 1)}"])
        if self._file is not None:
            await self._file.close()

    # The writer.

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
            self.queue.synced(group)
            self._report()
            self.queue.answer(group)

    async def _write(self, group: Group) -> None:
        if self._offset + group.size_bytes > self._file_size_bytes and self._offset > self._header_size:
            await self._roll()
        assert self._file is not None
        durable_up_to = self.queue.synced_sequence
        parts: list[Buffer] = []
        for pending in group.records:
            if pending.kind is not None:
                parts += frame_record(self._file_id, pending.kind, pending.sequence, durable_up_to, pending.parts, pending.size_bytes)
        began = self._clock.monotonic()
        await self._file.write(self._offset, parts, sync=True)
        self.sync_seconds.observe(self._clock.monotonic() - began)
        self._offset += group.size_bytes
        self.synced_bytes += group.size_bytes

    def _report(self) -> None:
        if self._progress:
            synced = self.queue.synced_sequence
            for sequence, done in self._progress:
                if sequence < synced and not done.done():
                    done.set_result(None)
            self._progress = [waiter for waiter in self._progress if not waiter[1].done()]

    # Files.

    @property
    def _header_size(self) -> int:
        return padded_size(len(self._instance_id))

    async def _roll(self) -> None:
        assert self._file is not None
        await self._file.close()
        if self._prepared is None:
            await self._create(self._file_id + 1)
        else:
            await self._prepared
            self._prepared = None
        self._file_id += 1
        await self._begin_file()

    async def _create(self, file_id: int) -> None:
        file = await self._files.open(
            f"{self._directory}/{file_name(file_id)}", lane=_PREPARE_LANE, create=True, reserve_bytes=self._file_size_bytes
        )
        await file.close()

    async def _begin_file(self) -> None:
        """Write the header record. It takes the place of no sequence: it carries the one of the next record."""
        self._file = await self._files.open(f"{self._directory}/{file_name(self._file_id)}", lane=_LANE)
        synced = self.queue.synced_sequence
        header = frame_record(self._file_id, RecordType.FILE_HEADER, synced, synced, [self._instance_id], len(self._instance_id))
        await self._file.write(0, header, sync=True)
        self._offset = self._header_size
        self._kept.append((self._file_id, synced))
        self._prepared = self._tasks.spawn(self._create(self._file_id + 1), name="journal-prepare")
