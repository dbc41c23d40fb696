"""What a subscription reads next: the core that plans reads ahead of its consumers.

New entries are read in order from ``position``. Entries to be redelivered are read first. At most
one read is in flight. A failed read is retried after a wait that doubles within configured bounds,
and no entry loses its place. The reason of the failure and its start stay visible until a read
succeeds.

With a ``PriorityWindow`` what was read waits there instead, by priority: new entries are read ahead
up to the window's size, and what is next by priority is read for delivery.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from pulsarish.broker.dispatchers.chunks import Chunk
from pulsarish.broker.dispatchers.delayed import DelayedEntries
from pulsarish.broker.dispatchers.priority_window import PriorityWindow, pop_run
from pulsarish.model.position import Position
from pulsarish.runtime.backoff import Backoff

__all__ = ["Read", "ReadLimits", "Reads", "Ready", "has_expired"]

_RELEASED_READS_MAX: Final = 10  # due entries that may wait to be read, as a multiple of one read
_SPARSE_MAX: Final = 4  # entries that a read may bring for each one to be redelivered


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of the reads of one subscription."""

    entries_max: int
    bytes_max: int
    backoff_min_seconds: float
    backoff_max_seconds: float
    delayed_max: int = 1 << 62
    """Delayed entries that only memory has; at this number nothing new is read."""


class Ready(NamedTuple):
    """An entry that was read and waits for a consumer."""

    position: Position
    payload: bytes | memoryview
    messages: int
    ack_set: bytes | None
    key_hash: int = 0  # of its sticky key, if a key-shared subscription needs it
    due_ms: int = 0  # not to be delivered before this time (wall clock); 0: at once
    # set for a part of a message that a shared subscription must not divide
    chunk: Chunk | None = None
    expires_ms: int = 0  # not to be delivered from this time on (wall clock); 0: never expires


def has_expired(entry: Ready, now_ms: int) -> bool:
    """Whether an entry has expired, by the wall clock."""
    return 0 < entry.expires_ms <= now_ms


class Read(NamedTuple):
    """A read to carry out: up to ``entries_max`` entries from ``start`` on.

    ``again``: keep only these, for redelivery. ``priority``: what they wait with, when they were
    read before and are read for delivery now; ``None``: not known.
    """

    start: Position
    entries_max: int
    epoch: int
    again: tuple[Position, ...]
    priority: int | None = None


