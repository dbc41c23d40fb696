"""The disk that forgets: what was synced survives a power cut, what was not does not, and of a torn
write any sectors may.
"""

from __future__ import annotations

import random
import stat
import struct

import pytest

from pulsarish.chaos.lossy_disk import Disk, Node

CREATE, LOOKUP, READ, WRITE, SYNC, MKDIR, UNLINK, RENAME = 35, 1, 15, 16, 20, 9, 10, 12
ROOT = 1


class Files:
    """A process that uses the disk, in FUSE's requests."""

    def __init__(self) -> None:
        self.disk = Disk()

    def create(self, name: bytes) -> int:
        return self._number(
            self.disk.answer(
                CREATE, ROOT, struct.pack("<4I", 0, stat.S_IFREG | 0o644, 0, 0) + name + b"\0"
            )
        )

    def write(self, file: int, offset: int, data: bytes) -> None:
        self.disk.answer(
            WRITE, file, struct.pack("<QQIIQII", 0, offset, len(data), 0, 0, 0, 0) + data
        )

    def read(self, name: bytes) -> bytes:
        answer = self.disk.answer(
            READ, self.lookup(name), struct.pack("<QQIIQII", 0, 0, 1 << 20, 0, 0, 0, 0)
        )
        assert answer is not None
        return answer

    def lookup(self, name: bytes) -> int:
        return self._number(self.disk.answer(LOOKUP, ROOT, name + b"\0"))

    def rename(self, old: bytes, new: bytes) -> None:
        self.disk.answer(RENAME, ROOT, struct.pack("<Q", ROOT) + old + b"\0" + new + b"\0")

    def sync(self, number: int) -> None:
        self.disk.answer(SYNC, number, struct.pack("<QII", 0, 0, 0))

    def _number(self, answer: bytes | None) -> int:
        assert answer is not None
        return int(struct.unpack_from("<Q", answer)[0])


def test_synced_bytes_and_names_survive() -> None:
    files = Files()
    file = files.create(b"a")
    files.write(file, 0, b"durable")
    files.sync(file)
    files.sync(ROOT)
    assert files.disk.command("cut 1") == "cut 0 0"
    assert files.read(b"a") == b"durable"


def test_a_name_needs_its_directory_synced() -> None:
    files = Files()
    file = files.create(b"a")
    files.write(file, 0, b"bytes")
    files.sync(file)
    assert files.disk.command("cut 1") == "cut 0 1"
    with pytest.raises(FileNotFoundError):
        files.lookup(b"a")


def test_a_rename_and_a_removal_are_undone_without_a_sync() -> None:
    files = Files()
    for name in (b"a", b"b"):
        file = files.create(name)
        files.write(file, 0, name)
        files.sync(file)
    files.sync(ROOT)
    files.rename(b"a", b"b")
    assert files.read(b"b") == b"a"
    files.disk.answer(UNLINK, ROOT, b"b\0")
    files.disk.command("cut 1")
    assert (files.read(b"a"), files.read(b"b")) == (b"a", b"b")


def test_torn_writes_keep_any_sectors_and_nothing_else() -> None:
    kept = set()
    for seed in range(40):
        files = Files()
        file = files.create(b"a")
        files.write(file, 0, b"0" * 2048)
        files.sync(file)
        files.sync(ROOT)
        files.write(file, 512, b"1" * 1024)
        files.disk.command(f"cut {seed}")
        content = files.read(b"a")
        assert len(content) == 2048
        assert content[:512] + content[1536:] == b"0" * 1024
        kept.add((content[512:1024], content[1024:1536]))
    assert kept == {
        (first * 512, second * 512) for first in (b"0", b"1") for second in (b"0", b"1")
    }


def test_a_lying_disk_goes_back_to_where_it_began_to_lie() -> None:
    files = Files()
    file = files.create(b"a")
    files.write(file, 0, b"before")
    files.sync(file)
    files.sync(ROOT)
    files.disk.command("lie")
    files.write(file, 0, b"after!")
    files.sync(file)
    assert files.read(b"a") == b"after!"
    files.disk.command("cut 1")
    assert files.read(b"a") == b"before"


def test_against_a_plain_model() -> None:
    """Random writes, growth and truncation: the live bytes are those of a plain byte string, the
    durable ones those of the last sync.
    """
    chance = random.Random(7)
    for _ in range(200):
        node, plain, synced = Node(2, stat.S_IFREG), b"", b""
        for _ in range(chance.randrange(30)):
            match chance.randrange(4):
                case 0 | 1:
                    offset, data = (
                        chance.randrange(2000),
                        chance.randbytes(chance.randrange(1, 700)),
                    )
                    node.write(offset, data)
                    plain = plain.ljust(offset, b"\0")[:offset] + data + plain[offset + len(data) :]
                case 2:
                    size = chance.randrange(2500)
                    node.resize(size)
                    plain = plain[:size].ljust(size, b"\0")
                case _:
                    node.sync()
                    synced = plain
            assert bytes(node.live) == plain
        node.cut(chance, may_tear=False)
        assert bytes(node.live) == synced
