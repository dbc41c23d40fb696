"""The reader of one ledger: a closed one to its last entry, an open one up to its LAC and never
beyond (rule 3).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.coverage import Coverage
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.reading import FoundRecords, read_records
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.model.errors import (
    EntryUnknown,
    InvalidArgument,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
)
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.seams import World

__all__ = ["LedgerEntry", "LedgerReader"]


class LedgerEntry(NamedTuple):
    """One entry. ``length_bytes`` is the sum of the payloads up to and including it."""

    entry_id: int
    payload: memoryview
    length_bytes: int


class LedgerReader:
    """A reader of one ledger.

    Made by ``LedgerClient.open``, ``open_no_recovery`` or ``reader_of``.
    """

    def __init__(
        self,
        world: World,
        options: LedgerOptions,
        pool: BookiePool,
        store: LedgerStore,
        metadata: LedgerMetadata,
        writer: LedgerWriter | None = None,
    ) -> None:
        self.ledger_id = metadata.ledger_id
        self._world = world
        self._options = options
        self._pool = pool
        self._store = store
        self._metadata = metadata
        self._writer = writer  # the ledger's own writer in this process knows the LAC at once
        self._lac = (
            metadata.last_entry
            if metadata.state is LedgerState.CLOSED
            else metadata.last_segment.first_entry - 1
        )
        # Readers of different ledgers begin at different replicas.
        self._prefer: str | None = metadata.last_segment.members[
            metadata.ledger_id % metadata.ensemble_size
        ]

    @property
    def metadata(self) -> LedgerMetadata:
        return self._metadata if self._writer is None else self._writer.metadata

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that may be read, which is the last entry of a closed ledger; -1: none."""
        return self._lac if self._writer is None else self._writer.last_add_confirmed

    @property
    def length_bytes(self) -> int:
        """The sum of all payloads; 0 unless the ledger is closed."""
        return self._metadata.length_bytes

    async def read(self, first: int, last: int, *, max_bytes: int) -> list[LedgerEntry]:
        """Return consecutive entries from ``first`` on, at least one and not beyond ``last``, the
        LAC, or about ``max_bytes``.

        Raises ``InvalidArgument`` for an invalid range, ``NoSuchEntry`` for an entry above the LAC
        or one that all its replicas say they do not have, and the retryable ``EntryUnknown`` when
        no replica gives it now. The text names each bookie's answer.
        """
        if not 0 <= first <= last:
            raise InvalidArgument(
                f"a read of ledger {self.ledger_id} must go from 0 or more upwards, not from "
                f"{first} to {last}"
            )
        if first > self.last_add_confirmed:
            raise NoSuchEntry(
                f"ledger {self.ledger_id} is readable up to entry {self.last_add_confirmed}, "
                f"asked was {first}"
            )
        last = min(last, self.last_add_confirmed)
        try:
            found = await self._find(self.metadata, first, last, max_bytes)
        except (NoSuchEntry, EntryUnknown):
            newest = await self._newest()
            if newest is None or newest.segments == self.metadata.segments:
                raise
            if self._writer is None:
                self._metadata = newest
            found = await self._find(newest, first, last, max_bytes)
        self._prefer = found.served_by
        return [
            LedgerEntry(record.entry_id, record.payload, record.length_bytes)
            for record in found.records
        ]

    async def _find(
        self, metadata: LedgerMetadata, first: int, last: int, max_bytes: int
    ) -> FoundRecords:
        return await read_records(
            self._pool,
            self._options,
            metadata,
            first,
            last,
            max_bytes=max_bytes,
            prefer=self._prefer,
            may_cache=True,
        )

    async def _newest(self) -> LedgerMetadata | None:
        """Read the record as it is now: lost bookies may have been replaced since it was read.

        Raises ``MetadataUnavailable``.
        """
        found = await self._store.read_newest(self.ledger_id)
        if found is not None and self._writer is None and found[0].state is LedgerState.CLOSED:
            self._lac = found[0].last_entry
        return None if found is None else found[0]

    async def refresh(self, *, wait_seconds: float = 0.0) -> int:
        """Learn the LAC (or that the ledger was closed) without recovery.

        Return the last readable entry.

        With ``wait_seconds`` wait that long for a higher one than is known (long poll). Raises
        ``NoSuchLedger``, ``MetadataUnavailable`` and, when too few bookies answer to know the LAC,
        ``NotEnoughBookies``.
        """
        if self._writer is not None:
            return self._writer.last_add_confirmed
        if self._metadata.state is LedgerState.CLOSED:
            return self._lac
        found = await self._store.read_newest(self.ledger_id)
        if found is None:
            raise NoSuchLedger(f"ledger {self.ledger_id} does not exist")
        self._metadata = found[0]
        if self._metadata.state is LedgerState.CLOSED:
            self._lac = self._metadata.last_entry
            return self._lac
        # Everything in an earlier segment is confirmed.
        self._lac = max(self._lac, self._metadata.last_segment.first_entry - 1)
        return await self.poll(wait_seconds)

    async def poll(self, wait_seconds: float) -> int:
        """Learn the LAC from the bookies as ``refresh``, by the metadata that are known.

        Raises ``NotEnoughBookies``.
        """
        if self._writer is None and self._metadata.state is not LedgerState.CLOSED:
            await self._ask_lac(wait_ms=int(wait_seconds * 1000))
        return self.last_add_confirmed

    async def _ask_lac(self, *, wait_ms: int) -> None:
        """Return the highest LAC, once every write quorum has Qw - Qa + 1 answers; when waiting,
        the first LAC above the known one.
        """
        metadata = self._metadata
        members = metadata.last_segment.members
        coverage = Coverage(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        said: dict[str, str] = {}
        heard = asyncio.Event()
        known = self._lac

        async def ask(member: str) -> None:
            try:
                answer = await self._pool.control.read_lac(
                    member, self.ledger_id, after_lac=known, wait_ms=wait_ms
                )
            except NoAnswer as error:
                said[member] = str(error)
            else:
                if answer.code in (0, NoSuchLedger.code, NoSuchEntry.code):
                    coverage.hear(members.index(member))
                    said[member] = "answered"
                    if answer.code == 0:
                        self._lac = max(self._lac, answer.lac)
                else:
                    said[member] = answer.message or f"code {answer.code}"
            heard.set()

        def failed(member: str, error: BaseException) -> None:
            said[member] = repr(error)
            heard.set()

        for member in members:
            scope = Scope(ScopeKind.LEDGER, str(self.ledger_id), partial(failed, member))
            _ = self._world.tasks.spawn(ask(member), name=f"read-lac-{self.ledger_id}", scope=scope)
        while len(said) < len(members) and not (self._lac > known if wait_ms else coverage.covered):
            await heard.wait()
            heard.clear()
        if not coverage.covered and self._lac == known:
            text = ", ".join(f"{member}: {word}" for member, word in said.items())
            raise NotEnoughBookies(
                f"the last confirmed entry of ledger {self.ledger_id} is not known now: "
                f"{coverage.heard_count} of {len(members)} bookies answered ({text})"
            )
