"""The recovery of one ledger (rule 6): fence, read forward, write back, close.

Two recoveries may run at once, in any processes.

Between the step to IN_RECOVERY and the closing compare-and-set, recovery writes nothing to the
metadata. Ensemble changes stay local and are stored together with the end, so that a second
recoverer uses the same ensembles. Entries that are written back carry the LAC found at the start.
With a later one, an entry that recovery has only just found would count as confirmed before Qa
members have it.

The answer to a fence carries what the bookie has from its LAC on, read when the fence was durable.
That is a fencing read, and counts as one. A ledger that was idle needs no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsarish.ledger.bookie_control import FenceAnswer, NoAnswer
from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.reading import read_records
from pulsarish.ledger.recovery_core import (
    OK,
    FenceVerdict,
    FencingCore,
    ReadingCore,
    ReadOrder,
    ReadVerdict,
)
from pulsarish.ledger.repair.copy_probe import members_behind
from pulsarish.ledger.replicator import Replicator
from pulsarish.ledger.restore_check import check_held_elsewhere
from pulsarish.ledger.writer_core import Change, WriterCore
from pulsarish.model.errors import (
    ChecksumError,
    LedgerClosed,
    MetadataUnavailable,
    NoSuchLedger,
    NotEnoughBookies,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.model.position import NO_ENTRY
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, World
from pulsarish.wire.record import RECORD_HEAD_SIZE, Record, decode_entry_record, restamp_lac

__all__ = ["Recovery"]

_log = get_logger("recovery")

_RETRY_SECONDS: Final = 1.0
_RETRY_MAX_SECONDS: Final = 60.0


class _StartOver(Exception):
    """Another process changed the ledger's metadata during the recovery."""


@dataclass(slots=True)
class _Shown:
    """What a member read when its fence was durable: the records up to the first bad one."""

    member: str
    answer: FenceAnswer
    records: list[Record]
    is_whole: bool


@dataclass(slots=True)
class _Fences:
    """The answers to the fences of one attempt that came with a reading."""

    shown: list[_Shown] = field(default_factory=list)
    are_over: bool = False
    """Every member has answered or failed."""
    lac: int | None = None
    """The LAC of the recovery; ``None`` until it is decided."""

    def records_of(self, entry_id: int) -> dict[str, Record]:
        """Return the entry by member."""
        return {
            each.member: each.records[entry_id - each.answer.first]
            for each in self.shown
            if 0 <= entry_id - each.answer.first < len(each.records)
        }


