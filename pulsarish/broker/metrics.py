"""A broker's metrics under Apache Pulsar's names. Everything is computed from plain counters when somebody scrapes.

Topics are given as sums of their namespace: a series for each topic makes the scrape itself the load of a large cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pulsarish.broker.grpc_face import GrpcFace
from pulsarish.broker.lookup import Lookup
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.topics import Topics
from pulsarish.runtime.metrics import Gauge, Metrics

__all__ = ["BrokerMetrics"]

_NAMESPACES_MAX: Final = 1_000
_BY_NAMESPACE: Final[Mapping[str, str]] = {
    "pulsar_topics_count": "Loaded topics.",
    "pulsar_subscriptions_count": "Subscriptions of loaded topics.",
    "pulsar_producers_count": "Connected producers.",
    "pulsar_consumers_count": "Connected consumers.",
    "pulsar_rate_in": "Messages published a second.",
    "pulsar_throughput_in": "Bytes published a second.",
    "pulsar_rate_out": "Messages delivered a second.",
    "pulsar_throughput_out": "Bytes delivered a second.",
    "pulsar_storage_size": "Bytes of the loaded topics, one copy.",
    "pulsar_msg_backlog": "Entries that subscriptions have not acknowledged.",
    "pulsar_subscription_unacked_messages": "Messages delivered and not acknowledged.",
    "pulsar_subscriptions_blocked": "Subscriptions that are given nothing although there is something.",
}


class BrokerMetrics:
    """``render`` is what ``/metrics`` answers."""

    def __init__(
        self,
        cluster: str,
        topics: Topics,
        ownership: Ownership,
        face: GrpcFace,
        lookup: Lookup,
        lag_seconds: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._topics = topics
        self._now = now
        self._metrics = Metrics(labels={"cluster": cluster}, lag_seconds=lag_seconds)
        self._families = {
            name: self._metrics.gauges(name, meaning, ["namespace"], series_max=_NAMESPACES_MAX) for name, meaning in _BY_NAMESPACE.items()
        }
        self._known: dict[str, dict[str, Gauge]] = {}
        read = self._metrics.read
        read("pulsar_active_connections", "gauge", "Streams of clients.", lambda: face.streams_count)
        read("pulsar_broker_lookup", "counter", "Lookups asked of this broker.", lambda: lookup.lookups_count)
        read("pulsar_topic_load_count", "counter", "Topics loaded since the start.", lambda: topics.loads_count)
        read("pulsar_bundles_count", "gauge", "Bundles this broker owns.", lambda: len(ownership.owned))
        read("pulsar_broker_registered", "gauge", "1 while this broker may serve.", lambda: int(ownership.serving))
        read("pulsar_ml_cache_hits", "counter", "Entries read from the cache of the newest ones.", lambda: topics.cache.hits)
        read("pulsar_ml_cache_misses", "counter", "Reads for which that cache had nothing.", lambda: topics.cache.misses)
        read("pulsar_broker_publish_bytes_in_flight", "gauge", "Bytes received and not answered.", lambda: face.bytes_in_flight)

    def render(self) -> bytes:
        for series in self._known.values():
            for gauge in series.values():
                gauge.value = 0
        now = self._now()
        for topic in self._topics.loaded.values():
            series = self._series(topic.name.namespace_name)
            rate, throughput = topic.came.rates(now)
            series["pulsar_topics_count"].value += 1
            series["pulsar_producers_count"].value += len(topic.producers)
            series["pulsar_rate_in"].value += rate
            series["pulsar_throughput_in"].value += throughput
            series["pulsar_storage_size"].value += topic.log.size_bytes
            for subscription in topic.subscriptions.values():
                rate, throughput = subscription.out.rates(now)
                series["pulsar_subscriptions_count"].value += 1
                series["pulsar_consumers_count"].value += len(subscription.consumers)
                series["pulsar_rate_out"].value += rate
                series["pulsar_throughput_out"].value += throughput
                series["pulsar_msg_backlog"].value += subscription.cursor.backlog()
                series["pulsar_subscription_unacked_messages"].value += subscription.unacked
                series["pulsar_subscriptions_blocked"].value += bool(subscription.blocked_reason()[0])
        return self._metrics.render()

    def _series(self, namespace: str) -> dict[str, Gauge]:
        series = self._known.get(namespace)
        if series is None:
            series = self._known[namespace] = {name: family.at(namespace) for name, family in self._families.items()}
        return series
