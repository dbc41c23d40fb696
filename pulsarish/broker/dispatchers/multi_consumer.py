"""What shared and key-shared subscriptions have in common: the connected consumers, and what each
holds unacknowledged.

Each delivered entry is remembered with its consumer until it is acknowledged. Entries that a
consumer gives back, or holds when it leaves, are redelivered with a count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final

from pulsarish.broker.clients.consumer import Consumer, Delivery
from pulsarish.broker.dispatchers.dispatcher import Dispatcher, Holes, Place
from pulsarish.broker.dispatchers.reads import ReadLimits, Reads, Ready
from pulsarish.model.errors import ConsumerBusy
from pulsarish.model.position import EARLIEST, Position

__all__ = ["MultiConsumerDispatcher", "SharingLimits"]

_STEPS_MAX: Final = 50_000  # entries and holes that one look for forgotten entries takes


@dataclass(frozen=True, slots=True)
class SharingLimits:
    """Limits of one subscription.

    ``turn_messages``: messages for one consumer in one turn. For the others 0 means no limit.
    """

    consumers_max: int
    turn_messages: int
    unacked_max_consumer: int
    unacked_max_subscription: int


class MultiConsumerDispatcher(Dispatcher):
    """The core of a subscription with several active consumers.

    Subclasses decide which consumer gets which entry.
    """

    def __init__(
        self,
        *,
        read_from: Callable[[], Position],
        acknowledged: Callable[[Position], bool],
        limits: ReadLimits,
        sharing: SharingLimits,
    ) -> None:
        # consumers: by priority level, then by join order
        super().__init__(Reads(read_from(), limits, acknowledged))
        self._acknowledged = acknowledged
        self._read_from = read_from
        self._consumers_max = sharing.consumers_max
        self._turn_messages = sharing.turn_messages
        self._unacked_max_consumer = sharing.unacked_max_consumer
        self._unacked_max_subscription = sharing.unacked_max_subscription
        self._unacked = 0
        self._counts: dict[Position, int] = {}
        # the entries that ``redeliver_unacked`` has seen: since when, and their redelivery count
        self._seen: dict[Position, tuple[float, int]] = {}
        # the entries that ``redeliver_forgotten`` has found: since when; and where it looks next
        self._forgotten: dict[Position, float] = {}
        self._look_from = EARLIEST

    def limit(
        self, *, consumers_max: int, unacked_max_consumer: int, unacked_max_subscription: int
    ) -> None:
        """Apply new limits; 0: no limit. Connected consumers stay."""
        self._consumers_max = consumers_max
        self._unacked_max_consumer = unacked_max_consumer
        self._unacked_max_subscription = unacked_max_subscription
        self.blocked = 0 < unacked_max_subscription <= self._unacked
        for consumer in self.consumers:
            consumer.blocked = 0 < unacked_max_consumer <= consumer.unacked

    def add(self, consumer: Consumer) -> None:
        """Connect a consumer. Raises ``ConsumerBusy`` at the limit."""
        if 0 < self._consumers_max <= len(self.consumers):
            raise ConsumerBusy(
                "the subscription has reached max_consumers_per_subscription "
                f"({self._consumers_max}): close a consumer, or raise the limit"
            )
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda c: (c.priority_level, c.order))

    def remove(self, consumer: Consumer) -> None:
        """Disconnect a consumer.

        Its unacknowledged entries go to other consumers, now or when one connects.
        """
        self.consumers.remove(consumer)
        self._give_back(consumer, list(consumer.pending))
        if not self.consumers:
            self._start_over()

    def reset(self) -> None:
        """Start again from the cursor after it was moved. Earlier deliveries do not count."""
        for consumer in self.consumers:
            consumer.permits += consumer.outlet.withdraw(consumer.consumer_id)
            consumer.pending.clear()
            consumer.partly.clear()
            consumer.unacked = 0
            consumer.blocked = False
        self._unacked = 0
        self.blocked = False
        self._counts.clear()
        self._seen.clear()
        self._start_over()

    def _start_over(self) -> None:
        self._forgotten.clear()
        self.reads.rewind(self._read_from())

    def restart(self) -> None:
        """Plan and count again from facts: consumers keep what they hold, the rest is read in
        order.
        """
        for consumer in self.consumers:
            consumer.unacked = _unacked(consumer)
            consumer.blocked = 0 < self._unacked_max_consumer <= consumer.unacked
        self._unacked = sum(consumer.unacked for consumer in self.consumers)
        self.blocked = 0 < self._unacked_max_subscription <= self._unacked
        self.reads.restart()
        if self.holds_nothing and not self.reads.delayed:
            # No consumer holds an entry or waits for one: deliver from the cursor's position.
            self._start_over()

    @property
    def holds_nothing(self) -> bool:
        """Whether no entry is held by a consumer or waits for one."""
        return (
            not self.waiting_count
            and not self.reads.waiting_count
            and not any(consumer.pending for consumer in self.consumers)
        )

    def redelivery_count(self, position: Position) -> int:
        return self._counts.get(position, 0)

    def redeliver(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Redeliver these entries; without positions all that the consumer holds.

        Entries that it does not hold are ignored.
        """
        if positions:
            # Give back a position once, even if it is named twice.
            self._give_back(
                consumer,
                [position for position in dict.fromkeys(positions) if position in consumer.pending],
            )
        else:
            consumer.permits += consumer.outlet.withdraw(consumer.consumer_id)
            self._give_back(consumer, list(consumer.pending))

    def redeliver_unacked(self, now: float, seconds: float) -> int:
        """Redeliver entries that consumers have had for too long.

        One with another redelivery count than before was delivered since.
        """
        before, self._seen = self._seen, {}
        redelivered = 0
        for consumer in self.consumers:
            late: list[Position] = []
            for position in consumer.pending:
                count = self._counts.get(position, 0)
                seen = before.get(position)
                if seen is None or seen[1] != count:
                    seen = (now, count)
                if now - seen[0] >= seconds:
                    late.append(position)
                else:
                    self._seen[position] = seen
            self._give_back(consumer, late)
            redelivered += len(late)
        return redelivered

    def extend_ack(self, consumer: Consumer, positions: Sequence[Position], now: float) -> None:
        """Count the time of ``redeliver_unacked`` from now. Entries that it has not seen yet begin
        with its next call anyway.
        """
        for position in positions:
            if position in self._seen and position in consumer.pending:
                self._seen[position] = (now, self._counts.get(position, 0))

    def redeliver_forgotten(self, now: float, seconds: float, holes: Holes) -> int:
        known = self._known()
        forgotten = {
            position: since
            for position, since in self._forgotten.items()
            if position not in known and not self._acknowledged(position)
        }
        for position in self.forgotten(holes, known, len(forgotten)):
            forgotten.setdefault(position, now)
        late = [position for position, since in forgotten.items() if now - since >= seconds]
        for position in late:
            del forgotten[position]
        self._forgotten = forgotten
        self.reads.deliver_again(late)
        return len(late)

    def forgotten(
        self, holes: Holes, known: Set[Position] | None = None, steps: int = 0
    ) -> list[Position]:
        """Return entries that were read, that no consumer has and nothing waits to deliver.

        One call looks at a part of what was read, if that is much, and the next one goes on from
        there. What was once delayed is not looked at before its bucket is used up.

        Args:
            known: the entries that a consumer has or that wait to be delivered.
            steps: what the part is shorter by.
        """
        if known is None:
            known = self._known()
        found = [each for each in self._undelivered(holes, steps) if each not in known]
        return self.reads.delayed.not_in_memory(found) if found else found

    def _delivered(self, positions: Sequence[Position]) -> dict[Position, Place]:
        wanted = set(positions)
        return {
            position: Place("consumer", consumer, self._had_since(position))
            for consumer in self.consumers
            for position in wanted.intersection(consumer.pending)
        }

    def _had_since(self, position: Position) -> float | None:
        seen = self._seen.get(position)
        is_of_this_delivery = seen is not None and seen[1] == self._counts.get(position, 0)
        return seen[0] if seen is not None and is_of_this_delivery else None

    def _known(self) -> set[Position]:
        return self.waiting().union(*[consumer.pending for consumer in self.consumers])

    def _undelivered(self, holes: Holes, steps: int) -> Iterator[Position]:
        """Yield unacknowledged entries that were read and are in no bucket of delayed ones."""
        ledger_id, entry_id = self.reads.position
        delayed = self.reads.delayed
        for hole in holes(self._look_from, Position(ledger_id, entry_id - 1)):
            steps += 1
            position = delayed.next_to_read(Position(hole.ledger_id, hole.first_entry))
            while position.entry_id <= hole.last_entry:
                if steps >= _STEPS_MAX:
                    self._look_from = position
                    return
                yield position
                steps += 1
                position = delayed.next_to_read(Position(hole.ledger_id, position.entry_id + 1))
        self._look_from = EARLIEST

    def _give_back(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        for position in positions:
            self._take_back(consumer, position)
        self.reads.deliver_again(positions)

    def _take_back(self, consumer: Consumer, position: Position) -> None:
        self._forget(consumer, position)
        self._counts[position] = self._counts.get(position, 0) + 1

    def acknowledged(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Note that the cursor has acknowledged these entries."""
        own = consumer.pending
        for position in positions:
            if position in own:
                self._forget(consumer, position)
            else:
                # It was delivered to another connection of the same client, before the client
                # reconnected.
                for other in self.consumers:
                    if position in other.pending:
                        self._forget(other, position)
                        break
            if self._counts:
                self._counts.pop(position, None)

    def partly_acknowledged(self, consumer: Consumer | None, position: Position, left: int) -> None:
        if consumer is None or position not in consumer.pending:
            consumer = next((each for each in self.consumers if position in each.pending), None)
            if consumer is None:
                return
        done = consumer.pending[position] - left
        self._count_down(consumer, done - consumer.partly.get(position, 0))
        consumer.partly[position] = done

    def acknowledged_through(self, position: Position) -> None:
        """Note that everything up to this position needs no delivery any more (skipped by an
        operator, or expired).
        """
        for consumer in self.consumers:
            for held in [held for held in consumer.pending if held <= position]:
                self._forget(consumer, held)
        for known in [known for known in self._counts if known <= position]:
            del self._counts[known]
        self.reads.delayed.drop_through(position)

    def expired(self, positions: Sequence[Position]) -> None:
        """Note that these entries have expired. No consumer holds them any more."""
        for position in positions:
            for consumer in self.consumers:
                if position in consumer.pending:
                    self._forget(consumer, position)
                    break
            self._counts.pop(position, None)

    def _forget(self, consumer: Consumer, position: Position) -> None:
        messages = consumer.pending.pop(position)
        if consumer.partly:
            messages -= consumer.partly.pop(position, 0)
        self._count_down(consumer, messages)

    def _count_down(self, consumer: Consumer, messages: int) -> None:
        consumer.unacked -= messages
        self._unacked -= messages
        # A blocked consumer continues below half of its limit, so that it does not flap.
        if consumer.blocked and consumer.unacked < self._unacked_max_consumer / 2:
            consumer.blocked = False
        if self.blocked and self._unacked < self._unacked_max_subscription / 2:
            self.blocked = False

    def _room(self, consumer: Consumer) -> int:
        """Return how many messages may go to the consumer in this turn.

        The last entry may exceed it: a batch is delivered whole.
        """
        room = min(consumer.permits, self._turn_messages)
        if self._unacked_max_consumer:
            room = min(room, self._unacked_max_consumer - consumer.unacked)
        if self._unacked_max_subscription:
            room = min(room, self._unacked_max_subscription - self._unacked)
        return room

    def _give(self, consumer: Consumer, entries: Sequence[Ready]) -> None:
        pending, counts = consumer.pending, self._counts
        sent: list[Delivery] = []
        messages = 0
        for ready in entries:
            messages += ready.messages
            if ready.ack_set is not None:
                left = int.from_bytes(ready.ack_set, "little").bit_count()
                consumer.partly[ready.position] = ready.messages - left
                messages -= ready.messages - left
            count = counts.get(ready.position, 0) if counts else 0
            sent.append(
                Delivery(ready.position, ready.payload, ready.messages, count, ready.ack_set)
            )
            pending[ready.position] = ready.messages
        consumer.unacked += messages
        self._unacked += messages
        consumer.send(sent)
        if 0 < self._unacked_max_consumer <= consumer.unacked:
            consumer.blocked = True
        if 0 < self._unacked_max_subscription <= self._unacked:
            self.blocked = True

    def unacked(self) -> int:
        """Number of delivered, unacknowledged messages."""
        return self._unacked

    def check(self) -> None:
        self.reads.check()
        assert self._unacked == sum(consumer.unacked for consumer in self.consumers)
        seen: set[Position] = set()
        for consumer in self.consumers:
            assert consumer.unacked == _unacked(consumer)
            assert consumer.partly.keys() <= consumer.pending.keys()
            assert seen.isdisjoint(consumer.pending), "an entry is held by two consumers"
            seen.update(consumer.pending)


def _unacked(consumer: Consumer) -> int:
    """Return the unacknowledged messages of all entries that the consumer holds."""
    return sum(consumer.pending.values()) - sum(consumer.partly.values())
