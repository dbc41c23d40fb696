"""The repair of one ledger: carries out the steps of ``plan_repair``, each from the metadata as
they are then.

The order makes a crash at any point harmless. First the copies are made, and the bookie answers
that they are durable. Then one compare-and-set names the new member. When no copy is missing any
more, the record that listed the missing copies is deleted, at the version that was read before all
this. A crash after the copying leaves copies that no record names. The next repair copies again, to
the same bookie or to another one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec

from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.ledger_store import LedgerStore, UnderReplicatedAsRead
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate
from pulsarish.ledger.repair.copier import Copied, Copier
from pulsarish.ledger.repair.copy_probe import has_gap
from pulsarish.ledger.repair.moves_core import Move, part_to_move
from pulsarish.ledger.repair.repair_core import (
    MemberState,
    Part,
    Step,
    StepKind,
    is_gone,
    plan_repair,
    summed_up,
)
from pulsarish.metadata.records import UnderReplicated
from pulsarish.model.errors import (
    MetadataUnavailable,
    NotEnoughBookies,
    NotEnoughDomains,
    PulsarishError,
)
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict

__all__ = ["LedgerRepair", "Outcome", "RepairCounts", "left_to_repair"]

_log = get_logger("repair")

_STEPS_MAX = 1_000  # at one attempt; the next attempt continues with a ledger that needs more
_REASON_CHARS_MAX = 500


@dataclass(slots=True)
class RepairCounts:
    """Counts of what was done so far, exported as metrics."""

    replaced: int = 0
    filled: int = 0
    copies_added: int = 0
    recovered: int = 0
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a repair.

    ``done``: no copy is missing any more. Otherwise ``reason`` says why; with ``newer``, look again
    at once.
    """

    done: bool
    reason: str = ""
    newer: bool = False


