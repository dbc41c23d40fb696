"""Real files on lanes.

Promises of ``Files`` that need care here. A new file's name is durable before a caller can
acknowledge what is in it. After a crash a replaced file has either the old or the new content. A
journal's ``fdatasync`` carries no change of size, because its space was written with real zeroes
beforehand (rule 9 of the guarantees). No call retries: after a failed write or sync the page cache
cannot be trusted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Sequence

from pulsarish.runtime.disk_errors import named
from pulsarish.runtime.lanes import Lane, Lanes
from pulsarish.runtime.modes import DIRECTORY_MODE, FILE_MODE
from pulsarish.runtime.seams import Buffer, File, Locked

__all__ = ["LocalFile", "LocalFiles", "ReadOnlyFiles", "make_directory", "sync_directory"]

_LOCK_NAME = "LOCK"
_REPLACING = ".replacing"
_PARTS_MAX = os.sysconf("SC_IOV_MAX")
_ZERO_BYTES = 1 << 20
# Directory work (list, replace, rename, remove, lock) is rare and has its own lane, away from every
# journal.
_DIRECTORY_LANE = "files"


class LocalFile:
    """An open file and the lane of all its work. Made by ``LocalFiles.open``."""

    __slots__ = ("_descriptor", "_lane", "path")

    def __init__(self, path: str, descriptor: int, lane: Lane) -> None:
        self.path = path
        self._descriptor = descriptor
        self._lane = lane

    async def write(self, offset_bytes: int, parts: Sequence[Buffer], *, sync: bool) -> None:
        def job() -> None:
            try:
                if parts:
                    _write_all(self._descriptor, offset_bytes, parts)
                if sync:
                    os.fdatasync(self._descriptor)
            except OSError as error:
                raise named(error, self.path) from None

        await self._lane.run(job)

    async def read(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        return await self._lane.run(
            lambda: [_read_all(self._descriptor, offset, size) for offset, size in spans]
        )

    async def truncate(self, size_bytes: int) -> None:
        await self._lane.run(lambda: os.ftruncate(self._descriptor, size_bytes))

    async def size_bytes(self) -> int:
        return await self._lane.run(lambda: os.fstat(self._descriptor).st_size)

    async def drop_cached(self) -> None:
        def job() -> None:
            # Not every system and file system has it, and no work may fail for want of advice.
            with contextlib.suppress(AttributeError, OSError):
                os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

        await self._lane.run(job)

    async def close(self) -> None:
        def job() -> None:
            # Later jobs find descriptor -1 and fail with EBADF. They never reach another file that
            # got the same number.
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)

        await self._lane.run(job)


class LocalFiles:
    """The production ``Files``. The lanes belong to the caller, who closes them."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        # Held until the process ends or ``release`` is called: closing the descriptor releases the
        # lock.
        self._locks: dict[str, int] = {}
        # the directories that were made for each lock, deepest first
        self._made: dict[str, list[str]] = {}

    async def open(
        self, path: str, *, lane: str, create: bool = False, reserve_bytes: int = 0
    ) -> File:
        thread = self._lanes.get(lane)
        descriptor = await thread.run(
            lambda: (
                _create(path, reserve_bytes) if create else os.open(path, os.O_RDWR | os.O_CLOEXEC)
            )
        )
        return LocalFile(path, descriptor, thread)

    async def replace(self, path: str, content: bytes) -> None:
        await self._lanes.get(_DIRECTORY_LANE).run(lambda: _replace(path, content))

    async def rename(self, path: str, new_path: str) -> None:
        await self._lanes.get(_DIRECTORY_LANE).run(lambda: _rename(path, new_path))

    async def remove(self, paths: Sequence[str]) -> None:
        await self._lanes.get(_DIRECTORY_LANE).run(lambda: _remove(paths))

    async def list(self, directory: str) -> Sequence[str]:
        """Return the names in a directory, as the seam promises, without this module's own lock and
        half-replaced files.
        """
        return await self._lanes.get(_DIRECTORY_LANE).run(lambda: _list(directory))

    async def free_bytes(self, directory: str) -> int:
        def job() -> int:
            # f_bavail, not f_bfree: a node cannot use what is reserved for root.
            status = os.statvfs(directory)
            return status.f_bavail * status.f_frsize

        return await self._lanes.get(_DIRECTORY_LANE).run(job)

    async def lock(self, directory: str) -> None:
        def job() -> None:
            made = _missing(directory)
            try:
                self._locks[directory] = _lock(directory)
            except OSError:
                _remove_empty(made)
                raise
            self._made[directory] = made

        await self._lanes.get(_DIRECTORY_LANE).run(job)

    async def unlock(self, directory: str) -> None:
        def job() -> None:
            descriptor, made = self._locks.pop(directory), self._made.pop(directory)
            if made:
                # A process that has opened the file already will see that it has another one.
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(directory, _LOCK_NAME))
            os.close(descriptor)
            _remove_empty(made)

        await self._lanes.get(_DIRECTORY_LANE).run(job)

    def release(self) -> None:
        """Release the directory locks, for a node that ends while its process lives on (tests,
        ``standalone``).
        """
        for descriptor in self._locks.values():
            os.close(descriptor)
        self._locks.clear()
        self._made.clear()


