"""``KeyValueIndex`` of a simulated node.

A batch is applied whole or not at all. A crash loses the unsynced batches as a suffix, as RocksDB's
log does. Synced data may be damaged.

Like RocksDB it has tables, and a log of the batches that no table has yet. A bad record in the log
hides all batches from there on at the next opening. A bad block in the tables makes its rows
unreadable. A copy of an earlier time may replace the whole index.
"""

from __future__ import annotations

import errno
import random
from bisect import bisect_left, insort
from collections.abc import Sequence
from copy import copy

from pulsarish.model.errors import CorruptData
from pulsarish.runtime.rocks import index_evidence
from pulsarish.sim.world.disk import DiskFault, SimDisk
from pulsarish.sim.world.lanes import Job, Lane
from pulsarish.sim.world.nodes import Process

__all__ = ["INDEX_DAMAGE", "IndexState", "SimIndex"]

Batch = tuple[Sequence[tuple[bytes, bytes]], Sequence[bytes]]

INDEX_DAMAGE = ("log", "block", "cut", "older", "evidence")
"""Kinds of damage to an index on disk.

* ``log``: a bit of its log is flipped.
* ``block``: a bit of a block of its tables is flipped.
* ``cut``: its log loses its end.
* ``older``: an older copy replaces it.
* ``evidence``: the file next to it is gone, which says up to where it was synced.
"""

LOG_BATCHES_MAX = 200
STALL_CHANCE = 0.002
STALL_SECONDS = 0.3