class LedgerRepair:
    """The repair of ledgers. Made by ``LedgerClient.repair``.

    The caller runs one repair of a ledger at a time. Two at once do no harm, but do the work twice.
    """

    def __init__(
        self,
        options: LedgerOptions,
        pool: BookiePool,
        store: LedgerStore,
        recover: Callable[[int], Awaitable[LedgerMetadata]],
        state_of: Callable[[str], MemberState],
        pace: Callable[[int], Awaitable[None]],
        batch_bytes: int,
    ) -> None:
        self.copied = Copied()
        self.counts = RepairCounts()
        self._pool = pool
        self._store = store
        self._recover = recover
        self._state_of = state_of
        self._copier = Copier(pool, options, self.copied, pace, batch_bytes)

    async def mend(self, ledger_id: int, *, may_recover: bool) -> Outcome:
        """Repair what can be repaired of a ledger now.

        Args:
            may_recover: the grace time is over in which the ledger's writer may replace a lost
                member itself.

        Raises ``MetadataUnavailable``, ``CorruptData``.
        """
        missing = await self._store.read_missing_copies(ledger_id)
        if missing is None:
            return Outcome(done=True)
        whole: list[Part] = []
        failed: dict[Step, str] = {}
        limbos: dict[str, int] = {}  # the limbo that each filled member was in before
        for _ in range(_STEPS_MAX):
            found = await self._store.read_newest(ledger_id)
            if found is None:
                return await self._repaired(missing)
            metadata, version = found
            plan = plan_repair(metadata, missing.record, self._state_of, whole)
            step = next((step for step in plan.steps if step not in failed), None)
            if step is None:
                break
            if step.kind is StepKind.RECOVER and not may_recover:
                failed[step] = (
                    "it is not closed yet and its writer may deal with the lost bookie itself"
                )
                continue
            if step.kind is StepKind.FILL and step.part is not None:
                limbos.setdefault(
                    step.part.member, self._pool.bookies.limbo_times(step.part.member)
                )
            try:
                done = await self._carry_out(step, metadata, version, missing)
                if done and step.part is not None:
                    whole.append(step.part)
            except MetadataUnavailable:
                raise
            except PulsarishError as error:
                failed[step] = f"{type(error).__name__}: {error}"
        else:
            return Outcome(done=False, reason="it needs many steps, and some are left", newer=True)
        reasons = dict.fromkeys([*(failed[step] for step in plan.steps), *plan.waits])
        if not reasons:
            reasons.update(dict.fromkeys(await self._end_limbos(metadata, whole, limbos)))
        if not reasons:
            return await self._repaired(missing)
        reason = summed_up(reasons, _REASON_CHARS_MAX)
        await self._store.note_reason(ledger_id, reason)
        return Outcome(done=False, reason=reason)

    async def is_under_replicated(self, ledger_id: int) -> bool:
        """Return whether a ledger is published as under-replicated.

        Raises ``MetadataUnavailable``, ``CorruptData``.
        """
        return bool(await self._store.under_replicated([ledger_id]))

    async def move(self, move: Move) -> str:
        """Copy what a member holds of a segment to another bookie, check that it is there, and name
        that bookie instead. The member's copies are garbage then.

        A ledger that lacks copies is left to its repair.

        Returns why it was not done; empty: it was. Raises ``MetadataUnavailable``, ``CorruptData``.
        """
        if await self.is_under_replicated(move.ledger_id):
            return left_to_repair(move.ledger_id)
        found = await self._store.read_newest(move.ledger_id)
        part = None if found is None else part_to_move(found[0], move)
        if found is None or part is None:
            return f"ledger {move.ledger_id} has changed"
        metadata, version = found
        try:
            await self._copier.copy(metadata, part, move.target, self._lost(metadata))
            copied = msgspec.structs.replace(part, member=move.target)
            if part.first <= part.last and await has_gap(self._pool, metadata, [copied]):
                return f"bookie {move.target} does not list all copies of ledger {move.ledger_id}"
            if not await self._swing(metadata, version, part, move.target):
                return f"ledger {move.ledger_id} has changed"
        except MetadataUnavailable:
            raise
        except (NoAnswer, PulsarishError) as error:
            return f"ledger {move.ledger_id}: {type(error).__name__}: {error}"
        self.counts.moved += 1
        _log.info(
            "a part of a ledger was moved",
            ledger=metadata.ledger_id,
            first_entry=part.first,
            last_entry=part.last,
            size_bytes=move.size_bytes,
            before=part.member,
            bookie=move.target,
        )
        return ""

    # -- the steps

    async def _carry_out(
        self, step: Step, metadata: LedgerMetadata, version: int, missing: UnderReplicatedAsRead
    ) -> bool:
        """Return whether the step was done.

        ``False``: the metadata changed meanwhile, so the caller must plan again.
        """
        match step.kind:
            case StepKind.REPLACE:
                assert step.part is not None
                return await self._replace(metadata, version, step.part, missing)
            case StepKind.FILL:
                assert step.part is not None
                return await self._fill(metadata, step.part)
            case StepKind.ADD_COPY:
                return await self._add_copy(metadata, version, missing.record.leaving_members)
            case StepKind.RECOVER:
                return await self._recover_end(metadata, missing.record)

    async def _replace(
        self, metadata: LedgerMetadata, version: int, part: Part, missing: UnderReplicatedAsRead
    ) -> bool:
        leaving = missing.record.leaving_members
        segment = metadata.segments[metadata.segment_index(part.first)]
        chosen = self._choose(metadata, segment.members, part.place, metadata.write_quorum, leaving)
        await self._copier.copy(metadata, part, chosen.member, self._lost(metadata))
        if not await self._swing(metadata, version, part, chosen.member, missing):
            return False
        self.counts.replaced += 1
        is_leaving = part.member in leaving
        _log.info(
            f"a {'leaving' if is_leaving else 'lost'} bookie's part of a ledger was copied",
            ledger=metadata.ledger_id,
            first_entry=part.first,
            last_entry=part.last,
            lost=part.member,
            bookie=chosen.member,
        )
        return True

    async def _swing(
        self,
        metadata: LedgerMetadata,
        version: int,
        part: Part,
        target: str,
        missing: UnderReplicatedAsRead | None = None,
    ) -> bool:
        """Replace one member by one compare-and-set.

        The copies stay valid after a change elsewhere in the record, as by its writer. But once the
        ledger is no longer published as it was before they were made, the target may have deleted
        them: it stores the record again first (``StrayCopies``).
        """
        base = metadata
        while True:
            try:
                await self._store.store(
                    base.with_replaced(part.first, part.member, target), version
                )
            except Conflict:
                found = await self._store.read_newest(base.ledger_id)
                if (
                    found is None
                    or missing is None
                    or not _same_part(found[0], metadata, part)
                    or not await self._is_published_still(missing)
                ):
                    return False
                base, version = found
            else:
                return True

    async def _is_published_still(self, missing: UnderReplicatedAsRead) -> bool:
        """Return whether the ledger has been published ever since this record was read."""
        now = await self._store.read_missing_copies(missing.record.ledger_id)
        return now is not None and now.created == missing.created

    async def _fill(self, metadata: LedgerMetadata, part: Part) -> bool:
        await self._copier.fill(metadata, part, self._lost(metadata))
        self.counts.filled += 1
        return True

    async def _add_copy(
        self, metadata: LedgerMetadata, version: int, leaving: Sequence[str]
    ) -> bool:
        chosen: list[str] = []
        for index, segment in enumerate(metadata.segments):
            candidate = self._choose(
                metadata,
                (*segment.members, ""),
                len(segment.members),
                metadata.write_quorum + 1,
                leaving,
            )
            part = Part(
                segment.first_entry,
                metadata.last_entry_of(index),
                len(segment.members),
                candidate.member,
            )
            await self._copier.copy(metadata, part, candidate.member, self._lost(metadata))
            chosen.append(candidate.member)
        try:
            await self._store.store(metadata.with_another_copy(tuple(chosen)), version)
        except Conflict:
            return False
        self.counts.copies_added += 1
        _log.info(
            "a ledger that was made with too few copies has one more",
            ledger=metadata.ledger_id,
            bookies=chosen,
        )
        return True

    async def _recover_end(self, metadata: LedgerMetadata, published: UnderReplicated) -> bool:
        members = metadata.last_segment.members
        lost = next(
            place
            for place, member in enumerate(members)
            if is_gone(member, published, self._state_of)
        )
        # Without a bookie for the lost one's place the next ledger would miss the same copy. Then
        # its writer continues instead (rule 3).
        leaving = published.leaving_members
        self._choose(metadata, members, lost, metadata.write_quorum, leaving)
        _log.warning(
            "recovering an open ledger with a lost bookie: its writer has not dealt with it",
            ledger=metadata.ledger_id,
            owner=metadata.purpose.owner,
            lost=members[lost],
        )
        await self._recover(metadata.ledger_id)
        self.counts.recovered += 1
        return True

    async def _end_limbos(
        self, metadata: LedgerMetadata, whole: list[Part], limbos: dict[str, int]
    ) -> list[str]:
        """End the limbo of members that have all entries of this ledger again.

        Return why that failed.
        """
        reasons: list[str] = []
        for member, times in limbos.items():
            here = [
                segment.first_entry for segment in metadata.segments if member in segment.members
            ]
            made_whole = [part.first for part in whole if part.member == member]
            is_closed = metadata.state is LedgerState.CLOSED
            if (
                is_closed
                and here
                and self._pool.bookies.may_lack(member, metadata.ledger_id)
                and all(each in made_whole for each in here)
            ):
                try:
                    await self._pool.control.clear_limbo(member, metadata.ledger_id, times)
                except NoAnswer as error:
                    reasons.append(str(error))
                else:
                    _log.info("a ledger is out of limbo", ledger=metadata.ledger_id, bookie=member)
        return reasons

    async def _repaired(self, missing: UnderReplicatedAsRead) -> Outcome:
        if await self._store.delete_missing_copies(missing):
            return Outcome(done=True)
        return Outcome(done=False, reason="more copies were found missing meanwhile", newer=True)

    # -- helpers

    def _lost(self, metadata: LedgerMetadata) -> list[str]:
        members = dict.fromkeys(
            member for segment in metadata.segments for member in segment.members
        )
        return [member for member in members if self._state_of(member) is not MemberState.THERE]

    def _choose(
        self,
        metadata: LedgerMetadata,
        members: tuple[str, ...],
        place: int,
        write_quorum: int,
        leaving: Sequence[str],
    ) -> Candidate:
        """Return the bookie that takes a place, none of those that leave the ledger.

        One that shares a host with another replica is taken only if there is no other, and none
        that enforced rules forbid. Raises ``NotEnoughBookies``, ``NotEnoughDomains``.
        """
        bookies = self._pool.bookies
        usable = [
            candidate
            for candidate in bookies.candidates()
            if candidate.member not in leaving and self._pool.usable(candidate.member)
        ]
        places = bookies.describe(members)
        chosen = self._pool.placement.replacement(
            usable, places, place, write_quorum, groups=metadata.bookie_groups
        )
        if chosen is None:
            refused = self._pool.placement.why_not(
                usable, places, place, write_quorum, groups=metadata.bookie_groups
            )
            if refused:
                raise NotEnoughDomains(f"ledger {metadata.ledger_id} gets no other copy: {refused}")
            raise NotEnoughBookies(
                f"ledger {metadata.ledger_id} has {len(members)} places, and no other writable "
                f"bookie is there for the copies that it lacks; {len(usable)} are writable"
            )
        return chosen


def _same_part(now: LedgerMetadata, before: LedgerMetadata, part: Part) -> bool:
    """Whether a part still belongs to the member, with the same entries in the same places."""
    if (now.ensemble_size, now.write_quorum) != (before.ensemble_size, before.write_quorum):
        return False
    index = now.segment_index(part.first)
    was = before.segments[before.segment_index(part.first)]
    has_end = index + 1 < len(now.segments) or now.state is LedgerState.CLOSED
    return now.segments[index] == was and has_end and now.last_entry_of(index) == part.last


def left_to_repair(ledger_id: int) -> str:
    """Return why no copies of an under-replicated ledger are moved."""
    return f"ledger {ledger_id} lacks copies, which are made first"
