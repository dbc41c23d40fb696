"""The choice of the replica to ask for each entry, and of what to do when it fails.

No I/O, no clock, no randomness.

One read is a few waves. In each wave the next replica is asked for all entries that were not found
yet, until the first entry is there or no replica is left for it. An error, a timeout or a bad
checksum is a failed replica, never the end of the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pulsarish.model.errors import (
    EntryUnknown,
    NoSuchEntry,
    NoSuchLedger,
    PulsarishError,
    error_from_code,
)
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.wire.record import RECORD_HEAD_SIZE, Record

__all__ = ["ReadCore", "SpanOrder"]

_STRIPED_ENTRIES_MAX: Final = 1_000  # in one read
_NEGATIVE: Final = frozenset({NoSuchEntry.code, NoSuchLedger.code})


@dataclass(frozen=True, slots=True)
class SpanOrder:
    """Ask this member for the entries of these spans (first, last, inclusive), at most
    ``max_bytes`` bytes.
    """

    member: str
    spans: tuple[tuple[int, int], ...]
    max_bytes: int

    def entry_ids(self) -> list[int]:
        return [entry_id for first, last in self.spans for entry_id in range(first, last + 1)]


class ReadCore:
    """A read of entries ``first`` to ``last``.

    The caller knows that they may be read (rule 3). The read ends at the end of a segment.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        first: int,
        last: int,
        *,
        max_bytes: int,
        prefer: str | None = None,
        avoid: Sequence[str] = (),
    ) -> None:
        index = metadata.segment_index(first)
        if index + 1 < len(metadata.segments):
            last = min(last, metadata.segments[index + 1].first_entry - 1)
        if metadata.write_quorum < metadata.ensemble_size:
            # Each entry of a striped ledger is planned by itself.
            last = min(last, first + _STRIPED_ENTRIES_MAX - 1)
        assert first <= last
        self.ledger_id = metadata.ledger_id
        self.first = first
        self.last = last
        self._metadata = metadata
        self._max_bytes = max_bytes
        self._prefer = prefer
        # members that are asked last: these, and those that failed in this read
        self._failed = list(avoid)
        self._said: dict[int, dict[str, str]] = {}  # why a member did not give an entry
        self._negatives = 0  # members that say they do not have the first entry
        self._records: dict[int, Record] = {}
        self.served_by: str | None = None

    def orders(self) -> list[SpanOrder]:
        """Return the next wave; empty when the read is over.

        Every order must be answered or failed before the next wave.
        """
        if self.first in self._records:
            return []
        chosen = self._next_replica(self.first)
        if chosen is None:
            return []
        if self._metadata.write_quorum == self._metadata.ensemble_size:
            return [SpanOrder(chosen, ((self.first, self.last),), self._max_bytes)]
        wanted: dict[str, list[int]] = {}
        for entry_id in range(self.first, self.last + 1):
            member = self._next_replica(entry_id) if entry_id not in self._records else None
            if member is not None:
                wanted.setdefault(member, []).append(entry_id)
        share = max(1, self._max_bytes // len(wanted))
        return [SpanOrder(member, _spans(entry_ids), share) for member, entry_ids in wanted.items()]

    def answered(
        self, order: SpanOrder, records: Sequence[Record], code: int, why: str = ""
    ) -> None:
        """Handle the answer to an order.

        Args:
            records: checked records in the order of the spans.
            code: why the next record did not come; 0: a limit ended the answer.
            why: replaces ``code`` when the caller found the next record damaged.
        """
        for record in records:
            self._records[record.entry_id] = record
        if records and self.served_by is None:
            self.served_by = order.member
        ids = (
            order.entry_ids()
            if len(order.spans) > 1
            else range(order.spans[0][0], order.spans[0][1] + 1)
        )
        if len(records) == len(ids) or (code == 0 and not why and records):
            return
        entry_id = ids[len(records)]
        self._say(
            entry_id,
            order.member,
            why or (type(error_from_code(code, "")).__name__ if code else "an empty answer"),
        )
        if entry_id == self.first and not why and code in _NEGATIVE:
            self._negatives += 1

    def failed(self, order: SpanOrder, why: str) -> None:
        """Handle an order that brought nothing."""
        for first, last in order.spans:
            # Of a whole range only the first entry is still asked of others: once it is there the
            # read is over.
            for entry_id in (first,) if first == self.first else range(first, last + 1):
                self._say(entry_id, order.member, why)

    def found(self) -> list[Record]:
        """Return the entries from the first on without a gap, within ``max_bytes`` but at least
        one.
        """
        found: list[Record] = []
        size_bytes = 0
        for entry_id in range(self.first, self.last + 1):
            record = self._records.get(entry_id)
            if record is None:
                break
            size_bytes += len(record.payload) + RECORD_HEAD_SIZE
            if found and size_bytes > self._max_bytes:
                break
            found.append(record)
        return found

    def error(self) -> PulsarishError:
        """Return the error when no member gave the first entry, with each member's answer.

        The entry is gone only when all members say so. Otherwise it may be there later.
        """
        said = self._said.get(self.first, {})
        text = ", ".join(f"{member}: {why}" for member, why in said.items())
        where = f"entry {self.first} of ledger {self._metadata.ledger_id}"
        if self._negatives == self._metadata.write_quorum:
            return NoSuchEntry(f"no bookie of its write quorum has {where} ({text})")
        return EntryUnknown(f"{where} cannot be read now ({text}); try again")

    def _say(self, entry_id: int, member: str, why: str) -> None:
        self._said.setdefault(entry_id, {})[member] = why
        if member not in self._failed:
            self._failed.append(member)

    def _next_replica(self, entry_id: int) -> str | None:
        said = self._said.get(entry_id, {})
        left = [member for member in self._metadata.write_set(entry_id) if member not in said]
        if not left:
            return None
        return min(left, key=lambda member: (member in self._failed, member != self._prefer))


def _spans(entry_ids: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending ids as pairs first, last."""
    starts = [
        entry_ids[0],
        *(after for before, after in pairwise(entry_ids) if after != before + 1),
    ]
    ends = [
        *(before for before, after in pairwise(entry_ids) if after != before + 1),
        entry_ids[-1],
    ]
    return tuple(zip(starts, ends, strict=True))
