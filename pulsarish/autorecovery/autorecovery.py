"""Auditor and replication worker of one process, put together: a process of their own, or hosted in
a bookie.

Any number of them may run in a cluster. They own nothing: the missing copies are recorded in the
metadata, and any live one goes on with them.
"""

from __future__ import annotations

import asyncio

from pulsarish.autorecovery.absent_bookies import AbsentBookies
from pulsarish.autorecovery.auditor import Auditor, read_cookies
from pulsarish.autorecovery.copy_rate import CopyRate
from pulsarish.autorecovery.options import AutoRecoveryOptions
from pulsarish.autorecovery.rebalancer import Rebalancer
from pulsarish.autorecovery.switch import Switch
from pulsarish.autorecovery.worker import ReplicationWorker
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.repair.repair_core import MemberState
from pulsarish.metadata import paths
from pulsarish.metadata.election import Election
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import GivenUpBookie
from pulsarish.model.errors import CorruptData, MetadataUnavailable
from pulsarish.model.topic_name import decode_segment
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.metrics import Metrics
from pulsarish.runtime.rate_limiter import RateLimiter
from pulsarish.runtime.seams import Conflict, SessionState, World

__all__ = ["AutoRecovery"]

_log = get_logger("autorecovery")

_STOP_SECONDS = 5.0


