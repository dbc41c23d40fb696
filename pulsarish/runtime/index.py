"""The ordered index on RocksDB: the only place that imports rocksdict.

rocksdict keeps the interpreter lock during ``write`` and during iteration, and lets go of it in ``get`` of a list and ``flush_wal``. The
rules that follow from it, with what was measured on the 2-core machine:

* A ``write`` is one RocksDB batch, whatever its size, because the seam promises all or nothing at a crash. The batch goes to the log
  unsynced (0.2-0.3 microseconds a row under the lock: 0.3 ms for 1,000 rows, 2-4 ms for 10,000, 15-28 ms for 100,000), then the lane
  syncs the log without the lock. Whoever needs no atomicity across many rows hands over at most a few thousand a call.
* A write never waits inside RocksDB for a flush or a compaction, where it would freeze the whole process: it is refused there
  (``no_slowdown``) and tried again from the lane, which sleeps without the lock.
* Reads go by list. Scans go in pages of the caller's ``limit`` (0.4 microseconds a row); ``limit`` must therefore stay in the thousands.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import cast

from rocksdict import BlockBasedOptions, Cache, DBRecoveryMode, Options, Rdict, ReadOptions, WriteBatch, WriteOptions

from pulsarish.runtime.lanes import Lane

__all__ = ["RocksIndex", "open_rocks_index"]

_BLOOM_BITS_PER_KEY = 10
_STALLED = "Write stall"
_STALL_RETRY_SECONDS = 0.005
# A disk that cannot take a flush for this long is broken; the error then ends the node through its owner.
_STALL_SECONDS_MAX = 60.0


class RocksIndex:
    """The production ``KeyValueIndex``. All its work goes through one lane. Made by ``open_rocks_index``."""

    def __init__(self, database: Rdict, lane: Lane) -> None:
        self._database = database
        self._lane = lane
        self.stalls_count = 0
        """How often a write was refused because RocksDB was behind with its flushes, and was tried again."""
        self._unsynced = WriteOptions()
        self._unsynced.sync = False
        self._unsynced.no_slowdown = True

    async def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (), *, sync: bool) -> None:
        """As the seam says. Where a key is both put and deleted, the deletion wins."""

        def job() -> None:
            if puts or deletes:
                self._apply(puts, deletes)
            if sync:
                self._database.flush_wal(True)

        await self._lane.run(job)

    def _apply(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes]) -> None:
        deadline = time.monotonic() + _STALL_SECONDS_MAX
        while True:
            # A new batch each time: rocksdict takes it away even when the write is refused. A refused write has written nothing.
            batch = WriteBatch(raw_mode=True)
            for key, value in puts:
                batch.put(key, value)
            for key in deletes:
                batch.delete(key)
            try:
                self._database.write(batch, self._unsynced)
            except Exception as error:
                # rocksdict raises plain Exception with RocksDB's status as its text.
                if _STALLED not in str(error) or time.monotonic() > deadline:
                    raise
                self.stalls_count += 1
                time.sleep(_STALL_RETRY_SECONDS)
            else:
                return

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        def job() -> list[bytes | None]:
            # Typed for a single key; a list of keys gives a list.
            return cast("list[bytes | None]", self._database.get(list(keys)))

        return await self._lane.run(job) if keys else []

    async def scan(self, start: bytes, end: bytes, *, limit: int, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        if limit <= 0 or start >= end:
            return []
        return await self._lane.run(lambda: self._scan(start, end, limit, reverse))

    def _scan(self, start: bytes, end: bytes, limit: int, reverse: bool) -> list[tuple[bytes, bytes]]:
        options = ReadOptions()
        # The bound lets RocksDB stop behind it, instead of walking through deleted rows to the next live one.
        options.set_iterate_upper_bound(end)
        found = self._database.items(backwards=reverse, from_key=end if reverse else start, read_opt=options)
        rows = cast("Iterator[tuple[bytes, bytes]]", found)
        if reverse:
            # rocksdict takes a lower bound and does not heed it.
            rows = takewhile(lambda row: row[0] >= start, rows)
        return list(islice(rows, limit))

    async def close(self) -> None:
        def job() -> None:
            self._database.flush_wal(True)
            self._database.close()

        await self._lane.run(job)


async def open_rocks_index(
    directory: str, *, lane: Lane, write_buffer_bytes: int = 4 << 20, write_buffers_max: int = 3, block_cache_bytes: int = 8 << 20
) -> RocksIndex:
    """Open or make the index in ``directory``.

    Memory is at most ``write_buffer_bytes * write_buffers_max + block_cache_bytes`` and the filters of the open files, which live in the
    block cache. Raises ``OSError`` when the directory is locked by another process or its content is damaged.
    """

    def job() -> Rdict:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(write_buffer_bytes)
        options.set_max_write_buffer_number(write_buffers_max)
        options.set_max_background_jobs(2)
        options.set_max_open_files(256)
        # RocksDB's own talk is kept short on disk, and not at all repeated every ten minutes.
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1 << 20)
        options.set_stats_dump_period_sec(0)
        # What a power cut left of the unsynced end of the log may have holes. Replay stops at the first one, before which every synced row
        # lies; the stricter modes would refuse to start after an ordinary power cut.
        options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        # Bounds the replay at the next start.
        options.set_max_total_wal_size(4 * write_buffer_bytes)
        table = BlockBasedOptions()
        table.set_block_cache(Cache(block_cache_bytes))
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        table.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
        options.set_block_based_table_factory(table)
        try:
            return Rdict(directory, options)
        except Exception as error:
            # rocksdict raises plain Exception here too.
            raise OSError(f"the index in {directory} cannot be opened: {error}") from error

    return RocksIndex(await lane.run(job), lane)
