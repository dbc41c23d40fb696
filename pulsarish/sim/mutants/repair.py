"""Mutants of the safeguards of repair. The oracle of ``workloads/repair.py`` must notice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pulsarish.bookie import service, stray_copies
from pulsarish.bookie.garbage import GarbageCollector
from pulsarish.bookie.stray_copies import StrayCopies
from pulsarish.ledger import placement, recovery
from pulsarish.ledger.add_stream import encode_chunk
from pulsarish.ledger.ledger_store import UnderReplicatedAsRead
from pulsarish.ledger.recovery import Recovery
from pulsarish.ledger.repair import copy_probe as gaps
from pulsarish.ledger.repair.copier import Copier, _Answers
from pulsarish.ledger.repair.copy_probe import Behind
from pulsarish.ledger.repair.moves_core import Move, part_to_move
from pulsarish.ledger.repair.repair import LedgerRepair, Outcome
from pulsarish.ledger.repair.repair_core import Part
from pulsarish.model.errors import CorruptData, EntryUnknown, NoSuchEntry
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.runtime.seams import Versioned
from pulsarish.sim.workloads.repair import RepairSettings, run_repair
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing
from pulsarish.wire.bookie import ReadItem
from pulsarish.wire.record import Record, restamp_lac

__all__ = ["REPAIR_MUTANTS", "REPAIR_SCENARIOS"]

REPAIR_SCENARIOS: Final[dict[str, RepairSettings]] = {
    "crashes": RepairSettings(),
    "pairs": RepairSettings(quorums=((2, 2, 2),), crash_seconds=0.3),
    "holes": RepairSettings(
        rounds=0, closed_ledgers=8, open_ledgers=0, crash_seconds=0.0, holes=True
    ),
    "rotten": RepairSettings(
        rounds=0, closed_ledgers=8, open_ledgers=0, crash_seconds=0.0, rotten=True
    ),
    "dying": RepairSettings(
        rounds=0,
        closed_ledgers=0,
        open_ledgers=0,
        dying_writers=3,
        crash_seconds=0.0,
        quorums=((3, 3, 2), (4, 3, 2), (5, 3, 2)),
    ),
    "silent": RepairSettings(
        rounds=0,
        closed_ledgers=0,
        open_ledgers=0,
        dying_writers=3,
        late_is_silent=True,
        crash_seconds=0.0,
        quorums=((3, 3, 2), (4, 3, 2), (5, 3, 2)),
    ),
    "leaving": RepairSettings(
        bookies=6, rounds=0, leaving=1, quorums=((2, 2, 2), (3, 3, 3)), crash_seconds=0.8
    ),
    "racks": RepairSettings(second_rack=2, quorums=((2, 2, 2), (3, 3, 2), (4, 2, 2))),
    "moving": RepairSettings(
        bookies=6,
        rounds=1,
        closed_ledgers=10,
        open_ledgers=1,
        quorums=((2, 2, 2), (3, 2, 2)),
        crash_seconds=0.8,
        late_bookies=2,
    ),
    "returning": RepairSettings(rounds=0, closed_ledgers=6, entries=80, returning=2),
    "writers": RepairSettings(
        closed_ledgers=0, open_ledgers=4, crash_seconds=0.0, writer_pause_seconds=2.5
    ),
}
"""Settings by what they stress."""


def _swing_first(_was: object) -> object:
    async def replace(
        repair: LedgerRepair,
        metadata: LedgerMetadata,
        version: int,
        part: Part,
        missing: UnderReplicatedAsRead,
    ) -> bool:
        leaving = missing.record.leaving_members
        segment = metadata.segments[metadata.segment_index(part.first)]
        chosen = repair._choose(
            metadata, segment.members, part.place, metadata.write_quorum, leaving
        )
        if not await repair._swing(metadata, version, part, chosen.member, missing):
            return False
        await repair._copier.copy(metadata, part, chosen.member, repair._lost(metadata))
        return True

    return replace


def _skip_unreadable(was: Any) -> object:
    async def copy_batch(
        copier: Copier,
        metadata: LedgerMetadata,
        part: Part,
        target: str,
        first: int,
        avoid: Sequence[str],
    ) -> int:
        try:
            after: int = await was(copier, metadata, part, target, first, avoid)
        except (EntryUnknown, NoSuchEntry):
            return first + 1
        return after

    return copy_batch


def _sent_is_copied(_was: object) -> object:
    async def write(copier: Copier, ledger_id: int, target: str, records: Sequence[Record]) -> None:
        parts = [restamp_lac(record, record.lac) for record in records]
        stream = copier._pool.adder(target, recovery=True)
        stream.attach(
            ledger_id, _Answers(target, ledger_id, [record.entry_id for record in records])
        )
        stream.push(encode_chunk(ledger_id, parts, [len(part) for part in parts]))
        stream.detach(ledger_id)

    return write


def _taken_for_whole(_was: object) -> object:
    async def good_until(
        _copier: Copier, _metadata: LedgerMetadata, _part: Part, _first: int
    ) -> int | None:
        return None

    return good_until


def _first_and_last(was: Any) -> object:
    def are_in_spans(entry_ids: Sequence[int], spans: Sequence[tuple[int, int]]) -> bool:
        there: bool = was([*entry_ids[:1], *entry_ids[-1:]], spans)
        return there

    return are_in_spans


def _cached_for_checks(was: Any) -> object:
    def decode_read(data: bytes) -> tuple[str, list[ReadItem]]:
        instance_id, items = was(data)
        for item in items:
            item.may_cache = True
        return instance_id, items

    return decode_read


def _without_grace(was: Any) -> object:
    async def mend(repair: LedgerRepair, ledger_id: int, *, may_recover: bool) -> Outcome:
        assert may_recover in (True, False)
        outcome: Outcome = await was(repair, ledger_id, may_recover=True)
        return outcome

    return mend


def _asks_nobody(_was: object) -> object:
    async def publish_behind(
        _recovery: Recovery, _metadata: LedgerMetadata, _lac: int, _holders: object
    ) -> None:
        return

    return publish_behind


def _silence_is_whole(was: Any) -> object:
    async def members_behind(*arguments: object) -> Behind:
        behind: Behind = await was(*arguments)
        return behind._replace(silent=[])

    return members_behind


def _left_without_copies(was: Any) -> object:
    """Let the copies of a bookie that is alive count after it has left."""

    async def replace(
        repair: LedgerRepair,
        metadata: LedgerMetadata,
        version: int,
        part: Part,
        missing: UnderReplicatedAsRead,
    ) -> bool:
        leaving = missing.record.leaving_members
        if part.member not in leaving:
            replaced: bool = await was(repair, metadata, version, part, missing)
            return replaced
        segment = metadata.segments[metadata.segment_index(part.first)]
        chosen = repair._choose(
            metadata, segment.members, part.place, metadata.write_quorum, leaving
        )
        return await repair._swing(metadata, version, part, chosen.member, missing)

    return replace


def _moved_without_copies(_was: object) -> object:
    async def move(repair: LedgerRepair, move: Move) -> str:
        found = await repair._store.read_newest(move.ledger_id)
        part = None if found is None else part_to_move(found[0], move)
        if found is None or part is None:
            return "it has changed"
        return "" if await repair._swing(*found, part, move.target) else "it has changed"

    return move


def _request_ends_the_grace(_was: object) -> object:
    def grace_seconds(collector: GarbageCollector) -> float:
        return collector._config.trash_grace_seconds if collector._store.is_writable else 0.0

    return grace_seconds


def _published_or_not(was: Any) -> object:
    async def delete(
        strays: StrayCopies, ledger_id: int, node: Versioned | None, *, is_published: bool
    ) -> None:
        assert is_published in (True, False)
        await was(strays, ledger_id, node, is_published=False)

    return delete


def _unreadable_names_others(was: Any) -> object:
    def decode(data: bytes, kind: Any, path: str) -> Any:
        try:
            return was(data, kind, path)
        except CorruptData:
            ledger_id = int("".join(filter(str.isdigit, path)))
            purpose, others = LedgerPurpose(PurposeKind.DIAGNOSTIC, ""), (Segment(0, ("others",)),)
            return LedgerMetadata(ledger_id, 1, 1, 1, purpose, others, LedgerState.CLOSED)

    return decode


def _mutant(
    name: str,
    removes: str,
    rules: tuple[int, ...],
    patch: Patch,
    scenario: str,
    seeds: int = 20,
    first: int = 0,
) -> Mutant:
    def check(seed: int) -> None:
        run_repair(seed, REPAIR_SCENARIOS[scenario])

    return Mutant(name, removes, rules, patch, check, seeds, first)


REPAIR_MUTANTS: Final = (
    _mutant(
        "repair_names_before_it_copies",
        "a bookie is named as a member once it has the copies",
        (3,),
        replacing(LedgerRepair, "_replace", _swing_first),
        "pairs",
        first=4,
    ),
    _mutant(
        "copies_not_awaited",
        "a copy counts once the bookie has answered that it is durable",
        (3,),
        replacing(Copier, "write", _sent_is_copied),
        "pairs",
    ),
    _mutant(
        "unreadable_entry_skipped",
        "an entry that cannot be read now ends the copying; it is not passed over",
        (20,),
        replacing(Copier, "_copy_batch", _skip_unreadable),
        "pairs",
        seeds=40,
        first=8,
    ),
    _mutant(
        "member_taken_for_whole",
        "a member that lacked entries is asked for each of them",
        (3,),
        replacing(Copier, "_good_until", _taken_for_whole),
        "crashes",
        seeds=40,
        first=21,
    ),
    _mutant(
        "only_ends_are_audited",
        "the auditor compares all that a member holds of a ledger with what it should hold",
        (3,),
        replacing(gaps, "are_in_spans", _first_and_last),
        "holes",
    ),
    _mutant(
        "copies_checked_in_the_cache",
        "what checks or repairs a copy reads it from the bookie's disk, not from its read cache",
        (8,),
        replacing(service, "decode_read", _cached_for_checks),
        "rotten",
    ),
    _mutant(
        "recovered_without_grace",
        "the writer of an open ledger has a grace time to deal with a lost bookie itself",
        (19,),
        replacing(LedgerRepair, "mend", _without_grace),
        "writers",
    ),
    _mutant(
        "left_without_copies",
        "a bookie that leaves a ledger is replaced once another one has its copies, alive or not",
        (3,),
        replacing(LedgerRepair, "_replace", _left_without_copies),
        "leaving",
    ),
    _mutant(
        "moved_without_copies",
        "a rebalance names a bookie as a member once it has the copies that move to it",
        (3,),
        replacing(LedgerRepair, "move", _moved_without_copies),
        "moving",
    ),
    _mutant(
        "request_ends_the_grace_of_trash",
        "on a bookie that an operator has set read-only the grace time of the trash goes on",
        (12, 13),
        replacing(GarbageCollector, "_grace_seconds", _request_ends_the_grace),
        "leaving",
    ),
    _mutant(
        "enforced_rule_of_placement_broken",
        "a member is replaced only by a bookie that keeps the enforced rules of placement",
        (1,),
        replacing(placement, "_is_permitted", lambda _was: lambda *_: True),
        "racks",
    ),
    _mutant(
        "collects_what_repair_makes",
        "a copy that no metadata name is kept while its ledger is published as under-replicated",
        (12,),
        replacing(StrayCopies, "delete", _published_or_not),
        "returning",
    ),
    _mutant(
        "collects_on_unreadable_metadata",
        "a ledger's record that cannot be read is no evidence that its copies are stray",
        (12,),
        replacing(stray_copies, "decode_record", _unreadable_names_others),
        "returning",
    ),
    _mutant(
        "members_behind_not_asked",
        "recovery asks each member for the newest confirmed entry: no other node knows what a "
        "dying writer still owed",
        (3,),
        replacing(Recovery, "_publish_behind", _asks_nobody),
        "dying",
    ),
    _mutant(
        "silent_members_forgotten",
        "a member that does not answer the recovery is published: it alone may know what it lacks",
        (3,),
        replacing(recovery, "members_behind", _silence_is_whole),
        "silent",
    ),
)
