"""Evidence that an index is complete: a record of how far its synced writes reached, to be compared
with what was found at open.

RocksDB's replay silently stops at the first bad record of its log, and a cut manifest makes it
forget whole tables. Two things reveal that:

* Every write has a number, and its batch carries a row with that number. A small file next to the
  index records up to which number the index was synced. It is synced before any request is
  answered: after the index itself, or at the same time. In the second case it carries the batch,
  and an index that misses this one write gets it from there.
* Now and then a write leaves a row in the *trail*, a ring of rows with their own numbers. Each of
  RocksDB's tables holds some of them, so a missing table below newer ones leaves a gap in the
  trail.
"""

from __future__ import annotations

import os
import queue
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from google_crc32c import extend

from pulsarish.model.errors import CorruptData
from pulsarish.runtime.disk_errors import named
from pulsarish.runtime.files import sync_directory
from pulsarish.runtime.modes import FILE_MODE

__all__ = [
    "COUNTER_KEY",
    "REDO_BYTES_MAX",
    "RESERVED",
    "TRAIL_SLOTS",
    "Counter",
    "Redo",
    "SyncedFile",
    "missing_from",
    "trail_key",
    "trail_keys",
    "trail_row",
]

RESERVED: Final = b"\xff" * 16
"""Keys from here on belong to the index itself."""

COUNTER_KEY: Final = RESERVED + b"n"
TRAIL_SLOTS: Final = 512
_TRAIL_KEY: Final = struct.Struct(">17sH")
_TRAIL_ROW: Final = struct.Struct(">Q")
_COUNTER: Final = struct.Struct(">QQQ")

_MAGIC: Final = b"PIX1"
_SLOT: Final = struct.Struct(">4sQI")
_REDO_MAGIC: Final = b"PIX2"
# number, identity of the index, bytes of the batch, CRC32C
_REDO_SLOT: Final = struct.Struct(">4sQIII")
_REDO_HEAD: Final = struct.Struct(">II")
_LENGTH: Final = struct.Struct(">I")
_SLOT_BYTES: Final = 4096  # of two slots, written in turn: a torn write leaves the other one whole


REDO_BYTES_MAX: Final = _SLOT_BYTES - _REDO_SLOT.size
"""A longer encoded batch does not fit into a slot."""


@dataclass(frozen=True, slots=True)
class Counter:
    """The row that each write carries."""

    number: int
    """Number of the write; grows by one each time."""
    trail: int
    """Rows of the trail that were ever written."""
    trail_base: int
    """The trail is complete above this row only. An operator gave up the rows up to it."""

    def encode(self) -> bytes:
        return _COUNTER.pack(self.number, self.trail, self.trail_base)

    @classmethod
    def decode(cls, row: bytes | None) -> Counter:
        """Return the decoded row. ``None``: this version never wrote to the index."""
        return cls(0, 0, 0) if row is None else cls(*_COUNTER.unpack(row))


def trail_key(number: int) -> bytes:
    return _TRAIL_KEY.pack(RESERVED + b"t", number % TRAIL_SLOTS)


def trail_row(number: int) -> tuple[bytes, bytes]:
    return trail_key(number), _TRAIL_ROW.pack(number)


def trail_keys(counter: Counter) -> list[bytes]:
    """Return the keys of the newest rows of the trail. All of them must exist."""
    return [trail_key(number) for number in _expected(counter)]


def _expected(counter: Counter) -> range:
    return range(max(counter.trail_base, counter.trail - TRAIL_SLOTS) + 1, counter.trail + 1)


@dataclass(frozen=True, slots=True)
class Redo:
    """The batch of one write, with the index's own rows."""

    identity: int
    """Identity of the index that it was written to. It is applied to no other index."""
    puts: Sequence[tuple[bytes, bytes]]
    deletes: Sequence[bytes]
    """Applied after the puts."""

    def encode(self) -> bytes:
        parts = [_REDO_HEAD.pack(len(self.puts), len(self.deletes))]
        for field in self._fields():
            parts += (_LENGTH.pack(len(field)), field)
        return b"".join(parts)

    def _fields(self) -> Iterator[bytes]:
        for key, value in self.puts:
            yield key
            yield value
        yield from self.deletes

    @classmethod
    def decode(cls, identity: int, data: bytes) -> Redo:
        """Return the decoded batch. ``data`` has matched its checksum."""
        puts, deletes = _REDO_HEAD.unpack_from(data)
        at, fields = _REDO_HEAD.size, list[bytes]()
        for _ in range(2 * puts + deletes):
            end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            fields.append(data[at + _LENGTH.size : end])
            at = end
        return cls(
            identity,
            list(zip(fields[: 2 * puts : 2], fields[1 : 2 * puts : 2], strict=True)),
            fields[2 * puts :],
        )


