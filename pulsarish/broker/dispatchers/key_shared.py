"""Key-shared subscriptions: all entries of a key go to one consumer, in order, and different keys
to different consumers.

Keys are told apart by a hash. The promise: at any time only one consumer holds unacknowledged
entries of a hash. When a consumer joins or leaves, hashes move to other consumers. The entries that
the previous consumer still holds of such a hash *drain*: the new consumer gets no entry of that
hash until they are acknowledged or given back, or the previous consumer has left. An entry that is
skipped or expires while a consumer holds it may still be processed there, so it drains too. An
entry that cannot be delivered now is kept and delivered later in its order. A limit says how far
this reads ahead. When out-of-order delivery is allowed, nothing drains. Source: Apache Pulsar's
PIP-379.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from pulsarish.broker.clients.commands import KeySharedMode, KeySharedPolicy
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.dispatchers.dispatcher import DispatcherKind, DrainingKey, KeysState
from pulsarish.broker.dispatchers.key_ranges import HashRange, HashRing, StickyRanges
from pulsarish.broker.dispatchers.key_shared_stats import key_sharing, key_sharing_by_consumer
from pulsarish.broker.dispatchers.multi_consumer import MultiConsumerDispatcher, SharingLimits
from pulsarish.broker.dispatchers.reads import Read, ReadLimits, Ready, has_expired
from pulsarish.model.position import Position

__all__ = ["Draining", "KeySharedDispatcher", "Line", "LookAhead"]


@dataclass(frozen=True, slots=True)
class LookAhead:
    """Limits on entries that were read but cannot be delivered yet. 0: no limit."""

    entries_max_consumer: int
    entries_max_subscription: int
    payload_bytes_max: int
    """Payloads beyond this are dropped and read again when their turn comes."""

    def entries_max(self, consumers: int) -> int:
        """Return the limit for a number of consumers."""
        limits = [
            limit
            for limit in (self.entries_max_consumer * consumers, self.entries_max_subscription)
            if limit
        ]
        return min(limits, default=1 << 62)


class Draining(NamedTuple):
    """A hash that moves to another consumer once these entries are acknowledged.

    ``attempts``: deliveries that had to wait for this.
    """

    key_hash: int
    entries: int
    attempts: int


@dataclass(slots=True)
class _Holder:
    """The consumer that holds unacknowledged entries of a hash."""

    consumer: Consumer
    entries: int = 0
    attempts: int = 0
    skipped: Position | None = None
    """The last entry that was skipped or expired while the consumer held it, as long as the
    consumer may still process it.
    """

    @property
    def in_hand(self) -> int:
        return self.entries + (self.skipped is not None)


@dataclass(slots=True)
class _Kept:
    """An entry to be delivered. ``ready`` is ``None`` when it must be read first."""

    key_hash: int
    ready: Ready | None


class Line:
    """Positions to be delivered to one consumer, the lowest first.

    Positions that are no longer kept are passed over.
    """

    __slots__ = ("_is_sorted", "positions")

    def __init__(self) -> None:
        self.positions: deque[Position] = deque()
        self._is_sorted = True

    def add(self, position: Position) -> None:
        positions = self.positions
        # Entries that are read again come in order.
        if positions and position < positions[-1]:
            self._is_sorted = False
        positions.append(position)

    def sort(self) -> deque[Position]:
        """Return the positions in order."""
        if not self._is_sorted:
            self.positions = deque(sorted(self.positions))
            self._is_sorted = True
        return self.positions


class KeySharedDispatcher(MultiConsumerDispatcher):
    """The core of a key-shared subscription."""

    kind = DispatcherKind.KEY_SHARED

    def __init__(
        self,
        *,
        read_from: Callable[[], Position],
        acknowledged: Callable[[Position], bool],
        limits: ReadLimits,
        sharing: SharingLimits,
        policy: KeySharedPolicy,
        ring_points: int,
        look_ahead: LookAhead,
    ) -> None:
        super().__init__(
            read_from=read_from, acknowledged=acknowledged, limits=limits, sharing=sharing
        )
        self.policy = policy
        self.cleared: dict[int, int] = {}
        """By join order of the consumer: number of hashes that have finished draining there."""
        self._look_ahead = look_ahead
        self._in_order = not policy.allow_out_of_order_delivery
        self._assignment = (
            StickyRanges() if policy.mode is KeySharedMode.STICKY else HashRing(ring_points)
        )
        self._kept: dict[Position, _Kept] = {}
        self._kept_bytes = 0
        self._lines: dict[int, Line] = {}  # by the consumer's join order
        # by hash: kept entries of a hash that drains or has no consumer
        self._barred: dict[int, list[Position]] = {}
        self._holders: dict[int, _Holder] = {}
        # hashes with entries at a consumer that they no longer belong to
        self._draining: set[int] = set()
        self._hashes: dict[Position, int] = {}  # hash of each entry that a consumer holds
        # hash of each entry that is a holder's ``skipped``: at most one per hash
        self._skipped: dict[Position, int] = {}
        self._asked: set[Position] = set()  # kept entries that are being read

    def takes(self, policy: KeySharedPolicy) -> bool:
        """Return whether a consumer with this policy may join."""
        mine = self.policy
        return (mine.mode, mine.allow_out_of_order_delivery) == (
            policy.mode,
            policy.allow_out_of_order_delivery,
        )

    @property
    def shown_policy(self) -> str:
        order = (
            "delivery out of order allowed"
            if self.policy.allow_out_of_order_delivery
            else "in order"
        )
        return f"{self.policy.mode.name.lower()}, {order}"

    # -- consumers

    def add(self, consumer: Consumer) -> None:
        """Connect a consumer.

        Raises ``ConsumerBusy`` at the limit, ``ConsumerAssignError`` for hash ranges that it cannot
        have.
        """
        super().add(consumer)
        try:
            self._assignment.add(consumer)
        except BaseException:
            self.consumers.remove(consumer)
            raise
        self._lines[consumer.order] = Line()
        self.cleared[consumer.order] = 0
        self._line_up_anew()

    def remove(self, consumer: Consumer) -> None:
        self._assignment.remove(consumer)
        self._done_with(consumer, self._skipped_of(consumer))
        super().remove(consumer)
        del self._lines[consumer.order]
        del self.cleared[consumer.order]
        self._line_up_anew()

    def _start_over(self) -> None:
        super()._start_over()
        self._kept.clear()
        self._kept_bytes = 0
        self._hashes.clear()
        self._skipped.clear()
        self._holders.clear()
        self._asked.clear()
        self._line_up_anew()

    def restart(self) -> None:
        skipped = dict(self._skipped)
        in_hand = {key_hash: self._holders[key_hash].consumer for key_hash in skipped.values()}
        super().restart()
        # Also when this starts over: consumers may still process what was skipped.
        self._skipped = skipped
        self._holders = {
            key_hash: _Holder(in_hand[key_hash], skipped=position)
            for position, key_hash in skipped.items()
        }
        for consumer in self.consumers:
            for position in consumer.pending:
                self._hold(consumer, position, self._hashes[position])
        self._asked.intersection_update(self.reads.coming())
        self._line_up_anew()

    # -- entries to be delivered

    def _line_up_anew(self) -> None:
        """Sort all kept entries to consumers again, after hashes have moved."""
        for order in self._lines:
            self._lines[order] = Line()
        self._barred.clear()
        self._line_up(sorted(self._kept))
        if self._in_order:
            owner = self._assignment.owner
            self._draining = {
                key_hash
                for key_hash, holder in self._holders.items()
                if owner(key_hash) is not holder.consumer
            }

    def _line_up(self, positions: Iterable[Position]) -> None:
        for position in positions:
            kept = self._kept.get(position)
            if kept is None:
                continue
            owner = self._assignment.owner(kept.key_hash)
            if owner is None:
                self._barred.setdefault(kept.key_hash, []).append(position)
            else:
                self._lines[owner.order].add(position)

    def _keep(self, position: Position, kept: _Kept) -> None:
        self._kept[position] = kept
        if kept.ready is not None:
            self._kept_bytes += len(kept.ready.payload)

    def _drop(self, position: Position) -> _Kept | None:
        kept = self._kept.pop(position, None)
        if kept is not None and kept.ready is not None:
            self._kept_bytes -= len(kept.ready.payload)
        return kept

    def _give_back(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        hashes = [self._hashes[position] for position in positions]
        for position in positions:
            self._take_back(consumer, position)
        for position, key_hash in zip(positions, hashes, strict=True):
            self._keep(position, _Kept(key_hash, None))
        self._line_up(positions)

    def redeliver(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        self._done_with(consumer, positions or self._skipped_of(consumer))
        super().redeliver(consumer, positions)

    def _forget(self, consumer: Consumer, position: Position) -> None:
        super()._forget(consumer, position)
        key_hash = self._hashes.pop(position)
        holder = self._holders[key_hash]
        holder.entries -= 1
        self._free(consumer, key_hash, holder)

    def _free(self, consumer: Consumer, key_hash: int, holder: _Holder) -> None:
        """Give the hash to its present consumer, if no consumer holds entries of it."""
        if holder.in_hand:
            return
        del self._holders[key_hash]
        if key_hash in self._draining:
            self._draining.remove(key_hash)
            if consumer.order in self.cleared:
                self.cleared[consumer.order] += 1
        if (barred := self._barred.pop(key_hash, None)) is not None:
            self._line_up(barred)

    def acknowledged(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        if self._skipped:
            self._done_with(consumer, positions)
            # A consumer that is done with an entry is done with the earlier entries of the same
            # key.
            later = [
                (self._hashes[position], position)
                for position in positions
                if position in self._hashes
            ]
            holders = [(self._holders[key_hash].skipped, position) for key_hash, position in later]
            self._done_with(
                consumer,
                [
                    skipped
                    for skipped, position in holders
                    if skipped is not None and skipped < position
                ],
            )
        super().acknowledged(consumer, positions)
        for position in positions:
            self._drop(position)

    def acknowledged_through(self, position: Position) -> None:
        if self._in_order:
            for consumer in self.consumers:
                for held in consumer.pending:
                    if held <= position:
                        self._skip(held)
        super().acknowledged_through(position)
        for kept in [kept for kept in self._kept if kept <= position]:
            self._drop(kept)

    def expired(self, positions: Sequence[Position]) -> None:
        for position in positions:
            if self._in_order and position in self._hashes:
                self._skip(position)
            self._drop(position)
        super().expired(positions)

    def take_expired(self, now_ms: int) -> list[Position]:
        self._take_in()
        ready = {
            position: kept.ready for position, kept in self._kept.items() if kept.ready is not None
        }
        expired = [position for position, each in ready.items() if has_expired(each, now_ms)]
        for position in expired:
            self._drop(position)
            del ready[position]
        waiting = [each.expires_ms for each in ready.values() if each.expires_ms]
        self.reads.first_expiry_ms = min(waiting, default=0)
        return expired

    def _skip(self, position: Position) -> None:
        key_hash = self._hashes[position]
        holder = self._holders[key_hash]
        if holder.skipped is None or holder.skipped < position:
            if holder.skipped is not None:
                del self._skipped[holder.skipped]
            holder.skipped = position
            self._skipped[position] = key_hash

    def _done_with(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Forget these skipped entries: the consumer no longer processes them."""
        for position in positions:
            key_hash = self._skipped.pop(position, None)
            if key_hash is not None:
                holder = self._holders[key_hash]
                holder.skipped = None
                self._free(consumer, key_hash, holder)

    def _skipped_of(self, consumer: Consumer) -> list[Position]:
        return [
            position
            for position, key_hash in self._skipped.items()
            if self._holders[key_hash].consumer is consumer
        ]

    # -- reading

    def plan(self, end: Position, *, blocked: bool) -> Read | None:
        if self.blocked:
            return None
        wants_more = False
        for consumer in self.consumers:
            if not consumer.available:
                continue
            line = self._lines[consumer.order].sort()
            if not line:
                wants_more = True
                continue
            # Delivery stopped at an entry that must be read. Read the entries behind it together
            # with it.
            unasked = [
                position
                for position in islice(line, self._room(consumer))
                if position not in self._asked
                and (kept := self._kept.get(position)) is not None
                and kept.ready is None
            ]
            self._asked.update(unasked)
            self.reads.deliver_again(unasked)
        return self.reads.plan(end, new_allowed=wants_more and self.has_room and not blocked)

    @property
    def wants_new(self) -> bool:
        return not (self.blocked or self._kept) and any(
            consumer.available for consumer in self.consumers
        )

    @property
    def has_room(self) -> bool:
        return len(self._kept) < self.look_ahead_max

    def _take_in(self) -> None:
        reads = self.reads
        while reads.ready_again:
            ready = reads.ready_again.popleft()
            self._asked.discard(ready.position)
            kept = self._kept.get(ready.position)
            if kept is None:
                self._arrived(ready)  # a delayed entry is due
            elif kept.ready is None:
                kept.ready = ready
                self._kept_bytes += len(ready.payload)
        for position in reads.gone:
            self._asked.discard(position)
            self._drop(position)
        reads.gone = ()
        while reads.ready:
            self._arrived(reads.ready.popleft())

    def _arrived(self, ready: Ready) -> None:
        if ready.position not in self._hashes:
            self._keep(ready.position, _Kept(ready.key_hash, ready))
            self._line_up((ready.position,))

    def _let_go(self) -> None:
        """Drop payloads above the limit, those of the last entries first.

        Do nothing while dropped ones are being read again.
        """
        if self._kept_bytes <= self._look_ahead.payload_bytes_max or self._asked:
            return
        for kept in reversed(self._kept.values()):
            if kept.ready is not None:
                self._kept_bytes -= len(kept.ready.payload)
                kept.ready = None
                if self._kept_bytes <= self._look_ahead.payload_bytes_max:
                    return

    # -- delivering

    def deliver(self) -> None:
        """Deliver the ready entries in turns."""
        self._take_in()
        going = True
        while going:
            going = False
            for consumer in self.consumers:
                if consumer.available and not self.blocked and self._turn(consumer):
                    going = True
        self._let_go()

    def _turn(self, consumer: Consumer) -> bool:
        line = self._lines[consumer.order].sort()
        left = self._room(consumer)
        given: list[Ready] = []
        while line and left > 0:
            kept = self._kept.get(line[0])
            if kept is None:
                line.popleft()
                continue
            if self._drains(kept.key_hash, consumer):
                self._holders[kept.key_hash].attempts += 1
                self._barred.setdefault(kept.key_hash, []).append(line.popleft())
                continue
            if kept.ready is None:
                break
            position = line.popleft()
            self._drop(position)
            self._hold(consumer, position, kept.key_hash)
            left -= kept.ready.messages
            given.append(kept.ready)
        if given:
            self._give(consumer, given)
        return bool(given)

    def _drains(self, key_hash: int, consumer: Consumer) -> bool:
        """Return whether another consumer holds entries that must be acknowledged first."""
        holder = self._holders.get(key_hash)
        return holder is not None and holder.consumer is not consumer and self._in_order

    def _hold(self, consumer: Consumer, position: Position, key_hash: int) -> None:
        self._hashes[position] = key_hash
        holder = self._holders.get(key_hash)
        if holder is None:
            holder = self._holders[key_hash] = _Holder(consumer)
        holder.entries += 1

    def drop_waiting(self) -> int:
        self._take_in()
        messages = sum(
            kept.ready.messages for kept in self._kept.values() if kept.ready is not None
        )
        if self._kept:
            self._kept.clear()
            self._kept_bytes = 0
            self._line_up_anew()
        return messages

    # -- for statistics

    def waiting(self) -> set[Position]:
        return super().waiting().union(self._kept)

    @property
    def again_count(self) -> int:
        return sum(position in self._counts for position in self._kept)

    @property
    def waiting_count(self) -> int:
        return len(self._kept)

    @property
    def barred_counts(self) -> tuple[int, int]:
        """Kept entries that wait for other consumers to acknowledge, and those of hashes without a
        consumer.
        """
        draining = nobodys = 0
        for key_hash, positions in self._barred.items():
            if self._assignment.owner(key_hash) is None:
                nobodys += len(positions)
            else:
                draining += len(positions)
        return draining, nobodys

    @property
    def look_ahead_max(self) -> int:
        return self._look_ahead.entries_max(len(self.consumers))

    def lined_up(self, consumer: Consumer) -> int:
        """Return how many entries wait for this consumer and for no acknowledgement of another
        one.
        """
        line = self._lines[consumer.order].positions
        return sum(
            (kept := self._kept.get(each)) is not None and not self._drains(kept.key_hash, consumer)
            for each in line
        )

    def keys(self) -> KeysState:
        draining = tuple(
            DrainingKey(key_hash, holder.consumer.name, holder.in_hand, len(positions))
            for key_hash, positions in self._barred.items()
            if (holder := self._holders.get(key_hash)) is not None
            and self._assignment.owner(key_hash) is not None
        )
        return KeysState(draining, self.barred_counts[1], self.waiting_count, self.look_ahead_max)

    def stats(self) -> dict[str, Any]:
        return key_sharing(self)

    def consumer_stats(self) -> dict[int, dict[str, Any]]:
        return key_sharing_by_consumer(self)

    def ranges(self, consumer: Consumer) -> list[HashRange]:
        return self._assignment.ranges(consumer)

    def draining(self) -> dict[int, list[Draining]]:
        """Return what consumers hold of hashes that no longer belong to them, by join order of the
        consumer.
        """
        found: dict[int, list[Draining]] = {consumer.order: [] for consumer in self.consumers}
        for key_hash in sorted(self._draining):
            holder = self._holders[key_hash]
            found[holder.consumer.order].append(Draining(key_hash, holder.in_hand, holder.attempts))
        return found

    def check(self) -> None:
        super().check()
        assert self._hashes.keys().isdisjoint(self._kept), "an entry is held and kept"
        assert self._hashes.keys() == {
            position for consumer in self.consumers for position in consumer.pending
        }
        assert self._kept_bytes == sum(
            len(kept.ready.payload) for kept in self._kept.values() if kept.ready is not None
        )
        counts: dict[int, int] = {}
        for consumer in self.consumers:
            for position in consumer.pending:
                key_hash = self._hashes[position]
                counts[key_hash] = counts.get(key_hash, 0) + 1
                assert not self._in_order or self._holders[key_hash].consumer is consumer, (
                    "a hash is held by two consumers"
                )
        moved = {
            key_hash
            for key_hash, holder in self._holders.items()
            if self._assignment.owner(key_hash) is not holder.consumer
        }
        assert self._draining == (moved if self._in_order else set())
        assert counts == {
            key_hash: holder.entries for key_hash, holder in self._holders.items() if holder.entries
        }
        assert all(holder.in_hand for holder in self._holders.values())
        assert self._skipped == {
            holder.skipped: key_hash
            for key_hash, holder in self._holders.items()
            if holder.skipped is not None
        }
        lined = {position for line in self._lines.values() for position in line.positions}
        barred = {position for positions in self._barred.values() for position in positions}
        assert self._kept.keys() <= lined | barred, "an entry is forgotten"
