"""Statistics of a non-persistent topic with Apache Pulsar's names. Everything is in memory."""

from __future__ import annotations

from typing import Any

from pulsarish.broker.clients.client_stats import consumer_stats, producer_stats
from pulsarish.broker.clients.commands import NO_EPOCH
from pulsarish.broker.clients.producer import Producer
from pulsarish.broker.clients.wait_reasons import ACTIVE, IDLE, Waiting, waiting_row
from pulsarish.broker.dispatchers.dispatcher import DispatcherKind
from pulsarish.broker.nonpersistent.subscription import NonPersistentSubscription
from pulsarish.broker.nonpersistent.topic import NonPersistentTopic

__all__ = ["non_persistent_internal_stats", "non_persistent_stats"]


def non_persistent_stats(topic: NonPersistentTopic, now: float) -> dict[str, Any]:
    """Return the statistics of a topic. ``now``: monotonic seconds."""
    came = topic.traffic.came
    message_rate, byte_rate = came.rates(now)
    subscriptions = {
        name: _subscription(topic.name.full, subscription, now)
        for name, subscription in sorted(topic.subscriptions.items())
    }
    total = {
        name: round(sum(each[name] for each in subscriptions.values()), 3)
        for name in ("msgRateOut", "msgThroughputOut", "msgOutCounter", "bytesOutCounter")
    }
    return {
        "msgRateIn": round(message_rate, 3),
        "msgThroughputIn": round(byte_rate, 3),
        **total,
        "msgInCounter": came.messages,
        "bytesInCounter": came.size_bytes,
        "averageMsgSize": round(came.size_bytes / came.messages, 1) if came.messages else 0.0,
        "msgDropRate": round(topic.dropped.rates(now)[0], 3),
        "msgDropCounter": topic.dropped.messages,
        "topicCreationTimeStamp": topic.loaded_ms,
        "storageSize": 0,
        "backlogSize": 0,
        "deduplicationStatus": "Disabled",
        "topicEpoch": topic.producer_epoch if topic.producer_epoch != NO_EPOCH else None,
        "waiting": waiting_row(IDLE, topic.name.full),
        "waitingPublishers": topic.access.waiting_count,
        "publishers": [_producer(producer, now) for producer in topic.producers.values()],
        "subscriptions": subscriptions,
    }


def _producer(producer: Producer, now: float) -> dict[str, Any]:
    dropped = producer.dropped
    return {
        **producer_stats(producer, now),
        "msgDropRate": 0.0 if dropped is None else round(dropped.rates(now)[0], 3),
        "msgDropCounter": 0 if dropped is None else dropped.messages,
    }


def _waiting(subscription: NonPersistentSubscription) -> Waiting:
    """Return why messages are dropped, if they are.

    There is no backlog: what no consumer can receive at once is dropped.
    """
    dropped = f"{subscription.dropped.messages} were dropped so far"
    if not subscription.consumers:
        text = (
            "No consumer is connected: each message that is published is dropped for this "
            f"subscription; {dropped}."
        )
        return Waiting("waiting", "dropped_no_consumers", text)
    takers = subscription.consumers
    if subscription.dispatcher.kind is DispatcherKind.SINGLE_ACTIVE:
        takers = [each for each in takers if each is subscription.dispatcher.active]
    if any(each.available for each in takers):
        return ACTIVE
    why = (
        "no consumer has permits"
        if any(each.outlet.has_room for each in takers)
        else "the consumers' connections are full"
    )
    text = (
        f"Each message that is published is dropped for this subscription, because {why}; "
        f"{dropped}."
    )
    return Waiting(
        "waiting",
        "dropped_no_permits",
        text,
        max((each.last_flow_ms for each in takers), default=0),
    )


def _subscription(
    topic: str, subscription: NonPersistentSubscription, now: float
) -> dict[str, Any]:
    dispatcher = subscription.dispatcher
    message_rate, byte_rate = subscription.out.rates(now)
    active = dispatcher.active
    return {
        "type": subscription.type.title,
        "msgBacklog": 0,
        "backlogMessages": 0,
        "backlogMessagesEstimated": False,
        "unackedMessages": 0,
        "msgRateOut": round(message_rate, 3),
        "msgThroughputOut": round(byte_rate, 3),
        "msgOutCounter": subscription.out.messages,
        "bytesOutCounter": subscription.out.size_bytes,
        "msgDropRate": round(subscription.dropped.rates(now)[0], 3),
        "msgDropCounter": subscription.dropped.messages,
        "messageAckRate": round(subscription.acked.rates(now)[0], 3),
        "msgRateExpired": 0.0,
        "isDurable": subscription.durable,
        "isReplicated": False,
        "activeConsumerName": active.name if active is not None else "",
        "waiting": waiting_row(_waiting(subscription), topic, subscription.name),
        "consumers": [consumer_stats(consumer, now) for consumer in subscription.consumers],
    }


def non_persistent_internal_stats(topic: NonPersistentTopic) -> dict[str, Any]:
    """Return the internal statistics.

    There is no log: only the number of entries, and the names of the subscriptions.
    """
    return {
        "entriesAddedCounter": topic.entries_added,
        "numberOfEntries": 0,
        "totalSize": 0,
        "ledgers": [],
        "cursors": {name: {} for name in sorted(topic.subscriptions)},
    }