class Reads:
    """The plan of reads of one subscription.

    ``acknowledged`` says whether an entry needs no delivery any more.
    """

    def __init__(
        self, position: Position, limits: ReadLimits, acknowledged: Callable[[Position], bool]
    ) -> None:
        self.position = position
        self.ready: deque[Ready] = deque()
        self.ready_again: deque[Ready] = deque()
        self.gone: Sequence[Position] = ()
        """Entries that the last read for redelivery did not find: no longer in the log, or
        acknowledged.
        """
        self.delayed = DelayedEntries(limits.delayed_max)
        self.first_expiry_ms = 0
        """No ready entry expires before this time (wall clock); 0: none expires."""
        self.failure: str = ""
        self.failed_since_ms = 0
        self.window: PriorityWindow[Ready] | None = None
        """Where entries wait by priority; ``None``: in log order, in ``ready`` and
        ``ready_again``.
        """
        self._limits = limits
        self._acknowledged = acknowledged
        self._again: list[Position] = []  # a heap
        self._again_members: set[Position] = set()
        self._epoch = 0
        self._out: Read | None = None
        self._entries = limits.entries_max
        self._backoff = Backoff(limits.backoff_min_seconds, limits.backoff_max_seconds)
        self._empty_at: Position | None = None  # end of the log at which a read found nothing

    @property
    def again_count(self) -> int:
        """Number of entries that wait for redelivery."""
        return (
            len(self._again)
            + len(self.ready_again)
            + (len(self._out.again) if self._out is not None else 0)
        )

    @property
    def waiting_count(self) -> int:
        """Number of entries that are ready or must be read again, without those of the read in
        flight.
        """
        return len(self._again) + len(self.ready_again) + len(self.ready) + self.ahead_count

    @property
    def ahead_count(self) -> int:
        """Number of entries that wait by priority."""
        return 0 if self.window is None else len(self.window)

    def at_end(self, end: Position) -> bool:
        """Return whether all new entries up to ``end``, the end of the log, were read."""
        return self.position > end or self._empty_at == end

    def waits_at(self, position: Position) -> bool:
        """Return whether the entry at ``position`` is read next, and everything before it was
        delivered.
        """
        return (
            self.position == position
            and self._out is None
            and not (self.ready or self.ready_again or self._again or self.window or self.delayed)
        )

    # -- priorities

    def prioritise(self, entries_max: int) -> None:
        """Let entries wait by priority, up to ``entries_max`` of them; 0: in log order.

        No entry is lost or comes twice, whatever waits and is being read.
        """
        window = self.window
        if entries_max and window is None:
            window = self.window = PriorityWindow(self._limits.entries_max, self._limits.bytes_max)
            window.add_unsorted(self._again)
            self._again.clear()
            self._again_members.clear()
            for waiting in (self.ready_again, self.ready):
                window.add(waiting)
                waiting.clear()
        elif not entries_max and window is not None:
            self.window = None
            self.deliver_again(window.positions)
        if self.window is not None:
            self.window.entries_max = entries_max

    def line_up(self, end: Position, messages_max: int, *, new_allowed: bool) -> None:
        """Move what is next by priority to ``ready_again``, as far as its payload is there, up to
        ``messages_max`` messages.

        Nothing is moved before everything was looked at that the window has room for, because a
        higher priority may be among it. While reads fail, nothing is waited for.
        """
        assert self.window is not None
        self.position = self.delayed.next_to_read(self.position)
        if self.failure or not (
            self.window.unsorted_count or self._looks_ahead(end, new_allowed=new_allowed)
        ):
            self.ready_again.extend(self.window.take_kept(messages_max, self._is_gone))

    def _is_gone(self, position: Position) -> bool:
        gone = self._acknowledged(position)
        if gone:
            self.gone = (*self.gone, position)
        return gone

    def put_back(self) -> None:
        """Let what was lined up and not delivered wait again."""
        assert self.window is not None
        self.window.add(self.ready_again)
        self.ready_again.clear()

    def _looks_ahead(self, end: Position, *, new_allowed: bool) -> bool:
        """Return whether new entries are to be read ahead."""
        assert self.window is not None
        return (
            new_allowed
            and self.window.has_room
            and not self.delayed.is_full
            and self.position <= end
            and self._empty_at != end
        )

    def _plan_by_priority(
        self, window: PriorityWindow[Ready], end: Position, *, new_allowed: bool
    ) -> Read | None:
        # After a failure what is known is delivered first: an entry that no bookie answers for may
        # be far ahead, and must not hold up the others.
        must_look = not (self.failure and window.has_sorted)
        if must_look and window.unsorted_count:
            return self._read_again(window.take_unsorted(self._entries), None)
        if must_look and self._looks_ahead(end, new_allowed=new_allowed):
            entries_max = min(self._entries, window.step)
            entries_max = self.delayed.read_length(self.position, entries_max)
            return Read(self.position, entries_max, self._epoch, ())
        run, priority = window.take_first(self._entries)
        return self._read_again(run, priority) if run else None

    def plan(self, end: Position, *, new_allowed: bool) -> Read | None:
        """Return the next read; ``None`` when one is in flight, enough is ready, or nothing is left
        up to ``end``.
        """
        if self._out is not None:
            return None
        self.position = self.delayed.next_to_read(self.position)
        if self.window is not None:
            self._out = self._plan_by_priority(self.window, end, new_allowed=new_allowed)
        elif self._again and not self.ready_again:
            self._out = self._plan_again()
        elif (
            new_allowed
            and len(self.ready) < self._entries
            and not self.delayed.is_full
            and self.position <= end
            and self._empty_at != end
        ):
            entries_max = self.delayed.read_length(self.position, self._entries)
            self._out = Read(self.position, entries_max, self._epoch, ())
        return self._out

    def _plan_again(self) -> Read:
        run = pop_run(self._again, self._entries, _SPARSE_MAX)
        self._again_members.difference_update(run)
        return self._read_again(run, None)

    def _read_again(self, run: Sequence[Position], priority: int | None) -> Read:
        entries_max = run[-1].entry_id - run[0].entry_id + 1
        return Read(run[0], entries_max, self._epoch, tuple(run), priority)

    def is_current(self, read: Read) -> bool:
        """Return whether delivery has not started again since a read was planned."""
        return read.epoch == self._epoch

    def succeeded(self, read: Read, entries: Sequence[Ready], end: Position) -> None:
        """Handle the entries of a read.

        No entries: nothing exists up to ``end``, the end of the log at the time of the read.
        """
        self._out = None
        self.failure, self.failed_since_ms = "", 0
        self._backoff.reset()
        self._entries = min(self._entries * 2, self._limits.entries_max)
        if read.epoch != self._epoch:
            return
        if read.again:
            wanted = set(read.again)
            found = [
                entry
                for entry in entries
                if entry.position in wanted and not self._acknowledged(entry.position)
            ]
            # An entry that was delivered before, or was due once, is not delayed again, even if the
            # wall clock is set back.
            if self.window is None:
                self.ready_again.extend(found)
            else:
                self.window.add(found)
            self.gone = tuple(wanted.difference(entry.position for entry in found))
            # A read may end early because of its size: the rest is read next.
            last = entries[-1].position if entries else None
            if last is not None:
                self.gone = tuple(position for position in self.gone if position <= last)
                rest = [position for position in read.again if position > last]
                if self.window is None or read.priority is None:
                    self.deliver_again(rest)
                else:
                    self.window.put_back(rest, read.priority)
            return
        if not entries:
            self._empty_at = end
            return
        self._empty_at = None
        last = entries[-1].position
        self.position = Position(last.ledger_id, last.entry_id + 1)
        acknowledged, delayed = self._acknowledged, self.delayed
        left = [entry for entry in entries if not acknowledged(entry.position)]
        if delayed.reaches(entries[0].position):
            left = [entry for entry in left if not delayed.holds(entry.position)]
        self._arrived(self._due(left))

    def came(self, entries: Sequence[Ready]) -> None:
        """Take entries that came without a read and are the next ones in order."""
        last = entries[-1].position
        self.position = Position(last.ledger_id, last.entry_id + 1)
        self._arrived(entries)

    def _arrived(self, entries: Sequence[Ready]) -> None:
        if self.window is None:
            self.ready.extend(entries)
        else:
            self.window.add(entries)

    def note_expiry(self, expires_ms: int) -> None:
        """Note that a ready entry, or one of a read in flight, expires at a time."""
        self.first_expiry_ms = min(self.first_expiry_ms or expires_ms, expires_ms)

    def take_expired(self, now_ms: int) -> list[Position]:
        """Remove the ready entries that have expired, and return them."""
        expired: list[Position] = []
        for ready in (self.ready, self.ready_again):
            gone = [each.position for each in ready if has_expired(each, now_ms)]
            if gone:
                expired += gone
                kept = [each for each in ready if not has_expired(each, now_ms)]
                ready.clear()
                ready.extend(kept)
        waiting = [each.expires_ms for each in (*self.ready, *self.ready_again) if each.expires_ms]
        self.first_expiry_ms = min(waiting, default=0)
        if self.window is not None:
            expired += self.window.take_expired(partial(has_expired, now_ms=now_ms))
            self.first_expiry_ms = self.window.first_expiry_ms()
        return expired

    def drop_ready(self) -> int:
        """Drop all ready entries and those that must be read again.

        Return how many messages these were.
        """
        messages = sum([entry.messages for entry in self.ready]) + len(self._again)
        messages += self.ahead_count
        if self.window is not None:
            self.window.clear()
        self.ready.clear()
        self._again.clear()
        self._again_members.clear()
        return messages

    def _due(self, entries: list[Ready]) -> list[Ready]:
        """Return the entries to deliver now; keep the delayed ones for later."""
        if not any(entry.due_ms for entry in entries):
            return entries
        for entry in entries:
            if entry.due_ms:
                self.delayed.add(entry.position, entry.due_ms)
        return [entry for entry in entries if not entry.due_ms]

    def release(self, now_ms: int) -> None:
        """Redeliver entries that are due now, as many as can be read soon.

        The others stay in the compact form.
        """
        if self.delayed:
            due = self.delayed.take_due(now_ms, self._release_room)
            self.deliver_again([each for each in due if not self._acknowledged(each)])

    def wait_ms(self, now_ms: int) -> int | None:
        """Return the milliseconds until a delayed entry is due and can be released; ``None``: no
        entry is delayed.
        """
        due_ms = self.delayed.next_ready_ms
        return None if due_ms is None or not self._release_room else max(0, due_ms - now_ms)

    @property
    def _release_room(self) -> int:
        room = _RELEASED_READS_MAX * self._limits.entries_max
        if self.window is not None:
            # What is due competes with what was read ahead, beyond the window's size.
            room += self.window.entries_max - len(self.window)
        return max(0, room - len(self._again))

    def failed(self, read: Read, reason: str, now_ms: int) -> float:
        """Handle a failed read. Return the seconds to wait before the next one."""
        self._out = None
        if read.epoch == self._epoch and read.again:
            # With priorities it waits unsorted: what is known comes first while reads fail.
            self.deliver_again(read.again)
        if not self.failure:
            self.failed_since_ms = now_ms
        self.failure = reason
        self._entries = 1
        return self._backoff.next_seconds()

    def deliver_again(self, positions: Iterable[Position]) -> None:
        """Read and deliver these entries again, the lowest position first, or by priority."""
        if self.window is not None:
            self.window.add_unsorted(positions)
            return
        for position in positions:
            if position not in self._again_members:
                self._again_members.add(position)
                heapq.heappush(self._again, position)

    def rewind(self, position: Position) -> None:
        """Start again from a position. The answer of a read in flight is ignored."""
        self._epoch += 1
        self.position = position
        self.gone = ()
        self.first_expiry_ms = 0
        self.delayed.rewind(position)
        self.ready.clear()
        self.ready_again.clear()
        self._again.clear()
        self._again_members.clear()
        if self.window is not None:
            self.window.clear()
        self._empty_at = None

    def restart(self) -> None:
        """Plan the read in flight again; its answer is ignored if it still comes.

        Ready entries stay ready.
        """
        self._epoch += 1
        self._empty_at = None
        if self._out is not None:
            again, self._out = self._out.again, None
            self.deliver_again(again)

    def coming(self) -> set[Position]:
        """Return the entries to be redelivered that are ready or must be read, and all that wait
        by priority.
        """
        found = self._again_members.union(entry.position for entry in self.ready_again)
        return found if self.window is None else found.union(self.window.positions)

    def waiting(self) -> set[Position]:
        """Return the entries that are ready or must be read again."""
        found = self.coming().union(entry.position for entry in self.ready)
        return found if self._out is None else found.union(self._out.again)

    def check(self) -> None:
        self.delayed.check()
        assert len(self._again) == len(self._again_members)
        if self.window is not None:
            self.window.check()
            assert not [*self.ready, *self.ready_again, *self._again]
        previous: Position | None = None
        for entry in self.ready:
            assert entry.position < self.position
            assert previous is None or previous < entry.position
            previous = entry.position
