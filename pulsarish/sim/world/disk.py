"""A node's simulated disk: what is durable, what is only in the page cache, and what a crash leaves
of the page cache.

The disk outlives the processes of its node. Files are inodes with a durable content and the changes
since then. Names (create, rename, remove) become durable when their directory is synced. A crash
keeps any torn subset of both, down to sectors of 512 bytes. A failed ``fsync`` behaves as on Linux:
the error is reported once, the pages count as clean, and their content is lost at the next crash.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsarish.runtime.seams import Locked

if TYPE_CHECKING:
    from pulsarish.sim.world.index import IndexState
    from pulsarish.sim.world.nodes import Process

__all__ = [
    "CAPACITY_BYTES",
    "Content",
    "DiskFault",
    "DiskImage",
    "Inode",
    "SimDisk",
    "directory_of",
    "injected_fault",
]

SECTOR_BYTES = 512
CAPACITY_BYTES = 1 << 40
WRITE_SECONDS = 0.00003
READ_SECONDS = 0.0001
SYNC_SECONDS = 0.002
SLOW_SYNC_CHANCE = 0.01  # a drive that tidies up
SLOW_SYNC_SECONDS = 0.1
SYNC_SECONDS_MAX = 10.0  # a sync may outlast a fault that slows the disk down, not the run


class DiskFault(OSError):
    """An injected fault of a simulated disk.

    Nothing else raises it. ``path`` is the file or index that it happened to.
    """

    def __init__(self, number: int, what: str, path: str) -> None:
        super().__init__(number, what)
        self.path = path


def injected_fault(error: BaseException) -> DiskFault | None:
    """Return the injected fault that this error is or was raised from, or None."""
    return next((each for each in (error, error.__cause__) if isinstance(each, DiskFault)), None)


def directory_of(path: str) -> str:
    return path.rpartition("/")[0]


class Content:
    """Bytes that end in a hole: preallocated space uses no memory until it is written."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.size = len(data)

    def write(self, offset: int, data: bytes) -> None:
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data
        self.size = max(self.size, len(self.data))

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.size = size

    def read(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self.size - offset))
        found = bytes(self.data[offset : offset + size])
        return found + bytes(size - len(found))

    def copy(self) -> Content:
        other = Content()
        other.data = bytearray(self.data)
        other.size = self.size
        return other


# A change to a file: (offset, data) is a write, (size, None) a truncation or extension to that
# size.
Change = tuple[int, bytes | None]