def missing_from(counter: Counter, trail: Sequence[bytes | None], synced: int | None) -> str:
    """Return a description of what is missing; empty when the index is complete.

    Args:
        counter: found in the index.
        trail: the rows of ``trail_keys``.
        synced: the number in the file next to the index; ``None`` when there is no such file.
    """
    if synced is None:
        return "the file that says up to where it was synced is missing" if counter.number else ""
    end = f"it ends at write {counter.number}"
    if counter.number < synced:
        return (
            f"{end}, and all up to write {synced} was synced: {synced - counter.number} "
            "synced writes are missing"
        )
    gap = [
        number
        for number, row in zip(_expected(counter), trail, strict=True)
        if row != _TRAIL_ROW.pack(number)
    ]
    if gap:
        return (
            f"{end}, but rows that were written before are missing ({len(gap)} of its trail, "
            f"from number {gap[0]} on)"
        )
    return ""


class SyncedFile:
    """The file that records up to which write an index is synced: two slots, written in turn."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.redo: Redo | None = None
        """The batch of the newest write, which the index may miss; set by ``read``."""
        self._descriptor = -1
        self._turn = 0
        self._writer: _Writer | None = None

    def read(self) -> int | None:
        """Return the greatest number in a valid slot, and set that slot's ``redo``.

        ``None`` without the file.

        Raises ``CorruptData`` when no slot is valid.
        """
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        slots = [_decode_slot(data[at : at + _SLOT_BYTES]) for at in (0, _SLOT_BYTES)]
        numbers = [-1 if slot is None else slot[0] for slot in slots]
        newest = numbers.index(max(numbers))
        found = slots[newest]
        if found is None:
            raise CorruptData(
                f"{self.path} cannot be read: neither of its two slots matches its CRC32C"
            )
        self._turn = 1 - newest
        number, self.redo = found
        return number

    def create(self, number: int) -> None:
        """Durably put a new file in place."""
        temporary = self.path + ".replacing"
        slot = _encode_slot(number)
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE
        )
        try:
            os.pwrite(descriptor, slot.ljust(_SLOT_BYTES, b"\0") * 2, 0)
            os.fsync(descriptor)
        except OSError as error:
            raise named(error, temporary) from None
        finally:
            os.close(descriptor)
        os.rename(temporary, self.path)
        sync_directory(os.path.dirname(self.path) or ".")

    def write(self, number: int) -> None:
        """Durably record that the index is synced up to ``number``."""
        self._write(_encode_slot(number))

    def begin(self, number: int, identity: int, redo: bytes) -> None:
        """Begin to record durably that the index is synced up to ``number``, while the index itself
        is being synced.

        ``finish`` waits.

        Args:
            redo: the encoded batch of write ``number``, the only one since the last sync; at most
                ``REDO_BYTES_MAX`` bytes.
        """
        if self._writer is None:
            self._writer = _Writer(self._write)
        self._writer.slots.put(_encode_redo_slot(number, identity, redo))

    def finish(self) -> None:
        """Wait for what ``begin`` started. Raises ``OSError`` when it failed."""
        assert self._writer is not None, "nothing was begun"
        error = self._writer.outcomes.get()
        if error is not None:
            raise error

    def _write(self, slot: bytes) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(self._descriptor, slot, self._turn * _SLOT_BYTES)
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise named(error, self.path) from None
        self._turn = 1 - self._turn

    def close(self) -> None:
        if self._writer is not None:
            self._writer.slots.put(None)
            self._writer = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _Writer:
    """A thread that writes slots while its caller syncs something else."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.slots: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.outcomes: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._write = write
        # A daemon, as lanes are: a process that ends abruptly must not wait for a disk that hangs.
        threading.Thread(target=self._work, name="index-synced", daemon=True).start()

    def _work(self) -> None:
        while (slot := self.slots.get()) is not None:
            error = None
            try:
                self._write(slot)
            except Exception as failure:  # noqa: BLE001 - raised by ``finish``
                error = failure
            self.outcomes.put(error)


def _encode_redo_slot(number: int, identity: int, redo: bytes) -> bytes:
    crc = extend(extend(0, _REDO_SLOT.pack(_REDO_MAGIC, number, identity, len(redo), 0)), redo)
    return _REDO_SLOT.pack(_REDO_MAGIC, number, identity, len(redo), crc) + redo


def _encode_slot(number: int) -> bytes:
    return _SLOT.pack(_MAGIC, number, extend(0, _SLOT.pack(_MAGIC, number, 0)))


def _decode_slot(data: bytes) -> tuple[int, Redo | None] | None:
    if data[:4] == _REDO_MAGIC and len(data) >= _REDO_SLOT.size:
        _, number, identity, size, _ = _REDO_SLOT.unpack_from(data)
        end = _REDO_SLOT.size + size
        redo = data[_REDO_SLOT.size : end]
        return (
            (number, Redo.decode(identity, redo))
            if data[:end] == _encode_redo_slot(number, identity, redo)
            else None
        )
    if data[:4] == _MAGIC and len(data) >= _SLOT.size:
        number = _SLOT.unpack_from(data)[1]
        return (number, None) if data[: _SLOT.size] == _encode_slot(number) else None
    return None
