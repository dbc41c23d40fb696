"""The choice of the replica to ask for each entry, and of what to do when it fails.

No I/O, no clock, no randomness.

One read is a few waves. In each wave the next replica is asked for all entries that were not found
yet, until the first entry is there or no replica is left for it. An error, a timeout or a bad
checksum is a failed replica, never the end of the ledger.

When the replica of the first entry is late, one more may be asked beside it (speculation), one at a
time. The first good answer ends the read. The late replica still counts: the entry is missing only
when it says so, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    Args:
        only: of a striped ledger, the ids in this range that are wanted, ascending; the first of
            them is ``first``. ``None``: all of the range.
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
        distance: Callable[[str], int] | None = None,
        only: Sequence[int] | None = None,
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
        self._ids: Sequence[int] = range(first, last + 1)
        if only is not None:
            assert metadata.write_quorum < metadata.ensemble_size
            assert only[0] == first, f"entry {first} is not wanted"
            self._ids = [entry_id for entry_id in only if entry_id <= last]
        self._metadata = metadata
        self._max_bytes = max_bytes
        self._prefer = prefer
        self._distance = distance  # of a member; the nearest are asked first
        # members that are asked last: these, and those that failed in this read
        self._failed = list(avoid)
        self._said: dict[int, dict[str, str]] = {}  # why a member did not give an entry
        self._negatives: set[str] = set()  # members that say they do not have the first entry
        self._pending: list[SpanOrder] = []  # orders that are not answered
        self._late: list[SpanOrder] = []  # those of them that are not waited for
        self._second: SpanOrder | None = None  # the last order that was made beside late ones
        self._records: dict[int, Record] = {}
        self.served_by: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether no answer is waited for any more: the first entry is there, or no replica is left
        for it.

        Call it after ``orders``.
        """
        if self.first not in self._records:
            return not self._pending
        # Others of a striped ledger may add entries. A late one, and the second one beside it, are
        # not waited for.
        return all(order in self._late or order is self._second for order in self._pending)

    def orders(self) -> list[SpanOrder]:
        """Return the next wave; empty while an order is not answered, and when the read is over.

        Every order must be answered or failed before the next wave.
        """
        if self._pending or self.first in self._records:
            return []
        chosen = self._next_replica(self.first)
        if chosen is None:
            return []
        if self._metadata.write_quorum == self._metadata.ensemble_size:
            self._pending = [SpanOrder(chosen, ((self.first, self.last),), self._max_bytes)]
        else:
            wanted = self._wanted()
            # Equal shares would end at different entries, and what lies behind a gap is not used.
            count = sum(len(entry_ids) for entry_ids in wanted.values())
            self._pending = [
                SpanOrder(
                    member,
                    _spans(entry_ids),
                    max(1, self._max_bytes * len(entry_ids) // count),
                )
                for member, entry_ids in wanted.items()
            ]
        return list(self._pending)

    def late(self, order: SpanOrder) -> None:
        """Note that an order is not answered in time. Its answer or its failure still counts.

        The order beside a late one never counts as late, so that at most one is out.
        """
        if order in self._pending and order not in self._late:
            if order is self._second and self._late:
                return
            self._late.append(order)

    @property
    def has_second(self) -> bool:
        """Whether ``second_order`` would return an order now."""
        return (
            bool(self._late)
            and self.first not in self._records
            and len(self._late) == len(self._pending)
            and self._next_replica(self.first) is not None
        )

    def second_order(self) -> SpanOrder:
        """Return an order for the next replica of the first entry, beside the late ones."""
        assert self.has_second
        chosen = self._next_replica(self.first)
        assert chosen is not None
        spans = (
            ((self.first, self.last),)
            if self._metadata.write_quorum == self._metadata.ensemble_size
            else _spans(self._wanted()[chosen])
        )
        self._second = SpanOrder(chosen, spans, self._max_bytes)
        self._pending.append(self._second)
        return self._second

    def _wanted(self) -> dict[str, list[int]]:
        """Return the entries that are not found yet, by the replica to ask next."""
        wanted: dict[str, list[int]] = {}
        for entry_id in self._ids:
            member = self._next_replica(entry_id) if entry_id not in self._records else None
            if member is not None:
                wanted.setdefault(member, []).append(entry_id)
        return wanted

    def answered(
        self, order: SpanOrder, records: Sequence[Record], code: int, why: str = ""
    ) -> None:
        """Handle the answer to an order.

        Args:
            records: checked records in the order of the spans.
            code: why the next record did not come; 0: a limit ended the answer.
            why: replaces ``code`` when the caller found the next record damaged.
        """
        self._settle(order)
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
            self._negatives.add(order.member)

    def failed(self, order: SpanOrder, why: str) -> None:
        """Handle an order that brought nothing."""
        self._settle(order)
        for first, last in order.spans:
            # Of a whole range only the first entry is still asked of others: once it is there the
            # read is over.
            for entry_id in (first,) if first == self.first else range(first, last + 1):
                self._say(entry_id, order.member, why)

    def found(self) -> list[Record]:
        """Return the wanted entries from the first on without a gap, within ``max_bytes`` but at
        least one.
        """
        found: list[Record] = []
        size_bytes = 0
        for entry_id in self._ids:
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
        if len(self._negatives) == self._metadata.write_quorum:
            return NoSuchEntry(f"no bookie of its write quorum has {where} ({text})")
        return EntryUnknown(f"{where} cannot be read now ({text}); try again")

    def check(self) -> None:
        members = [order.member for order in self._pending]
        assert len(set(members)) == len(members), "a member is asked twice at once"
        assert all(order in self._pending for order in self._late)
        assert self._negatives <= self._said.get(self.first, {}).keys()
        assert not self._negatives.intersection(members), "an answer is still awaited"

    def _settle(self, order: SpanOrder) -> None:
        self._pending.remove(order)
        if order in self._late:
            self._late.remove(order)

    def _say(self, entry_id: int, member: str, why: str) -> None:
        self._said.setdefault(entry_id, {})[member] = why
        if member not in self._failed:
            self._failed.append(member)

    def _next_replica(self, entry_id: int) -> str | None:
        said = self._said.get(entry_id, {})
        asked = [order.member for order in self._pending]
        left = [
            member
            for member in self._metadata.write_set(entry_id)
            if member not in said and member not in asked
        ]
        if not left:
            return None
        distance = self._distance
        if distance is None:
            return min(left, key=lambda member: (member in self._failed, member != self._prefer))
        return min(
            left,
            key=lambda member: (member in self._failed, distance(member), member != self._prefer),
        )


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
