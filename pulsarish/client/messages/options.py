"""The options of clients, producers, consumers and readers, checked when the program gives them.

Names, meanings and defaults are Apache Pulsar's. An option that this version does not support
raises ``UnsupportedFeature``. A value that makes no sense raises ``InvalidArgument``, which names
the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final, cast, get_args

from pulsarish.client.backoff import MultiplierRedeliveryBackoff
from pulsarish.client.checks import (
    INT64_MAX,
    check_callable,
    check_flag,
    check_mapping,
    check_number,
    check_text,
    check_type,
    shown,
)
from pulsarish.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    HashingScheme,
    InitialPosition,
    KeySharedMode,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.client.messages.letters import RECONSUMES_MAX, letter_topic_name
from pulsarish.client.messages.security_options import security_of
from pulsarish.client.messages.topic_filter import TopicFilter, Wildcard, filter_of
from pulsarish.client.schemas.schema import BytesSchema, Schema
from pulsarish.client.service_url import parse_service_url
from pulsarish.model.errors import InvalidArgument, InvalidTopicName, UnsupportedFeature
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.client_authentication import Authentication
from pulsarish.runtime.network.address_book import Transport
from pulsarish.runtime.network.addresses import is_tls
from pulsarish.wire.entry import EXPIRES_PROPERTY, KEY_HASHES, MESSAGES_IN_BATCH_MAX

__all__ = [
    "ClientOptions",
    "ConsumerBatchReceivePolicy",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerOptions",
    "ProducerOptions",
    "check_schema",
    "make_extras",
    "topics_of",
]

_SCHEMA: Final = BytesSchema()
_MILLISECOND: Final = timedelta(milliseconds=1)
_PERMITS_MAX: Final = 2**31 - 1
_SECONDS_MAX: Final = 2**31 - 1


def _unsupported(given: Mapping[str, object], **supported: tuple[object, str]) -> None:
    """Reject options that this version does not support.

    Args:
        supported: for each name, the value that asks for nothing, and what to do instead.
    """
    for name, (harmless, instead) in supported.items():
        if given[name] != harmless:
            raise UnsupportedFeature(f"{name}={given[name]!r} is not supported yet: {instead}")


def topics_of(topic: object) -> list[TopicName]:
    """Return the topics of a subscription.

    Raises ``InvalidTopicName``, ``InvalidArgument``.
    """
    if isinstance(topic, str):
        return [TopicName.parse(topic)]
    if isinstance(topic, list):
        if not topic or not all(isinstance(name, str) for name in topic):
            raise InvalidArgument(
                "topic is a list that is empty or holds something other than str: pass topic names"
            )
        names = [TopicName.parse(name) for name in topic]
        if len({name.full for name in names}) < len(names):
            raise InvalidArgument("topic is a list that names a topic twice: name each once")
        return names
    raise InvalidArgument(
        f"topic is {shown(topic)} of type {type(topic).__name__}: pass a topic name, a list of "
        "them, a compiled pattern or a pulsarish.Wildcard"
    )


def make_extras(
    properties: Mapping[str, str] | None,
    partition_key: str | None,
    ordering_key: str | None,
    event_timestamp: int | None,
    deliver_at: int | None,
    deliver_after: timedelta | None,
    expires_after: timedelta | None,
    now_ms: Callable[[], int],
) -> Extras:
    """Return the extras of a message: what it carries besides its content.

    Raises ``InvalidArgument`` naming the field.
    """
    if deliver_after is not None:
        check_type("deliver_after", deliver_after, timedelta, "a datetime.timedelta")
        if deliver_at is not None:
            raise InvalidArgument("deliver_at and deliver_after are both given: give one")
        deliver_at = now_ms() + int(deliver_after / _MILLISECOND)
    if deliver_at is not None:
        check_number("deliver_at", deliver_at, 0)
    all_properties = check_mapping("properties", properties) or {}
    if expires_after is not None:
        expires_at = now_ms() + _check_expiry(expires_after)
        if deliver_at is not None and deliver_at >= expires_at:
            raise InvalidArgument(
                f"expires_after is {expires_after}, and the message is not delivered before that: "
                "both count from now; let it expire later, or deliver it earlier"
            )
        all_properties = {**all_properties, EXPIRES_PROPERTY: str(expires_at)}
    return Extras(
        properties=all_properties or None,
        partition_key=None if partition_key is None else check_text("partition_key", partition_key),
        ordering_key=None if ordering_key is None else check_text("ordering_key", ordering_key),
        event_timestamp_ms=0
        if event_timestamp is None
        else check_number("event_timestamp", event_timestamp, 0),
        deliver_at_ms=deliver_at or 0,
    )


def _check_expiry(expires_after: timedelta) -> int:
    """Return the milliseconds. Raises ``InvalidArgument``."""
    check_type("expires_after", expires_after, timedelta, "a datetime.timedelta")
    milliseconds = int(expires_after / _MILLISECOND)
    if milliseconds < 1:
        raise InvalidArgument(
            f"expires_after is {expires_after}: pass a datetime.timedelta of 1 ms or more"
        )
    return milliseconds


class ClientOptions:
    """Options of ``Client``."""

    def __init__(
        self,
        service_url: str,
        *,
        authentication: Authentication | None = None,
        operation_timeout_seconds: float = 30,
        io_threads: int = 1,
        message_listener_threads: int = 1,
        concurrent_lookup_requests: int = 50_000,
        log_conf_file_path: str | None = None,
        stats_interval_in_seconds: int = 600,
        use_tls: bool = False,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = True,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
        logger: object | None = None,
        connection_timeout_ms: int = 10_000,
        listener_name: str | None = None,
        transport: Transport = "auto",
    ) -> None:
        self.addresses = parse_service_url(service_url)
        _unsupported(
            locals(),
            io_threads=(1, "all clients of a process share one loop thread; leave it out"),
            message_listener_threads=(1, "each listener has a thread of its own; leave it out"),
            concurrent_lookup_requests=(50_000, "lookups are not limited; leave it out"),
            log_conf_file_path=(None, "configure the standard library's logger 'pulsarish'"),
            stats_interval_in_seconds=(600, "the client prints no statistics; leave it out"),
            logger=(None, "configure the standard library's logger 'pulsarish'"),
        )
        self.security = security_of(
            authentication,
            is_tls=is_tls(self.addresses[0]),
            tls_url="service_url that begins with pulsarish+ssl://",
            use_tls=use_tls,
            trust_file=tls_trust_certs_file_path,
            allows_insecure=tls_allow_insecure_connection,
            validates_host_name=tls_validate_hostname,
            certificate_file=tls_certificate_file_path,
            key_file=tls_private_key_file_path,
        )
        given: object = operation_timeout_seconds
        if (
            not isinstance(given, (int, float))
            or isinstance(given, bool)
            or not 0 < given <= 86_400
        ):
            raise InvalidArgument(
                f"operation_timeout_seconds is {shown(given)}: pass a number above 0 and at most "
                "86400"
            )
        self.operation_timeout_seconds = float(operation_timeout_seconds)
        self.connection_timeout_seconds = (
            check_number("connection_timeout_ms", connection_timeout_ms, 1) / 1_000
        )
        self.listener_name = (
            check_text("listener_name", listener_name) if listener_name is not None else ""
        )
        if transport not in get_args(Transport):
            raise InvalidArgument(
                f"transport is {shown(transport)}: pass one of {', '.join(get_args(Transport))}"
            )
        self.transport: Transport = transport


class ProducerOptions:
    """Options of ``create_producer``."""

    def __init__(
        self,
        topic: str,
        *,
        producer_name: str | None = None,
        schema: Schema | None = None,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30_000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1_000,
        max_pending_messages_across_partitions: int = 50_000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = False,
        batching_max_messages: int = 1_000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: Mapping[str, str] | None = None,
        batching_type: BatchingType = BatchingType.Default,
        encryption_key: str | None = None,
        crypto_key_reader: object | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: Callable[[Any, int], int] | None = None,
        hashing_scheme: HashingScheme = HashingScheme.JavaStringHash,
    ) -> None:
        _unsupported(
            locals(),
            lazy_start_partitioned_producers=(False, "all partitions are opened at once"),
            encryption_key=(None, "encrypt the content before it is sent"),
            crypto_key_reader=(None, "encrypt the content before it is sent"),
        )
        self.topic = topics_of(check_text("topic", topic))[0]
        self.producer_name = (
            check_name("producer", check_text("producer_name", producer_name))
            if producer_name is not None
            else ""
        )
        self.schema = check_schema(schema)
        self.initial_sequence_id = (
            None
            if initial_sequence_id is None
            else check_number("initial_sequence_id", initial_sequence_id, -1)
        )
        self.send_timeout_seconds = (
            check_number("send_timeout_millis", send_timeout_millis, 0) / 1_000
        )
        check_type(
            "compression_type", compression_type, CompressionType, "a pulsarish.CompressionType"
        )
        self.compression_type = compression_type
        self.max_pending_messages = check_number("max_pending_messages", max_pending_messages, 1)
        self.max_pending_across = check_number(
            "max_pending_messages_across_partitions", max_pending_messages_across_partitions, 1
        )
        self.block_if_queue_full = check_flag("block_if_queue_full", block_if_queue_full)
        self.batching_enabled = check_flag("batching_enabled", batching_enabled)
        self.chunking_enabled = check_flag("chunking_enabled", chunking_enabled)
        if self.chunking_enabled and self.batching_enabled:
            raise InvalidArgument(
                "chunking_enabled and batching_enabled exclude each other: set "
                "batching_enabled=False"
            )
        check_type("batching_type", batching_type, BatchingType, "a pulsarish.BatchingType")
        self.batching_type = batching_type
        self.batching_max_messages = check_number(
            "batching_max_messages", batching_max_messages, 1, MESSAGES_IN_BATCH_MAX
        )
        self.batching_max_bytes = check_number(
            "batching_max_allowed_size_in_bytes", batching_max_allowed_size_in_bytes, 1
        )
        self.batching_delay_seconds = (
            check_number("batching_max_publish_delay_ms", batching_max_publish_delay_ms, 0) / 1_000
        )
        check_type(
            "message_routing_mode",
            message_routing_mode,
            PartitionsRoutingMode,
            "a pulsarish.PartitionsRoutingMode",
        )
        # A program that gives a router wants it to be used.
        self.message_routing_mode = (
            PartitionsRoutingMode.CustomPartition
            if message_router is not None
            else message_routing_mode
        )
        if message_router is not None:
            check_callable(
                "message_router", message_router, "a function (message, partitions) -> int"
            )
        elif message_routing_mode is PartitionsRoutingMode.CustomPartition:
            raise InvalidArgument(
                "message_routing_mode CustomPartition needs message_router, a function (message, "
                "partitions) -> int"
            )
        self.message_router = message_router
        check_type("hashing_scheme", hashing_scheme, HashingScheme, "a pulsarish.HashingScheme")
        if hashing_scheme is HashingScheme.BoostHash:
            raise UnsupportedFeature(
                "hashing_scheme BoostHash is not supported: use HashingScheme.JavaStringHash or "
                "Murmur3_32Hash"
            )
        self.hashing_scheme = hashing_scheme
        self.properties = check_mapping("properties", properties)
        check_type("access_mode", access_mode, ProducerAccessMode, "a pulsarish.ProducerAccessMode")
        self.access_mode = access_mode


class ConsumerBatchReceivePolicy:
    """When ``batch_receive`` returns: at a number of messages or bytes, or after a time; 0 or less:
    no limit.
    """

    def __init__(
        self,
        max_num_message: int = -1,
        max_num_bytes: int = 10 * 1024 * 1024,
        timeout_ms: int = 100,
    ) -> None:
        for name, value in (
            ("max_num_message", max_num_message),
            ("max_num_bytes", max_num_bytes),
            ("timeout_ms", timeout_ms),
        ):
            check_type(name, value, int, "an int")
        if max_num_message <= 0 and max_num_bytes <= 0 and timeout_ms <= 0:
            raise InvalidArgument(
                "a batch receive policy needs at least one of max_num_message, max_num_bytes, "
                "timeout_ms above 0"
            )
        self.max_messages = max_num_message if max_num_message > 0 else INT64_MAX
        self.max_bytes = max_num_bytes if max_num_bytes > 0 else INT64_MAX
        self.timeout_seconds = timeout_ms / 1_000 if timeout_ms > 0 else None


class ConsumerDeadLetterPolicy:
    """Move a message to another topic and acknowledge it after ``max_redeliver_count``
    redeliveries, or calls of ``reconsume_later``.

    Defaults: ``TOPIC-SUBSCRIPTION-DLQ``, and ``TOPIC-SUBSCRIPTION-RETRY`` for messages that are to
    be consumed later.
    """

    def __init__(
        self,
        max_redeliver_count: int,
        dead_letter_topic: str | None = None,
        initial_subscription_name: str | None = None,
        retry_letter_topic: str | None = None,
    ) -> None:
        self.max_redeliver_count = check_number("max_redeliver_count", max_redeliver_count, 1)
        self.dead_letter_topic = (
            TopicName.parse(check_text("dead_letter_topic", dead_letter_topic)).full
            if dead_letter_topic is not None
            else None
        )
        self.retry_letter_topic = (
            TopicName.parse(check_text("retry_letter_topic", retry_letter_topic)).full
            if retry_letter_topic is not None
            else None
        )
        if initial_subscription_name is not None:
            raise UnsupportedFeature(
                "initial_subscription_name is not supported yet: subscribe to the dead letter "
                "topic before messages go there"
            )


class ConsumerKeySharedPolicy:
    """How a key-shared subscription divides keys.

    All its connected consumers have the same mode and flag.

    ``sticky_ranges``: ranges of hashes, first and last included, 0 to 65535. With mode ``Sticky``
    this consumer receives the keys in them.
    """

    def __init__(
        self,
        key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit,
        allow_out_of_order_delivery: bool = False,
        sticky_ranges: list[tuple[int, int]] | None = None,
    ) -> None:
        check_type("key_shared_mode", key_shared_mode, KeySharedMode, "a pulsarish.KeySharedMode")
        self.key_shared_mode = key_shared_mode
        self.allow_out_of_order_delivery = check_flag(
            "allow_out_of_order_delivery", allow_out_of_order_delivery
        )
        self.sticky_ranges = _check_ranges(sticky_ranges)
        if key_shared_mode is KeySharedMode.Sticky and not self.sticky_ranges:
            raise InvalidArgument(
                "sticky_ranges is empty: with KeySharedMode.Sticky name at least one range of 0 "
                "to 65535"
            )
        if key_shared_mode is KeySharedMode.AutoSplit and self.sticky_ranges:
            raise InvalidArgument("sticky_ranges needs key_shared_mode KeySharedMode.Sticky")


def _check_ranges(given: object) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    if given is not None and not isinstance(given, list):
        raise InvalidArgument(
            f"sticky_ranges is {shown(given)}: pass a list of pairs (first, last)"
        )
    for pair in given or ():
        is_pair = (
            isinstance(pair, (tuple, list))
            and len(pair) == 2
            and all(type(each) is int for each in pair)
        )
        if not is_pair or not 0 <= pair[0] <= pair[1] < KEY_HASHES:
            raise InvalidArgument(
                f"sticky_ranges has {shown(pair)}: pass pairs (first, last) of 0 to "
                f"{KEY_HASHES - 1}, first not above last"
            )
        ranges.append((pair[0], pair[1]))
    for before, after in pairwise(sorted(ranges)):
        if after[0] <= before[1]:
            raise InvalidArgument(
                f"sticky_ranges has {list(before)} and {list(after)}, which overlap"
            )
    return ranges


class ConsumerOptions:
    """Options of ``subscribe`` and ``create_reader``."""

    def __init__(
        self,
        topic: str | list[str] | re.Pattern[str] | Wildcard,
        subscription_name: str,
        *,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema | None = None,
        message_listener: Callable[[Any, Any], object] | None = None,
        receiver_queue_size: int = 1_000,
        max_total_receiver_queue_size_across_partitions: int = 50_000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30_000,
        negative_ack_redelivery_delay_ms: int = 60_000,
        negative_ack_redelivery_backoff: MultiplierRedeliveryBackoff | None = None,
        is_read_compacted: bool = False,
        properties: Mapping[str, str] | None = None,
        pattern_auto_discovery_period: int = 60,
        initial_position: InitialPosition = InitialPosition.Latest,
        crypto_key_reader: object | None = None,
        replicate_subscription_state_enabled: bool = False,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        expire_time_of_incomplete_chunked_message_ms: int = 60_000,
        start_message_id_inclusive: bool = False,
        batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
        key_shared_policy: ConsumerKeySharedPolicy | None = None,
        batch_index_ack_enabled: bool = True,
        regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
        dead_letter_policy: ConsumerDeadLetterPolicy | None = None,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
        ack_receipt_enabled: bool = False,
        priority_level: int = 0,
        subscription_properties: Mapping[str, str] | None = None,
        start: MessageId | None = None,
        start_message_from_rollback_seconds: int = 0,
        checkpoint_topic: str | None = None,
        replica: bool = False,
        retry_enabled: bool = False,
    ) -> None:
        _unsupported(
            locals(),
            crypto_key_reader=(None, "decrypt the content after it is received"),
            replicate_subscription_state_enabled=(False, "there is one cluster"),
        )
        check_type(
            "regex_subscription_mode",
            regex_subscription_mode,
            RegexSubscriptionMode,
            "a pulsarish.RegexSubscriptionMode",
        )
        self.filter: TopicFilter | None = None
        """Which topics the consumer has, if it is one of a pattern."""
        self.topics: list[TopicName] = []
        if isinstance(topic, (re.Pattern, Wildcard)):
            self.filter = filter_of(topic, regex_subscription_mode)
        else:
            self.topics = topics_of(topic)
        self.creates_topics = self.filter is None
        self.discovery_seconds = check_number(
            "pattern_auto_discovery_period", pattern_auto_discovery_period, 0, _SECONDS_MAX
        )
        """A pattern's list is read at least this often; 0: only when the program subscribes."""
        self.subscription_name = check_name(
            "subscription", check_text("subscription_name", subscription_name)
        )
        check_type("consumer_type", consumer_type, ConsumerType, "a pulsarish.ConsumerType")
        self.consumer_type = consumer_type
        self.schema = check_schema(schema)
        if message_listener is not None:
            check_callable("message_listener", message_listener, "a function (consumer, message)")
        self.message_listener = message_listener
        self.receiver_queue_size = check_number(
            "receiver_queue_size", receiver_queue_size, 0, _PERMITS_MAX
        )
        total = "max_total_receiver_queue_size_across_partitions"
        self.receiver_queue_total = check_number(
            total, max_total_receiver_queue_size_across_partitions, 1
        )
        self.consumer_name = (
            check_text("consumer_name", consumer_name) if consumer_name is not None else ""
        )
        # Less than ten seconds would redeliver messages that the program still works on, as in
        # Apache Pulsar.
        self.unacked_timeout_seconds = 0.0
        if unacked_messages_timeout_ms is not None and check_number(
            "unacked_messages_timeout_ms", unacked_messages_timeout_ms, 0
        ):
            self.unacked_timeout_seconds = (
                check_number("unacked_messages_timeout_ms", unacked_messages_timeout_ms, 10_000)
                / 1_000
            )
        self.negative_ack_delay_ms = check_number(
            "negative_ack_redelivery_delay_ms", negative_ack_redelivery_delay_ms, 0
        )
        if negative_ack_redelivery_backoff is not None:
            check_type(
                "negative_ack_redelivery_backoff",
                negative_ack_redelivery_backoff,
                MultiplierRedeliveryBackoff,
                "a pulsarish.MultiplierRedeliveryBackoff",
            )
        self.negative_ack_backoff = negative_ack_redelivery_backoff
        self.is_read_compacted = check_flag("is_read_compacted", is_read_compacted)
        if self.is_read_compacted and consumer_type.is_spread:
            raise InvalidArgument(
                "is_read_compacted needs consumer_type Exclusive or Failover, not "
                f"{consumer_type.name}"
            )
        self.properties = check_mapping("properties", properties)
        check_type(
            "initial_position", initial_position, InitialPosition, "a pulsarish.InitialPosition"
        )
        self.initial_position = initial_position
        # As in Apache Pulsar, 0 is no limit on the number of messages. The limit in bytes always
        # applies.
        self.pending_chunked_max = check_number(
            "max_pending_chunked_message", max_pending_chunked_message, 0
        )
        self.ack_oldest_chunked = check_flag(
            "auto_ack_oldest_chunked_message_on_queue_full",
            auto_ack_oldest_chunked_message_on_queue_full,
        )
        expire_ms = expire_time_of_incomplete_chunked_message_ms
        self.chunked_expire_seconds = (
            check_number("expire_time_of_incomplete_chunked_message_ms", expire_ms, 0) / 1_000
        )
        self.start_inclusive = check_flag("start_message_id_inclusive", start_message_id_inclusive)
        if batch_receive_policy is not None:
            check_type(
                "batch_receive_policy",
                batch_receive_policy,
                ConsumerBatchReceivePolicy,
                "a pulsarish.ConsumerBatchReceivePolicy",
            )
        self.batch_receive_policy = batch_receive_policy or ConsumerBatchReceivePolicy()
        if key_shared_policy is not None:
            check_type(
                "key_shared_policy",
                key_shared_policy,
                ConsumerKeySharedPolicy,
                "a pulsarish.ConsumerKeySharedPolicy",
            )
            if consumer_type is not ConsumerType.KeyShared:
                raise InvalidArgument(
                    f"key_shared_policy needs consumer_type KeyShared, not {consumer_type.name}"
                )
        self.key_shared_policy = key_shared_policy or ConsumerKeySharedPolicy()
        self.batch_index_ack = check_flag("batch_index_ack_enabled", batch_index_ack_enabled)
        self.dead_letter_policy = dead_letter_policy
        self.retry_topic: TopicName | None = None
        """Where ``reconsume_later`` copies messages to; one of ``topics``."""
        self._check_letters(retry_enabled)
        check_type(
            "crypto_failure_action",
            crypto_failure_action,
            ConsumerCryptoFailureAction,
            "a pulsarish.ConsumerCryptoFailureAction",
        )
        self.crypto_failure_action = crypto_failure_action
        # This has no effect: statistics of consumers come from the admin API.
        check_number("broker_consumer_stats_cache_time_ms", broker_consumer_stats_cache_time_ms, 0)
        self.ack_receipt = check_flag("ack_receipt_enabled", ack_receipt_enabled)
        self.priority_level = check_number("priority_level", priority_level, 0, 1_000)
        self.subscription_properties = check_mapping(
            "subscription_properties", subscription_properties
        )
        self.start = start
        """Readers: where to start; ``None``: a durable subscription."""
        rollback = check_number(
            "start_message_from_rollback_seconds",
            start_message_from_rollback_seconds,
            0,
            _SECONDS_MAX,
        )
        if rollback and start not in (MessageId.earliest, MessageId.latest):
            raise InvalidArgument(
                "start_message_from_rollback_seconds needs MessageId.earliest or MessageId.latest "
                "to start from"
            )
        self.start_rollback_seconds = rollback
        """Readers: start with messages published this many seconds ago instead; 0: use
        ``start``.
        """
        self.checkpoint_topic = ""
        """Readers: full name of the topic that keeps the reader's position; empty: none."""
        if checkpoint_topic is not None:
            self._keep_position(check_text("checkpoint_topic", checkpoint_topic))
        self.replica = check_flag("replica", replica)
        """Readers: whether any broker serves them, rather than the owner."""
        if self.replica and self.is_read_compacted:
            raise InvalidArgument("replica cannot read compacted: leave replica out, or the other")

    def _check_letters(self, retry_enabled: object) -> None:
        policy = self.dead_letter_policy
        if policy is not None:
            check_type(
                "dead_letter_policy",
                policy,
                ConsumerDeadLetterPolicy,
                "a pulsarish.ConsumerDeadLetterPolicy",
            )
            if not self.consumer_type.is_spread:
                raise InvalidArgument(
                    "dead_letter_policy needs consumer_type Shared or KeyShared, not "
                    f"{self.consumer_type.name}: others count no redeliveries"
                )
        if check_flag("retry_enabled", retry_enabled):
            self._receive_retries()
        elif policy is not None and policy.retry_letter_topic is not None:
            raise InvalidArgument("retry_letter_topic needs retry_enabled=True")

    def _receive_retries(self) -> None:
        """Add the retry letter topic, and name it and the dead letter topic after the first topic:
        one of each for all topics.
        """
        if self.filter is not None:
            raise InvalidArgument(
                "retry_enabled needs topics by name: a pattern or wildcard has no first topic to "
                "name the retry letter topic after"
            )
        if not self.consumer_type.is_spread:
            raise InvalidArgument(
                "retry_enabled needs consumer_type Shared or KeyShared, not "
                f"{self.consumer_type.name}: others get a message at once, whatever its delay"
            )
        policy = self.dead_letter_policy or ConsumerDeadLetterPolicy(RECONSUMES_MAX)
        first, name = self.topics[0], self.subscription_name
        dead = policy.dead_letter_topic or letter_topic_name(first, name, "DLQ")
        retry = policy.retry_letter_topic or letter_topic_name(first, name, "RETRY")
        self.dead_letter_policy = ConsumerDeadLetterPolicy(
            policy.max_redeliver_count, dead, retry_letter_topic=retry
        )
        self.retry_topic = TopicName.parse(retry)
        if not self.retry_topic.persistent:
            raise InvalidArgument(
                f"retry_letter_topic is {retry}, which loses what waits in it: give a persistent "
                "topic in dead_letter_policy"
            )
        if retry == dead or self.retry_topic in self.topics:
            raise InvalidArgument(
                f"retry_letter_topic is {retry}, which is the dead letter topic or a topic that is "
                "subscribed to: give another one"
            )
        self.topics.append(self.retry_topic)

    def _keep_position(self, checkpoint_topic: str) -> None:
        try:
            (kept,) = topics_of(checkpoint_topic)
        except InvalidTopicName as error:
            raise InvalidTopicName(f"checkpoint_topic {checkpoint_topic!r}: {error}") from None
        if not self.consumer_name:
            raise InvalidArgument(
                "checkpoint_topic needs reader_name: the position is stored under that name"
            )
        if not kept.persistent or not self.topics[0].persistent:
            raise InvalidArgument(
                "checkpoint_topic needs persistent topics, to read and to store the position in, "
                f"not {self.topics[0]} and {kept}"
            )
        if kept == self.topics[0]:
            raise InvalidArgument(
                f"checkpoint_topic is {kept}, the topic that is read: pass another one"
            )
        self.checkpoint_topic = kept.full

    def continue_after(self, message_id: MessageId) -> None:
        """Have a reader start after a message, wherever it was to start."""
        self.start, self.start_inclusive, self.start_rollback_seconds = message_id, False, 0

    def of_found_topic(self) -> ConsumerOptions:
        """Return options for one topic of a pattern, which may change as it is opened."""
        return copy(self)

    def negative_ack_delay(self, redelivery_count: int) -> int:
        """Return the delay of a negative acknowledgement, in ms."""
        return (
            self.negative_ack_delay_ms
            if self.negative_ack_backoff is None
            else self.negative_ack_backoff.next(redelivery_count)
        )


def check_schema(schema: object) -> Schema:
    """Return the schema; for ``None``, the schema of bytes. Raises ``InvalidArgument``."""
    if schema is None:
        return _SCHEMA
    if isinstance(schema, type) or not (
        callable(getattr(schema, "encode", None)) and callable(getattr(schema, "decode", None))
    ):
        raise InvalidArgument(
            f"schema is {shown(schema)}: pass an object with encode and decode, such as "
            "pulsarish.StringSchema()"
        )
    return cast("Schema", schema)
