"""What a subscription reads: the plain log, or the topic's compacted view with the log behind it.

A source knows which entries exist, which are acknowledged, and where delivery begins. The cursor is
behind it: acknowledging goes through the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from pulsarish.broker.compaction.reads import last_index
from pulsarish.model.position import Position
from pulsarish.wire.entry import parse_metadata

if TYPE_CHECKING:
    from pulsarish.broker.dispatchers.reads import Reads, Ready
    from pulsarish.managed_ledger.cursors.cursor import Cursor
    from pulsarish.managed_ledger.log_reader import LogEntry
    from pulsarish.managed_ledger.readable_log import ReadableLog

__all__ = ["LogReads", "ReadSource"]


class ReadSource(Protocol):
    """Where the entries of a subscription come from. ``CompactedReads`` is another one."""

    is_compacted: bool

    def read_from(self) -> Position:
        """Start or restart reading. Return the first position to deliver."""
        ...

    def end(self) -> Position:
        """Return the last position that may be delivered."""
        ...

    def unread_entries(self, reads: Reads, end: Position) -> int:
        """Return how many entries up to ``end`` are not read yet, or 1 for an unknown number."""
        ...

    async def read(self, start: Position, *, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """Read as ``ManagedLedger.read``."""
        ...

    def completed(self, ready: list[Ready]) -> list[Ready]:
        """Return the entries of the last read with what a client must know of them."""
        ...

    def contains(self, position: Position) -> bool:
        """Return whether an entry is there (rule 18)."""
        ...

    def is_acknowledged(self, position: Position) -> bool:
        """Return whether an entry needs no delivery any more."""
        ...

    def acknowledge(self, positions: Sequence[Position]) -> None:
        """Acknowledge entries. Raises ``InvalidPosition``."""
        ...

    def acknowledge_through(self, position: Position) -> None:
        """Acknowledge everything up to ``position``. Raises ``InvalidPosition``."""
        ...

    def acknowledge_part(self, position: Position, size: int, indexes: Sequence[int]) -> bool:
        """Acknowledge messages of a batch of ``size``; 0: the entry no longer exists.

        Return whether the whole entry is acknowledged now.
        """
        ...

    async def batch_size(self, position: Position) -> int:
        """Return the number of messages of an entry; 0 when it no longer exists.

        Raises the errors of ``read``.
        """
        ...

    def moved(self, position: Position) -> None:
        """Deliver from ``position`` on. The cursor has been moved there."""
        ...

    async def find_by_time(
        self, time_ms: int, time_of: Callable[[LogEntry], int]
    ) -> Position | None:
        """Find as ``ManagedLedger.find_by_time``."""
        ...

    async def last(self) -> tuple[Position, int]:
        """Return the position and batch index (-1: not in a batch) of the last message to be
        delivered; entry -1 when there is none.
        """
        ...


class LogReads:
    """The plain log as a source."""

    is_compacted = False

    def __init__(self, log: ReadableLog, cursor: Cursor) -> None:
        self._log = log
        self._cursor = cursor
        self.contains = log.contains
        self.is_acknowledged = cursor.is_acknowledged
        self.acknowledge = cursor.acknowledge
        self.acknowledge_through = cursor.acknowledge_cumulative

    def read_from(self) -> Position:
        return self._cursor.read_from

    def end(self) -> Position:
        return self._log.last_confirmed

    async def read(self, start: Position, *, max_entries: int, max_bytes: int) -> list[LogEntry]:
        return await self._log.read(start, max_entries=max_entries, max_bytes=max_bytes)

    async def find_by_time(
        self, time_ms: int, time_of: Callable[[LogEntry], int]
    ) -> Position | None:
        return await self._log.find_by_time(time_ms, time_of)

    def unread_entries(self, reads: Reads, end: Position) -> int:
        return self._log.entries_between(
            Position(reads.position.ledger_id, reads.position.entry_id - 1), end
        )

    def completed(self, ready: list[Ready]) -> list[Ready]:
        return ready

    def acknowledge_part(self, position: Position, size: int, indexes: Sequence[int]) -> bool:
        if size:
            self._cursor.acknowledge_batch(position, size, indexes)
        return self._cursor.is_acknowledged(position)

    async def batch_size(self, position: Position) -> int:
        entries = await self._log.read(position, max_entries=1, max_bytes=1)
        is_there = entries and entries[0].position == position
        return int(parse_metadata(entries[0].payload).num_messages_in_batch) if is_there else 0

    def moved(self, position: Position) -> None:
        pass

    async def last(self) -> tuple[Position, int]:
        last = self._log.last_confirmed
        return last, await last_index(self._log, last)
