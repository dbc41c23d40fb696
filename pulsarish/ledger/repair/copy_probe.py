"""The check of which entries the members of a ledger hold, and of each copy of one entry."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from google_crc32c import extend

from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.repair.repair_core import Part, held_entries
from pulsarish.model.errors import (
    BookieIOError,
    ChecksumError,
    EntryUnknown,
    NoSuchEntry,
    NoSuchLedger,
    error_from_code,
)
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.runtime.seams import StreamBroken
from pulsarish.wire.record import decode_entry_record

__all__ = [
    "Behind",
    "EntryCopy",
    "MissingCopies",
    "are_in_spans",
    "entry_copies",
    "find_missing_copies",
    "has_gap",
    "members_behind",
]


class MissingCopies(NamedTuple):
    """The result of the check of one ledger."""

    asked_count: int
    """The entries that members were asked about, counted for each member."""
    missing: list[str]
    """Members that said that they miss an entry which they should have, or that they may have lost
    some.
    """
    unanswered: dict[str, str]
    """Members that gave no answer that counts, and why."""


async def find_missing_copies(
    pool: BookiePool, metadata: LedgerMetadata, members: Sequence[str]
) -> MissingCopies:
    """Ask these members of a closed ledger for the list of the entries that they hold, and compare
    it with what they should hold.

    Only an explicit answer is evidence. A member that is silent, or that answers with an error, is
    not reported as missing entries.
    """
    parts: dict[str, list[Part]] = {member: [] for member in members}
    for index, segment in enumerate(metadata.segments):
        last = metadata.last_entry_of(index)
        for place, member in enumerate(segment.members):
            if member in parts and last >= segment.first_entry:
                parts[member].append(Part(segment.first_entry, last, place, member))
    gaps = MissingCopies(
        sum(part.last - part.first + 1 for each in parts.values() for part in each), [], {}
    )

    async def ask(member: str) -> None:
        try:
            if await has_gap(pool, metadata, parts[member]):
                gaps.missing.append(member)
        except NoAnswer as error:
            gaps.unanswered[member] = str(error)

    await asyncio.gather(*(ask(member) for member in members))
    return gaps


async def has_gap(pool: BookiePool, metadata: LedgerMetadata, parts: Sequence[Part]) -> bool:
    """Whether the parts' members miss an entry of them, by their own lists.

    Raises ``NoAnswer`` for an answer that does not say what is stored.
    """
    for part in parts:
        first = part.first
        while first <= part.last:
            answer = await pool.control.list_entries(
                part.member, metadata.ledger_id, first, part.last
            )
            if answer.code in (NoSuchLedger.code, EntryUnknown.code):
                return True
            if answer.code:
                raise NoAnswer(
                    f"bookie {part.member} does not list its entries: "
                    f"{error_from_code(answer.code, answer.message)}"
                )
            if not are_in_spans(held_entries(metadata, part, first, answer.until), answer.spans):
                return True
            first = answer.until + 1
    return False


def are_in_spans(entry_ids: Sequence[int], spans: Sequence[tuple[int, int]]) -> bool:
    """Whether all of these ids lie in the spans (first, last, inclusive).

    Both must be ascending.
    """
    at = 0
    for entry_id in entry_ids:
        while at < len(spans) and spans[at][1] < entry_id:
            at += 1
        if at == len(spans) or entry_id < spans[at][0]:
            return False
    return True


class Behind(NamedTuple):
    """Members of a ledger whose writer is gone."""

    missing: list[str]
    """Those that say that they miss an entry, or whose copy of it is damaged."""
    silent: list[str]
    """Those that gave no answer, so that what they miss is not known."""


async def members_behind(
    pool: BookiePool, metadata: LedgerMetadata, last_confirmed: int, holders: Collection[str]
) -> Behind:
    """Return the members that miss the newest confirmed entry that they should hold, of a ledger
    whose writer is gone.

    Adds reach a bookie in order. So a bookie that has this entry has everything that the writer
    sent it before. The writer itself published any shortage that it knew of.

    Args:
        holders: members that are known to have the entry ``last_confirmed``. They are not asked, if
            that is the newest one that they should have.
    """
    segments = [segment for segment in metadata.segments if segment.first_entry <= last_confirmed]
    if not segments:
        return Behind([], [])
    wanted: dict[str, list[int]] = {}
    for place, member in enumerate(segments[-1].members):
        first = max(segments[-1].first_entry, last_confirmed - metadata.ensemble_size + 1)
        wanted[member] = list(
            held_entries(
                metadata,
                Part(segments[-1].first_entry, last_confirmed, place, member),
                first,
                last_confirmed,
            )
        )
    wanted = {
        member: held
        for member, held in wanted.items()
        if member not in holders or held[-1:] != [last_confirmed]
    }
    lacks = await asyncio.gather(
        *(_lacks(pool, member, metadata.ledger_id, held[-1:]) for member, held in wanted.items())
    )
    found = list(zip(wanted, lacks, strict=True))
    return Behind(
        [member for member, lack in found if lack],
        [member for member, lack in found if lack is None],
    )


async def _lacks(
    pool: BookiePool, member: str, ledger_id: int, entry_ids: Sequence[int]
) -> bool | None:
    """Whether a member misses one of these entries; ``None``: it does not answer."""
    for entry_id in entry_ids:
        try:
            answer = await pool.reader(member).read(ledger_id, [(entry_id, entry_id)], 1)
        except (StreamBroken, TimeoutError):
            return None
        if not answer.records:
            return True
        try:
            decode_entry_record(answer.records[0], ledger_id, entry_id)
        except ChecksumError:
            return True
    return False


class EntryCopy(NamedTuple):
    """What a bookie that should hold an entry has of it.

    * ``held``: the entry, and its digest is right.
    * ``missing``: the bookie answers that it does not have the entry.
    * ``corrupt``: the digest is wrong, or the bookie cannot read the entry.
    * ``unknown``: the bookie does not say, as ``EntryUnknown``.
    * ``silent``: no answer.
    """

    member: str
    state: Literal["held", "missing", "corrupt", "unknown", "silent"]
    checksum: int | None = None
    """The CRC32C of the payload of a copy that is held: copies of one entry have the same."""
    reason: str = ""


async def entry_copies(
    pool: BookiePool, metadata: LedgerMetadata, entry_id: int
) -> list[EntryCopy]:
    """Read an entry from each bookie of its write set, in that order."""
    return list(
        await asyncio.gather(
            *(
                _entry_copy(pool, member, metadata.ledger_id, entry_id)
                for member in metadata.write_set(entry_id)
            )
        )
    )


async def _entry_copy(pool: BookiePool, member: str, ledger_id: int, entry_id: int) -> EntryCopy:
    try:
        answer = await pool.reader(member).read(ledger_id, [(entry_id, entry_id)], 1)
    except (StreamBroken, TimeoutError) as error:
        return EntryCopy(member, "silent", reason=str(error) or "no answer in time")
    if answer.records:
        try:
            record = decode_entry_record(answer.records[0], ledger_id, entry_id)
        except ChecksumError as error:
            return EntryCopy(member, "corrupt", reason=str(error))
        return EntryCopy(member, "held", extend(0, bytes(record.payload)))
    if answer.code in (0, NoSuchEntry.code, NoSuchLedger.code):
        return EntryCopy(member, "missing")
    return EntryCopy(
        member,
        "corrupt" if answer.code == BookieIOError.code else "unknown",
        reason=type(error_from_code(answer.code, "")).__name__,
    )
