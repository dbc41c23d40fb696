"""The keyword arguments of the client's methods, for type checkers, and how they become options. Their meanings and defaults stand in
``options``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from pulsarish.client.backoff import MultiplierRedeliveryBackoff
from pulsarish.client.checks import check_callable, check_names, check_text, shown
from pulsarish.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerType,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
)
from pulsarish.client.message_id import MessageId
from pulsarish.client.options import (
    ClientOptions,
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    ConsumerOptions,
    ProducerOptions,
)
from pulsarish.client.schema import Schema
from pulsarish.model.errors import InvalidArgument

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
    """Of ``Client``."""

    authentication: object | None
    operation_timeout_seconds: float
    io_threads: int
    message_listener_threads: int
    concurrent_lookup_requests: int
    stats_interval_in_seconds: int
    use_tls: bool
    tls_trust_certs_file_path: str | None
    tls_allow_insecure_connection: bool
    tls_validate_hostname: bool
    tls_private_key_file_path: str | None
    tls_certificate_file_path: str | None
    logger: object | None
    connection_timeout_ms: int
    listener_name: str | None


class ProducerArguments(TypedDict, total=False):
    """Of ``create_producer``."""

    producer_name: str | None
    schema: Schema
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
    """Of ``subscribe``."""

    consumer_type: ConsumerType
    schema: Schema
    message_listener: Callable[[Any, Any], object] | None
    receiver_queue_size: int
    max_total_receiver_queue_size_across_partitions: int
    consumer_name: str | None
    unacked_messages_timeout_ms: int | None
    negative_ack_redelivery_delay_ms: int
    negative_ack_redelivery_backoff: MultiplierRedeliveryBackoff | None
    is_read_compacted: bool
    properties: Mapping[str, str] | None
    initial_position: InitialPosition
    crypto_key_reader: object | None
    replicate_subscription_state_enabled: bool
    max_pending_chunked_message: int
    auto_ack_oldest_chunked_message_on_queue_full: bool
    expire_time_of_incomplete_chunked_message_ms: int
    start_message_id_inclusive: bool
    batch_receive_policy: ConsumerBatchReceivePolicy | None
    key_shared_policy: ConsumerKeySharedPolicy | None
    batch_index_ack_enabled: bool
    dead_letter_policy: ConsumerDeadLetterPolicy | None
    ack_receipt_enabled: bool
    priority_level: int
    subscription_properties: Mapping[str, str] | None


class ReaderArguments(TypedDict, total=False):
    """Of ``create_reader``."""

    schema: Schema
    reader_listener: Callable[[Any, Any], object] | None
    receiver_queue_size: int
    reader_name: str | None
    subscription_role_prefix: str | None
    is_read_compacted: bool
    crypto_key_reader: object | None
    start_message_id_inclusive: bool
    properties: Mapping[str, str] | None
    start_message_from_rollback_seconds: int


def client_options(service_url: str, given: ClientArguments) -> ClientOptions:
    """Raises ``InvalidConfiguration`` for the URL, ``InvalidArgument``, ``UnsupportedFeature``."""
    check_names("Client", given, ClientArguments.__annotations__)
    return ClientOptions(service_url, **given)


def producer_options(topic: str, given: ProducerArguments) -> ProducerOptions:
    """Raises ``InvalidArgument``, ``InvalidTopicName``, ``UnsupportedFeature``."""
    check_names("create_producer", given, ProducerArguments.__annotations__)
    return ProducerOptions(topic, **given)


def consumer_options(topic: str | list[str], subscription_name: str, given: ConsumerArguments) -> ConsumerOptions:
    """Raises as ``producer_options`` does."""
    check_names("subscribe", given, ConsumerArguments.__annotations__)
    return ConsumerOptions(topic, subscription_name, **given)


_READER_NAMES = {"reader_listener": "message_listener", "reader_name": "consumer_name"}


def reader_options(
    topic: str, start_message_id: MessageId, given: ReaderArguments | Mapping[str, Any], random_stream: random.Random
) -> ConsumerOptions:
    """The options of a consumer on a subscription that lives as long as the reader. Raises as ``producer_options`` does."""
    check_names("create_reader", given, ReaderArguments.__annotations__)
    check_text("topic", topic)
    if not isinstance(start_message_id, MessageId):
        raise InvalidArgument(f"start_message_id is {shown(start_message_id)}: pass MessageId.earliest, MessageId.latest or a message's id")
    if given.get("reader_listener") is not None:
        check_callable("reader_listener", given["reader_listener"], "a function (reader, message)")
    if given.get("reader_name") is not None:
        check_text("reader_name", given["reader_name"])
    options: dict[str, Any] = {_READER_NAMES.get(name, name): value for name, value in given.items()}
    prefix = options.pop("subscription_role_prefix", None)
    start = "" if prefix is None else check_text("subscription_role_prefix", prefix) + "-"
    return ConsumerOptions(topic, f"{start}reader-{random_stream.getrandbits(40):010x}", start=start_message_id, **options)
