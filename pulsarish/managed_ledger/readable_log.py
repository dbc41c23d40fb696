"""A topic's log as those see it who read it: on its owner, or on a broker that follows it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.log_reader import LogEntry, LogReader
from pulsarish.managed_ledger.read_ahead import ReadAhead
from pulsarish.managed_ledger.seek_target import judge_foreign, seek_target
from pulsarish.metadata.records import LostRange
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerPurpose, PurposeKind
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.containment import Scope
from pulsarish.runtime.seams import Tasks

__all__ = ["ReadableLog"]


class ReadableLog(ABC):
    """The chain of a topic's ledgers and its confirmed entries."""

    def __init__(self, chain: Chain, ledgers: LedgerClient, reader: LogReader) -> None:
        self._chain = chain
        self._ledgers = ledgers
        self._reader = reader

    @property
    @abstractmethod
    def name(self) -> TopicName: ...

    @property
    @abstractmethod
    def terminated(self) -> bool:
        """Whether nothing will follow the last confirmed entry."""

    @property
    @abstractmethod
    def highest_ledger(self) -> int:
        """The greatest id that was ever in the chain."""

    @abstractmethod
    async def why_beyond(self, position: Position) -> PulsarishError:
        """Return the error for a position beyond the log."""

    @property
    def last_confirmed(self) -> Position:
        return self._chain.last_position()

    @property
    def first_position(self) -> Position:
        """The position of the oldest entry that is kept, or of the first one that will be."""
        return self._chain.next_position(Position(-1, -1))

    @property
    def entries(self) -> int:
        return self._chain.entries

    @property
    def size_bytes(self) -> int:
        return self._chain.size_bytes

    def bytes_above(self, position: Position) -> int:
        """Return about how many bytes of entries lie above a position."""
        return self._chain.bytes_above(position)

    def last_before_bytes(self, size_bytes: int) -> Position | None:
        """Return the first position with at most about ``size_bytes`` after it; ``None`` when the
        whole log is not larger.
        """
        return self._chain.last_before_bytes(size_bytes)

    async def read(self, start: Position, *, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """Return entries from the first at or above ``start``; [] when none is confirmed there yet.

        See ``LogReader.read``.
        """
        return await self._reader.read(start, max_entries=max_entries, max_bytes=max_bytes)

    def cached(self, start: Position, *, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """Return entries from ``start`` on that are in memory. See ``LogReader.cached``."""
        return self._reader.cached(start, max_entries=max_entries, max_bytes=max_bytes)

    def read_ahead(self, tasks: Tasks, bytes_max: int, scope: Scope) -> ReadAhead:
        """Return the read-ahead of a reader that is to be told of its reads.

        ``bytes_max``: of one request; 0: none is made.
        """
        return ReadAhead(self._reader, tasks, bytes_max, scope)

    def next_position(self, position: Position) -> Position:
        """Return the position after this one in the log, whether it is written yet or not."""
        return self._chain.next_position(position)

    def position_before(self, position: Position) -> Position | None:
        """Return the entry before this one in the log, if there is one."""
        return self._chain.position_before(position)

    def contains(self, position: Position) -> bool:
        """Whether a confirmed entry of this topic is at the position (rule 18)."""
        return self._chain.contains(position)

    def lost_at(self, position: Position) -> LostRange | None:
        """Return the range of skipped, lost entries that contains a position (rule 20)."""
        return self._chain.lost_at(position)

    def entries_between(self, low: Position, high: Position) -> int:
        """Count the entries p with low < p <= high."""
        return self._chain.entries_between(low, high)

    async def find_by_time(
        self, time_ms: int, time_of: Callable[[LogEntry], int]
    ) -> Position | None:
        """Return the first entry published at ``time_ms`` or later; ``None`` when there is none.

        See ``LogReader.find_by_time``.
        """
        return await self._reader.find_by_time(time_ms, time_of)

    def has_own_times(self, entries: Sequence[LogEntry]) -> bool:
        """Whether one of these consecutive entries may have a delivery or expiry time of its
        own.
        """
        return bool(entries) and self._chain.has_own_times(
            entries[0].position.ledger_id, entries[-1].position.ledger_id
        )

    async def landing(self, position: Position) -> Position:
        """Return the position where delivery begins for a position that a client names,
        ``EARLIEST`` and ``LATEST`` included (rule 18).

        Raises ``InvalidPosition`` for a ledger of another topic, ``MetadataUnavailable``,
        ``ServiceNotReady``.
        """
        landed = seek_target(self._chain, position)
        if landed is not None:
            return landed
        found = await self._ledgers.metadata(position.ledger_id)
        purpose = LedgerPurpose(PurposeKind.TOPIC, self.name.full)
        # The chain may have grown meanwhile.
        return seek_target(self._chain, position) or judge_foreign(
            self._chain,
            position,
            self.name.full,
            found,
            purpose=purpose,
            highest=self.highest_ledger,
        )
