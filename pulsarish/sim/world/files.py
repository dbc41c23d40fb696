"""``Files`` and ``File`` of one process on its node's ``SimDisk``.

The steps of an operation (write, sync, rename, sync the directory) happen at different times, so a
crash can happen between any two.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from pulsarish.runtime.seams import Buffer, File
from pulsarish.sim.world.disk import DiskFault, Inode, SimDisk, directory_of
from pulsarish.sim.world.lanes import Job, Lane
from pulsarish.sim.world.loop import SimLoop
from pulsarish.sim.world.nodes import Process

__all__ = ["SimFile", "SimFiles"]

_REPLACING = ".replacing"
_DIRECTORY_LANE = "files"


def sync_steps(disk: SimDisk, path: str, inode: Inode) -> Job[None]:
    """Simulate ``fdatasync``.

    What was written when it began is durable when it ends, or is lost when it fails.
    """
    count = len(inode.unsynced)
    yield disk.draw_sync_seconds()
    lost = disk.sync_fails(path)
    inode.sync(count, lost=lost)
    if lost:
        raise DiskFault(errno.EIO, f"{disk.name}: cannot sync {path}", path)
    disk.trace(f"disk {disk.name} synced {path} {count}")


def write_steps(disk: SimDisk, path: str, inode: Inode, offset: int, data: bytes) -> Job[None]:
    yield disk.draw_write_seconds()
    disk.need(path, offset + len(data) - inode.current.size)
    part = disk.written_part(len(data))
    if part:
        inode.change((offset, data[:part]))
    if part < len(data):
        disk.trace(f"disk {disk.name} write of {path} fails after {part} of {len(data)} bytes")
        raise DiskFault(errno.EIO, f"{disk.name}: cannot write {path}", path)


class SimFile:
    """An open file."""

    def __init__(self, disk: SimDisk, path: str, inode: Inode, lane: Lane) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._lane = lane
        self._closed = False

    async def write(self, offset_bytes: int, parts: Sequence[Buffer], *, sync: bool) -> None:
        # Joined when the "thread" runs, not now. So the simulation detects a caller that changes
        # its buffers before the write is done.
        def job() -> Job[None]:
            self._check_open()
            if parts:
                yield from write_steps(
                    self._disk, self.path, self._inode, offset_bytes, b"".join(parts)
                )
            if sync:
                yield from sync_steps(self._disk, self.path, self._inode)

        await self._lane.run(job())

    async def read(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        def job() -> Job[list[bytes]]:
            self._check_open()
            found = []
            for offset, size in spans:
                yield self._disk.draw_read_seconds()
                self._disk.check_readable(self.path, self._inode, offset, size)
                found.append(self._inode.current.read(offset, size))
            return found

        return await self._lane.run(job())

    async def truncate(self, size_bytes: int) -> None:
        def job() -> Job[None]:
            self._check_open()
            yield self._disk.draw_write_seconds()
            self._disk.need(self.path, size_bytes - self._inode.current.size)
            self._inode.change((size_bytes, None))

        await self._lane.run(job())

    async def drop_cached(self) -> None:
        """Do nothing: the simulated disk has no page cache apart from what is not yet durable."""

    async def size_bytes(self) -> int:
        def job() -> Job[int]:
            self._check_open()
            yield self._disk.draw_write_seconds()
            return self._inode.current.size

        return await self._lane.run(job())

    async def close(self) -> None:
        def job() -> Job[None]:
            yield self._disk.draw_write_seconds()
            self._closed = True

        await self._lane.run(job())

    def _check_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, f"{self.path} is closed")


class SimFiles:
    """The directories of a node as one of its processes uses them."""

    def __init__(self, loop: SimLoop, disk: SimDisk, process: Process) -> None:
        self._loop = loop
        self._disk = disk
        self._process = process
        self._lanes: dict[str, Lane] = {}

    def _lane(self, name: str) -> Lane:
        if name not in self._lanes:
            self._lanes[name] = Lane(self._loop, self._process)
        return self._lanes[name]

    async def open(
        self, path: str, *, lane: str, create: bool = False, reserve_bytes: int = 0
    ) -> File:
        disk, thread = self._disk, self._lane(lane)

        def job() -> Job[Inode]:
            yield disk.draw_write_seconds()
            disk.check_alive(path)
            if not create:
                if path not in disk.names:
                    raise FileNotFoundError(errno.ENOENT, f"{disk.name}: no such file", path)
                return disk.names[path]
            if path in disk.names:
                raise FileExistsError(errno.EEXIST, f"{disk.name}: file exists", path)
            inode = Inode()
            disk.make_directory(directory_of(path))
            disk.link(path, inode)
            try:
                if reserve_bytes:
                    disk.need(path, reserve_bytes)
                    inode.change((reserve_bytes, None))
                yield from sync_steps(disk, path, inode)
                yield disk.draw_sync_seconds()
            except OSError:
                disk.unlink(path)
                raise
            disk.sync_directory(directory_of(path))
            return inode

        return SimFile(disk, path, await thread.run(job()), thread)

    async def replace(self, path: str, content: bytes) -> None:
        disk = self._disk

        def job() -> Job[None]:
            disk.check_alive(path)
            temporary, inode = path + _REPLACING, Inode()
            disk.make_directory(directory_of(path))
            disk.link(temporary, inode)
            yield from write_steps(disk, path, inode, 0, content)
            yield from sync_steps(disk, path, inode)
            yield disk.draw_write_seconds()
            disk.link(path, inode)
            disk.unlink(temporary)
            yield disk.draw_sync_seconds()
            disk.sync_directory(directory_of(path))
            disk.trace(f"disk {disk.name} replaced {path}")

        await self._lane(_DIRECTORY_LANE).run(job())

    async def rename(self, path: str, new_path: str) -> None:
        disk = self._disk

        def job() -> Job[None]:
            directory = directory_of(path)
            assert directory_of(new_path) == directory, "a file keeps its directory"
            yield disk.draw_write_seconds()
            disk.check_alive(path)
            if path not in disk.names:
                raise FileNotFoundError(errno.ENOENT, f"{disk.name}: no such file", path)
            if new_path in disk.names:
                raise FileExistsError(errno.EEXIST, f"{disk.name}: file exists", new_path)
            # Two changes: a crash may leave the file with both names, or with neither.
            disk.link(new_path, disk.names[path])
            disk.unlink(path)
            yield disk.draw_sync_seconds()
            disk.sync_directory(directory)
            disk.trace(f"disk {disk.name} renamed {path} to {new_path}")

        await self._lane(_DIRECTORY_LANE).run(job())

    async def remove(self, paths: Sequence[str]) -> None:
        disk = self._disk

        def job() -> Job[None]:
            touched: dict[str, None] = {}
            for path in paths:
                yield disk.draw_write_seconds()
                disk.check_alive(path)
                if path in disk.names:
                    disk.unlink(path)
                touched[directory_of(path)] = None
            for directory in touched:
                yield disk.draw_sync_seconds()
                disk.sync_directory(directory)

        await self._lane(_DIRECTORY_LANE).run(job())

    async def list(self, directory: str) -> Sequence[str]:
        disk = self._disk

        def job() -> Job[Sequence[str]]:
            yield disk.draw_read_seconds()
            disk.check_alive(directory)
            return [name for name in disk.list(directory) if not name.endswith(_REPLACING)]

        return await self._lane(_DIRECTORY_LANE).run(job())

    async def free_bytes(self, directory: str) -> int:
        disk = self._disk

        def job() -> Job[int]:
            yield disk.draw_read_seconds()
            disk.check_alive(directory)
            return disk.free_bytes()

        return await self._lane(_DIRECTORY_LANE).run(job())

    async def lock(self, directory: str) -> None:
        disk = self._disk

        def job() -> Job[None]:
            yield disk.draw_write_seconds()
            disk.check_alive(directory)
            disk.lock(directory, self._process)

        await self._lane(_DIRECTORY_LANE).run(job())

    async def unlock(self, directory: str) -> None:
        disk = self._disk

        def job() -> Job[None]:
            yield disk.draw_write_seconds()
            disk.unlock(directory, self._process)

        await self._lane(_DIRECTORY_LANE).run(job())