class AutoRecovery:
    """One candidate for auditor and one worker.

    Args:
        world: what it may touch; the metadata store is connected.
        options: checked.
        name: what others read in its locks and in the election.
    """

    def __init__(self, world: World, options: AutoRecoveryOptions, name: str) -> None:
        self._world = world
        self._options = options
        self._ledgers = LedgerClient(world, options.ledger, may_end_process=False)
        self._records = records = Records(
            world.metadata, world.clock, world.random, guard=self._ledgers.age
        )
        self._absences = AbsentBookies(
            options.lost_bookie_recovery_delay_seconds, options.lost_bookies_share_max
        )
        self.switch = switch = Switch(world, records, self._switch_changed)
        self._copy_rate = CopyRate(
            options.replication_rate_bytes,
            options.replication_batch_bytes,
            options.replication_slow_ratio,
            world.clock.monotonic(),
        )
        self._rate = RateLimiter(world.clock, self._copy_rate.per_second)
        self._noted_bytes = 0
        self._noted_seconds = 0.0
        repair = self._ledgers.repair(self._state_of, self._pace, options.replication_batch_bytes)
        self.election = Election(world, records, paths.auditor(), name)
        self.worker = ReplicationWorker(world, options, records, repair, switch, name)
        self.auditor = Auditor(
            world,
            options,
            records,
            self._ledgers,
            self._absences,
            self.election,
            switch,
            lambda: self.worker.backlog.count,
        )
        self.rebalancer = Rebalancer(
            world, options, records, self._ledgers, self.election, switch, self._state_of
        )
        self._given_up: list[str] = []
        self._given_up_changed = asyncio.Event()
        self._stopped = False

    async def start(self) -> None:
        """Returns when it watches the bookies. Raises ``MetadataUnavailable``."""
        self._records.listen(self._session_changed)
        await self._ledgers.start()
        _ = run_in_background(
            self._world.tasks, self._world.clock, "given-up bookies", self._watch_given_up
        )
        _ = run_in_background(self._world.tasks, self._world.clock, "lost bookies", self._run)
        _ = run_in_background(
            self._world.tasks, self._world.clock, "switch of auto-recovery", self.switch.run
        )
        self.election.start()
        self.auditor.start()
        self.rebalancer.start()
        self.worker.start()

    async def stop(self) -> None:
        """Let others take over; what is being copied is given a moment to come to its end."""
        self._stopped = True
        self._given_up_changed.set()
        self.switch.stop()
        self.auditor.stop()
        self.rebalancer.stop()
        await self.election.stop()
        try:
            async with self._world.clock.timeout(_STOP_SECONDS):
                await self.worker.stop()
        except TimeoutError:
            _log.info(
                "stopped while ledgers were being repaired; other workers begin with them again"
            )
        await self._ledgers.close()

    def unwell_reason(self) -> str:
        """What an operator should know at once; empty when there is nothing."""
        if self.auditor.stalled_by:
            return (
                f"too many bookies are gone at once ({', '.join(self.auditor.stalled_by)}): "
                "give them up, or bring them back"
            )
        return ""

    # -- what operators ask

    def _switch_changed(self) -> None:
        self._absences.delay_seconds = (
            self.switch.now.lost_bookie_recovery_delay_seconds
            or self._options.lost_bookie_recovery_delay_seconds
        )
        self.worker.hurry()

    async def _pace(self, size_bytes: int) -> None:
        """Hold copying to its rate, and stop it while auto-recovery is off."""
        copied = self.worker.repair.copied
        size, seconds = copied.bytes - self._noted_bytes, copied.seconds - self._noted_seconds
        self._noted_bytes, self._noted_seconds = copied.bytes, copied.seconds
        self._copy_rate.note(size, seconds, self._world.clock.monotonic())
        self._rate.change_rate(self._copy_rate.per_second)
        await self._rate.take(size_bytes)
        await self.switch.wait_until_on()

    # -- who is lost

    def _state_of(self, member: str) -> MemberState:
        return self._absences.state_of(member, self._world.clock.monotonic())

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._absences.metadata_back(self._world.clock.monotonic())
            self._given_up_changed.set()
        else:
            self._absences.metadata_away()

    def _look_at_bookies(self) -> None:
        self._absences.observe(self._ledgers.bookies.members(), self._world.clock.monotonic())

    async def _run(self) -> None:
        """Notice who is there and who is lost; either may make possible what waited."""
        version, lost = -1, 0
        while not self._stopped:
            self._look_at_bookies()
            now_lost = len(self._absences.lost(self._world.clock.monotonic()))
            if version != self._ledgers.bookies.version or lost != now_lost:
                version, lost = self._ledgers.bookies.version, now_lost
                self.worker.hurry()
            if self._given_up and not self.worker.backlog.count:
                self.auditor.look_again(self._given_up)
            await self._world.clock.sleep(self._options.auditor_check_interval_seconds)

    async def _watch_given_up(self) -> None:
        """Know who is given up, and who ever was: of one that was gone before this node began,
        nothing else tells, and without it too many that are gone at once would look like few.
        """
        self._given_up_changed.set()
        while True:
            await self._given_up_changed.wait()
            if self._stopped:
                return
            self._given_up_changed.clear()
            try:
                for path in (paths.AUTORECOVERY, paths.given_up_bookies()):
                    await self._records.ensure(path)
                names = await self._records.watch_children(
                    paths.given_up_bookies(), lambda _path: self._given_up_changed.set()
                )
                found = (
                    await self._records.get_many(
                        [paths.given_up(decode_segment(name)) for name in names], GivenUpBookie
                    )
                    if names
                    else []
                )
                cookies = await read_cookies(self._records)
            except (MetadataUnavailable, Conflict, CorruptData) as error:
                _log.debug("which bookies are given up is read again", reason=error)
                self._given_up_changed.set()
                await self._world.clock.sleep(self._options.auditor_check_interval_seconds)
                continue
            known = [cookie.instance_id for cookie in cookies]
            before, self._given_up = (
                self._given_up,
                [row[0].instance_id for row in found if row is not None],
            )
            self._absences.give_up(self._given_up)
            self._absences.know(known, self._world.clock.monotonic())
            self._absences.decommissioned(
                member for member in before if member not in (*self._given_up, *known)
            )

    # -- metrics

    def export(self, metrics: Metrics) -> None:
        """Register what is known, under BookKeeper's names where it has them."""
        auditor, worker, read = self.auditor, self.worker, metrics.read
        counts, repair = auditor.counts, worker.repair
        read(
            "auditor_is_active",
            "gauge",
            "1 where the elected auditor is.",
            lambda: int(auditor.is_active),
        )
        read(
            "auditor_is_switched_off",
            "gauge",
            "1 while an operator has switched auto-recovery off.",
            lambda: int(bool(self.switch.off_reason)),
        )
        read(
            "auditor_NUM_UNDERREPLICATED_LEDGERS",
            "gauge",
            "Ledgers that are under-replicated.",
            lambda: worker.backlog.count,
        )
        read(
            "auditor_NUM_LOST_BOOKIES",
            "gauge",
            "Bookies that count as lost.",
            lambda: counts.lost_bookies,
        )
        read(
            "auditor_NUM_STALLED_BOOKIES",
            "gauge",
            "Bookies gone at once, too many to count as lost.",
            lambda: len(auditor.stalled_by),
        )
        read(
            "auditor_NUM_LEDGERS_CHECKED",
            "counter",
            "Ledgers looked at.",
            lambda: counts.ledgers_checked,
        )
        read(
            "auditor_NUM_LEDGERS_PUBLISHED",
            "counter",
            "Ledgers published as under-replicated.",
            lambda: counts.ledgers_published,
        )
        read(
            "auditor_walks_total",
            "counter",
            "Walks of the auditor through all ledgers that ended.",
            lambda: counts.walks,
        )
        read(
            "auditor_walk_seconds",
            "gauge",
            "Seconds that the auditor's last walk through all ledgers took.",
            lambda: counts.last_walk_seconds,
        )
        read(
            "auditor_last_walk_seconds",
            "gauge",
            "When the auditor's last walk through all ledgers ended, as a Unix time; 0: none has.",
            lambda: counts.walk_ends_ms / 1000,
        )
        read(
            "auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY",
            "gauge",
            "Closed ledgers whose copies share a domain although a better bookie is there.",
            lambda: self.rebalancer.misplaced_count,
        )
        read(
            "auditor_rebalance_running",
            "gauge",
            "1 where copies are moved to other bookies now, as an operator asked.",
            lambda: int(self.rebalancer.is_running),
        )
        read(
            "auditor_rebalance_parts_moved_total",
            "counter",
            "Parts of ledgers moved to emptier or better placed bookies.",
            lambda: self.rebalancer.moved_count,
        )
        read(
            "auditor_rebalance_bytes_total",
            "counter",
            "Bytes copied to move parts of ledgers.",
            lambda: self.rebalancer.moved_bytes,
        )
        read(
            "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED",
            "counter",
            "Ledgers repaired.",
            lambda: worker.counts.repaired,
        )
        read(
            "replication_worker_NUM_ENTRIES_WRITTEN",
            "counter",
            "Entries copied.",
            lambda: repair.copied.entries,
        )
        read(
            "replication_worker_NUM_BYTES_WRITTEN",
            "counter",
            "Bytes copied.",
            lambda: repair.copied.bytes,
        )
        read(
            "replication_worker_rate_bytes",
            "gauge",
            "Bytes a second that may be read to copy them now: fewer while bookies answer late.",
            lambda: self._copy_rate.per_second,
        )
        read(
            "replication_worker_NUM_BYTES_READ",
            "counter",
            "Bytes read to copy or to verify.",
            lambda: repair.copied.read_bytes,
        )
        read(
            "replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE",
            "counter",
            "Attempts that were put off.",
            lambda: worker.counts.put_off,
        )
        read(
            "replication_worker_attempts_total",
            "counter",
            "Attempts to repair a ledger.",
            lambda: worker.counts.attempts,
        )
        read(
            "replication_worker_running",
            "gauge",
            "Ledgers being repaired now.",
            lambda: worker.backlog.running_count,
        )
        read(
            "replication_worker_parts_replaced_total",
            "counter",
            "Lost members replaced.",
            lambda: repair.counts.replaced,
        )
        read(
            "replication_worker_parts_filled_total",
            "counter",
            "Members that were checked and got their missing entries.",
            lambda: repair.counts.filled,
        )
        read(
            "replication_worker_copies_added_total",
            "counter",
            "Copies added to ledgers below their policy.",
            lambda: repair.counts.copies_added,
        )
        read(
            "replication_worker_recovered_total",
            "counter",
            "Open ledgers recovered for a lost bookie.",
            lambda: repair.counts.recovered,
        )
