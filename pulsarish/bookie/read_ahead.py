"""What readers that go through a ledger in order want next, read from the entry logs before they
ask.

A read goes on with a *walk* when it begins where an earlier read of the ledger ended. From its
second read on a walk has the next piece read, on a disk lane of its own. A reader that jumps begins
another walk. Nothing more is read for the old one, and its bytes are dropped when it was not used
for ``_IDLE_SECONDS``.

The key of a record is its place, as in the read cache. The index alone says which place an entry
has now, and a reader asks it first. What the index has named is never written again. So an entry
that was deleted, moved or written again is never taken from here by its old place. Nothing is
checked here: the reader checks these bytes as it checks what it reads itself.

Each record is given once. All walks together have a limit in bytes, and no walk displaces what
another one may be about to use: without room nothing is read ahead.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsarish.bookie.entry_logs.entry_log import GAP_BYTES_MAX, READ_AHEAD_LANE, EntryLogs
from pulsarish.bookie.ledger_index import LedgerIndex, Location
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock, Tasks

__all__ = ["ReadAhead", "ReadAheadLimits", "Walk"]

_log = get_logger("bookie.read_ahead")

_IDLE_SECONDS: Final = 5.0
_WALKS_MAX: Final = 256
_PIECES_MAX: Final = 2  # the one that the reader is taking, and the next one
_READS_MIN: Final = 2
# The index is asked for several pieces of few entries at once: one look-up takes two changes of
# threads, and each of its rows a hundredth of one.
_ROWS_MIN: Final = 64
# With more bookies than copies, each has only some of a ledger's entries.
_SKIPPED_MAX: Final = 16
_ENTRY_BYTES: Final = 250
"""The memory of an entry besides its bytes."""

Record = bytes | memoryview


@dataclass(frozen=True, slots=True)
class ReadAheadLimits:
    """The limits of one piece, and of all pieces together. ``all_bytes`` 0 reads nothing ahead."""

    entries_max: int
    piece_bytes: int
    all_bytes: int


@dataclass(slots=True, eq=False)
class _Piece:
    """Records that are being read, or were."""

    first: int
    last: int = -1
    held_bytes: int = 0
    records: dict[Location, Record] = field(default_factory=dict)
    is_read: asyncio.Event = field(default_factory=asyncio.Event)
    is_dropped: bool = False


@dataclass(slots=True, eq=False)
class Walk:
    """One reader on its way through a ledger, or several in step."""

    ledger_id: int
    next_entry: int
    used_seconds: float
    reads: int = 0
    """Reads that followed one another."""
    entry_bytes: float = 0.0
    """The average size of an entry of the last read."""
    ahead_to: int = 0
    """Below this entry all was read ahead."""
    is_at_end: bool = False
    """Whether the logs had nothing from ``ahead_to`` on."""
    pieces: list[_Piece] = field(default_factory=list)
    rows: deque[tuple[int, Location]] = field(default_factory=deque)
    """Entries from ``ahead_to`` on, and where they lay when the index was asked."""


class ReadAhead:
    """The walks of one bookie's readers.

    Args:
        has_kept: whether a reader gets the record of a place without reading a log.
    """

    def __init__(
        self,
        tasks: Tasks,
        clock: Clock,
        index: LedgerIndex,
        logs: EntryLogs,
        limits: ReadAheadLimits,
        has_kept: Callable[[Location], bool],
    ) -> None:
        self.held_bytes = 0
        """The memory of all pieces, also of those that are being read."""
        self.hits = 0
        """Entries that readers got from here."""
        self.read_entries = 0
        """Entries that were read ahead. What readers did not get of them was read for nothing."""
        self._tasks = tasks
        self._clock = clock
        self._index = index
        self._logs = logs
        self._limits = limits
        self._has_kept = has_kept
        self._walks: OrderedDict[Walk, None] = OrderedDict()  # in order of last use
        self._of_ledger: dict[int, list[Walk]] = {}
        self._running: dict[_Piece, None] = {}
        self._is_on = limits.all_bytes > 0

    @property
    def walks_count(self) -> int:
        return len(self._walks)

    def begin(self, ledger_id: int, first: int) -> Walk | None:
        """Return the walk of a read that begins at ``first``; ``None``: nothing is read ahead."""
        if not self._is_on:
            return None
        now = self._clock.monotonic()
        while self._walks:
            oldest = next(iter(self._walks))
            if len(self._walks) <= _WALKS_MAX and oldest.used_seconds + _IDLE_SECONDS >= now:
                break
            self._drop(oldest)
        for walk in self._of_ledger.get(ledger_id, ()):
            if walk.next_entry <= first <= walk.next_entry + _SKIPPED_MAX:
                walk.used_seconds = now
                self._walks.move_to_end(walk)
                return walk
        walk = Walk(ledger_id, first, now)
        self._walks[walk] = None
        self._of_ledger.setdefault(ledger_id, []).append(walk)
        return walk

    async def take(self, walk: Walk, places: Sequence[Location]) -> dict[Location, Record]:
        """Return the records at these places that were read ahead, and forget them.

        Waits for what is being read.
        """
        found: dict[Location, Record] = {}
        for piece in list(walk.pieces):
            if len(found) == len(places):
                break
            _ = await piece.is_read.wait()
            for place in places:
                if (record := piece.records.pop(place, None)) is not None:
                    found[place] = record
        self.hits += len(found)
        return found

    def end(self, walk: Walk, next_entry: int, entries: int, size_bytes: int) -> None:
        """Note where a read ended, and read on if that is wanted.

        Args:
            entries: those that lie in the logs, of this read; 0: its reader is at the tail.
            size_bytes: of these entries.
        """
        walk.next_entry = next_entry
        walk.reads += 1
        for piece in [each for each in walk.pieces if each.is_read.is_set()]:
            if piece.last < next_entry or not piece.records:
                walk.pieces.remove(piece)
                self._drop_piece(piece)
        if next_entry > walk.ahead_to:
            walk.ahead_to, walk.is_at_end = next_entry, False
            walk.rows.clear()
        if not entries:
            return
        walk.entry_bytes = size_bytes / entries
        if (
            walk.reads >= _READS_MIN
            and not walk.is_at_end
            and len(walk.pieces) < _PIECES_MAX
            # A piece in progress says how far it goes when it is read.
            and all(piece.is_read.is_set() for piece in walk.pieces)
            and (walk.ahead_to - next_entry) * walk.entry_bytes < size_bytes
            and self.held_bytes + self._limits.piece_bytes <= self._limits.all_bytes
            and self._is_on
            and walk in self._walks
        ):
            piece = _Piece(walk.ahead_to)
            piece.held_bytes = self._limits.piece_bytes
            self.held_bytes += piece.held_bytes
            walk.pieces.append(piece)
            self._running[piece] = None
            _ = self._tasks.spawn(self._read(walk, piece), name=f"read-ahead-{walk.ledger_id}")

    async def _read(self, walk: Walk, piece: _Piece) -> None:
        try:
            places = await self._places(walk, piece)
            records = await self._logs.read(places, READ_AHEAD_LANE)
            if not piece.is_dropped:
                piece.records = {
                    place: record
                    for place, record in zip(places, records, strict=True)
                    if not isinstance(record, OSError)
                }
                self.read_entries += len(piece.records)
        except Exception as error:  # noqa: BLE001
            # Whatever it is: the reader reads for itself and answers with what it finds.
            _log.debug("nothing is read ahead", ledger=walk.ledger_id, reason=error)
            walk.is_at_end = True
        finally:
            del self._running[piece]
            piece.is_read.set()
            if piece.is_dropped:
                self._free(piece)

    async def _places(self, walk: Walk, piece: _Piece) -> list[Location]:
        """Return the places of a piece, and reserve the memory that it really takes."""
        limits = self._limits
        count = min(limits.entries_max, int(limits.piece_bytes / max(1.0, walk.entry_bytes)) + 1)
        if len(walk.rows) < count:
            first = walk.rows[-1][0] + 1 if walk.rows else piece.first
            walk.rows += await self._index.entry_locations(
                walk.ledger_id, first, max(count, _ROWS_MIN)
            )
        while walk.rows and walk.rows[0][0] < walk.next_entry:  # the reader was faster
            _ = walk.rows.popleft()
        places: list[Location] = []
        span_bytes, end = 0, (-1, 0)
        while walk.rows and len(places) < limits.entries_max:
            entry_id, place = walk.rows[0]
            log_id, offset, size = place
            gap = offset - end[1] if log_id == end[0] else 0
            need = size + (gap if 0 < gap <= GAP_BYTES_MAX else 0)
            if self._has_kept(place) or (places and span_bytes + need > limits.piece_bytes):
                break
            span_bytes += need
            end = log_id, offset + size
            places.append(place)
            piece.last = entry_id
            _ = walk.rows.popleft()
        held_bytes = span_bytes + len(places) * _ENTRY_BYTES
        if self.held_bytes - piece.held_bytes + held_bytes > limits.all_bytes:
            places, held_bytes = [], 0  # one entry that is larger than a piece
        self.held_bytes += held_bytes - piece.held_bytes
        piece.held_bytes = held_bytes
        if places:
            walk.ahead_to = max(walk.ahead_to, piece.last + 1)
        else:
            walk.is_at_end = True
            walk.rows.clear()
        return places

    def _drop(self, walk: Walk) -> None:
        del self._walks[walk]
        others = self._of_ledger[walk.ledger_id]
        others.remove(walk)
        if not others:
            del self._of_ledger[walk.ledger_id]
        for piece in walk.pieces:
            self._drop_piece(piece)
        walk.pieces = []
        walk.rows.clear()

    def _drop_piece(self, piece: _Piece) -> None:
        """Drop a piece. One that is being read keeps its bytes until that ends."""
        piece.is_dropped = True
        piece.records = {}
        if piece not in self._running:
            self._free(piece)

    def _free(self, piece: _Piece) -> None:
        self.held_bytes -= piece.held_bytes
        piece.held_bytes = 0

    async def stop(self) -> None:
        """Drop everything, and wait for what is being read."""
        self._is_on = False
        for walk in list(self._walks):
            self._drop(walk)
        for piece in list(self._running):
            _ = await piece.is_read.wait()

    def check(self) -> None:
        """Assert what always holds."""
        assert self.held_bytes <= self._limits.all_bytes
        pieces = dict.fromkeys([*self._running, *(p for walk in self._walks for p in walk.pieces)])
        assert self.held_bytes == sum(piece.held_bytes for piece in pieces)
        assert sorted(walk.ledger_id for walk in self._walks) == sorted(
            ledger_id for ledger_id, walks in self._of_ledger.items() for _ in walks
        )
