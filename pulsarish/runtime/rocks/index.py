"""The ordered index on RocksDB: the only place that imports rocksdict.

rocksdict keeps the interpreter lock during ``write`` and during iteration. It releases it in
``get`` of a list and ``flush_wal``. The resulting rules, with measurements from the 2-core machine:

* A ``write`` is one RocksDB batch, whatever its size, because the seam promises all or nothing at a
  crash. The batch goes to the log unsynced (0.2-0.3 microseconds a row under the lock: 0.3 ms for
  1,000 rows, 2-4 ms for 10,000, 15-28 ms for 100,000). Then the lane syncs the log without the
  lock, and for a small batch a second thread syncs the evidence concurrently. A caller that needs
  no atomicity across many rows passes at most a few thousand a call.
* A write never waits inside RocksDB for a flush or a compaction, where it would freeze the whole
  process. RocksDB refuses it (``no_slowdown``) and the lane tries again, sleeping without the lock.
* Reads are by list. Scans are in pages of the caller's ``limit`` (0.4 microseconds a row), so
  ``limit`` must stay in the thousands.
* A scan through an unreadable block ends like one that found nothing more. After a scan with fewer
  rows than its limit, a second iterator at that place reports its status (2-3 microseconds).

RocksDB does not report that its log or manifest lost synced data; ``runtime.index_evidence``
explains how that is detected. The check reads the index before it is opened for writing, because
opening deletes logs and tables that RocksDB then considers useless.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import TypeVar, cast
from weakref import WeakValueDictionary

from google_crc32c import extend
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from pulsarish.model.errors import CorruptData
from pulsarish.runtime.files import make_directory, sync_directory
from pulsarish.runtime.lanes import Lane
from pulsarish.runtime.modes import FILE_MODE
from pulsarish.runtime.rocks.index_evidence import (
    COUNTER_KEY,
    REDO_BYTES_MAX,
    RESERVED,
    Counter,
    Redo,
    SyncedFile,
    missing_from,
    trail_keys,
    trail_row,
)
from pulsarish.runtime.rocks.rocks_log import recycled_record_at
from pulsarish.runtime.seams import IndexCorrupt

__all__ = [
    "IndexLook",
    "RocksIndex",
    "RocksSnapshot",
    "accept_index_loss",
    "look_at_index",
    "open_rocks_index",
    "open_rocks_snapshot",
    "replace_index",
    "synced_path",
]

T = TypeVar("T")

_BLOOM_BITS_PER_KEY = 10
_CORRUPT = "Corruption"  # how the text of RocksDB's status begins
_STALLED = "Write stall"
_STALL_RETRY_SECONDS = 0.005
# A disk that cannot complete a flush for this long is broken. The error then ends the node through
# its owner.
_STALL_SECONDS_MAX = 60.0
_OF_AN_INDEX = ("CURRENT", "MANIFEST")
_OF_A_MADE_INDEX = ("CURRENT", ".log", ".sst")
_READ_OF_AN_INDEX = ("CURRENT", "MANIFEST", "IDENTITY", "OPTIONS")
_SNAPSHOT_ATTEMPTS = 10
_SNAPSHOT_PAUSE_SECONDS = 0.05


class _Rows:
    """The reads of an open index. All work uses one lane."""

    def __init__(self, directory: str, database: Rdict, lane: Lane) -> None:
        self._directory = directory
        self._database = database
        self._lane = lane

    async def _run(self, job: Callable[[], T]) -> T:
        """Run a job on the lane and return its result.

        rocksdict raises plain ``Exception`` with RocksDB's status as its text; the seam promises
        ``OSError``.
        """

        def guarded() -> T:
            try:
                return job()
            except OSError:
                raise
            except Exception as error:
                kind = IndexCorrupt if str(error).startswith(_CORRUPT) else OSError
                raise kind(errno.EIO, f"the index in {self._directory} failed: {error}") from error

        return await self._lane.run(guarded)

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return await self._run(lambda: _get(self._database, keys)) if keys else []

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        end = min(end, RESERVED)
        if limit <= 0 or start >= end:
            return []
        return await self._run(lambda: self._scan(start, end, limit, reverse))

    def _scan(
        self, start: bytes, end: bytes, limit: int, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        options = ReadOptions()
        # The bound lets RocksDB stop behind it, instead of passing deleted rows up to the next live
        # one.
        options.set_iterate_upper_bound(end)
        found = self._database.items(
            backwards=reverse, from_key=end if reverse else start, read_opt=options
        )
        rows = cast("Iterator[tuple[bytes, bytes]]", found)
        if reverse:
            # rocksdict accepts a lower bound and ignores it.
            rows = takewhile(lambda row: row[0] >= start, rows)
        page = list(islice(rows, limit))
        if len(page) < limit:
            self._check_end(options, start, end, page, reverse)
        return page

    def _check_end(
        self,
        options: ReadOptions,
        start: bytes,
        end: bytes,
        page: list[tuple[bytes, bytes]],
        reverse: bool,
    ) -> None:
        """Raise where the scan broke off instead of ending: ``items`` does not expose its
        iterator's status.
        """
        rest = self._database.iter(options)
        if reverse:
            rest.seek_for_prev(page[-1][0] if page else end)
            if page and rest.valid() and rest.key() == page[-1][0]:
                rest.prev()
            ended = not rest.valid() or rest.key() < start
        else:
            rest.seek(page[-1][0] + b"\0" if page else start)
            ended = not rest.valid()
        rest.status()
        if not ended:
            raise OSError(
                errno.EIO, f"a scan of the index in {self._directory} broke off before its end"
            )


class RocksIndex(_Rows):
    """The production ``KeyValueIndex``. Made by ``open_rocks_index``."""

    def __init__(
        self,
        directory: str,
        database: Rdict,
        lane: Lane,
        synced_file: SyncedFile,
        counter: Counter,
        trail_bytes: int,
    ) -> None:
        super().__init__(directory, database, lane)
        self._synced_file = synced_file
        self._identity = _identity_of(directory)
        self._counter = counter
        self._trail_bytes = trail_bytes
        # the first write of each opening leaves a row in the trail
        self._untrailed_bytes = trail_bytes
        self._failure: Exception | None = None
        self.synced = counter.number
        self.stalls_count = 0
        """Writes that RocksDB refused because it was behind with its flushes, and that were tried
        again.
        """
        self._unsynced = WriteOptions()
        self._unsynced.sync = False
        self._unsynced.no_slowdown = True

    async def write(
        self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (), *, sync: bool
    ) -> None:
        """Write as the seam promises. Where a key is both put and deleted, the deletion wins."""

        def job() -> None:
            if self._failure is not None:
                raise OSError(
                    errno.EIO,
                    f"the index in {self._directory} takes no more writes, because one failed: "
                    f"{self._failure}",
                )
            try:
                if puts or deletes:
                    self._apply(puts, deletes, sync=sync)
                if sync and self.synced < self._counter.number:
                    self._sync()
            except Exception as error:
                # It is unknown what is durable, and a second sync would have nothing to do.
                self._failure = error
                raise

        await self._run(job)

    def _sync(self) -> None:
        self._database.flush_wal(True)
        if self._counter.number > self.synced:
            self._synced_file.write(self._counter.number)
            self.synced = self._counter.number

    def _apply(
        self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes], *, sync: bool
    ) -> None:
        size_bytes = sum(len(key) + len(value) for key, value in puts) + sum(map(len, deletes))
        number, trail = self._counter.number + 1, self._counter.trail
        own: list[tuple[bytes, bytes]] = []
        if self._untrailed_bytes + size_bytes >= self._trail_bytes:
            trail += 1
            own.append(trail_row(trail))
        counter = Counter(number, trail, self._counter.trail_base)
        own.append((COUNTER_KEY, counter.encode()))
        redo = b""
        if sync and self._counter.number == self.synced and size_bytes < REDO_BYTES_MAX:
            redo = Redo(self._identity, [*puts, *own], deletes).encode()
        if 0 < len(redo) <= REDO_BYTES_MAX:
            self._put_with_redo(puts, deletes, own, number, redo)
        else:
            self._put(puts, deletes, own)
        self._untrailed_bytes = (
            0 if trail > self._counter.trail else self._untrailed_bytes + size_bytes
        )
        self._counter = counter

    def _put_with_redo(
        self,
        puts: Sequence[tuple[bytes, bytes]],
        deletes: Sequence[bytes],
        own: Sequence[tuple[bytes, bytes]],
        number: int,
        redo: bytes,
    ) -> None:
        """Sync the log and the evidence at the same time.

        After a crash either may miss the write. If only the log has it, no caller was told that it
        was synced. If only the evidence has it, the next opening puts it into the log.
        """
        self._synced_file.begin(number, self._identity, redo)
        try:
            self._put(puts, deletes, own)
            self._database.flush_wal(True)
        finally:
            self._synced_file.finish()
        self.synced = number

    def _put(
        self,
        puts: Sequence[tuple[bytes, bytes]],
        deletes: Sequence[bytes],
        own: Sequence[tuple[bytes, bytes]],
    ) -> None:
        deadline = time.monotonic() + _STALL_SECONDS_MAX
        while True:
            # A new batch each time: rocksdict consumes it even when the write is refused. A refused
            # write has written nothing.
            batch = WriteBatch(raw_mode=True)
            for key, value in puts:
                batch.put(key, value)
            for key in deletes:
                batch.delete(key)
            for key, value in own:
                batch.put(key, value)
            try:
                self._database.write(batch, self._unsynced)
            except Exception as error:
                if _STALLED not in str(error) or time.monotonic() > deadline:
                    raise
                self.stalls_count += 1
                time.sleep(_STALL_RETRY_SECONDS)
            else:
                return

    async def close(self) -> None:
        def job() -> None:
            if self._failure is None:
                self._sync()
            self._synced_file.close()
            self._database.close()
            _ = _OPEN.pop(os.path.realpath(self._directory), None)

        await self._run(job)


# What this process has open. RocksDB's lock is a POSIX lock: it is released when its own process
# closes the lock file, through any descriptor.
_OPEN: WeakValueDictionary[str, RocksIndex] = WeakValueDictionary()


def synced_path(directory: str) -> str:
    """Return the file next to the index in ``directory`` that records up to where it was synced."""
    return directory.rstrip("/") + ".synced"


def _get(database: Rdict, keys: Sequence[bytes]) -> list[bytes | None]:
    # Typed for a single key; a list of keys gives a list.
    return cast("list[bytes | None]", database.get(list(keys)))


def _identity_of(directory: str) -> int:
    """Return what distinguishes this index from others: the name that RocksDB gave it when it made
    it.
    """
    try:
        with open(f"{directory}/IDENTITY", "rb") as file:
            return int(extend(0, file.read()))
    except FileNotFoundError:
        return 0


def _only_redo_missing(
    directory: str, counter: Counter, synced_file: SyncedFile, synced: int | None
) -> bool:
    """Whether the index misses exactly one write, and the evidence has it."""
    redo = synced_file.redo
    return (
        redo is not None
        and synced == counter.number + 1
        and redo.identity == _identity_of(directory) != 0
    )


def _apply_redo(database: Rdict, redo: Redo) -> None:
    batch = WriteBatch(raw_mode=True)
    for key, value in redo.puts:
        batch.put(key, value)
    for key in redo.deletes:
        batch.delete(key)
    database.write(batch)
    database.flush_wal(True)


def _counter_of(database: Rdict) -> Counter:
    return Counter.decode(_get(database, [COUNTER_KEY])[0])


def _options(write_buffer_bytes: int, write_buffers_max: int, block_cache_bytes: int) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(write_buffer_bytes)
    options.set_max_write_buffer_number(write_buffers_max)
    options.set_max_background_jobs(2)
    options.set_max_open_files(256)
    # RocksDB's own logs are kept short on disk, and are not repeated every ten minutes.
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    options.set_stats_dump_period_sec(0)
    # What a power cut left of the unsynced end of the log may have holes. Replay stops at the first
    # one, and the evidence shows whether all synced data lies before it. The stricter modes would
    # refuse to start after an ordinary power cut.
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    # Bounds the replay at the next start.
    options.set_max_total_wal_size(4 * write_buffer_bytes)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(block_cache_bytes))
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
    options.set_block_based_table_factory(table)
    return options


def _cannot_open(directory: str, error: Exception) -> Exception:
    """Return the error to raise. rocksdict raises plain ``Exception`` at open too."""
    text = f"the index in {directory} cannot be opened: {error}"
    # A missing file that the manifest or CURRENT names is as much damage as a file with a bad
    # checksum.
    damaged = "Corruption" in str(error) or "No such file" in str(error)
    return CorruptData(text) if damaged else OSError(errno.EIO, text)


def _refuse_second_opener(directory: str) -> int:
    """Hold RocksDB's lock until the descriptor is closed.

    Raises ``OSError`` when another opener has it.
    """
    if os.path.realpath(directory) in _OPEN:
        raise OSError(
            errno.EAGAIN, f"the index in {directory} cannot be opened: it is open already"
        )
    descriptor = os.open(f"{directory}/LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise OSError(
            errno.EAGAIN, f"the index in {directory} cannot be opened: another process has it"
        ) from error
    return descriptor


def _check_readable(path: str) -> None:
    with open(path, "rb") as file:
        at = recycled_record_at(file.read())
    if at is not None:
        raise CorruptData(
            f"{path} is damaged at offset {at}: the record there is of an unknown type; nothing "
            "was changed"
        )


class _Overtaken(OSError):
    """The owner of an index deleted a file that was about to be read."""

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(
            errno.EAGAIN,
            f"the index in {directory} cannot be opened: its owner deleted {name} meanwhile; try "
            "again",
        )


class RocksSnapshot(_Rows):
    """A ``KeyValueIndex`` of what another process had written when it was opened.

    It is never written. Made by ``open_rocks_snapshot``.
    """

    def __init__(self, directory: str, database: Rdict, lane: Lane, look: IndexLook) -> None:
        super().__init__(directory, database, lane)
        self.synced = look.synced or 0
        self.missing = look.missing
        """Description of what the index lost; empty when it is complete."""

    async def write(
        self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (), *, sync: bool
    ) -> None:
        """Raise ``OSError``: the index belongs to another process."""
        raise OSError(errno.EROFS, f"the index in {self._directory} is open for reads only")

    async def close(self) -> None:
        await self._run(self.discard)

    def discard(self) -> None:
        """Close the files, in a job of the lane."""
        self._database.close()


async def open_rocks_snapshot(directory: str, *, lane: Lane) -> RocksSnapshot:
    """Open the index in ``directory`` as it is now, while another process may write to it.

    Takes no lock and writes nothing there. Rows that were not synced when it was opened may be
    missing. Raises ``CorruptData`` when it cannot be read, ``OSError``, among others when its owner
    deleted files during each of several attempts.
    """

    def job() -> RocksSnapshot:
        for _ in range(_SNAPSHOT_ATTEMPTS - 1):
            with contextlib.suppress(CorruptData, _Overtaken):
                found = _snapshot(directory, lane)
                if not found.missing:
                    return found
                found.discard()
            # The index may have moved on between two of the looks at it.
            time.sleep(_SNAPSHOT_PAUSE_SECONDS)
        return _snapshot(directory, lane)

    return await lane.run(job)


def _snapshot(directory: str, lane: Lane) -> RocksSnapshot:
    synced_file = SyncedFile(synced_path(directory))
    damage, synced = "", None
    try:
        # Before the index is read: it can only be newer than this.
        synced = synced_file.read()
    except CorruptData as error:
        damage = str(error)
    options = _options(4 << 20, 3, 8 << 20)
    # All files are opened at once, so that none is missed when its name is gone.
    options.set_max_open_files(-1)
    if not os.path.isfile(f"{directory}/CURRENT"):
        raise CorruptData(f"there is no index in {directory}")
    # RocksDB writes some files even for an opener that only reads. They go into a directory of
    # links to the files of the index.
    with tempfile.TemporaryDirectory(prefix="pulsarish-index-") as links:
        for name in os.listdir(directory):
            if name.startswith(_READ_OF_AN_INDEX) or name.endswith(_OF_A_MADE_INDEX):
                os.symlink(os.path.realpath(f"{directory}/{name}"), f"{links}/{name}")
        for name in os.listdir(links):
            if name.endswith(".log") or name.startswith("MANIFEST"):
                try:
                    _check_readable(f"{links}/{name}")
                except FileNotFoundError as error:
                    raise _Overtaken(directory, name) from error
        try:
            database = Rdict(links, options, access_type=AccessType.read_only())
            look = _look_at(directory, database, synced_file, synced)
        except Exception as error:
            raise _cannot_open(directory, error) from error
    if damage:
        look = replace(look, missing=damage)
    return RocksSnapshot(directory, database, lane, look)


@dataclass(frozen=True, slots=True)
class IndexLook:
    """The content of an index that was not opened for writing."""

    last_write: int
    synced: int | None
    missing: str
    """Description of what is missing; empty when the index is complete."""
    newest_log: str


def look_at_index(directory: str) -> IndexLook:
    """Inspect an existing index without changing it.

    Raises ``CorruptData`` when it cannot be read, ``OSError`` when it is in use.
    """
    damage = ""
    synced_file = SyncedFile(synced_path(directory))
    try:
        synced = synced_file.read()
    except CorruptData as error:
        synced, damage = None, str(error)
    look = _look(directory, _options(4 << 20, 3, 8 << 20), synced_file, synced)
    return replace(look, missing=damage) if damage else look


def _look(
    directory: str, options: Options, synced_file: SyncedFile, synced: int | None
) -> IndexLook:
    lock = _refuse_second_opener(directory)
    try:
        names = sorted(os.listdir(directory))
        logs = [name for name in names if name.endswith(".log")]
        for name in names:
            if name in logs or name.startswith("MANIFEST"):
                _check_readable(f"{directory}/{name}")
        try:
            database = Rdict(directory, options, access_type=AccessType.read_only())
            try:
                return _look_at(directory, database, synced_file, synced, logs)
            finally:
                database.close()
        except Exception as error:
            raise _cannot_open(directory, error) from error
    finally:
        os.close(lock)


def _look_at(
    directory: str,
    database: Rdict,
    synced_file: SyncedFile,
    synced: int | None,
    logs: Sequence[str] = (),
) -> IndexLook:
    counter = _counter_of(database)
    expected = (
        counter.number if _only_redo_missing(directory, counter, synced_file, synced) else synced
    )
    missing = missing_from(
        counter, _get(database, trail_keys(counter)) if counter.trail else [], expected
    )
    return IndexLook(
        counter.number, synced, missing, f"{directory}/{logs[-1]}" if logs else "(there is none)"
    )


async def open_rocks_index(
    directory: str,
    *,
    lane: Lane,
    write_buffer_bytes: int = 4 << 20,
    write_buffers_max: int = 3,
    block_cache_bytes: int = 8 << 20,
) -> RocksIndex:
    """Open or make the index in ``directory``.

    The file ``directory.synced`` next to it records up to where it was synced.

    Memory is at most ``write_buffer_bytes * write_buffers_max + block_cache_bytes``. The filters of
    the open files live in the block cache. Raises ``OSError`` when another process holds the
    directory's lock, ``CorruptData`` when its content is damaged or synced data is missing; then
    nothing there was changed.
    """

    def job() -> RocksIndex:
        synced_file = SyncedFile(synced_path(directory))
        synced = synced_file.read()
        names = os.listdir(directory) if os.path.isdir(directory) else []
        # A process that was killed while it made the index may have left a manifest, and has
        # written nothing there.
        half_made = synced == 0 and not any(name.endswith(_OF_A_MADE_INDEX) for name in names)
        made = not half_made and any(name.startswith(_OF_AN_INDEX) for name in names)
        options = _options(write_buffer_bytes, write_buffers_max, block_cache_bytes)
        try:
            if made:
                look = _look(directory, options, synced_file, synced)
                if look.missing:
                    raise CorruptData(
                        f"the index in {directory} lacks what was synced: {look.missing}. Its "
                        f"newest log {look.newest_log}, an older one or its manifest is damaged; "
                        "nothing was changed"
                    )
            elif synced:
                raise CorruptData(
                    f"the index in {directory} is gone: all up to its write {synced} was synced"
                )
            # The directory's own name must be durable before anything in it counts as synced;
            # RocksDB does not sync its parent.
            make_directory(directory)
            if not made:
                sync_directory(os.path.dirname(directory.rstrip("/")) or ".")
            if synced is None:
                synced_file.create(0)
            database = Rdict(directory, options)
            counter = _counter_of(database)
            if synced_file.redo is not None and _only_redo_missing(
                directory, counter, synced_file, synced
            ):
                _apply_redo(database, synced_file.redo)
                counter = _counter_of(database)
            if counter.number > (synced or 0):
                # The opening made durable what was not synced before. It is served from now on.
                synced_file.write(counter.number)
            # The trail has about sixteen rows in each of RocksDB's tables.
            index = RocksIndex(
                directory, database, lane, synced_file, counter, max(1, write_buffer_bytes // 16)
            )
        except (OSError, CorruptData):
            raise
        except Exception as error:
            raise _cannot_open(directory, error) from error
        _OPEN[os.path.realpath(directory)] = index
        return index

    return await lane.run(job)


def accept_index_loss(directory: str) -> tuple[int, int]:
    """Accept what is left of the index in ``directory`` as complete; an operator's decision.

    Returns the number of the last write that exists, and the number up to which it was synced (-1:
    not known). No process has the index open. Raises ``OSError``, ``CorruptData`` for an index that
    cannot be read at all.
    """
    synced_file = SyncedFile(synced_path(directory))
    try:
        known = synced_file.read()
    except CorruptData:
        known = None
    _ = _look(directory, _options(4 << 20, 3, 8 << 20), synced_file, known)
    synced = -1 if known is None else known
    try:
        database = Rdict(directory, _options(4 << 20, 3, 8 << 20))
        try:
            found = _counter_of(database)
            if synced_file.redo is not None and _only_redo_missing(
                directory, found, synced_file, known
            ):
                _apply_redo(database, synced_file.redo)
                found = _counter_of(database)
            number = max(found.number, synced) + 1
            batch = WriteBatch(raw_mode=True)
            batch.put(COUNTER_KEY, Counter(number, found.trail, found.trail).encode())
            database.write(batch)
            database.flush_wal(True)
            synced_file.create(number)
        finally:
            database.close()
    except (OSError, CorruptData):
        raise
    except Exception as error:
        raise _cannot_open(directory, error) from error
    return found.number, synced


def replace_index(new: str, directory: str) -> str:
    """Put the closed index ``new`` in the place of the one in ``directory``, and keep the old one
    under another name.

    Return that name.

    Raises ``OSError``. After an interruption ``directory`` may have no index, or one that misses
    synced data.
    """
    number = 1
    while os.path.exists(aside := f"{directory}.old-{number}") or os.path.exists(
        synced_path(aside)
    ):
        number += 1
    for source, target in ((directory, aside), (new, directory)):
        for path, name in ((source, target), (synced_path(source), synced_path(target))):
            if os.path.exists(path):
                os.rename(path, name)
    parent = os.open(os.path.dirname(directory) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
    return aside
