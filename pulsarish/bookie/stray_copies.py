"""Delete copies that no metadata name any more while their ledger lives (rule 12).

A bookie that comes back after auto-recovery replaced it still has its copies, and so has a bookie
for which a repair copied entries and named another one in the end. Only the segments of closed
ledgers are looked at: after the closing, only a repair changes members. Entries of a segment that
does not name this bookie are stray copies. The fence and the LAC of the ledger stay.

A copy may be one that a repair is making right now: a repair names the bookie after it has written
the copies. Three things together spare it, and none of them is a time:

* A ledger that is published as under-replicated is left alone.
* Only records that were in an entry log at the first look are deleted. What was written since then
  stays. Recovery and repair always write an entry again, even when it is there.
* Before anything is deleted, the ledger's record is stored once more, at the version that was read.
  A repair that read an older version, and whose ledger is not published any more, cannot store
  the new member then (``LedgerRepair``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from pulsarish.bookie.ledger_index import ROWS_MAX
from pulsarish.bookie.store import EntryStore
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.metadata import paths
from pulsarish.model.errors import CorruptData
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.model.position import ID_MAX
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.rate_limiter import RateLimiter
from pulsarish.runtime.seams import Clock, Conflict, Versioned
from pulsarish.wire.json_record import decode_record

__all__ = ["StrayCopies", "unnamed_spans"]

_log = get_logger("bookie.stray_copies")
_LEDGERS_MAX: Final = 50_000
"""Ledgers with stray copies that wait at a time: about 10 MB. The next ones wait for a round."""
_LEDGERS_PER_SECOND: Final = 50
"""Each takes a write of metadata."""

Span = tuple[int, int]
"""The first and the last entry."""


class _Waiting(NamedTuple):
    since: float
    """The first look, by the clock's ``monotonic``."""
    end: tuple[int, int]
    """The end of the entry logs then."""


class StrayCopies:
    """The stray copies of one bookie. The garbage collector calls it, one call at a time."""

    def __init__(self, store: EntryStore, ledgers: LedgerStore, clock: Clock) -> None:
        self.entries_deleted = 0
        self.bytes_deleted = 0
        self._store = store
        self._ledgers = ledgers
        self._clock = clock
        self._rate = RateLimiter(clock, _LEDGERS_PER_SECOND)
        self._waiting: dict[int, _Waiting] = {}
        self._looked: dict[int, _Waiting] = {}
        self._look = _Waiting(0.0, (0, 0))

    @property
    def ledgers_count(self) -> int:
        """Ledgers with stray copies that wait for the second look or the end of the grace."""
        return len(self._waiting)

    async def begin(self) -> None:
        """Begin a round of looks."""
        async with self._store.checkpointer.lock:  # no log begins meanwhile
            self._look = _Waiting(self._clock.monotonic(), self._store.logs.end)
        self._looked = {}

    async def look(self, ledger_id: int, node: Versioned) -> None:
        """Look at the record of a ledger that is here. Raises ``BookieIOError``."""
        spans = self._spans_of(ledger_id, node)
        if spans and len(self._looked) < _LEDGERS_MAX and await self._has_any(ledger_id, spans):
            self._looked[ledger_id] = self._waiting.get(ledger_id) or self._look

    def due(self, wait_seconds: float) -> list[int]:
        """End the round of looks. Return ledgers that had stray copies at all looks of so long a
        time.
        """
        self._waiting, self._looked = self._looked, {}
        now = self._clock.monotonic()
        return [each for each, seen in self._waiting.items() if now - seen.since >= wait_seconds]

    def forget(self) -> None:
        """Begin again with the first look, because the metadata cannot be trusted."""
        self._waiting, self._looked = {}, {}

    async def delete(self, ledger_id: int, node: Versioned | None, *, is_published: bool) -> None:
        """Delete the stray copies of a ledger that was ``due``.

        Args:
            node: its record, read now.
            is_published: whether it is published as under-replicated, read now.

        Raises ``MetadataUnavailable``, ``BookieIOError``.
        """
        seen = self._waiting.pop(ledger_id)
        spans = [] if node is None else self._spans_of(ledger_id, node)
        if node is None or is_published or not spans:
            return
        await self._rate.take(1)
        metadata = decode_record(node.data, LedgerMetadata, paths.ledger(ledger_id))
        try:
            _ = await self._ledgers.store(metadata, node.version)
        except Conflict:
            return  # the record changed just now: look again
        store = self._store
        async with store.checkpointer.lock:
            entries = size_bytes = 0
            for span in spans:
                deleted = await self._delete_span(ledger_id, span, seen.end)
                entries, size_bytes = entries + deleted[0], size_bytes + deleted[1]
            with store.index_write():
                await store.index.rows.write([], sync=True)
        self.entries_deleted += entries
        self.bytes_deleted += size_bytes
        _log.info(
            "deleted copies of a ledger that no longer names this bookie for them",
            ledger=ledger_id,
            entries=entries,
            bytes=size_bytes,
        )

    async def _delete_span(
        self, ledger_id: int, span: Span, end: tuple[int, int]
    ) -> tuple[int, int]:
        """Delete the entries of a span before ``end``. Return how many, and their bytes."""
        store, (first, last) = self._store, span
        entries = size_bytes = 0
        while page := await store.index.entry_locations(ledger_id, first, ROWS_MAX):
            old = [
                (entry_id, place)
                for entry_id, place in page
                if entry_id <= last and place[:2] < end
            ]
            with store.index_write():
                await store.index.drop_entries(ledger_id, old)
            store.read_cache.drop(place for _, place in old)
            entries += len(old)
            size_bytes += sum(place[2] for _, place in old)
            first = page[-1][0] + 1
            if first > last:
                break
        return entries, size_bytes

    def _spans_of(self, ledger_id: int, node: Versioned) -> list[Span]:
        """Return the entries of a ledger for which its record names other bookies.

        A record that cannot be read says nothing.
        """
        try:
            metadata = decode_record(node.data, LedgerMetadata, paths.ledger(ledger_id))
        except CorruptData as error:
            _log.error("the record of a ledger cannot be read", ledger=ledger_id, reason=error)
            return []
        return unnamed_spans(metadata, self._store.instance_id)

    async def _has_any(self, ledger_id: int, spans: Sequence[Span]) -> bool:
        for first, last in spans:
            found = await self._store.index.entry_locations(ledger_id, first, 1)
            if found and found[0][0] <= last:
                return True
        return False


def unnamed_spans(metadata: LedgerMetadata, member: str) -> list[Span]:
    """Return the entries of a closed ledger in whose segments a bookie is no member.

    Nothing of a ledger that is not closed: its writer, or the client that recovers it, may have
    written to a bookie that the record does not name yet.
    """
    if metadata.state is not LedgerState.CLOSED:
        return []
    firsts = [*(segment.first_entry for segment in metadata.segments), ID_MAX + 1]
    return [
        (first, after - 1)
        for segment, (first, after) in zip(metadata.segments, pairwise(firsts), strict=True)
        if member not in segment.members
    ]
