"""A disk that forgets at a power cut what was not synced: a small file system in memory, mounted
through the kernel's FUSE interface.

``python -m pulsarish.chaos.lossy_disk DIRECTORY`` mounts it there (root only) and serves until it
is unmounted. Lines on standard input are commands, each is answered by a line: ``cut SEED`` makes
it what a disk would be after the power was cut at this moment, ``lie`` lets every sync until then
succeed without making anything durable (a control: with it, acknowledged messages must get lost).

What is durable: the bytes of a file once it was synced, its name once its directory was. Of bytes
that were not, a cut keeps none, or any sectors; of names, none. A lying disk goes back to the
moment from which on it lied, whole, so that no program notices. Nothing is cached by the kernel:
what a process reads back is what the disk holds.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import select
import stat
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pulsarish.runtime.modes import DIRECTORY_MODE

__all__ = ["Disk", "Node"]

_SECTOR_BYTES: Final = 512
_MAX_WRITE_BYTES: Final = 1 << 20
_READ_BYTES: Final = _MAX_WRITE_BYTES + (1 << 16)
_FREE_BLOCKS: Final = 1 << 28
_BLOCK_BYTES: Final = 4096
_DIRECT_IO: Final = 1
_BIG_WRITES: Final = 1 << 5
_MAX_PAGES: Final = 1 << 22
_SET_MODE: Final = 1
_SET_SIZE: Final = 8
_KEEP_SIZE: Final = 1
_ROOT: Final = 1
_IN_HEADER: Final = struct.Struct("<IIQQIIII")
_OUT_HEADER: Final = struct.Struct("<IiQ")
_ATTR: Final = struct.Struct("<6Q10I")
_ENTRY: Final = struct.Struct("<4Q2I")
_OPENED: Final = struct.Struct("<QII")


@dataclass(slots=True, eq=False)
class Node:
    """A file or a directory: as processes see it, and as it would be after a power cut."""

    number: int
    mode: int
    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    # offset and size of what changed since the last sync
    dirty: list[tuple[int, int]] = field(default_factory=list)
    names: dict[bytes, Node] = field(default_factory=dict)
    durable_names: dict[bytes, Node] = field(default_factory=dict)
    lookups: int = 0

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def write(self, offset: int, data: bytes) -> None:
        if len(self.live) < offset:
            self.resize(offset)
        self.live[offset : offset + len(data)] = data
        self.dirty.append((offset, len(data)))

    def resize(self, size: int) -> None:
        low, high = sorted((size, len(self.live)))
        if size < len(self.live):
            del self.live[size:]
        else:
            self.live.extend(bytes(size - len(self.live)))
        self.dirty.append((low, high - low))

    def sync(self) -> None:
        self.durable_names = dict(self.names)
        for offset, size in self.dirty:
            self._keep(offset, size)
        self.dirty.clear()
        del self.durable[len(self.live) :]

    def cut(self, chance: random.Random, *, may_tear: bool) -> int:
        """Back to what is durable; returns how many bytes were in danger."""
        in_danger = sum(size for _offset, size in self.dirty)
        if may_tear and chance.random() < 0.5:
            for offset, size in self.dirty:
                for start in range(offset, offset + size, _SECTOR_BYTES):
                    if chance.random() < 0.5:
                        self._keep(start, min(_SECTOR_BYTES, offset + size - start))
        self.dirty.clear()
        self.live = bytearray(self.durable)
        self.names = dict(self.durable_names)
        return in_danger

    def _keep(self, offset: int, size: int) -> None:
        data = self.live[offset : offset + size]
        if len(self.durable) < offset:
            self.durable.extend(bytes(offset - len(self.durable)))
        self.durable[offset : offset + len(data)] = data


class Disk:
    """The tree of nodes, and FUSE's requests on it: bytes in, bytes out.

    Raises ``OSError`` for what is refused.
    """

    def __init__(self) -> None:
        self.root = Node(_ROOT, stat.S_IFDIR | DIRECTORY_MODE)
        self._nodes = {_ROOT: self.root}
        self._numbers = _ROOT
        self._lies = False

    # -- commands

    def command(self, line: str) -> str:
        words = line.split()
        if words == ["lie"]:
            self._lies = True
            return "lying"
        if len(words) == 2 and words[0] == "cut":
            return self._cut(random.Random(int(words[1])))
        return f"unknown command {line!r}"

    def _cut(self, chance: random.Random) -> str:
        seen: dict[int, Node] = {}
        todo = [self.root]
        while todo:
            node = todo.pop()
            if node.number not in seen:
                seen[node.number] = node
                todo += [*node.names.values(), *node.durable_names.values()]
        names = sum(len(node.names.items() ^ node.durable_names.items()) for node in seen.values())
        # In a fixed order, so that a seed tears the same sectors again.
        in_danger = sum(
            node.cut(chance, may_tear=not self._lies) for _number, node in sorted(seen.items())
        )
        self._lies = False
        return f"cut {in_danger} {names}"

    # -- requests

    def answer(self, opcode: int, number: int, body: bytes) -> bytes | None:
        """``None``: the kernel wants no answer."""
        if opcode == 2:
            self._forget(number, struct.unpack_from("<Q", body)[0])
            return None
        if opcode == 42:
            count = struct.unpack_from("<I", body)[0]
            for index in range(count):
                self._forget(*struct.unpack_from("<QQ", body, 8 + 16 * index))
            return None
        if opcode == 36:  # an interrupted request is answered all the same
            return None
        handler = self._HANDLERS.get(opcode)
        if handler is None:
            raise OSError(errno.ENOSYS, "not done here")
        return handler(self, self._nodes[number] if number else self.root, body)

    def _forget(self, number: int, lookups: int) -> None:
        node = self._nodes[number]
        node.lookups -= lookups
        if node.lookups <= 0 and number != _ROOT:
            del self._nodes[number]

    def _init(self, _node: Node, body: bytes) -> bytes:
        _major, minor, readahead, flags = struct.unpack_from("<4I", body)
        wanted = flags & (_BIG_WRITES | _MAX_PAGES)
        pages = _MAX_WRITE_BYTES // _BLOCK_BYTES
        return struct.pack(
            "<4I2H2I2HI7I",
            7,
            min(minor, 31),
            readahead,
            wanted,
            12,
            9,
            _MAX_WRITE_BYTES,
            1,
            pages,
            0,
            0,
            *[0] * 7,
        )

    def _attributes(self, node: Node) -> bytes:
        size = len(node.live)
        blocks = -(-size // _SECTOR_BYTES)
        return _ATTR.pack(
            node.number,
            size,
            blocks,
            0,
            0,
            0,
            0,
            0,
            0,
            node.mode,
            2 if node.is_directory else 1,
            0,
            0,
            0,
            _BLOCK_BYTES,
            0,
        )

    def _entry(self, node: Node) -> bytes:
        node.lookups += 1
        self._nodes[node.number] = node
        return _ENTRY.pack(node.number, 0, 0, 0, 0, 0) + self._attributes(node)

    def _child(self, node: Node, name: bytes) -> Node:
        child = node.names.get(name)
        if child is None:
            raise OSError(errno.ENOENT, "no such name")
        return child

    def _make(self, node: Node, name: bytes, mode: int) -> Node:
        if name in node.names:
            raise OSError(errno.EEXIST, "the name is taken")
        self._numbers += 1
        child = node.names[name] = Node(self._numbers, mode)
        return child

    def _lookup(self, node: Node, body: bytes) -> bytes:
        return self._entry(self._child(node, body.rstrip(b"\0")))

    def _getattr(self, node: Node, _body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._attributes(node)

    def _setattr(self, node: Node, body: bytes) -> bytes:
        valid, _padding, _handle, size = struct.unpack_from("<IIQQ", body)
        if valid & _SET_SIZE:
            node.resize(size)
        if valid & _SET_MODE:
            node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(struct.unpack_from("<I", body, 68)[0])
        return self._getattr(node, b"")

    def _mkdir(self, node: Node, body: bytes) -> bytes:
        mode, umask = struct.unpack_from("<II", body)
        return self._entry(
            self._make(node, body[8:].rstrip(b"\0"), stat.S_IFDIR | (mode & ~umask & 0o7777))
        )

    def _remove(self, node: Node, body: bytes) -> bytes:
        name = body.rstrip(b"\0")
        if self._child(node, name).names:
            raise OSError(errno.ENOTEMPTY, "the directory is not empty")
        del node.names[name]
        return b""

    def _rename(self, node: Node, body: bytes, head: int = 8) -> bytes:
        target = self._nodes[struct.unpack_from("<Q", body)[0]]
        old, new = body[head:].split(b"\0")[:2]
        moved = self._child(node, old)
        del node.names[old]
        target.names[new] = moved
        return b""

    def _rename2(self, node: Node, body: bytes) -> bytes:
        if struct.unpack_from("<I", body, 8)[0]:
            raise OSError(errno.EINVAL, "flags of renameat2 are not known here")
        return self._rename(node, body, 16)

    def _open(self, _node: Node, _body: bytes) -> bytes:
        return _OPENED.pack(0, _DIRECT_IO, 0)

    def _open_directory(self, _node: Node, _body: bytes) -> bytes:
        return _OPENED.pack(0, 0, 0)

    def _create(self, node: Node, body: bytes) -> bytes:
        _flags, mode, umask, _open_flags = struct.unpack_from("<4I", body)
        child = self._make(node, body[16:].rstrip(b"\0"), stat.S_IFREG | (mode & ~umask & 0o7777))
        return self._entry(child) + _OPENED.pack(0, _DIRECT_IO, 0)

    def _read(self, node: Node, body: bytes) -> bytes:
        _handle, offset, size = struct.unpack_from("<QQI", body)
        return bytes(node.live[offset : offset + size])

    def _write(self, node: Node, body: bytes) -> bytes:
        _handle, offset, size = struct.unpack_from("<QQI", body)
        node.write(offset, body[40 : 40 + size])
        return struct.pack("<II", size, 0)

    def _sync(self, node: Node, _body: bytes) -> bytes:
        if not self._lies:
            node.sync()
        return b""

    def _allocate(self, node: Node, body: bytes) -> bytes:
        _handle, offset, length, mode = struct.unpack_from("<QQQI", body)
        if mode & ~_KEEP_SIZE:
            raise OSError(errno.EOPNOTSUPP, "holes are not made here")
        if not mode and offset + length > len(node.live):
            node.resize(offset + length)
        return b""

    def _statfs(self, _node: Node, _body: bytes) -> bytes:
        return struct.pack(
            "<5Q4I6I",
            _FREE_BLOCKS,
            _FREE_BLOCKS,
            _FREE_BLOCKS,
            1 << 20,
            1 << 20,
            _BLOCK_BYTES,
            255,
            _BLOCK_BYTES,
            0,
            *[0] * 6,
        )

    def _list(self, node: Node, body: bytes) -> bytes:
        _handle, offset, size = struct.unpack_from("<QQI", body)
        found = b""
        for index, (name, child) in enumerate(node.names.items()):
            if index < offset:
                continue
            record = (
                struct.pack("<QQII", child.number, index + 1, len(name), child.mode >> 12) + name
            )
            record += bytes(-len(record) % 8)
            if len(found) + len(record) > size:
                break
            found += record
        return found

    def _nothing(self, _node: Node, _body: bytes) -> bytes:
        return b""

    _HANDLERS: Final[dict[int, Callable[[Disk, Node, bytes], bytes]]] = {
        1: _lookup,
        3: _getattr,
        4: _setattr,
        9: _mkdir,
        10: _remove,
        11: _remove,
        12: _rename,
        14: _open,
        15: _read,
        16: _write,
        17: _statfs,
        18: _nothing,  # release
        20: _sync,
        25: _nothing,  # flush: closing makes nothing durable
        26: _init,
        27: _open_directory,
        28: _list,
        29: _nothing,  # release of a directory
        30: _sync,
        35: _create,
        38: _nothing,  # destroy
        43: _allocate,
        45: _rename2,
    }


def _mount(directory: str) -> int:
    """Raises ``OSError``. Returns the descriptor through which the kernel asks."""
    channel = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = (
        f"fd={channel},rootmode=40000,user_id=0,group_id=0,allow_other,max_read={_MAX_WRITE_BYTES}"
    )
    if libc.mount(b"forgetful", os.fsencode(directory), b"fuse.forgetful", 0, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), directory)
    return channel


def _serve(disk: Disk, channel: int) -> None:
    """Until it is unmounted."""
    commands = sys.stdin.buffer
    sources = [channel, commands.fileno()]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if commands.fileno() in ready:
            line = commands.readline().decode()
            if line:
                print(disk.command(line), flush=True)
            else:
                sources.remove(commands.fileno())  # the commanding process is gone
        if channel not in ready:
            continue
        try:
            request = os.read(channel, _READ_BYTES)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                continue
            raise
        _size, opcode, unique, number, *_ = _IN_HEADER.unpack_from(request)
        code = 0
        try:
            answer = disk.answer(opcode, number, request[_IN_HEADER.size :])
        except OSError as error:
            code, answer = error.errno or errno.EIO, b""
        if answer is not None:
            os.write(
                channel, _OUT_HEADER.pack(_OUT_HEADER.size + len(answer), -code, unique) + answer
            )


def _main() -> None:
    try:
        channel = _mount(sys.argv[1])
    except OSError as error:
        print(f"cannot mount: {error}", flush=True)
        raise SystemExit(1) from None
    print("mounted", flush=True)
    _serve(Disk(), channel)


if __name__ == "__main__":
    _main()
