"""The options of clients and producers, checked when the program gives them, and checks that the
options of consumers share.

Names, meanings and defaults are Apache Pulsar's. An option that this version does not support
raises ``OperationNotSupported``. A value that makes no sense raises ``InvalidArgument``, which
names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Generic, cast, get_args

from pulsarish.client.checks import (
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
    HashingScheme,
    PartitionsRoutingMode,
    ProducerAccessMode,
)
from pulsarish.client.errors import InvalidType
from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.client.messages.security_options import security_of
from pulsarish.client.schemas.schema import BytesSchema, Schema
from pulsarish.client.service_info import Service
from pulsarish.client.service_url import parse_service_url
from pulsarish.client.type_variables import Chosen
from pulsarish.model.errors import InvalidArgument, OperationNotSupported
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.client_authentication import Authentication
from pulsarish.runtime.client_loggers import AnyLogger, check_logger
from pulsarish.runtime.crypto_key_reader import CryptoKeyReader
from pulsarish.runtime.network.address_book import Transport
from pulsarish.wire.entry import (
    EXPIRES_PROPERTY,
    MESSAGES_IN_BATCH_MAX,
    PRIORITIES,
    PRIORITY_PROPERTY,
)

__all__ = [
    "ClientOptions",
    "ProducerOptions",
    "check_key_reader",
    "check_schema",
    "make_extras",
    "topics_of",
    "unsupported",
]

_SCHEMA: Final = BytesSchema()
_MILLISECOND: Final = timedelta(milliseconds=1)


def unsupported(given: Mapping[str, object], **supported: tuple[object, str]) -> None:
    """Reject options that this version does not support.

    Args:
        supported: for each name, the value that asks for nothing, and what to do instead.
    """
    for name, (harmless, instead) in supported.items():
        if isinstance(harmless, bool):
            check_flag(name, given[name])
        if given[name] != harmless:
            raise OperationNotSupported(f"{name}={given[name]!r} is not supported yet: {instead}")


def topics_of(topic: object) -> list[TopicName]:
    """Return the topics of a subscription.

    Raises ``InvalidTopicName``, ``InvalidArgument``.
    """
    if isinstance(topic, str):
        return [TopicName.parse(topic)]
    if isinstance(topic, list):
        if not topic:
            raise InvalidArgument("topic is an empty list: pass topic names")
        for name in topic:
            check_type("topic", name, str, "a list of topic names")
        names = [TopicName.parse(name) for name in topic]
        if len({name.full for name in names}) < len(names):
            raise InvalidArgument("topic is a list that names a topic twice: name each once")
        return names
    raise InvalidType(
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
    priority: int | None,
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
    if priority is not None:
        all_properties = {**all_properties, PRIORITY_PROPERTY: str(_check_priority(priority))}
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


def _check_priority(priority: int) -> int:
    """Return the priority. Raises ``InvalidArgument``."""
    number = f"an int from 0 (delivered last) to {PRIORITIES - 1} (delivered first)"
    check_type("priority", priority, int, number)
    if not 0 <= priority < PRIORITIES:
        raise InvalidArgument(f"priority is {priority}: pass {number}")
    return priority


class ClientOptions:
    """Options of ``Client``."""

    def __init__(
        self,
        service_url: Service,
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
        logger: AnyLogger | None = None,
        connection_timeout_ms: int = 10_000,
        listener_name: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
        *,
        transport: Transport = "auto",
        tracer_provider: object | None = None,
        meter_provider: object | None = None,
    ) -> None:
        """Check the options.

        Args:
            service_url: ``pulsarish://host:6660[,host2:6660]``, ``pulsar://``, or ``http://``; with
                TLS ``pulsarish+ssl://``, ``pulsar+ssl://`` or ``https://``. Of several clusters, an
                ``AutoClusterFailover`` or a ``ServiceInfoProvider``.
            authentication: who the program is; ``None``: it does not say.
            operation_timeout_seconds: how long a lookup, an opening or another request may take,
                with all its attempts.
            io_threads: no effect; all clients of a process share one thread.
            message_listener_threads: no effect; each listener has a thread.
            concurrent_lookup_requests: no effect; lookups are not limited.
            log_conf_file_path: only ``None``; configure the standard library's logger
                ``pulsarish``.
            stats_interval_in_seconds: how often the counts of producers and consumers are written
                to the log, as information; 0: never.
            use_tls: whether the connection is encrypted; the URL says so, too.
            tls_trust_certs_file_path: certificates of authorities that are trusted, in PEM;
                ``None``: those of the system.
            tls_allow_insecure_connection: whether any certificate is accepted.
            tls_validate_hostname: whether the certificate must be of the host in the URL.
            logger: a ``logging.Logger``, ``ConsoleLogger`` or ``FileLogger``; ``None``: warnings go
                to the standard library's logger.
            connection_timeout_ms: how long a connection may take until another address is tried.
            listener_name: the listener of brokers whose addresses are asked for; ``None``: the one
                that is connected to.
            tls_private_key_file_path: the key of the client's certificate, in PEM.
            tls_certificate_file_path: the client's certificate, in PEM.
            transport: ``"auto"`` uses frames where a broker offers them, and gRPC elsewhere;
                ``"grpc"`` and ``"framed"`` only that.
            tracer_provider: of OpenTelemetry, for spans of what is sent and received; ``None``:
                nothing is traced.
            meter_provider: of OpenTelemetry, for what ``stats`` counts; ``None``: nothing.
        """
        self.url = parse_service_url(service_url)
        unsupported(
            locals(),
            log_conf_file_path=(None, "configure the standard library's logger 'pulsarish'"),
        )
        check_logger(logger)
        self.logger = logger
        # These have no effect: all clients of a process share one loop thread, each listener has a
        # thread of its own, and lookups are not limited.
        for name, number in (
            ("io_threads", io_threads),
            ("message_listener_threads", message_listener_threads),
            ("concurrent_lookup_requests", concurrent_lookup_requests),
        ):
            check_number(name, number, 0)
        self.stats_interval_seconds = check_number(
            "stats_interval_in_seconds", stats_interval_in_seconds, 0
        )
        self.security = security_of(
            authentication,
            is_tls=self.url.has_tls,
            tls_url="service_url that begins with pulsarish+ssl://, pulsar+ssl:// or https://",
            use_tls=use_tls,
            trust_file=tls_trust_certs_file_path,
            allows_insecure=tls_allow_insecure_connection,
            validates_host_name=tls_validate_hostname,
            certificate_file=tls_certificate_file_path,
            key_file=tls_private_key_file_path,
        )
        accepted = "a number above 0 and at most 86400"
        check_type("operation_timeout_seconds", operation_timeout_seconds, (int, float), accepted)
        if not 0 < operation_timeout_seconds <= 86_400:
            raise InvalidArgument(
                f"operation_timeout_seconds is {operation_timeout_seconds}: pass {accepted}"
            )
        self.operation_timeout_seconds = float(operation_timeout_seconds)
        self.connection_timeout_seconds = (
            check_number("connection_timeout_ms", connection_timeout_ms, 1) / 1_000
        )
        self.listener_name = (
            check_text("listener_name", listener_name) if listener_name is not None else ""
        )
        if check_text("transport", transport) not in get_args(Transport):
            raise InvalidArgument(
                f"transport is {shown(transport)}: pass one of {', '.join(get_args(Transport))}"
            )
        self.transport: Transport = transport
        self.tracer_provider = tracer_provider
        self.meter_provider = meter_provider


class ProducerOptions(Generic[Chosen]):
    """Options of ``create_producer``."""

    def __init__(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema[Chosen] | None = None,
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
        encryption_key: str | list[str] | None = None,
        crypto_key_reader: CryptoKeyReader | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: Callable[[Any, int], int] | None = None,
        *,
        hashing_scheme: HashingScheme = HashingScheme.BoostHash,
    ) -> None:
        """Check the options.

        Args:
            topic: its name; ``orders`` is ``persistent://public/default/orders``.
            producer_name: one producer of a name is connected to a topic at a time; with
                deduplication a sequence id of it counts once. ``None``: the broker makes one up.
            schema: of the messages; ``None``: they are bytes.
            initial_sequence_id: the first message has the next one; ``None``: after the last one
                that the broker knows.
            send_timeout_millis: how long a message may wait for its receipt; 0: no limit.
            compression_type: of the payload of an entry, a message or a batch of them.
            max_pending_messages: how many messages may wait for their receipts.
            max_pending_messages_across_partitions: the same for all partitions together.
            block_if_queue_full: whether ``send`` waits for room; otherwise it raises
                ``ProducerQueueIsFull``.
            batching_enabled: whether messages that are sent together share an entry.
            batching_max_messages: the messages of a batch.
            batching_max_allowed_size_in_bytes: the bytes of a batch.
            batching_max_publish_delay_ms: how long a batch waits for more messages.
            chunking_enabled: whether a message above the broker's limit is stored in several
                entries; not with batches.
            message_routing_mode: which partition a message without a key goes to.
            lazy_start_partitioned_producers: whether partitions but the first are connected to when
                their first message is sent.
            properties: of the producer, shown in the statistics of the topic.
            batching_type: ``KeyBased``: a batch has messages of one key, for Key_Shared consumers.
            encryption_key: names of public keys that the messages are encrypted for.
            crypto_key_reader: reads the keys.
            access_mode: whether others may publish to the topic meanwhile.
            message_router: a function (message, partitions) that returns the number of the
                partition.
            hashing_scheme: how a key chooses its partition.
        """
        self.topic = topics_of(check_text("topic", topic))[0]
        self.producer_name = (
            check_name("producer", check_text("producer_name", producer_name))
            if producer_name is not None and producer_name != ""
            else ""
        )
        self.schema: Schema[Chosen] = check_schema(schema)
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
        self.lazy_start = check_flag(
            "lazy_start_partitioned_producers", lazy_start_partitioned_producers
        )
        """Whether producers of partitions but the first are opened with their first message."""
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
        self.hashing_scheme = hashing_scheme
        self.properties = check_mapping("properties", properties)
        check_type("access_mode", access_mode, ProducerAccessMode, "a pulsarish.ProducerAccessMode")
        self.access_mode = access_mode
        self.encryption_keys = _check_encryption(encryption_key, crypto_key_reader)
        """Names of the public keys that the data key is encrypted with; empty: no encryption."""
        self.crypto_key_reader = check_key_reader(crypto_key_reader)
        self.initial_subscription = ""
        """What the broker creates at the start of the topic before the producer is open, unless it
        exists; empty: nothing.
        """


def _check_encryption(encryption_key: object, reader: object) -> list[str]:
    """Return the names. Raises ``InvalidArgument``."""
    if encryption_key is None:
        names: list[Any] = []
    else:
        names = encryption_key if isinstance(encryption_key, list) else [encryption_key]
        if not names:
            raise InvalidArgument("encryption_key is an empty list: name a key, or leave it out")
    for index, name in enumerate(names):
        if not check_text("encryption_key", name) or name in names[:index]:
            raise InvalidArgument(
                f"encryption_key has the name {name!r}: give names that are not empty, each once"
            )
    if names and reader is None:
        raise InvalidArgument(
            "encryption_key needs crypto_key_reader: pass a pulsarish.CryptoKeyReader, or messages "
            "would not be encrypted"
        )
    if not names and reader is not None:
        raise InvalidArgument(
            "crypto_key_reader of a producer needs encryption_key: name the key, or messages "
            "would not be encrypted"
        )
    return list(names)


def check_key_reader(reader: object) -> CryptoKeyReader | None:
    """Return the key reader. Raises ``InvalidArgument``."""
    if reader is not None:
        check_type("crypto_key_reader", reader, CryptoKeyReader, "a pulsarish.CryptoKeyReader")
    return cast("CryptoKeyReader | None", reader)


def check_schema(schema: object) -> Schema[Any]:
    """Return the schema; for ``None``, the schema of bytes. Raises ``InvalidArgument``."""
    if schema is None:
        return _SCHEMA
    if isinstance(schema, type) or not (
        callable(getattr(schema, "encode", None)) and callable(getattr(schema, "decode", None))
    ):
        raise InvalidType(
            f"schema is {shown(schema)}: pass an object with encode and decode, such as "
            "pulsarish.StringSchema()"
        )
    return cast("Schema[Any]", schema)
