"""The core of the search for orphans: the ledgers that are left when all references are known, and
since when each orphan is known. No I/O.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from pulsarish.metadata import paths
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, LedgerState, PurposeKind
from pulsarish.model.topic_name import TopicName

__all__ = [
    "LedgersWithoutReference",
    "Orphan",
    "OrphanKind",
    "OrphanNotes",
    "ledger_orphan",
    "owners_of",
]


class OrphanKind(StrEnum):
    LEDGER = "ledger"  # no record of a topic or a cursor names it
    TOPIC = "topic"  # a topic's node without a record, or below a namespace that does not exist
    CURSOR = "cursor"  # of a topic's node without a record
    SCHEMA = "schema"  # the same
    POLICIES = "policies"  # the same
    PARTITIONED = "partitioned"  # a partitioned topic of a namespace that does not exist
    BUNDLE_OWNER = "bundle-owner"  # of a namespace that does not exist, and of no live broker


@dataclass(frozen=True, slots=True)
class Orphan:
    """A node that nothing refers to.

    ``version`` and ``created`` are those of the node. ``size_bytes`` is on all bookies together; -1
    when it is not known. ``created_ms`` is 0 when it is not known. ``first_found_ms`` and
    ``first_found_at`` are by the wall clock and the monotonic clock of the leader.
    """

    kind: OrphanKind
    path: str
    why: str
    version: int
    created: int
    is_deletable: bool = False
    ledger_id: int = -1
    owner: str = ""
    size_bytes: int = -1
    created_ms: int = 0
    first_found_ms: int = 0
    first_found_at: float = 0.0


_OF_TOPICS: Final = (PurposeKind.TOPIC, PurposeKind.COMPACTED, PurposeKind.CURSOR)


def owners_of(purpose: LedgerPurpose) -> list[str]:
    """Return the paths of the topics that may name a ledger made for this purpose.

    Empty where no topic does. A cursor's owner is ``topic#subscription``, and either part may
    contain such a sign itself.
    """
    if purpose.kind not in _OF_TOPICS:
        return []
    names = [purpose.owner]
    if purpose.kind is PurposeKind.CURSOR:
        names = [purpose.owner[:at] for at, sign in enumerate(purpose.owner) if sign == "#"]
    found = []
    for name in names:
        try:
            found.append(paths.topic(TopicName.parse(name)))
        except PulsarishError:
            continue
    return found


def ledger_orphan(
    metadata: LedgerMetadata, version: int, created: int, *, now_ms: int, min_age_ms: int
) -> Orphan | None:
    """Return a ledger without a reference as an orphan; None while it is too young for that.

    A ledger is made before it is named, so a young one may be about to be named. Where the clock of
    its maker was so far ahead that it has no age, only the grace time protects it.
    """
    if abs(now_ms - metadata.created_ms) < min_age_ms:
        return None
    is_of_topic = bool(owners_of(metadata.purpose))
    why = f"no topic and no cursor names it; it was made for {metadata.purpose.kind.value} " + (
        metadata.purpose.owner or "(no name)"
    )
    return Orphan(
        OrphanKind.LEDGER,
        paths.ledger(metadata.ledger_id),
        why if is_of_topic else f"{why}, which is no topic: only an operator can judge it",
        version,
        created,
        is_of_topic,
        metadata.ledger_id,
        metadata.purpose.owner,
        metadata.length_bytes * metadata.write_quorum
        if metadata.state is LedgerState.CLOSED
        else -1,
        metadata.created_ms,
    )


class LedgersWithoutReference:
    """All ledgers, of which those that are named are taken out. Nine bytes for each."""

    def __init__(self) -> None:
        self._ids = array("q")
        self._named = bytearray()

    def check(self) -> None:
        """Assert that the ids ascend, as the search in them needs."""
        assert len(self._ids) == len(self._named)
        assert all(one < other for one, other in pairwise(self._ids))

    def add(self, ledger_ids: Sequence[int]) -> None:
        """Add existing ledgers; ids ascend."""
        assert not self._ids or not ledger_ids or ledger_ids[0] > self._ids[-1]
        self._ids.extend(ledger_ids)
        self._named.extend(bytes(len(ledger_ids)))

    def name(self, ledger_ids: Iterable[int]) -> None:
        """Take out ledgers that a record names. Those that do not exist are ignored."""
        for ledger_id in ledger_ids:
            at = bisect_left(self._ids, ledger_id)
            if at < len(self._ids) and self._ids[at] == ledger_id:
                self._named[at] = 1

    def left(self) -> list[int]:
        """Return the ledgers that no record has named, ascending."""
        return [
            ledger_id
            for ledger_id, is_named in zip(self._ids, self._named, strict=True)
            if not is_named
        ]


class OrphanNotes:
    """The orphans of the last whole search, each with the time since when it has been found by
    every search.

    An orphan whose node has changed meanwhile counts from then on.
    """

    def __init__(self) -> None:
        self.found: dict[str, Orphan] = {}
        """By path."""

    def note(self, found: Sequence[Orphan], *, now: float, now_ms: int) -> list[Orphan]:
        """Replace what is known by what a whole search has found. Return what is new.

        Args:
            now: the monotonic clock, in seconds.
        """
        was, self.found = self.found, {}
        fresh = []
        for orphan in found:
            before = was.get(orphan.path)
            if before is None or (before.version, before.created) != (
                orphan.version,
                orphan.created,
            ):
                noted = replace(orphan, first_found_ms=now_ms, first_found_at=now)
                fresh.append(noted)
            else:
                noted = replace(
                    orphan,
                    first_found_ms=before.first_found_ms,
                    first_found_at=before.first_found_at,
                )
            self.found[orphan.path] = noted
        return fresh

    def due(self, *, now: float, grace_seconds: float) -> list[Orphan]:
        """Return the orphans that may be deleted: searches have found each, as it is now, for at
        least the grace time.
        """
        return [
            orphan
            for orphan in self.found.values()
            if orphan.is_deletable
            and now > orphan.first_found_at
            and now - orphan.first_found_at >= grace_seconds
        ]

    def forget(self, path: str) -> None:
        self.found.pop(path, None)