class IndexState:
    """The rows of one index on a node's disk. They outlive the processes that open it."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []  # sorted
        self.unsynced: list[Batch] = []
        self.opener: SimIndex | None = None
        self.number = 0
        """The number of the last write."""
        self.synced = 0
        """The write up to which everything was synced, as the file next to the index says."""
        self._tables: dict[bytes, bytes] = {}
        self._tables_number = 0
        self._log: list[Batch] = []  # durable
        self._readable = LOG_BATCHES_MAX + 1  # batches of the log that can be read
        self._bad: tuple[bytes, bytes] | None = None  # first and last row of an unreadable block
        self._evidence_lost = False

    def open(self, name: str) -> None:
        """Read the log.

        Raises ``CorruptData``, and changes nothing, when synced batches of the log cannot be read.
        """
        last = self._tables_number + min(len(self._log), self._readable)
        evidence = None if self._evidence_lost else self.synced
        # The same decision as in production. There is no trail here: this index never loses a table
        # below newer ones.
        missing = index_evidence.missing_from(index_evidence.Counter(last, 0, 0), [], evidence)
        if missing:
            raise CorruptData(f"the index in {name} lacks what was synced: {missing}")
        self._evidence_lost = False
        del self._log[self._readable :]
        self.rows = dict(self._tables)
        for batch in self._log:
            _apply(self.rows, batch)
        self.keys = sorted(self.rows)
        self.number = self.synced = last
        self.unsynced.clear()
        self._flush()

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
        self.number += 1

    def sync(self, count: int) -> None:
        """Make the oldest ``count`` unsynced batches durable."""
        self._log += self.unsynced[:count]
        del self.unsynced[:count]
        self.synced = max(self.synced, self._tables_number + len(self._log))
        if len(self._log) >= LOG_BATCHES_MAX:
            self._flush()

    def _flush(self) -> None:
        """Move the batches from memory into the tables and begin the log again."""
        for batch in self._log:
            _apply(self._tables, batch)
        self._tables_number += len(self._log)
        self._log.clear()
        self._readable = LOG_BATCHES_MAX + 1

    def close(self) -> None:
        self._flush()
        self.opener = None

    def crash(self, random_stream: random.Random) -> None:
        """Keep a drawn number of the unsynced batches, from the oldest on."""
        self._log += self.unsynced[: random_stream.randint(0, len(self.unsynced))]
        self.unsynced.clear()
        self.opener = None

    # Faults.

    def check_readable(self, name: str, first: bytes, last: bytes) -> None:
        """Raise ``OSError`` when rows of a bad block are between ``first`` and ``last``, both
        included.
        """
        if self._bad is not None and first <= self._bad[1] and last >= self._bad[0]:
            raise DiskFault(
                errno.EIO, f"a block of the index in {name} does not match its checksum", name
            )

    def rot_log(self, random_stream: random.Random) -> bool:
        """Spoil a record of the log. Return whether the log has any."""
        if self._log:
            self._readable = min(self._readable, random_stream.randrange(len(self._log)))
        return bool(self._log)

    @property
    def has_bad_block(self) -> bool:
        """Whether some rows cannot be read."""
        return self._bad is not None

    def rot_block(self, random_stream: random.Random) -> bool:
        """Spoil a block of the tables. Return whether the tables have any."""
        keys = sorted(self._tables)
        if keys:
            at = random_stream.randrange(len(keys))
            self._bad = (keys[at], keys[min(len(keys) - 1, at + random_stream.randrange(20))])
        return bool(keys)

    def cut_log(self, random_stream: random.Random) -> bool:
        """Lose the last batches of the log. Return whether the log has any."""
        if self._log:
            del self._log[random_stream.randrange(len(self._log)) :]
            return True
        return False

    def lose_evidence(self) -> bool:
        """Lose the file next to the index. Return whether the file said anything."""
        self._evidence_lost = True
        return self.synced > 0

    def snapshot(self) -> IndexState:
        """Return a copy of what is durable, and of the file next to the index."""
        other = copy(self)
        other._tables, other._log = dict(self._tables), list(self._log)
        other.rows, other.keys, other.unsynced, other.opener = {}, [], [], None
        return other


def _apply(rows: dict[bytes, bytes], batch: Batch) -> None:
    rows.update(batch[0])
    for key in batch[1]:
        rows.pop(key, None)


class SimIndex:
    """An open index. ``directory`` names it on the node's disk."""

    def __init__(self, disk: SimDisk, directory: str, process: Process, lane: Lane) -> None:
        self._disk = disk
        self._directory = directory
        self._process = process
        self._lane = lane
        self._closed = False
        self._failure: OSError | None = None
        disk.check_alive(directory)
        state = disk.indexes.setdefault(directory, IndexState())
        if state.opener is not None:
            raise OSError(
                errno.EAGAIN, f"the index in {directory} cannot be opened: it is open already"
            )
        state.open(directory)
        state.opener = self
        self._state = state

    @property
    def synced(self) -> int:
        return self._state.synced

    async def write(
        self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (), *, sync: bool
    ) -> None:
        def job() -> Job[None]:
            state = self._check_open()
            if self._failure is not None:
                text = (
                    f"the index in {self._directory} takes no more writes, because one "
                    f"failed: {self._failure}"
                )
                raise DiskFault(errno.EIO, text, self._directory)
            try:
                yield from self._write(state, puts, deletes, sync)
            except OSError as error:
                self._failure = error
                raise

        await self._lane.run(job())

    def _write(
        self,
        state: IndexState,
        puts: Sequence[tuple[bytes, bytes]],
        deletes: Sequence[bytes],
        sync: bool,
    ) -> Job[None]:
        yield self._disk.draw_write_seconds()
        if puts or deletes:
            if self._disk.random.random() < STALL_CHANCE:
                yield self._disk.random.random() * STALL_SECONDS
            self._disk.need(self._directory, 1)
            state.write((list(puts), list(deletes)))
        if sync:
            count = len(state.unsynced)
            yield self._disk.draw_sync_seconds()
            if self._disk.sync_fails(self._directory):
                # The batches count as clean but are not durable.
                del state.unsynced[:count]
                raise DiskFault(
                    errno.EIO,
                    f"{self._disk.name}: cannot sync the index in {self._directory}",
                    self._directory,
                )
            state.sync(count)

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        def job() -> Job[list[bytes | None]]:
            state = self._check_open()
            yield self._disk.draw_read_seconds()
            self._disk.check_readable(self._directory, None)
            for key in keys:
                state.check_readable(self._directory, key, key)
            return [state.rows.get(key) for key in keys]

        return await self._lane.run(job())

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        def job() -> Job[list[tuple[bytes, bytes]]]:
            state = self._check_open()
            yield self._disk.draw_read_seconds()
            self._disk.check_readable(self._directory, None)
            first, behind = bisect_left(state.keys, start), bisect_left(state.keys, end)
            count = max(0, min(limit, behind - first))
            keys = (
                state.keys[behind - count : behind][::-1]
                if reverse
                else state.keys[first : first + count]
            )
            if keys:
                # A page that is not full was read to its end.
                low, high = min(keys[0], keys[-1]), max(keys[0], keys[-1])
                state.check_readable(
                    self._directory, start if reverse and count < limit else low, high
                )
            return [(key, state.rows[key]) for key in keys]

        return await self._lane.run(job())

    async def close(self) -> None:
        def job() -> Job[None]:
            state = self._check_open()
            self._closed = True
            if self._failure is None:
                yield from self._write(state, (), (), True)
            state.close()

        await self._lane.run(job())

    def _check_open(self) -> IndexState:
        if self._closed:
            raise OSError(errno.EBADF, f"the index in {self._directory} is closed")
        return self._state
