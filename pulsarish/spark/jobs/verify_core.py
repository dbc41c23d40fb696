"""Verify replicas, without I/O: which entries to read from which bookie, and what several answers
mean together.

A ledger is cut into chunks of entries, the same for all its members. So results for a chunk from
one bookie can be compared with those from others, although different tasks read them. Of each
replica only its state and a checksum of the part that replicas must agree in are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from pulsarish.model.ledger_metadata import LedgerMetadata

__all__ = [
    "CHUNK_ENTRIES",
    "SUM_BYTES",
    "Copy",
    "CopyState",
    "Finding",
    "Split",
    "compare",
    "merge",
    "plan_splits",
]

CHUNK_ENTRIES: Final = 4096
SUM_BYTES: Final = 4


class CopyState(IntEnum):
    """State of one entry at one bookie."""

    OK = 0
    ELSEWHERE = 1  # the bookie is not in the entry's write set
    MISSING = 2  # the bookie answers that it does not have it
    CORRUPT = 3  # the bookie has it and cannot read it, or its bytes do not match their checksum
    UNKNOWN = 4  # the bookie may have lost it (limbo)
    SILENT = 5  # the bookie did not answer


_KINDS: Final = {
    CopyState.MISSING: "missing",
    CopyState.CORRUPT: "corrupt",
    CopyState.UNKNOWN: "unknown",
    CopyState.SILENT: "unreachable",
}


class Split(NamedTuple):
    """Entries ``first`` to ``last`` of a ledger at one member.

    ``place``: the member's index in the segment that begins at ``base``.
    """

    ledger_id: int
    first: int
    last: int
    base: int
    member: str
    place: int
    ensemble_size: int
    write_quorum: int
    size_bytes: int

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last entry of each chunk."""
        for first in range(self.first, self.last + 1, CHUNK_ENTRIES):
            yield first, min(first + CHUNK_ENTRIES - 1, self.last)

    def holds(self, entry_id: int) -> bool:
        """Whether the member is in the entry's write set (rule 1)."""
        return (self.place - entry_id) % self.ensemble_size < self.write_quorum


class Copy(NamedTuple):
    """One bookie's replica of a chunk: a ``CopyState`` and ``SUM_BYTES`` of checksum for each
    entry, in order.
    """

    member: str
    states: bytes
    sums: bytes
    read_bytes: int


class Finding(NamedTuple):
    """One defect of entries ``first_entry`` to ``last_entry`` of a ledger.

    ``bookie`` is an instance id or empty.
    """

    kind: str
    ledger_id: int
    first_entry: int
    last_entry: int
    bookie: str
    detail: str = ""

    @property
    def entries(self) -> int:
        return self.last_entry - self.first_entry + 1


def plan_splits(metadata: LedgerMetadata, last_entry: int, split_bytes: int) -> list[Split]:
    """Return the replicas of the entries up to ``last_entry``, in splits of about ``split_bytes``,
    each of whole chunks.
    """
    entry_bytes = (
        metadata.length_bytes / (metadata.last_entry + 1)
        if metadata.last_entry >= 0 and metadata.length_bytes
        else 1024.0
    )
    # A striped member has Qw of E entries.
    held_bytes = entry_bytes * metadata.write_quorum / metadata.ensemble_size
    chunks = max(1, int(split_bytes / (held_bytes * CHUNK_ENTRIES)))
    found: list[Split] = []
    for index, segment in enumerate(metadata.segments):
        end = last_entry
        if index + 1 < len(metadata.segments):
            end = min(end, metadata.segments[index + 1].first_entry - 1)
        step = chunks * CHUNK_ENTRIES
        for first in range(segment.first_entry, end + 1, step):
            last = min(first + step - 1, end)
            size_bytes = int((last - first + 1) * held_bytes)
            for place, member in enumerate(segment.members):
                found.append(
                    Split(
                        metadata.ledger_id,
                        first,
                        last,
                        segment.first_entry,
                        member,
                        place,
                        metadata.ensemble_size,
                        metadata.write_quorum,
                        size_bytes,
                    )
                )
    return found


def compare(ledger_id: int, first: int, copies: Sequence[Copy]) -> list[Finding]:
    """Return the defects of a chunk that begins at entry ``first``."""
    whole = [copy for copy in copies if not any(copy.states)]
    if len(whole) == len(copies) and all(copy.sums == whole[0].sums for copy in whole):
        return []  # nearly every chunk
    found: list[Finding] = []
    for place in range(len(copies[0].states)):
        entry_id = first + place
        read: list[tuple[str, bytes]] = []
        for copy in copies:
            state = CopyState(copy.states[place])
            if state is CopyState.OK:
                read.append((copy.member, copy.sums[place * SUM_BYTES : (place + 1) * SUM_BYTES]))
            elif state is not CopyState.ELSEWHERE:
                found.append(Finding(_KINDS[state], ledger_id, entry_id, entry_id, copy.member))
        found += _divergent(ledger_id, entry_id, read)
    return list(merge(found))


def _divergent(ledger_id: int, entry_id: int, read: Sequence[tuple[str, bytes]]) -> list[Finding]:
    """Return the bookies whose replica differs from the majority's; all of them without a
    majority.
    """
    counts = Counter(each for _, each in read)
    if len(counts) < 2:
        return []
    commonest, count = counts.most_common(1)[0]
    agreed = 2 * count > len(read)
    detail = "differs from most copies" if agreed else "no copy has a majority"
    return [
        Finding("divergent", ledger_id, entry_id, entry_id, member, detail)
        for member, each in read
        if not agreed or each != commonest
    ]


def merge(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings with neighbours joined, in the order of ledger, bookie, entry."""
    previous: Finding | None = None
    for each in sorted(
        findings,
        key=lambda each: (each.ledger_id, each.bookie, each.kind, each.detail, each.first_entry),
    ):
        if (
            previous is not None
            and previous[:2] == each[:2]
            and previous[4:] == each[4:]
            and each.first_entry <= previous.last_entry + 1
        ):
            previous = previous._replace(last_entry=max(previous.last_entry, each.last_entry))
            continue
        if previous is not None:
            yield previous
        previous = each
    if previous is not None:
        yield previous
