"""The entry logs of a bookie: one is written, the others are only read.

Nothing is appended to a log of an earlier process, so what a crash left after its last indexed
record does not matter. A location enters the index only after ``sync``.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from pulsarish.bookie.entry_logs.chunk_search import next_chunk
from pulsarish.bookie.entry_logs.entry_log_format import (
    CHUNK_HEAD_SIZE,
    HEADER_SIZE,
    check_header,
    decode_chunk_head,
    decode_chunk_sizes,
    encode_chunk_head,
    encode_header,
    log_id_of,
    log_name,
)
from pulsarish.bookie.ledger_index import LedgerIndex, Location
from pulsarish.model.errors import CorruptData
from pulsarish.runtime.seams import File, Files

__all__ = [
    "COMPACTION_LANE",
    "GAP_BYTES_MAX",
    "READ_AHEAD_LANE",
    "READ_LANE",
    "RECOVERY_LANE",
    "Chunk",
    "EntryLogs",
]

_WRITE_LANE: Final = "entry-log"
READ_LANE: Final = "entry-read"
"""The lane of readers, and of checks and copies of other bookies."""
READ_AHEAD_LANE: Final = "read-ahead"
"""The lane of what readers in order want next."""
RECOVERY_LANE: Final = "recovery-read"
"""The lane of recovery, of fences, and of adds that may be stored already."""
COMPACTION_LANE: Final = "compaction"
GAP_BYTES_MAX: Final = 4096
"""Records this near to each other are read as one span, up to ``_SPAN_BYTES_MAX``."""
_SPAN_BYTES_MAX: Final = 1 << 20
# Records this large on average are written from where they lie.
_LARGE_PART_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk that a scan found: where each record lies."""

    ledger_id: int
    locations: list[Location]


