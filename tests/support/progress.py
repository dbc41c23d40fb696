"""A subscription around a dispatcher's core, as far as the judgement of its progress looks at
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pulsarish.broker.clients.activity import SubscriptionActivity
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.dispatchers.factory import Dispatcher
from pulsarish.broker.dispatchers.reads import Reads
from pulsarish.broker.progress.collect import snapshot_of
from pulsarish.broker.progress.snapshot import SubscriptionSnapshot
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.model.policies import (
    MAX_UNACKED_MESSAGES_PER_CONSUMER,
    MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION,
)
from pulsarish.model.position import Position
from tests.support.dispatching import Log, at

__all__ = ["DispatchedLog"]


@dataclass
class _Cursor:
    log: Log
    hole_count: int = 0
    blocked: bool = False

    @property
    def read_from(self) -> Position:
        return self.log.read_from()

    def backlog(self) -> int:
        return self.log.count - len(self.log.acked)


@dataclass
class _Source:
    log: Log
    is_compacted: bool = False

    def end(self) -> Position:
        return self.log.end

    def unread_entries(self, reads: Reads, end: Position) -> int:
        return self.log.entries_between(
            Position(reads.position.ledger_id, reads.position.entry_id - 1), end
        )


@dataclass
class _Limits:
    def reached(self) -> tuple[str, str]:
        return "dispatch-rate", "no limit"


@dataclass
class _Pump:
    reads_begun: int = 0
    hand_over_ms: int = 0
    reading_ms: int = 0
    limits: _Limits = field(default_factory=_Limits)


@dataclass
class _Policing:
    policies: dict[Any, int]


@dataclass
class DispatchedLog:
    """``work`` is what the subscription's task does; ``snapshot`` is what the judgement is made
    from.
    """

    dispatcher: Dispatcher
    log: Log
    unacked_max_consumer: int = 0
    unacked_max_subscription: int = 0

    def __post_init__(self) -> None:
        self.cursor = _Cursor(self.log)
        self.marks = SubscriptionActivity(at(-1), unused_since_ms=0)
        self.out = Meter(0.0)
        self.dispatch_loop = _Pump()
        self.source = _Source(self.log)
        limits = {
            MAX_UNACKED_MESSAGES_PER_CONSUMER: self.unacked_max_consumer,
            MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION: self.unacked_max_subscription,
        }
        self.topic_limits = _Policing(limits)
        self.delivered = 0

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self.dispatcher.consumers

    def add(self, consumer: Consumer) -> None:
        consumer.sent = self._sent
        self.dispatcher.add(consumer)

    def _sent(
        self, _consumer: Consumer, messages: int, _size_bytes: int, _redelivered: int
    ) -> None:
        self.delivered += messages

    def snapshot(self) -> SubscriptionSnapshot:
        return snapshot_of(cast("Subscription", self), self.log.now_ms)

    def work(self) -> int:
        """Read and deliver until there is nothing to do; how many reads and deliveries that
        were.
        """
        dispatcher, log, before = self.dispatcher, self.log, self.delivered
        reads = 0
        dispatcher.deliver()
        while True:
            if dispatcher.reads.delayed and dispatcher.has_room:
                dispatcher.reads.release(log.now_ms)
            read = dispatcher.plan(log.end, blocked=self.cursor.blocked)
            if read is None:
                return reads + self.delivered - before
            dispatcher.reads.succeeded(read, log.read(read), log.end)
            dispatcher.deliver()
            dispatcher.check()
            reads += 1
