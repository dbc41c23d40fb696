"""The plan of a repair: which copies of a ledger are missing, and in which steps they are made.

No I/O, no clock, no randomness.

A *part* is what one member holds in one segment that has an end: every segment but the last of a
ledger that is not closed. The entries of a part are confirmed and never change, so they may be
copied while a writer appends at the end (rule 3). A lost member is replaced in its part by another
bookie, and so is one that an operator wants to leave the ledger. A member that is there and only
misses entries gets copies of them. The end of a ledger that is not closed is left to its writer.
When the writer does not replace a lost member in time, the ledger is recovered, which fences the
writer (rule 4).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum

import msgspec

from pulsarish.metadata.records import UnderReplicated
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState

__all__ = [
    "MemberState",
    "Part",
    "Plan",
    "Step",
    "StepKind",
    "held_count",
    "held_entries",
    "held_in_segment",
    "is_gone",
    "plan_repair",
]


class MemberState(Enum):
    THERE = "there"
    AWAY = "away"  # not registered, for less than the grace time
    LOST = "lost"


class StepKind(Enum):
    REPLACE = "replace"  # copy a part to another bookie, which takes the member's place
    FILL = "fill"  # copy to the member itself the entries of its part that it misses
    # of the whole ledger, which was made with fewer copies than its policy asks for
    ADD_COPY = "add a copy"
    RECOVER = "recover"  # find the end of a ledger whose last segment has a lost member


class Part(msgspec.Struct, frozen=True):
    """The entries that the member at a place of a segment holds.

    ``last`` is below ``first`` when the segment is empty.
    """

    first: int  # of the segment
    last: int
    place: int
    member: str


class Step(msgspec.Struct, frozen=True):
    kind: StepKind
    part: Part | None = None  # of REPLACE and FILL


class Plan(msgspec.Struct, frozen=True):
    """The steps of a repair.

    ``waits`` says what cannot be done yet, and why. With neither steps nor waits no copy is
    missing.
    """

    steps: tuple[Step, ...]
    waits: tuple[str, ...]


def plan_repair(
    metadata: LedgerMetadata,
    published: UnderReplicated,
    state_of: Callable[[str], MemberState],
    whole: Collection[Part],
) -> Plan:
    """Plan the repair of a ledger as its metadata are now.

    Args:
        published: the record of its missing copies, read before the metadata.
        whole: parts that were found or made whole since ``published`` was read.
    """
    steps: list[Step] = []
    waits: list[str] = []
    closed = metadata.state is LedgerState.CLOSED
    for index, segment in enumerate(metadata.segments):
        if not closed and index == len(metadata.segments) - 1:
            leaving = [member for member in segment.members if member in published.leaving_members]
            if any(is_gone(member, published, state_of) for member in segment.members):
                steps.append(Step(StepKind.RECOVER))
            elif leaving:
                waits.append(
                    f"it is not closed yet, and {', '.join(leaving)} leaves it once its writer has "
                    f"closed it: unload {metadata.purpose.owner} to have that now"
                )
            elif late := [
                member for member in segment.members if member in published.missing_members
            ]:
                waits.append(
                    f"it is not closed yet, and {', '.join(late)} lacks entries at its end"
                )
            continue
        last = metadata.last_entry_of(index)
        for place, member in enumerate(segment.members):
            part = Part(segment.first_entry, last, place, member)
            state = state_of(member)
            if state is MemberState.LOST or member in published.leaving_members:
                steps.append(Step(StepKind.REPLACE, part))
            elif member in published.missing_members and part not in whole:
                if state is MemberState.THERE:
                    steps.append(Step(StepKind.FILL, part))
                else:
                    waits.append(f"bookie {member} is away and may come back")
    if metadata.write_quorum < metadata.requested_write_quorum:
        if closed:
            steps.append(Step(StepKind.ADD_COPY))
        else:
            waits.append(
                "it is not closed yet, and was made with fewer copies than its policy asks for"
            )
    return Plan(tuple(steps), tuple(dict.fromkeys(waits)))


def is_gone(
    member: str, published: UnderReplicated, state_of: Callable[[str], MemberState]
) -> bool:
    """Whether the end of an open ledger must not wait for this member: it is lost, or it is away
    and an operator wants it to leave.
    """
    state = state_of(member)
    return state is MemberState.LOST or (
        state is MemberState.AWAY and member in published.leaving_members
    )


def held_count(metadata: LedgerMetadata, member: str) -> int:
    """Return the number of entries that a member should hold of a ledger (rule 1), without those of
    a last segment that has no end yet.
    """
    count = 0
    for index, segment in enumerate(metadata.segments):
        is_open = index == len(metadata.segments) - 1 and metadata.state is not LedgerState.CLOSED
        if not is_open and member in segment.members:
            count += held_in_segment(metadata, index, segment.members.index(member))
    return count


def held_in_segment(metadata: LedgerMetadata, index: int, place: int) -> int:
    """Return the number of entries that a place of a segment that has an end should hold (rule
    1).
    """
    segment, last = metadata.segments[index], metadata.last_entry_of(index)
    stripes, rest = divmod(last + 1 - segment.first_entry, metadata.ensemble_size)
    part = Part(last + 1 - rest, last, place, segment.members[place])
    return stripes * metadata.write_quorum + len(held_entries(metadata, part, part.first, last))


def held_entries(
    metadata: LedgerMetadata, part: Part, first: int, last: int
) -> range | Sequence[int]:
    """The entries from ``first`` to ``last``, both in the part, that its place holds (rule 1)."""
    if metadata.write_quorum == metadata.ensemble_size:
        return range(first, last + 1)
    size, quorum = metadata.ensemble_size, metadata.write_quorum
    return [
        entry_id for entry_id in range(first, last + 1) if (part.place - entry_id) % size < quorum
    ]


def spans_of(entry_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending ids as pairs first, last (inclusive)."""
    spans: list[tuple[int, int]] = []
    for entry_id in entry_ids:
        if spans and spans[-1][1] == entry_id - 1:
            spans[-1] = (spans[-1][0], entry_id)
        else:
            spans.append((entry_id, entry_id))
    return spans


def summed_up(reasons: Mapping[str, None], limit: int) -> str:
    """Join reasons into one text of at most ``limit`` characters."""
    text = "; ".join(reasons)
    return text if len(text) <= limit else text[: limit - 3] + "..."
