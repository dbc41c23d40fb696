"""Read-ahead of one subscription: what follows in a backlog is asked for before it is wanted.

Only a reader that goes through a backlog in order gets it, from its second read on. The requests
double up to a limit in bytes. At most one is under way, and the next one begins when the reader
reaches what the last one brought, so that at most two lie in the read cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pulsarish.managed_ledger.read_cache import ENTRY_OVERHEAD_BYTES
from pulsarish.model.errors import PulsarishError
from pulsarish.model.position import Position
from pulsarish.runtime.containment import Scope

if TYPE_CHECKING:
    import asyncio

    from pulsarish.managed_ledger.log_reader import LogEntry, LogReader
    from pulsarish.runtime.seams import Tasks

__all__ = ["ReadAhead"]

_PAUSE_READS: Final = 100
"""Reads without read-ahead after its entries were dropped from the cache before they were used."""


class ReadAhead:
    """Asks bookies for what a reader of a log will want next.

    ``bytes_max``: of one request, in memory; 0: none is made.
    """

    __slots__ = (
        "_begun",
        "_bytes",
        "_bytes_max",
        "_next",
        "_pause",
        "_reached",
        "_reader",
        "_scope",
        "_task",
        "_tasks",
    )

    def __init__(self, reader: LogReader, tasks: Tasks, bytes_max: int, scope: Scope) -> None:
        self._reader = reader
        self._tasks = tasks
        self._bytes_max = min(bytes_max, reader.ahead_bytes_max)
        self._scope = scope
        self._next: Position | None = None  # where a reader in order reads next
        # the first and the last entry of the last request that was answered
        self._begun: Position | None = None
        self._reached: Position | None = None
        self._bytes = 0  # of the last request
        self._pause = 0
        self._task: asyncio.Task[None] | None = None

    def follow(self, start: Position, entries: Sequence[LogEntry]) -> None:
        """Note that ``entries`` were read from ``start`` on, for delivery in order."""
        if not self._bytes_max or not entries:
            return
        is_next = start == self._next
        last = entries[-1].position
        self._next = Position(last.ledger_id, last.entry_id + 1)
        if not is_next:
            self.stop()
        elif self._pause:
            self._pause -= 1
        elif self._task is None:
            read_bytes = sum([len(entry.payload) for entry in entries])
            read_bytes += ENTRY_OVERHEAD_BYTES * len(entries)
            # Otherwise the reads themselves are large, and it would save few of them.
            if 2 * read_bytes <= self._bytes_max:
                self._go_on(last, read_bytes)

    def _go_on(self, last: Position, read_bytes: int) -> None:
        reached = self._reached
        if reached is not None and self._begun is not None and reached > last:
            if last < self._begun:
                return
            if not self._reader.is_kept(reached):
                # It left the cache before it was used: other readers need the room.
                self.stop()
                self._pause = _PAUSE_READS
                return
            last = reached
        if self._reader.next_missing(last) is None:
            return
        self._bytes = min(self._bytes_max, 2 * max(self._bytes, read_bytes))
        self._task = self._tasks.spawn(
            self._fetch(last), name=f"read ahead in ledger {last.ledger_id}", scope=self._scope
        )

    async def _fetch(self, after: Position) -> None:
        # The reader's own next request has begun meanwhile.
        self._begun = self._reached = None
        # An error is met again by the reader when it comes here, and told by it.
        with suppress(PulsarishError):
            span = await self._reader.fetch(after, self._bytes)
            if span is not None:
                self._begun = Position(span.ledger_id, span.first)
                self._reached = Position(span.ledger_id, span.last)
        self._task = None

    def stop(self) -> None:
        """Give up the request that is under way, and begin again."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._begun = self._reached = None
        self._bytes = 0

    def close(self) -> None:
        """Give up for good."""
        self.stop()
        self._bytes_max = 0
