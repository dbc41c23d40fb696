"""The decisions of a ledger's writer: which entries are confirmed, and when the ensemble must
change. No I/O, no clock, no randomness.

The window is everything after the last confirmed entry (LAC). For each place of the ensemble one
integer has a bit for each entry of the window; the lowest bit is for entry LAC + 1. A bit is set
once the member at that place has the entry on disk. So an answer for a range of entries is one
shift and one "or", whatever its length. To un-count a replaced member (rule 3), set its integer to
zero.

Promises:
* An entry is confirmed when Qa distinct members of the stored ensemble have it. Entries are
  confirmed strictly in order, and never while a failure is not handled yet or a change is being
  stored (rules 2 and 3).
* Failures are collected. One change is stored at a time. New members count only once it is stored.
* A member that cannot be replaced is left out while every write quorum can still reach Qa without
  it. Otherwise the writer ends.
* When a member is given up before it has all its copies of confirmed entries, it is named, to be
  published as under-replicated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.model.position import NO_ENTRY

__all__ = ["Change", "WriterCore"]

# entries of a window that the first stripes are for; longer stripes are made when the window grows
_STRIPE_LENGTH: Final = 1024
_STRIPES_KEPT: Final = 64
_ENSEMBLES_KEPT: Final = 1_000


@dataclass(frozen=True, slots=True)
class Change:
    """One ensemble change.

    ``planned`` must be stored before anything else happens. ``replaced`` are the places that get a
    new member. ``missing_members`` are the members given up whose copies are missing; they are
    published with the change.
    """

    planned: LedgerMetadata
    replaced: tuple[int, ...]
    missing_members: tuple[str, ...]


@lru_cache(maxsize=_STRIPES_KEPT)
def _stripes(ensemble_size: int, write_quorum: int, length: int) -> tuple[int, ...]:
    """Return for each place an integer in which bit e is set when the place holds entry e, at least
    for all e below the length.

    All ledgers with these quorums share the result. A broker has as many ledgers as topics.
    """
    repeat = sum(1 << (ensemble_size * number) for number in range(-(-length // ensemble_size)))
    return tuple(
        sum(
            1 << entry
            for entry in range(ensemble_size)
            if (index - entry) % ensemble_size < write_quorum
        )
        * repeat
        for index in range(ensemble_size)
    )


@lru_cache(maxsize=_ENSEMBLES_KEPT)
def _places(members: tuple[str, ...]) -> Mapping[str, int]:
    """Return the place of each member. All ledgers with this ensemble share the result."""
    return {member: index for index, member in enumerate(members)}


class WriterCore:
    """The state of one ledger's writer.

    Members are named by instance id; places are indexes in the ensemble.
    """

    __slots__ = (
        "_acked",
        "_change",
        "_failed",
        "_missing",
        "_places",
        "_stripe_length",
        "_stripes",
        "_unanswered",
        "confirmed",
        "metadata",
        "pushed",
    )

    def __init__(self, metadata: LedgerMetadata, *, confirmed: int = NO_ENTRY) -> None:
        """Start after the entry ``confirmed``: -1 for a new ledger, the LAC found for a
        recovery.
        """
        assert confirmed >= metadata.last_segment.first_entry - 1
        self.metadata = metadata
        self.confirmed = confirmed
        self.pushed = confirmed
        count = metadata.ensemble_size
        self._acked = [0] * count
        # confirmed entries that were sent to the member at this place and that it has not answered
        self._unanswered = [0] * count
        self._failed: list[int] = []  # places that need a new member, in the order of their failure
        self._missing: list[int] = []  # places left out because no bookie could replace them
        self._change: Change | None = None
        self._places = _places(metadata.last_segment.members)
        self._stripe_length = _STRIPE_LENGTH
        self._stripes = _stripes(count, metadata.write_quorum, _STRIPE_LENGTH)

    # -- what is known

    @property
    def members(self) -> tuple[str, ...]:
        """The ensemble that metadata holds now."""
        return self.metadata.last_segment.members

    @property
    def changing(self) -> bool:
        return self._change is not None

    @property
    def failed(self) -> tuple[int, ...]:
        """The places that wait for a change; empty while one is being stored.

        The next change starts after that.
        """
        return () if self._change is not None else tuple(self._failed)

    @property
    def missing(self) -> tuple[int, ...]:
        """The places left out because no bookie could replace their members."""
        return tuple(self._missing)

    @property
    def window_count(self) -> int:
        return self.pushed - self.confirmed

    def place_of(self, member: str) -> int | None:
        return self._places.get(member)

    def takes(self, index: int) -> bool:
        """Whether entries are sent to this place: not while its member has failed, is missing or is
        being replaced.
        """
        if index in self._missing or index in self._failed:
            return False
        return self._change is None or index not in self._change.replaced

    def holds(self, index: int, entry_id: int) -> bool:
        """Whether the place is in the entry's write set (rule 1)."""
        return (index - entry_id) % self.metadata.ensemble_size < self.metadata.write_quorum

    def outstanding(self, index: int) -> bool:
        """Whether the member at this place owes an answer."""
        return self._unanswered[index] > 0 or bool(self._window(index) & ~self._acked[index])

    def missing_members_after_close(self) -> tuple[str, ...]:
        """The members that will not get all their confirmed entries: those left out now.

        A member that is only late is not among them, because it may still answer.
        """
        return tuple(self.members[index] for index in sorted(self._missing))

    def missing_members(self) -> tuple[str, ...]:
        """The members left out, and those that have not answered for all confirmed entries of
        theirs.
        """
        return tuple(
            member
            for index, member in enumerate(self.members)
            if self._unanswered[index] > 0 or index in self._missing
        )

    def viable_without(self, places: tuple[int, ...]) -> bool:
        """Whether every write quorum still has Qa members without these places and the ones already
        missing.
        """
        size, quorum, need = (
            self.metadata.ensemble_size,
            self.metadata.write_quorum,
            self.metadata.ack_quorum,
        )
        gone = [index in places or index in self._missing for index in range(size)]
        return all(
            quorum - sum(gone[(start + step) % size] for step in range(quorum)) >= need
            for start in range(size)
        )

    # -- events

    def push(self, count: int) -> int:
        """Note that ``count`` more entries are handed to the members.

        Return the id of the first.
        """
        first = self.pushed + 1
        self.pushed += count
        while self.window_count + self.metadata.ensemble_size > self._stripe_length:
            self._stripe_length *= 2
            self._stripes = _stripes(
                self.metadata.ensemble_size, self.metadata.write_quorum, self._stripe_length
            )
        return first

    def acked(self, member: str, first: int, last: int) -> None:
        """Note that a member has entries ``first..last`` on disk.

        A bookie that is not a member any more does not count (rule 2).
        """
        index = self._places.get(member)
        if index is None or last > self.pushed:
            return
        base = self.confirmed + 1
        if first < base:
            late = min(last, self.confirmed) - first + 1
            self._unanswered[index] = max(
                0, self._unanswered[index] - self._stripe_count(index, first, late)
            )
            first = base
        if first <= last:
            bits = ((1 << (last - first + 1)) - 1) << (first - base)
            self._acked[index] |= bits & self._window(index)

    def fail(self, member: str) -> bool:
        """Note that a member failed.

        Returns:
            Whether a change is needed. False when the bookie is not a member, or is known to have
            failed.
        """
        index = self._places.get(member)
        if index is None or not self.takes(index):
            return False
        self._failed.append(index)
        return True

    def confirm(self) -> int:
        """Confirm the entries that can be confirmed.

        Return their number. Call it after every event.
        """
        if self._failed or self._change is not None:
            return 0
        # at_least[k]: bits of the entries that k or more members have.
        need = self.metadata.ack_quorum
        at_least = [0] * (need + 1)
        at_least[0] = -1
        for bits in self._acked:
            for k in range(need, 0, -1):
                at_least[k] |= at_least[k - 1] & bits
        enough = at_least[need]
        count = (~enough & (enough + 1)).bit_length() - 1  # the run of ones at the bottom
        if count == 0:
            return 0
        mask = (1 << count) - 1
        for index, bits in enumerate(self._acked):
            owed = self._window(index) & mask
            self._unanswered[index] += (owed & ~bits).bit_count()
            self._acked[index] = bits >> count
        self.confirmed += count
        return count

    def begin_change(self, replacements: Mapping[int, str]) -> Change:
        """Start the one change for all failures known now and for missing places that can be filled
        again.

        Args:
            replacements: the new member of each place that gets one. A failed place without one is
                left out from now on.
        """
        assert self._change is None
        assert self.metadata.state is not LedgerState.CLOSED
        members = list(self.members)
        missing_members = []
        for index in sorted({*self._failed, *replacements}):
            assert index in self._failed or index in self._missing
            if self._unanswered[index] > 0 or index not in replacements or index in self._missing:
                missing_members.append(members[index])
            if index in replacements:
                assert replacements[index] not in members
                members[index] = replacements[index]
            else:
                self._missing.append(index)
        self._failed.clear()
        planned = self.metadata
        if replacements:
            planned = planned.with_members(self.confirmed + 1, tuple(members))
        self._change = Change(planned, tuple(sorted(replacements)), tuple(missing_members))
        return self._change

    def change_stored(self, stored: LedgerMetadata) -> tuple[int, ...]:
        """Continue after the change was stored.

        ``stored`` may differ in earlier segments, which auto-recovery repaired meanwhile.

        Returns:
            The places whose new members must now get every entry of the window (rule 3).
        """
        change = self._change
        assert change is not None
        assert stored.last_segment == change.planned.last_segment
        self._change = None
        self.metadata = stored
        self._places = _places(stored.last_segment.members)
        for index in change.replaced:
            self._acked[index] = 0
            self._unanswered[index] = 0
            if index in self._missing:
                self._missing.remove(index)
        return change.replaced

    def rejoin(self, index: int) -> None:
        """Use the member at this place again, which was left out.

        It must get every entry of the window that it misses.
        """
        assert self._change is None
        self._missing.remove(index)
        # Its missing entries were published as under-replicated when it was left out. From here on
        # it owes only what is sent to it.
        self._unanswered[index] = 0

    def lacks(self, index: int, entry_id: int) -> bool:
        """Whether an entry of the window still has to reach the member at this place."""
        return bool(
            self._window(index) & ~self._acked[index] & (1 << (entry_id - self.confirmed - 1))
        )

    def silent(self) -> tuple[str, ...]:
        """The members that owe an answer for the oldest entry of the window."""
        if not self.window_count:
            return ()
        oldest = self.confirmed + 1
        return tuple(
            member
            for index, member in enumerate(self.members)
            if self.takes(index) and self.lacks(index, oldest)
        )

    def check(self) -> None:
        """Assert the invariants."""
        self.metadata.check()
        assert self.metadata.last_segment.first_entry - 1 <= self.confirmed <= self.pushed
        assert [self._places[member] for member in self.members] == list(range(len(self.members)))
        for index, bits in enumerate(self._acked):
            assert bits & ~self._window(index) == 0, (
                "a member answered for an entry that it was never sent"
            )
            assert self._unanswered[index] >= 0
        assert not set(self._failed) & set(self._missing)

    # -- helpers

    def _window(self, index: int) -> int:
        """Return the bits of the window's entries that the place holds."""
        count = self.pushed - self.confirmed
        ones = (1 << count) - 1
        if self.metadata.write_quorum == self.metadata.ensemble_size:
            return ones
        return (self._stripes[index] >> ((self.confirmed + 1) % self.metadata.ensemble_size)) & ones

    def _stripe_count(self, index: int, first: int, count: int) -> int:
        """Count those of ``count`` entries from ``first`` on that the place holds."""
        if self.metadata.write_quorum == self.metadata.ensemble_size:
            return count
        return sum(self.holds(index, entry) for entry in range(first, first + count))