class Recovery:
    """One client's recovery of one ledger.

    Args:
        given_up: members that an operator says are gone for good, as in ``recovery_core``.
    """

    def __init__(
        self,
        world: World,
        options: LedgerOptions,
        pool: BookiePool,
        store: LedgerStore,
        ledger_id: int,
        given_up: Collection[str] = (),
    ) -> None:
        self._world = world
        self._options = options
        self._pool = pool
        self._store = store
        self._ledger_id = ledger_id
        self._given_up = given_up
        self._event = asyncio.Event()
        self._failure: BaseException | None = None
        self._length = 0
        self._fences = _Fences()

    async def run(self) -> LedgerMetadata:
        """Recover the ledger and close it. Return the closed record.

        Raises ``NoSuchLedger``, ``MetadataUnavailable``, and the retryable ``ServiceNotReady`` or
        ``NotEnoughBookies`` when too few bookies answer to decide now (rule 20).
        """
        for attempt in range(self._options.recovery_attempts):
            try:
                metadata, version = await self._enter(newest=attempt > 0)
                if metadata.state is LedgerState.CLOSED:
                    return metadata
                began = self._world.clock.monotonic()
                members, owner = metadata.last_segment.members, metadata.purpose.owner
                _log.debug(
                    "recovering a ledger", ledger=self._ledger_id, owner=owner, members=members
                )
                lac = await self._fence(metadata)
                closed = await self._recover(metadata, version, lac)
                took_ms = round((self._world.clock.monotonic() - began) * 1000)
                _log.info(
                    "ledger recovered",
                    ledger=self._ledger_id,
                    owner=owner,
                    lac_found=lac,
                    last_entry=closed.last_entry,
                    took_ms=took_ms,
                )
                return closed
            except _StartOver:
                continue
        raise ServiceNotReady(
            f"ledger {self._ledger_id} was changed by other clients "
            f"{self._options.recovery_attempts} times during recovery; try again"
        )

    async def fence(self) -> tuple[LedgerMetadata, int]:
        """Fence the ledger, so that no writer confirms anything more.

        Return the record and its version. Raises as ``run``.
        """
        for attempt in range(self._options.recovery_attempts):
            try:
                metadata, version = await self._enter(newest=attempt > 0)
            except _StartOver:
                continue
            if metadata.state is not LedgerState.CLOSED:
                await self._fence(metadata)
            return metadata, version
        raise ServiceNotReady(
            f"ledger {self._ledger_id} is being changed by other clients; try again"
        )

    # -- the steps

    async def _enter(self, *, newest: bool) -> tuple[LedgerMetadata, int]:
        """Set the state to IN_RECOVERY by compare-and-set.

        From here on the old writer can change nothing in metadata. A record that is not the newest
        does no harm: a ledger that was closed stays closed, and of another one the next
        compare-and-set is refused. Only that there is none must be known for sure.
        """
        found = None if newest else await self._store.read(self._ledger_id)
        if found is None:
            found = await self._store.read_newest(self._ledger_id)
        if found is None:
            raise NoSuchLedger(f"ledger {self._ledger_id} does not exist")
        metadata, version = found
        if metadata.state is not LedgerState.OPEN:
            return metadata, version
        entered = metadata.in_recovery()
        try:
            return entered, await self._store.store(entered, version)
        except Conflict:
            raise _StartOver from None

    async def _fence(self, metadata: LedgerMetadata) -> int:
        core = FencingCore(metadata, self._given_up)
        # An answer that comes after the next attempt has begun is not one of that attempt.
        fences = self._fences = _Fences()

        async def ask(member: str) -> None:
            try:
                answer = await self._pool.control.fence(member, self._ledger_id)
            except NoAnswer as error:
                core.failed(member, str(error))
            else:
                if answer.code == 0 and answer.first >= 0:
                    records, why = self._decoded(answer.records, answer.first)
                    fences.shown.append(_Shown(member, answer, records, not why))
                core.answered(member, answer.code, answer.lac)
            if len(core.said) == len(core.members):
                fences.are_over = True
                self._look_behind(metadata, fences)
            self._event.set()

        for member in core.members:
            self._spawn(ask(member), f"fence-{self._ledger_id}")
        while core.verdict is FenceVerdict.WAITING:
            await self._wait()
        if core.verdict is FenceVerdict.UNDECIDED:
            fenced = sum(word == "fenced" for word in core.said.values())
            said = ", ".join(f"{member}: {word}" for member, word in core.said.items())
            needed = metadata.write_quorum - metadata.ack_quorum + 1
            raise NotEnoughBookies(
                f"ledger {self._ledger_id} cannot be fenced now: every write quorum needs "
                f"{needed} answers, and {fenced} of {len(core.members)} bookies answered ({said})"
            )
        return core.lac

    async def _recover(self, metadata: LedgerMetadata, version: int, lac: int) -> LedgerMetadata:
        may_be_old = metadata.restored and bool(await self._store.bookies_if_unconfirmed())
        reading = ReadingCore(
            metadata,
            lac,
            read_ahead=self._options.recovery_read_entries,
            needs_all=may_be_old,
            given_up=self._given_up,
        )
        for each in self._fences.shown:
            order = ReadOrder(each.member, each.answer.first, each.answer.last)
            reading.shown(order, each.records, each.answer.end if each.is_whole else OK)
        self._fences.lac = lac
        self._look_behind(metadata, self._fences)
        writing = _WriteBack(self._world, self._options, self._pool, metadata, lac, self._event)
        try:
            while True:
                for order in reading.orders():
                    self._spawn(self._read(reading, order), f"recovery-read-{self._ledger_id}")
                match reading.verdict:
                    case ReadVerdict.FOUND if writing.has_room:
                        # Take all that was found at once, so that it goes out in few messages.
                        found = reading.take(
                            self._options.recovery_read_entries,
                            self._options.bookie_queue_bytes // 4,
                        )
                        self._length = found[-1].length_bytes
                        writing.write(found)
                    case ReadVerdict.END:
                        break
                    case ReadVerdict.UNDECIDED:
                        raise NotEnoughBookies(
                            f"whether ledger {self._ledger_id} has entry {reading.next_entry} "
                            f"cannot be decided now: {reading.what_was_said()}"
                        )
                    case _:
                        await self._wait()
                writing.raise_if_stopped()
            last_entry = reading.next_entry - 1
            await self._written(writing, last_entry)
            if may_be_old:
                await check_held_elsewhere(self._pool.control, self._store, metadata, last_entry)
            if last_entry == lac:
                self._length = await self._length_at(metadata, lac)
            return await self._close(writing, metadata, version, last_entry)
        finally:
            writing.close()

    async def _read(self, reading: ReadingCore, order: ReadOrder) -> None:
        try:
            answer = await self._pool.control.recovery_read(
                order.member,
                self._ledger_id,
                order.first,
                order.last,
                self._options.recovery_read_bytes,
            )
        except NoAnswer as error:
            reading.failed(order, [], str(error))
        else:
            raws = answer.records[: order.last - order.first + 1]
            records, why = self._decoded(raws, order.first)
            if why:
                reading.failed(order, records, why)
            else:
                reading.answered(order, records, answer.code)
        self._event.set()

    def _decoded(self, raws: Sequence[memoryview], first: int) -> tuple[list[Record], str]:
        """Return the records up to the first that is not what was asked for, and why it is not."""
        records: list[Record] = []
        try:
            for raw in raws:
                records.append(decode_entry_record(raw, self._ledger_id, first + len(records)))
        except ChecksumError as error:
            return records, str(error)
        return records, ""

    def _look_behind(self, metadata: LedgerMetadata, fences: _Fences) -> None:
        """Look which members miss entries up to the LAC, once it is known and all have answered.

        Entries above the LAC are written back to every member. Only the old writer may have known
        which members miss entries below it.
        """
        lac = fences.lac
        if not fences.are_over or lac is None or lac < 0:
            return
        holders = fences.records_of(lac)
        is_striped = metadata.write_quorum != metadata.ensemble_size
        if (
            is_striped
            or metadata.last_segment.first_entry > lac
            or any(member not in holders for member in metadata.last_segment.members)
        ):
            _ = self._world.tasks.spawn(
                self._publish_behind(metadata, lac, holders),
                name=f"recovery-copies-{self._ledger_id}",
            )

    async def _publish_behind(
        self, metadata: LedgerMetadata, lac: int, holders: Collection[str]
    ) -> None:
        """Publish the members that miss entries, and those that do not say: the repair checks what
        they have once they answer.

        If the store is unreachable now, try until it is not, as long as this client is open: no
        other process knows of it. A silent member that is published already is not published again,
        so a dead one costs one record of each ledger.
        """
        behind = await members_behind(self._pool, metadata, lac, holders)
        silent = [member for member in behind.silent if member not in self._given_up]
        backoff, is_said = Backoff(_RETRY_SECONDS, _RETRY_MAX_SECONDS), False
        while (behind.missing or silent) and not self._pool.is_closed:
            try:
                if behind.missing:
                    await self._store.publish_missing(self._ledger_id, behind.missing)
                if silent:
                    _ = await self._store.publish_found(self._ledger_id, silent, below_policy=False)
            except MetadataUnavailable as error:
                if not is_said:
                    _log.warning(
                        "missing copies not published yet",
                        ledger=self._ledger_id,
                        members=[*behind.missing, *silent],
                        reason=str(error),
                    )
                is_said = True
                await self._world.clock.sleep(backoff.next_seconds())
            else:
                return

    async def _written(self, writing: _WriteBack, last_entry: int) -> None:
        """Wait until every found entry has its Qa copies, and for a short time for the others."""
        while writing.last_confirmed < last_entry:
            writing.raise_if_stopped()
            await self._wait()
        if not writing.busy:
            return
        try:
            async with self._world.clock.timeout(self._options.recovery_copies_wait_ms / 1000):
                while writing.busy:
                    writing.raise_if_stopped()
                    await self._wait()
        except TimeoutError:
            _log.info(
                "closing a ledger whose last copies are late",
                ledger=self._ledger_id,
                members=writing.missing_members(),
            )

    async def _length_at(self, metadata: LedgerMetadata, entry_id: int) -> int:
        """Return the ledger's length as recorded in the last confirmed entry, when nothing was
        found after the LAC.
        """
        if entry_id == NO_ENTRY:
            return 0
        for record in self._fences.records_of(entry_id).values():
            return record.length_bytes
        try:
            read = await read_records(
                self._pool, self._options, metadata, entry_id, entry_id, max_bytes=1
            )
        except PulsarishError as error:
            if not self._given_up:
                raise
            _log.warning(
                "the length of a ledger whose last entry is lost counts as 0",
                ledger=self._ledger_id,
                reason=error,
            )
            return 0
        return read.records[0].length_bytes

    async def _close(
        self, writing: _WriteBack, frozen: LedgerMetadata, version: int, last_entry: int
    ) -> LedgerMetadata:
        changed = writing.metadata
        closed = frozen.closed(
            last_entry, self._length, changed.segments, tuple(sorted(self._given_up))
        )
        try:
            await self._store.store(closed, version, writing.missing_members())
        except Conflict:
            found = await self._store.read_newest(self._ledger_id)
            if found is not None and found[0].state is LedgerState.CLOSED:
                # Another recoverer was first. Both ends are right, because no entry between them
                # was ever confirmed. The stored one holds.
                return found[0]
            raise _StartOver from None
        return closed

    # -- helpers

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        _ = self._world.tasks.spawn(
            work, name=name, scope=Scope(ScopeKind.LEDGER, str(self._ledger_id), self._failed)
        )

    def _failed(self, error: BaseException) -> None:
        """Handle a failed task.

        The answer of this bookie is lost, so this recovery ends, and the client that needs it tries
        again.
        """
        self._failure = error
        self._event.set()

    async def _wait(self) -> None:
        await self._event.wait()
        self._event.clear()
        if self._failure is not None:
            raise ServiceNotReady(
                f"the recovery of ledger {self._ledger_id} failed with {self._failure!r}; try again"
            )


