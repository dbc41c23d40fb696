"""The decision where a recovered ledger ends (rules 5 and 6). No I/O, no clock, no randomness.

First recovery fences. Every write quorum of the last segment must have Qw - Qa + 1 answers; then no
writer confirms anything more. Then it reads forward from the highest LAC in the answers. It reads
from the ensemble as it was when recovery began, never from the one that recovery itself changes,
whose new members know nothing.

* One copy is found: the entry exists, and is written back.
* Qw - Qa + 1 members answer explicitly "no such entry" or "no such ledger": the entry was never
  confirmed, and the ledger ends before it.
* Everything else (timeout, I/O error, bad checksum, limbo, another bookie at the address) is
  *unknown*. If all have answered and neither rule applies, recovery cannot decide now and says so.
  It never guesses.

An operator may give up members by name when their disks are gone for good (rule 20). They are asked
like the others, but nothing is decided before every request has ended. Then a member that was given
up and did not answer counts as "fenced" and as "not there".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pulsarish.ledger.coverage import Coverage, negatives_needed
from pulsarish.model.errors import NoSuchEntry, NoSuchLedger, error_from_code
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.model.position import NO_ENTRY
from pulsarish.wire.record import Record

__all__ = ["OK", "FenceVerdict", "FencingCore", "ReadOrder", "ReadVerdict", "ReadingCore"]

OK: Final = 0
# A bookie that never saw the ledger creates it fenced, so its answer counts.
_NEGATIVE: Final = frozenset({NoSuchEntry.code, NoSuchLedger.code})


class FenceVerdict(Enum):
    WAITING = "waiting"
    FENCED = "fenced"
    UNDECIDED = "undecided"


class FencingCore:
    """The members of the last segment that have answered the fence.

    Those in ``given_up`` need not answer.
    """

    def __init__(self, metadata: LedgerMetadata, given_up: Collection[str] = ()) -> None:
        self.members = metadata.last_segment.members
        self.said: dict[str, str] = {}
        self._first_entry = metadata.last_segment.first_entry
        self._coverage = Coverage(
            metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
        )
        self._lac = NO_ENTRY
        self._given_up = given_up

    def answered(self, member: str, code: int, lac: int) -> None:
        if code == OK or code in _NEGATIVE:
            self._coverage.hear(self.members.index(member))
            if code == OK:
                self._lac = max(self._lac, lac)
            self.said[member] = "fenced"
        else:
            self.failed(member, type(error_from_code(code, "")).__name__)

    def failed(self, member: str, why: str) -> None:
        if member in self._given_up:
            self._coverage.hear(self.members.index(member))
        self.said[member] = why

    @property
    def verdict(self) -> FenceVerdict:
        all_heard = len(self.said) == len(self.members)
        # The other members may know a later LAC. When members are given up, wait until each one has
        # answered or failed.
        if self._coverage.covered and (all_heard or not self._given_up):
            return FenceVerdict.FENCED
        return FenceVerdict.UNDECIDED if all_heard else FenceVerdict.WAITING

    @property
    def lac(self) -> int:
        """The entry after which to read: the highest LAC, and never before the last segment.

        Earlier segments have no open entries.
        """
        return max(self._lac, self._first_entry - 1)


class ReadVerdict(Enum):
    WAITING = "waiting"
    FOUND = "found"
    END = "end"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class ReadOrder:
    """Ask this member for entries ``first..last`` with a fencing read."""

    member: str
    first: int
    last: int


@dataclass(slots=True)
class _Entry:
    """The answers about one entry."""

    record: Record | None = None
    negative: list[str] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)

    def heard(self, member: str) -> bool:
        return member in self.negative or member in self.unknown


class ReadingCore:
    """The reading forward from ``lac``.

    Args:
        metadata: the record as it was when recovery began.
        needs_all: the record may be too old, so that an entry may be confirmed with one copy or
            none on the recorded members. The ledger ends only where every member of the write set
            answers "no such entry".
        given_up: members whose silence counts as "no such entry". Then the same rule holds.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        lac: int,
        *,
        read_ahead: int,
        needs_all: bool = False,
        given_up: Collection[str] = (),
    ) -> None:
        assert metadata.state is LedgerState.IN_RECOVERY
        assert lac >= metadata.last_segment.first_entry - 1
        self.metadata = metadata
        self.next_entry = lac + 1
        self._given_up = given_up
        self._needed = (
            metadata.write_quorum
            if needs_all or given_up
            else negatives_needed(metadata.write_quorum, metadata.ack_quorum)
        )
        # A member of a striped ledger does not hold consecutive entries, so a run of them cannot be
        # requested.
        self._read_ahead = read_ahead if metadata.write_quorum == metadata.ensemble_size else 1
        self._entries: dict[int, _Entry] = {}
        self._asked: dict[str, int] = {}  # members with an open request: its first entry

    def orders(self) -> list[ReadOrder]:
        """Return the requests to send now.

        These are the members of the next entry's write set that have no open request and have not
        answered about the entry.
        """
        if self.verdict is not ReadVerdict.WAITING:
            return []
        entry = self._entries.get(self.next_entry)
        found: list[ReadOrder] = []
        for member in self.metadata.write_set(self.next_entry):
            if member not in self._asked and not (entry is not None and entry.heard(member)):
                self._asked[member] = self.next_entry
                found.append(
                    ReadOrder(member, self.next_entry, self.next_entry + self._read_ahead - 1)
                )
        return found

    def answered(self, order: ReadOrder, records: Sequence[Record], code: int) -> None:
        """Handle an answer.

        ``records`` are checked and start at ``order.first``; ``code`` says why the next one did not
        come.
        """
        self._asked.pop(order.member, None)
        for offset, record in enumerate(records):
            assert record.entry_id == order.first + offset
            if record.entry_id >= self.next_entry:
                self._entry(record.entry_id).record = record
        after = order.first + len(records)
        if after > order.last or after < self.next_entry or (code == OK and records):
            return
        if code in _NEGATIVE:
            self._entry(after).negative.append(order.member)
        else:
            # Neither the entry nor a reason. This is an error: a bookie must send one entry,
            # however large.
            self._unknown(
                after,
                order.member,
                type(error_from_code(code, "")).__name__ if code else "no answer",
            )

    def shown(self, order: ReadOrder, records: Sequence[Record], code: int) -> None:
        """Handle what a member read from its LAC on when its fence was durable, before ``orders``.

        That is a fencing read. What it does not decide is asked again, also after an error: the
        bookie read many ledgers together. A run that begins behind the next entry says nothing of
        the entries between; a member that knew a later LAC than the others may answer so, late. Nor
        does one of a striped ledger: its member misses entries that it should not have.
        """
        is_striped = self.metadata.write_quorum != self.metadata.ensemble_size
        is_negative = code in _NEGATIVE
        if not is_striped and order.first <= self.next_entry and (records or is_negative):
            self.answered(order, records, code if is_negative else OK)

    def failed(self, order: ReadOrder, records: Sequence[Record], why: str) -> None:
        """Handle a failure after ``records``. It says nothing about the next entry."""
        self._asked.pop(order.member, None)
        for record in records:
            if record.entry_id >= self.next_entry:
                self._entry(record.entry_id).record = record
        after = order.first + len(records)
        if self.next_entry <= after <= order.last:
            self._unknown(after, order.member, why)

    def _unknown(self, entry_id: int, member: str, why: str) -> None:
        if member in self._given_up:
            self._entry(entry_id).negative.append(member)
        else:
            self._entry(entry_id).unknown[member] = why

    @property
    def verdict(self) -> ReadVerdict:
        """The verdict about the next entry."""
        entry = self._entries.get(self.next_entry)
        if entry is None:
            return ReadVerdict.WAITING
        if entry.record is not None:
            return ReadVerdict.FOUND
        if len(entry.negative) >= self._needed:
            return ReadVerdict.END
        if len(entry.negative) + len(entry.unknown) == self.metadata.write_quorum:
            return ReadVerdict.UNDECIDED
        return ReadVerdict.WAITING

    def take(self, entries_max: int, bytes_max: int) -> list[Record]:
        """Return the entries found from the next one on, without a gap, and move the next one
        behind them.

        Args:
            entries_max: how many at most.
            bytes_max: their payloads at most, besides the first one's, which is returned whatever
                its size.
        """
        found: list[Record] = []
        size_bytes = 0
        while (
            len(found) < entries_max
            and (entry := self._entries.get(self.next_entry)) is not None
            and entry.record is not None
        ):
            size_bytes += len(entry.record.payload)
            if found and size_bytes > bytes_max:
                break
            found.append(entry.record)
            del self._entries[self.next_entry]
            self.next_entry += 1
        return found

    def what_was_said(self) -> str:
        """The answers about the next entry, for an error text."""
        entry = self._entries.get(self.next_entry, _Entry())
        said = [f"{member}: not there" for member in entry.negative] + [
            f"{member}: {why}" for member, why in entry.unknown.items()
        ]
        return ", ".join(said) or "nothing was heard"

    def check(self) -> None:
        """Assert the invariants."""
        for entry_id, entry in self._entries.items():
            assert entry_id >= self.next_entry
            members = self.metadata.write_set(entry_id)
            heard = [*entry.negative, *entry.unknown]
            assert len(set(heard)) == len(heard), "a member counts twice"
            assert all(member in members for member in heard), (
                "a member outside the write set counts"
            )

    def _entry(self, entry_id: int) -> _Entry:
        return self._entries.setdefault(entry_id, _Entry())
