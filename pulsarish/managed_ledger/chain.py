"""The chain of a topic's ledgers: which positions exist, the number of entries between two, and the
order of positions. No I/O.

Counting uses ordinals: the number of entries before a ledger in the log, counted from the oldest
ledger at the time the chain was loaded. Trimming drops ledgers from the front and changes no
ordinal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from pulsarish.managed_ledger.ledger_counts import UNKNOWN, LedgerCounts
from pulsarish.metadata.records import LostRange, TopicLedger
from pulsarish.model.position import NO_ENTRY, Position

__all__ = ["Chain", "Link"]


class Link:
    """One ledger. While it is open, ``entries`` and ``size_bytes`` count what is confirmed."""

    __slots__ = (
        "_messages",
        "closed_ms",
        "counts",
        "entries",
        "ledger_id",
        "own_times_ms",
        "size_bytes",
        "start",
    )

    def __init__(
        self,
        ledger_id: int,
        entries: int,
        size_bytes: int,
        closed_ms: int,
        start: int,
        own_times_ms: int,
        messages: int = UNKNOWN,
    ) -> None:
        self.ledger_id = ledger_id
        self.entries = entries
        self.size_bytes = size_bytes
        self.closed_ms = closed_ms  # wall clock; 0 while the ledger is open
        self.start = start  # the ordinal of its first entry
        self.own_times_ms = own_times_ms  # see ``TopicLedger``
        self._messages = messages
        self.counts: LedgerCounts | None = None
        """What is known of the messages in its entries since this owner has opened the topic."""

    @property
    def last_position(self) -> Position:
        return Position(self.ledger_id, self.entries - 1)

    @property
    def messages_total(self) -> int:
        """The messages in all its entries that are not lost; ``UNKNOWN``."""
        if self._messages != UNKNOWN:
            return self._messages
        total = UNKNOWN if self.counts is None else self.counts.total(self.entries)
        if self.closed_ms:
            self._messages = total
        return total


class Chain:
    """Links in the order of the log; only the last may be open.

    ``lost``: entries that an operator's command skipped. They keep their positions and count in
    sizes, but no position leads to them.
    """

    __slots__ = ("_ids", "_links", "_lost")

    def __init__(self, ledgers: Iterable[TopicLedger], lost: Iterable[LostRange] = ()) -> None:
        self._lost = sorted(lost, key=lambda each: (each.ledger_id, each.first_entry))
        self._links: list[Link] = []
        self._ids: list[int] = []
        for ledger in ledgers:
            # What is stored may count the lost entries.
            is_counted = not self.has_lost(ledger.ledger_id)
            self._push(ledger, ledger.messages if is_counted else UNKNOWN)

    def __len__(self) -> int:
        return len(self._links)

    @property
    def links(self) -> Sequence[Link]:
        return self._links

    @property
    def current(self) -> Link | None:
        """The open ledger, if there is one."""
        return self._links[-1] if self._links and self._links[-1].closed_ms == 0 else None

    @property
    def entries(self) -> int:
        return self._end - self._links[0].start if self._links else 0

    @property
    def size_bytes(self) -> int:
        return sum(link.size_bytes for link in self._links)

    @property
    def _end(self) -> int:
        """The ordinal after the last entry."""
        return self._links[-1].start + self._links[-1].entries if self._links else 0

    # -- changes

    def open_ledger(self, ledger_id: int, own_times_ms: int = 0) -> None:
        """Add an empty ledger. ``own_times_ms``: what is known of the entries that wait for it."""
        assert self.current is None, "two open ledgers"
        self._push(TopicLedger(ledger_id, own_times_ms=own_times_ms))

    def _push(self, ledger: TopicLedger, messages: int = UNKNOWN) -> None:
        assert not self._ids or ledger.ledger_id > self._ids[-1], "ledger ids grow along the chain"
        self._links.append(
            Link(
                ledger.ledger_id,
                ledger.entries,
                ledger.size_bytes,
                ledger.closed_ms,
                self._end,
                ledger.own_times_ms,
                messages,
            )
        )
        self._ids.append(ledger.ledger_id)

    def note_own_time(self, time_ms: int) -> None:
        """Note that an entry with a delivery or expiry time of its own is appended."""
        link = self._links[-1]
        if 0 <= link.own_times_ms < time_ms:
            link.own_times_ms = time_ms

    def has_own_times(self, first_ledger: int, last_ledger: int) -> bool:
        """Whether an entry of these ledgers, ends included, may have a delivery or expiry time of
        its own. It may in a ledger that is not of the chain.
        """
        low, high = bisect_left(self._ids, first_ledger), bisect_right(self._ids, last_ledger)
        if low == high or self._ids[low] != first_ledger:
            return True
        return any(link.own_times_ms for link in self._links[low:high])

    def grow(self, count: int, size_bytes: int) -> None:
        """Note that entries of the open ledger were confirmed."""
        link = self._links[-1]
        assert link.closed_ms == 0
        link.entries += count
        link.size_bytes += size_bytes

    def close_current(self, closed_ms: int) -> None:
        assert self.current is not None
        assert closed_ms > 0
        self._links[-1].closed_ms = closed_ms

    def drop_last(self) -> None:
        """Remove an empty closed ledger from the end."""
        assert self._links[-1].entries == 0
        self._links.pop()
        self._ids.pop()

    def drop_first(self, count: int) -> list[int]:
        """Remove ledgers from the front. Return their ids."""
        assert all(link.closed_ms for link in self._links[:count]), (
            "the current ledger is never trimmed (rule 17)"
        )
        gone = self._ids[:count]
        self._lost = [lost for lost in self._lost if lost.ledger_id not in gone]
        del self._links[:count]
        del self._ids[:count]
        return gone

    # -- positions

    def find(self, ledger_id: int) -> Link | None:
        index = bisect_left(self._ids, ledger_id)
        return (
            self._links[index] if index < len(self._ids) and self._ids[index] == ledger_id else None
        )

    def links_from(self, ledger_id: int) -> Sequence[Link]:
        """Return the ledger of that id, if it is in the chain, and those after it."""
        return self._links[bisect_left(self._ids, ledger_id) :]

    def has_lost(self, ledger_id: int) -> bool:
        """Whether some entries of a ledger are lost."""
        return any(lost.ledger_id == ledger_id for lost in self._lost)

    def contains(self, position: Position) -> bool:
        """Whether a confirmed entry of this chain is at the position."""
        link = self.find(position.ledger_id)
        return link is not None and 0 <= position.entry_id < link.entries

    def lost_at(self, position: Position) -> LostRange | None:
        """Return the range of lost entries that contains a position."""
        for lost in self._lost:
            if (
                lost.ledger_id == position.ledger_id
                and lost.first_entry <= position.entry_id <= lost.last_entry
            ):
                return lost
        return None

    def readable_until(self, position: Position, last_entry: int) -> int:
        """Return the last entry up to ``last_entry`` of the position's ledger before the next lost
        one.
        """
        ahead = [
            lost.first_entry
            for lost in self._lost
            if lost.ledger_id == position.ledger_id and lost.first_entry > position.entry_id
        ]
        return min([last_entry, *(first - 1 for first in ahead)])

    def _lost_up_to(self, position: Position) -> int:
        """Count the lost entries at or before a position."""
        return sum(
            min(lost.last_entry, position.entry_id) - lost.first_entry + 1
            if lost.ledger_id == position.ledger_id
            else _count(lost)
            for lost in self._lost
            if Position(lost.ledger_id, lost.first_entry) <= position
        )

    def first_position(self) -> Position:
        """Return the position of the oldest kept entry, or of the first one that will be."""
        return Position(self._ids[0], 0) if self._ids else Position(0, 0)

    def last_position(self) -> Position:
        """Return the last confirmed entry; the position just before the first one while there is
        none.
        """
        for link in reversed(self._links):
            if link.entries:
                return link.last_position
        return Position(self._ids[0], NO_ENTRY) if self._ids else Position(0, NO_ENTRY)

    def next_position(self, position: Position) -> Position:
        """Return the smallest position above this one that is not lost.

        In the open ledger it may not be written yet.
        """
        following = self._following(position)
        while (lost := self.lost_at(following)) is not None:
            following = self._following(Position(lost.ledger_id, lost.last_entry))
        return following

    def position_before(self, position: Position) -> Position | None:
        """Return the entry before this one, if there is one."""
        if position.entry_id > 0:
            return Position(position.ledger_id, position.entry_id - 1)
        for link in reversed(self._links):
            if link.ledger_id < position.ledger_id and link.entries:
                return link.last_position
        return None

    def _following(self, position: Position) -> Position:
        index = bisect_left(self._ids, position.ledger_id)
        if index < len(self._ids) and self._ids[index] == position.ledger_id:
            link = self._links[index]
            following = Position(position.ledger_id, max(position.entry_id + 1, 0))
            if following.entry_id < link.entries or link.closed_ms == 0:
                return following
            index += 1
        for link in self._links[index:]:
            if link.entries or link.closed_ms == 0:
                return Position(link.ledger_id, 0)
        # Past a sealed or not yet continued end: the entry that would come next there.
        return Position(position.ledger_id, position.entry_id + 1)

    def ordinal(self, position: Position) -> int:
        """Count the entries at or before the position, from the origin of ordinals."""
        index = bisect_right(self._ids, position.ledger_id) - 1
        if index < 0:
            return self._links[0].start if self._links else 0
        link = self._links[index]
        if link.ledger_id < position.ledger_id:
            return link.start + link.entries
        return link.start + min(max(position.entry_id + 1, 0), link.entries)

    def entries_between(self, low: Position, high: Position) -> int:
        """Count the entries p that are not lost with low < p <= high."""
        if high <= low:
            return 0
        lost = self._lost_up_to(high) - self._lost_up_to(low) if self._lost else 0
        return max(0, self.ordinal(high) - self.ordinal(low) - lost)

    def bytes_above(self, position: Position) -> int:
        """Return about how many bytes of entries lie above a position.

        Within its ledger, all entries count as equally large.
        """
        index = bisect_left(self._ids, position.ledger_id)
        size_bytes = sum(link.size_bytes for link in self._links[index:])
        if index < len(self._ids) and self._ids[index] == position.ledger_id:
            link = self._links[index]
            passed = min(max(position.entry_id + 1, 0), link.entries)
            size_bytes -= link.size_bytes * passed // link.entries if link.entries else 0
        return size_bytes

    def last_before_bytes(self, size_bytes: int) -> Position | None:
        """Return the first position with at most ``size_bytes`` after it, as ``bytes_above``
        counts; ``None`` when the chain is smaller.
        """
        left = size_bytes
        for link in reversed(self._links):
            if link.size_bytes > left:
                kept = left * link.entries // link.size_bytes
                return Position(link.ledger_id, link.entries - kept - 1)
            left -= link.size_bytes
        return None

    def position_at(self, ordinal: int) -> Position:
        """Return the position of the entry with this many entries before it (see ``ordinal``).

        It must exist.
        """
        assert self._links
        assert self._links[0].start <= ordinal < self._end
        low, high = 0, len(self._links)
        while high - low > 1:
            middle = (low + high) // 2
            if self._links[middle].start <= ordinal:
                low = middle
            else:
                high = middle
        link = self._links[low]
        return Position(link.ledger_id, ordinal - link.start)

    def record(self) -> tuple[TopicLedger, ...]:
        """Return the chain as metadata stores it. Of an open ledger metadata stores only the id."""
        return tuple(
            TopicLedger(
                link.ledger_id,
                link.entries,
                link.size_bytes,
                link.closed_ms,
                link.own_times_ms,
                link.messages_total,
            )
            if link.closed_ms
            else TopicLedger(link.ledger_id)
            for link in self._links
        )

    def check(self) -> None:
        """Assert order, that only the last ledger is open, and the ordinals."""
        assert self._ids == [link.ledger_id for link in self._links]
        for lost, next_lost in pairwise(self._lost):
            assert (lost.ledger_id, lost.last_entry) < (
                next_lost.ledger_id,
                next_lost.first_entry,
            ), "lost ranges are apart"
        for before, after in pairwise(self._links):
            assert before.ledger_id < after.ledger_id
            assert before.closed_ms > 0, "only the last ledger may be open"
            assert after.start == before.start + before.entries


def _count(lost: LostRange) -> int:
    return lost.last_entry - lost.first_entry + 1
