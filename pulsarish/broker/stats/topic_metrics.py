"""The metrics of topics, subscriptions and consumers with Apache Pulsar's names, computed in slices
during a scrape.

The number of label sets is bounded. A limited number of topics and subscriptions, those loaded
first, have series of their own. All others are summed up in a series of their namespace, without
the label ``topic``, so that a sum over all series is right in any case. In addition there are sums
of the whole broker (``pulsar_broker_*``), which dashboards of large clusters should use.

On request there is a page of chosen topics only, whether or not they have series in the other one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.interfaces import ServedTopic
from pulsarish.broker.clients.meters import ENTRY_SIZE_BUCKETS_BYTES, WRITE_LATENCY_BUCKETS_MS
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.nonpersistent.subscription import NonPersistentSubscription
from pulsarish.broker.stats.topic_metric_rows import (
    COMPACTION,
    CONSUMER,
    NOT_KEPT,
    SUBSCRIPTION,
    TOPIC,
    CompactionReading,
    ConsumerReading,
    NotKeptReading,
    Row,
    SubscriptionReading,
    TopicReading,
)
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.topic import Topic
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.metrics import Family, Histogram, Metrics, Page
from pulsarish.runtime.seams import Clock

__all__ = ["TopicMetrics", "WantedTopics"]

T = TypeVar("T")

_SLICE_TOPICS: Final = 50  # topics between two pauses: about two milliseconds
_SLICE_SUBSCRIPTIONS: Final = 100
_NAMESPACES_MAX: Final = 1_000
_NAMES_MAX: Final = 100  # of one request
_OVERFLOW: Final = "overflow"  # the name under which all further namespaces are summed up


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
_ALL_NAMES: Final = (
    *(row.name for row in TOPIC),
    *(family.name for family in (*_LATENCIES, *_SIZES)),
)
_COUNTERS: Final = (
    *(place for place, row in enumerate(TOPIC) if row.kind == "counter"),
    *range(len(TOPIC), len(_ALL_NAMES)),
)
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
        self.base = dict.fromkeys(_COUNTERS, 0.0)
        self.shown = dict.fromkeys(_COUNTERS, 0.0)

    def hold(self, values: Values) -> None:
        for place in _COUNTERS:
            value = self.base[place] + values[place]
            if value < self.shown[place]:
                self.base[place] += self.shown[place] - value
                value = self.shown[place]
            self.shown[place] = values[place] = value


class WantedTopics:
    """The topics of a request: topics by name, partitioned ones with all their partitions, and
    namespaces as ``tenant/namespace`` with all their topics.
    """

    def __init__(self, text: str) -> None:
        """``text``: names with commas between them.

        Raises ``InvalidTopicName``, ``InvalidArgument``.
        """
        self._namespaces: set[str] = set()
        self._topics: set[str] = set()
        names = [name for name in map(str.strip, text.split(",")) if name]
        if not 0 < len(names) <= _NAMES_MAX:
            raise InvalidArgument(
                f"topics has {len(names)} names: give 1 to {_NAMES_MAX} topics or namespaces, with "
                "commas between them"
            )
        for name in names:
            parts = name.split("/")
            if len(parts) == 2:
                check_name("tenant", parts[0])
                check_name("namespace", parts[1])
                self._namespaces.add(name)
            else:
                self._topics.add(TopicName.parse(name).full)

    def has(self, name: TopicName) -> bool:
        return (
            name.full in self._topics
            or name.namespace_name in self._namespaces
            or (name.partition >= 0 and name.partitioned.full in self._topics)
        )


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
            *_families(TOPIC, _TOPIC_LABELS),
            *(
                Family(each.name, each.kind, each.meaning, _TOPIC_LABELS)
                for each in (*_LATENCIES, *_SIZES)
            ),
            *_families(COMPACTION, _TOPIC_LABELS),
            *_families(SUBSCRIPTION, _SUBSCRIPTION_LABELS),
            *_families(NOT_KEPT[-1:], _SUBSCRIPTION_LABELS),  # the others have these names, too
            *_families(CONSUMER, _CONSUMER_LABELS),
            *(Family(row.in_all[0], "gauge", row.in_all[1]) for row in TOPIC if row.in_all),
        ]
        counts = [
            _TOPICS_COUNT,
            _BROKER_TOPICS_COUNT,
            _TOPICS_FOLDED,
            _SUBSCRIPTIONS_FOLDED,
            _CONSUMERS_FOLDED,
        ]
        metrics.source([*families, *counts], self._collect)
        self._metrics = metrics
        self._names_of_view = sorted(
            family.name
            for family in (*families, _TOPICS_FOLDED, _SUBSCRIPTIONS_FOLDED, _CONSUMERS_FOLDED)
            if family.labels or family in counts
        )

    async def scrape_of(self, wanted: WantedTopics) -> bytes:
        """Return the series of the topics that are wanted and open here, and of their
        subscriptions, within the same limits.
        """
        return await self._metrics.scrape_of(
            lambda page: self._collect_of(page, wanted), self._names_of_view
        )

    def _collect_of(self, page: Page, wanted: WantedTopics) -> Iterator[None]:
        now = self._clock.monotonic()
        found = [topic for topic in self._topics.served() if wanted.has(topic.name)]
        named_max = self._config.topic_level_metrics_topics_max
        named, beyond = found[:named_max], Counter[str]()
        for number, topic in enumerate(named, 1):
            self._put_named(page, topic, _topic_values(topic, now))
            if number % _SLICE_TOPICS == 0:
                yield
        beyond.update(topic.name.namespace_name for topic in found[named_max:])
        for namespace, count in list(beyond.items())[:_NAMESPACES_MAX]:
            page.put(_TOPICS_FOLDED.name, page.labels({"namespace": namespace}), count)
        yield
        count = sum(len(topic.subscriptions) for topic in found)
        yield from self._subscriptions(page, named, count, now)

    def _put_named(self, page: Page, topic: ServedTopic, values: Values) -> None:
        braces = page.labels({"namespace": topic.name.namespace_name, "topic": topic.name.full})
        for name, value in zip(_ALL_NAMES, values, strict=True):
            page.put(name, braces, value)
        if isinstance(topic, Topic) and topic.was_compacted:
            _put(page, braces, COMPACTION, CompactionReading(topic))

    def _collect(self, page: Page) -> Iterator[None]:
        config, now = self._config, self._clock.monotonic()
        expose = config.expose_topic_level_metrics_in_prometheus
        named_max = config.topic_level_metrics_topics_max if expose else 0
        total: Values = [0.0] * len(TOPIC)
        folded: dict[str, Values] = {}
        counts: dict[str, int] = {}
        folded_counts: dict[str, int] = {}
        named: list[ServedTopic] = []
        for number, topic in enumerate(self._topics.served()):
            if number % _SLICE_TOPICS == _SLICE_TOPICS - 1:
                yield
            values = _topic_values(topic, now)
            for place, value in enumerate(values[: len(TOPIC)]):
                total[place] += value
            namespace = topic.name.namespace_name
            if namespace not in counts and len(counts) >= _NAMESPACES_MAX:
                namespace = _OVERFLOW
            counts[namespace] = counts.get(namespace, 0) + 1
            if len(named) < named_max:
                named.append(topic)
                self._put_named(page, topic, values)
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
        for row, value in zip(TOPIC, total, strict=True):
            if row.in_all:
                page.put(row.in_all[0], braces, value)
        yield
        yield from self._subscriptions(page, named, int(total[0]), now)

    def _put_folded(self, page: Page, folded: dict[str, Values]) -> None:
        for namespace in self._steady:
            if namespace not in folded:
                # its topics have left: its counters keep their values
                folded[namespace] = [0.0] * len(_ALL_NAMES)
        for namespace, values in folded.items():
            steady = self._steady.get(namespace)
            if steady is None:
                steady = self._steady[namespace] = _Steady()
            steady.hold(values)
            braces = page.labels({"namespace": namespace})
            for name, value in zip(_ALL_NAMES, values, strict=True):
                page.put(name, braces, value)

    def _subscriptions(
        self, page: Page, topics: Sequence[ServedTopic], count: int, now: float
    ) -> Iterator[None]:
        config = self._config
        consumers_max = (
            config.consumer_level_metrics_consumers_max
            if config.expose_consumer_level_metrics_in_prometheus
            else 0
        )
        now_ms = self._clock.wall_ms()
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
                if isinstance(topic, Topic) and isinstance(subscription, Subscription):
                    reading = SubscriptionReading(subscription, topic.log, now, now_ms)
                    _put(page, braces, SUBSCRIPTION, reading)
                elif isinstance(subscription, NonPersistentSubscription):
                    _put(page, braces, NOT_KEPT, NotKeptReading(subscription, now))
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
        _put(page, braces, CONSUMER, ConsumerReading(consumer, now))


def _families(rows: Sequence[Row[T]], labels: tuple[str, ...]) -> Iterator[Family]:
    return (Family(row.name, row.kind, row.meaning, labels) for row in rows)


def _put(page: Page, braces: str, rows: Sequence[Row[T]], reading: T) -> None:
    for row in rows:
        page.put(row.name, braces, row.value(reading))


def _topic_values(topic: ServedTopic, now: float) -> Values:
    """Return a topic's values, in the order of ``_ALL_NAMES``."""
    reading, traffic = TopicReading(topic, now), topic.traffic
    return [
        *(row.value(reading) for row in TOPIC),
        *_buckets(traffic.write_latency, len(_LATENCIES)),
        *_buckets(traffic.known_entry_sizes, len(_SIZES)),
    ]


def _buckets(histogram: Histogram | None, length: int) -> Sequence[float]:
    return (
        [0] * length
        if histogram is None
        else [*histogram.counts, histogram.total, sum(histogram.counts)]
    )
