"""The replication worker: takes published ledgers one after another, a few at a time, and has each
repaired.

A ledger is locked by an ephemeral node while it is worked on, so that many workers share the work;
a lock that outlives its use, or is lost with its session, costs time or a second copy, never data.
A ledger that cannot be repaired now waits longer from attempt to attempt and is never given up; its
record says why.
"""

from __future__ import annotations

import asyncio
import contextlib

from pulsarish.autorecovery.backlog import Backlog
from pulsarish.autorecovery.options import AutoRecoveryOptions
from pulsarish.autorecovery.switch import Switch
from pulsarish.ledger.repair.repair import LedgerRepair
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import CorruptData, MetadataUnavailable
from pulsarish.runtime.containment import Scope, ScopeKind, run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, ConflictReason, Op, SessionState, World

__all__ = ["ReplicationWorker", "WorkerCounts"]

_log = get_logger("replication")

_RETRY_SECONDS = 1.0


class WorkerCounts:
    """Counts of what was done so far, exported as metrics."""

    def __init__(self) -> None:
        self.repaired = 0
        self.attempts = 0
        self.put_off = 0
        self.locked_elsewhere = 0


class ReplicationWorker:
    """One a process. ``name`` is what others read in its locks."""

    def __init__(
        self,
        world: World,
        options: AutoRecoveryOptions,
        records: Records,
        repair: LedgerRepair,
        switch: Switch,
        name: str,
    ) -> None:
        self.counts = WorkerCounts()
        self.repair = repair
        self.backlog = Backlog(
            world.random,
            options.rw_rereplicate_backoff_ms / 1000,
            options.rw_rereplicate_backoff_max_ms / 1000,
        )
        self._world = world
        self._options = options
        self._records = records
        self._switch = switch
        self._name = name
        self._wake = asyncio.Event()
        self._changed = False
        self._stopped = False
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self) -> None:
        self._records.listen(self._session_changed)
        _ = run_in_background(self._world.tasks, self._world.clock, "replication worker", self._run)

    async def stop(self) -> None:
        """Begin nothing more; returns when what runs has come to its end, or been left to the
        caller's time-out.
        """
        self._stopped = True
        self._wake.set()
        await self._idle.wait()

    def hurry(self) -> None:
        """A bookie has come or gone for good, or auto-recovery is on again: what waited may be
        possible now.
        """
        self.backlog.hurry(self._world.clock.monotonic())
        self._wake.set()

    # -- finding work

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._touched("")

    def _touched(self, _path: str) -> None:
        self._changed = True
        self._wake.set()

    async def _run(self) -> None:
        clock = self._world.clock
        self._changed = True  # what is published is to be read
        while not self._stopped:
            self._wake.clear()
            if self._changed and not await self._read():
                await clock.sleep(_RETRY_SECONDS)
                continue
            self._begin()
            now, due = clock.monotonic(), self.backlog.next_due()
            seconds = (
                None
                if due is None
                or not self._switch.is_on
                or self.backlog.running_count >= self._options.replication_ledgers_max
                else max(0.0, due - now)
            )
            with contextlib.suppress(TimeoutError):  # an attempt is due
                async with clock.timeout(seconds):
                    await self._wake.wait()

    async def _read(self) -> bool:
        """Read what is published, and hear of the next change; whether the store answered."""
        self._changed = False
        try:
            try:
                names = await self._records.watch_children(paths.UNDERREPLICATED, self._touched)
            except Conflict:
                await self._records.ensure(paths.UNDERREPLICATED)
                names = await self._records.watch_children(paths.UNDERREPLICATED, self._touched)
        except (Conflict, MetadataUnavailable):
            self._changed = True
            return False
        self.backlog.published(paths.underreplicated_ids(names), self._world.clock.monotonic())
        return True

    def _begin(self) -> None:
        while (
            not self._stopped
            and self._switch.is_on
            and self.backlog.running_count < self._options.replication_ledgers_max
        ):
            ledger_id = self.backlog.take(self._world.clock.monotonic())
            if ledger_id is None:
                return
            self._idle.clear()
            _ = self._world.tasks.spawn(
                self._mend(ledger_id),
                name=f"mend-{ledger_id}",
                scope=Scope(ScopeKind.LEDGER, str(ledger_id)),
            )

    # -- one ledger

    async def _mend(self, ledger_id: int) -> None:
        done = again = False
        try:
            done, again = await self._mend_once(ledger_id)
        finally:
            self.backlog.ended(ledger_id, self._world.clock.monotonic(), done=done, again=again)
            if not self.backlog.running_count:
                self._idle.set()
            self._wake.set()

    async def _mend_once(self, ledger_id: int) -> tuple[bool, bool]:
        """Whether it is done, and whether it has to be looked at again."""
        done = again = False
        try:
            if await self._lock(ledger_id):
                self.counts.attempts += 1
                waited = self.backlog.waited(ledger_id, self._world.clock.monotonic())
                grace = self._options.open_ledger_rereplication_grace_period_seconds
                try:
                    outcome = await self.repair.mend(ledger_id, may_recover=waited >= grace)
                finally:
                    await self._unlock(ledger_id)
                done, again = outcome.done, outcome.newer
                self.counts.repaired += done
                self.counts.put_off += not done
                if outcome.reason and self.backlog.is_news(ledger_id, outcome.reason):
                    _log.info(
                        "a ledger still lacks copies", ledger=ledger_id, reason=outcome.reason
                    )
            else:
                self.counts.locked_elsewhere += 1
        except MetadataUnavailable as error:
            _log.info(
                "a ledger is repaired later: the metadata did not answer",
                ledger=ledger_id,
                reason=error,
            )
        except CorruptData as error:
            _log.error(
                "a ledger cannot be repaired: its record cannot be read",
                ledger=ledger_id,
                exception=error,
            )
        return done, again

    async def _lock(self, ledger_id: int) -> bool:
        """Whether the ledger is ours to repair; a lock that an earlier attempt in this session left
        behind is ours too.
        """
        path, records = paths.repair_lock(ledger_id), self._records
        try:
            await records.commit([Op("create_ephemeral", path, self._name.encode())])
        except Conflict as conflict:
            if conflict.reason is ConflictReason.NO_NODE:
                await records.make_parents(path)
                return await self._lock(ledger_id)
            node = (await records.nodes([path]))[0]
            return node is not None and node.session_id == records.session_id
        return True

    async def _unlock(self, ledger_id: int) -> None:
        try:
            await self._records.commit([Op("delete", paths.repair_lock(ledger_id))])
        except (Conflict, MetadataUnavailable) as error:
            _log.debug("a lock is left to its session's end", ledger=ledger_id, reason=error)
