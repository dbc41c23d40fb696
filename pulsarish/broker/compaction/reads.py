"""What a subscription that reads compacted gets: the topic's compacted view up to its horizon, then
the log.

Promises: a consumer that starts at the beginning gets the newest message of each key and no
tombstones. A consumer that returns in the middle gets everything that brings each key from its old
value to its newest, removals included while tombstones are kept. A reader that has reached the log
stays in the log while it is connected, whatever is compacted in the meantime.

Positions of the view may lie in ledgers that were trimmed. The cursor does not know these, so
delivered and unacknowledged entries of the view are remembered here, in memory. Messages that
compaction removed between two others count as acknowledged once the first of these is acknowledged.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pulsarish.broker.clients.commands import InitialPosition, Subscribe
from pulsarish.broker.compaction.keys import Audience, last_batch_index
from pulsarish.broker.dispatchers.reads import Reads, Ready
from pulsarish.managed_ledger.log_reader import LogEntry
from pulsarish.model.position import EARLIEST, LATEST, NO_ENTRY, Position
from pulsarish.wire.entry import parse_metadata

if TYPE_CHECKING:
    from pulsarish.managed_ledger.cursors.cursor import Cursor
    from pulsarish.managed_ledger.managed_ledger import ManagedLedger
    from pulsarish.managed_ledger.readable_log import ReadableLog
    from pulsarish.managed_ledger.view_log import ViewEntry

__all__ = ["CompactedReads", "last_index"]


class CompactedReads:
    """The compacted reads of one subscription, next to its cursor. A ``ReadSource``."""

    is_compacted = True

    def __init__(self, log: ManagedLedger, cursor: Cursor) -> None:
        self._log = log
        self._cursor = cursor
        self._reached = EARLIEST
        """Where reading in order continues."""
        self._unacked: OrderedDict[Position, None] = OrderedDict()
        """Delivered entries of the view, and where the log began behind it, in order."""
        self._parts: dict[Position, int] = {}
        """Of batches that only the view has: the acknowledged messages, as bits from the lowest."""
        self._fresh_of: int | None = None  # ledger of the view that is read from its beginning
        self._begins_at = EARLIEST
        """A consumer that reads from here or from before does not know any key yet."""
        # of the last read: batches of which compaction removed messages
        self._left: dict[Position, bytes] = {}
        self._epoch = 0  # grows when delivery starts again: a read from before does not count
        self._in_log = False  # reading has moved from the view to the log, or began in the log

    @classmethod
    def begin(cls, log: ManagedLedger, cursor: Cursor, command: Subscribe) -> CompactedReads:
        """Start compacted reads for a subscription as ``command`` asks. Its cursor may be older."""
        start = command.start or LATEST
        # A subscription that has acknowledged nothing starts at the beginning of what it is to
        # read. One that returns does not, even if everything before its mark-delete position was
        # trimmed: it must get the tombstones of keys that it received.
        untouched = (
            cursor.mark_delete.entry_id == NO_ENTRY
            and not cursor.hole_count
            and cursor.read_from <= log.first_position
        )
        begins = command.start is None and untouched
        if begins and command.initial_position is InitialPosition.EARLIEST:
            start = EARLIEST
        self = cls(log, cursor)
        self.moved(start)
        if begins:
            self._begins_at = self._reached
        return self

    # -- reading

    def end(self) -> Position:
        """Return the last position that may exist."""
        horizon = self._log.views.horizon
        last = self._log.last_confirmed
        return last if horizon is None else max(last, horizon)

    def unread_entries(self, reads: Reads, end: Position) -> int:
        """Return 1 while entries up to ``end`` are not read yet: the view does not count them."""
        return int(not reads.at_end(end))

    def _audience(self, ledger_id: int) -> Audience:
        if self._reached <= self._begins_at:
            self._fresh_of = ledger_id
        return Audience.FRESH if self._fresh_of == ledger_id else Audience.RETURNING

    async def read(self, start: Position, *, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """Read as ``ManagedLedger.read``.

        A read below the position reached so far is a repetition and changes nothing.
        """
        log = self._log
        horizon = log.views.horizon
        self._left.clear()
        epoch = self._epoch
        if (
            horizon is not None
            and start <= horizon
            and not (self._in_log and start >= log.first_position)
        ):
            reader = await log.views.reader()
            if reader is not None:
                audience = self._audience(reader.ledger_id)
                found = await reader.read(
                    start, audience, max_entries=max_entries, max_bytes=max_bytes
                )
                if epoch != self._epoch:
                    return []
                if found:
                    self._unacked.update(
                        (each.position, None) for each in found if each.position >= self._reached
                    )
                    self._reached = max(self._reached, _after(found[-1].position))
                    self._left.update((each.position, each.left) for each in found if each.left)
                    return [LogEntry(each.position, each.payload) for each in found]
            if epoch == self._epoch and start >= self._reached:
                # Messages removed behind the view's last message are passed once that message is
                # acknowledged.
                self._unacked[log.next_position(horizon)] = None
                self._pass_gaps()
            start = max(start, log.next_position(horizon))
        entries = await log.read(start, max_entries=max_entries, max_bytes=max_bytes)
        if epoch != self._epoch:
            return []
        if entries and start >= self._reached:
            self._in_log = True
            self._reached = _after(entries[-1].position)
        return entries

    def completed(self, ready: list[Ready]) -> list[Ready]:
        """Add to each batch of which messages were removed the set of its remaining messages.

        Without this set, Apache Pulsar's C++ client, and clients built on it, hand out removed
        messages as empty messages without a key. For a durable subscription the set is left out:
        that client would wait for acknowledgements of the removed messages before it sends the
        batch's.
        """
        if not self._left or self._cursor.durable:
            return ready
        return [
            each._replace(ack_set=self._remaining(each)) if each.position in self._left else each
            for each in ready
        ]

    def _remaining(self, ready: Ready) -> bytes:
        left = self._left[ready.position].ljust((ready.messages + 7) // 8, b"\0")
        return (
            left
            if ready.ack_set is None
            else bytes(one & other for one, other in zip(left, ready.ack_set, strict=True))
        )

    def read_from(self) -> Position:
        """Start or restart reading. Return the first position to deliver."""
        self._epoch += 1
        first, known = self._log.first_position, self._cursor.read_from
        waiting = [position for position in self._unacked if not first <= position < known]
        start = max(self._reached, EARLIEST)
        if self._in_log:
            start = known
        if waiting and waiting[0] < start:
            start = waiting[0]
            self._in_log = False
        self._unacked.clear()
        self._parts.clear()
        self._reached = start
        return start

    # -- acknowledging

    def is_acknowledged(self, position: Position) -> bool:
        """Return whether an entry needs no delivery any more.

        The cursor does not know trimmed entries.
        """
        return position >= self._log.first_position and self._cursor.is_acknowledged(position)

    def _is_only_in_view(self, position: Position) -> bool:
        """Return whether a position lies below the horizon and the log does not hold its entry any
        more.
        """
        horizon = self._log.views.horizon
        return horizon is not None and position <= horizon and not self._log.contains(position)

    def contains(self, position: Position) -> bool:
        return self._log.contains(position) or self._is_only_in_view(position)

    async def batch_size(self, position: Position) -> int:
        """Return the number of messages of an entry; 0 when it no longer exists.

        Raises the errors of ``read``.
        """
        found: Sequence[ViewEntry | LogEntry] = []
        if not self._is_only_in_view(position):
            found = await self._log.read(position, max_entries=1, max_bytes=1)
        elif (reader := await self._log.views.reader()) is not None:
            found = await reader.read(position, Audience.ALL, max_entries=1, max_bytes=1)
        return (
            int(parse_metadata(found[0].payload).num_messages_in_batch)
            if found and found[0].position == position
            else 0
        )

    def acknowledge_part(self, position: Position, size: int, indexes: Sequence[int]) -> bool:
        """Acknowledge messages of a batch of ``size``; 0: the entry no longer exists.

        Return whether the whole entry is acknowledged now.
        """
        if size and self._is_only_in_view(position):
            is_whole = self._acknowledge_part_of_view(position, size, indexes)
        else:
            if size:
                self._cursor.acknowledge_batch(position, size, indexes)
            is_whole = self.is_acknowledged(position)
        if is_whole:
            self._acknowledged([position])
        return is_whole

    def _acknowledge_part_of_view(
        self, position: Position, size: int, indexes: Sequence[int]
    ) -> bool:
        if position not in self._unacked:
            return False
        bits = self._parts.get(position, 0)
        for index in indexes:
            bits |= 1 << index
        self._parts[position] = bits
        return bits + 1 == 1 << size

    def acknowledge(self, positions: Sequence[Position]) -> None:
        """Acknowledge entries. Raises ``InvalidPosition``."""
        self._cursor.acknowledge(
            [position for position in positions if not self._is_only_in_view(position)]
        )
        self._acknowledged(positions)

    def _acknowledged(self, positions: Sequence[Position]) -> None:
        if self._unacked:
            for position in positions:
                self._unacked.pop(position, None)
                self._parts.pop(position, None)
            self._pass_gaps()

    def acknowledge_through(self, position: Position) -> None:
        """Acknowledge everything up to ``position``. Raises ``InvalidPosition``."""
        if not self._is_only_in_view(position):
            self._cursor.acknowledge_cumulative(position)
        self._reached = max(self._reached, _after(position))
        while self._unacked and next(iter(self._unacked)) <= position:
            passed, _ = self._unacked.popitem(last=False)
            self._parts.pop(passed, None)
        self._pass_gaps()

    def _pass_gaps(self) -> None:
        """Acknowledge removed entries before the oldest unacknowledged message, or before the place
        where reading continues.
        """
        oldest = next(iter(self._unacked), None if self._in_log else self._reached)
        if oldest is None or oldest <= self._cursor.read_from:
            return
        before = self._log.position_before(oldest)
        if before is not None and before > self._cursor.mark_delete and self._log.contains(before):
            self._cursor.acknowledge_cumulative(before)

    # -- position

    def moved(self, position: Position) -> None:
        """Deliver from ``position`` on.

        The cursor has been moved there, as far as the log has it.
        """
        self._epoch += 1
        trimmed = position < self._log.first_position
        self._reached = max(position, EARLIEST) if trimmed else self._cursor.read_from
        self._unacked.clear()
        self._parts.clear()
        self._fresh_of = None
        self._begins_at = EARLIEST
        self._in_log = False

    async def find_by_time(
        self, time_ms: int, time_of: Callable[[LogEntry], int]
    ) -> Position | None:
        """Find as ``ManagedLedger.find_by_time``, also in entries that only the view still has."""
        log = self._log
        found = await log.find_by_time(time_ms, time_of)
        if (found is None and log.entries) or (found is not None and found > log.first_position):
            return found
        reader = await log.views.reader()
        early = (
            None
            if reader is None
            else await reader.find(
                lambda each: time_of(LogEntry(each.position, each.payload)) >= time_ms
            )
        )
        return found if early is None or (found is not None and found < early) else early

    async def last(self) -> tuple[Position, int]:
        """Return the position and batch index (-1: not in a batch) of the last message to be
        delivered; entry -1 when there is none.

        Raises the errors of ``read``.
        """
        log, views = self._log, self._log.views
        last = log.last_confirmed
        if views.horizon is not None and (last.entry_id == NO_ENTRY or last <= views.horizon):
            reader = await views.reader()
            found = None if reader is None else await reader.last(self._audience(reader.ledger_id))
            return (
                (Position(last.ledger_id, NO_ENTRY), -1)
                if found is None
                else (found.position, last_batch_index(found.payload))
            )
        return last, await last_index(log, last)


async def last_index(log: ReadableLog, last: Position) -> int:
    """Return the batch index of the log's last message; -1 when it is not in a batch, or there is
    no message.
    """
    entries = await log.read(last, max_entries=1, max_bytes=1) if last.entry_id > NO_ENTRY else []
    if entries:
        metadata = parse_metadata(entries[0].payload)
        # A batch of one is a batch too, and its message has an index.
        if metadata.HasField("num_messages_in_batch"):
            return int(metadata.num_messages_in_batch) - 1
    return -1


def _after(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id + 1)
