"""What all subscriptions with several consumers at work have in common: who is connected, and what each holds unacknowledged.

Each delivered entry is remembered with its consumer until it is acknowledged; what a consumer gives back, or holds when it goes away, is
delivered again with a count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pulsarish.broker.clients.consumer import Consumer, Delivery
from pulsarish.broker.dispatchers.reads import Read, ReadLimits, Reads, Ready
from pulsarish.model.errors import ConsumerBusy
from pulsarish.model.position import Position

__all__ = ["MultiConsumerDispatcher", "SharingLimits"]


@dataclass(frozen=True, slots=True)
class SharingLimits:
    """``turn_messages``: for one consumer in one turn. The others are without limit when they are 0."""

    consumers_max: int
    turn_messages: int
    unacked_max_consumer: int
    unacked_max_subscription: int


class MultiConsumerDispatcher(ABC):
    """The core of a subscription that more than one consumer takes from at a time; subclasses say who gets what."""

    def __init__(
        self, *, read_from: Callable[[], Position], acknowledged: Callable[[Position], bool], limits: ReadLimits, sharing: SharingLimits
    ) -> None:
        self.consumers: list[Consumer] = []  # by priority level, then in order of joining
        self.reads = Reads(read_from(), limits, acknowledged)
        self.blocked = False  # too many unacknowledged messages in the subscription
        self._read_from = read_from
        self._consumers_max = sharing.consumers_max
        self._turn_messages = sharing.turn_messages
        self._unacked_max_consumer = sharing.unacked_max_consumer
        self._unacked_max_subscription = sharing.unacked_max_subscription
        self._unacked = 0
        self._counts: dict[Position, int] = {}

    @abstractmethod
    def plan(self, end: Position, *, blocked: bool) -> Read | None:
        """The next read. ``blocked``: nothing new may be delivered, since the cursor could not keep what is acknowledged of it."""

    @abstractmethod
    def deliver(self) -> None:
        """Give out what is ready."""

    def limit(self, *, consumers_max: int, unacked_max_consumer: int, unacked_max_subscription: int) -> None:
        """Other limits hold now; 0: none. Who is connected stays."""
        self._consumers_max = consumers_max
        self._unacked_max_consumer = unacked_max_consumer
        self._unacked_max_subscription = unacked_max_subscription
        self.blocked = 0 < unacked_max_subscription <= self._unacked
        for consumer in self.consumers:
            consumer.blocked = 0 < unacked_max_consumer <= consumer.unacked

    def add(self, consumer: Consumer) -> None:
        """Raises ``ConsumerBusy`` at the limit."""
        if 0 < self._consumers_max <= len(self.consumers):
            raise ConsumerBusy(f"the subscription has {len(self.consumers)} consumers, the limit max_consumers_per_subscription")
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda c: (c.priority_level, c.order))

    def remove(self, consumer: Consumer) -> None:
        """What it holds is delivered to the others, or kept in mind until there are some."""
        self.consumers.remove(consumer)
        self._give_back(consumer, list(consumer.pending))
        if not self.consumers:
            self._start_over()

    def reset(self) -> None:
        """The cursor was moved: start over from where it is; what was delivered before counts for nothing."""
        for consumer in self.consumers:
            consumer.permits += consumer.outlet.withdraw(consumer.consumer_id)
            consumer.pending.clear()
            consumer.unacked = 0
            consumer.blocked = False
        self._unacked = 0
        self.blocked = False
        self._counts.clear()
        self._start_over()

    def _start_over(self) -> None:
        self.reads.rewind(self._read_from())

    def restart(self) -> None:
        """Plan and count again from what is known for sure: consumers keep what they hold, the rest is read in its order."""
        for consumer in self.consumers:
            consumer.unacked = sum(consumer.pending.values())
            consumer.blocked = 0 < self._unacked_max_consumer <= consumer.unacked
        self._unacked = sum(consumer.unacked for consumer in self.consumers)
        self.blocked = 0 < self._unacked_max_subscription <= self._unacked
        self.reads.restart()
        if self.holds_nothing and not self.reads.delayed:
            # Entries that no consumer holds or waits for are delivered from the position of the cursor.
            self._start_over()

    @property
    def holds_nothing(self) -> bool:
        """Whether no entry is with a consumer or waits to be given to one."""
        return not self.waiting_count and not self.reads.waiting_count and not any(consumer.pending for consumer in self.consumers)

    def redelivery_count(self, position: Position) -> int:
        return self._counts.get(position, 0)

    def redeliver(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Deliver these again, or without positions everything that the consumer holds. What it does not hold is not its to give back."""
        if positions:
            # A position that is named twice is given back once.
            self._give_back(consumer, [position for position in dict.fromkeys(positions) if position in consumer.pending])
        else:
            consumer.permits += consumer.outlet.withdraw(consumer.consumer_id)
            self._give_back(consumer, list(consumer.pending))

    def _give_back(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        for position in positions:
            self._take_back(consumer, position)
        self.reads.deliver_again(positions)

    def _take_back(self, consumer: Consumer, position: Position) -> None:
        self._forget(consumer, position)
        self._counts[position] = self._counts.get(position, 0) + 1

    def acknowledged(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """The cursor has these now."""
        own = consumer.pending
        for position in positions:
            if position in own:
                self._forget(consumer, position)
            else:
                # Delivered to another connection of the same client, before it reconnected.
                for other in self.consumers:
                    if position in other.pending:
                        self._forget(other, position)
                        break
            if self._counts:
                self._counts.pop(position, None)

    def acknowledged_through(self, position: Position) -> None:
        """Everything up to this needs no delivery any more (skipped or expired by an operator)."""
        for consumer in self.consumers:
            for held in [held for held in consumer.pending if held <= position]:
                self._forget(consumer, held)
        for known in [known for known in self._counts if known <= position]:
            del self._counts[known]
        self.reads.delayed.drop_through(position)

    def _forget(self, consumer: Consumer, position: Position) -> None:
        messages = consumer.pending.pop(position)
        consumer.unacked -= messages
        self._unacked -= messages
        # A blocked one goes on below half of its limit, so that it does not flap.
        if consumer.blocked and consumer.unacked < self._unacked_max_consumer / 2:
            consumer.blocked = False
        if self.blocked and self._unacked < self._unacked_max_subscription / 2:
            self.blocked = False

    def _room(self, consumer: Consumer) -> int:
        """Messages that may go to the consumer in this turn; the last entry may exceed it, since a batch is delivered whole."""
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
            count = counts.get(ready.position, 0) if counts else 0
            sent.append(Delivery(ready.position, ready.payload, ready.messages, count, ready.ack_set))
            pending[ready.position] = ready.messages
        consumer.unacked += messages
        self._unacked += messages
        consumer.send(sent)
        if 0 < self._unacked_max_consumer <= consumer.unacked:
            consumer.blocked = True
        if 0 < self._unacked_max_subscription <= self._unacked:
            self.blocked = True

    @property
    def has_room(self) -> bool:
        """Whether more may be read that cannot be delivered at once."""
        return True

    @property
    def again_count(self) -> int:
        """Entries that wait to be delivered again."""
        return self.reads.again_count

    @property
    def waiting_count(self) -> int:
        """Entries that were read and are not delivered yet, or are to be delivered again."""
        return len(self.reads.ready) + self.again_count

    def drop_waiting(self) -> int:
        """Forget what was not delivered; answers how many messages that were."""
        return self.reads.drop_ready()

    def unacked(self) -> int:
        """Messages delivered and not acknowledged."""
        return self._unacked

    def check(self) -> None:
        self.reads.check()
        assert self._unacked == sum(consumer.unacked for consumer in self.consumers)
        seen: set[Position] = set()
        for consumer in self.consumers:
            assert consumer.unacked == sum(consumer.pending.values())
            assert seen.isdisjoint(consumer.pending), "an entry is held by two consumers"
            seen.update(consumer.pending)