class ReadOnlyFiles(LocalFiles):
    """``Files`` of directories that belong to another process: no call changes anything there.

    Every call that would raises ``OSError``.
    """

    async def open(
        self, path: str, *, lane: str, create: bool = False, reserve_bytes: int = 0
    ) -> File:
        if create:
            raise _read_only(path)
        thread = self._lanes.get(lane)
        descriptor = await thread.run(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return LocalFile(path, descriptor, thread)

    async def replace(self, path: str, content: bytes) -> None:
        raise _read_only(path)

    async def rename(self, path: str, new_path: str) -> None:
        raise _read_only(path)

    async def remove(self, paths: Sequence[str]) -> None:
        raise _read_only(", ".join(paths))

    async def lock(self, directory: str) -> None:
        raise _read_only(directory)

    async def unlock(self, directory: str) -> None:
        raise _read_only(directory)


def _read_only(path: str) -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS), path)


def _write_all(descriptor: int, offset_bytes: int, parts: Sequence[Buffer]) -> None:
    """Write all parts at the offset.

    The kernel accepts at most ``IOV_MAX`` parts a call and may write fewer bytes than it was given.
    """
    for first in range(0, len(parts), _PARTS_MAX):
        left: list[Buffer] = list(parts[first : first + _PARTS_MAX])
        while left:
            written = os.pwritev(descriptor, left, offset_bytes)
            offset_bytes += written
            done_count = 0
            while done_count < len(left) and written >= memoryview(left[done_count]).nbytes:
                written -= memoryview(left[done_count]).nbytes
                done_count += 1
            left = left[done_count:]
            if written:
                left[0] = memoryview(left[0]).cast("B")[written:]


def _read_all(descriptor: int, offset_bytes: int, size_bytes: int) -> bytes:
    """Return up to ``size_bytes``; fewer only at the end of the file."""
    data = os.pread(descriptor, size_bytes, offset_bytes)
    if len(data) == size_bytes or not data:
        return data
    parts = [data]
    got_bytes = len(data)
    while got_bytes < size_bytes and (
        data := os.pread(descriptor, size_bytes - got_bytes, offset_bytes + got_bytes)
    ):
        parts.append(data)
        got_bytes += len(data)
    return b"".join(parts)


