"""A broker's configuration: Apache Pulsar's names in snake case, the unit last.

``broker/dynamic_options.py`` changes the options with ``extra=DYNAMIC`` while the broker runs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from pulsarish.broker.listeners import (
    ListenerPlan,
    SharedAddress,
    plan_listeners,
    plan_shared,
)
from pulsarish.broker.security_config import BrokerSecurityConfig
from pulsarish.ledger.options import LedgerOptions
from pulsarish.managed_ledger.options import ManagedLedgerOptions, Retention
from pulsarish.metadata.access import (
    MetadataAuthFile,
    MetadataOpenNodes,
    MetadataTlsCertificateFile,
    MetadataTlsKeyFile,
    MetadataTlsTrustFile,
)
from pulsarish.model.errors import ConfigError, InvalidArgument
from pulsarish.model.policies import PRIORITY_WINDOW_MAX
from pulsarish.model.policy_words import SchemaStrategy
from pulsarish.runtime.config import DYNAMIC
from pulsarish.runtime.log import REPEATS_MAX
from pulsarish.runtime.network.addresses import FramedAdvertisedAddress, FramedPort, host_of

__all__ = ["BrokerConfig"]

_MIB = 1 << 20
_SILENT_PINGS_MIN = 3
"""Pings in a row that get no answer before silence counts: half of them show which broker is silent
alone.
"""


class BrokerConfig(BrokerSecurityConfig, frozen=True, kw_only=True):
    """Every option of a broker process."""

    broker_id: Annotated[
        str,
        Meta(
            description="Name of this broker, unique in the cluster; empty: its advertised address."
        ),
    ] = ""
    cluster_name: Annotated[
        str, Meta(description="Name of the cluster, as its administration shows it.")
    ] = "pulsarish"
    listen_address: Annotated[
        str,
        Meta(
            description=(
                "host:port of the gRPC face for clients and brokers; port 0 picks a free one; "
                "empty: only listen_address_tls."
            )
        ),
    ] = "127.0.0.1:6660"
    http_address: Annotated[
        str,
        Meta(
            description=(
                "host:port of the HTTP face (admin, health, metrics); port 0 picks a free one."
            )
        ),
    ] = "127.0.0.1:8080"
    pulsar_address: Annotated[
        str,
        Meta(
            description=(
                "host:port of Apache Pulsar's binary protocol, for its official clients; port "
                "0 picks a free one; empty: none."
            )
        ),
    ] = "127.0.0.1:6650"
    advertised_address: Annotated[
        str,
        Meta(description="Host, or host:port, that others are told; empty: what is listened on."),
    ] = ""
    listen_address_tls: Annotated[
        str,
        Meta(
            description=(
                "host:port of the gRPC face with TLS, which other brokers use, too; port 0 picks a "
                "free one; empty: none."
            )
        ),
    ] = ""
    http_address_tls: Annotated[
        str, Meta(description="host:port of the HTTP face with TLS, usually 8443; empty: none.")
    ] = ""
    pulsar_address_tls: Annotated[
        str,
        Meta(
            description=(
                "host:port of Apache Pulsar's binary protocol with TLS, usually 6651; empty: none."
            )
        ),
    ] = ""
    framed_port_tls: Annotated[
        int,
        Meta(
            ge=-1,
            le=65_535,
            description=(
                "The port of the framed transport with TLS, at the host of listen_address_tls; 0 "
                "picks a free one, -1: gRPC only."
            ),
        ),
    ] = 0
    framed_port: FramedPort = 0
    framed_advertised_address: FramedAdvertisedAddress = ""
    advertised_listeners: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Addresses of this broker by listener, name:pulsarish://host:port, "
                "name:http://host:port, name:pulsar://host:port and name:framed://host:port, with "
                "TLS pulsarish+ssl, https, pulsar+ssl and framed+ssl, when clients in different "
                "networks must be told different ones; instead of advertised_address."
            )
        ),
    ] = ()
    internal_listener_name: Annotated[
        str,
        Meta(
            description=(
                "The listener that brokers use among themselves, bound by listen_address; "
                "empty: the first one."
            )
        ),
    ] = ""
    bind_addresses: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "What the other listeners bind, written alike; who comes in there is told "
                "addresses of that listener."
            )
        ),
    ] = ()
    shared_addresses: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Addresses that brokers of this machine listen on together, written alike: any "
                "of them takes a connection, and tells its client addresses of one broker. "
                "--processes sets it."
            )
        ),
    ] = ()
    metadata_url: Annotated[
        str, Meta(description="Where the metadata is: zk://h1:2181,h2:2181/chroot or embedded:DIR.")
    ] = "zk://127.0.0.1:2181/pulsarish"
    metadata_session_timeout_ms: Annotated[
        int,
        Meta(ge=1_000, le=300_000, description="A broker silent this long has lost its session."),
    ] = 10_000
    metadata_auth_file: MetadataAuthFile = ""
    metadata_open_nodes: MetadataOpenNodes = False
    metadata_tls_trust_certs_file_path: MetadataTlsTrustFile = ""
    metadata_tls_certificate_file_path: MetadataTlsCertificateFile = ""
    metadata_tls_key_file_path: MetadataTlsKeyFile = ""

    # Ledgers of topics.
    managed_ledger_cache_size_bytes: Annotated[
        int,
        Meta(ge=0, description="The newest entries of all topics, for the consumers that keep up."),
    ] = 64 * _MIB
    managed_ledger_read_cache_size_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Entries of backlogs that were read from bookies, for others that read the same "
                "backlog; 0: none are kept."
            ),
        ),
    ] = 64 * _MIB
    managed_ledger_read_ahead_size_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "The most that is asked of bookies at a time before a subscription that goes "
                "through a backlog in order wants it; no use where its own reads bring more than "
                "half of this. All topics together use a tenth of the read cache for it; 0: "
                "nothing is read ahead."
            ),
        ),
    ] = _MIB
    managed_ledger_maintenance_interval_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "How often loaded topics are looked at for ledgers to replace by age and to trim."
            ),
        ),
    ] = 60.0
    managed_ledger: ManagedLedgerOptions = ManagedLedgerOptions()
    ledger: LedgerOptions = LedgerOptions()

    # Topics and namespaces.
    default_retention_time_minutes: Annotated[
        int,
        Meta(
            ge=-1,
            description=(
                "Data that no subscription needs any more is kept this long; -1: forever, 0: "
                "not. With the size."
            ),
        ),
    ] = 0
    default_retention_size_mb: Annotated[
        int,
        Meta(
            ge=-1,
            description=(
                "Of data that no subscription needs any more at most this is kept; -1: all, "
                "0: none. With the time."
            ),
        ),
    ] = 0
    ttl_duration_default_in_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Messages older than this count as acknowledged, where no policy says "
                "otherwise; 0: never."
            ),
            extra=DYNAMIC,
        ),
    ] = 0
    backlog_quota_default_limit_bytes: Annotated[
        int, Meta(ge=-1, description="Bytes of backlog of a topic; -1: no limit.", extra=DYNAMIC)
    ] = -1
    backlog_quota_default_limit_second: Annotated[
        int,
        Meta(
            ge=-1,
            description=(
                "Age in seconds of the oldest unacknowledged message of a topic; -1: no limit."
            ),
            extra=DYNAMIC,
        ),
    ] = -1
    backlog_quota_default_retention_policy: Annotated[
        Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"],
        Meta(description="What happens beyond a topic's backlog quota.", extra=DYNAMIC),
    ] = "producer_request_hold"
    subscription_expiration_time_minutes: Annotated[
        int,
        Meta(
            ge=0,
            description="A subscription without consumers for this long is deleted; 0: never.",
            extra=DYNAMIC,
        ),
    ] = 0
    broker_delete_inactive_topics_enabled: Annotated[
        bool, Meta(description="Topics without clients are deleted.", extra=DYNAMIC)
    ] = False
    broker_delete_inactive_topics_mode: Annotated[
        Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"],
        Meta(description="Which topics count as unused.", extra=DYNAMIC),
    ] = "delete_when_no_subscriptions"
    broker_delete_inactive_topics_max_inactive_duration_seconds: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "A topic that no client has used for this long is deleted, if such topics are."
            ),
            extra=DYNAMIC,
        ),
    ] = 60
    allow_auto_subscription_creation: Annotated[
        bool, Meta(description="The first consumer makes the subscription.", extra=DYNAMIC)
    ] = True
    allow_auto_topic_creation: Annotated[
        bool, Meta(description="The first producer or consumer makes the topic.", extra=DYNAMIC)
    ] = True
    allow_auto_topic_creation_type: Annotated[
        Literal["non-partitioned", "partitioned"],
        Meta(description="What kind of topic is made automatically.", extra=DYNAMIC),
    ] = "non-partitioned"
    default_num_partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Partitions of a topic that is made automatically.",
            extra=DYNAMIC,
        ),
    ] = 1
    enable_non_persistent_topics: Annotated[
        bool, Meta(description="Topics that keep no messages are served.", extra=DYNAMIC)
    ] = True
    default_number_of_namespace_bundles: Annotated[
        int, Meta(ge=1, le=1_024, description="Bundles of a new namespace.", extra=DYNAMIC)
    ] = 4
    max_message_size_bytes: Annotated[
        int, Meta(ge=1_024, le=60 * _MIB, description="The greatest entry a client may publish.")
    ] = 5 * _MIB
    max_producers_per_topic: Annotated[
        int, Meta(ge=0, description="Producers connected to one topic; 0: no limit.", extra=DYNAMIC)
    ] = 10_000
    max_consumers_per_topic: Annotated[
        int, Meta(ge=0, description="Consumers connected to one topic; 0: no limit.", extra=DYNAMIC)
    ] = 0
    replica_topics_max: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Topics of other brokers that this one follows for readers with replica=True; 0: "
                "none."
            ),
            extra=DYNAMIC,
        ),
    ] = 1_000
    max_topics_per_namespace: Annotated[
        int,
        Meta(
            ge=0,
            description="Topics of one namespace, partitions one by one; 0: no limit.",
            extra=DYNAMIC,
        ),
    ] = 0
    max_consumers_per_subscription: Annotated[
        int,
        Meta(
            ge=0, description="Consumers connected to one subscription; 0: no limit.", extra=DYNAMIC
        ),
    ] = 10_000
    max_subscriptions_per_topic: Annotated[
        int,
        Meta(
            ge=0,
            description="Subscriptions of one topic, readers included; 0: no limit.",
            extra=DYNAMIC,
        ),
    ] = 10_000
    schema_compatibility_strategy: Annotated[
        SchemaStrategy,
        Meta(
            description="What a new schema of a topic must have in common with those before it.",
            extra=DYNAMIC,
        ),
    ] = "FULL"
    is_allow_auto_update_schema_enabled: Annotated[
        bool, Meta(description="Producers may bring new schemas to a topic.", extra=DYNAMIC)
    ] = True
    is_schema_validation_enforced: Annotated[
        bool,
        Meta(
            description="A producer without a schema is refused on a topic that has one.",
            extra=DYNAMIC,
        ),
    ] = False
    encryption_require_on_producer: Annotated[
        bool,
        Meta(
            description=(
                "Producers must encrypt their messages in all namespaces, whatever their policies "
                "say; others are refused."
            ),
        ),
    ] = False
    max_schema_size_bytes: Annotated[
        int,
        Meta(
            ge=1_024,
            le=640 << 10,
            description=(
                "The greatest definition of a schema, with its properties; it is one metadata node."
            ),
        ),
    ] = 512 << 10
    max_schema_versions_per_topic: Annotated[
        int,
        Meta(
            ge=1,
            le=5_000,
            description="Versions that the schema of a topic may have had.",
            extra=DYNAMIC,
        ),
    ] = 1_000
    max_concurrent_topic_load_requests: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Topics that are being opened or wait for it. Above it the client that waits for "
                "most of them is told to try again."
            ),
            extra=DYNAMIC,
        ),
    ] = 5_000
    topic_load_timeout_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="Opening a topic longer than this is answered as retryable.",
            extra=DYNAMIC,
        ),
    ] = 60.0

    # Connections of Apache Pulsar's protocol, and what one client may open.
    broker_max_connections: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Connections to pulsar_address at one time; 0: as many as the limit of open "
                "files allows."
            ),
            extra=DYNAMIC,
        ),
    ] = 0
    broker_max_connections_per_ip: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Connections to pulsar_address from one IP address at one time; 0: no limit."
            ),
            extra=DYNAMIC,
        ),
    ] = 0
    connect_timeout_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "A connection to pulsar_address is ended when its client has not sent CONNECT "
                "by then."
            ),
            extra=DYNAMIC,
        ),
    ] = 10.0
    max_producers_per_connection: Annotated[
        int,
        Meta(
            ge=1,
            description="Producers that one connection or publish stream may have open.",
            extra=DYNAMIC,
        ),
    ] = 20_000
    max_consumers_per_connection: Annotated[
        int,
        Meta(
            ge=1,
            description="Consumers that one connection or consume stream may have open.",
            extra=DYNAMIC,
        ),
    ] = 20_000
    max_partial_input_bytes: Annotated[
        int,
        Meta(
            ge=_MIB,
            description=(
                "Bytes of incomplete frames of all connections to pulsar_address; beyond it "
                "the oldest incomplete one is ended. At least two entries of "
                "max_message_size_bytes."
            ),
            extra=DYNAMIC,
        ),
    ] = 128 * _MIB
    max_unsent_bytes: Annotated[
        int,
        Meta(
            ge=_MIB,
            description=(
                "Bytes sent to clients at pulsar_address that do not receive them, of all "
                "connections; beyond it the connection that has"
                " received nothing for the longest is ended. At least two entries of "
                "max_message_size_bytes."
            ),
            extra=DYNAMIC,
        ),
    ] = 256 * _MIB

    # Publishing.
    max_publish_bytes_per_connection: Annotated[
        int,
        Meta(
            ge=_MIB,
            description=(
                "Bytes received and not yet answered at which a connection is read no further."
            ),
            extra=DYNAMIC,
        ),
    ] = 32 * _MIB
    max_message_publish_buffer_size_bytes: Annotated[
        int,
        Meta(
            ge=_MIB,
            description="The same for all connections of the broker together.",
            extra=DYNAMIC,
        ),
    ] = 256 * _MIB
    max_concurrent_non_persistent_message_per_connection: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Entries for non-persistent topics under way at one time on one connection; "
                "what is more is dropped."
            ),
            extra=DYNAMIC,
        ),
    ] = 1_000
    captures_pending_max_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            description=(
                "Bytes of captured messages that wait to be stored, of all rules together."
            ),
        ),
    ] = 64 * _MIB
    publish_answer_delay_max_ms: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "A publish message counts as answered after this at the latest, so that one "
                "stuck topic holds up no other."
            ),
        ),
    ] = 200
    broker_publisher_throttling_max_message_rate: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Messages a second that all topics of a broker take together; more are held; 0: no "
                "limit."
            ),
            extra=DYNAMIC,
        ),
    ] = 0
    broker_publisher_throttling_max_byte_rate: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Bytes a second that all topics of a broker take together; more are held; 0: no "
                "limit."
            ),
            extra=DYNAMIC,
        ),
    ] = 0
    max_publish_rate_per_topic_in_messages: Annotated[
        int,
        Meta(
            ge=0,
            description="Messages a second that one topic takes; more are held; 0: no limit.",
            extra=DYNAMIC,
        ),
    ] = 0
    max_publish_rate_per_topic_in_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes a second that one topic takes; more are held; 0: no limit.",
            extra=DYNAMIC,
        ),
    ] = 0
    producer_open_wait_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "How long a reconnecting producer waits for the outcome of what its "
                "predecessor sent."
            ),
        ),
    ] = 10.0
    message_bytes_target: Annotated[
        int, Meta(ge=1_024, description="What a message of deliveries aims at.")
    ] = _MIB
    keep_alive_interval_seconds: Annotated[
        float, Meta(gt=0, description="A stream gets a heartbeat when nothing else was sent.")
    ] = 10.0
    keep_alive_timeout_seconds: Annotated[
        float, Meta(gt=0, description="A stream that was silent this long is ended.")
    ] = 30.0

    # Administration over HTTP.
    http_allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Host names that HTTP requests may have, besides those that this broker binds "
                "or advertises, such as a gateway's."
                " .example.org stands for all names below it, * for every name. Addresses and "
                "names without a dot are always served. Others are"
                " refused: a web page may have rebound its name."
            )
        ),
    ] = ()
    http_request_timeout_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="A request that is not done by then is answered with what it waits for.",
        ),
    ] = 30.0
    max_concurrent_admin_requests: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Administration requests that run at one time. Lookups, health and metrics do "
                "not count."
            ),
        ),
    ] = 64
    admin_requests_waiting_max: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Administration requests that wait for their turn; more are refused with 503."
            ),
        ),
    ] = 1_024
    admin_share_beside_messages: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description=(
                "Of the broker's time, what administration may take while messages are "
                "published or delivered."
            ),
        ),
    ] = 0.03
    admin_metadata_operations_max: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Reads and writes of metadata that administration has under way at one time, "
                "so that topics come first."
            ),
        ),
    ] = 32

    admin_fan_out_max: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Partitions or topics that one administration request works on at one time."
            ),
        ),
    ] = 32
    subscription_backlog_scan_max_entries: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Entries that the analysis of a subscription's backlog, and an exact count of "
                "its messages, reads before it stops."
            ),
            extra=DYNAMIC,
        ),
    ] = 10_000

    # Deduplication.
    broker_deduplication_enabled: Annotated[
        bool, Meta(description="For namespaces that do not say.", extra=DYNAMIC)
    ] = False
    broker_deduplication_max_number_of_producers: Annotated[
        int, Meta(ge=1, description="Producer names remembered for a topic.")
    ] = 10_000
    broker_deduplication_entries_interval: Annotated[
        int, Meta(ge=1, description="Entries between two snapshots.")
    ] = 1_000
    broker_deduplication_snapshot_interval_seconds: Annotated[
        int,
        Meta(
            ge=0, description="A snapshot is at most this old; 0: only by entries.", extra=DYNAMIC
        ),
    ] = 120
    broker_deduplication_producer_inactivity_timeout_minutes: Annotated[
        int,
        Meta(ge=1, description="A disconnected producer's sequence id is forgotten after this."),
    ] = 360

    # Compaction.
    broker_service_compaction_threshold_in_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "A topic with more bytes than this that are not compacted is compacted, "
                "without a policy; 0: only on demand."
            ),
            extra=DYNAMIC,
        ),
    ] = 0
    topic_compaction_retain_null_key: Annotated[
        bool, Meta(description="Whether compaction keeps messages without a key.")
    ] = False
    topic_compaction_keys_max: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "A topic with more keys is not compacted; a key takes about 200 bytes of "
                "memory meanwhile."
            ),
        ),
    ] = 1_000_000
    topic_compaction_tombstone_retention_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Readers that come back within this are told of keys that were removed meanwhile."
            ),
        ),
    ] = 86_400
    topic_compaction_read_rate_bytes: Annotated[
        int,
        Meta(
            ge=1_024,
            description=(
                "What all compactions of a broker read in a second; an entry counts as 1 KiB "
                "at least."
            ),
        ),
    ] = 16 * _MIB
    topic_compactions_max: Annotated[
        int, Meta(ge=1, description="Compactions of one broker at a time; others wait.")
    ] = 2

    # Dispatching.
    dispatcher_max_read_batch_size: Annotated[
        int, Meta(ge=1, description="Entries of one read for a subscription.")
    ] = 100
    dispatcher_max_read_size_bytes: Annotated[
        int, Meta(ge=1, description="Bytes of one read for a subscription.")
    ] = 5 * _MIB
    dispatcher_max_round_robin_batch_size: Annotated[
        int, Meta(ge=1, description="Messages for a shared consumer in one turn.")
    ] = 20
    dispatcher_read_failure_backoff_initial_time_ms: Annotated[
        int, Meta(ge=1, description="Wait after a read that failed; doubles.")
    ] = 100
    dispatcher_read_failure_backoff_max_time_ms: Annotated[
        int, Meta(ge=1, description="The longest wait after a read that failed.")
    ] = 10_000
    dispatch_throttling_rate_in_msg: Annotated[
        int,
        Meta(
            ge=0,
            description="Messages a second that a broker delivers; 0: no limit.",
            extra=DYNAMIC,
        ),
    ] = 0
    dispatch_throttling_rate_in_byte: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes a second that a broker delivers; 0: no limit.",
            extra=DYNAMIC,
        ),
    ] = 0
    dispatch_throttling_rate_per_topic_in_msg: Annotated[
        int,
        Meta(
            ge=0,
            description="Messages a second that one topic delivers; 0: no limit.",
            extra=DYNAMIC,
        ),
    ] = 0
    dispatch_throttling_rate_per_topic_in_byte: Annotated[
        int,
        Meta(
            ge=0, description="Bytes a second that one topic delivers; 0: no limit.", extra=DYNAMIC
        ),
    ] = 0
    dispatch_throttling_rate_per_subscription_in_msg: Annotated[
        int,
        Meta(
            ge=0,
            description="Messages a second that one subscription is delivered; 0: no limit.",
            extra=DYNAMIC,
        ),
    ] = 0
    dispatch_throttling_rate_per_subscription_in_byte: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes a second that one subscription is delivered; 0: no limit.",
            extra=DYNAMIC,
        ),
    ] = 0
    subscribe_throttling_rate_per_consumer: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "How often one consumer may subscribe to a topic in a period; more is refused, and "
                "clients repeat it; 0: no limit."
            ),
            extra=DYNAMIC,
        ),
    ] = 0
    subscribe_rate_period_per_consumer_in_second: Annotated[
        int, Meta(ge=1, description="How long that period is.", extra=DYNAMIC)
    ] = 30
    dispatcher_progress_timeout_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            description=(
                "A subscription that has a backlog, permits and no reason to wait, and neither "
                "reads nor delivers for this long, is counted"
                " and logged, at the latest after a third more."
            ),
        ),
    ] = 30_000
    unblock_stuck_subscription_enabled: Annotated[
        bool,
        Meta(
            description="Restart the dispatcher of such a subscription; off: count and log it only."
        ),
    ] = True
    active_consumer_failover_delay_time_millis: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "When another failover consumer becomes the active one, what the former works "
                "on may be acknowledged for so long."
            ),
        ),
    ] = 1_000
    delayed_delivery_enabled: Annotated[
        bool,
        Meta(
            description="Shared subscriptions respect the delivery time of a message.",
            extra=DYNAMIC,
        ),
    ] = True
    delayed_delivery_tick_time_millis: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Times of delivery are rounded up to this, so that many messages come due together."
            ),
            extra=DYNAMIC,
        ),
    ] = 500
    delayed_delivery_max_delay_in_millis: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "A message to be delivered later than so long from now is refused; 0: no limit."
            ),
            extra=DYNAMIC,
        ),
    ] = 0
    delayed_delivery_max_entries_per_subscription: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Entries to be delivered later that only memory has, at which a subscription "
                "reads nothing new."
            ),
        ),
    ] = 500_000
    delayed_delivery_min_index_count_per_bucket: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Entries to be delivered later in memory, at which a subscription stores them in "
                "a ledger."
            ),
        ),
    ] = 50_000
    delayed_delivery_max_num_buckets: Annotated[
        int,
        Meta(
            ge=1,
            description="Such ledgers of one subscription; when there are more, two are merged.",
        ),
    ] = 50
    delayed_delivery_max_indexes_per_bucket_snapshot_segment: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Entries to be delivered later that are loaded from a ledger at once.",
        ),
    ] = 5_000
    subscription_key_shared_consistent_hashing_replica_points: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description=(
                "Points of each key-shared consumer on the ring by which hashes of keys are split."
            ),
        ),
    ] = 100
    key_shared_look_ahead_msg_in_replay_threshold_per_consumer: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Entries for each consumer that a key-shared subscription reads past blocked "
                "keys; 0: no limit."
            ),
        ),
    ] = 2_000
    key_shared_look_ahead_msg_in_replay_threshold_per_subscription: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Entries for all consumers of a key-shared subscription that it reads past blocked "
                "keys; 0: no limit."
            ),
        ),
    ] = 20_000
    max_unacked_messages_per_consumer: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "A shared consumer is sent no more at this many unacknowledged messages, until it "
                "has less than half; 0: no limit."
            ),
            extra=DYNAMIC,
        ),
    ] = 50_000
    max_unacked_messages_per_subscription: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "The consumers of a shared subscription are sent no more at this many "
                "unacknowledged messages in all, until they have less than half; 0: no limit."
            ),
            extra=DYNAMIC,
        ),
    ] = 200_000
    unacked_redelivery_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "A message that a consumer of a shared or key-shared subscription has for this "
                "long without acknowledging it is delivered again, by the broker itself; 0: never."
            ),
            extra=DYNAMIC,
        ),
    ] = 0
    message_priority_window: Annotated[
        int,
        Meta(
            ge=0,
            le=PRIORITY_WINDOW_MAX,
            description=(
                "Entries that a shared subscription reads ahead of its consumers, to deliver the "
                "highest priority among them first; 0: messages are delivered in the order of the "
                "log. Each entry that waits takes some 160 bytes of memory."
            ),
            extra=DYNAMIC,
        ),
    ] = 0
    max_delivery_bytes_per_connection: Annotated[
        int,
        Meta(
            ge=_MIB,
            description=(
                "Bytes waiting to be sent at which a connection's consumers are given no more."
            ),
        ),
    ] = 8 * _MIB
    deliveries_under_way_max: Annotated[
        int,
        Meta(
            ge=2,
            le=16,
            description=(
                "Delivery messages sent and not yet taken by the client, which reports small "
                "ones two at a time."
            ),
        ),
    ] = 2

    # Ownership.
    broker_ping_interval_ms: Annotated[
        int, Meta(ge=50, description="How often brokers look whether the others are there.")
    ] = 1_000
    broker_ping_timeout_ms: Annotated[
        int, Meta(ge=50, description="A ping without answer for this long has failed.")
    ] = 1_000
    lookup_ping_max_age_ms: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "A lookup that names another owner makes sure that it is there unless it "
                "answered within this."
            ),
        ),
    ] = 100
    broker_silence_before_eviction_ms: Annotated[
        int,
        Meta(
            ge=500,
            description=(
                "A silent broker is evicted after this, three pings at least; one whose "
                "process is gone, at once."
            ),
        ),
    ] = 3_000
    broker_eviction_interval_ms: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "At most one silent broker is evicted in this time, and each broker at most "
                "once for refused connections."
            ),
        ),
    ] = 10_000
    eviction_loop_lag_max_ms: Annotated[
        int,
        Meta(
            ge=1, description="A broker whose own loop is later than this suspects no other broker."
        ),
    ] = 200
    # Balance.
    load_balancer_enabled: Annotated[
        bool,
        Meta(
            description=(
                "The leader broker has bundles moved from brokers with more load to brokers with "
                "less. Off: they move by lookups, by hand and when their broker stops."
            ),
            extra=DYNAMIC,
        ),
    ] = True
    load_balancer_interval_seconds: Annotated[
        float,
        Meta(ge=0.1, description="How often the leader asks brokers for their load and decides."),
    ] = 10.0
    load_balancer_imbalance_percent: Annotated[
        int,
        Meta(
            ge=5,
            le=200,
            description=(
                "Bundles move once a broker's load is further than this from the average of all "
                "brokers, until all are within half of this."
            ),
            extra=DYNAMIC,
        ),
    ] = 20
    load_balancer_bundle_rest_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="A bundle that the balancer moved stays for this long, or until another "
            "broker comes.",
            extra=DYNAMIC,
        ),
    ] = 300.0
    load_balancer_wait_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description=(
                "The balancer moves nothing for this long after a broker came or went, so that "
                "rolling restarts do not move bundles more often than they must."
            ),
            extra=DYNAMIC,
        ),
    ] = 20.0
    load_balancer_moves_max: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Bundles that the balancer moves in one round; a quarter of them from one broker."
            ),
            extra=DYNAMIC,
        ),
    ] = 200
    load_balancer_auto_bundle_split_enabled: Annotated[
        bool,
        Meta(
            description=(
                "Each broker splits a bundle of its own that is above one of the limits below, "
                "and has two topics, for three intervals of the balancer."
            )
        ),
    ] = True
    load_balancer_namespace_bundle_max_topics: Annotated[
        int, Meta(ge=1, description="A bundle with more open topics is split.")
    ] = 1_000
    load_balancer_namespace_bundle_max_sessions: Annotated[
        int, Meta(ge=1, description="A bundle with more open producers and consumers is split.")
    ] = 1_000
    load_balancer_namespace_bundle_max_msg_rate: Annotated[
        int, Meta(ge=1, description="A bundle with more messages a second, in and out, is split.")
    ] = 30_000
    load_balancer_namespace_bundle_max_bandwidth_mbytes: Annotated[
        int, Meta(ge=1, description="A bundle with more MB a second, in and out, is split.")
    ] = 100
    load_balancer_namespace_maximum_bundles: Annotated[
        int,
        Meta(
            ge=1,
            le=1_024,
            description="Bundles of a namespace above which none is split automatically.",
        ),
    ] = 128
    default_namespace_bundle_split_algorithm: Annotated[
        Literal["range_equally_divide", "topic_count_equally_divide"],
        Meta(
            description=(
                "How a bundle is split where nothing else is said: in the middle of its hashes, or "
                "so that the halves have as many open topics."
            )
        ),
    ] = "range_equally_divide"
    # Watching.
    expose_topic_level_metrics_in_prometheus: Annotated[
        bool,
        Meta(
            description="Series for single topics and subscriptions; off: sums by namespace only.",
            extra=DYNAMIC,
        ),
    ] = True
    topic_level_metrics_topics_max: Annotated[
        int,
        Meta(
            ge=0,
            description="Topics with series of their own; those beyond are summed up by namespace.",
            extra=DYNAMIC,
        ),
    ] = 1_000
    topic_level_metrics_subscriptions_max: Annotated[
        int,
        Meta(
            ge=0,
            description="Subscriptions with series of their own, of the topics that have them.",
            extra=DYNAMIC,
        ),
    ] = 5_000
    expose_consumer_level_metrics_in_prometheus: Annotated[
        bool, Meta(description="Series for single consumers.", extra=DYNAMIC)
    ] = False
    consumer_level_metrics_consumers_max: Annotated[
        int,
        Meta(
            ge=0,
            description="Consumers with series of their own, of the subscriptions that have them.",
            extra=DYNAMIC,
        ),
    ] = 1_000
    tracing_endpoint: Annotated[
        str,
        Meta(
            description=(
                "URL for traces of a collector of OpenTelemetry, such as "
                "http://127.0.0.1:4318/v1/traces: spans of storing, dispatching and "
                "acknowledging, for messages that carry a sampled trace context; empty: none. "
                "Needs the extra tracing."
            )
        ),
    ] = ""
    stats_read_wait_ms: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "How long a topic's statistics wait for reading the oldest unacknowledged messages."
            ),
            extra=DYNAMIC,
        ),
    ] = 500
    stats_oldest_messages_max: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Subscriptions whose oldest unacknowledged message is read for one answer of "
                "statistics."
            ),
            extra=DYNAMIC,
        ),
    ] = 32
    slow_add_ms: Annotated[
        int, Meta(ge=1, description="A publish that took longer is logged.", extra=DYNAMIC)
    ] = 1_000

    # The sweeper, on the leader broker.
    sweeper_interval_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "Pause between two walks over the topics of the cluster, for what is due in "
                "those that no broker has open."
            ),
        ),
    ] = 300.0
    sweeper_topics_per_second: Annotated[
        float,
        Meta(gt=0, description="Topics whose metadata a walk looks at in a second.", extra=DYNAMIC),
    ] = 200.0
    sweeper_page_topics: Annotated[
        int, Meta(ge=1, le=1_000, description="Topics whose metadata is read at one time.")
    ] = 50
    sweeper_errand_topics_max: Annotated[
        int,
        Meta(
            ge=1, le=1_000, description="Topics that an owner is asked to look after at one time."
        ),
    ] = 10
    orphan_check_interval_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "Pause between two searches for orphans: ledgers and nodes that nothing refers to."
            ),
        ),
    ] = 3_600.0
    orphan_min_age_seconds: Annotated[
        float, Meta(ge=0, description="A younger ledger is not taken for an orphan.")
    ] = 3_600.0
    orphan_deletion_enabled: Annotated[
        bool,
        Meta(description="Delete orphans after their grace time; otherwise they are reported."),
    ] = False
    orphan_grace_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description=(
                "How long searches must have found an orphan before it is deleted, counted again "
                "when another broker becomes the leader."
            ),
        ),
    ] = 86_400.0
    broker_shutdown_timeout_seconds: Annotated[
        float, Meta(gt=0, description="For handing topics over at a graceful stop.", extra=DYNAMIC)
    ] = 6.0

    # Logs.
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Events of this level and above are logged.", extra=DYNAMIC),
    ] = "info"
    log_form: Annotated[
        Literal["text", "json", "logfmt"],
        Meta(description="Text for people, JSON or logfmt for machines."),
    ] = "text"
    log_repeats_max: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "How often one event is written in ten seconds; what is held back is counted; "
                "0: always."
            ),
        ),
    ] = REPEATS_MAX

    def listener_plans(self) -> tuple[ListenerPlan, ...]:
        """Return the listeners, the internal one first. Raises ``ConfigError``."""
        return plan_listeners(
            advertised_listeners=self.advertised_listeners,
            internal_listener_name=self.internal_listener_name,
            bind_addresses=self.bind_addresses,
            listen_address=self.listen_address,
            http_address=self.http_address,
            advertised_address=self.advertised_address,
            pulsar_address=self.pulsar_address,
            framed_address=(
                f"{host_of(self.listen_address)}:{self.framed_port}"
                if self.framed_port >= 0 and self.listen_address
                else ""
            ),
            framed_advertised_address=self.framed_advertised_address,
            listen_address_tls=self.listen_address_tls,
            http_address_tls=self.http_address_tls,
            pulsar_address_tls=self.pulsar_address_tls,
            framed_address_tls=(
                f"{host_of(self.listen_address_tls)}:{self.framed_port_tls}"
                if self.framed_port_tls >= 0 and self.listen_address_tls
                else ""
            ),
        )

    def shared(self) -> tuple[SharedAddress, ...]:
        """Return the addresses that are shared with other brokers. Raises ``ConfigError``."""
        return plan_shared(self.shared_addresses, self.listener_plans())

    def _check_tls(self) -> None:
        if not self.listen_address and not self.listen_address_tls:
            raise ConfigError(
                "listen_address and listen_address_tls are empty: a broker needs one of them"
            )
        secure = [
            (plan.name, address)
            for plan in self.listener_plans()
            for address in (
                plan.bind_address_tls,
                plan.bind_http_address_tls,
                plan.bind_pulsar_address_tls,
                plan.bind_framed_address_tls,
            )
            if address
        ]
        secure += [(each.listener, each.address) for each in self.shared() if each.is_tls]
        if secure and not self.tls_certificate_file_path:
            listener, bound = secure[0]
            raise ConfigError(
                f"{bound} of listener {listener!r} is to speak TLS: set tls_certificate_file_path "
                "and tls_key_file_path"
            )

    def validate(self) -> None:
        """Raise ``ConfigError`` for combinations that cannot work."""
        super().validate()
        self._check_tls()
        if self.tracing_endpoint and not self.tracing_endpoint.startswith(("http://", "https://")):
            raise ConfigError(
                f"tracing_endpoint = {self.tracing_endpoint!r} must be a URL that begins with "
                "http:// or https://, such as http://127.0.0.1:4318/v1/traces"
            )
        if self.ledger.bookie_queue_bytes < 4 * self.max_message_size_bytes:
            # Entries are sent until half of the queue is used. The last of them may have the
            # largest size. A bookie whose queue overflows counts as failed.
            raise ConfigError(
                f"ledger.bookie_queue_bytes = {self.ledger.bookie_queue_bytes} holds less than "
                f"four entries of max_message_size_bytes = {self.max_message_size_bytes}"
            )
        for name in ("max_partial_input_bytes", "max_unsent_bytes"):
            # Otherwise a client with a large entry would lose its connection again and again.
            if getattr(self, name) < 2 * self.max_message_size_bytes:
                raise ConfigError(
                    f"{name} = {getattr(self, name)} must be at least "
                    f"{2 * self.max_message_size_bytes}, two entries of max_message_size_bytes"
                )
        try:
            Retention(self.default_retention_time_minutes, self.default_retention_size_mb).check()
        except InvalidArgument as error:
            raise ConfigError(
                f"default_retention_time_minutes and default_retention_size_mb: {error}"
            ) from None
        if (
            self.dispatcher_read_failure_backoff_initial_time_ms
            > self.dispatcher_read_failure_backoff_max_time_ms
        ):
            raise ConfigError(
                "dispatcher_read_failure_backoff_initial_time_ms must not be above "
                "dispatcher_read_failure_backoff_max_time_ms"
            )
        if self.keep_alive_interval_seconds * 2 > self.keep_alive_timeout_seconds:
            raise ConfigError(
                "keep_alive_timeout_seconds must be at least twice keep_alive_interval_seconds"
            )
        if self.broker_silence_before_eviction_ms < _SILENT_PINGS_MIN * max(
            self.broker_ping_interval_ms, self.broker_ping_timeout_ms
        ):
            raise ConfigError(
                f"broker_silence_before_eviction_ms must be at least {_SILENT_PINGS_MIN} times "
                "broker_ping_interval_ms and"
                f" {_SILENT_PINGS_MIN} times broker_ping_timeout_ms, to tell a silent broker "
                "from this one being cut off"
            )