class Inode:
    """The bytes of a file.

    ``current`` is what reads return, ``durable`` is the least that a crash leaves.
    """

    def __init__(self, durable: Content | None = None) -> None:
        self.durable = durable or Content()
        self.current = self.durable.copy()
        self.unsynced: list[Change] = []
        self.bad_sectors: dict[int, None] = {}

    def change(self, change: Change) -> None:
        self._apply(self.current, change)
        self.unsynced.append(change)

    def _apply(self, content: Content, change: Change) -> None:
        offset, data = change
        if data is None:
            content.truncate(offset)
            return
        content.write(offset, data)
        if self.bad_sectors:
            # A drive replaces a bad sector when it is written again.
            for sector in range(offset // SECTOR_BYTES, (offset + len(data)) // SECTOR_BYTES):
                self.bad_sectors.pop(sector, None)

    def sync(self, count: int, *, lost: bool = False) -> None:
        """Make the first ``count`` changes durable.

        ``lost``: they only count as clean and are not durable.
        """
        if not lost:
            for change in self.unsynced[:count]:
                self._apply(self.durable, change)
        del self.unsynced[:count]

    def crash(self, keeps: Callable[[], bool]) -> None:
        for offset, data in self.unsynced:
            if data is None:
                if keeps():
                    self.durable.truncate(offset)
                continue
            start = 0
            while start < len(data):
                end = min(len(data), start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
                if keeps():
                    self.durable.write(offset + start, data[start:end])
                start = end
        self.unsynced.clear()
        self.current = self.durable.copy()


@dataclass(frozen=True, slots=True)
class DiskImage:
    """A copy of what was durable on a disk at one time."""

    files: dict[str, Content]
    indexes: dict[str, IndexState]
    wipes_count: int


class SimDisk:
    """The disk of one node. Its faults are plain attributes that a fault plan or a test sets."""

    def __init__(
        self, name: str, random_stream: random.Random, trace: Callable[[str], None]
    ) -> None:
        self.name = name
        self.trace = trace
        self.random = random_stream
        self.names: dict[str, Inode] = {}
        self.indexes: dict[str, IndexState] = {}
        self.wipes_count = 0  # crashes that left nothing
        # Faults.
        self.capacity_bytes = CAPACITY_BYTES
        self.slowness = 1.0  # every delay is multiplied by this
        self.sync_failure_chance = 0.0
        self.read_failure_chance = 0.0
        self.write_failure_chance = 0.0
        self.short_write_chance = 0.0  # a write that fails may also leave a part of itself
        self.dead_paths: dict[str, None] = {}
        """Beginnings of paths on a disk of the machine that has died: nothing works there."""
        self.sync_failed: Callable[[str], None] | None = None
        """Called with the path when a sync fails."""
        self._failing_syncs: list[str] = []
        self._filled_paths: list[str] = []
        self._durable_names: dict[str, Inode] = {}
        # directory, path, and the inode or None when it was removed
        self._unsynced_names: list[tuple[str, str, Inode | None]] = []
        self._directories: dict[str, None] = {"": None}
        self._locks: dict[str, tuple[Process, list[str]]] = {}
        """Who holds a directory, and the directories that were made for it, deepest first."""

    # -- how long it takes

    def draw_write_seconds(self) -> float:
        return WRITE_SECONDS * (0.5 + self.random.random()) * self.slowness

    def draw_read_seconds(self) -> float:
        return READ_SECONDS * (0.5 + self.random.random()) * self.slowness

    def draw_sync_seconds(self) -> float:
        draw = self.random.random
        slow = draw() * SLOW_SYNC_SECONDS if draw() < SLOW_SYNC_CHANCE else 0.0
        return min((SYNC_SECONDS * (0.5 + draw()) + slow) * self.slowness, SYNC_SECONDS_MAX)

    def check_alive(self, path: str) -> None:
        """Raise ``DiskFault`` for a path on a disk that has died."""
        if any(path.startswith(each) for each in self.dead_paths):
            raise DiskFault(errno.EIO, f"{self.name}: the disk of {path} has died", path)

    # -- names

    def make_directory(self, directory: str) -> list[str]:
        """Make a directory and its parents; return those that were missing, deepest first.

        They are durable at once: no promise of the seam depends on an empty directory.
        """
        made = []
        while directory not in self._directories:
            self._directories[directory] = None
            made.append(directory)
            directory = directory_of(directory)
        return made

    def list(self, directory: str) -> list[str]:
        """Return the sorted names of the files and directories in a directory."""
        prefix = directory.rstrip("/") + "/"
        rests = [
            path[len(prefix) :]
            for path in [*self.names, *self._directories, *self.indexes]
            if path.startswith(prefix)
        ]
        return sorted(dict.fromkeys(rest.partition("/")[0] for rest in rests if rest))

    def link(self, path: str, inode: Inode) -> None:
        self.names[path] = inode
        self._unsynced_names.append((directory_of(path), path, inode))

    def unlink(self, path: str) -> None:
        del self.names[path]
        self._unsynced_names.append((directory_of(path), path, None))

    def sync_directory(self, directory: str) -> None:
        left = []
        for change in self._unsynced_names:
            if change[0] == directory:
                self._set_durable_name(change[1], change[2])
            else:
                left.append(change)
        self._unsynced_names = left

    def _set_durable_name(self, path: str, inode: Inode | None) -> None:
        if inode is None:
            self._durable_names.pop(path, None)
        else:
            self._durable_names[path] = inode

    def lock(self, directory: str, process: Process) -> None:
        """Make a missing directory and lock it."""
        holder, _ = self._locks.get(directory, (None, None))
        if holder is not None and holder.alive:
            raise Locked(f"{directory} is held by {holder}")
        self._locks[directory] = process, self.make_directory(directory)

    def unlock(self, directory: str, process: Process) -> None:
        """Give a lock back, and remove what ``lock`` made, unless something is in it."""
        holder, made = self._locks.pop(directory)
        assert holder is process, f"{directory} is held by {holder}, not by {process}"
        for each in made:
            if self.list(each):
                break
            del self._directories[each]

    # -- space

    def used_bytes(self) -> int:
        return sum(inode.current.size for inode in self.names.values())

    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - self.used_bytes())

    def need(self, path: str, more_bytes: int) -> None:
        self.check_alive(path)
        full = more_bytes > self.free_bytes()
        for part in self._filled_paths if more_bytes > 0 else ():
            if part in path:
                self._filled_paths.remove(part)
                full = True
                break
        if more_bytes > 0 and full:
            raise DiskFault(errno.ENOSPC, f"{self.name}: no space left on device for {path}", path)

    # -- faults

    def fail_next_sync(self, path_part: str = "") -> None:
        """Let the next sync of a file or index whose path contains ``path_part`` fail.

        What it should have synced is lost.
        """
        self._failing_syncs.append(path_part)

    def fill_before_write(self, path_part: str) -> None:
        """Let the next write that makes a file longer find no space, if its path contains
        ``path_part``. The write after it finds space.
        """
        self._filled_paths.append(path_part)

    def sync_fails(self, path: str) -> bool:
        part = next((each for each in self._failing_syncs if each in path), None)
        if part is not None:
            self._failing_syncs.remove(part)
        dead = any(path.startswith(each) for each in self.dead_paths)
        failed = (
            part is not None
            or dead
            or (self.sync_failure_chance > 0 and self.random.random() < self.sync_failure_chance)
        )
        if failed:
            self.trace(f"disk {self.name} sync of {path} fails")
            if self.sync_failed is not None:
                self.sync_failed(path)
        return failed

    def written_part(self, size_bytes: int) -> int:
        """Return how many bytes of a write reach the file: all of them, or those that still fit
        when the write fails.
        """
        if self.write_failure_chance > 0 and self.random.random() < self.write_failure_chance:
            return 0
        if self.short_write_chance > 0 and self.random.random() < self.short_write_chance:
            return self.random.randrange(size_bytes)
        return size_bytes

    def check_readable(
        self, path: str, inode: Inode | None, offset: int = 0, size: int = 0
    ) -> None:
        self.check_alive(path)
        failed = self.read_failure_chance > 0 and self.random.random() < self.read_failure_chance
        if inode is not None and inode.bad_sectors and size > 0:
            sectors = range(offset // SECTOR_BYTES, (offset + size - 1) // SECTOR_BYTES + 1)
            failed = failed or any(sector in inode.bad_sectors for sector in sectors)
        if failed:
            self.trace(f"disk {self.name} read of {path} fails")
            raise DiskFault(errno.EIO, f"{self.name}: cannot read {path}", path)

    def kill(self, path: str) -> None:
        """Let everything below a path fail until ``heal``, or until it is taken out of
        ``dead_paths``. What was durable stays.
        """
        self.dead_paths[path] = None
        self.trace(f"disk {self.name} has died below {path}")

    def flip_bit(self, path: str, offset_bytes: int, bit: int = 0) -> None:
        """Flip one bit on the medium (bit rot). Every later read returns the changed byte."""
        inode = self.names[path]
        for content in (inode.durable, inode.current):
            if offset_bytes < content.size:
                content.write(offset_bytes, bytes([content.read(offset_bytes, 1)[0] ^ (1 << bit)]))
        self.trace(f"disk {self.name} bit flipped in {path} at {offset_bytes}")

    def spoil_sector(self, path: str, offset_bytes: int) -> None:
        """Let reads of this sector fail with EIO until the sector is written again."""
        self.names[path].bad_sectors[offset_bytes // SECTOR_BYTES] = None
        self.trace(f"disk {self.name} bad sector in {path} at {offset_bytes}")

    def rot_index(self, path_part: str = "", *, log: bool) -> bool:
        """Spoil a record of the log, or a block of the tables, of an index whose path contains
        ``path_part``.

        Return whether one was spoiled.
        """
        for path, index in sorted(self.indexes.items()):
            if path_part in path and (
                index.rot_log(self.random) if log else index.rot_block(self.random)
            ):
                self.trace(
                    f"disk {self.name} {'log' if log else 'block'} of the index {path} rotten"
                )
                return True
        return False

    def snapshot_index(self) -> dict[str, IndexState]:
        """Return the indexes by path as a crash would leave them now."""
        return {path: index.snapshot() for path, index in self.indexes.items()}

    def damage_index(self, damage: str, older: Mapping[str, IndexState]) -> bool:
        """Do one kind of ``INDEX_DAMAGE`` to an index.

        ``older`` has the older copies. Return whether anything changed.
        """
        for path, index in sorted(self.indexes.items()):
            if damage == "older":
                changed = path in older and older[path].synced < index.synced
                if changed:
                    self.indexes[path] = older[path]
            elif damage == "evidence":
                changed = index.lose_evidence()
            elif damage == "cut":
                changed = index.cut_log(self.random)
            else:
                changed = (
                    index.rot_log(self.random) if damage == "log" else index.rot_block(self.random)
                )
            if changed:
                self.trace(f"disk {self.name} index {path}: {damage}")
                return True
        return False

    def replace_index(self, new: str, path: str) -> str:
        """Put the closed index ``new`` in the place of another.

        Return where the replaced one is kept: nowhere, so an empty text.
        """
        self.indexes[path] = self.indexes.pop(new)
        return ""

    def image(self) -> DiskImage:
        """Return a copy of everything that is durable now."""
        files: dict[str, Content] = {
            path: inode.durable.copy() for path, inode in self._durable_names.items()
        }
        return DiskImage(files, self.snapshot_index(), self.wipes_count)

    def put_back(self, image: DiskImage) -> None:
        """Restore the whole disk from ``image``. No process may run on the machine."""
        self._durable_names = {path: Inode(content.copy()) for path, content in image.files.items()}
        self.names = dict(self._durable_names)
        self._unsynced_names.clear()
        self.indexes = {path: index.snapshot() for path, index in image.indexes.items()}
        self.trace(f"disk {self.name} is as it was before")

    def wipe(self, keep: str = "") -> None:
        """Remove everything except the files whose name is ``keep``.

        No process may run on the machine.
        """
        kept = {
            path: inode
            for path, inode in self._durable_names.items()
            if keep and path.rpartition("/")[2] == keep
        }
        self.names, self._durable_names = dict(kept), kept
        self._unsynced_names.clear()
        self.indexes.clear()
        if not kept:
            self.wipes_count += 1
        self.trace(f"disk {self.name} wiped but for {', '.join(kept) or 'nothing'}")

    def draw_place(self, path_part: str = "") -> tuple[str, int] | None:
        """Return a random written byte (path and offset) of a file whose path contains
        ``path_part``, or None when there is none.
        """
        places = [
            (path, len(inode.current.data))
            for path, inode in sorted(self.names.items())
            if path_part in path and inode.current.data
        ]
        if not places:
            return None
        path, size = self.random.choice(places)
        return path, self.random.randrange(size)

    def heal(self) -> None:
        """Inject no more faults. Damaged data stays damaged."""
        self.capacity_bytes = CAPACITY_BYTES
        self.slowness = 1.0
        self.sync_failure_chance = 0.0
        self.read_failure_chance = 0.0
        self.write_failure_chance = 0.0
        self.short_write_chance = 0.0
        self.dead_paths.clear()
        self._failing_syncs.clear()
        self._filled_paths.clear()

    def crash(self) -> None:
        """Switch the power off.

        Each crash draws how much of the page cache had reached the medium before.
        """
        chance = self.random.choice((0.0, 0.0, 1.0, self.random.random(), self.random.random()))

        def keeps() -> bool:
            return self.random.random() < chance

        for _, path, inode in self._unsynced_names:
            if keeps():
                self._set_durable_name(path, inode)
        self._unsynced_names.clear()
        # An inode that appears twice has no unsynced changes the second time.
        for inode in [*self.names.values(), *self._durable_names.values()]:
            inode.crash(keeps)
        self.names = dict(self._durable_names)
        for index in self.indexes.values():
            index.crash(self.random)
        self._locks.clear()
