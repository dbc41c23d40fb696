"""The arguments of the client's methods, for type checkers, and how they become options.

``options`` has their meanings and defaults.

The names of each table are in the order of Apache Pulsar's Python client, so positional arguments
mean the same in both. Names that only this client has come last.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict

from pulsarish.client.backoff import MultiplierRedeliveryBackoff
from pulsarish.client.checks import check_callable, check_names, check_text, shown
from pulsarish.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from pulsarish.client.errors import InvalidType
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import (
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    ConsumerOptions,
)
from pulsarish.client.messages.options import ClientOptions, ProducerOptions
from pulsarish.client.messages.topic_filter import Wildcard
from pulsarish.client.schemas.schema import Schema
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.client_authentication import Authentication
from pulsarish.runtime.network.address_book import Transport

__all__ = [
    "ClientArguments",
    "ConsumerArguments",
    "ProducerArguments",
    "ReaderArguments",
    "client_options",
    "consumer_options",
    "producer_options",
    "reader_options",
]


class ClientArguments(TypedDict, total=False):
    """Arguments of ``Client``."""

    authentication: Authentication | None
    operation_timeout_seconds: float
    io_threads: int
    message_listener_threads: int
    concurrent_lookup_requests: int
    log_conf_file_path: str | None
    stats_interval_in_seconds: int
    use_tls: bool
    tls_trust_certs_file_path: str | None
    tls_allow_insecure_connection: bool
    tls_validate_hostname: bool
    logger: object | None
    connection_timeout_ms: int
    listener_name: str | None
    tls_private_key_file_path: str | None
    tls_certificate_file_path: str | None
    transport: Transport
    tracer_provider: object | None


class ProducerArguments(TypedDict, total=False):
    """Arguments of ``create_producer``."""

    producer_name: str | None
    schema: Schema | None
    initial_sequence_id: int | None
    send_timeout_millis: int
    compression_type: CompressionType
    max_pending_messages: int
    max_pending_messages_across_partitions: int
    block_if_queue_full: bool
    batching_enabled: bool
    batching_max_messages: int
    batching_max_allowed_size_in_bytes: int
    batching_max_publish_delay_ms: int
    chunking_enabled: bool
    message_routing_mode: PartitionsRoutingMode
    lazy_start_partitioned_producers: bool
    properties: Mapping[str, str] | None
    batching_type: BatchingType
    encryption_key: str | None
    crypto_key_reader: object | None
    access_mode: ProducerAccessMode
    message_router: Callable[[Any, int], int] | None
    hashing_scheme: HashingScheme


class ConsumerArguments(TypedDict, total=False):
    """Arguments of ``subscribe``."""

    consumer_type: ConsumerType
    schema: Schema | None
    message_listener: Callable[[Any, Any], object] | None
    receiver_queue_size: int
    max_total_receiver_queue_size_across_partitions: int
    consumer_name: str | None
    unacked_messages_timeout_ms: int | None
    broker_consumer_stats_cache_time_ms: int
    negative_ack_redelivery_delay_ms: int
    is_read_compacted: bool
    properties: Mapping[str, str] | None
    pattern_auto_discovery_period: int
    initial_position: InitialPosition
    crypto_key_reader: object | None
    replicate_subscription_state_enabled: bool
    max_pending_chunked_message: int
    auto_ack_oldest_chunked_message_on_queue_full: bool
    start_message_id_inclusive: bool
    batch_receive_policy: ConsumerBatchReceivePolicy | None
    key_shared_policy: ConsumerKeySharedPolicy | None
    batch_index_ack_enabled: bool
    regex_subscription_mode: RegexSubscriptionMode
    dead_letter_policy: ConsumerDeadLetterPolicy | None
    crypto_failure_action: ConsumerCryptoFailureAction
    negative_ack_redelivery_backoff: MultiplierRedeliveryBackoff | None
    expire_time_of_incomplete_chunked_message_ms: int
    ack_receipt_enabled: bool
    priority_level: int
    subscription_properties: Mapping[str, str] | None
    retry_enabled: bool
    filter: str | None


class ReaderArguments(TypedDict, total=False):
    """Arguments of ``create_reader``."""

    schema: Schema | None
    reader_listener: Callable[[Any, Any], object] | None
    receiver_queue_size: int
    reader_name: str | None
    subscription_role_prefix: str | None
    is_read_compacted: bool
    crypto_key_reader: object | None
    start_message_id_inclusive: bool
    crypto_failure_action: ConsumerCryptoFailureAction
    properties: Mapping[str, str] | None
    start_message_from_rollback_seconds: int
    checkpoint_topic: str | None
    replica: bool


_NOT_IN_ASYNCIO: Final = ("message_listener", "pattern_auto_discovery_period", "reader_listener")
"""Arguments that Apache Pulsar's asyncio API does not have.

