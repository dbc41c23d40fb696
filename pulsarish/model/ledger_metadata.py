"""A ledger's record in the metadata store, and the rules of its changes.

A ledger is OPEN while one writer appends, IN_RECOVERY while a new owner finds its end, and CLOSED
forever after. Members are named by their instance ids (rule 7), never by address. Values are
immutable. Every change makes a new value, which the caller stores by compare-and-set.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Final

import msgspec

from pulsarish.model.errors import InvalidArgument
from pulsarish.model.position import NO_ENTRY

__all__ = [
    "BookieGroups",
    "LedgerMetadata",
    "LedgerPurpose",
    "LedgerState",
    "PurposeKind",
    "Segment",
    "check_quorums",
    "first_segments",
]

_ENSEMBLES_KEPT: Final = 1_000


class LedgerState(StrEnum):
    OPEN = "open"
    IN_RECOVERY = "in_recovery"
    CLOSED = "closed"


class PurposeKind(StrEnum):
    TOPIC = "topic"
    CURSOR = "cursor"
    SCHEMA = "schema"
    COMPACTED = "compacted"
    DIAGNOSTIC = "diagnostic"


class LedgerPurpose(msgspec.Struct, frozen=True, gc=False):
    """Why a ledger exists and what it belongs to. Distinguishes an orphan from a ledger in use."""

    kind: PurposeKind
    owner: str  # a topic's full name, "topic#subscription" for a cursor, free text for a diagnostic
    delayed: bool = False  # of a cursor: it has delayed messages, and not the cursor's position


class BookieGroups(msgspec.Struct, frozen=True, gc=False):
    """The groups whose bookies may hold a ledger.

    Those of ``secondary`` only while the others are too few.
    """

    primary: tuple[str, ...]
    secondary: tuple[str, ...] = ()


class Segment(msgspec.Struct, frozen=True, gc=False):
    """The members from ``first_entry`` on, up to the next segment."""

    first_entry: int
    members: tuple[str, ...]


@lru_cache(maxsize=_ENSEMBLES_KEPT)
def first_segments(members: tuple[str, ...]) -> tuple[Segment]:
    """Return the segments of a new ledger.

    All ledgers with this ensemble share the result.
    """
    return (Segment(0, members),)


def check_quorums(ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
    """Rule 1: E >= Qw >= Qa >= 1. Raises ``InvalidArgument``."""
    if not ensemble_size >= write_quorum >= ack_quorum >= 1:
        raise InvalidArgument(
            "quorums must hold ensemble_size >= write_quorum >= ack_quorum >= 1, not "
            f"{ensemble_size}, {write_quorum}, {ack_quorum}"
        )


class LedgerMetadata(msgspec.Struct, frozen=True, gc=False):
    """One ledger's record.

    ``last_entry`` and ``length_bytes`` mean something only when it is closed.
    """

    ledger_id: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    purpose: LedgerPurpose
    segments: tuple[Segment, ...]
    state: LedgerState = LedgerState.OPEN
    last_entry: int = NO_ENTRY
    length_bytes: int = 0
    created_ms: int = 0
    below_policy: bool = False  # made with fewer members than the policy requests
    # write quorum that the policy requests, where the ledger was made with fewer; otherwise 0
    requested_write_quorum: int = msgspec.field(default=0, name="wished_write_quorum")
    # it was open when the backup was taken from which the metadata were restored: this record may
    # be old
    restored: bool = False
    # silent members that an operator counted as empty when it was closed: entries may be lost
    given_up: tuple[str, ...] = ()
    # where its copies may lie; absent: on any bookie
    groups: BookieGroups | msgspec.UnsetType = msgspec.UNSET
    # the writer of this version; it recognises its own write when the answer was lost
    token: str = ""

    @property
    def bookie_groups(self) -> BookieGroups | None:
        """The groups whose bookies may hold copies; ``None``: any bookie."""
        return self.groups or None

    def check(self) -> None:
        """Assert rule 1 and the order of segments."""
        assert self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1
        assert self.segments
        assert self.segments[0].first_entry == 0
        for before, after in pairwise(self.segments):
            assert before.first_entry < after.first_entry
        for segment in self.segments:
            assert len(segment.members) == self.ensemble_size
            assert len(set(segment.members)) == len(segment.members), (
                "a bookie holds two places of one ensemble"
            )

    def segment_index(self, entry_id: int) -> int:
        """Return the index of the segment that holds an entry: the one with the greatest first
        entry not above it.
        """
        for index in range(len(self.segments) - 1, -1, -1):
            if self.segments[index].first_entry <= entry_id:
                return index
        raise InvalidArgument(f"entry id {entry_id} is negative")

    def write_set(self, entry_id: int) -> tuple[str, ...]:
        """Return the members that hold entry e: (e + i) mod E for i < Qw, in that order (rule
        1).
        """
        members = self.segments[self.segment_index(entry_id)].members
        return tuple(members[(entry_id + i) % self.ensemble_size] for i in range(self.write_quorum))

    @property
    def last_segment(self) -> Segment:
        return self.segments[-1]

    def with_members(self, first_entry: int, members: tuple[str, ...]) -> LedgerMetadata:
        """Return the record with new members from ``first_entry`` on.

        Replaces a last segment that starts there (rule 3).
        """
        assert first_entry >= self.last_segment.first_entry
        kept = self.segments[:-1] if self.last_segment.first_entry == first_entry else self.segments
        return msgspec.structs.replace(self, segments=(*kept, Segment(first_entry, members)))

    def with_replaced(self, first_entry: int, old: str, new: str) -> LedgerMetadata:
        """Return the record with ``new`` in the place of ``old`` in the segment that starts at
        ``first_entry``.

        ``new`` already has all replicas of ``old``. Never change the last segment of a ledger that
        is not closed: it belongs to the writer or the recovering client.
        """
        assert self.state is LedgerState.CLOSED or first_entry != self.last_segment.first_entry
        segments = list(self.segments)
        index = next(
            index for index, segment in enumerate(segments) if segment.first_entry == first_entry
        )
        members = segments[index].members
        assert old in members, f"{old} is no member from entry {first_entry} on"
        assert new not in members, f"{new} is a member from entry {first_entry} on already"
        segments[index] = Segment(
            first_entry, tuple(new if member == old else member for member in members)
        )
        return msgspec.structs.replace(self, segments=tuple(segments))

    def with_another_copy(self, members: tuple[str, ...]) -> LedgerMetadata:
        """Return the record of a closed ledger with one more member in each segment, in order.

        Every member holds every entry.
        """
        assert self.state is LedgerState.CLOSED
        assert self.ensemble_size == self.write_quorum
        assert len(members) == len(self.segments)
        quorum = self.write_quorum + 1
        return msgspec.structs.replace(
            self,
            ensemble_size=quorum,
            write_quorum=quorum,
            segments=tuple(
                Segment(segment.first_entry, (*segment.members, member))
                for segment, member in zip(self.segments, members, strict=True)
            ),
            below_policy=quorum < self.requested_write_quorum,
        )

    def last_entry_of(self, index: int) -> int:
        """Return the last entry of a segment that has an end: in a closed ledger, or before another
        segment.
        """
        if index + 1 < len(self.segments):
            return self.segments[index + 1].first_entry - 1
        assert self.state is LedgerState.CLOSED, "the last segment of an open ledger has no end yet"
        return self.last_entry

    def in_recovery(self) -> LedgerMetadata:
        assert self.state is not LedgerState.CLOSED
        return msgspec.structs.replace(self, state=LedgerState.IN_RECOVERY)

    def closed(
        self,
        last_entry: int,
        length_bytes: int,
        segments: tuple[Segment, ...] | None = None,
        given_up: tuple[str, ...] = (),
    ) -> LedgerMetadata:
        """Return the closed record.

        Segments that start above the last entry hold nothing and are dropped, except the first.
        """
        assert self.state is not LedgerState.CLOSED
        wanted = self.segments if segments is None else segments
        kept = tuple(segment for segment in wanted if segment.first_entry <= max(last_entry, 0))
        return msgspec.structs.replace(
            self,
            state=LedgerState.CLOSED,
            last_entry=last_entry,
            length_bytes=length_bytes,
            segments=kept,
            restored=False,
            given_up=given_up,
        )
