"""Snapshots of live subscriptions for ``explain``, and the restart of a stalled dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pulsarish.broker.clients.stall import Mark
from pulsarish.broker.dispatchers.dispatcher import DispatcherKind
from pulsarish.broker.progress.snapshot import BookieState, ConsumerState, SubscriptionSnapshot
from pulsarish.model.policies import (
    MAX_UNACKED_MESSAGES_PER_CONSUMER,
    MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION,
)

if TYPE_CHECKING:
    from pulsarish.broker.clients.consumer import Consumer
    from pulsarish.broker.dispatchers.dispatcher import Dispatcher
    from pulsarish.broker.subscriptions.subscription import Subscription

__all__ = ["next_ledger", "progress_mark", "restart_dispatcher", "snapshot_of"]


def progress_mark(subscription: Subscription) -> Mark:
    """Return a value that changes with every read and delivery."""
    return subscription.dispatch_loop.reads_begun, subscription.out.messages


def restart_dispatcher(subscription: Subscription) -> None:
    """Read and deliver again, starting from facts.

    Consumers keep what they hold, and the order does not change.
    """
    subscription.dispatcher.restart()
    subscription.dispatch_loop.restart()


def next_ledger(subscription: Subscription) -> int | None:
    """Return the ledger that a read of the subscription waits for; ``None``: no read waits."""
    is_waiting = subscription.marks.reading_since_ms or subscription.dispatcher.reads.failure
    return subscription.dispatcher.reads.position.ledger_id if is_waiting else None


def snapshot_of(
    subscription: Subscription, now_ms: int, bookies: Sequence[BookieState] = ()
) -> SubscriptionSnapshot:
    """Return a snapshot of a subscription.

    ``bookies``: those of the next read, if they are known.
    """
    dispatcher, cursor, marks = subscription.dispatcher, subscription.cursor, subscription.marks
    reads, policies, loop = (
        dispatcher.reads,
        subscription.topic_limits.policies,
        subscription.dispatch_loop,
    )
    backlog, end = cursor.backlog(), subscription.source.end()
    unread = subscription.source.unread_entries(reads, end)
    rate_policy, rate = loop.limits.reached()
    chunks = dispatcher.chunks_held
    lost_sight = (
        not subscription.source.is_compacted
        and backlog > 0
        and reads.position > end
        and not reads.delayed
        and dispatcher.holds_nothing
    )
    return SubscriptionSnapshot(
        kind=dispatcher.kind,
        now_ms=now_ms,
        backlog=backlog,
        consumers=tuple(
            _consumer(subscription, dispatcher, each, backlog - unread)
            for each in subscription.consumers
        ),
        unused_since_ms=marks.unused_since_ms,
        last_consumed_ms=marks.last_consumed_ms,
        last_acked_ms=marks.last_acked_ms,
        read_position=str(reads.position),
        has_unread=unread > 0,
        ready=reads.waiting_count,
        lost_sight=lost_sight,
        reading_since_ms=marks.reading_since_ms,
        reading_ms=loop.reading_ms,
        failure=reads.failure,
        failed_since_ms=reads.failed_since_ms,
        retry_at_ms=marks.retry_at_ms,
        ledger_id=reads.position.ledger_id,
        bookies=tuple(bookies),
        rate_since_ms=marks.rate_since_ms,
        rate_until_ms=marks.rate_until_ms,
        rate=rate,
        rate_policy=rate_policy,
        seeking_since_ms=marks.seeking_since_ms,
        handing_over_since_ms=marks.handing_over_since_ms
        if dispatcher.kind is DispatcherKind.SINGLE_ACTIVE
        else 0,
        handing_over_max_ms=loop.hand_over_ms,
        delayed=len(reads.delayed),
        delayed_full=reads.delayed.is_full,
        next_due_ms=reads.delayed.next_due_ms or 0,
        holes=cursor.hole_count,
        holes_since_ms=marks.holes_since_ms,
        is_beyond_holes=cursor.blocked,
        first_unacked=str(cursor.read_from),
        unacked=dispatcher.unacked(),
        unacked_max=policies[MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION],
        unacked_max_consumer=policies[MAX_UNACKED_MESSAGES_PER_CONSUMER],
        is_blocked=dispatcher.blocked,
        chunks_held=sum(count for count, _ in chunks.values()),
        chunks_ready=sum(count for count, can_take in chunks.values() if can_take),
        chunk_holders=tuple(chunks),
        keys=dispatcher.keys(),
        stalled_since_ms=marks.stall.since(progress_mark(subscription)),
    )


def _consumer(
    subscription: Subscription, dispatcher: Dispatcher, consumer: Consumer, read: int
) -> ConsumerState:
    """Return the state of a consumer. ``read``: entries of the backlog that were read."""
    unacked, is_active, is_blocked = consumer.unacked, True, consumer.blocked
    if dispatcher.kind is DispatcherKind.SINGLE_ACTIVE:
        is_active = consumer is dispatcher.active
        unacked = max(0, read - dispatcher.reads.waiting_count) if is_active else 0
    else:
        # It continues below half of its limit. Below that it is not a reason to wait, whatever the
        # flag says.
        is_blocked = (
            is_blocked
            and 2 * unacked >= subscription.topic_limits.policies[MAX_UNACKED_MESSAGES_PER_CONSUMER]
        )
    return ConsumerState(
        consumer.name,
        consumer.permits,
        unacked,
        is_blocked,
        consumer.outlet.has_room,
        is_active,
        dispatcher.lined_up(consumer),
        consumer.last_flow_ms,
        consumer.last_delivered_ms,
        consumer.connected_ms,
    )
