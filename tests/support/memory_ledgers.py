"""Ledgers in memory, with the meaning of the ledger layer's contract and none of its protocol: for
tests of what stands on top.

``MemoryLedgers`` is the storage that all clients share; ``MemoryLedgerClient`` is one node's
client. Faults are set on the storage:

* ``hold``: appends are taken and not confirmed, until ``release()``;
* ``refuse_create``: errors that the next calls of ``create`` raise, one each;
* ``refuse_open``: the same for ``open``, by ledger;
* ``break_writer(ledger_id, kept, error)``: the writer stops with ``error``; of its unconfirmed
  entries the first ``kept`` are in the ledger and the others are not (an unknown outcome);
* ``lose(ledger_id)``: nobody knows the ledger any more.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from pulsarish.model.errors import (
    LedgerClosed,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    PulsarishError,
)
from pulsarish.model.ledger_metadata import (
    BookieGroups,
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    Segment,
)
from pulsarish.model.position import NO_ENTRY
from pulsarish.runtime.seams import Clock, Op


class LedgerEntry(NamedTuple):
    entry_id: int
    payload: bytes
    length_bytes: int


class WriterListener(Protocol):
    def confirmed(self, last_entry: int) -> None: ...

    def stopped(self, error: PulsarishError) -> None: ...


class StoredLedger:
    def __init__(self, ledger_id: int, purpose: LedgerPurpose) -> None:
        self.ledger_id = ledger_id
        self.purpose = purpose
        self.entries: list[bytes] = []
        self.state = LedgerState.OPEN
        self.writer: MemoryWriter | None = None

    def close(self) -> None:
        """What recovery does: the writer can confirm nothing any more."""
        if self.state is LedgerState.CLOSED:
            return
        self.state = LedgerState.CLOSED
        if self.writer is not None:
            self.writer.fence()


class MemoryLedgers:
    def __init__(self) -> None:
        self.ledgers: dict[int, StoredLedger] = {}
        self.created: list[int] = []
        self.deleted: list[int] = []
        self.recovered: list[int] = []  # opened while they were not closed
        self.reads = 0
        self.hold = False
        self.refuse_create: list[PulsarishError] = []
        self.refuse_open: dict[int, list[PulsarishError]] = {}
        self.refuse_delete: list[PulsarishError] = []
        self.next_id = 0

    def make(self, purpose: LedgerPurpose) -> StoredLedger:
        ledger = StoredLedger(self.next_id, purpose)
        self.next_id += 1
        self.ledgers[ledger.ledger_id] = ledger
        self.created.append(ledger.ledger_id)
        return ledger

    def find(self, ledger_id: int) -> StoredLedger:
        if ledger_id not in self.ledgers:
            raise NoSuchLedger(f"ledger {ledger_id} does not exist")
        return self.ledgers[ledger_id]

    def lose(self, ledger_id: int) -> None:
        del self.ledgers[ledger_id]

    def release(self) -> None:
        self.hold = False
        for ledger in self.ledgers.values():
            if ledger.writer is not None:
                ledger.writer.flush_soon()

    def break_writer(self, ledger_id: int, kept: int, error: PulsarishError) -> None:
        writer = self.ledgers[ledger_id].writer
        assert writer is not None
        writer.break_off(kept, error)


class MemoryWriter:
    def __init__(
        self, cluster: MemoryLedgers, ledger: StoredLedger, listener: WriterListener
    ) -> None:
        self.ledger_id = ledger.ledger_id
        self.created_ms = 1
        self.last_add_pushed = NO_ENTRY
        self.last_add_confirmed = NO_ENTRY
        self.length_bytes = 0
        self._cluster = cluster
        self._ledger = ledger
        self._listener = listener
        self._waiting: list[bytes] = []
        self._error: PulsarishError | None = None
        self._fenced = False
        self._drained: list[asyncio.Future[None]] = []
        self._loop = asyncio.get_running_loop()
        # of the writer's node: what it hears, it hears there
        self._context = contextvars.copy_context()
        self._due = False

    @property
    def stopped(self) -> bool:
        return self._error is not None

    def unchanged(self) -> Sequence[Op]:
        return ()

    def append(self, payload: bytes) -> int:
        if self._error is not None:
            raise self._error
        self._waiting.append(payload)
        self.last_add_pushed += 1
        self.length_bytes += len(payload)
        self.flush_soon()
        return self.last_add_pushed

    def flush_soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._flush, context=self._context)

    def _flush(self) -> None:
        self._due = False
        if self._error is not None or not self._waiting:
            return
        if self._fenced:
            self._break_fenced()
            return
        if self._cluster.hold:
            return
        self._ledger.entries.extend(self._waiting)
        self._waiting.clear()
        self.last_add_confirmed = len(self._ledger.entries) - 1
        self._listener.confirmed(self.last_add_confirmed)
        for future in self._drained:
            if not future.done():
                future.set_result(None)
        self._drained.clear()

    def break_off(self, kept: int, error: PulsarishError) -> None:
        if self._error is not None:
            return
        self._ledger.entries.extend(self._waiting[:kept])
        self._waiting.clear()
        self._error = error
        for future in self._drained:
            if not future.done():
                future.set_exception(error)
        self._drained.clear()
        self._loop.call_soon(self._listener.stopped, error, context=self._context)

    def fence(self) -> None:
        """As a bookie does it: the writer hears of it when it adds."""
        self._fenced = True
        if self._waiting:
            self._break_fenced()

    def _break_fenced(self) -> None:
        self.break_off(0, LedgerFenced(f"ledger {self.ledger_id} was recovered"))

    def abandon(self) -> None:
        if self._error is None:
            self._error = LedgerClosed("abandoned")
            self._waiting.clear()

    async def close(self) -> LedgerMetadata:
        if self._error is not None:
            raise self._error
        if self._waiting:
            future: asyncio.Future[None] = self._loop.create_future()
            self._drained.append(future)
            await future
        await asyncio.sleep(0)
        if self._fenced:
            self._error = LedgerFenced(f"ledger {self.ledger_id} was recovered")
        if self._error is not None:
            raise self._error
        self._error = LedgerClosed("closed")
        self._ledger.state = LedgerState.CLOSED
        return _metadata(self._ledger)


class MemoryReader:
    def __init__(
        self, cluster: MemoryLedgers, ledger: StoredLedger, writer: MemoryWriter | None = None
    ) -> None:
        self.ledger_id = ledger.ledger_id
        self.metadata = _metadata(ledger)
        self._last = len(ledger.entries) - 1
        self.length_bytes = sum(map(len, ledger.entries))
        self._cluster = cluster
        self._ledger = ledger
        self._writer = writer

    @property
    def last_add_confirmed(self) -> int:
        return self._last if self._writer is None else self._writer.last_add_confirmed

    async def read(self, first: int, last: int, *, max_bytes: int) -> list[LedgerEntry]:
        await asyncio.sleep(0)
        self._cluster.find(self.ledger_id)
        self._cluster.reads += 1
        if first > self.last_add_confirmed:
            raise NoSuchEntry(
                f"ledger {self.ledger_id} ends at {self.last_add_confirmed}, asked was {first}"
            )
        found: list[LedgerEntry] = []
        size = 0
        for entry_id in range(first, min(last, self.last_add_confirmed) + 1):
            payload = self._ledger.entries[entry_id]
            size += len(payload)
            if found and size > max_bytes:
                break
            found.append(LedgerEntry(entry_id, payload, size))
        return found

    async def refresh(self, **_: Any) -> int:
        await asyncio.sleep(0)
        self._last = len(self._ledger.entries) - 1
        return self._last


class MemoryLedgerClient:
    def __init__(self, cluster: MemoryLedgers, clock: Clock | None = None) -> None:
        self.cluster = cluster

    async def start(self) -> None:
        return

    async def close(self) -> None:
        return

    async def create(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        purpose: LedgerPurpose,
        listener: WriterListener,
        above: int = -1,
        groups: BookieGroups | None = None,
        commit: Callable[[int, Sequence[Op]], Awaitable[None]] | None = None,
    ) -> MemoryWriter:
        await asyncio.sleep(0)
        if self.cluster.refuse_create:
            raise self.cluster.refuse_create.pop(0)
        assert above < self.cluster.next_id
        ledger = self.cluster.make(purpose)
        if commit is not None:
            # The commit makes the ledger with the record that names it: the next owner finds both.
            try:
                await commit(ledger.ledger_id, [])
            except BaseException:
                self.cluster.ledgers.pop(ledger.ledger_id, None)
                raise
        ledger.writer = MemoryWriter(self.cluster, ledger, listener)
        await asyncio.sleep(0)
        return ledger.writer

    async def open(self, ledger_id: int) -> MemoryReader:
        await asyncio.sleep(0)
        refused = self.cluster.refuse_open.get(ledger_id)
        if refused:
            raise refused.pop(0)
        ledger = self.cluster.find(ledger_id)
        if ledger.state is not LedgerState.CLOSED:
            self.cluster.recovered.append(ledger_id)
        ledger.close()
        await asyncio.sleep(0)
        return MemoryReader(self.cluster, ledger)

    async def open_no_recovery(self, ledger_id: int) -> MemoryReader:
        await asyncio.sleep(0)
        return MemoryReader(self.cluster, self.cluster.find(ledger_id))

    def reader_of(self, writer: MemoryWriter) -> MemoryReader:
        return MemoryReader(self.cluster, self.cluster.find(writer.ledger_id), writer)

    async def delete(self, ledger_id: int) -> None:
        await asyncio.sleep(0)
        if self.cluster.refuse_delete:
            raise self.cluster.refuse_delete.pop(0)
        ledger = self.cluster.ledgers.pop(ledger_id, None)
        if ledger is not None:
            ledger.close()
            self.cluster.deleted.append(ledger_id)

    async def metadata(self, ledger_id: int) -> LedgerMetadata | None:
        ledger = self.cluster.ledgers.get(ledger_id)
        return None if ledger is None else _metadata(ledger)


def _metadata(ledger: StoredLedger) -> LedgerMetadata:
    closed = ledger.state is LedgerState.CLOSED
    return LedgerMetadata(
        ledger_id=ledger.ledger_id,
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        purpose=ledger.purpose,
        segments=(Segment(0, ("memory",)),),
        state=ledger.state,
        last_entry=len(ledger.entries) - 1 if closed else NO_ENTRY,
        length_bytes=sum(map(len, ledger.entries)) if closed else 0,
    )
