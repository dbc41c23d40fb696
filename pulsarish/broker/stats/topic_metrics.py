"""The metrics of topics, subscriptions and consumers with Apache Pulsar's names, computed in slices
during a scrape.

The number of label sets is bounded. A limited number of topics and subscriptions, those loaded
first, have series of their own. All others are summed up in a series of their namespace, without
the label ``topic``, so that a sum over all series is right in any case. In addition there are sums
of the whole broker (``pulsar_broker_*``), which dashboards of large clusters should use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.interfaces import ServedTopic
from pulsarish.broker.clients.meters import ENTRY_SIZE_BUCKETS_BYTES, WRITE_LATENCY_BUCKETS_MS
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.nonpersistent.subscription import NonPersistentSubscription
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.topic import Topic
from pulsarish.runtime.metrics import Family, Histogram, Metrics, Page
from pulsarish.runtime.seams import Clock

__all__ = ["TopicMetrics"]

_SLICE_TOPICS: Final = 50  # topics between two pauses: about two milliseconds
_SLICE_SUBSCRIPTIONS: Final = 100
_NAMESPACES_MAX: Final = 1_000
_OVERFLOW: Final = "overflow"  # the name under which all further namespaces are summed up

_TOPIC: Final = (
    Family("pulsar_subscriptions_count", "gauge", "Subscriptions."),
    Family("pulsar_producers_count", "gauge", "Connected producers."),
    Family("pulsar_consumers_count", "gauge", "Connected consumers."),
    Family("pulsar_rate_in", "gauge", "Messages published a second."),
    Family("pulsar_throughput_in", "gauge", "Bytes published a second."),
    Family("pulsar_rate_out", "gauge", "Messages delivered a second."),
    Family("pulsar_throughput_out", "gauge", "Bytes delivered a second."),
    Family("pulsar_in_messages_total", "counter", "Messages published since the topic was loaded."),
    Family("pulsar_in_bytes_total", "counter", "Bytes published since the topic was loaded."),
    Family(
        "pulsar_out_messages_total", "counter", "Messages delivered since the topic was loaded."
    ),
    Family("pulsar_out_bytes_total", "counter", "Bytes delivered since the topic was loaded."),
    Family("pulsar_storage_size", "gauge", "Bytes kept, all copies."),
    Family("pulsar_storage_logical_size", "gauge", "Bytes kept, one copy."),
    Family(
        "pulsar_storage_backlog_size",
        "gauge",
        "Bytes that the slowest subscription has not acknowledged, about.",
    ),
    Family("pulsar_storage_write_rate", "gauge", "Entries written to the log a second."),
    Family(
        "pulsar_msg_backlog",
        "gauge",
        "Entries that subscriptions have not acknowledged, all together.",
    ),
    Family(
        "pulsarish_held_by_backlog_quota",
        "gauge",
        "1 while no client may publish, because the backlog is beyond its quota.",
    ),
    Family("pulsarish_pending_entries", "gauge", "Entries published and not confirmed."),
    Family(
        "pulsarish_stuck_subscriptions",
        "gauge",
        "Subscriptions whose reads fail, or that are blocked by what is not acknowledged.",
    ),
)
_COUNTERS: Final = frozenset(
    place for place, family in enumerate(_TOPIC) if family.kind == "counter"
)


def _bucket_names(name: str, bounds: Sequence[str], meaning: str) -> tuple[Family, ...]:
    """Return a family for each bound: an observation counts in one of them, as in Apache Pulsar."""
    return tuple(
        Family(each, "counter", meaning)
        for each in (*bounds, *(f"{name}_{end}" for end in ("overflow", "sum", "count")))
    )


_LATENCIES: Final = _bucket_names(
    "pulsar_storage_write_latency",
    [
        f"pulsar_storage_write_latency_le_{'0_5' if bound == 0.5 else int(bound)}"
        for bound in WRITE_LATENCY_BUCKETS_MS
    ],
    "Entries by milliseconds from arrival to confirmation, above the bound before and up to the "
    "one in the name.",
)
_SIZES: Final = _bucket_names(
    "pulsar_entry_size",
    [
        "pulsar_entry_size_le_128",
        "pulsar_entry_size_le_512",
        "pulsar_entry_size_le_1_kb",
        "pulsar_entry_size_le_2_kb",
        "pulsar_entry_size_le_4_kb",
        "pulsar_entry_size_le_16_kb",
        "pulsar_entry_size_le_100_kb",
        "pulsar_entry_size_le_1_mb",
    ],
    "Entries by bytes, above the bound before and up to the one in the name.",
)
assert len(_SIZES) == len(ENTRY_SIZE_BUCKETS_BYTES) + 3

_SUBSCRIPTION: Final = (
    Family("pulsar_subscription_back_log", "gauge", "Entries not acknowledged."),
    Family(
        "pulsar_subscription_unacked_messages",
        "gauge",
        "Messages delivered and not acknowledged (shared subscriptions).",
    ),
    Family(
        "pulsar_subscription_delayed", "gauge", "Entries that are to be delivered at a later time."
    ),
    Family(
        "pulsar_subscription_blocked_on_unacked_messages",
        "gauge",
        "1 while nothing is delivered because of those.",
    ),
    Family("pulsar_subscription_msg_rate_out", "gauge", "Messages delivered a second."),
    Family("pulsar_subscription_msg_throughput_out", "gauge", "Bytes delivered a second."),
    Family("pulsar_subscription_msg_rate_redeliver", "gauge", "Messages delivered again a second."),
    Family("pulsar_subscription_msg_ack_rate", "gauge", "Acknowledgements a second."),
    Family(
        "pulsar_subscription_total_msg_expired",
        "counter",
        "Entries expired since the topic was loaded.",
    ),
    Family("pulsar_subscription_consumers_count", "gauge", "Connected consumers."),
    Family(
        "pulsar_subscription_last_expire_timestamp",
        "gauge",
        "When messages were last expired, milliseconds; 0: never.",
    ),
    Family(
        "pulsar_subscription_last_acked_timestamp",
        "gauge",
        "When something was last acknowledged, milliseconds; 0: never.",
    ),
    Family(
        "pulsar_subscription_last_consumed_flow_timestamp",
        "gauge",
        "When a consumer last asked for messages, milliseconds; 0: never.",
    ),
    Family(
        "pulsar_subscription_last_consumed_timestamp",
        "gauge",
        "When something was last delivered, milliseconds; 0: never.",
    ),
    Family(
        "pulsar_subscription_last_mark_delete_advanced_timestamp",
        "gauge",
        "When the mark last advanced, milliseconds; 0: never.",
    ),
    Family(
        "pulsarish_subscription_acknowledged_ranges",
        "gauge",
        "Acknowledged ranges above the mark; too many stop the delivery.",
    ),
    Family(
        "pulsarish_subscription_reads_failing", "gauge", "1 while reads for the subscription fail."
    ),
)
_NOT_KEPT: Final = (
    Family("pulsar_subscription_msg_rate_out", "gauge", "Messages delivered a second."),
    Family("pulsar_subscription_msg_throughput_out", "gauge", "Bytes delivered a second."),
    Family("pulsar_subscription_msg_ack_rate", "gauge", "Acknowledgements a second."),
    Family("pulsar_subscription_consumers_count", "gauge", "Connected consumers."),
)
"""Families from above that subscriptions of non-persistent topics have, in addition to the drop
rate.
"""
_DROP_RATE: Final = Family(
    "pulsar_subscription_msg_drop_rate",
    "gauge",
    "Messages of non-persistent topics dropped a second.",
)
_COMPACTION: Final = (
    Family(
        "pulsar_compaction_removed_event_count",
        "counter",
        "Messages taken out by compactions since the topic was loaded.",
    ),
    Family(
        "pulsar_compaction_succeed_count",
        "counter",
        "Compactions that succeeded since the topic was loaded.",
    ),
    Family(
        "pulsar_compaction_failed_count",
        "counter",
        "Compactions that failed since the topic was loaded.",
    ),
    Family(
        "pulsar_compaction_duration_time_in_mills",
        "gauge",
        "Milliseconds that the last compaction took.",
    ),
    Family("pulsar_compaction_compacted_entries_count", "gauge", "Entries of the compacted view."),
    Family(
        "pulsar_compaction_compacted_entries_size",
        "gauge",
        "Bytes of the compacted view, one copy.",
    ),
)
"""Only for topics that are compacted and have their own series."""
_CONSUMER: Final = (
    Family("pulsar_consumer_msg_rate_out", "gauge", "Messages delivered a second."),
    Family("pulsar_consumer_msg_throughput_out", "gauge", "Bytes delivered a second."),
    Family(
        "pulsar_consumer_available_permits",
        "gauge",
        "Messages that the consumer asked for and has not got.",
    ),
    Family("pulsar_consumer_unacked_messages", "gauge", "Messages delivered and not acknowledged."),
    Family(
        "pulsar_consumer_blocked_on_unacked_messages",
        "gauge",
        "1 while it is given nothing because of those.",
    ),
)
_BROKER: Final = {
    "pulsar_subscriptions_count": Family(
        "pulsar_broker_subscriptions_count", "gauge", "Subscriptions of all loaded topics."
    ),
    "pulsar_producers_count": Family(
        "pulsar_broker_producers_count", "gauge", "Producers of all loaded topics."
    ),
    "pulsar_consumers_count": Family(
        "pulsar_broker_consumers_count", "gauge", "Consumers of all loaded topics."
    ),
    "pulsar_rate_in": Family("pulsar_broker_rate_in", "gauge", "Messages published a second."),
    "pulsar_throughput_in": Family(
        "pulsar_broker_throughput_in", "gauge", "Bytes published a second."
    ),
    "pulsar_rate_out": Family("pulsar_broker_rate_out", "gauge", "Messages delivered a second."),
    "pulsar_throughput_out": Family(
        "pulsar_broker_throughput_out", "gauge", "Bytes delivered a second."
    ),
    "pulsar_storage_size": Family(
        "pulsar_broker_storage_size", "gauge", "Bytes kept, all copies, of all loaded topics."
    ),
    "pulsar_msg_backlog": Family(
        "pulsar_broker_msg_backlog", "gauge", "Entries not acknowledged, of all loaded topics."
    ),
    "pulsarish_held_by_backlog_quota": Family(
        "pulsarish_broker_held_topics",
        "gauge",
        "Topics to which no client may publish, because the backlog is beyond its quota.",
    ),
    "pulsarish_pending_entries": Family(
        "pulsarish_broker_pending_entries", "gauge", "Entries published and not confirmed."
    ),
    "pulsarish_stuck_subscriptions": Family(
        "pulsarish_broker_stuck_subscriptions",
        "gauge",
        "Subscriptions whose reads fail, or that are blocked by what is not acknowledged.",
    ),
}
_TOPICS_COUNT: Final = Family("pulsar_topics_count", "gauge", "Loaded topics.", ("namespace",))
_BROKER_TOPICS_COUNT: Final = Family("pulsar_broker_topics_count", "gauge", "Loaded topics.")
_TOPICS_FOLDED: Final = Family(
    "pulsarish_metrics_folded_topics",
    "gauge",
    "Loaded topics without series of their own, summed up by namespace.",
    ("namespace",),
)
_SUBSCRIPTIONS_FOLDED: Final = Family(
    "pulsarish_metrics_folded_subscriptions", "gauge", "Subscriptions without series of their own."
)
_CONSUMERS_FOLDED: Final = Family(
    "pulsarish_metrics_folded_consumers",
    "gauge",
    "Consumers without series of their own, where asked for.",
)
_ALL: Final = (*_TOPIC, *_LATENCIES, *_SIZES)
_ALL_COUNTERS: Final = (*sorted(_COUNTERS), *range(len(_TOPIC), len(_ALL)))
_TOPIC_LABELS: Final = ("namespace", "topic")
_SUBSCRIPTION_LABELS: Final = (*_TOPIC_LABELS, "subscription")
_CONSUMER_LABELS: Final = (*_SUBSCRIPTION_LABELS, "consumer_name", "consumer_id")

Values = list[float]


class _Steady:
    """Keeps sums from falling when a topic leaves: Prometheus would take that for a restart and
    then for a burst.
    """

    __slots__ = ("base", "shown")

    def __init__(self) -> None:
        self.base = dict.fromkeys(_ALL_COUNTERS, 0.0)
        self.shown = dict.fromkeys(_ALL_COUNTERS, 0.0)

    def hold(self, values: Values) -> None:
        for place in _ALL_COUNTERS:
            value = self.base[place] + values[place]
            if value < self.shown[place]:
                self.base[place] += self.shown[place] - value
                value = self.shown[place]
            self.shown[place] = values[place] = value


class TopicMetrics:
    """The metrics of topics. Registers itself; does nothing between scrapes."""

    def __init__(
        self, metrics: Metrics, topics: LoadedTopics, config: BrokerConfig, clock: Clock
    ) -> None:
        self._topics = topics
        self._config = config
        self._clock = clock
        self._steady: dict[str, _Steady] = {}
        families = [
            *(Family(family.name, family.kind, family.meaning, _TOPIC_LABELS) for family in _ALL),
            *(
                Family(family.name, family.kind, family.meaning, _TOPIC_LABELS)
                for family in _COMPACTION
            ),
            *(
                Family(family.name, family.kind, family.meaning, _SUBSCRIPTION_LABELS)
                for family in (*_SUBSCRIPTION, _DROP_RATE)
            ),
            *(
                Family(family.name, family.kind, family.meaning, _CONSUMER_LABELS)
                for family in _CONSUMER
            ),
            *_BROKER.values(),
        ]
        counts = [
            _TOPICS_COUNT,
            _BROKER_TOPICS_COUNT,
            _TOPICS_FOLDED,
            _SUBSCRIPTIONS_FOLDED,
            _CONSUMERS_FOLDED,
        ]
        metrics.source([*families, *counts], self._collect)

    def _collect(self, page: Page) -> Iterator[None]:
        config, now = self._config, self._clock.monotonic()
        expose = config.expose_topic_level_metrics_in_prometheus
        named_max = config.topic_level_metrics_topics_max if expose else 0
        total: Values = [0.0] * len(_TOPIC)
        folded: dict[str, Values] = {}
        counts: dict[str, int] = {}
        folded_counts: dict[str, int] = {}
        named: list[ServedTopic] = []
        for number, topic in enumerate(self._topics.served()):
            if number % _SLICE_TOPICS == _SLICE_TOPICS - 1:
                yield
            values = _topic_values(topic, now)
            for place, value in enumerate(values[: len(_TOPIC)]):
                total[place] += value
            namespace = topic.name.namespace_name
            if namespace not in counts and len(counts) >= _NAMESPACES_MAX:
                namespace = _OVERFLOW
            counts[namespace] = counts.get(namespace, 0) + 1
            if len(named) < named_max:
                named.append(topic)
                braces = page.labels({"namespace": namespace, "topic": topic.name.full})
                for family, value in zip(_ALL, values, strict=True):
                    page.put(family.name, braces, value)
                if isinstance(topic, Topic) and topic.was_compacted:
                    for family, value in zip(_COMPACTION, _compaction_values(topic), strict=True):
                        page.put(family.name, braces, value)
                continue
            folded_counts[namespace] = folded_counts.get(namespace, 0) + 1
            sums = folded.get(namespace)
            folded[namespace] = (
                values if sums is None else [a + b for a, b in zip(sums, values, strict=True)]
            )
        self._put_folded(page, folded)
        for namespace, count in counts.items():
            braces = page.labels({"namespace": namespace})
            page.put(_TOPICS_COUNT.name, braces, count)
            page.put(_TOPICS_FOLDED.name, braces, folded_counts.get(namespace, 0))
        braces = page.labels({})
        page.put(_BROKER_TOPICS_COUNT.name, braces, sum(counts.values()))
        for family, value in zip(_TOPIC, total, strict=True):
            if family.name in _BROKER:
                page.put(_BROKER[family.name].name, braces, value)
        yield
        yield from self._subscriptions(page, named, int(total[0]), now)

    def _put_folded(self, page: Page, folded: dict[str, Values]) -> None:
        for namespace in self._steady:
            if namespace not in folded:
                # its topics have left: its counters keep their values
                folded[namespace] = [0.0] * len(_ALL)
        for namespace, values in folded.items():
            steady = self._steady.get(namespace)
            if steady is None:
                steady = self._steady[namespace] = _Steady()
            steady.hold(values)
            braces = page.labels({"namespace": namespace})
            for family, value in zip(_ALL, values, strict=True):
                page.put(family.name, braces, value)

    def _subscriptions(
        self, page: Page, topics: Sequence[ServedTopic], count: int, now: float
    ) -> Iterator[None]:
        config = self._config
        consumers_max = (
            config.consumer_level_metrics_consumers_max
            if config.expose_consumer_level_metrics_in_prometheus
            else 0
        )
        left, consumers_left = config.topic_level_metrics_subscriptions_max, consumers_max
        shown = consumers_beyond = 0
        for topic in topics:
            for name, subscription in list(topic.subscriptions.items())[:left]:
                labels = {
                    "namespace": topic.name.namespace_name,
                    "topic": topic.name.full,
                    "subscription": name,
                }
                braces = page.labels(labels)
                if isinstance(subscription, Subscription):
                    for family, value in zip(
                        _SUBSCRIPTION, _subscription_values(subscription, now), strict=True
                    ):
                        page.put(family.name, braces, value)
                elif isinstance(subscription, NonPersistentSubscription):
                    for family, value in zip(
                        (*_NOT_KEPT, _DROP_RATE), _not_kept_values(subscription, now), strict=True
                    ):
                        page.put(family.name, braces, value)
                if consumers_max:
                    for consumer in subscription.consumers[:consumers_left]:
                        self._consumer(page, labels, consumer, now)
                    consumers_beyond += max(0, len(subscription.consumers) - consumers_left)
                    consumers_left = max(0, consumers_left - len(subscription.consumers))
                left -= 1
                shown += 1
                if shown % _SLICE_SUBSCRIPTIONS == 0:
                    yield
        braces = page.labels({})
        page.put(_SUBSCRIPTIONS_FOLDED.name, braces, max(0, count - shown))
        page.put(_CONSUMERS_FOLDED.name, braces, consumers_beyond)

    def _consumer(self, page: Page, labels: dict[str, str], consumer: Consumer, now: float) -> None:
        braces = page.labels(
            {**labels, "consumer_name": consumer.name, "consumer_id": str(consumer.consumer_id)}
        )
        values = (
            *consumer.out.rates(now),
            consumer.permits,
            consumer.unacked,
            int(consumer.blocked),
        )
        for family, value in zip(_CONSUMER, values, strict=True):
            page.put(family.name, braces, value)


def _topic_values(topic: ServedTopic, now: float) -> Values:
    """Return a topic's values, in the order of ``_ALL``."""
    traffic = topic.traffic
    rate_in, throughput_in = traffic.came.rates(now)
    consumers = backlog = messages_out = bytes_out = 0
    rate_out = throughput_out = 0.0
    for subscription in topic.subscriptions.values():
        consumers += len(subscription.consumers)
        backlog += subscription.backlog
        rate, throughput = subscription.out.rates(now)
        rate_out += rate
        throughput_out += throughput
        messages_out += subscription.out.messages
        bytes_out += subscription.out.size_bytes
    copies, backlog_bytes, pending, stuck = (
        _log_values(topic) if isinstance(topic, Topic) else (0, 0, 0, 0)
    )
    return [
        len(topic.subscriptions),
        len(topic.producers),
        consumers,
        rate_in,
        throughput_in,
        rate_out,
        throughput_out,
        traffic.came.messages,
        traffic.came.size_bytes,
        messages_out,
        bytes_out,
        topic.kept_bytes * copies,
        topic.kept_bytes,
        backlog_bytes,
        traffic.written.rates(now)[0],
        backlog,
        int(topic.topic_limits.quota_error is not None),
        pending,
        stuck,
        *_buckets(traffic.write_latency, len(_LATENCIES)),
        *_buckets(traffic.known_entry_sizes, len(_SIZES)),
    ]


