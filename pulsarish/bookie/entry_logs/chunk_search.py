"""Look for the next chunk of an entry log behind damage.

An entry's payload may look like the beginning of a chunk, once or very often, and a damaged count
may name any number of records. So the log is read in spans, nothing is kept but one of them, and
the sizes of a chunk are checked in pieces, up to the first one that no record can have. The
beginning of another chunk among them is such a size, so the time grows with the log alone.
"""

from __future__ import annotations

from typing import Final

from pulsarish.bookie.entry_logs.entry_log_format import (
    CHUNK_HEAD_SIZE,
    SizesCheck,
    chunk_beginning,
    decode_chunk_head,
)
from pulsarish.runtime.seams import File

__all__ = ["next_chunk"]

_SPAN_BYTES: Final = 1 << 20
_FIRST_PIECE_BYTES: Final = 64
_PIECE_BYTES_MAX: Final = 1 << 16


async def next_chunk(file: File, log_id: int, start: int) -> int | None:
    """Return where the first chunk at or after ``start`` begins whose head and sizes are whole;
    ``None``: there is none.

    Raises ``OSError``.
    """
    window = _Window(file, await file.size_bytes())
    while (at := await window.find(chunk_beginning(log_id), start)) is not None:
        if await _is_chunk(window, log_id, at):
            return at
        start = at + 1
    return None


class _Window:
    """The span of a file that is in memory."""

    def __init__(self, file: File, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._file = file
        self._start = 0
        self._data = b""

    async def find(self, wanted: bytes, at: int) -> int | None:
        """Return the first place of some bytes at or after an offset."""
        while at + len(wanted) <= self.size_bytes:
            if not self._start <= at <= self._start + len(self._data) - len(wanted):
                await self._load(at)
                if len(self._data) < len(wanted):
                    return None  # the file has become shorter
            place = self._data.find(wanted, at - self._start)
            if place >= 0:
                return self._start + place
            at = self._start + len(self._data) - len(wanted) + 1
        return None

    async def take(self, at: int, size_bytes: int) -> bytes:
        """Return bytes of the file; fewer at its end."""
        end = min(at + size_bytes, self.size_bytes)
        if at < self._start or end > self._start + len(self._data):
            await self._load(at)
        return self._data[at - self._start : end - self._start]

    async def _load(self, at: int) -> None:
        self._start, self._data = at, bytes((await self._file.read([(at, _SPAN_BYTES)]))[0])


async def _is_chunk(window: _Window, log_id: int, at: int) -> bool:
    head = decode_chunk_head(await window.take(at, CHUNK_HEAD_SIZE), log_id)
    at += CHUNK_HEAD_SIZE
    if head is None or at + head.sizes_size > window.size_bytes:
        return False
    check, left, piece_bytes = SizesCheck(log_id, head), head.sizes_size, _FIRST_PIECE_BYTES
    while left:
        piece = await window.take(at, min(left, piece_bytes))
        if not check.take(piece):
            return False
        at, left = at + len(piece), left - len(piece)
        piece_bytes = min(2 * piece_bytes, _PIECE_BYTES_MAX)
    return check.is_whole
