"""The proof that entries of a closed ledger are lost, before a topic moves past them (rule 20).

An entry is lost when every member of its write set says explicitly that it does not have it. A
member that does not answer, or answers something else, may have it. Then the loss is not proved,
unless the operator gives up that bookie by name. One copy that can be read disproves the loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.model.errors import (
    ChecksumError,
    EntryUnknown,
    InvalidArgument,
    NoSuchEntry,
    NoSuchLedger,
    NotAllowedError,
    ServiceNotReady,
    error_from_code,
)
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.wire.record import decode_entry_record

__all__ = ["check_lost"]

_ENTRIES_MAX: Final = 10_000  # requested one by one, from a bookie that has the ledger
_ASKED_AT_ONCE: Final = 16
_GONE: Final = (NoSuchEntry.code, NoSuchLedger.code)


async def check_lost(
    pool: BookiePool, metadata: LedgerMetadata, first: int, last: int, given_up: Sequence[str]
) -> None:
    """Return only if no entry from ``first`` to ``last`` can be read any more.

    Args:
        given_up: instance ids of bookies that the operator gives up. Their silence and their errors
            count as "not there".

    Raises ``NotAllowedError`` naming an entry that can be read, ``EntryUnknown`` naming the bookies
    that may have one, ``ServiceNotReady`` for a ledger that is not closed, ``InvalidArgument`` for
    a range outside of it.
    """
    if metadata.state is not LedgerState.CLOSED:
        raise ServiceNotReady(
            f"ledger {metadata.ledger_id} is not closed: what it holds is not decided yet, and "
            "nothing of it is skipped"
        )
    if not 0 <= first <= last <= metadata.last_entry:
        raise InvalidArgument(
            f"entries {first} to {last} are no range of ledger {metadata.ledger_id}, which has "
            f"the entries 0 to {metadata.last_entry}"
        )
    members = {
        member: None
        for entry_id in _edges(metadata, first, last)
        for member in metadata.write_set(entry_id)
    }
    strange = [bookie for bookie in given_up if bookie not in members]
    if strange:
        raise InvalidArgument(
            f"no instance id of a bookie that holds entries {first} to {last}: "
            f"{', '.join(strange)}; they lie on {', '.join(members)}"
        )
    said = await asyncio.gather(
        *(_may_have(pool, member, metadata, first, last) for member in members)
    )
    unsure = {
        member: why
        for member, why in zip(members, said, strict=True)
        if why and member not in given_up
    }
    if unsure:
        text = ", ".join(f"{member}: {why}" for member, why in unsure.items())
        raise EntryUnknown(
            f"entries {first} to {last} of ledger {metadata.ledger_id} may be on bookies that "
            f"cannot say so now ({text}); bring them back, or give them up by name, for good"
        )


def _edges(metadata: LedgerMetadata, first: int, last: int) -> list[int]:
    """Choose entries whose write sets together are the write sets of the whole range: a stripe of
    each segment.
    """
    starts = [
        first,
        *(
            segment.first_entry
            for segment in metadata.segments
            if first < segment.first_entry <= last
        ),
    ]
    return [
        entry_id
        for start in starts
        for entry_id in range(start, min(start + metadata.ensemble_size, last + 1))
    ]


async def _may_have(
    pool: BookiePool, member: str, metadata: LedgerMetadata, first: int, last: int
) -> str:
    """Say why this member may have one of the entries; empty when it says that it has none.

    Raises ``NotAllowedError`` when it has one.
    """
    control, ledger_id = pool.control, metadata.ledger_id
    try:
        known = await control.read_lac(member, ledger_id)
    except NoAnswer as error:
        return str(error)
    if known.code == NoSuchLedger.code:
        return ""
    if last - first >= _ENTRIES_MAX:
        raise InvalidArgument(
            f"at most {_ENTRIES_MAX} entries of a ledger that {member} has parts of can be "
            "checked at once: give a range"
        )
    mine = [
        entry_id for entry_id in range(first, last + 1) if member in metadata.write_set(entry_id)
    ]
    reason = ""
    for start in range(0, len(mine), _ASKED_AT_ONCE):
        # Wait for all: a question that is left alone would fail without a caller.
        said = await asyncio.gather(
            *(
                _ask(pool, member, ledger_id, entry_id)
                for entry_id in mine[start : start + _ASKED_AT_ONCE]
            ),
            return_exceptions=True,
        )
        failures = [each for each in said if isinstance(each, BaseException)]
        for failure in failures:
            if not isinstance(failure, NoAnswer):
                raise failure
        if failures:
            return reason or str(failures[0])
        # Continue after an entry whose state is unknown: the bookie may be given up, and then only
        # an entry that it has ends the command.
        reason = reason or next((each for each in said if isinstance(each, str) and each), "")
    return reason


async def _ask(pool: BookiePool, member: str, ledger_id: int, entry_id: int) -> str:
    """Say why the member may have the entry; empty when it says no.

    Raises ``NoAnswer``, and ``NotAllowedError`` when the member has it.
    """
    answer = await pool.control.recovery_read(member, ledger_id, entry_id, entry_id, 1)
    try:
        if answer.records:
            decode_entry_record(answer.records[0], ledger_id, entry_id)
            raise NotAllowedError(
                f"entry {entry_id} of ledger {ledger_id} is not lost: {member} has it; skip only "
                "what no bookie has"
            )
    except ChecksumError as error:
        return f"entry {entry_id}: {error}"
    return (
        ""
        if answer.code in _GONE
        else f"entry {entry_id}: {type(error_from_code(answer.code, '')).__name__}"
    )
