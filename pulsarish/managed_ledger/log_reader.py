"""The reader of a topic's log: entries by position, from the tail cache when it has them, otherwise
from the ledgers. What was read from a ledger is kept for others that read the same backlog.

No reader gets an entry above the last confirmed one (rule 3). A ledger that the chain names and the
storage does not know is an error that names the ledger. It is never skipped (rule 20), unless an
operator's command has moved the topic past it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from pulsarish.ledger.reader import LedgerReader
from pulsarish.managed_ledger.chain import Chain, Link
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.read_cache import ENTRY_OVERHEAD_BYTES
from pulsarish.model.position import Position

__all__ = ["LogEntry", "LogReader", "Span"]

_BEFORE_ALL: Final = Position(-1, -1)
_READERS_MAX: Final = 8  # open readers of one topic; each is little more than a ledger's metadata


class LogEntry(NamedTuple):
    position: Position
    payload: bytes | memoryview


class Span(NamedTuple):
    """Consecutive entries of one ledger; ``last`` included."""

    ledger_id: int
    first: int
    last: int


class _Request:
    """A read of a ledger that is under way. ``done`` has its entries; None: it was cancelled."""

    __slots__ = ("done", "first", "is_kept", "last", "ledger_id")

    def __init__(self, ledger_id: int, first: int, last: int) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.last = last
        """The last entry that it will bring, as far as can be known before."""
        self.is_kept = True
        """Whether its entries may be kept: the ledger was not forgotten meanwhile."""
        self.done: asyncio.Future[list[LogEntry] | None] = (
            asyncio.get_running_loop().create_future()
        )


class LogReader:
    """Reads one topic's chain.

    Several reads may run at once. An entry that one of them asks a bookie for is not asked for by
    another one.

    ``open_ledger(id)`` opens a closed ledger. ``current()`` gives the reader of the open one.
    """

    def __init__(
        self,
        chain: Chain,
        open_ledger: Callable[[int], Awaitable[LedgerReader]],
        caches: EntryCaches,
        current: Callable[[], LedgerReader],
    ) -> None:
        self._chain = chain
        self._open_ledger = open_ledger
        self._tail = caches.tail
        self._reads = caches.reads
        self._caches = caches
        self._current = current
        self._readers: dict[int, LedgerReader] = {}  # the last one used is the last
        self._running: list[_Request] = []
        self._closed = False

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
            cached = self._tail.read(link.ledger_id, position.entry_id, last, max_bytes - size)
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

    def cached(self, start: Position, *, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """Return consecutive entries of one ledger from ``start`` on, from the tail cache only.

        The limits are those of ``read``. [] when ``start`` is not there.
        """
        link = self._chain.find(start.ledger_id)
        if link is None:
            return []
        last = self._chain.readable_until(
            start, min(link.entries, start.entry_id + max_entries) - 1
        )
        payloads = self._tail.read(link.ledger_id, start.entry_id, last, max_bytes)
        return [
            LogEntry(Position(link.ledger_id, entry_id), payload)
            for entry_id, payload in enumerate(payloads, start.entry_id)
        ]

    def is_kept(self, position: Position) -> bool:
        """Return whether an entry that was read from a bookie is still in memory."""
        return self._reads.end_of_kept(*position) > position.entry_id

    def next_missing(self, position: Position) -> Span | None:
        """Return the next confirmed entries after ``position`` that are neither in memory nor
        being read.

        ``None`` at the tail, and where the next one would be in another ledger.
        """
        chain = self._chain
        start = chain.next_position(position)
        link = chain.find(start.ledger_id)
        if link is None:
            return None
        last = chain.readable_until(start, link.entries - 1)
        tail = self._tail.first_entry(link.ledger_id)
        if tail is not None:
            last = min(last, tail - 1)
        first = self._reads.end_of_kept(link.ledger_id, start.entry_id)
        while (request := self._request_of(link.ledger_id, first)) is not None:
            first = self._reads.end_of_kept(link.ledger_id, request.last + 1)
        return Span(link.ledger_id, first, last) if first <= last else None

    @property
    def ahead_bytes_max(self) -> int:
        """The most that one request ahead of a reader may bring."""
        return self._caches.ahead_bytes_max

    async def fetch(self, position: Position, max_bytes: int) -> Span | None:
        """Read the next entries after ``position`` that are missing into memory, with one request.

        Return them. ``None``: there are none, or the requests of all topics ahead of their readers
        fill their part of the cache. Raises the errors of ``read``.
        """
        span = self.next_missing(position)
        link = None if span is None else self._chain.find(span.ledger_id)
        if span is None or link is None or not self._caches.has_ahead_room(max_bytes):
            return None
        entry_bytes = ENTRY_OVERHEAD_BYTES + link.size_bytes // max(1, link.entries)
        last = min(span.last, span.first + max(1, max_bytes // entry_bytes) - 1)
        self._caches.ahead_bytes += max_bytes
        try:
            found = await self._ask(link, span.first, last, max_bytes, is_ahead=True)
        finally:
            self._caches.ahead_bytes -= max_bytes
        return Span(span.ledger_id, span.first, found[-1].position.entry_id)

    async def _read_ledger(
        self, link: Link, first: int, last: int, max_bytes: int
    ) -> list[LogEntry]:
        """Read a range of one ledger.

        Several cursors that read the same backlog ask for nearly the same ranges. An entry is read
        once for all of them.
        """
        ledger_id = link.ledger_id
        while True:
            kept = self._kept(ledger_id, first, last, max_bytes)
            if kept:
                return kept
            running = self._request_of(ledger_id, first)
            if running is None:
                return await self._ask(link, first, last, max_bytes)
            entries = await asyncio.shield(running.done)
            shared = self._kept(ledger_id, first, last, max_bytes) or _cut(
                entries or (), first, last, max_bytes
            )
            if shared:
                return shared

    def _kept(self, ledger_id: int, first: int, last: int, max_bytes: int) -> list[LogEntry]:
        return [
            LogEntry(Position(ledger_id, entry_id), payload)
            for entry_id, payload in enumerate(
                self._reads.read(ledger_id, first, last, max_bytes), first
            )
        ]

    def _request_of(self, ledger_id: int, entry_id: int) -> _Request | None:
        """Return the read under way that will bring this entry."""
        for request in self._running:
            if request.ledger_id == ledger_id and request.first <= entry_id <= request.last:
                return request
        return None

    async def _ask(
        self, link: Link, first: int, last: int, max_bytes: int, *, is_ahead: bool = False
    ) -> list[LogEntry]:
        """Read from bookies, up to where another read that is under way begins."""
        ledger_id = link.ledger_id
        self._reads.misses += not is_ahead
        entry_bytes = max(1, link.size_bytes // max(1, link.entries))
        reach = min(last, first + max(0, max_bytes // entry_bytes - 1))
        for other in self._running:
            if other.ledger_id == ledger_id and other.first > first:
                last = min(last, other.first - 1)
        request = _Request(ledger_id, first, min(reach, last))
        request.is_kept = not self._closed
        self._running.append(request)
        try:
            reader = await self._reader(link)
            found = await reader.read(first, last, max_bytes=max_bytes)
            if request.is_kept:
                payloads = [entry.payload for entry in found]
                self._reads.insert(ledger_id, first, payloads, is_ahead=is_ahead)
            entries = [
                LogEntry(Position(ledger_id, entry.entry_id), entry.payload) for entry in found
            ]
        except BaseException as error:
            # so that the next attempt reads the ledger's metadata again
            self._readers.pop(ledger_id, None)
            if isinstance(error, asyncio.CancelledError):
                request.done.set_result(None)
            else:
                request.done.set_exception(error)
                request.done.exception()  # retrieved here, because there may be no other waiter
            raise
        finally:
            self._running.remove(request)
        request.done.set_result(entries)
        return entries

    async def _reader(self, link: Link) -> LedgerReader:
        if link.closed_ms == 0:
            return self._current()
        reader = self._readers.pop(link.ledger_id, None)
        if reader is None:
            reader = await self._open_ledger(link.ledger_id)
        self._readers[link.ledger_id] = reader
        while len(self._readers) > _READERS_MAX:
            del self._readers[next(iter(self._readers))]
        return reader

    def forget(self, ledger_id: int) -> None:
        """Drop what is kept of a ledger that was deleted."""
        self._readers.pop(ledger_id, None)
        self._caches.forget(ledger_id)
        for request in self._running:
            if request.ledger_id == ledger_id:
                request.is_kept = False

    def close(self) -> None:
        """Drop what is kept of all ledgers, because the topic leaves this process."""
        self._closed = True
        for link in self._chain.links:
            self.forget(link.ledger_id)

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


def _cut(entries: Sequence[LogEntry], first: int, last: int, max_bytes: int) -> list[LogEntry]:
    """Return the entries from ``first`` to ``last``, within ``max_bytes`` but at least one; [] when
    ``first`` is not among them.
    """
    if not entries:
        return []
    start = entries[0].position.entry_id
    found: list[LogEntry] = []
    size_bytes = 0
    for entry in entries[first - start : last + 1 - start]:
        size_bytes += len(entry.payload)
        if found and size_bytes > max_bytes:
            break
        found.append(entry)
    return found
