"""``KeyValueIndex`` of a simulated node: batches are whole, and a crash loses the unsynced ones as a suffix, as RocksDB's log does."""

from __future__ import annotations

import errno
import random
from bisect import bisect_left, insort
from collections.abc import Sequence

from pulsarish.sim.disk import DiskFault, SimDisk
from pulsarish.sim.lanes import Job, Lane
from pulsarish.sim.nodes import Process

__all__ = ["IndexState", "SimIndex"]

Batch = tuple[Sequence[tuple[bytes, bytes]], Sequence[bytes]]


class IndexState:
    """The rows of one index on a node's disk; outlives its openers."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []  # sorted
        self.unsynced: list[Batch] = []
        self.opener: SimIndex | None = None
        self._durable: dict[bytes, bytes] = {}

    def write(self, batch: Batch) -> None:
        puts, deletes = batch
        for key, value in puts:
            if key not in self.rows:
                insort(self.keys, key)
            self.rows[key] = value
        for key in deletes:
            if self.rows.pop(key, None) is not None:
                del self.keys[bisect_left(self.keys, key)]
        self.unsynced.append(batch)

    def sync(self, count: int, *, lost: bool = False) -> None:
        if not lost:
            for puts, deletes in self.unsynced[:count]:
                self._durable.update(puts)
                for key in deletes:
                    self._durable.pop(key, None)
        del self.unsynced[:count]

    def crash(self, random_stream: random.Random) -> None:
        """Keep a drawn number of the unsynced batches, from the oldest on."""
        self.sync(random_stream.randint(0, len(self.unsynced)))
        self.unsynced.clear()
        self.rows = dict(self._durable)
        self.keys = sorted(self.rows)
        self.opener = None


class SimIndex:
    """An open index. ``directory`` names it on the node's disk."""

    def __init__(self, disk: SimDisk, directory: str, process: Process, lane: Lane) -> None:
        self._disk = disk
        self._directory = directory
        self._process = process
        self._lane = lane
        self._closed = False
        state = disk.indexes.setdefault(directory, IndexState())
        if state.opener is not None:
            raise OSError(errno.EAGAIN, f"the index in {directory} cannot be opened: it is open already")
        state.opener = self
        self._state = state

    async def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (), *, sync: bool) -> None:
        def job() -> Job[None]:
            state = self._check_open()
            yield self._disk.draw_write_seconds()
            if puts or deletes:
                self._disk.need(self._directory, 1)
                state.write((list(puts), list(deletes)))
            if sync:
                count = len(state.unsynced)
                yield self._disk.draw_sync_seconds()
                lost = self._disk.sync_fails(self._directory)
                state.sync(count, lost=lost)
                if lost:
                    raise DiskFault(errno.EIO, f"{self._disk.name}: cannot sync the index in {self._directory}", self._directory)

        await self._lane.run(job())

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        def job() -> Job[list[bytes | None]]:
            state = self._check_open()
            yield self._disk.draw_read_seconds()
            self._disk.check_readable(self._directory, None)
            return [state.rows.get(key) for key in keys]

        return await self._lane.run(job())

    async def scan(self, start: bytes, end: bytes, *, limit: int, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        def job() -> Job[list[tuple[bytes, bytes]]]:
            state = self._check_open()
            yield self._disk.draw_read_seconds()
            self._disk.check_readable(self._directory, None)
            first, behind = bisect_left(state.keys, start), bisect_left(state.keys, end)
            count = max(0, min(limit, behind - first))
            keys = state.keys[behind - count : behind][::-1] if reverse else state.keys[first : first + count]
            return [(key, state.rows[key]) for key in keys]

        return await self._lane.run(job())

    async def close(self) -> None:
        def job() -> Job[None]:
            state = self._check_open()
            yield self._disk.draw_sync_seconds()
            state.sync(len(state.unsynced), lost=self._disk.sync_fails(self._directory))
            state.opener = None
            self._closed = True

        await self._lane.run(job())

    def _check_open(self) -> IndexState:
        if self._closed:
            raise OSError(errno.EBADF, f"the index in {self._directory} is closed")
        return self._state