This client's asyncio API accepts them as keyword arguments.
"""


def _by_name(
    method: str,
    kind: type,
    positional: Sequence[object],
    given: Mapping[str, Any],
    *,
    awaitable: bool,
) -> dict[str, Any]:
    """Return all arguments by name.

    Raises ``InvalidArgument`` for unknown, surplus or repeated arguments.
    """
    accepted = list(kind.__annotations__)
    check_names(method, given, accepted)
    order = [name for name in accepted if not (awaitable and name in _NOT_IN_ASYNCIO)]
    if len(positional) > len(order):
        raise InvalidArgument(
            f"{method}() takes at most {len(order)} more positional arguments, and "
            f"{len(positional)} are given"
        )
    named = dict(zip(order, positional, strict=False))
    for name in named:
        if name in given:
            raise InvalidArgument(
                f"{method}() got {name!r} twice, by position and by name: give it once"
            )
    return named | dict(given)


def client_options(
    service_url: str, given: ClientArguments, positional: Sequence[object] = ()
) -> ClientOptions:
    """Return the options of a client.

    Raises ``InvalidConfiguration`` for a bad URL, ``InvalidArgument``, ``UnsupportedFeature``.
    """
    return ClientOptions(
        service_url, **_by_name("Client", ClientArguments, positional, given, awaitable=False)
    )


def producer_options(
    topic: str,
    given: ProducerArguments,
    positional: Sequence[object] = (),
    *,
    batching_enabled: bool = False,
) -> ProducerOptions:
    """Return the options of a producer.

    Args:
        batching_enabled: the default, unless ``chunking_enabled`` is given.

    Raises ``InvalidArgument``, ``InvalidTopicName``, ``UnsupportedFeature``.
    """
    named = _by_name("create_producer", ProducerArguments, positional, given, awaitable=False)
    if batching_enabled:
        named.setdefault("batching_enabled", not named.get("chunking_enabled", False))
    return ProducerOptions(topic, **named)


def consumer_options(
    topic: str | list[str] | re.Pattern[str] | Wildcard,
    subscription_name: str,
    given: ConsumerArguments,
    positional: Sequence[object] = (),
    *,
    awaitable: bool = False,
) -> ConsumerOptions:
    """Return the options of a consumer. Raises the errors of ``producer_options``."""
    return ConsumerOptions(
        topic,
        subscription_name,
        **_by_name("subscribe", ConsumerArguments, positional, given, awaitable=awaitable),
    )


_READER_NAMES = {"reader_listener": "message_listener", "reader_name": "consumer_name"}


def reader_options(
    topic: str,
    start_message_id: MessageId,
    given: ReaderArguments | Mapping[str, Any],
    random_stream: random.Random,
    positional: Sequence[object] = (),
    *,
    awaitable: bool = False,
) -> ConsumerOptions:
    """Return the options of the consumer behind a reader.

    Its subscription lives as long as the reader.

    Raises the errors of ``producer_options``.
    """
    named = _by_name("create_reader", ReaderArguments, positional, given, awaitable=awaitable)
    check_text("topic", topic)
    if not isinstance(start_message_id, MessageId):
        raise InvalidType(
            f"start_message_id is {shown(start_message_id)}: pass MessageId.earliest, "
            "MessageId.latest or a message's id"
        )
    if named.get("reader_listener") is not None:
        check_callable("reader_listener", named["reader_listener"], "a function (reader, message)")
    if named.get("reader_name") is not None:
        check_text("reader_name", named["reader_name"])
    options: dict[str, Any] = {
        _READER_NAMES.get(name, name): value for name, value in named.items()
    }
    prefix = options.pop("subscription_role_prefix", None)
    start = "" if prefix is None else check_text("subscription_role_prefix", prefix) + "-"
    return ConsumerOptions(
        topic,
        f"{start}reader-{random_stream.getrandbits(40):010x}",
        start=start_message_id,
        **options,
    )