def sync_directory(directory: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise named(error, directory) from None
    finally:
        os.close(descriptor)


def _directory_of(path: str) -> str:
    return os.path.dirname(path) or "."


def make_directory(directory: str) -> None:
    """Make a directory and its missing parents, and sync each name in its parent.

    Only the owner may read them.
    """
    if os.path.isdir(directory):
        return
    parent = _directory_of(directory.rstrip("/"))
    make_directory(parent)
    try:
        os.mkdir(directory, DIRECTORY_MODE)
    except FileExistsError:
        # Another node or lane made it at the same time; anything else of that name is an error.
        if not os.path.isdir(directory):
            raise
    sync_directory(parent)


def _create(path: str, reserve_bytes: int) -> int:
    make_directory(_directory_of(path))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        if reserve_bytes:
            # Allocation finds a full disk at once and keeps the blocks together. It leaves extents
            # marked as unwritten, and the first write to each would make fdatasync commit file
            # system metadata again: hence the zeroes.
            os.posix_fallocate(descriptor, 0, reserve_bytes)
            zeroes = bytes(min(_ZERO_BYTES, reserve_bytes))
            for offset_bytes in range(0, reserve_bytes, len(zeroes)):
                _write_all(descriptor, offset_bytes, [zeroes[: reserve_bytes - offset_bytes]])
        os.fsync(descriptor)
        sync_directory(_directory_of(path))
    except BaseException as error:
        # Half a reservation is useless and would be in the way of the next attempt.
        os.close(descriptor)
        os.unlink(path)
        if isinstance(error, OSError):
            named(error, path)
        raise
    return descriptor


def _replace(path: str, content: bytes) -> None:
    directory = _directory_of(path)
    make_directory(directory)
    temporary = path + _REPLACING
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        _write_all(descriptor, 0, [content])
        os.fsync(descriptor)
    except OSError as error:
        raise named(error, temporary) from None
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    sync_directory(directory)


def _rename(path: str, new_path: str) -> None:
    directory = _directory_of(path)
    assert _directory_of(new_path) == directory, "a file keeps its directory"
    # ``os.rename`` would replace a file of that name. No other process makes one in between: the
    # directory is locked.
    if os.path.lexists(new_path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_path)
    os.rename(path, new_path)
    sync_directory(directory)


def _remove(paths: Sequence[str]) -> None:
    # A dictionary for its order: directories are synced in the order in which they were first
    # named.
    touched: dict[str, None] = {}
    for path in paths:
        # Sync the directory of a missing file all the same: an earlier removal may have been
        # interrupted before its sync.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        touched[_directory_of(path)] = None
    for directory in touched:
        if os.path.isdir(directory):
            sync_directory(directory)


def _list(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name != _LOCK_NAME and not name.endswith(_REPLACING))


def _close_to_others(directory: str) -> None:
    """Give a directory that any user of the machine may read the mode of a new one, if it belongs
    to this process's user.
    """
    status = os.stat(directory)
    if status.st_mode & stat.S_IRWXO and status.st_uid == os.geteuid():
        os.chmod(directory, DIRECTORY_MODE)


def _missing(directory: str) -> list[str]:
    """Return the directory and those above it that do not exist, deepest first."""
    found: list[str] = []
    path = directory.rstrip("/")
    while path and not os.path.lexists(path):
        found.append(path)
        path = os.path.dirname(path)
    return found


def _remove_empty(directories: Sequence[str]) -> None:
    """Remove directories, deepest first, up to one that is in use."""
    for path in directories:
        try:
            os.rmdir(path)
        except OSError:
            return


def _lock(directory: str) -> int:
    path = os.path.join(directory, _LOCK_NAME)
    while True:
        make_directory(directory)
        _close_to_others(directory)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        _lock_file(directory, path, descriptor)
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)  # the former holder has removed the file: another process may have one


def _lock_file(directory: str, path: str, descriptor: int) -> None:
    """Lock an open file, or close it."""
    try:
        # The kernel releases the lock when the process dies, however it dies. The number inside is
        # only for the reader of the error.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            text = (
                f"the directory {directory} is in use by process {holder or 'unknown'}; stop "
                "it or give another directory"
            )
            raise Locked(text) from None
        raise named(error, path) from None


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
