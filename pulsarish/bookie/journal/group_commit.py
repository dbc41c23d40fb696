"""Group commit of the journal, without I/O: which records to write next, and when to answer them.

A record gets its sequence number when it is appended. All waiting records are taken as one group,
and one group is in flight at a time. A record is answered only after the sync that covers it has
returned, and answers go out in the order of the records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pulsarish.bookie.journal.journal_format import Buffer, RecordType, padded_size

__all__ = ["Group", "GroupCommit", "Pending"]


@dataclass(frozen=True, slots=True)
class Pending:
    """A record that waits.

    With ``kind`` None it is only a place in the order: it is answered when all before it are.
    """

    sequence: int
    kind: RecordType | None
    parts: Sequence[Buffer]
    size_bytes: int
    durable: Callable[[], None] | None


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive records that are written and synced together."""

    records: list[Pending]
    size_bytes: int  # on disk
    next_sequence: int


class GroupCommit:
    """The journal's queue.

    Args:
        next_sequence: of the first record; all before it are durable.
        group_size_bytes: the most that a group takes on disk; a larger record goes alone.
    """

    def __init__(self, next_sequence: int, group_size_bytes: int) -> None:
        self.next_sequence = next_sequence
        self.synced_sequence = next_sequence
        """Every record with a smaller sequence is durable."""
        self.answered_sequence = next_sequence
        """Every record with a smaller sequence was reported durable to its caller."""
        self.waiting_bytes = 0
        """Bytes that were appended and are not synced."""
        self._group_size_bytes = group_size_bytes
        self._waiting: deque[Pending] = deque()
        self._out: Group | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def append(
        self,
        kind: RecordType,
        parts: Sequence[Buffer],
        size_bytes: int,
        durable: Callable[[], None] | None,
    ) -> int:
        """Queue a record and return its sequence.

        ``durable`` is called in the loop once the record is synced.
        """
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        self.waiting_bytes += size_bytes
        self._waiting.append(Pending(sequence, kind, parts, size_bytes, durable))
        return sequence

    @property
    def waiting_count(self) -> int:
        """Records and barriers that wait to be written."""
        return len(self._waiting)

    def append_barrier(self, durable: Callable[[], None]) -> None:
        """Queue an answer that needs no record but must not overtake the answers before it."""
        self._waiting.append(Pending(self.next_sequence, None, (), 0, durable))

    def take(self) -> Group:
        """Take everything that waits, up to the size of a group."""
        assert self._out is None, "one group is out at a time"
        records: list[Pending] = []
        size_bytes = 0
        while self._waiting:
            pending = self._waiting[0]
            added_bytes = 0 if pending.kind is None else padded_size(pending.size_bytes)
            if records and size_bytes + added_bytes > self._group_size_bytes:
                break
            records.append(self._waiting.popleft())
            size_bytes += added_bytes
        last = records[-1]
        self._out = Group(records, size_bytes, last.sequence + (last.kind is not None))
        return self._out

    def synced(self, group: Group) -> None:
        """Note that the sync that covers the group has returned."""
        assert group is self._out
        self._out = None
        self.synced_sequence = group.next_sequence
        self.waiting_bytes -= sum(pending.size_bytes for pending in group.records)

    def answer(self, group: Group) -> None:
        """Call the callbacks of the group, in order.

        The answered sequence never passes the synced one (rule 9).
        """
        for pending in group.records:
            self.answered_sequence = pending.sequence + (pending.kind is not None)
            assert self.answered_sequence <= self.synced_sequence, (
                "a record would be acknowledged before it is durable"
            )
            if pending.durable is not None:
                pending.durable()
        self.check()

    def check(self) -> None:
        """Assert the invariants."""
        assert self.answered_sequence <= self.synced_sequence <= self.next_sequence
        assert self.waiting_bytes >= 0
        if not self._waiting and self._out is None:
            assert self.synced_sequence == self.next_sequence
            assert self.waiting_bytes == 0
