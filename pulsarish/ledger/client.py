"""The interface of the ledger layer: create, open, delete.

A process has one ``LedgerClient``. All ledgers share its streams to bookies. Its timer notices
silent bookies and replaces members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from pulsarish.ledger.bookie_control import BookieControl, NoAnswer
from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.bookies import Bookies
from pulsarish.ledger.coverage import Coverage
from pulsarish.ledger.id_allocator import LedgerIdAllocator
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.ledger.local_reads import LocalReads
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate, Ensemble
from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.recovery import Recovery
from pulsarish.ledger.repair.copy_probe import (
    EntryCopy,
    MissingCopies,
    entry_copies,
    find_missing_copies,
)
from pulsarish.ledger.repair.loss_proof import check_lost
from pulsarish.ledger.repair.repair import LedgerRepair
from pulsarish.ledger.repair.repair_core import MemberState
from pulsarish.ledger.slow_bookies import SlowBookies
from pulsarish.ledger.writer import LedgerWriter, WriterListener
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import UnderReplicated
from pulsarish.metadata.tree_age import TreeAge
from pulsarish.model.errors import (
    AlreadyClosed,
    EntryUnknown,
    InvalidArgument,
    LedgerFenced,
    NoSuchLedger,
    NotAllowedError,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.model.ledger_metadata import (
    BookieGroups,
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    check_quorums,
    first_segments,
)
from pulsarish.model.quorums import weak_quorum
from pulsarish.runtime.containment import Scope, ScopeKind, run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, Op, World

__all__ = ["LedgerClient"]

_DELETE_ATTEMPTS_MAX = 5

_log = get_logger("ledger")


def _log_warning(text: str) -> None:
    _log.warning(text)


class LedgerClient:
    """Access to all ledgers of a cluster.

    Args:
        on_warning: called with the text of a setting that is accepted but risky.
        may_end_process: a failure that would let writes wait forever ends the process. Not where
            the ledgers are only repaired, because a bookie may host that.

    Raises ``ConfigError`` for a placement policy that cannot be made.
    """

    def __init__(
        self,
        world: World,
        options: LedgerOptions,
        *,
        on_warning: Callable[[str], None] = _log_warning,
        may_end_process: bool = True,
    ) -> None:
        self._world = world
        self._may_end_process = may_end_process
        self._options = options
        self._on_warning = on_warning
        self.age = TreeAge(Records(world.metadata, world.clock, world.random), world.clock)
        """The age of the metadata, watched from ``start`` on.

        Nothing that outlives a session is written to an older tree.
        """
        self._records = Records(world.metadata, world.clock, world.random, guard=self.age)
        self._store = LedgerStore(self._records, world.clock)
        self._ids = LedgerIdAllocator(self._records, options.ledger_id_block)
        self.bookies = Bookies(world, options, self._records)
        self._pool = BookiePool(world, options, self.bookies)
        self._writers: dict[int, LedgerWriter] = {}
        self._restless: dict[int, LedgerWriter] = {}  # the writers that need the tick
        self._recoveries: dict[int, asyncio.Future[LedgerMetadata]] = {}
        self._warned: set[tuple[int, int]] = set()  # used only to test membership
        self._lac_round_out = False
        self._closed = False

    async def start(self) -> None:
        """Watch the bookies' registrations and the age of the metadata.

        Return once both are known.
        """
        watch = partial(self.age.watch, self._options.metadata_check_interval_ms / 1000)
        _ = run_in_background(self._world.tasks, self._world.clock, "metadata-age", watch)
        await self._pool.start(may_end_process=self._may_end_process)
        await self._learn_age()
        self._pool.each_tick(self._tick, lambda: bool(self._restless))

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
    ) -> LedgerWriter:
        """Create a ledger on as many members as are writable, never fewer than ``ack_quorum`` (rule
        3).

        Args:
            groups: only their bookies hold copies, now and when a member is replaced.
            above: the new id is greater than this. So ids grow along a topic's chain, whichever
                broker created the ledgers.
            commit: called with the ledger's id and the operations that create its record. It
                commits them together with the record that refers to the ledger. Its errors are
                raised.

        Raises ``InvalidArgument`` (rule 1), ``NotEnoughBookies``, ``NotEnoughDomains``,
        ``MetadataUnavailable`` (a ledger without a reference may stay behind).
        """
        self._check_open()
        check_quorums(ensemble_size, write_quorum, ack_quorum)
        self._warn_of_weak_quorum(write_quorum, ack_quorum)
        bookies = self.bookies

        def ensemble_of(candidates: Sequence[Candidate]) -> Ensemble:
            return self._pool.placement.ensemble(
                candidates,
                ensemble_size,
                write_quorum,
                ack_quorum,
                groups=groups,
                down_count=bookies.down_count(),
                read_only_reasons=bookies.read_only_reasons(),
            )

        ensemble = ensemble_of(bookies.candidates())
        # A bookie in limbo tells the writer of a ledger that it is fenced.
        clear_of = bookies.in_no_doubt_from(ensemble.members)
        ledger_id = await self._ids.next_id(above=above, clear_of=clear_of)
        if any(bookies.may_lack(member, ledger_id) for member in ensemble.members):
            # Its limbo began meanwhile, or goes beyond the ids that the metadata gave out.
            ensemble = ensemble_of(
                [
                    each
                    for each in bookies.candidates()
                    if not bookies.may_lack(each.member, ledger_id)
                ]
            )
        metadata = LedgerMetadata(
            ledger_id=ledger_id,
            ensemble_size=len(ensemble.members),
            write_quorum=ensemble.write_quorum,
            ack_quorum=ack_quorum,
            purpose=purpose,
            segments=first_segments(ensemble.members),
            created_ms=self._world.clock.wall_ms(),
            below_policy=ensemble.below_policy,
            groups=groups or msgspec.UNSET,
            requested_write_quorum=write_quorum if ensemble.write_quorum < write_quorum else 0,
        )
        version = 0
        if commit is not None:
            await commit(ledger_id, await self._store.creation(metadata))
        else:
            try:
                version = await self._store.store(metadata, None)
            except Conflict as conflict:
                raise ServiceNotReady(
                    f"the id {ledger_id} of a new ledger is in use: {conflict}"
                ) from conflict
        self._check_open()
        writer = LedgerWriter(
            self._world,
            self._options,
            self._pool,
            self._store,
            metadata,
            version,
            listener,
            ticker=self,
        )
        self._writers[ledger_id] = writer
        return writer

    async def open(self, ledger_id: int) -> LedgerReader:
        """Open a closed ledger for reading.

        A ledger that is not closed is recovered first, which decides its end.

        A writer that still writes the ledger is fenced. Raises ``NoSuchLedger``,
        ``MetadataUnavailable``, and the retryable ``NotEnoughBookies`` or ``ServiceNotReady`` when
        the end cannot be decided now.
        """
        self._check_open()
        return self._reader(await self._recovered(ledger_id))

    async def open_no_recovery(self, ledger_id: int) -> LedgerReader:
        """Read a ledger that may be open, up to its LAC.

        Raises ``NoSuchLedger``, ``MetadataUnavailable``, ``NotEnoughBookies``.
        """
        self._check_open()
        found = await self._store.read_newest(ledger_id)
        if found is None:
            raise NoSuchLedger(f"ledger {ledger_id} does not exist")
        reader = self._reader(found[0])
        await reader.refresh()
        return reader

    @property
    def control(self) -> BookieControl:
        """The calls to bookies that do not queue behind adds."""
        return self._pool.control

    @property
    def slow_bookies(self) -> SlowBookies:
        """Which bookies answer reads slowly, and how many reads were sent twice for that."""
        return self._pool.slow

    @property
    def local_reads(self) -> LocalReads | None:
        """How many reads near bookies have served; ``None``: it is not set where this process
        stands.
        """
        return self._pool.local

    def reader_of(self, writer: LedgerWriter) -> LedgerReader:
        """Return a reader of a ledger that this process writes.

        It knows the writer's last confirmed entry without a request.
        """
        return LedgerReader(
            self._world, self._options, self._pool, self._store, writer.metadata, writer
        )

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger's metadata. The bookies find out later and delete the entries.

        A ledger that may be open is fenced first, so that nothing more is confirmed in it. A
        missing ledger is not an error. Raises as ``open`` does.
        """
        self._check_open()
        for _ in range(_DELETE_ATTEMPTS_MAX):
            found = await self._store.read_newest(ledger_id)
            if found is None:
                await self._store.delete(ledger_id, -1)  # left by an earlier, interrupted deletion
                return
            metadata, version = found
            try:
                if metadata.state is not LedgerState.CLOSED:
                    metadata, version = await Recovery(
                        self._world, self._options, self._pool, self._store, ledger_id
                    ).fence()
                await self._store.delete(ledger_id, version)
            except (Conflict, NoSuchLedger):
                continue
            return
        raise ServiceNotReady(f"ledger {ledger_id} is being changed by other clients; try again")

    async def recover_without(self, ledger_id: int, given_up: Sequence[str]) -> LedgerMetadata:
        """Close a ledger whose end cannot be decided because bookies are gone for good.

        When a bookie in ``given_up`` does not answer, it counts as holding no entry of the ledger.
        Entries after the decided end that only these bookies held are lost. The ledger's record
        keeps their names.

        Args:
            given_up: instance ids of the bookies that the operator gives up.

        Raises ``InvalidArgument`` for a ledger that is closed and for names that are not members of
        its last segment, ``NotAllowedError`` for a bookie that is registered, and the errors of
        ``open``.
        """
        self._check_open()
        found = await self._store.read_newest(ledger_id)
        if found is None:
            raise NoSuchLedger(f"ledger {ledger_id} does not exist")
        metadata = found[0]
        if metadata.state is LedgerState.CLOSED:
            raise InvalidArgument(
                f"ledger {ledger_id} is closed, with {metadata.last_entry + 1} entries: there is "
                "nothing to recover"
            )
        members = metadata.last_segment.members
        strange = [bookie for bookie in given_up if bookie not in members]
        if strange or not given_up:
            raise InvalidArgument(
                f"name bookies to give up of those that ledger {ledger_id} is written to: "
                f"{', '.join(members)}"
            )
        there = sorted(set(given_up) & set(self.bookies.members()))
        if there:
            raise NotAllowedError(
                f"{', '.join(there)} is registered: it will answer, or is stopped before it is "
                "given up"
            )
        _log.warning("an operator gives up bookies of a ledger", ledger=ledger_id, bookies=given_up)
        while (running := self._recoveries.get(ledger_id)) is not None:
            # its end could not be decided, which is why the operator gives up bookies
            with suppress(PulsarishError):
                await asyncio.shield(running)
        return await asyncio.shield(self._begin_recovery(ledger_id, given_up))

    async def check_lost(
        self, ledger_id: int, first: int, last: int, given_up: Sequence[str]
    ) -> None:
        """Return only if no entry from ``first`` to ``last`` of a closed ledger can be read any
        more.

        That is: no bookie of their write sets has them, or the ledger's own record is gone. The
        bookies in ``given_up`` (instance ids) need not answer. Raises as ``loss_proof.check_lost``.
        """
        self._check_open()
        found = await self._store.read_newest(ledger_id)
        if found is not None:
            await check_lost(self._pool, found[0], first, last, given_up)

    async def metadata(self, ledger_id: int) -> LedgerMetadata | None:
        """Return the ledger's record; ``None`` when there is none.

        Raises ``MetadataUnavailable``.
        """
        found = await self._store.read(ledger_id)
        return None if found is None else found[0]

    async def under_replicated(self, ledger_ids: Sequence[int]) -> list[UnderReplicated]:
        """Return the records of those ledgers that are under-replicated.

        Raises ``MetadataUnavailable``, ``CorruptData``.
        """
        return await self._store.under_replicated(ledger_ids)

    def repair(
        self,
        state_of: Callable[[str], MemberState],
        pace: Callable[[int], Awaitable[None]],
        batch_bytes: int,
    ) -> LedgerRepair:
        """Return the object that repairs under-replicated ledgers.

        Args:
            state_of: whether a bookie is there, away or lost.
            pace: awaited with the bytes of each batch.
            batch_bytes: the size of a batch, at most about this.
        """
        return LedgerRepair(
            self._options,
            self._pool,
            self._store,
            self._recovered,
            state_of=state_of,
            pace=pace,
            batch_bytes=batch_bytes,
        )

    async def find_missing_copies(
        self, metadata: LedgerMetadata, members: Sequence[str]
    ) -> MissingCopies:
        """Find which of these members of a closed ledger miss entries of it, by the bookies' own
        lists of what they hold.
        """
        return await find_missing_copies(self._pool, metadata, members)

    async def entry_copies(self, metadata: LedgerMetadata, entry_id: int) -> list[EntryCopy]:
        """Read an entry from each bookie that should hold it, and say what each has."""
        return await entry_copies(self._pool, metadata, entry_id)

    async def in_limbo(self, ledger_id: int, members: Sequence[str]) -> list[str]:
        """Return which of these registered bookies answer that they may have lost entries of a
        ledger.
        """
        doubtful = [member for member in members if self.bookies.may_lack(member, ledger_id)]
        found: list[str] = []
        for member in doubtful:
            try:
                answer = await self._pool.control.read_lac(member, ledger_id)
            except NoAnswer:
                continue  # the next audit asks it again
            if answer.code == EntryUnknown.code:
                found.append(member)
        return found

    async def publish_found(
        self, ledger_id: int, members: Sequence[str], *, below_policy: bool
    ) -> bool:
        """Record the missing copies that an audit found.

        Return whether they were new. Raises ``MetadataUnavailable``.
        """
        return await self._store.publish_found(ledger_id, members, below_policy=below_policy)

    async def publish_leaving(self, ledger_id: int, member: str) -> None:
        """Have auto-recovery replace a member of a ledger, whether it is there or not.

        Raises ``MetadataUnavailable``.
        """
        await self._store.publish_leaving(ledger_id, member)

    def short_count(self) -> int:
        """The number of open ledgers that continue without one of their bookies.

        The loss of another bookie may stop them.
        """
        return sum(writer.is_short for writer in self._writers.values())

    def backlog_bytes(self) -> int:
        """The bytes that wait for bookies or are unanswered, of all ledgers together."""
        return self._pool.backlog_bytes()

    async def close(self) -> None:
        """Close all streams and abandon the open writers: recovery decides the ends of their
        ledgers.
        """
        self._closed = True
        self.age.stop()
        for writer in list(self._writers.values()):
            writer.abandon()
        self._pool.close()

    # -- helpers

    async def _learn_age(self) -> None:
        """Ask the bookies for the newest metadata tree that they have seen.

        This process has seen nothing yet, so the tree that it starts with may already be an older
        one.
        """

        async def ask(member: str) -> None:
            try:
                self.age.learn(await self._pool.control.tree_seen(member))
            except NoAnswer:
                pass  # a bookie that is registered and silent may be gone
            except Exception as error:  # noqa: BLE001
                # Of one bookie: the process starts with what the others say.
                self._world.tasks.contain(
                    "metadata-age", error, Scope(ScopeKind.TASK, f"the question to {member}")
                )

        await asyncio.gather(*(ask(member) for member in self.bookies.members()))

    async def find_fenced(self) -> None:
        """Ask the bookies of all open ledgers, and stop the writers of those that are fenced.

        A writer learns that from its next add anyway. An idle one would not.
        """
        writers = list(self._writers.values())
        count = self._options.explicit_lac_ledgers_max
        for start in range(0, len(writers), count):
            await self._tell_lacs(writers[start : start + count], stops_fenced=True)

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed("the ledger client is closed")

    def _reader(self, metadata: LedgerMetadata) -> LedgerReader:
        return LedgerReader(self._world, self._options, self._pool, self._store, metadata)

    def on_writer_ended(self, writer: LedgerWriter) -> None:
        self._writers.pop(writer.ledger_id, None)
        self._restless.pop(writer.ledger_id, None)

    def on_writer_busy(self, writer: LedgerWriter) -> None:
        if writer.ledger_id in self._writers:
            self._restless[writer.ledger_id] = writer
            self._pool.wake()

    def _warn_of_weak_quorum(self, write_quorum: int, ack_quorum: int) -> None:
        risk = weak_quorum(write_quorum, ack_quorum)
        if risk and (write_quorum, ack_quorum) not in self._warned:
            self._warned.add((write_quorum, ack_quorum))
            self._on_warning(risk)

    async def _recovered(self, ledger_id: int) -> LedgerMetadata:
        """Recover a ledger.

        One recovery of a ledger runs at a time in this process; other callers get its result.
        """
        return await asyncio.shield(
            self._recoveries.get(ledger_id) or self._begin_recovery(ledger_id)
        )

    def _begin_recovery(
        self, ledger_id: int, given_up: Collection[str] = ()
    ) -> asyncio.Future[LedgerMetadata]:
        # Two recoveries at once would get each other's answers, and the first to end would take
        # them from the other.
        assert ledger_id not in self._recoveries
        future: asyncio.Future[LedgerMetadata] = asyncio.get_running_loop().create_future()
        self._recoveries[ledger_id] = future
        _ = self._world.tasks.spawn(
            self._recover(ledger_id, given_up, future),
            name=f"recovery-{ledger_id}",
            scope=Scope(ScopeKind.LEDGER, str(ledger_id)),
        )
        return future

    async def _recover(
        self, ledger_id: int, given_up: Collection[str], future: asyncio.Future[LedgerMetadata]
    ) -> None:
        try:
            future.set_result(
                await Recovery(
                    self._world, self._options, self._pool, self._store, ledger_id, given_up
                ).run()
            )
        except PulsarishError as error:
            future.set_exception(error)
        except Exception as error:
            # A defect: this task ends with it, and the callers that wait for the recovery must not
            # wait forever.
            future.set_exception(
                ServiceNotReady(
                    f"the recovery of ledger {ledger_id} failed with {error!r}; try again"
                )
            )
            raise
        finally:
            del self._recoveries[ledger_id]

    def _tick(self) -> None:
        for writer in list(self._restless.values()):
            try:
                writer.tick()
            except Exception as error:  # noqa: BLE001
                # Of one ledger: the others must still be timed.
                self._world.tasks.contain(f"tick of ledger {writer.ledger_id}", error, writer.scope)
            if writer.rests():
                self._restless.pop(writer.ledger_id, None)
        if not self._lac_round_out:
            now = self._world.clock.monotonic()
            due = [writer for writer in self._restless.values() if writer.lac_due(now)][
                : self._options.explicit_lac_ledgers_max
            ]
            if due:
                self._lac_round_out = True
                _ = self._world.tasks.spawn(self._lac_round(due), name="explicit-lac")

    async def _lac_round(self, writers: list[LedgerWriter]) -> None:
        try:
            await self._tell_lacs(writers)
        finally:
            self._lac_round_out = False

    async def _tell_lacs(self, writers: list[LedgerWriter], *, stops_fenced: bool = False) -> None:
        """Send the last confirmed entries of idle ledgers to their bookies, so that readers without
        recovery see them.

        One call to each bookie carries all its ledgers. This is off the hot path.
        """
        to_publish = [(writer, writer.metadata, writer.last_add_confirmed) for writer in writers]
        by_member: dict[str, list[int]] = {}
        for place, (_, metadata, _) in enumerate(to_publish):
            for member in metadata.last_segment.members:
                by_member.setdefault(member, []).append(place)
        # A reader believes the highest LAC of Qw - Qa + 1 answers in every write quorum. So Qa
        # members of each must know it: the coverage rule with the counts exchanged.
        known = [
            Coverage(
                metadata.ensemble_size,
                metadata.write_quorum,
                metadata.write_quorum - metadata.ack_quorum + 1,
            )
            for _, metadata, _ in to_publish
        ]
        codes = await asyncio.gather(
            *(
                self._tell(
                    member,
                    [to_publish[place][1].ledger_id for place in places],
                    [to_publish[place][2] for place in places],
                )
                for member, places in by_member.items()
            )
        )
        for (member, places), answers in zip(by_member.items(), codes, strict=True):
            for place, code in zip(places, answers, strict=False):
                if code == 0:
                    known[place].hear(to_publish[place][1].last_segment.members.index(member))
                elif code == LedgerFenced.code and stops_fenced:
                    to_publish[place][0].found_fenced(member)
        for (writer, _, lac), coverage in zip(to_publish, known, strict=True):
            if coverage.covered:
                writer.lac_published(lac)

    async def _tell(self, member: str, ledger_ids: list[int], lacs: list[int]) -> list[int]:
        """Return the bookie's codes; an empty list when it does not answer."""
        try:
            return await self._pool.control.write_lacs(member, ledger_ids, lacs)
        except NoAnswer:
            return []
