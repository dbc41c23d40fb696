"""The reader of a topic's log: entries by position, from the tail cache when it has them, otherwise
from the ledgers.

No reader gets an entry above the last confirmed one (rule 3). A ledger that the chain names and the
storage does not know is an error that names the ledger. It is never skipped (rule 20), unless an
operator's command has moved the topic past it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from pulsarish.ledger.reader import LedgerReader
from pulsarish.managed_ledger.chain import Chain, Link
from pulsarish.managed_ledger.tail_cache import TailCache
from pulsarish.model.position import Position

__all__ = ["LogEntry", "LogReader"]

_BEFORE_ALL: Final = Position(-1, -1)
_READERS_MAX: Final = 8  # open readers of one topic; each is little more than a ledger's metadata


class LogEntry(NamedTuple):
    position: Position
    payload: bytes | memoryview


class LogReader:
    """Reads one topic's chain.

    Several reads may run at once; reads of the same range share one request.

    ``open_ledger(id)`` opens a closed ledger. ``current()`` gives the reader of the open one.
    """

    def __init__(
        self,
        chain: Chain,
        open_ledger: Callable[[int], Awaitable[LedgerReader]],
        cache: TailCache,
        current: Callable[[], LedgerReader],
    ) -> None:
        self._chain = chain
        self._open_ledger = open_ledger
        self._cache = cache
        self._current = current
        self._readers: OrderedDict[int, LedgerReader] = OrderedDict()
        # None: the reading caller was cancelled
        self._running: dict[tuple[int, int, int], asyncio.Future[list[LogEntry] | None]] = {}

    async def read(self, start: Position, *, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """Return entries in order from the first one at or above ``start``.

        At most ``max_entries`` and ``max_bytes``, but one entry whatever its size. The result is
        shorter when more would take another request. [] only when there is no confirmed entry
        there. Raises ``NoSuchLedger`` and the retryable errors of the ledger layer.
        """
        chain = self._chain
        found: list[LogEntry] = []
        size = 0
        is_there = chain.contains(start) and chain.lost_at(start) is None
        position = (
            start
            if is_there
            else chain.next_position(Position(start.ledger_id, start.entry_id - 1))
        )
        while len(found) < max_entries and size < max_bytes and chain.contains(position):
            link = chain.find(position.ledger_id)
            assert link is not None
            last = chain.readable_until(
                position, min(link.entries - 1, position.entry_id + max_entries - len(found) - 1)
            )
            cached = self._cache.read(link.ledger_id, position.entry_id, last, max_bytes - size)
            if not cached:
                if not found:
                    found = await self._read_ledger(link, position.entry_id, last, max_bytes)
                break
            for payload in cached:
                found.append(LogEntry(position, payload))
                size += len(payload)
                position = Position(position.ledger_id, position.entry_id + 1)
            if position.entry_id <= last:
                break  # the byte limit
            position = chain.next_position(Position(link.ledger_id, last))
        return found

    async def _read_ledger(
        self, link: Link, first: int, last: int, max_bytes: int
    ) -> list[LogEntry]:
        """Read a range of one ledger.

        Several cursors that read the same backlog ask for the same range; it is read once.
        """
        key = (link.ledger_id, first, last)
        while (running := self._running.get(key)) is not None:
            shared = await asyncio.shield(running)
            if shared is not None:
                return shared
        answer: asyncio.Future[list[LogEntry] | None] = asyncio.get_running_loop().create_future()
        self._running[key] = answer
        try:
            reader = await self._reader(link)
            entries = [
                LogEntry(Position(link.ledger_id, entry.entry_id), entry.payload)
                for entry in await reader.read(first, last, max_bytes=max_bytes)
            ]
        except BaseException as error:
            # so that the next attempt reads the ledger's metadata again
            self._readers.pop(link.ledger_id, None)
            if isinstance(error, asyncio.CancelledError):
                answer.set_result(None)
            else:
                answer.set_exception(error)
                answer.exception()  # retrieved here, because there may be no other waiter
            raise
        finally:
            del self._running[key]
        answer.set_result(entries)
        return entries

    async def _reader(self, link: Link) -> LedgerReader:
        if link.closed_ms == 0:
            return self._current()
        reader = self._readers.get(link.ledger_id)
        if reader is None:
            reader = self._readers[link.ledger_id] = await self._open_ledger(link.ledger_id)
            while len(self._readers) > _READERS_MAX:
                self._readers.popitem(last=False)
        else:
            self._readers.move_to_end(link.ledger_id)
        return reader

    def forget(self, ledger_id: int) -> None:
        self._readers.pop(ledger_id, None)
        self._cache.forget(ledger_id)

    async def find_by_time(
        self, time_ms: int, time_of: Callable[[LogEntry], int]
    ) -> Position | None:
        """Return the first entry whose time is ``time_ms`` or later, by binary search.

        ``None`` when all entries are older, including those appended during the search. The times
        of several producers are only nearly in order, so the answer is only as exact as they are.

        Args:
            time_of: returns an entry's publish time in ms since the epoch.
        """
        chain = self._chain
        low = chain.ordinal(_BEFORE_ALL)
        high = end = chain.ordinal(chain.last_position())
        while True:
            low = max(low, chain.ordinal(_BEFORE_ALL))
            if low >= end:
                # A caller that gets None continues at the end of the log, so entries appended
                # during the search must be checked, too.
                high = end = chain.ordinal(chain.last_position())
            if low >= high:
                return chain.position_at(low) if low < end else None
            middle = (low + high) // 2
            entries = await self.read(chain.position_at(middle), max_entries=1, max_bytes=1)
            if middle < chain.ordinal(_BEFORE_ALL):
                continue  # trimmed while it was read
            # The read is empty where all entries up to the end of the log are lost.
            if entries and time_of(entries[0]) < time_ms:
                low = middle + 1
            else:
                high = middle
