"""One compacted view as a ledger: written entry by entry, and read by the positions that its
entries have in the log.

An entry is ``position (two signed 64-bit numbers) | audience (one byte) | size of the rest set (32
bits) | rest set | the topic's entry``. Positions ascend. One position may come twice, for different
audiences. Audiences are bits that only the compactor and the reader of the view understand. The
rest set has one bit for each message of a batch, from the lowest: set when the message is still in
the view; empty: all are.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.model.errors import CorruptData, LedgerClosed, PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.model.position import EARLIEST, NO_ENTRY, Position

__all__ = ["ViewEntry", "ViewReader", "ViewWriter", "decode_view_entry", "encode_view_entry"]

_HEAD: Final = struct.Struct(">qqBI")
_UNCONFIRMED_BYTES_MAX: Final = 4 << 20  # of one view that is being written


class ViewEntry(NamedTuple):
    position: Position
    audience: int
    payload: bytes | memoryview
    left: bytes = b""


def encode_view_entry(entry: ViewEntry) -> bytes:
    position, audience, payload, left = entry
    return b"".join(
        (_HEAD.pack(position.ledger_id, position.entry_id, audience, len(left)), left, payload)
    )


def decode_view_entry(data: bytes | memoryview) -> ViewEntry:
    """Decode an entry of a view. Raises ``CorruptData``."""
    if len(data) < _HEAD.size:
        raise CorruptData(
            f"an entry of a compacted view has {len(data)} bytes, fewer than its head of "
            f"{_HEAD.size}"
        )
    ledger_id, entry_id, audience, size = _HEAD.unpack_from(data)
    start = _HEAD.size + size
    return ViewEntry(
        Position(ledger_id, entry_id),
        audience,
        memoryview(data)[start:],
        bytes(data[_HEAD.size : start]),
    )


class ViewWriter:
    """Appends to a view that is being made. It is the listener of its ledger's writer."""

    def __init__(self) -> None:
        self.writer: LedgerWriter | None = None
        """Set by the creator of the ledger, before the first ``add``."""
        self._confirmed = NO_ENTRY
        self._unconfirmed: list[int] = []  # sizes, the oldest first
        self._unconfirmed_bytes = 0
        self._error: PulsarishError | None = None
        self._room = asyncio.Event()

    def confirmed(self, last_entry: int) -> None:
        count = last_entry - self._confirmed
        self._unconfirmed_bytes -= sum(self._unconfirmed[:count])
        del self._unconfirmed[:count]
        self._confirmed = last_entry
        self._room.set()

    def stopped(self, error: PulsarishError) -> None:
        self._error = self._error or error
        self._room.set()

    async def add(self, entry: ViewEntry) -> None:
        """Wait for room, then queue an entry. Raises the error that stopped the writer."""
        assert self.writer is not None
        while self._unconfirmed_bytes >= _UNCONFIRMED_BYTES_MAX and self._error is None:
            self._room.clear()
            await self._room.wait()
        if self._error is not None:
            raise self._error
        data = encode_view_entry(entry)
        self.writer.append(data)
        self._unconfirmed.append(len(data))
        self._unconfirmed_bytes += len(data)

    async def close(self) -> LedgerMetadata:
        """Wait until all entries are confirmed, then close the ledger.

        Raises as ``LedgerWriter.close``.
        """
        assert self.writer is not None
        return await self.writer.close()

    def abandon(self) -> None:
        if self.writer is not None:
            self.writer.abandon()
        self.stopped(LedgerClosed("the compacted view that was being written was given up"))


class ViewReader:
    """Reads one closed view."""

    def __init__(self, reader: LedgerReader) -> None:
        self._reader = reader
        # where the last read ended: the next position and its place
        self._hint: tuple[Position, int] | None = None
        self._last: dict[int, ViewEntry | None] = {}

    @property
    def ledger_id(self) -> int:
        return self._reader.ledger_id

    @property
    def _end(self) -> int:
        return self._reader.last_add_confirmed + 1

    async def _entries(self, first: int, last: int, max_bytes: int) -> list[ViewEntry]:
        return [
            decode_view_entry(entry.payload)
            for entry in await self._reader.read(first, last, max_bytes=max_bytes)
        ]

    async def _search(self, is_beyond: Callable[[ViewEntry], bool]) -> int:
        """Return the place of the first entry for which the function is true, by binary search."""
        low, high = 0, self._end
        while low < high:
            middle = (low + high) // 2
            if is_beyond((await self._entries(middle, middle, 1))[0]):
                high = middle
            else:
                low = middle + 1
        return low

    async def find(self, is_beyond: Callable[[ViewEntry], bool]) -> Position | None:
        """Return the position of the first entry for which the function is true.

        It must be true for all later entries.

        ``EARLIEST`` when it is the very first entry; ``None`` when there is none.
        """
        place = await self._search(is_beyond)
        if place == 0 < self._end:
            return EARLIEST
        return (await self._entries(place, place, 1))[0].position if place < self._end else None

    async def read(
        self, start: Position, audience: int, *, max_entries: int, max_bytes: int
    ) -> list[ViewEntry]:
        """Return entries for an audience from the first one at or above ``start``.

        At most ``max_entries`` and about ``max_bytes``, but at least one. [] only when the view has
        none there. Raises ``NoSuchLedger`` and the retryable errors of the ledger layer.
        """
        hint = self._hint
        place = (
            hint[1]
            if hint is not None and hint[0] == start
            else await self._search(lambda entry: entry.position >= start)
        )
        found: list[ViewEntry] = []
        while not found and place < self._end:
            entries = await self._entries(place, min(place + max_entries, self._end) - 1, max_bytes)
            place += len(entries)
            found = [
                entry for entry in entries if entry.audience & audience and entry.position >= start
            ]
        if found:
            last = found[-1].position
            # The entries read after the last one found are for other audiences.
            self._hint = (Position(last.ledger_id, last.entry_id + 1), place)
        return found

    async def last(self, audience: int) -> ViewEntry | None:
        """Return the last entry for an audience."""
        if audience not in self._last:
            self._last[audience] = await self._find_last(audience)
        return self._last[audience]

    async def _find_last(self, audience: int) -> ViewEntry | None:
        for place in range(self._end - 1, -1, -1):
            (entry,) = await self._entries(place, place, 1)
            if entry.audience & audience:
                return entry
        return None
