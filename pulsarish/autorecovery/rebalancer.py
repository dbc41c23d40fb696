"""The move of old copies: from fuller bookies to emptier ones when an operator asks for it, and to
better placed bookies, when that is asked for or due.

The request and its progress are one record in the metadata. The process that is elected auditor
works on it, and the next one goes on with it: what is left is planned again from the metadata of
the ledgers as they are then. Passes follow each other until a plan is empty. Each pass reads all
ledgers: for what the bookies hold, for the plan, and to move.

Two processes at once do no harm: each move ends with a compare-and-set of the ledger's record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import msgspec

from pulsarish.autorecovery.options import AutoRecoveryOptions
from pulsarish.autorecovery.switch import Switch
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.placement import Candidate, PlacementRules, is_no_worse
from pulsarish.ledger.repair.moves_core import Balance, Move, add_held_bytes, better_placed
from pulsarish.ledger.repair.repair import left_to_repair
from pulsarish.ledger.repair.repair_core import MemberState
from pulsarish.metadata import paths
from pulsarish.metadata.election import Election
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import RebalanceRecord
from pulsarish.model.errors import CorruptData, MetadataUnavailable, PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.runtime.containment import Scope, ScopeKind, run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.rate_limiter import RateLimiter
from pulsarish.runtime.seams import SessionState, World
from pulsarish.wire.json_record import decode_record

__all__ = ["Rebalancer"]

_log = get_logger("rebalance")

_FAILURES_MAX: Final = 20
"""Moves in a row that fail before a pass ends, without those of under-replicated ledgers."""
_RETRY_SECONDS: Final = 10.0
_SHOWN_LEDGERS: Final = 20
_AT_ONCE: Final = 50
"""Ledgers that are looked at without a pause for other tasks."""
_NOTHING: Final = RebalanceRecord()


class _Over(Exception):
    """Another process is to go on, or none."""


class Rebalancer:
    """Runs on every candidate for auditor and works where it is elected.

    Args:
        state_of: whether a bookie is there, away or lost.
    """

    def __init__(
        self,
        world: World,
        options: AutoRecoveryOptions,
        records: Records,
        ledgers: LedgerClient,
        election: Election,
        switch: Switch,
        state_of: Callable[[str], MemberState],
    ) -> None:
        self.now = _NOTHING
        """The record as last read."""
        self._world = world
        self._options = options
        self._records = records
        self._ledgers = ledgers
        self._election = election
        self._switch = switch
        self._rate = RateLimiter(world.clock, options.replication_rate_bytes)
        self._mover = ledgers.repair(state_of, self._pace, options.replication_batch_bytes)
        self._rules = PlacementRules.of(options.ledger)
        self.misplaced_count = 0
        """Ledgers that the last look at placement has found, without those that were moved."""
        self._candidates: list[Candidate] = []  # as of the last page of ledgers
        self._job = _NOTHING  # what is worked on; of number 0: a look at placement that was due
        self._placement_due: float | None = None
        self._is_stale = True
        self._stopped = False

    def start(self) -> None:
        self._records.listen(self._session_changed)
        _ = run_in_background(self._world.tasks, self._world.clock, "rebalance", self._run)

    def stop(self) -> None:
        self._stopped = True

    @property
    def moved_count(self) -> int:
        """Parts of ledgers that this process has moved."""
        return self._mover.counts.moved

    @property
    def moved_bytes(self) -> int:
        """Bytes that this process has copied for that."""
        return self._mover.copied.bytes

    @property
    def is_running(self) -> bool:
        """Whether this process works on a request."""
        return self._works and bool(self.now.number) and not self.now.ended_ms

    @property
    def _works(self) -> bool:
        return not self._stopped and self._election.is_mine and self._switch.is_on

    async def _pace(self, size_bytes: int) -> None:
        await self._rate.take(size_bytes)
        await self._switch.wait_until_on()

    async def _run(self) -> None:
        clock = self._world.clock
        while not self._stopped:
            await clock.sleep(self._options.auditor_check_interval_seconds)
            if not self._election.is_mine:
                self.misplaced_count = 0  # the next auditor counts
                await self._election.won.wait()
                self._is_stale = True
                self._placement_due = None
                continue
            try:
                await self._refresh()
                if self.is_running:
                    await self._work(self.now)
                elif self._works and self._is_placement_due():
                    await self._work(self._placement_job())
            except _Over:
                continue
            except PulsarishError as error:
                _log.warning("the rebalance goes on later", reason=error)
                self._is_stale = True
                await clock.sleep(_RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001
                # Of one ledger: each auditor after the other would end by it.
                self._world.tasks.contain(
                    "rebalance", error, Scope(ScopeKind.TASK, "the move of copies")
                )
                self._is_stale = True
                await clock.sleep(_RETRY_SECONDS)

    # -- the record

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._is_stale = True

    def _touched(self, _path: str) -> None:
        self._is_stale = True

    async def _refresh(self) -> None:
        """Read the record if it may have changed. Raises ``MetadataUnavailable``."""
        if not self._is_stale:
            return
        self._is_stale = False
        path = paths.rebalance()
        try:
            (node,) = await self._records.nodes([path], watch=self._touched)
            self.now = _NOTHING if node is None else decode_record(node.data, RebalanceRecord, path)
        except MetadataUnavailable:
            self._is_stale = True
            raise
        except CorruptData as error:
            _log.error("the request to rebalance cannot be read", exception=error)
            self.now = _NOTHING

    async def _check(self) -> None:
        """Raise ``_Over`` unless this process is to go on with its job."""
        await self._refresh()
        # A look that is due gives way to a request.
        asked = 0 if self.now.ended_ms else self.now.number
        if not self._works or asked != self._job.number:
            raise _Over

    async def _note(self, **fields: object) -> None:
        """Note the progress of the job. Raises ``_Over`` when it has ended."""
        number = self._job.number
        if not number:
            self._job = msgspec.structs.replace(self._job, **fields)
        else:

            def change(found: RebalanceRecord | None) -> RebalanceRecord | None:
                if found is None or found.number != number or found.ended_ms:
                    return None
                return msgspec.structs.replace(found, **fields)

            stored = await self._records.update(paths.rebalance(), RebalanceRecord, change)
            self.now = self._job = _NOTHING if stored is None else stored[0]
        if self._job.number != number or self._job.ended_ms:
            raise _Over

    async def _end(self, reason: str) -> None:
        """Note that the job has come to its end. Raises ``_Over``."""
        job = self._job
        if job.placement:
            self._placement_due = self._world.clock.monotonic() + self._placement_seconds
            if not job.ledgers_max:
                self.misplaced_count = job.ledgers_planned - job.ledgers_moved
        log = _log.warning if job.placement and self.misplaced_count else _log.info
        log(
            "a look at the placement of copies has ended"
            if job.placement
            else "a rebalance has ended",
            reason=reason,
            ledgers=job.ledgers_planned,
            moved=job.ledgers_moved,
            size_bytes=job.bytes_moved,
            first=job.first_ledgers[:1],
        )
        await self._note(ended_ms=self._world.clock.wall_ms(), reason=reason)

    # -- the look at placement that is due now and then

    @property
    def _placement_seconds(self) -> float:
        return self._options.auditor_periodic_placement_policy_check_interval_seconds

    def _is_placement_due(self) -> bool:
        now = self._world.clock.monotonic()
        if self._placement_due is None:
            # The first look of a term of office, once all bookies had time to come.
            self._placement_due = now + min(
                self._placement_seconds, self._options.lost_bookie_recovery_delay_seconds
            )
        return now >= self._placement_due

    def _placement_job(self) -> RebalanceRecord:
        return RebalanceRecord(
            placement=True,
            dry_run=not self._options.repaired_placement_policy_not_adhering_bookie_enable,
            rate_bytes=self._options.replication_rate_bytes,
        )

    # -- the work

    async def _work(self, job: RebalanceRecord) -> None:
        """Work on a job to its end. Raises ``_Over``, ``MetadataUnavailable``."""
        self._job = job
        self._rate.limit(job.rate_bytes)
        _log.info("copies move to other bookies", placement=job.placement, dry_run=job.dry_run)
        while True:
            balance = None if job.placement else await self._look()
            plan = None if balance is None else self._balance(balance.held)
            await self._plan(plan)
            if balance is not None and plan is not None:
                await self._note(held=balance.held, held_then=plan.held)
            if job.dry_run:
                await self._end("it was only planned, as asked")
            if self._is_at_limit():
                await self._end(f"{job.ledgers_max} ledgers were moved, as asked")
            if self._job.ledgers_planned == self._job.ledgers_moved:
                await self._end(self._why_done(balance))
            if not await self._move(balance):
                await self._end(f"no copy could be moved: {self._job.reason}")

    def _why_done(self, balance: Balance | None) -> str:
        if balance is None:
            return "no other bookie would be a better choice"
        if balance.is_even():
            return "bookies are even"
        return "no other copy can move: placement, or the size of single ledgers"

    def _is_at_limit(self) -> bool:
        job = self._job
        return bool(job.ledgers_max) and job.ledgers_moved >= job.ledgers_max

    def _writable(self) -> list[str]:
        return [
            candidate.member
            for candidate in self._ledgers.bookies.candidates()
            if candidate.healthy
        ]

    def _balance(self, held: Mapping[str, int]) -> Balance:
        return Balance(held, self._writable(), self._job.tolerance_percent / 100)

    async def _ledgers_of(self) -> AsyncIterator[LedgerMetadata]:
        """Yield the records of all ledgers. Raises ``_Over``, ``MetadataUnavailable``."""
        page_ledgers = self._options.auditor_page_ledgers
        rate = RateLimiter(
            self._world.clock, self._options.auditor_ledgers_per_second, saved_max=page_ledgers
        )
        async for branch in ledger_ids(self._records):
            for start in range(0, len(branch), page_ledgers):
                await self._check()
                page = branch[start : start + page_ledgers]
                self._candidates = self._ledgers.bookies.candidates()
                for count, found in enumerate(
                    await self._records.get_each(
                        [paths.ledger(ledger_id) for ledger_id in page], LedgerMetadata
                    )
                ):
                    if isinstance(found, CorruptData):
                        _log.warning("copies of a ledger are not moved", reason=found)
                    elif found is not None:
                        yield found[0]
                    if count % _AT_ONCE == 0:
                        await self._world.clock.sleep(0)  # a bookie may host this
                await rate.take(len(page))

    async def _look(self) -> Balance:
        """Find out what each registered bookie holds."""
        held = dict.fromkeys(self._ledgers.bookies.members(), 0)
        async for metadata in self._ledgers_of():
            add_held_bytes(held, metadata)
        return self._balance(held)

    def _choose(self, metadata: LedgerMetadata, balance: Balance | None) -> Move | None:
        if balance is not None:
            return balance.choose(metadata, self._may_take)
        describe = self._ledgers.bookies.describe
        # Most ledgers are well placed. Only for others the bookies are looked at again, in an
        # order of chance, so that equal ones share what moves.
        known = [each for each in self._candidates if _is_in_groups(metadata, each)]
        if better_placed(metadata, describe, known, self._rules) is None:
            return None
        candidates = [
            candidate
            for candidate in self._ledgers.bookies.candidates()
            if _is_in_groups(metadata, candidate)
            and not self._ledgers.bookies.may_lack(candidate.member, metadata.ledger_id)
        ]
        self._world.random.shuffle(candidates)
        return better_placed(metadata, describe, candidates, self._rules)

    async def _plan(self, plan: Balance | None) -> None:
        """Make all moves of a pass in the plan only, and note their ledgers and bytes.

        Args:
            plan: of a rebalance; it is changed.
        """
        job, size_bytes = self._job, 0
        ledgers: list[int] = []
        count = 0
        async for metadata in self._ledgers_of():
            if job.ledgers_max and job.ledgers_moved + count >= job.ledgers_max:
                break
            after = metadata
            while move := self._choose(after, plan):
                if plan is not None:
                    plan.moved(move)
                size_bytes += move.size_bytes
                after = after.with_replaced(move.first_entry, move.member, move.target)
            if after is not metadata:
                count += 1
                if len(ledgers) < _SHOWN_LEDGERS:
                    ledgers.append(metadata.ledger_id)
        await self._note(
            ledgers_planned=job.ledgers_moved + count,
            bytes_planned=job.bytes_moved + size_bytes,
            first_ledgers=tuple(ledgers),
        )

    async def _move(self, balance: Balance | None) -> int:
        """Carry out a pass. Return how many parts were moved."""
        moved = failures = 0
        async for metadata in self._ledgers_of():
            is_over = balance is not None and balance.is_even()
            if is_over or self._is_at_limit() or failures >= _FAILURES_MAX:
                break
            size_bytes, now = 0, metadata
            while move := self._choose(now, balance):
                await self._check()
                reason = await self._mover.move(move)
                if reason:
                    _log.info("copies of a ledger are not moved", reason=reason)
                    if reason == left_to_repair(move.ledger_id):
                        # A bookie that was lost leaves very many: none is worth a write.
                        self._job = msgspec.structs.replace(self._job, reason=reason)
                    else:
                        failures += 1
                        await self._note(reason=reason)
                    break
                failures = 0
                moved += 1
                if balance is not None:
                    balance.moved(move)
                size_bytes += move.size_bytes
                now = now.with_replaced(move.first_entry, move.member, move.target)
            if now is not metadata:
                await self._note(
                    ledgers_moved=self._job.ledgers_moved + 1,
                    bytes_moved=self._job.bytes_moved + size_bytes,
                    held={} if balance is None else balance.held,
                )
        return moved

    def _may_take(self, metadata: LedgerMetadata, index: int, place: int, target: str) -> bool:
        """Whether a bookie may have a place: it is well, vouches for what it holds of the ledger,
        and write quorums share no more domains with it.
        """
        bookies = self._ledgers.bookies
        if not bookies.healthy(target) or bookies.may_lack(target, metadata.ledger_id):
            return False
        members = bookies.describe(metadata.segments[index].members)
        (candidate,) = bookies.describe([target])
        return _is_in_groups(metadata, candidate) and is_no_worse(
            members, place, candidate, metadata.write_quorum, self._rules
        )


def _is_in_groups(metadata: LedgerMetadata, candidate: Candidate) -> bool:
    """Whether copies may move to a bookie: those of a ledger with groups stay in the primary
    ones.
    """
    groups = metadata.bookie_groups
    return groups is None or candidate.group in groups.primary
