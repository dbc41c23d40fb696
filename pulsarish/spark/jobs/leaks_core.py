"""Judge one ledger by all facts about it: references to it, its record in metadata, bookies that
hold it.

No I/O.

The view is gathered in this order: bookies' listings, ledgers' records, references. So a ledger
that is created meanwhile is referenced and not missed. A ledger whose creator writes its record
first and its reference after (cursors' ledgers, a topic's next one) may look like an orphan for a
moment. So a ledger younger than ``min_age_ms`` is never an orphan, and a job that acts on an orphan
checks a second time. A topic's next ledger may look like one for longer, while the current one
cannot be closed. If it is removed then, its owner notices and creates another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.options import Retention
from pulsarish.managed_ledger.trim import trimmable
from pulsarish.metadata.records import CursorRecord, TopicRecord, UnderReplicated
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.model.position import LATEST, Position

__all__ = [
    "Evidence",
    "Held",
    "Known",
    "Leak",
    "LeakKind",
    "MissingCopies",
    "Reference",
    "Rules",
    "Use",
    "judge",
    "references_of",
    "schema_gaps",
    "trimmable_of",
]


class LeakKind(StrEnum):
    ORPHAN = "orphan"  # in metadata, and without a reference
    STRAY = "stray"  # on bookies, and not in metadata
    DANGLING = "dangling"  # referenced, and not in metadata
    UNDER_REPLICATED = "under-replicated"
    OVER_REPLICATED = "over-replicated"
    EXPIRED = "expired"  # older than its topic's policy allows, and not needed


class Use(StrEnum):
    """How a metadata node refers to a ledger."""

    CHAIN = "chain"
    VIEW = "view"
    CURSOR = "cursor"
    DELETING = "deleting"  # its deletion is intended: it may already be deleted


class Held(NamedTuple):
    """This bookie (an instance id) lists the ledger."""

    bookie: str


class Reference(NamedTuple):
    """A metadata node names the ledger."""

    path: str
    use: Use
    owner: str
    expired: bool = False
    size_bytes: int = 0


class Known(NamedTuple):
    """The ledger's record."""

    metadata: LedgerMetadata


class MissingCopies(NamedTuple):
    """The ledger is recorded as under-replicated."""

    record: UnderReplicated


Evidence = Held | Reference | Known | MissingCopies


class Leak(NamedTuple):
    """``size_bytes``: its size on all bookies together (under-replicated: the missing bytes); -1
    when unknown.
    """

    kind: str
    ledger_id: int
    owner: str
    size_bytes: int
    bookies: tuple[str, ...]  # the bookies in question, by instance id
    created_ms: int
    detail: str


@dataclass(frozen=True, slots=True)
class Rules:
    """``answered``: the bookies whose whole listing is known; nothing is concluded about others."""

    now_ms: int
    min_age_ms: int
    answered: frozenset[str] = frozenset()


_IN_USE: Final = (Use.CHAIN, Use.VIEW, Use.CURSOR)


def judge(ledger_id: int, evidence: Iterable[Evidence], rules: Rules) -> list[Leak]:
    """Return the defects of a ledger."""
    metadata: LedgerMetadata | None = None
    under_replicated: UnderReplicated | None = None
    holders: list[str] = []
    references: list[Reference] = []
    for each in evidence:
        match each:
            case Known(record):
                metadata = record
            case MissingCopies(record_of_copies):
                under_replicated = record_of_copies
            case Held(bookie):
                holders.append(bookie)
            case Reference():
                references.append(each)
    holders.sort()
    if metadata is None:
        return _without_metadata(ledger_id, holders, references)
    found = _unused(metadata, references, rules) + _copies(
        metadata, holders, under_replicated, rules
    )
    if any(each.expired for each in references):
        (name, *_) = [each.owner for each in references if each.expired]
        detail = "its retention is over and every subscription has passed it"
        found.append(_leak(LeakKind.EXPIRED, metadata, name, _all_bytes(metadata), (), detail))
    return found


def _leak(
    kind: LeakKind,
    metadata: LedgerMetadata,
    owner: str,
    size_bytes: int,
    bookies: Sequence[str],
    detail: str,
) -> Leak:
    return Leak(
        kind.value,
        metadata.ledger_id,
        owner,
        size_bytes,
        tuple(bookies),
        metadata.created_ms,
        detail,
    )


def _purpose(metadata: LedgerMetadata) -> str:
    return f"{metadata.purpose.kind.value} {metadata.purpose.owner}"


def _all_bytes(metadata: LedgerMetadata) -> int:
    return (
        metadata.length_bytes * metadata.write_quorum
        if metadata.state is LedgerState.CLOSED
        else -1
    )


def _without_metadata(
    ledger_id: int, holders: Sequence[str], references: Sequence[Reference]
) -> list[Leak]:
    found = []
    for each in references:
        if each.use in _IN_USE:
            detail = f"{each.path} names it as its {each.use.value}" + (
                "; bookies still hold it" if holders else ""
            )
            found.append(
                Leak(
                    LeakKind.DANGLING.value,
                    ledger_id,
                    each.owner,
                    each.size_bytes,
                    tuple(holders),
                    0,
                    detail,
                )
            )
    if holders and not found:
        detail = (
            "bookies delete it at their next collection, unless the metadata are restored "
            "ones that are not confirmed yet"
        )
        found.append(Leak(LeakKind.STRAY.value, ledger_id, "", -1, tuple(holders), 0, detail))
    return found


