"""The auditor: finds what is lost and publishes which ledgers lack copies. It copies nothing.

It looks through all ledgers page by page at a bounded rate, and only when there is a reason: a
bookie was lost, or a long time has passed. It publishes by merging into what is there, so two
auditors for a moment do no harm; and it publishes nothing more while very many ledgers wait to be
repaired already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from pulsarish.autorecovery.absent_bookies import AbsentBookies
from pulsarish.autorecovery.auditor_core import AuditorCore, Walk
from pulsarish.autorecovery.options import AutoRecoveryOptions
from pulsarish.autorecovery.switch import Switch
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.repair.repair_core import MemberState
from pulsarish.metadata import paths
from pulsarish.metadata.election import Election
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import (
    AutoRecoverySwitch,
    BookieRegistration,
    Cookie,
    GivenUpBookie,
)
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.containment import Scope, ScopeKind, run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.rate_limiter import RateLimiter
from pulsarish.runtime.seams import Conflict, World

__all__ = ["Auditor", "AuditorCounts", "read_cookies"]

_log = get_logger("auditor")

_LOOK_AGAIN_SECONDS = 5.0


async def read_cookies(records: Records) -> list[Cookie]:
    """Return the cookies of all bookies that ever existed and are not decommissioned.

    Raises ``MetadataUnavailable``, ``CorruptData``.
    """
    names = await records.children(paths.COOKIES)
    found = (
        await records.get_many([f"{paths.COOKIES}/{name}" for name in names], Cookie)
        if names
        else []
    )
    return [row[0] for row in found if row is not None]


class AuditorCounts:
    """Counts of what was done so far, exported as metrics."""

    def __init__(self) -> None:
        self.walks = 0
        self.ledgers_checked = 0
        self.ledgers_published = 0
        self.lost_bookies = 0
        self.last_walk_seconds = 0.0
        self.walk_ends_ms = 0
        """When the last walk came to its end, by the wall clock; 0: none has."""


class Auditor:
    """Runs on every candidate and works where it is elected.

    ``waiting_count`` says how many ledgers wait to be repaired.
    """

    def __init__(
        self,
        world: World,
        options: AutoRecoveryOptions,
        records: Records,
        ledgers: LedgerClient,
        absences: AbsentBookies,
        election: Election,
        switch: Switch,
        waiting_count: Callable[[], int],
    ) -> None:
        self.counts = AuditorCounts()
        self.stalled_by: tuple[str, ...] = ()
        """Bookies that are gone and do not count as lost, because they are too many: an operator
        must decide.
        """
        self._world = world
        self._options = options
        self._records = records
        self._ledgers = ledgers
        self._absences = absences
        self._election = election
        self._switch = switch
        self._waiting_count = waiting_count
        self._asked_rate = RateLimiter(world.clock, options.auditor_asked_entries_per_second)
        self._core: AuditorCore | None = None  # of this term of office
        self._next_look = 0.0  # not before this for bookies that were looked for already
        self._stopped = False

    def start(self) -> None:
        _ = run_in_background(self._world.tasks, self._world.clock, "auditor", self._run)

    def stop(self) -> None:
        self._stopped = True

    @property
    def is_active(self) -> bool:
        return not self._stopped and self._election.is_mine

    @property
    def _works(self) -> bool:
        return self.is_active and self._switch.is_on

    async def _run(self) -> None:
        clock, options = self._world.clock, self._options
        while not self._stopped:
            await clock.sleep(options.auditor_check_interval_seconds)
            if not self.is_active:
                self._core, self.stalled_by = None, ()
                await self._election.won.wait()
                continue
            if not self._switch.is_on:
                continue
            try:
                await self._look()
            except PulsarishError as error:
                _log.warning("the look through all ledgers begins again later", reason=error)
            except Exception as error:  # noqa: BLE001
                # Of one ledger or bookie: each auditor after the other would end by it.
                self._world.tasks.contain(
                    "auditor", error, Scope(ScopeKind.TASK, "a look through all ledgers")
                )

    async def _look(self) -> None:
        now, options = self._world.clock.monotonic(), self._options
        if self._core is None:
            self._absences.know(
                [cookie.instance_id for cookie in await read_cookies(self._records)], now
            )
            self._core = AuditorCore(
                delay_seconds=self._absences.delay_seconds,
                bookie_check_seconds=options.auditor_periodic_bookie_check_interval_seconds,
                entry_check_seconds=options.auditor_periodic_check_interval_seconds,
                now=now,
            )
        self._say_if_too_many(now)
        lost = self._absences.lost(now)
        self.counts.lost_bookies = len(lost)
        switch = self._switch.now
        walk = self._core.due(
            lost,
            self._ledgers.bookies.in_limbo(),
            now,
            is_asked=switch.looks_asked > switch.looks_done,
            asks_bookies=switch.looks_asking_bookies > switch.looks_done,
        )
        if walk is not None and await self._walk(walk):
            self._core.walked(walk, now)
            if walk.asks_bookies or switch.looks_asking_bookies <= switch.looks_done:
                await self._note_look(switch.looks_asked)

    async def _note_look(self, number: int) -> None:
        """Note that a look has ended which began when ``number`` looks had been asked for."""

        def change(found: AutoRecoverySwitch | None) -> AutoRecoverySwitch | None:
            if found is None or found.looks_done >= number:
                return None
            return msgspec.structs.replace(found, looks_done=number)

        if self._switch.now.looks_done < number:
            _ = await self._records.update(paths.autorecovery_switch(), AutoRecoverySwitch, change)

    def _say_if_too_many(self, now: float) -> None:
        gone = tuple(self._absences.gone(now)) if self._absences.too_many(now) else ()
        if gone and gone != self.stalled_by:
            _log.error(
                "too many bookies are gone at once, and nothing is copied before an operator "
                "gives them up or brings them back",
                bookies=gone,
                share_max=self._options.lost_bookies_share_max,
                command="pulsarish bookies decommission ID",
            )
        self.stalled_by = gone

    # -- one walk

    async def _walk(self, walk: Walk) -> bool:
        """Look through all ledgers; whether it came to the end."""
        clock, options = self._world.clock, self._options
        began = clock.monotonic()
        published_before = self.counts.ledgers_published
        _log.info("looking through all ledgers", reason=walk.reason)
        rate = RateLimiter(
            clock, options.auditor_ledgers_per_second, saved_max=options.auditor_page_ledgers
        )
        named: dict[str, None] = {}
        unanswered: dict[str, str] = {}
        away = {member: self._absences.away_since(member) for member in walk.lost}
        async for branch in ledger_ids(self._records):
            for start in range(0, len(branch), options.auditor_page_ledgers):
                page = branch[start : start + options.auditor_page_ledgers]
                if not await self._may_go_on():
                    _log.info(
                        "the look through all ledgers ends early: this is not the auditor any "
                        "more, or auto-recovery is off"
                    )
                    return False
                await self._audit(page, walk, named, unanswered)
                await rate.take(len(page))
        await self._note_given_up(away, named)
        self._absences.forget(
            [*named, *(cookie.instance_id for cookie in await read_cookies(self._records))]
        )
        self.counts.walks += 1
        self.counts.last_walk_seconds = clock.monotonic() - began
        self.counts.walk_ends_ms = clock.wall_ms()
        self._next_look = clock.monotonic() + _LOOK_AGAIN_SECONDS
        for member, reason in unanswered.items():
            _log.warning(
                "a bookie did not say which entries of some ledgers it holds; the next look asks "
                "again",
                bookie=member,
                reason=reason,
            )
        _log.info(
            "looked through all ledgers",
            took_ms=round(self.counts.last_walk_seconds * 1000),
            found_lacking=self.counts.ledgers_published - published_before,
        )
        return True

    async def _may_go_on(self) -> bool:
        """Wait while very many ledgers wait to be repaired already; whether this is the auditor
        still, and it is to go on.
        """
        while self._works and self._waiting_count() >= self._options.underreplicated_ledgers_max:
            await self._world.clock.sleep(self._options.auditor_check_interval_seconds)
        return self._works

    async def _audit(
        self, page: Sequence[int], walk: Walk, named: dict[str, None], unanswered: dict[str, str]
    ) -> None:
        now = self._world.clock.monotonic()
        for found in await self._records.get_many(
            [paths.ledger(ledger_id) for ledger_id in page], LedgerMetadata
        ):
            if found is None:
                continue  # deleted meanwhile
            metadata = found[0]
            self.counts.ledgers_checked += 1
            members = list(
                dict.fromkeys(member for segment in metadata.segments for member in segment.members)
            )
            named.update(dict.fromkeys(members))
            missing_members = [
                member
                for member in members
                if self._absences.state_of(member, now) is MemberState.LOST
            ]
            if walk.asks_bookies and metadata.state is LedgerState.CLOSED:
                there = [member for member in members if member not in missing_members]
                gaps = await self._ledgers.find_missing_copies(metadata, there)
                missing_members += gaps.missing
                unanswered.update(gaps.unanswered)
                await self._asked_rate.take(gaps.asked_count)
            if not walk.spares_open or metadata.state is LedgerState.CLOSED:
                missing_members += await self._ledgers.in_limbo(
                    metadata.ledger_id,
                    [member for member in members if member not in missing_members],
                )
            below_policy = metadata.write_quorum < metadata.requested_write_quorum
            if missing_members or below_policy:
                self.counts.ledgers_published += await self._ledgers.publish_found(
                    metadata.ledger_id, missing_members, below_policy=below_policy
                )

    # -- bookies that an operator gave up

    async def _note_given_up(
        self, away: Mapping[str, float | None], named: dict[str, None]
    ) -> None:
        """Say that all ledgers were looked through for them; forget those that none names any more,
        their cookies too.

        Args:
            away: those who were lost when the look began, and since when. Of one that was there
                since, the look may have missed a ledger.
        """
        for member, since in away.items():
            path = paths.given_up(member)
            found = await self._records.get(path, GivenUpBookie)
            if found is None:
                continue
            if member in named:
                _ = await self._records.update(path, GivenUpBookie, self._walked)
                continue
            registered = await self._records.get(
                paths.bookie(found[0].bookie_id), BookieRegistration
            )
            if (
                since is None
                or self._absences.away_since(member) != since
                or (registered and registered[0].instance_id == member)
            ):
                continue
            cookie = await self._records.get(paths.cookie(found[0].bookie_id), Cookie)
            try:
                if cookie is not None and cookie[0].instance_id == member:
                    await self._records.delete(paths.cookie(found[0].bookie_id), cookie[1])
                await self._records.delete(paths.read_only_bookie(member))
                await self._records.delete(paths.cordoned_volumes(member))
                await self._records.delete(path)
            except Conflict:
                continue  # both are looked at again
            _log.info("a bookie is decommissioned: no ledger names it any more", bookie=member)

    def _walked(self, record: GivenUpBookie | None) -> GivenUpBookie | None:
        """``None`` leaves it as it is."""
        if record is None or record.walked_ms:
            return None
        return msgspec.structs.replace(record, walked_ms=self._world.clock.wall_ms())

    def look_again(self, members: Sequence[str]) -> None:
        """These were given up and nothing waits to be repaired any more: see whether any ledger
        still names them.
        """
        if self._core is not None and self._world.clock.monotonic() >= self._next_look:
            for member in members:
                self._core.look_again(member)
