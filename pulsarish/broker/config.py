"""A broker's configuration: Apache Pulsar's names in snake case, the unit last."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pulsarish.ledger.options import LedgerOptions
from pulsarish.managed_ledger.options import ManagedLedgerOptions, Retention
from pulsarish.model.errors import ConfigError, InvalidArgument

__all__ = ["BrokerConfig"]

_MIB = 1 << 20


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Every option of a broker process."""

    broker_id: Annotated[str, Meta(description="Name of this broker, unique in the cluster; empty: its advertised address.")] = ""
    cluster_name: Annotated[str, Meta(description="Name of the cluster, as its administration shows it.")] = "pulsarish"
    listen_address: Annotated[str, Meta(description="host:port of the gRPC face for clients and brokers; port 0 picks a free one.")] = (
        "127.0.0.1:6660"
    )
    http_address: Annotated[str, Meta(description="host:port of the HTTP face (admin, health, metrics); port 0 picks a free one.")] = (
        "127.0.0.1:8080"
    )
    advertised_address: Annotated[str, Meta(description="Host, or host:port, that others are told; empty: what is listened on.")] = ""
    metadata_url: Annotated[str, Meta(description="Where the metadata is: zk://h1:2181,h2:2181/chroot or embedded:DIR.")] = (
        "zk://127.0.0.1:2181/pulsarish"
    )
    metadata_session_timeout_ms: Annotated[
        int, Meta(ge=1_000, le=300_000, description="A broker silent this long has lost its session.")
    ] = 10_000

    # Ledgers of topics.
    managed_ledger_cache_size_bytes: Annotated[
        int, Meta(ge=0, description="The newest entries of all topics, for the consumers that keep up.")
    ] = 64 * _MIB
    managed_ledger_maintenance_interval_seconds: Annotated[
        float, Meta(gt=0, description="How often loaded topics are looked at for ledgers to replace by age and to trim.")
    ] = 60.0
    managed_ledger: ManagedLedgerOptions = ManagedLedgerOptions()
    ledger: LedgerOptions = LedgerOptions()

    # Topics and namespaces.
    default_retention_time_minutes: Annotated[
        int, Meta(ge=-1, description="Data that no subscription needs any more is kept this long; -1: for ever, 0: not. With the size.")
    ] = 0
    default_retention_size_mb: Annotated[
        int, Meta(ge=-1, description="Of data that no subscription needs any more at most this is kept; -1: all, 0: none. With the time.")
    ] = 0
    allow_auto_topic_creation: Annotated[bool, Meta(description="The first producer or consumer makes the topic.")] = True
    allow_auto_topic_creation_type: Annotated[
        Literal["non-partitioned", "partitioned"], Meta(description="What kind of topic is made automatically.")
    ] = "non-partitioned"
    default_num_partitions: Annotated[int, Meta(ge=1, le=10_000, description="Partitions of a topic that is made automatically.")] = 1
    default_number_of_namespace_bundles: Annotated[int, Meta(ge=1, le=1_024, description="Bundles of a new namespace.")] = 4
    max_message_size_bytes: Annotated[int, Meta(ge=1_024, le=60 * _MIB, description="The greatest entry a client may publish.")] = 5 * _MIB
    max_producers_per_topic: Annotated[int, Meta(ge=1, description="Producers connected to one topic.")] = 10_000
    max_consumers_per_subscription: Annotated[int, Meta(ge=1, description="Consumers connected to one subscription.")] = 10_000
    max_subscriptions_per_topic: Annotated[int, Meta(ge=1, description="Subscriptions of one topic, readers included.")] = 10_000
    max_concurrent_topic_load_requests: Annotated[int, Meta(ge=1, description="Topics being opened at one time.")] = 500
    topic_load_timeout_seconds: Annotated[float, Meta(gt=0, description="Opening a topic longer than this is answered as retryable.")] = (
        60.0
    )

    # Publishing.
    max_publish_bytes_per_connection: Annotated[
        int, Meta(ge=_MIB, description="Bytes received and not yet answered at which a connection is read no further.")
    ] = 32 * _MIB
    max_message_publish_buffer_size_bytes: Annotated[
        int, Meta(ge=_MIB, description="The same for all connections of the broker together.")
    ] = 256 * _MIB
    publish_answer_delay_max_ms: Annotated[
        int,
        Meta(ge=1, description="A publish message counts as answered after this at the latest, so that one stuck topic holds up no other."),
    ] = 200
    producer_open_wait_seconds: Annotated[
        float, Meta(gt=0, description="How long a reconnecting producer waits for the outcome of what its predecessor sent.")
    ] = 10.0
    message_bytes_target: Annotated[int, Meta(ge=1_024, description="What a message of deliveries aims at.")] = _MIB
    keep_alive_interval_seconds: Annotated[float, Meta(gt=0, description="A stream gets a heartbeat when nothing else was sent.")] = 10.0
    keep_alive_timeout_seconds: Annotated[float, Meta(gt=0, description="A stream that was silent this long is ended.")] = 30.0

    # Deduplication.
    broker_deduplication_enabled: Annotated[bool, Meta(description="For namespaces that do not say.")] = False
    broker_deduplication_max_number_of_producers: Annotated[int, Meta(ge=1, description="Producer names remembered for a topic.")] = 10_000
    broker_deduplication_entries_interval: Annotated[int, Meta(ge=1, description="Entries between two snapshots.")] = 1_000
    broker_deduplication_snapshot_interval_seconds: Annotated[int, Meta(ge=1, description="A snapshot is at most this old.")] = 120
    broker_deduplication_producer_inactivity_timeout_minutes: Annotated[
        int, Meta(ge=1, description="A disconnected producer's sequence id is forgotten after this.")
    ] = 360

    # Dispatching.
    dispatcher_max_read_batch_size: Annotated[int, Meta(ge=1, description="Entries of one read for a subscription.")] = 100
    dispatcher_max_read_size_bytes: Annotated[int, Meta(ge=1, description="Bytes of one read for a subscription.")] = 5 * _MIB
    dispatcher_max_round_robin_batch_size: Annotated[int, Meta(ge=1, description="Messages for a shared consumer in one turn.")] = 20
    dispatcher_read_failure_backoff_initial_time_ms: Annotated[int, Meta(ge=1, description="Wait after a read that failed; doubles.")] = 100
    dispatcher_read_failure_backoff_max_time_ms: Annotated[int, Meta(ge=1, description="The longest wait after a read that failed.")] = (
        10_000
    )
    max_unacked_messages_per_consumer: Annotated[
        int, Meta(ge=0, description="A shared consumer is sent no more at this many, until it is below half; 0: no limit.")
    ] = 50_000
    max_unacked_messages_per_subscription: Annotated[
        int, Meta(ge=0, description="The same for all consumers of a shared subscription together; 0: no limit.")
    ] = 200_000
    max_delivery_bytes_per_connection: Annotated[
        int, Meta(ge=_MIB, description="Bytes waiting to be sent at which a connection's consumers are given no more.")
    ] = 8 * _MIB
    deliveries_under_way_max: Annotated[int, Meta(ge=1, le=16, description="Delivery messages sent and not yet taken by the client.")] = 2

    # Ownership.
    broker_ping_interval_ms: Annotated[int, Meta(ge=50, description="How often brokers look whether the others are there.")] = 1_000
    broker_ping_timeout_ms: Annotated[int, Meta(ge=50, description="A ping without answer for this long has failed.")] = 1_000
    lookup_ping_max_age_ms: Annotated[
        int, Meta(ge=0, description="A lookup that names another owner makes sure that it is there unless it answered within this.")
    ] = 100
    broker_silence_before_eviction_ms: Annotated[
        int, Meta(ge=500, description="A broker that merely does not answer is evicted after this; one whose process is gone, at once.")
    ] = 3_000
    broker_eviction_interval_ms: Annotated[int, Meta(ge=0, description="At most one silent broker is evicted in this time.")] = 10_000
    eviction_loop_lag_max_ms: Annotated[int, Meta(ge=1, description="A broker whose own loop is later than this suspects nobody.")] = 200
    broker_shutdown_timeout_seconds: Annotated[float, Meta(gt=0, description="For closing topics at a graceful stop.")] = 20.0

    # Logs.
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="Events of this level and above are logged.")] = (
        "info"
    )
    log_form: Annotated[Literal["text", "json"], Meta(description="Text for people, JSON for machines.")] = "text"

    def validate(self) -> None:
        """Refuse combinations that cannot work."""
        if self.ledger.bookie_queue_bytes < 4 * self.max_message_size_bytes:
            # Entries are sent until half of the queue is used, the last of them may be of the greatest size, and a bookie whose queue
            # overflows counts as failed.
            raise ConfigError(
                f"ledger.bookie_queue_bytes = {self.ledger.bookie_queue_bytes} holds less than four entries of max_message_size_bytes = "
                f"{self.max_message_size_bytes}"
            )
        try:
            Retention(self.default_retention_time_minutes, self.default_retention_size_mb).check()
        except InvalidArgument as error:
            raise ConfigError(f"default_retention_time_minutes and default_retention_size_mb: {error}") from None
        if self.dispatcher_read_failure_backoff_initial_time_ms > self.dispatcher_read_failure_backoff_max_time_ms:
            raise ConfigError(
                "dispatcher_read_failure_backoff_initial_time_ms must not be above dispatcher_read_failure_backoff_max_time_ms"
            )
        if self.keep_alive_interval_seconds * 2 > self.keep_alive_timeout_seconds:
            raise ConfigError("keep_alive_timeout_seconds must be at least twice keep_alive_interval_seconds")
