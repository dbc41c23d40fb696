"""A broker's metrics, with Apache Pulsar's names where they exist and ``pulsarish_`` otherwise.

Each scrape computes everything from plain counters. ``topic_metrics`` has the metrics of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pulsarish.broker.audit_topic import AuditTopic
from pulsarish.broker.audit_trail import AuditTrail
from pulsarish.broker.clients.authorization import Gate
from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.clients.traffic import ConnectionTraffic
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.nonpersistent.captures import Captures
from pulsarish.broker.ownership.balancer import Balancer
from pulsarish.broker.ownership.group_sharing import GroupSharing
from pulsarish.broker.ownership.lookup import Lookup
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.ownership.splitter import Splitter
from pulsarish.broker.policies.group_rates import KINDS
from pulsarish.broker.progress.watchdog import ProgressWatchdog
from pulsarish.broker.security_metrics import export_security
from pulsarish.broker.stats.topic_metrics import TopicMetrics, WantedTopics
from pulsarish.broker.topics.drain import Drain
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.orphan_search import OrphanSearch
from pulsarish.broker.topics.schedule_clock import ScheduleClock
from pulsarish.broker.topics.sweeper import Sweeper
from pulsarish.broker.topics.topic_schedules import ScheduleCounts
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata.session_watch import SessionWatch
from pulsarish.runtime.metrics import Family, Histogram, Kind, Metrics, Page
from pulsarish.runtime.network.certificate_metrics import export_certificates
from pulsarish.runtime.seams import Clock
from pulsarish.security.callers import Callers

__all__ = ["BrokerMetrics"]

_GROUPS_MAX: Final = 100
"""Resource groups with series of their own: the first ones by name."""
_GROUP_LABELS: Final = ("resource_group", "monitoring_class")
_GROUP_ROWS: Final[tuple[tuple[str, Kind, str], ...]] = (
    (
        "pulsar_resource_group_messages_used",
        "counter",
        (
            "Messages of a resource group that this broker took (publish) or delivered "
            "(dispatch) since it is in use here."
        ),
    ),
    (
        "pulsar_resource_group_bytes_used",
        "counter",
        "Bytes of a resource group that this broker took or delivered since it is in use here.",
    ),
    (
        "pulsar_resource_group_calculated_messages_quota",
        "gauge",
        (
            "Messages a second of a resource group that this broker may take or deliver: its "
            "share of the limit."
        ),
    ),
    (
        "pulsar_resource_group_calculated_bytes_quota",
        "gauge",
        (
            "Bytes a second of a resource group that this broker may take or deliver: its "
            "share of the limit."
        ),
    ),
    (
        "pulsarish_resource_group_messages_limit",
        "gauge",
        "Messages a second of a resource group that all brokers together may take or deliver.",
    ),
    (
        "pulsarish_resource_group_bytes_limit",
        "gauge",
        "Bytes a second of a resource group that all brokers together may take or deliver.",
    ),
)


class BrokerMetrics:
    """The metrics of a broker. ``scrape`` returns the text for ``/metrics``."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: LoadedTopics,
        ownership: Ownership,
        traffic: ConnectionTraffic,
        lookup: Lookup,
        session: SessionWatch,
        ledgers: LedgerClient,
        watchdog: ProgressWatchdog,
        clock: Clock,
        callers: Callers,
        gate: Gate,
        audit: AuditTrail,
        audit_topic: AuditTopic,
        refused_addresses_count: Callable[[], int],
        sessions_ended_count: Callable[[], int],
        *,
        lag_seconds: Callable[[], float],
        lags: Histogram | None,
    ) -> None:
        self.registry = metrics = Metrics(
            labels={"cluster": config.cluster_name}, lag_seconds=lag_seconds, lags=lags
        )
        self._of_topics = TopicMetrics(metrics, topics, config, clock)
        self._tail_cache(topics, clock)
        self._read_cache(topics)
        read = metrics.read
        read(
            "pulsar_active_connections",
            "gauge",
            "Streams and connections of clients.",
            lambda: traffic.connections_count,
        )
        read(
            "pulsar_connection_created_total_count",
            "counter",
            "Streams and connections of clients opened.",
            lambda: traffic.opened_count,
        )
        traffic.limits.export(self.registry)
        export_security(
            metrics,
            callers,
            gate,
            audit,
            audit_topic,
            refused_addresses_count,
            sessions_ended_count,
        )
        export_certificates(
            metrics,
            {
                "tls_certificate_file_path": config.tls_certificate_file_path,
                "broker_client_certificate_file_path": config.broker_client_certificate_file_path,
            },
            clock.wall_ms,
        )
        read(
            "pulsar_broker_lookup_answers",
            "counter",
            "Lookups answered by this broker.",
            lambda: lookup.lookups_count,
        )
        read(
            "pulsarish_bundles_count",
            "gauge",
            "Bundles that this broker owns.",
            lambda: len(ownership.owned),
        )
        self._captured(topics.not_kept.captures)
        read(
            "pulsarish_broker_registered",
            "gauge",
            "1 while this broker may serve.",
            lambda: int(ownership.serving),
        )
        read(
            "pulsarish_broker_without_metadata",
            "gauge",
            "1 while this broker serves its open topics although no broker reaches the metadata "
            "service.",
            lambda: int(ownership.away_since_ms > 0),
        )
        read(
            "pulsarish_publish_bytes_in_flight",
            "gauge",
            "Bytes received and not answered.",
            lambda: traffic.budget.used_bytes,
        )
        read(
            "pulsarish_ledger_client_backlog_bytes",
            "gauge",
            "Bytes that wait for bookies.",
            ledgers.backlog_bytes,
        )
        read(
            "pulsarish_bookies_writable",
            "gauge",
            "Bookies that can be written to.",
            lambda: len(ledgers.bookies.candidates()),
        )
        read(
            "pulsarish_bookies_down",
            "gauge",
            "Bookies seen before and not writable now.",
            ledgers.bookies.down_count,
        )
        read(
            "pulsarish_ledgers_short",
            "gauge",
            "Open ledgers that are written without one of their bookies.",
            ledgers.short_count,
        )
        read(
            "pulsarish_speculative_reads_total",
            "counter",
            "Reads sent to a second bookie, because the first one was late.",
            lambda: ledgers.slow_bookies.sent_count,
        )
        local = ledgers.local_reads
        read(
            "pulsarish_local_reads_total",
            "counter",
            "Reads that bookies in the broker's own domain served, the narrowest that is set.",
            lambda: 0 if local is None else local.local_count,
        )
        read(
            "pulsarish_remote_reads_total",
            "counter",
            "Reads that other bookies served; 0 while no domain of the broker is set.",
            lambda: 0 if local is None else local.remote_count,
        )
        read(
            "pulsarish_bookies_slow",
            "gauge",
            "Bookies that were late with a read and are asked last.",
            lambda: len(ledgers.slow_bookies.avoided(clock.monotonic())),
        )

        read(
            "pulsarish_bookies_slow_with_adds",
            "gauge",
            "Bookies that are far slower with adds than the others; new ledgers avoid them.",
            ledgers.bookies.slow_count,
        )

        stalls = (
            "Subscriptions that did not move although nothing held them up: their dispatchers "
            "were restarted."
        )
        read("pulsarish_dispatch_stalls_total", "counter", stalls, lambda: watchdog.stalls_count)

        read(
            "pulsarish_replica_topics",
            "gauge",
            "Topics of other brokers that this one follows for readers.",
            lambda: len(topics.replicas.open),
        )
        read(
            "pulsarish_replica_readers",
            "gauge",
            "Readers of these topics.",
            lambda: topics.replicas.readers_count,
        )
        read(
            "pulsarish_replicas_held_up",
            "gauge",
            "Topics of other brokers that cannot be followed now; their readers wait.",
            lambda: topics.replicas.held_up_count,
        )
        read(
            "pulsarish_replica_lag_seconds",
            "gauge",
            "How old the knowledge of the end of a followed topic is at most; about a second while "
            "all can be followed, 0 without any.",
            lambda: topics.replicas.lag_seconds,
        )

        read("pulsar_ml_count", "gauge", "Open logs of topics.", lambda: len(topics.loaded))
        read(
            "pulsarish_topics_loaded_total",
            "counter",
            "Topics loaded since the start.",
            lambda: topics.loader.count,
        )
        read(
            "pulsar_topic_load_failed_total",
            "counter",
            "Topics that could not be loaded.",
            lambda: topics.loader.failures_count,
        )
        read(
            "pulsar_broker_topic_load_pending_requests",
            "gauge",
            "Topics being loaded, or waiting for it.",
            lambda: len(topics.loader.under_way),
        )
        metrics.histogram(
            "pulsar_topic_load_seconds",
            "Loading a topic, failed loads included.",
            topics.loader.seconds,
        )

        session.export(metrics)
        ledgers.age.export(metrics)

    def add_balance(self, balancer: Balancer, splitter: Splitter, drain: Drain) -> None:
        """Add the metrics of the balancer and of what splits bundles."""
        read = self.registry.read
        read(
            "pulsar_lb_unload_bundle_total",
            "counter",
            "Bundles that the balancer had moved while this broker was the leader.",
            lambda: balancer.moves_count,
        )
        read(
            "pulsarish_lb_failed_moves_total",
            "counter",
            "Moves of the balancer that a broker refused or did not answer.",
            lambda: balancer.failures_count,
        )
        read(
            "pulsarish_lb_misplaced_bundles",
            "gauge",
            "Bundles on a wrong broker by the rules of placement, on the leader.",
            lambda: balancer.misplaced_count,
        )
        read(
            "pulsar_lb_bundles_split_total",
            "counter",
            "Bundles that this broker has split because of their load.",
            lambda: splitter.splits_count,
        )
        read(
            "pulsarish_broker_draining",
            "gauge",
            "1 while this broker drains.",
            lambda: int(drain.is_on),
        )

    def add_resource_groups(self, sharing: GroupSharing) -> None:
        """Add what topics of this broker use of the limits of resource groups."""
        families = [Family(*row, _GROUP_LABELS) for row in _GROUP_ROWS]

        def collect(page: Page) -> Iterator[None]:
            for rates in sharing.rates()[:_GROUPS_MAX]:
                for index, kind in enumerate(KINDS):
                    way, _, unit = kind.partition("_")
                    limit, used, share = (
                        rates.limit_of(kind),
                        rates.counts[index],
                        rates.shares[index],
                    )
                    if limit > 0:
                        labels = page.labels(
                            dict(zip(_GROUP_LABELS, (rates.name, way), strict=True))
                        )
                        page.put(f"pulsar_resource_group_{unit}_used", labels, used)
                        page.put(
                            f"pulsar_resource_group_calculated_{unit}_quota", labels, limit * share
                        )
                        page.put(f"pulsarish_resource_group_{unit}_limit", labels, limit)
            return iter(())

        self.registry.source(families, collect)

    def add_sweeping(self, sweeper: Sweeper, orphans: OrphanSearch) -> None:
        """Add what the leader finds out of topics that no broker has open, and of orphans."""
        read = self.registry.read
        read(
            "pulsarish_oldest_ledger_beyond_policy_seconds",
            "gauge",
            "How long ago the retention of the oldest ledger was over that no subscription needs; "
            "0: none is kept for too long, or this broker does not lead.",
            lambda: sweeper.overdue_ms / 1000,
        )
        self.registry.read_each(
            "pulsarish_orphans",
            "gauge",
            "Ledgers and other nodes of the metadata that nothing refers to, by kind; 0 where this "
            "broker does not lead.",
            "kind",
            orphans.counts,
        )
        read(
            "pulsarish_orphan_bytes",
            "gauge",
            "Bytes of orphan ledgers on all bookies, as far as they are closed.",
            orphans.size_bytes,
        )
        read(
            "pulsarish_orphan_searches_total",
            "counter",
            "Searches for orphans that came to their end.",
            lambda: orphans.searches_count,
        )
        read(
            "pulsarish_orphans_deleted_total",
            "counter",
            "Orphans that this broker deleted.",
            lambda: orphans.deleted_count,
        )

    def _captured(self, captures: Captures) -> None:
        read = self.registry.read
        read(
            "pulsarish_captured_total",
            "counter",
            "Entries of non-persistent topics that rules stored in persistent ones.",
            lambda: captures.stored_count,
        )
        read(
            "pulsarish_captured_dropped_total",
            "counter",
            "Entries that a rule matched and that were not stored: too many bytes waited, or the "
            "topics or the rule went.",
            lambda: captures.dropped_count,
        )
        read(
            "pulsarish_captured_refused_total",
            "counter",
            "Entries that a rule matched and the persistent topic refused.",
            lambda: captures.refused_count,
        )
        read(
            "pulsarish_captured_failures_total",
            "counter",
            "Requests to store captured entries that failed and were sent again.",
            lambda: captures.failures_count,
        )
        read(
            "pulsarish_captured_pending_bytes",
            "gauge",
            "Bytes of captured entries that wait to be stored.",
            lambda: captures.pending_bytes,
        )

    def add_schedules(self, clock: ScheduleClock, counts: ScheduleCounts) -> None:
        """Add what the schedules of topics come to."""
        read = self.registry.read
        read(
            "pulsarish_scheduled_topics",
            "gauge",
            "Topics that have schedules; 0 where this broker does not lead.",
            lambda: clock.topics_count,
        )
        read(
            "pulsarish_scheduled_messages_total",
            "counter",
            "Messages that this broker published by schedules.",
            lambda: counts.published,
        )
        read(
            "pulsarish_schedule_missed_total",
            "counter",
            "Instants of schedules that were left out because they were too late; of a long "
            "time at most 101 are counted.",
            lambda: counts.missed,
        )
        read(
            "pulsarish_schedule_failures_total",
            "counter",
            "Runs in which a scheduled message could not be published; it is tried again.",
            lambda: counts.failures,
        )

    def _tail_cache(self, topics: LoadedTopics, clock: Clock) -> None:
        cache = topics.caches.tail
        hits, misses = Meter(clock.monotonic()), Meter(clock.monotonic())

        def rate(meter: Meter, count: int) -> float:
            now = clock.monotonic()
            meter.add(count - meter.messages, 0, now)
            return meter.rates(now)[0]

        read = self.registry.read
        read(
            "pulsar_ml_cache_used_size",
            "gauge",
            "Bytes in the cache of the newest entries.",
            lambda: cache.size_bytes,
        )
        read(
            "pulsar_ml_cache_hits_rate",
            "gauge",
            "Entries read a second from the cache of the newest entries.",
            lambda: rate(hits, cache.hits),
        )
        read(
            "pulsar_ml_cache_misses_rate",
            "gauge",
            "Reads a second that the cache of the newest entries could not answer.",
            lambda: rate(misses, cache.misses),
        )
        read(
            "pulsar_ml_cache_evicted_entries_total",
            "counter",
            "Entries that left the cache of the newest entries to make room.",
            lambda: cache.evicted,
        )
        read(
            "pulsarish_ml_cache_hits_total",
            "counter",
            "Entries read from the cache of the newest entries.",
            lambda: cache.hits,
        )
        read(
            "pulsarish_ml_cache_misses_total",
            "counter",
            "Reads that the cache of the newest entries could not answer.",
            lambda: cache.misses,
        )
        read(
            "pulsarish_ml_cache_limit_bytes",
            "gauge",
            "Limit of the cache of the newest entries, in bytes.",
            lambda: cache.limit_bytes,
        )

    def _read_cache(self, topics: LoadedTopics) -> None:
        cache = topics.caches.reads
        read = self.registry.read
        read(
            "pulsarish_ml_read_cache_used_bytes",
            "gauge",
            "Bytes in the cache of what was read from bookies.",
            lambda: cache.size_bytes,
        )
        read(
            "pulsarish_ml_read_cache_limit_bytes",
            "gauge",
            "Limit of the cache of what was read from bookies, in bytes.",
            lambda: cache.limit_bytes,
        )
        read(
            "pulsarish_ml_read_cache_hits_total",
            "counter",
            "Entries read from the cache of what was read from bookies.",
            lambda: cache.hits,
        )
        read(
            "pulsarish_ml_read_cache_hit_bytes_total",
            "counter",
            "Bytes read from the cache of what was read from bookies.",
            lambda: cache.hit_bytes,
        )
        read(
            "pulsarish_ml_read_cache_misses_total",
            "counter",
            "Reads of backlogs that went to bookies.",
            lambda: cache.misses,
        )
        read(
            "pulsarish_ml_read_cache_evicted_entries_total",
            "counter",
            "Entries that left the cache of what was read from bookies to make room.",
            lambda: cache.evicted,
        )

        read(
            "pulsarish_ml_read_ahead_bytes_total",
            "counter",
            "Bytes of backlogs that were read from bookies before a subscription asked for them.",
            lambda: cache.ahead_bytes,
        )
        read(
            "pulsarish_ml_read_ahead_unused_bytes_total",
            "counter",
            "Bytes that were read ahead and left the cache before a subscription asked for them.",
            lambda: cache.ahead_unused_bytes,
        )

    async def scrape(self) -> bytes:
        return await self.registry.scrape()

    async def scrape_of(self, topics: str) -> bytes:
        """Return the series of these topics only. Raises the errors of ``WantedTopics``."""
        return await self._of_topics.scrape_of(WantedTopics(topics))
