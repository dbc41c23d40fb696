"""The metrics of topics, subscriptions and consumers: one row each, with what it reads.

Names are those of Apache Pulsar, or begin with ``pulsarish_``. The rows are computed during a
scrape: a reading gathers what several rows need of one topic, subscription or consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.interfaces import ServedTopic
from pulsarish.broker.nonpersistent.subscription import NonPersistentSubscription
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.broker.topics.topic import Topic
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.message_counter import HOLES_MAX

__all__ = [
    "COMPACTION",
    "CONSUMER",
    "NOT_KEPT",
    "SUBSCRIPTION",
    "TOPIC",
    "CompactionReading",
    "ConsumerReading",
    "NotKeptReading",
    "Row",
    "SubscriptionReading",
    "TopicReading",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Row(Generic[T]):
    """A metric and its value.

    Args:
        value: reads it.
        in_all: name and meaning of the sum over all topics of the broker, if there is one.
    """

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    value: Callable[[T], float]
    in_all: tuple[str, str] | None = None


class TopicReading:
    """A topic at a moment (``now``: monotonic)."""

    __slots__ = (
        "backlog",
        "backlog_bytes",
        "bytes_out",
        "consumers",
        "copies",
        "messages_out",
        "now",
        "pending",
        "rate_in",
        "rate_out",
        "stuck",
        "throughput_in",
        "throughput_out",
        "topic",
    )

    def __init__(self, topic: ServedTopic, now: float) -> None:
        self.topic = topic
        self.now = now
        self.rate_in, self.throughput_in = topic.traffic.came.rates(now)
        self.consumers = self.backlog = self.messages_out = self.bytes_out = 0
        self.rate_out = self.throughput_out = 0.0
        for subscription in topic.subscriptions.values():
            self.consumers += len(subscription.consumers)
            self.backlog += subscription.backlog
            rate, throughput = subscription.out.rates(now)
            self.rate_out += rate
            self.throughput_out += throughput
            self.messages_out += subscription.out.messages
            self.bytes_out += subscription.out.size_bytes
        self.copies = self.backlog_bytes = self.pending = self.stuck = 0
        if isinstance(topic, Topic):
            self._read_log(topic)

    def _read_log(self, topic: Topic) -> None:
        log = topic.log
        for subscription in topic.subscriptions.values():
            if subscription.backlog:
                behind = log.bytes_above(subscription.mark_delete)
                self.backlog_bytes = max(self.backlog_bytes, behind)
            self.stuck += _is_stuck(subscription)
        self.copies, self.pending = log.write_quorum, log.pending_entries


def _is_stuck(subscription: Subscription) -> bool:
    return (
        bool(subscription.dispatcher.reads.failure)
        or subscription.cursor.blocked
        or subscription.dispatcher.blocked
    )


class SubscriptionReading:
    """A subscription at a moment."""

    __slots__ = ("holes", "messages", "now", "now_ms", "rate_out", "subscription", "throughput_out")

    def __init__(
        self, subscription: Subscription, log: ManagedLedger, now: float, now_ms: int
    ) -> None:
        self.now_ms = now_ms
        self.holes = subscription.cursor.count_holes()
        self.subscription = subscription
        self.messages = log.messages.backlog(subscription.cursor, holes_max=HOLES_MAX)
        self.now = now
        self.rate_out, self.throughput_out = subscription.out.rates(now)

    @property
    def oldest_hole_age_seconds(self) -> float:
        """0 without a hole, -1 when the age is not known."""
        oldest = self.subscription.oldest_known() if self.holes else None
        if oldest is None:
            return -1 if self.holes else 0
        return max(0, self.now_ms - oldest[1]) / 1000


class NotKeptReading:
    """A subscription of a non-persistent topic at a moment."""

    __slots__ = ("now", "rate_out", "subscription", "throughput_out")

    def __init__(self, subscription: NonPersistentSubscription, now: float) -> None:
        self.subscription = subscription
        self.now = now
        self.rate_out, self.throughput_out = subscription.out.rates(now)


class CompactionReading:
    """The compaction of a topic."""

    __slots__ = ("runs", "view")

    def __init__(self, topic: Topic) -> None:
        self.runs = topic.compaction
        self.view = topic.log.views.current


class ConsumerReading:
    """A consumer at a moment."""

    __slots__ = ("consumer", "rate_out", "throughput_out")

    def __init__(self, consumer: Consumer, now: float) -> None:
        self.consumer = consumer
        self.rate_out, self.throughput_out = consumer.out.rates(now)


TOPIC: Final[Sequence[Row[TopicReading]]] = (
    Row(
        "pulsar_subscriptions_count",
        "gauge",
        "Subscriptions.",
        lambda each: len(each.topic.subscriptions),
        in_all=("pulsar_broker_subscriptions_count", "Subscriptions of all loaded topics."),
    ),
    Row(
        "pulsar_producers_count",
        "gauge",
        "Connected producers.",
        lambda each: len(each.topic.producers),
        in_all=("pulsar_broker_producers_count", "Producers of all loaded topics."),
    ),
    Row(
        "pulsar_consumers_count",
        "gauge",
        "Connected consumers.",
        lambda each: each.consumers,
        in_all=("pulsar_broker_consumers_count", "Consumers of all loaded topics."),
    ),
    Row(
        "pulsar_rate_in",
        "gauge",
        "Messages published a second.",
        lambda each: each.rate_in,
        in_all=("pulsar_broker_rate_in", "Messages published a second."),
    ),
    Row(
        "pulsar_throughput_in",
        "gauge",
        "Bytes published a second.",
        lambda each: each.throughput_in,
        in_all=("pulsar_broker_throughput_in", "Bytes published a second."),
    ),
    Row(
        "pulsar_rate_out",
        "gauge",
        "Messages delivered a second.",
        lambda each: each.rate_out,
        in_all=("pulsar_broker_rate_out", "Messages delivered a second."),
    ),
    Row(
        "pulsar_throughput_out",
        "gauge",
        "Bytes delivered a second.",
        lambda each: each.throughput_out,
        in_all=("pulsar_broker_throughput_out", "Bytes delivered a second."),
    ),
    Row(
        "pulsar_in_messages_total",
        "counter",
        "Messages published since the topic was loaded.",
        lambda each: each.topic.traffic.came.messages,
    ),
    Row(
        "pulsar_in_bytes_total",
        "counter",
        "Bytes published since the topic was loaded.",
        lambda each: each.topic.traffic.came.size_bytes,
    ),
    Row(
        "pulsar_out_messages_total",
        "counter",
        "Messages delivered since the topic was loaded.",
        lambda each: each.messages_out,
    ),
    Row(
        "pulsar_out_bytes_total",
        "counter",
        "Bytes delivered since the topic was loaded.",
        lambda each: each.bytes_out,
    ),
    Row(
        "pulsar_storage_size",
        "gauge",
        "Bytes kept, all copies.",
        lambda each: each.topic.kept_bytes * each.copies,
        in_all=("pulsar_broker_storage_size", "Bytes kept, all copies, of all loaded topics."),
    ),
    Row(
        "pulsar_storage_logical_size",
        "gauge",
        "Bytes kept, one copy.",
        lambda each: each.topic.kept_bytes,
    ),
    Row(
        "pulsar_storage_backlog_size",
        "gauge",
        "Bytes that the slowest subscription has not acknowledged, about.",
        lambda each: each.backlog_bytes,
    ),
    Row(
        "pulsar_storage_write_rate",
        "gauge",
        "Entries written to the log a second.",
        lambda each: each.topic.traffic.written.rates(each.now)[0],
    ),
    Row(
        "pulsar_msg_backlog",
        "gauge",
        "Entries that subscriptions have not acknowledged, all together.",
        lambda each: each.backlog,
        in_all=("pulsar_broker_msg_backlog", "Entries not acknowledged, of all loaded topics."),
    ),
    Row(
        "pulsarish_held_by_backlog_quota",
        "gauge",
        "1 while no client may publish, because the backlog is beyond its quota.",
        lambda each: int(each.topic.topic_limits.quota_error is not None),
        in_all=(
            "pulsarish_broker_held_topics",
            "Topics to which no client may publish, because the backlog is beyond its quota.",
        ),
    ),
    Row(
        "pulsarish_pending_entries",
        "gauge",
        "Entries published and not confirmed.",
        lambda each: each.pending,
        in_all=("pulsarish_broker_pending_entries", "Entries published and not confirmed."),
    ),
    Row(
        "pulsarish_stuck_subscriptions",
        "gauge",
        "Subscriptions whose reads fail, or that are blocked by what is not acknowledged.",
        lambda each: each.stuck,
        in_all=(
            "pulsarish_broker_stuck_subscriptions",
            "Subscriptions whose reads fail, or that are blocked by what is not acknowledged.",
        ),
    ),
)
SUBSCRIPTION: Final[Sequence[Row[SubscriptionReading]]] = (
    Row(
        "pulsar_subscription_back_log",
        "gauge",
        "Entries not acknowledged.",
        lambda each: each.subscription.cursor.backlog(),
    ),
    Row(
        "pulsarish_subscription_backlog_messages",
        "gauge",
        "Messages not acknowledged, each message of a batch counted.",
        lambda each: each.messages.messages,
    ),
    Row(
        "pulsarish_subscription_backlog_messages_estimated",
        "gauge",
        "1 while the number of messages is an estimate.",
        lambda each: int(each.messages.is_estimate),
    ),
    Row(
        "pulsarish_subscription_backlog_bytes",
        "gauge",
        "Bytes of entries above the mark-delete position, about.",
        lambda each: each.subscription.log.bytes_above(each.subscription.mark_delete),
    ),
    Row(
        "pulsar_subscription_unacked_messages",
        "gauge",
        "Messages delivered and not acknowledged (shared subscriptions).",
        lambda each: each.subscription.unacked,
    ),
    Row(
        "pulsar_subscription_delayed",
        "gauge",
        "Entries that are to be delivered at a later time.",
        lambda each: len(each.subscription.dispatcher.reads.delayed),
    ),
    Row(
        "pulsar_subscription_delayed_index_size_bytes",
        "gauge",
        "Memory that entries to be delivered at a later time take, about.",
        lambda each: each.subscription.dispatcher.reads.delayed.size_bytes,
    ),
    Row(
        "pulsar_subscription_delayed_index_buckets",
        "gauge",
        "Buckets of entries to be delivered at a later time.",
        lambda each: len(each.subscription.dispatcher.reads.delayed.buckets),
    ),
    Row(
        "pulsar_subscription_blocked_on_unacked_messages",
        "gauge",
        "1 while nothing is delivered because of unacknowledged messages.",
        lambda each: int(each.subscription.dispatcher.blocked),
    ),
    Row(
        "pulsar_subscription_msg_rate_out",
        "gauge",
        "Messages delivered a second.",
        lambda each: each.rate_out,
    ),
    Row(
        "pulsar_subscription_msg_throughput_out",
        "gauge",
        "Bytes delivered a second.",
        lambda each: each.throughput_out,
    ),
    Row(
        "pulsar_subscription_msg_rate_redeliver",
        "gauge",
        "Messages delivered again a second.",
        lambda each: each.subscription.redelivered.rates(each.now)[0],
    ),
    Row(
        "pulsar_subscription_msg_ack_rate",
        "gauge",
        "Acknowledgements a second.",
        lambda each: each.subscription.acked.rates(each.now)[0],
    ),
    Row(
        "pulsar_subscription_total_msg_expired",
        "counter",
        "Entries expired since the topic was loaded.",
        lambda each: each.subscription.expired.messages,
    ),
    Row(
        "pulsar_subscription_filter_processed_msg_count",
        "counter",
        "Messages judged by the filter since the topic was loaded.",
        lambda each: each.subscription.filter_counts.processed,
    ),
    Row(
        "pulsar_subscription_filter_accepted_msg_count",
        "counter",
        "Messages that the filter let through.",
        lambda each: each.subscription.filter_counts.accepted,
    ),
    Row(
        "pulsar_subscription_filter_rejected_msg_count",
        "counter",
        "Messages that the filter had acknowledged without a delivery.",
        lambda each: each.subscription.filter_counts.rejected,
    ),
    Row(
        "pulsar_subscription_consumers_count",
        "gauge",
        "Connected consumers.",
        lambda each: len(each.subscription.consumers),
    ),
    Row(
        "pulsar_subscription_last_expire_timestamp",
        "gauge",
        "When messages were last expired, milliseconds; 0: never.",
        lambda each: each.subscription.marks.last_expire_ms,
    ),
    Row(
        "pulsar_subscription_last_acked_timestamp",
        "gauge",
        "When something was last acknowledged, milliseconds; 0: never.",
        lambda each: each.subscription.marks.last_acked_ms,
    ),
    Row(
        "pulsar_subscription_last_consumed_flow_timestamp",
        "gauge",
        "When a consumer last asked for messages, milliseconds; 0: never.",
        lambda each: each.subscription.marks.last_flow_ms,
    ),
    Row(
        "pulsar_subscription_last_consumed_timestamp",
        "gauge",
        "When something was last delivered, milliseconds; 0: never.",
        lambda each: each.subscription.marks.last_consumed_ms,
    ),
    Row(
        "pulsar_subscription_last_mark_delete_advanced_timestamp",
        "gauge",
        "When the mark last advanced, milliseconds; 0: never.",
        lambda each: each.subscription.marks.mark_delete_advanced_ms,
    ),
    Row(
        "pulsarish_subscription_holes",
        "gauge",
        "Runs of entries that are not acknowledged below the highest acknowledged one.",
        lambda each: each.holes,
    ),
    Row(
        "pulsarish_subscription_oldest_hole_age_seconds",
        "gauge",
        "Seconds since the first entry of the oldest hole was published; 0: there is no hole, -1: "
        "not known yet.",
        lambda each: each.oldest_hole_age_seconds,
    ),
    Row(
        "pulsarish_subscription_entries_in_holes",
        "gauge",
        "Entries below the highest acknowledged one that are not acknowledged.",
        lambda each: each.subscription.cursor.entries_in_holes(),
    ),
    Row(
        "pulsarish_subscription_unacked_redelivered_total",
        "counter",
        "Entries that the broker delivered again, because a consumer did not acknowledge them.",
        lambda each: each.subscription.dispatch_loop.unacked_redelivered,
    ),
    Row(
        "pulsarish_subscription_acknowledged_ranges",
        "gauge",
        "Acknowledged ranges above the mark; too many stop the delivery.",
        lambda each: each.subscription.cursor.hole_count,
    ),
    Row(
        "pulsarish_subscription_reads_failing",
        "gauge",
        "1 while reads for the subscription fail.",
        lambda each: int(bool(each.subscription.dispatcher.reads.failure)),
    ),
)
NOT_KEPT: Final[Sequence[Row[NotKeptReading]]] = (
    Row(
        "pulsar_subscription_msg_rate_out",
        "gauge",
        "Messages delivered a second.",
        lambda each: each.rate_out,
    ),
    Row(
        "pulsar_subscription_msg_throughput_out",
        "gauge",
        "Bytes delivered a second.",
        lambda each: each.throughput_out,
    ),
    Row(
        "pulsar_subscription_msg_ack_rate",
        "gauge",
        "Acknowledgements a second.",
        lambda each: each.subscription.acked.rates(each.now)[0],
    ),
    Row(
        "pulsar_subscription_consumers_count",
        "gauge",
        "Connected consumers.",
        lambda each: len(each.subscription.consumers),
    ),
    Row(
        "pulsar_subscription_msg_drop_rate",
        "gauge",
        "Messages of non-persistent topics dropped a second.",
        lambda each: each.subscription.dropped.rates(each.now)[0],
    ),
)
"""Those that subscriptions of non-persistent topics have: some of the above, and one more."""
COMPACTION: Final[Sequence[Row[CompactionReading]]] = (
    Row(
        "pulsar_compaction_removed_event_count",
        "counter",
        "Messages taken out by compactions since the topic was loaded.",
        lambda each: each.runs.removed_total,
    ),
    Row(
        "pulsar_compaction_succeed_count",
        "counter",
        "Compactions that succeeded since the topic was loaded.",
        lambda each: each.runs.succeeded_count,
    ),
    Row(
        "pulsar_compaction_failed_count",
        "counter",
        "Compactions that failed since the topic was loaded.",
        lambda each: each.runs.failed_count,
    ),
    Row(
        "pulsar_compaction_duration_time_in_mills",
        "gauge",
        "Milliseconds that the last compaction took.",
        lambda each: each.runs.duration_ms,
    ),
    Row(
        "pulsar_compaction_compacted_entries_count",
        "gauge",
        "Entries of the compacted view.",
        lambda each: 0 if each.view is None else each.view.entries,
    ),
    Row(
        "pulsar_compaction_compacted_entries_size",
        "gauge",
        "Bytes of the compacted view, one copy.",
        lambda each: 0 if each.view is None else each.view.size_bytes,
    ),
)
"""Only for topics that are compacted and have their own series."""
CONSUMER: Final[Sequence[Row[ConsumerReading]]] = (
    Row(
        "pulsar_consumer_msg_rate_out",
        "gauge",
        "Messages delivered a second.",
        lambda each: each.rate_out,
    ),
    Row(
        "pulsar_consumer_msg_throughput_out",
        "gauge",
        "Bytes delivered a second.",
        lambda each: each.throughput_out,
    ),
    Row(
        "pulsar_consumer_available_permits",
        "gauge",
        "Messages that the consumer asked for and has not got.",
        lambda each: each.consumer.permits,
    ),
    Row(
        "pulsar_consumer_unacked_messages",
        "gauge",
        "Messages delivered and not acknowledged.",
        lambda each: each.consumer.unacked,
    ),
    Row(
        "pulsar_consumer_blocked_on_unacked_messages",
        "gauge",
        "1 while the consumer gets nothing because of its unacknowledged messages.",
        lambda each: int(each.consumer.blocked),
    ),
)