def _unused(metadata: LedgerMetadata, references: Sequence[Reference], rules: Rules) -> list[Leak]:
    if references or rules.now_ms - metadata.created_ms < rules.min_age_ms:
        return []
    members = dict.fromkeys(member for segment in metadata.segments for member in segment.members)
    detail = f"{metadata.state.value}, nothing refers to it"
    return [
        _leak(
            LeakKind.ORPHAN,
            metadata,
            _purpose(metadata),
            _all_bytes(metadata),
            tuple(members),
            detail,
        )
    ]


def _copies(
    metadata: LedgerMetadata,
    holders: Sequence[str],
    under_replicated: UnderReplicated | None,
    rules: Rules,
) -> list[Leak]:
    """Compare the bookies that hold a ledger with those in its record.

    A striped member may rightly hold nothing of a short ledger.
    """
    found: list[Leak] = []
    members = dict.fromkeys(member for segment in metadata.segments for member in segment.members)
    missing = list(under_replicated.missing_members) if under_replicated is not None else []
    if metadata.state is LedgerState.CLOSED and metadata.last_entry >= 0:
        bound = [member for member in members if _must_hold(metadata, member)]
        missing += [
            member
            for member in bound
            if member in rules.answered and member not in holders and member not in missing
        ]
    short = (
        max(0, metadata.requested_write_quorum - metadata.write_quorum)
        if metadata.requested_write_quorum
        else 0
    )
    if missing or short or (under_replicated is not None and under_replicated.below_policy):
        known = (
            ""
            if under_replicated is None
            else under_replicated.reason or "known: autorecovery is at it"
        )
        parts = [f"lacks the copies of {len(missing)} members"] if missing else []
        parts += (
            [
                (
                    f"has {metadata.write_quorum} copies of {metadata.requested_write_quorum} that "
                    "its policy asks for"
                )
            ]
            if short
            else []
        )
        size_bytes = (
            metadata.length_bytes * (len(missing) + short)
            if metadata.state is LedgerState.CLOSED
            else -1
        )
        detail = "; ".join([*parts, *([known] if known else [])])
        found.append(
            _leak(
                LeakKind.UNDER_REPLICATED, metadata, _purpose(metadata), size_bytes, missing, detail
            )
        )
    more = [bookie for bookie in holders if bookie not in members]
    if more:
        size_bytes = (
            metadata.length_bytes * len(more) if metadata.state is LedgerState.CLOSED else -1
        )
        detail = "bookies that its record does not name hold it too"
        found.append(
            _leak(LeakKind.OVER_REPLICATED, metadata, _purpose(metadata), size_bytes, more, detail)
        )
    return found


def _must_hold(metadata: LedgerMetadata, member: str) -> bool:
    """Whether a closed ledger has an entry in whose write set the member is.

    True for ledgers of at least a stripe's length.
    """
    for index, segment in enumerate(metadata.segments):
        if member in segment.members:
            last = min(
                metadata.last_entry_of(index), segment.first_entry + metadata.ensemble_size - 1
            )
            if any(
                member in metadata.write_set(entry_id)
                for entry_id in range(segment.first_entry, last + 1)
            ):
                return True
    return False


def schema_gaps(nodes: Sequence[str], versions_count: int) -> list[int]:
    """Return the missing versions of a topic's schema.

    All since the last deletion should exist. ``nodes``: the names below it.
    """
    versions = {int(node.partition("-")[0]): node.partition("-")[2] for node in nodes}
    deleted = [version for version, rest in versions.items() if rest == "deleted"]
    return [
        version
        for version in range(max(deleted, default=-1) + 1, versions_count)
        if version not in versions
    ]


# -- references


def references_of(
    path: str,
    owner: str,
    record: TopicRecord,
    cursors: dict[str, CursorRecord],
    retention: Retention,
    rules: Rules,
) -> list[tuple[int, Reference]]:
    """Return all references in a topic's subtree. ``cursors`` by path."""
    over = trimmable_of(record, cursors.values(), retention, rules.now_ms - rules.min_age_ms)
    found = [
        (link.ledger_id, Reference(path, Use.CHAIN, owner, at < over, link.size_bytes))
        for at, link in enumerate(record.ledgers)
    ]
    found += [(ledger_id, Reference(path, Use.DELETING, owner)) for ledger_id in record.deleting]
    if record.compacted is not None and record.compacted.ledger_id >= 0:
        found.append(
            (
                record.compacted.ledger_id,
                Reference(path, Use.VIEW, owner, size_bytes=record.compacted.size_bytes),
            )
        )
    for cursor_path, cursor in cursors.items():
        found += [
            (ledger_id, Reference(cursor_path, Use.CURSOR, owner))
            for ledger_id in cursor.ledgers_in_use
        ]
        found += [
            (ledger_id, Reference(cursor_path, Use.DELETING, owner))
            for ledger_id in cursor.deleting
        ]
    if record.deleted:
        # Its ledgers are deleted one after another, and its nodes last.
        found = [
            (ledger_id, each._replace(use=Use.DELETING, expired=False)) for ledger_id, each in found
        ]
    return found


def trimmable_of(
    record: TopicRecord, cursors: Iterable[CursorRecord], retention: Retention, now_ms: int
) -> int:
    """Return how many ledgers at the front of a topic's chain neither retention, a subscription nor
    its compacted view keeps.

    The mark-delete position in a cursor's node is never above the true one, so this errs towards
    keeping.
    """
    ids = [link.ledger_id for link in record.ledgers]
    if ids != sorted(ids):
        return 0  # a damaged list: its order proves nothing
    marks = [Position(cursor.mark_ledger, cursor.mark_entry) for cursor in cursors]
    if record.compacted is not None:
        marks.append(Position(record.compacted.horizon_ledger, record.compacted.horizon_entry))
    elif retention.until_compacted:
        return 0
    return trimmable(
        Chain(record.ledgers, record.lost), min(marks, default=LATEST), retention, now_ms
    )
