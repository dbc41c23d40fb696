"""The arguments of ``subscribe`` and ``create_reader``, in the order of Apache Pulsar's Python
client, and how they become options. Those that only this client has are keywords.

``ConsumerOptions`` has those of ``subscribe``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from pulsarish.client.backoff import MultiplierRedeliveryBackoff
from pulsarish.client.checks import check_callable, check_flag, check_text, shown
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
from pulsarish.client.messages.consumer_options import ConsumerOptions, Listener, Topics
from pulsarish.client.messages.consumer_policies import (
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
)
from pulsarish.client.schemas.schema import Schema
from pulsarish.client.type_variables import Chosen
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.client_authentication import Authentication
from pulsarish.runtime.client_loggers import AnyLogger
from pulsarish.runtime.crypto_key_reader import CryptoKeyReader
from pulsarish.runtime.network.address_book import Transport

__all__ = [
    "ClientArguments",
    "ProducerArguments",
    "asyncio_consumer_options",
    "asyncio_reader_options",
    "reader_options",
]


_OF_READERS = ("start_message_from_rollback_seconds", "checkpoint_topic", "replica")


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
    logger: AnyLogger | None
    connection_timeout_ms: int
    listener_name: str | None
    tls_private_key_file_path: str | None
    tls_certificate_file_path: str | None
    transport: Transport
    tracer_provider: object | None
    meter_provider: object | None


class ProducerArguments(TypedDict, total=False):
    """Arguments of ``create_producer``."""

    producer_name: str | None
    schema: Schema[Any] | None
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
    encryption_key: str | list[str] | None
    crypto_key_reader: CryptoKeyReader | None
    access_mode: ProducerAccessMode
    message_router: Callable[[Any, int], int] | None
    hashing_scheme: HashingScheme


def asyncio_consumer_options(
    topic: Topics,
    subscription_name: str,
    consumer_type: ConsumerType = ConsumerType.Exclusive,
    schema: Schema[Chosen] | None = None,
    receiver_queue_size: int = 1_000,
    max_total_receiver_queue_size_across_partitions: int = 50_000,
    consumer_name: str | None = None,
    unacked_messages_timeout_ms: int | None = None,
    broker_consumer_stats_cache_time_ms: int = 30_000,
    negative_ack_redelivery_delay_ms: int = 60_000,
    is_read_compacted: bool = False,
    properties: Mapping[str, str] | None = None,
    initial_position: InitialPosition = InitialPosition.Latest,
    crypto_key_reader: CryptoKeyReader | None = None,
    replicate_subscription_state_enabled: bool = False,
    max_pending_chunked_message: int = 10,
    auto_ack_oldest_chunked_message_on_queue_full: bool = False,
    start_message_id_inclusive: bool = False,
    batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
    key_shared_policy: ConsumerKeySharedPolicy | None = None,
    batch_index_ack_enabled: bool = True,
    regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
    dead_letter_policy: ConsumerDeadLetterPolicy | None = None,
    crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    is_pattern_topic: bool = False,
    *,
    message_listener: Listener | None = None,
    pattern_auto_discovery_period: int = 60,
    negative_ack_redelivery_backoff: MultiplierRedeliveryBackoff | None = None,
    expire_time_of_incomplete_chunked_message_ms: int = 60_000,
    ack_receipt_enabled: bool = False,
    priority_level: int = 0,
    subscription_properties: Mapping[str, str] | None = None,
    retry_enabled: bool = False,
    filter: str | None = None,  # noqa: A002  # what a program writes
) -> ConsumerOptions[Chosen]:
    """Return the options of a consumer of the asyncio client.

    Args:
        is_pattern_topic: whether ``topic`` is a regular expression as text.

    Raises the errors of ``ConsumerOptions``.
    """
    given = locals()
    if check_flag("is_pattern_topic", given.pop("is_pattern_topic")):
        given["topic"] = _compiled(topic)
    return ConsumerOptions(**given)


def _compiled(topic: object) -> re.Pattern[str]:
    text = topic.pattern if isinstance(topic, re.Pattern) else topic
    try:
        return re.compile(check_text("topic", text))
    except re.error as error:
        raise InvalidArgument(
            f"topic is {shown(topic)}, which is no regular expression: {error}; "
            "is_pattern_topic=True asks for one"
        ) from None


def reader_options(
    topic: str,
    start_message_id: MessageId,
    schema: Schema[Chosen] | None = None,
    reader_listener: Listener | None = None,
    receiver_queue_size: int = 1_000,
    reader_name: str | None = None,
    subscription_role_prefix: str | None = None,
    is_read_compacted: bool = False,
    crypto_key_reader: CryptoKeyReader | None = None,
    start_message_id_inclusive: bool = False,
    crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    *,
    properties: Mapping[str, str] | None = None,
    start_message_from_rollback_seconds: int = 0,
    checkpoint_topic: str | None = None,
    replica: bool = False,
) -> ConsumerOptions[Chosen]:
    """Return the options of the consumer behind a reader. Its subscription lives as long as the
    reader, which completes the name.

    Args:
        topic: its name.
        start_message_id: where to start: after this message, or at ``MessageId.earliest`` or
            ``latest``.
        reader_listener: a function (reader, message) that gets the messages.
        reader_name: shown in statistics; with ``checkpoint_topic`` the name of the position.
        subscription_role_prefix: what the name of its subscription begins with, for namespaces that
            demand the role there.
        start_message_from_rollback_seconds: start with the messages of the last seconds, in place
            of ``start_message_id``; 0: not.
        checkpoint_topic: keeps the position that ``checkpoint`` stores; the next reader of the name
            starts after it.
        replica: whether any broker serves the reader, not only the owner of the topic.

    Raises the errors of ``ConsumerOptions``.
    """
    return _of_reader(locals())


def asyncio_reader_options(
    topic: str,
    start_message_id: MessageId,
    schema: Schema[Chosen] | None = None,
    receiver_queue_size: int = 1_000,
    reader_name: str | None = None,
    subscription_role_prefix: str | None = None,
    is_read_compacted: bool = False,
    crypto_key_reader: CryptoKeyReader | None = None,
    start_message_id_inclusive: bool = False,
    crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    *,
    reader_listener: Listener | None = None,
    properties: Mapping[str, str] | None = None,
    start_message_from_rollback_seconds: int = 0,
    checkpoint_topic: str | None = None,
    replica: bool = False,
) -> ConsumerOptions[Chosen]:
    """Return what ``reader_options`` does, for the asyncio client."""
    return _of_reader(locals())


def _of_reader(given: dict[str, Any]) -> ConsumerOptions[Any]:
    start, listener, reader_name = (
        given.pop(which) for which in ("start_message_id", "reader_listener", "reader_name")
    )
    check_text("topic", given["topic"])
    if not isinstance(start, MessageId):
        raise InvalidType(
            f"start_message_id is {shown(start)}: pass MessageId.earliest, MessageId.latest or a "
            "message's id"
        )
    if listener is not None:
        check_callable("reader_listener", listener, "a function (reader, message)")
    if reader_name is not None:
        check_text("reader_name", reader_name)
    prefix = given.pop("subscription_role_prefix")
    role = "" if prefix is None else check_text("subscription_role_prefix", prefix) + "-"
    own = {name: given.pop(name) for name in _OF_READERS}
    options = ConsumerOptions(
        subscription_name=f"{role}reader-",
        message_listener=listener,
        consumer_name=reader_name,
        **given,
    )
    options.read_from(start, **own)
    return options
