"""A subscription of a non-persistent topic: consumers with permits get entries at once, other
entries are dropped.

Its dispatchers are those of persistent topics. A delivered entry counts as acknowledged, because
nothing is ever redelivered. Entries that could not be delivered are removed from the dispatcher.
Nothing waits here, so there is no task and no cursor.
"""

from __future__ import annotations

from collections.abc import Sequence

from pulsarish.broker.clients.commands import (
    Acknowledge,
    ConsumerClosed,
    KeySharedPolicy,
    Outcome,
)
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.dispatchers.dispatcher import Dispatcher
from pulsarish.broker.dispatchers.factory import make_dispatcher
from pulsarish.broker.dispatchers.reads import Ready
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.model.errors import ConsumerBusy, NotAllowedError, PulsarishError
from pulsarish.model.policies import MAX_CONSUMERS_PER_SUBSCRIPTION
from pulsarish.model.position import EARLIEST, Position
from pulsarish.model.subscription_type import SubscriptionType
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Clock

__all__ = ["NonPersistentSubscription", "not_kept"]


def not_kept(topic: TopicName, wanted: str) -> NotAllowedError:
    """Return the error for a request that needs stored messages."""
    return NotAllowedError(
        f"topic {topic} keeps no messages, so {wanted}; use a persistent topic for that"
    )


class NonPersistentSubscription:
    """A subscription of a non-persistent topic. ``next_position``: position of the next entry."""

    def __init__(
        self,
        name: str,
        topic: TopicName,
        *,
        durable: bool,
        next_position: Position,
        config: BrokerConfig,
        clock: Clock,
        topic_limits: TopicLimits,
    ) -> None:
        self.name = name
        self.durable = durable
        self.type = SubscriptionType.EXCLUSIVE
        self.closed: PulsarishError | None = None
        now = clock.monotonic()
        self.out = Meter(now)
        self.expired = Meter(now)  # stays 0
        self.acked = Meter(now)
        self.dropped = Meter(now)
        self._topic = topic
        self._next_position = next_position
        self._config = config
        self._clock = clock
        self._topic_limits = topic_limits
        self._dispatcher: Dispatcher = self._make_dispatcher(self.type, KeySharedPolicy())
        self._joined = 0

    def _make_dispatcher(self, kind: SubscriptionType, key_shared: KeySharedPolicy) -> Dispatcher:
        return make_dispatcher(
            kind,
            key_shared,
            partition=self._topic.partition,
            read_from=lambda: self._next_position,
            acknowledged=lambda _: False,
            config=self._config,
            policies=self._topic_limits.policies,
            keeps_unacked=False,
        )

    def policies_changed(self) -> None:
        """Apply the changed policies."""
        consumers_max = self._topic_limits.policies[MAX_CONSUMERS_PER_SUBSCRIPTION]
        self._dispatcher.limit(
            consumers_max=consumers_max, unacked_max_consumer=0, unacked_max_subscription=0
        )

    # -- consumers

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self._dispatcher.consumers

    @property
    def dispatcher(self) -> Dispatcher:
        return self._dispatcher

    @property
    def backlog(self) -> int:
        return 0

    @property
    def mark_delete(self) -> Position:
        return EARLIEST

    def add(self, consumer: Consumer, kind: SubscriptionType, key_shared: KeySharedPolicy) -> None:
        """Connect a consumer.

        Raises ``ConsumerBusy``, ``ConsumerAssignError``, or why the subscription is closed.
        """
        if self.closed is not None:
            raise self.closed
        dispatcher = self._dispatcher
        if kind is not self.type or not dispatcher.takes(key_shared):
            if self.consumers:
                raise ConsumerBusy(
                    f"subscription {self.name!r} is in use with type {self.type.name.lower()}; "
                    "its consumers must leave before it can be"
                    f" used otherwise, now with type {kind.name.lower()}"
                )
            dispatcher = self._dispatcher = self._make_dispatcher(kind, key_shared)
            self.type = kind
        consumer.sent = self._sent
        consumer.start_counting(self._clock.monotonic())
        consumer.order = self._joined
        self._joined += 1
        dispatcher.add(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Disconnect a consumer. Messages in its outlet are lost."""
        if not consumer.closed:
            consumer.closed = True
            consumer.outlet.withdraw(consumer.consumer_id)
            self._dispatcher.remove(consumer)

    def close(self, error: PulsarishError) -> None:
        """Close the subscription for good, and its consumers with ``error``."""
        self.closed = error
        for consumer in list(self.consumers):
            self.remove(consumer)
            consumer.outlet.put(ConsumerClosed(consumer.consumer_id, error))

    # -- published entries

    @property
    def hashes_keys(self) -> bool:
        return self.type is SubscriptionType.KEY_SHARED

    def push(self, entries: Sequence[Ready]) -> None:
        """Deliver these entries, and drop those that no consumer can receive now."""
        dispatcher = self._dispatcher
        last = entries[-1].position
        self._next_position = Position(last.ledger_id, last.entry_id + 1)
        dispatcher.reads.came(entries)
        dispatcher.deliver()
        for consumer in dispatcher.consumers:
            if consumer.pending:
                dispatcher.acknowledged(consumer, list(consumer.pending))
        if dropped := dispatcher.drop_waiting():
            self.dropped.add(dropped, 0, self._clock.monotonic())

    def _sent(self, consumer: Consumer, messages: int, size_bytes: int, redelivered: int) -> None:
        now = self._clock.monotonic()
        consumer.last_delivered_ms = self._clock.wall_ms()
        consumer.out.add(messages, size_bytes, now)
        self.out.add(messages, size_bytes, now)

    # -- commands of consumers

    def flow(self, consumer: Consumer, permits: int) -> None:
        if not consumer.closed:
            consumer.permits += permits
            consumer.last_flow_ms = self._clock.wall_ms()

    def wake(self) -> None:
        """Do nothing: no entry waits for room."""

    def acknowledge(self, consumer: Consumer, command: Acknowledge) -> None:
        """Send the requested receipt. There is nothing to store."""
        consumer.last_acked_ms = self._clock.wall_ms()
        now = self._clock.monotonic()
        consumer.acked.add(len(command.positions), 0, now)
        self.acked.add(len(command.positions), 0, now)
        if command.request_id:
            consumer.outlet.put(Outcome(command.request_id))

    def redeliver(self, consumer: Consumer, positions: Sequence[Position], epoch: int = -1) -> None:
        """Set the epoch of later deliveries. There is nothing to redeliver."""
        consumer.epoch = max(consumer.epoch, epoch)

    def extend_ack(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Do nothing: no message is delivered a second time."""

    async def seek(
        self, position: Position | None, publish_time_ms: int, *, by: Consumer | None = None
    ) -> None:
        raise not_kept(self._topic, f"its subscription {self.name!r} cannot be moved by a seek")

    async def last_message(self) -> tuple[Position, int]:
        raise not_kept(self._topic, "it has no last message")

    def check(self) -> None:
        self._dispatcher.check()
        assert not self._dispatcher.waiting_count, "a message waits"