class _WriteBack:
    """The entries that recovery found, on their way to the whole write set of the local
    ensemble.

    It connects to the members when the first one is found: a ledger that was idle has none.
    """

    def __init__(
        self,
        world: World,
        options: LedgerOptions,
        pool: BookiePool,
        metadata: LedgerMetadata,
        lac: int,
        event: asyncio.Event,
    ) -> None:
        self._world = world
        self._options = options
        self._pool = pool
        self._metadata = metadata
        self._lac = lac
        self._event = event
        self._missing_members: list[str] = []
        self._window_bytes = 0
        self._replicator: Replicator | None = None

    def _begun(self) -> Replicator:
        if self._replicator is None:
            core = WriterCore(self._metadata, confirmed=self._lac)
            self._replicator = Replicator(
                self._world, self._options, self._pool, core, self, recovery=True
            )
        return self._replicator

    @property
    def metadata(self) -> LedgerMetadata:
        return self._metadata if self._replicator is None else self._replicator.core.metadata

    @property
    def last_confirmed(self) -> int:
        return self._lac if self._replicator is None else self._replicator.core.confirmed

    @property
    def has_room(self) -> bool:
        # The queues are shared with other recoveries, so what was seen at the last event may be
        # old.
        replicator = self._begun()
        replicator.look_for_crowd()
        return (
            self._window_bytes < self._options.window_bytes
            and replicator.core.window_count < self._options.window_entries
            and not replicator.crowded
        )

    @property
    def busy(self) -> bool:
        """Whether a copy is still on its way or a change is being made."""
        if self._replicator is None:
            return False
        core = self._replicator.core
        return core.changing or any(
            core.takes(index) and core.outstanding(index) for index in range(len(core.members))
        )

    def write(self, records: Sequence[Record]) -> None:
        parts: list[bytes | bytearray | memoryview] = []
        sizes: list[int] = []
        for record in records:
            whole = restamp_lac(record, self._lac)
            parts += (whole[:RECORD_HEAD_SIZE], memoryview(whole)[RECORD_HEAD_SIZE:])
            sizes.append(len(whole))
        self._window_bytes += sum(sizes)
        self._begun().push(parts, sizes)

    def missing_members(self) -> tuple[str, ...]:
        """The members without all the copies that they should have, replaced members included, each
        once.
        """
        if self._replicator is None:
            return ()
        return tuple(
            dict.fromkeys([*self._missing_members, *self._replicator.core.missing_members()])
        )

    def raise_if_stopped(self) -> None:
        error = None if self._replicator is None else self._replicator.stopped_by
        if error is not None:
            raise error

    def close(self) -> None:
        if self._replicator is not None:
            self._replicator.abandon(
                LedgerClosed(f"the recovery of ledger {self._metadata.ledger_id} is over")
            )

    # -- calls of the replicator: changes stay here until the closing commit

    async def store_change(self, change: Change) -> LedgerMetadata:
        self._missing_members.extend(change.missing_members)
        self._event.set()
        return change.planned

    def publish_missing(self, members: Sequence[str]) -> None:
        self._missing_members.extend(members)

    def confirmed(self, count: int, size_bytes: int) -> None:
        self._window_bytes -= size_bytes

    def progressed(self) -> None:
        self._event.set()

    def ended(self, error: PulsarishError) -> None:
        self._event.set()
