"""Asking the members of a closed ledger for the ends of what they should hold: a copy that went away as a whole shows at its ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.repair_core import Part, held_entries
from pulsarish.model.errors import ChecksumError
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.runtime.seams import StreamBroken
from pulsarish.wire.record import decode_entry_record

__all__ = ["look_for_gaps", "members_behind"]


async def look_for_gaps(pool: BookiePool, metadata: LedgerMetadata, members: Sequence[str]) -> tuple[int, list[str]]:
    """How many entries were asked for, and who of these members does not give back whole what it should have. Who does not answer at
    all has not said that it lacks anything."""
    wanted: dict[str, list[int]] = {member: [] for member in members}
    for index, segment in enumerate(metadata.segments):
        last = metadata.last_entry_of(index)
        if last < segment.first_entry:
            continue
        for place, member in enumerate(segment.members):
            if member in wanted:
                wanted[member] += _ends(metadata, Part(segment.first_entry, last, place, member))
    lacks = await asyncio.gather(*(_lacks(pool, member, metadata.ledger_id, entry_ids) for member, entry_ids in wanted.items()))
    lacking = [member for member, lack in zip(wanted, lacks, strict=True) if lack]
    return sum(len(entry_ids) for entry_ids in wanted.values()), lacking


async def members_behind(pool: BookiePool, metadata: LedgerMetadata, last_confirmed: int) -> list[str]:
    """Return the members that do not have the newest confirmed entry that they should hold, of a ledger whose writer is gone.

    Adds reach a bookie in order, so one that has this entry has what the writer sent it before; a shortage that the writer knew of earlier
    was published by it. A member that does not answer is not counted.
    """
    segments = [segment for segment in metadata.segments if segment.first_entry <= last_confirmed]
    if not segments:
        return []
    wanted: dict[str, list[int]] = {}
    for place, member in enumerate(segments[-1].members):
        first = max(segments[-1].first_entry, last_confirmed - metadata.ensemble_size + 1)
        wanted[member] = list(held_entries(metadata, Part(segments[-1].first_entry, last_confirmed, place, member), first, last_confirmed))
    lacks = await asyncio.gather(*(_lacks(pool, member, metadata.ledger_id, held[-1:]) for member, held in wanted.items()))
    return [member for member, lack in zip(wanted, lacks, strict=True) if lack]


def _ends(metadata: LedgerMetadata, part: Part) -> list[int]:
    """The first and the last entry that the place holds; none when the part is shorter than a stripe and passes it by."""
    size = metadata.ensemble_size
    first = held_entries(metadata, part, part.first, min(part.last, part.first + size - 1))
    last = held_entries(metadata, part, max(part.first, part.last - size + 1), part.last)
    return list(dict.fromkeys([*first[:1], *last[-1:]]))


async def _lacks(pool: BookiePool, member: str, ledger_id: int, entry_ids: Sequence[int]) -> bool:
    for entry_id in entry_ids:
        try:
            answer = await pool.reader(member).read(ledger_id, [(entry_id, entry_id)], 1)
        except (StreamBroken, TimeoutError):
            return False
        if not answer.records:
            return True
        try:
            decode_entry_record(answer.records[0], ledger_id, entry_id)
        except ChecksumError:
            return True
    return False
