"""Exclusive and failover subscriptions: one active consumer, entries in order.

The active consumer is the one with the lowest priority level, then the first name. The partitions
of a topic rotate through the candidates so that they share the work. Two consumers are never active
at once: the old one is informed before the new one gets anything.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import Final

from pulsarish.broker.clients.commands import ActiveChanged
from pulsarish.broker.clients.consumer import Consumer, Delivery
from pulsarish.broker.dispatchers.dispatcher import Dispatcher, DispatcherKind
from pulsarish.broker.dispatchers.reads import Read, ReadLimits, Reads
from pulsarish.model.errors import ConsumerBusy
from pulsarish.model.position import Position

__all__ = ["SingleActiveDispatcher"]

# Number of rewinds remembered for redelivery counts. Redeliveries of one entry are counted up to
# this number.
_REWINDS_MAX: Final = 1_000


class SingleActiveDispatcher(Dispatcher):
    """The core of an exclusive (``failover`` false) or failover subscription."""

    kind = DispatcherKind.SINGLE_ACTIVE

    def __init__(
        self,
        *,
        failover: bool,
        partition: int,
        read_from: Callable[[], Position],
        acknowledged: Callable[[Position], bool],
        limits: ReadLimits,
        consumers_max: int,
        hands_over_slowly: bool = False,
    ) -> None:
        """``hands_over_slowly``: a new active consumer gets nothing before ``hand_over`` while the
        previous one is still connected.
        """
        super().__init__(Reads(read_from(), limits, acknowledged))
        self._hands_over_slowly = hands_over_slowly
        self._notified: Consumer | None = None  # the consumer that was informed that it is active
        self._failover = failover
        self._partition = max(partition, 0)
        self._read_from = read_from
        self._acknowledged = acknowledged
        self._consumers_max = consumers_max
        self._sent_to: Position | None = None  # highest position delivered to the active consumer
        # Entries at or below the i-th of these were delivered before the i-th rewind; ascending.
        self._rewinds: list[Position] = []
        self._again_counts: dict[Position, int] = {}

    def limit(
        self, *, consumers_max: int, unacked_max_consumer: int, unacked_max_subscription: int
    ) -> None:
        """Apply new limits; 0: no limit.

        Connected consumers stay. Unacknowledged messages of the one active consumer are not
        counted.
        """
        self._consumers_max = consumers_max

    def add(self, consumer: Consumer) -> None:
        """Connect a consumer.

        Raises ``ConsumerBusy`` when an exclusive subscription has a consumer already, or at the
        limit of consumers.
        """
        if self.consumers and not self._failover:
            raise ConsumerBusy(
                "exclusive subscription has a connected consumer already "
                f"({self.consumers[0].name});"
                " close it, or subscribe all with type failover or shared"
            )
        if 0 < self._consumers_max <= len(self.consumers):
            raise ConsumerBusy(
                "the subscription has reached max_consumers_per_subscription "
                f"({self._consumers_max}): close a consumer, or raise the limit"
            )
        self.consumers.append(consumer)
        self._choose()
        if self._failover and consumer is not self.active:
            consumer.outlet.put(ActiveChanged(consumer.consumer_id, active=False))

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        if consumer is self._notified:
            self._notified = None
        if consumer is self.active:
            self.active = None
            self._rewind()
        self._choose()

    def _choose(self) -> None:
        chosen: Consumer | None = None
        if self.consumers:
            level = min(consumer.priority_level for consumer in self.consumers)
            candidates = sorted(
                (consumer for consumer in self.consumers if consumer.priority_level == level),
                key=lambda c: (c.name, c.order),
            )
            chosen = candidates[self._partition % len(candidates)]
        if chosen is self.active:
            return
        before, self.active = self.active, chosen
        if before is not None:
            # Its unacknowledged entries go to the new one. Entries that have not been sent yet are
            # withdrawn.
            before.permits += before.outlet.withdraw(before.consumer_id)
            if before is self._notified:
                self._notified = None
                before.outlet.put(ActiveChanged(before.consumer_id, active=False))
            if self._hands_over_slowly:
                self.handing_over = True
                return
            self._rewind()
        self._begin()

    def _begin(self) -> None:
        self.handing_over = False
        if self._failover and self.active is not None and self.active is not self._notified:
            self._notified = self.active
            self.active.outlet.put(ActiveChanged(self.active.consumer_id, active=True))

    def hand_over(self) -> None:
        """Let the active consumer begin with the entries that are unacknowledged now."""
        if self.handing_over:
            self._rewind()
            self._begin()

    def _rewind(self) -> None:
        start = self._read_from()
        if self._sent_to is not None:
            insort(self._rewinds, self._sent_to)
        del self._rewinds[
            : max(bisect_left(self._rewinds, start), len(self._rewinds) - _REWINDS_MAX)
        ]
        self._sent_to = None
        self.reads.rewind(start)

    def restart(self) -> None:
        """Plan again from facts: the active consumer keeps what it holds, the rest is read in
        order.
        """
        self.reads.restart()

    def redelivery_count(self, position: Position) -> int:
        """Return how often the entry was delivered before."""
        rewinds = len(self._rewinds) - bisect_left(self._rewinds, position)
        return rewinds + self._again_counts.get(position, 0)

    def reset(self) -> None:
        """Start again from the cursor after it was moved. Earlier deliveries do not count."""
        for consumer in self.consumers:
            consumer.permits += consumer.outlet.withdraw(consumer.consumer_id)
        self._rewinds.clear()
        self._again_counts.clear()
        self._sent_to = None
        self.reads.rewind(self._read_from())

    def redeliver(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Redeliver these entries in order; without positions all unacknowledged ones.

        Ignored from a consumer that is not active.
        """
        if consumer is not self.active:
            return
        if not positions:
            consumer.permits += consumer.outlet.withdraw(consumer.consumer_id)
            self._rewind()
            return
        wanted = [
            position
            for position in positions
            if position < self.reads.position and not self._acknowledged(position)
        ]
        for position in wanted:
            self._again_counts[position] = self._again_counts.get(position, 0) + 1
        self.reads.deliver_again(wanted)

    def acknowledged(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Note that the cursor has acknowledged these entries."""
        if self._again_counts:
            for position in positions:
                self._again_counts.pop(position, None)

    def acknowledged_through(self, position: Position) -> None:
        """Note that the cursor has acknowledged everything up to this position."""
        for earlier in [known for known in self._again_counts if known <= position]:
            del self._again_counts[earlier]

    def expired(self, positions: Sequence[Position]) -> None:
        """Note that these entries have expired, and that the cursor has acknowledged them."""
        for position in positions:
            self._again_counts.pop(position, None)

    def plan(self, end: Position, *, blocked: bool) -> Read | None:
        """Return the next read.

        ``blocked``: deliver nothing new, because the cursor could not store the acknowledgements.
        """
        active = self.active
        if active is None or self.handing_over or not active.available:
            return None
        return self.reads.plan(end, new_allowed=not blocked)

    @property
    def wants_new(self) -> bool:
        active = self.active
        return active is not None and not self.handing_over and active.available

    def deliver(self) -> None:
        """Deliver ready entries to the active consumer, as far as its permits and the room in its
        outlet allow.
        """
        active, reads = self.active, self.reads
        if active is None or self.handing_over:
            return
        while active.available and (source := reads.ready_again or reads.ready):
            permits = active.permits
            sent: list[Delivery] = []
            counted = source is reads.ready_again or bool(self._rewinds)
            while source and permits > 0:
                ready = source.popleft()
                permits -= ready.messages
                count = self.redelivery_count(ready.position) if counted else 0
                sent.append(
                    Delivery(
                        ready.position,
                        ready.payload,
                        ready.messages,
                        count,
                        ready.ack_set,
                        active.epoch,
                    )
                )
            active.send(sent)
            last = sent[-1].position
            if self._sent_to is None or last > self._sent_to:
                self._sent_to = last

    def unacked(self) -> int:
        """Number of delivered, unacknowledged messages.

        Not counted for one active consumer, as in Apache Pulsar.
        """
        return 0

    def check(self) -> None:
        self.reads.check()
        assert (self.active is None) == (not self.consumers)
        assert self._notified is None or self._notified is self.active
        assert self.handing_over or not self._failover or self._notified is self.active
        assert self._failover or len(self.consumers) <= 1
        assert self._rewinds == sorted(self._rewinds)