class EntryLogs:
    """The entry logs in one directory.

    Args:
        directory: the directory of the logs.
        size_bytes: above this size a new log begins.
        open_max: logs kept open for reading.
        read_lane: the disk lane of reads that name none. The reads of a lane queue behind each
            other.
        remove_from_page_cache: take what was synced out of the kernel's page cache.
    """

    def __init__(
        self,
        files: Files,
        index: LedgerIndex,
        directory: str,
        *,
        size_bytes: int,
        open_max: int,
        read_lane: str = READ_LANE,
        remove_from_page_cache: bool = False,
    ) -> None:
        self.current_id: int | None = None
        """The log that is written, if any."""
        self.reads_count = 0
        """Reads of a log's file since the start; records that lie together are one."""
        self._files = files
        self._index = index
        self._directory = directory
        self._size_bytes = size_bytes
        self._open_max = open_max
        self._read_lane = read_lane
        self._remove_from_page_cache = remove_from_page_cache
        self._next_id = 0
        self._file: File | None = None
        self._offset = 0
        self._torn = False  # a failed write may have left bytes after the offset
        self._readers: dict[tuple[str, int], File] = {}  # by lane and log, in order of last use

    async def open(self) -> None:
        """Find which ids were used."""
        self._next_id = max([*await self.ids(), *await self._index.logs_begun()], default=-1) + 1

    async def ids(self) -> list[int]:
        """Return the logs that have a file, in order."""
        found = [log_id_of(name) for name in await self._files.list(self._directory)]
        return [log_id for log_id in found if log_id is not None]

    def path(self, log_id: int) -> str:
        return f"{self._directory}/{log_name(log_id)}"

    async def write(
        self, chunks: Sequence[tuple[int, Sequence[bytes | memoryview]]]
    ) -> tuple[int, list[int]]:
        """Append chunks, each of one ledger's records, with one write.

        Return the log and the offset of the first record of each chunk. The others follow without a
        gap. Nothing is durable before ``sync``.
        """
        if self._file is None or self._offset >= self._size_bytes:
            await self._roll()
        assert self._file is not None
        assert self.current_id is not None
        parts: list[bytes | memoryview] = []
        offsets: list[int] = []
        end = self._offset
        for ledger_id, records in chunks:
            sizes = [len(record) for record in records]
            head = encode_chunk_head(self.current_id, ledger_id, sizes)
            offsets.append(end + len(head))
            end = offsets[-1] + sum(sizes)
            parts.append(head)
            parts += records
        try:
            # To copy a small entry here costs less than to pass it separately through every layer
            # below.
            if end - self._offset < len(parts) * _LARGE_PART_BYTES:
                parts = [b"".join(parts)]
            await self._file.write(self._offset, parts, sync=False)
        except OSError:
            self._torn = True
            raise
        # Move the offset only now: the next write replaces a failed one, because a scan cannot pass
        # a hole.
        self._offset = end
        return self.current_id, offsets

    @property
    def end(self) -> tuple[int, int]:
        """A log and an offset: no record that is put from now on lies before it.

        Only while no log begins.
        """
        if self.current_id is None:
            return self._next_id, 0
        return self.current_id, self._offset

    async def free_bytes(self) -> int:
        """Return the free space where the logs are."""
        return await self._files.free_bytes(self._directory)

    async def sync(self) -> None:
        """Make everything written durable."""
        if self._file is not None:
            try:
                await self._file.write(self._offset, [], sync=True)
            except OSError as error:
                # Whatever the reason was: a caller that can wait for space must not take this for a
                # write that it can repeat.
                raise OSError(
                    errno.EIO,
                    f"the entry log {self.current_id} in {self._directory} cannot be synced: "
                    f"{error}",
                ) from error
            if self._remove_from_page_cache:
                await self._file.drop_cached()

    async def _roll(self) -> None:
        await self.finish()
        log_id, self._next_id = self._next_id, self._next_id + 1
        await self._index.log_began(log_id)
        file = await self._files.open(self.path(log_id), lane=_WRITE_LANE, create=True)
        try:
            await file.write(0, [encode_header(log_id)], sync=False)
        except OSError:
            # Nothing may be appended to a log without a header. This one has no entries, so garbage
            # collection deletes it.
            await file.close()
            raise
        self._file, self.current_id, self._offset = file, log_id, HEADER_SIZE

    async def finish(self) -> None:
        """Sync and close the log that is written; the next write begins another."""
        if self._file is not None:
            if self._torn:
                await self._file.truncate(self._offset)
                self._torn = False
            await self.sync()
            await self._file.close()
            self._file = None
            self.current_id = None

    async def read(
        self, locations: Sequence[Location], lane: str = ""
    ) -> list[bytes | memoryview | OSError]:
        """Return the bytes at each location, unchecked.

        A result is shorter than requested at the end of a log, and an ``OSError`` where the log
        cannot be read.
        """
        found: list[bytes | memoryview | OSError] = [b""] * len(locations)
        by_log: dict[int, list[int]] = {}
        for place, location in enumerate(locations):
            by_log.setdefault(location[0], []).append(place)
        for log_id, places in by_log.items():
            places.sort(key=lambda place: locations[place][1])
            spans: list[tuple[int, int]] = []
            span_of: list[int] = []
            for place in places:
                _, offset, size = locations[place]
                if spans:
                    start, length = spans[-1]
                    if (
                        offset - start - length <= GAP_BYTES_MAX
                        and offset + size - start <= _SPAN_BYTES_MAX
                    ):
                        spans[-1] = (start, max(length, offset + size - start))
                        span_of.append(len(spans) - 1)
                        continue
                spans.append((offset, size))
                span_of.append(len(spans) - 1)
            try:
                file = await self._reader(lane or self._read_lane, log_id)
                self.reads_count += len(spans)
                data = await file.read(spans)
            except OSError as error:
                for place in places:
                    found[place] = error
                continue
            for place, number in zip(places, span_of, strict=True):
                _, offset, size = locations[place]
                start = offset - spans[number][0]
                whole = data[number]
                found[place] = (
                    whole
                    if start == 0 and size == len(whole)
                    else memoryview(whole)[start : start + size]
                )
        return found

    async def _reader(self, lane: str, log_id: int) -> File:
        key = (lane, log_id)
        file = self._readers.pop(key, None)
        if file is None:
            file = await self._files.open(self.path(log_id), lane=lane)
            # Another read may have opened it in the meantime. Keep one of the two.
            other = self._readers.pop(key, None)
            if other is not None:
                await file.close()
                file = other
        self._readers[key] = file
        if len(self._readers) > self._open_max:
            # Reads under way were queued on the file's lane before this close.
            await self._readers.pop(next(iter(self._readers))).close()
        return file

    async def next_chunk(self, log_id: int, start: int) -> int | None:
        """Return where the next whole chunk at or after ``start`` begins, as ``next_chunk``."""
        file = await self._files.open(self.path(log_id), lane=self._read_lane)
        try:
            return await next_chunk(file, log_id, start)
        finally:
            await file.close()

    async def scan(
        self, log_id: int, lane: str = "", *, start: int = 0
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of a log, up to its end.

        ``start``: where a chunk begins; 0: with the first one, and the header is checked.

        Raises ``CorruptData`` or ``OSError`` when the header or what follows cannot be read.
        """
        file = await self._files.open(self.path(log_id), lane=lane or self._read_lane)
        try:
            size_bytes = await file.size_bytes()
            if not start:
                check_header((await file.read([(0, HEADER_SIZE)]))[0], log_id, self.path(log_id))
            offset = start or HEADER_SIZE
            while offset < size_bytes:
                head = decode_chunk_head((await file.read([(offset, CHUNK_HEAD_SIZE)]))[0], log_id)
                if head is None:
                    raise CorruptData(
                        f"the entry log {self.path(log_id)} has no chunk at offset {offset}"
                    )
                if offset + CHUNK_HEAD_SIZE + head.sizes_size > size_bytes:
                    # The count is not verified before the sizes are read, and a buffer for all of
                    # them may not fit into memory.
                    raise CorruptData(
                        f"the entry log {self.path(log_id)} has a chunk at offset {offset} that "
                        f"names {head.count} records"
                    )
                table = (await file.read([(offset + CHUNK_HEAD_SIZE, head.sizes_size)]))[0]
                places = decode_chunk_sizes(table, log_id, head)
                if places is None:
                    raise CorruptData(
                        f"the entry log {self.path(log_id)} has a damaged chunk at offset {offset}"
                    )
                start = offset + CHUNK_HEAD_SIZE + head.sizes_size
                yield Chunk(head.ledger_id, [(log_id, start + at, size) for at, size in places])
                offset = start + (places[-1][0] + places[-1][1] if places else 0)
        finally:
            await file.close()

    async def remove(self, log_id: int) -> None:
        """Delete a log's file durably."""
        assert log_id != self.current_id, "the log being written is never removed"
        # All at once: another read may drop one of them while the first is being closed.
        readers = [self._readers.pop(key) for key in list(self._readers) if key[1] == log_id]
        for reader in readers:
            await reader.close()
        await self._files.remove([self.path(log_id)])

    async def close(self) -> None:
        await self.finish()
        for key in list(self._readers):
            await self._readers.pop(key).close()
