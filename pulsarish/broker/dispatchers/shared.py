"""Shared subscriptions: entries go round the consumers that have permits, the lowest priority level first.

A consumer is given up to a turn of messages, then the next. Each delivered entry is remembered with its consumer until it is acknowledged;
what a consumer gives back, or holds when it goes away, is delivered again with a count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pulsarish.broker.consumer import Consumer, Delivery
from pulsarish.broker.dispatchers.reads import Read, ReadLimits, Reads
from pulsarish.model.errors import ConsumerBusy
from pulsarish.model.position import Position

__all__ = ["SharedDispatcher"]


class SharedDispatcher:
    """The core of a shared subscription."""

    def __init__(
        self,
        *,
        read_from: Callable[[], Position],
        acknowledged: Callable[[Position], bool],
        limits: ReadLimits,
        consumers_max: int,
        turn_messages: int,
        unacked_max_consumer: int,
        unacked_max_subscription: int,
    ) -> None:
        self.consumers: list[Consumer] = []  # by priority level, then in order of joining
        self.reads = Reads(read_from(), limits, acknowledged)
        self.blocked = False  # too many unacknowledged messages in the subscription
        self._read_from = read_from
        self._acknowledged = acknowledged
        self._consumers_max = consumers_max
        self._turn_messages = turn_messages
        self._unacked_max_consumer = unacked_max_consumer
        self._unacked_max_subscription = unacked_max_subscription
        self._unacked = 0
        self._next_order = 0  # the join order of whose turn it is
        self._counts: dict[Position, int] = {}

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
            self.reads.rewind(self._read_from())

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
        self.reads.rewind(self._read_from())

    def redelivery_count(self, position: Position) -> int:
        return self._counts.get(position, 0)

    def redeliver(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Deliver these again, or without positions everything that the consumer holds. What it does not hold is not its to give back."""
        if positions:
            self._give_back(consumer, [position for position in positions if position in consumer.pending])
        else:
            consumer.permits += consumer.outlet.withdraw(consumer.consumer_id)
            self._give_back(consumer, list(consumer.pending))

    def _give_back(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        for position in positions:
            self._forget(consumer, position)
            self._counts[position] = self._counts.get(position, 0) + 1
        self.reads.deliver_again(positions)

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
        consumer.acked += len(positions)

    def acknowledged_through(self, position: Position) -> None:
        """Everything up to this needs no delivery any more (skipped or expired by an operator)."""
        for consumer in self.consumers:
            for held in [held for held in consumer.pending if held <= position]:
                self._forget(consumer, held)
        for known in [known for known in self._counts if known <= position]:
            del self._counts[known]

    def _forget(self, consumer: Consumer, position: Position) -> None:
        messages = consumer.pending.pop(position)
        consumer.unacked -= messages
        self._unacked -= messages
        # A blocked one goes on below half of its limit, so that it does not flap.
        if consumer.blocked and consumer.unacked < self._unacked_max_consumer / 2:
            consumer.blocked = False
        if self.blocked and self._unacked < self._unacked_max_subscription / 2:
            self.blocked = False

    def plan(self, end: Position, *, blocked: bool) -> Read | None:
        """The next read. ``blocked``: nothing new may be delivered, since the cursor could not keep what is acknowledged of it."""
        if self.blocked or not any(consumer.available for consumer in self.consumers):
            return None
        return self.reads.plan(end, new_allowed=not blocked)

    def deliver(self) -> None:
        """Give out what is ready in turns."""
        reads = self.reads
        while (reads.ready_again or reads.ready) and not self.blocked:
            consumer = self._whose_turn()
            if consumer is None:
                return
            self._turn(consumer)

    def _whose_turn(self) -> Consumer | None:
        """The first available consumer of the lowest priority level that has one, after the last who had a turn."""
        chosen: Consumer | None = None
        for consumer in self.consumers:
            if not consumer.available:
                continue
            if chosen is None:
                chosen = consumer
            elif consumer.priority_level > chosen.priority_level:
                break
            elif chosen.order < self._next_order <= consumer.order:
                chosen = consumer
                break
            if chosen.order >= self._next_order:
                break
        if chosen is not None:
            self._next_order = chosen.order + 1
        return chosen

    def _turn(self, consumer: Consumer) -> None:
        left = min(consumer.permits, self._turn_messages)
        if self._unacked_max_consumer:
            left = min(left, self._unacked_max_consumer - consumer.unacked)
        if self._unacked_max_subscription:
            left = min(left, self._unacked_max_subscription - self._unacked)
        sent: list[Delivery] = []
        pending, counts = consumer.pending, self._counts
        messages = 0
        while left > messages and (source := self.reads.ready_again or self.reads.ready):
            ready = source.popleft()
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