def _log_values(topic: Topic) -> tuple[int, int, int, int]:
    """Return the write quorum, the bytes of the largest backlog, the pending entries, and the stuck
    subscriptions.
    """
    log, backlog_bytes, stuck = topic.log, 0, 0
    for subscription in topic.subscriptions.values():
        if subscription.backlog:
            backlog_bytes = max(backlog_bytes, log.bytes_above(subscription.mark_delete))
        stuck += _is_stuck(subscription)
    return log.write_quorum, backlog_bytes, log.pending_entries, stuck


def _not_kept_values(subscription: NonPersistentSubscription, now: float) -> Sequence[float]:
    """Return a subscription's values in the order of ``_NOT_KEPT``, then its drop rate."""
    acked, dropped = subscription.acked.rates(now)[0], subscription.dropped.rates(now)[0]
    return (*subscription.out.rates(now), acked, len(subscription.consumers), dropped)


def _compaction_values(topic: Topic) -> Values:
    """Return a topic's values, in the order of ``_COMPACTION``."""
    runs, view = topic.compaction, topic.log.views.current
    sizes = (0, 0) if view is None else (view.entries, view.size_bytes)
    return [runs.removed_total, runs.succeeded_count, runs.failed_count, runs.duration_ms, *sizes]


def _buckets(histogram: Histogram | None, length: int) -> Sequence[float]:
    return (
        [0] * length
        if histogram is None
        else [*histogram.counts, histogram.total, sum(histogram.counts)]
    )


def _is_stuck(subscription: Subscription) -> bool:
    return (
        bool(subscription.dispatcher.reads.failure)
        or subscription.cursor.blocked
        or subscription.dispatcher.blocked
    )


def _subscription_values(subscription: Subscription, now: float) -> Sequence[float]:
    """Return a subscription's values, in the order of ``_SUBSCRIPTION``."""
    marks, cursor = subscription.marks, subscription.cursor
    return (
        cursor.backlog(),
        subscription.unacked,
        len(subscription.dispatcher.reads.delayed),
        int(subscription.dispatcher.blocked),
        *subscription.out.rates(now),
        subscription.redelivered.rates(now)[0],
        subscription.acked.rates(now)[0],
        subscription.expired.messages,
        len(subscription.consumers),
        marks.last_expire_ms,
        marks.last_acked_ms,
        marks.last_flow_ms,
        marks.last_consumed_ms,
        marks.mark_delete_advanced_ms,
        cursor.hole_count,
        int(bool(subscription.dispatcher.reads.failure)),
    )
