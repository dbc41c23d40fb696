"""The move of old copies from fuller bookies to emptier ones, when an operator asks for it.

The request and its progress are one record in the metadata. The process that is elected auditor
works on it, and the next one goes on with it: what is left is planned again from the metadata of
the ledgers as they are then. Passes follow each other until a plan is empty. Each pass reads all
ledgers three times: for what the bookies hold, for the plan, and to move.

Two processes at once do no harm: each move ends with a compare-and-set of the ledger's record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from pulsarish.autorecovery.options import AutoRecoveryOptions
from pulsarish.autorecovery.switch import Switch
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.placement import PlacementRules, is_no_worse
from pulsarish.ledger.repair.moves_core import Balance, add_held_bytes
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
"""Moves in a row that fail before a pass ends."""
_RETRY_SECONDS: Final = 10.0
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
                await self._election.won.wait()
                self._is_stale = True
                continue
            try:
                await self._refresh()
                if self.is_running:
                    await self._work()
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

    async def _check(self, number: int) -> None:
        """Raise ``_Over`` unless this process is to go on with this request."""
        await self._refresh()
        if not self._works or self.now.number != number or self.now.ended_ms:
            raise _Over

    async def _note(self, number: int, **fields: object) -> None:
        """Change the record of a request that has not ended. Raises ``_Over`` when it has."""

        def change(found: RebalanceRecord | None) -> RebalanceRecord | None:
            if found is None or found.number != number or found.ended_ms:
                return None
            return msgspec.structs.replace(found, **fields)

        stored = await self._records.update(paths.rebalance(), RebalanceRecord, change)
        self.now = _NOTHING if stored is None else stored[0]
        if self.now.number != number or self.now.ended_ms:
            raise _Over

    async def _end(self, reason: str) -> None:
        """Note that the request has come to its end. Raises ``_Over``."""
        _log.info(
            "a rebalance has ended",
            reason=reason,
            ledgers=self.now.ledgers_moved,
            size_bytes=self.now.bytes_moved,
        )
        await self._note(self.now.number, ended_ms=self._world.clock.wall_ms(), reason=reason)

    # -- the work

    async def _work(self) -> None:
        """Work on a request to its end. Raises ``_Over``, ``MetadataUnavailable``."""
        request = self.now
        self._rate.limit(request.rate_bytes)
        _log.info("copies move to emptier bookies", dry_run=request.dry_run)
        while True:
            balance = await self._look(request)
            plan = Balance(balance.held, self._writable(), request.tolerance_percent / 100)
            ledgers, size_bytes = await self._plan(request, plan)
            await self._note(
                request.number,
                ledgers_planned=self.now.ledgers_moved + ledgers,
                bytes_planned=self.now.bytes_moved + size_bytes,
                held=balance.held,
                held_then=plan.held,
            )
            if request.dry_run:
                await self._end("it was a dry run")
            if self._is_at_limit():
                await self._end(f"{request.ledgers_max} ledgers were moved, as asked")
            if not ledgers:
                await self._end(
                    "bookies are even"
                    if balance.is_even()
                    else "no other copy can move: placement, or the size of single ledgers"
                )
            if not await self._move(request, balance):
                await self._end(f"no copy could be moved: {self.now.reason}")

    def _is_at_limit(self) -> bool:
        now = self.now
        return bool(now.ledgers_max) and now.ledgers_moved >= now.ledgers_max

    def _writable(self) -> list[str]:
        return [
            candidate.member
            for candidate in self._ledgers.bookies.candidates()
            if candidate.healthy
        ]

    async def _ledgers_of(self, number: int) -> AsyncIterator[LedgerMetadata]:
        """Yield the records of all ledgers. Raises ``_Over``, ``MetadataUnavailable``."""
        page_ledgers = self._options.auditor_page_ledgers
        rate = RateLimiter(
            self._world.clock, self._options.auditor_ledgers_per_second, saved_max=page_ledgers
        )
        async for branch in ledger_ids(self._records):
            for start in range(0, len(branch), page_ledgers):
                await self._check(number)
                page = branch[start : start + page_ledgers]
                for found in await self._records.get_many(
                    [paths.ledger(ledger_id) for ledger_id in page], LedgerMetadata
                ):
                    if found is not None:
                        yield found[0]
                await rate.take(len(page))

    async def _look(self, request: RebalanceRecord) -> Balance:
        """Find out what each registered bookie holds."""
        held = dict.fromkeys(self._ledgers.bookies.members(), 0)
        async for metadata in self._ledgers_of(request.number):
            add_held_bytes(held, metadata)
        return Balance(held, self._writable(), request.tolerance_percent / 100)

    async def _plan(self, request: RebalanceRecord, plan: Balance) -> tuple[int, int]:
        """Make all moves of a pass in ``plan`` only. Return their ledgers and bytes."""
        ledgers = size_bytes = 0
        async for metadata in self._ledgers_of(request.number):
            if request.ledgers_max and self.now.ledgers_moved + ledgers >= request.ledgers_max:
                break
            before, after = size_bytes, metadata
            while move := plan.choose(after, self._may_take):
                plan.moved(move)
                size_bytes += move.size_bytes
                after = after.with_replaced(move.first_entry, move.member, move.target)
            ledgers += size_bytes > before
        return ledgers, size_bytes

    async def _move(self, request: RebalanceRecord, balance: Balance) -> int:
        """Carry out a pass. Return how many parts were moved."""
        moved = failures = 0
        async for metadata in self._ledgers_of(request.number):
            if self._is_at_limit() or failures >= _FAILURES_MAX or balance.is_even():
                break
            size_bytes, now = 0, metadata
            while move := balance.choose(now, self._may_take):
                await self._check(request.number)
                reason = await self._mover.move(move)
                if reason:
                    failures += 1
                    _log.info("copies of a ledger are not moved", reason=reason)
                    await self._note(request.number, reason=reason)
                    break
                failures = 0
                moved += 1
                balance.moved(move)
                size_bytes += move.size_bytes
                now = now.with_replaced(move.first_entry, move.member, move.target)
            if size_bytes:
                await self._note(
                    request.number,
                    ledgers_moved=self.now.ledgers_moved + 1,
                    bytes_moved=self.now.bytes_moved + size_bytes,
                    held=balance.held,
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
        return is_no_worse(members, place, candidate, metadata.write_quorum, self._rules)
