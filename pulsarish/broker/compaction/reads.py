"""What a subscription that reads compacted is given: the topic's view up to its horizon, then the log.

Promises: whoever begins at the beginning gets the newest message of each key and no tombstones; whoever comes back in the middle gets what
brings every key from what it was there to what it is, removals included as long as tombstones are kept. A reader that has reached the log
stays in it while that lasts, whatever is compacted meanwhile.

The view's positions may lie in ledgers that were trimmed, of which the cursor knows nothing: what was delivered of them and is not
acknowledged is remembered here, in memory. What compaction took out between two messages counts as acknowledged once the first is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pulsarish.broker.clients.commands import InitialPosition, Subscribe
from pulsarish.broker.compaction.keys import Audience, last_batch_index
from pulsarish.broker.dispatchers.reads import Ready
from pulsarish.managed_ledger.log_reader import LogEntry
from pulsarish.model.position import EARLIEST, LATEST, NO_ENTRY, Position
from pulsarish.wire.entry import parse_metadata

if TYPE_CHECKING:
    from pulsarish.managed_ledger.cursor import Cursor
    from pulsarish.managed_ledger.managed_ledger import ManagedLedger

__all__ = ["CompactedReads", "last_index"]


class CompactedReads:
    """Beside the cursor of one subscription while it is read compacted."""

    def __init__(self, log: ManagedLedger, cursor: Cursor) -> None:
        self._log = log
        self._cursor = cursor
        self._reached = EARLIEST
        """Where reading in order goes on."""
        self._unacked: OrderedDict[Position, None] = OrderedDict()
        """What was delivered of the view, and where the log began behind it, in order."""
        self._parts: dict[Position, int] = {}
        """Of batches that only the view holds: the messages that are acknowledged, as bits from the lowest."""
        self._fresh_of: int | None = None  # the view that is read from its beginning
        self._begins_at = EARLIEST
        """A consumer that reads from here, or from before it, knows no key yet."""
        self._left: dict[Position, bytes] = {}  # of what was read last: batches of which messages were taken out
        self._epoch = 0  # a read that began before delivery was begun again says nothing of where it has come to
        self._in_log = False  # reading has come from the view to the log, or begun in it

    @classmethod
    def begin(cls, log: ManagedLedger, cursor: Cursor, command: Subscribe) -> CompactedReads:
        """For a subscription as ``command`` asks for it, whose cursor may be older."""
        start = command.start or LATEST
        # A subscription that has acknowledged nothing is at the beginning of what it is to read. One that comes back is not, even when
        # everything before its mark was trimmed: it is owed the tombstones of keys that it was given.
        untouched = cursor.mark_delete.entry_id == NO_ENTRY and not cursor.hole_count and cursor.read_from <= log.first_position
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
        """The last position that may be there."""
        horizon = self._log.views.horizon
        last = self._log.last_confirmed
        return last if horizon is None else max(last, horizon)

    def _audience(self, ledger_id: int) -> Audience:
        if self._reached <= self._begins_at:
            self._fresh_of = ledger_id
        return Audience.FRESH if self._fresh_of == ledger_id else Audience.RETURNING

    async def read(self, start: Position, *, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """As ``ManagedLedger.read``. What lies below where reading has come to is asked for again, and changes nothing."""
        log = self._log
        horizon = log.views.horizon
        self._left.clear()
        epoch = self._epoch
        if horizon is not None and start <= horizon and not (self._in_log and start >= log.first_position):
            reader = await log.views.reader()
            if reader is not None:
                audience = self._audience(reader.ledger_id)
                found = await reader.read(start, audience, max_entries=max_entries, max_bytes=max_bytes)
                if epoch != self._epoch:
                    return []
                if found:
                    self._unacked.update((each.position, None) for each in found if each.position >= self._reached)
                    self._reached = max(self._reached, _after(found[-1].position))
                    self._left.update((each.position, each.left) for each in found if each.left)
                    return [LogEntry(each.position, each.payload) for each in found]
            if epoch == self._epoch and start >= self._reached:
                # What was taken out behind the view's last message is passed once that one is acknowledged.
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

    def say_what_is_left(self, ready: list[Ready]) -> list[Ready]:
        """Apache Pulsar's C++ client, and what is built on it, hands out what was taken out of a batch as empty messages without a key,
        unless the delivery names the messages that remain. A durable subscription cannot be told so: that client would wait for
        acknowledgements of the others before it sends the batch's."""
        if not self._left or self._cursor.durable:
            return ready
        return [each._replace(ack_set=self._remaining(each)) if each.position in self._left else each for each in ready]

    def _remaining(self, ready: Ready) -> bytes:
        left = self._left[ready.position].ljust((ready.messages + 7) // 8, b"\0")
        return left if ready.ack_set is None else bytes(one & other for one, other in zip(left, ready.ack_set, strict=True))

    def read_from(self) -> Position:
        """The first position to deliver after a (re)start, which this is."""
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
        """Whether an entry needs no delivery any more. The cursor has no say in what was trimmed."""
        return position >= self._log.first_position and self._cursor.is_acknowledged(position)

    def is_only_in_view(self, position: Position) -> bool:
        """Whether it lies below the horizon and the log does not hold it (any more)."""
        horizon = self._log.views.horizon
        return horizon is not None and position <= horizon and not self._log.contains(position)

    async def batch_size(self, position: Position) -> int:
        """How many messages an entry holds that only the view has; 0 when it is not there any more. Raises as ``read``."""
        reader = await self._log.views.reader()
        found = [] if reader is None else await reader.read(position, Audience.ALL, max_entries=1, max_bytes=1)
        return int(parse_metadata(found[0].payload).num_messages_in_batch) if found and found[0].position == position else 0

    def acknowledge_part(self, position: Position, size: int, indexes: Sequence[int]) -> bool:
        """Some messages of a batch that only the view holds are done; whether all of it is, and was not before."""
        if position not in self._unacked:
            return False
        bits = self._parts.get(position, 0)
        for index in indexes:
            bits |= 1 << index
        self._parts[position] = bits
        return bits + 1 == 1 << size

    def acknowledged(self, positions: Sequence[Position]) -> None:
        """The cursor was told of these."""
        if self._unacked:
            for position in positions:
                self._unacked.pop(position, None)
                self._parts.pop(position, None)
            self._pass_gaps()

    def acknowledged_through(self, position: Position) -> None:
        """The cursor was told of everything up to this."""
        self._reached = max(self._reached, _after(position))
        while self._unacked and next(iter(self._unacked)) <= position:
            passed, _ = self._unacked.popitem(last=False)
            self._parts.pop(passed, None)
        self._pass_gaps()

    def _pass_gaps(self) -> None:
        """Acknowledge what compaction took out before the oldest message that is not acknowledged, or before where reading goes on."""
        oldest = next(iter(self._unacked), None if self._in_log else self._reached)
        if oldest is None or oldest <= self._cursor.read_from:
            return
        before = self._log.position_before(oldest)
        if before is not None and before > self._cursor.mark_delete and self._log.contains(before):
            self._cursor.acknowledge_cumulative(before)

    # -- where it is

    def moved(self, position: Position) -> None:
        """Delivery begins here. The cursor has been moved there, as far as the log has it."""
        self._epoch += 1
        trimmed = position < self._log.first_position
        self._reached = max(position, EARLIEST) if trimmed else self._cursor.read_from
        self._unacked.clear()
        self._parts.clear()
        self._fresh_of = None
        self._begins_at = EARLIEST
        self._in_log = False

    async def find_by_time(self, time_ms: int, time_of: Callable[[LogEntry], int]) -> Position | None:
        """As ``ManagedLedger.find_by_time``, also in what only the view still has."""
        log = self._log
        found = await log.find_by_time(time_ms, time_of)
        if (found is None and log.entries) or (found is not None and found > log.first_position):
            return found
        reader = await log.views.reader()
        early = None if reader is None else await reader.find(lambda each: time_of(LogEntry(each.position, each.payload)) >= time_ms)
        return found if early is None or (found is not None and found < early) else early

    async def last(self) -> tuple[Position, int]:
        """The last message to be delivered: its position and its index in a batch (-1: in none); entry -1 when there is none.

        Raises as ``read``.
        """
        log, views = self._log, self._log.views
        last = log.last_confirmed
        if views.horizon is not None and (last.entry_id == NO_ENTRY or last <= views.horizon):
            reader = await views.reader()
            found = None if reader is None else await reader.last(self._audience(reader.ledger_id))
            return (Position(last.ledger_id, NO_ENTRY), -1) if found is None else (found.position, last_batch_index(found.payload))
        return last, await last_index(log, last)


async def last_index(log: ManagedLedger, last: Position) -> int:
    """The index of the last message of the log in its batch; -1 when it is in none, and when there is none."""
    entries = await log.read(last, max_entries=1, max_bytes=1) if last.entry_id > NO_ENTRY else []
    if entries:
        metadata = parse_metadata(entries[0].payload)
        # Also a batch of one is a batch, to which its message's index belongs.
        if metadata.HasField("num_messages_in_batch"):
            return int(metadata.num_messages_in_batch) - 1
    return -1


def _after(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id + 1)
