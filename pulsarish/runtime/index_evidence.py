"""Evidence that an index is complete: what says how far its synced writes reached, and the comparison with what was found at open.

RocksDB's replay stops without a word at the first bad record of its log, and a cut manifest makes it forget whole tables. Two things show
that:

* Every write has a number, and its batch carries a row with that number. A small file next to the index says up to which number the index
  was synced. It is written and synced after the index itself and before any request is answered.
* Now and then a write leaves a row in the *trail*, a ring of rows with numbers of their own. Each of RocksDB's tables has some of them, so
  a table that is missing below newer ones leaves a gap in the trail.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google_crc32c import extend

from pulsarish.model.errors import CorruptData
from pulsarish.runtime.files import sync_directory

__all__ = ["COUNTER_KEY", "RESERVED", "TRAIL_SLOTS", "Counter", "SyncedFile", "missing_from", "trail_key", "trail_keys", "trail_row"]

RESERVED: Final = b"\xff" * 16
"""Keys from here on belong to the index itself."""

COUNTER_KEY: Final = RESERVED + b"n"
TRAIL_SLOTS: Final = 512
_TRAIL_KEY: Final = struct.Struct(">17sH")
_TRAIL_ROW: Final = struct.Struct(">Q")
_COUNTER: Final = struct.Struct(">QQQ")

_MAGIC: Final = b"PIX1"
_SLOT: Final = struct.Struct(">4sQI")
_SLOT_BYTES: Final = 4096  # of two slots, written in turn: a torn write leaves the other one whole


@dataclass(frozen=True, slots=True)
class Counter:
    """The row that each write carries."""

    number: int
    """Of the write; grows by one each time."""
    trail: int
    """Rows of the trail that were ever written."""
    trail_base: int
    """The trail is complete above this one only: what is below was given up by an operator."""

    def encode(self) -> bytes:
        return _COUNTER.pack(self.number, self.trail, self.trail_base)

    @classmethod
    def decode(cls, row: bytes | None) -> Counter:
        """``None``: an index that was never written by this version."""
        return cls(0, 0, 0) if row is None else cls(*_COUNTER.unpack(row))


def trail_key(number: int) -> bytes:
    return _TRAIL_KEY.pack(RESERVED + b"t", number % TRAIL_SLOTS)


def trail_row(number: int) -> tuple[bytes, bytes]:
    return trail_key(number), _TRAIL_ROW.pack(number)


def trail_keys(counter: Counter) -> list[bytes]:
    """The keys of the newest rows of the trail, which all must be there."""
    return [trail_key(number) for number in _expected(counter)]


def _expected(counter: Counter) -> range:
    return range(max(counter.trail_base, counter.trail - TRAIL_SLOTS) + 1, counter.trail + 1)


def missing_from(counter: Counter, trail: Sequence[bytes | None], synced: int | None) -> str:
    """What is missing, in words; empty when the index is complete.

    Args:
        counter: found in the index.
        trail: the rows of ``trail_keys``.
        synced: what the file next to the index says; ``None`` when there is no such file.
    """
    if synced is None:
        return "the file that says up to where it was synced is missing" if counter.number else ""
    end = f"it ends at write {counter.number}"
    if counter.number < synced:
        return f"{end}, and all up to write {synced} was synced: {synced - counter.number} synced writes are missing"
    gap = [number for number, row in zip(_expected(counter), trail, strict=True) if row != _TRAIL_ROW.pack(number)]
    if gap:
        return f"{end}, but rows that were written before are missing ({len(gap)} of its trail, from number {gap[0]} on)"
    return ""


class SyncedFile:
    """The file that says up to which write an index is synced: two slots, written in turn."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1
        self._turn = 0

    def read(self) -> int | None:
        """The greatest number in a valid slot; ``None`` without the file. Raises ``CorruptData`` when no slot is valid."""
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        found = [_decode_slot(data[at : at + _SLOT.size]) for at in (0, _SLOT_BYTES)]
        numbers = [number for number in found if number is not None]
        if not numbers:
            raise CorruptData(f"{self.path} cannot be read: neither of its two slots matches its CRC32C")
        self._turn = 1 - found.index(max(numbers))
        return max(numbers)

    def create(self, number: int) -> None:
        """Durably put a new file in place."""
        temporary = self.path + ".replacing"
        slot = _encode_slot(number)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, slot.ljust(_SLOT_BYTES, b"\0") * 2, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, self.path)
        sync_directory(os.path.dirname(self.path) or ".")

    def write(self, number: int) -> None:
        """Durably say that the index is synced up to ``number``."""
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        os.pwrite(self._descriptor, _encode_slot(number), self._turn * _SLOT_BYTES)
        os.fdatasync(self._descriptor)
        self._turn = 1 - self._turn

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _encode_slot(number: int) -> bytes:
    return _SLOT.pack(_MAGIC, number, extend(0, _SLOT.pack(_MAGIC, number, 0)))


def _decode_slot(data: bytes) -> int | None:
    if len(data) < _SLOT.size or data[:4] != _MAGIC:
        return None
    number: int = _SLOT.unpack(data)[1]
    return number if data == _encode_slot(number) else None
