"""Pulsarish: a durable, replicated publish/subscribe log and queue, with the Python names of Apache
Pulsar's client.

    import pulsarish

    client = pulsarish.Client("pulsarish://127.0.0.1:6660")
    producer = client.create_producer("greetings")
    producer.send(b"hello")
    client.close()

``pulsarish.asyncio`` is the awaitable twin. Everything is imported at its first use: the servers
and the command line live below this package and must not pay for a client that they do not use.
"""

from __future__ import annotations

# ruff: noqa: F403, F405  # type checkers read all exceptions
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulsarish.client.api.arrow_batch import ArrowBatch
    from pulsarish.client.api.blocking_client import Client
    from pulsarish.client.api.blocking_consumer import Consumer, Reader
    from pulsarish.client.api.blocking_producer import Producer
    from pulsarish.client.api.table_view import TableView
    from pulsarish.client.api.tracing import trace_context
    from pulsarish.client.api.worker import Worker
    from pulsarish.client.backoff import MultiplierRedeliveryBackoff
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
    from pulsarish.client.messages.consumer_policies import (
        BatchReceivePolicy,
        ConsumerBatchReceivePolicy,
        ConsumerDeadLetterPolicy,
        ConsumerKeySharedPolicy,
        DeadLetterPolicyBuilder,
        KeySharedPolicy,
    )
    from pulsarish.client.messages.encryption_context import EncryptionContext, EncryptionKey
    from pulsarish.client.messages.message import Message
    from pulsarish.client.messages.message_batch import MessageBatch
    from pulsarish.client.messages.topic_filter import Wildcard
    from pulsarish.client.schemas.auto_consume import AutoConsumeSchema
    from pulsarish.client.schemas.avro import AvroSchema
    from pulsarish.client.schemas.schema import BytesSchema, JsonSchema, Schema, StringSchema
    from pulsarish.client.service_info import AutoClusterFailover, ServiceInfo, ServiceInfoProvider
    from pulsarish.client.stats import ClientStats, ConsumerStats, LatencyStats, ProducerStats
    from pulsarish.exceptions import *
    from pulsarish.functions import Context, Function, IdentitySerDe, PickleSerDe, SerDe
    from pulsarish.model.result import Result
    from pulsarish.runtime.client_authentication import (
        Authentication,
        AuthenticationAthenz,
        AuthenticationBasic,
        AuthenticationOauth2,
        AuthenticationTLS,
        AuthenticationToken,
    )
    from pulsarish.runtime.client_loggers import ConsoleLogger, FileLogger, LoggerLevel
    from pulsarish.runtime.crypto_key_reader import CryptoKeyReader

__all__ = [
    "AlreadyClosed",
    "AlreadyExists",
    "ArrowBatch",
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationError",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "AuthorizationError",
    "AutoClusterFailover",
    "AutoConsumeSchema",
    "AvroSchema",
    "BatchReceivePolicy",
    "BatchingType",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "BytesSchema",
    "ChecksumError",
    "Client",
    "ClientStats",
    "CompressionType",
    "ConnectError",
    "ConsoleLogger",
    "Consumer",
    "ConsumerAssignError",
    "ConsumerBatchReceivePolicy",
    "ConsumerBusy",
    "ConsumerCryptoFailureAction",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "ConsumerStats",
    "ConsumerType",
    "Context",
    "CryptoError",
    "CryptoKeyReader",
    "CumulativeAcknowledgementNotAllowedError",
    "DeadLetterPolicyBuilder",
    "DeduplicationUncertain",
    "EncryptionContext",
    "EncryptionKey",
    "ErrorGettingAuthenticationData",
    "FileLogger",
    "ForkedProcess",
    "Function",
    "HashingScheme",
    "IdentitySerDe",
    "IncompatibleSchema",
    "InitialPosition",
    "Interrupted",
    "InvalidArgument",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidPosition",
    "InvalidSchema",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidType",
    "InvalidUrl",
    "JsonSchema",
    "KeySharedMode",
    "KeySharedPolicy",
    "LatencyStats",
    "LimitReached",
    "LoggerLevel",
    "LookupError",
    "MemoryBufferIsFull",
    "Message",
    "MessageBatch",
    "MessageId",
    "MessageTooBig",
    "MultiplierRedeliveryBackoff",
    "NotAllowedError",
    "NotConnected",
    "NotEmpty",
    "NotEnoughBookies",
    "NotEnoughDomains",
    "NotFound",
    "OperationNotSupported",
    "PartitionsRoutingMode",
    "PickleSerDe",
    "Producer",
    "ProducerAccessMode",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "ProducerStats",
    "PulsarException",
    "PulsarishError",
    "ReadError",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "Schema",
    "SchemaNotFound",
    "SerDe",
    "ServiceInfo",
    "ServiceInfoProvider",
    "ServiceNotReady",
    "ServiceUnitNotReady",
    "StringSchema",
    "SubscriptionBusy",
    "SubscriptionNotFound",
    "TableView",
    "Timeout",
    "TooManyLookupRequestException",
    "TooManyRequests",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnknownError",
    "UnsupportedVersionError",
    "Wildcard",
    "Worker",
    "trace_context",
]

_MODULES = {
    "client.schemas.auto_consume": ("AutoConsumeSchema",),
    "client.schemas.avro": ("AvroSchema",),
    "client.backoff": ("MultiplierRedeliveryBackoff",),
    "client.api.arrow_batch": ("ArrowBatch",),
    "client.api.blocking_client": ("Client",),
    "client.api.blocking_consumer": ("Consumer", "Reader"),
    "client.api.blocking_producer": ("Producer",),
    "client.enums": (
        "BatchingType",
        "CompressionType",
        "ConsumerCryptoFailureAction",
        "ConsumerType",
        "HashingScheme",
        "InitialPosition",
        "KeySharedMode",
        "PartitionsRoutingMode",
        "ProducerAccessMode",
        "RegexSubscriptionMode",
    ),
    "client.messages.encryption_context": ("EncryptionContext", "EncryptionKey"),
    "client.messages.message": ("Message",),
    "client.message_id": ("MessageId",),
    "client.messages.consumer_policies": (
        "BatchReceivePolicy",
        "ConsumerBatchReceivePolicy",
        "ConsumerDeadLetterPolicy",
        "ConsumerKeySharedPolicy",
        "DeadLetterPolicyBuilder",
        "KeySharedPolicy",
    ),
    "client.messages.topic_filter": ("Wildcard",),
    "model.result": ("Result",),
    "client.service_info": ("AutoClusterFailover", "ServiceInfo", "ServiceInfoProvider"),
    "client.stats": ("ClientStats", "ConsumerStats", "LatencyStats", "ProducerStats"),
    "client.schemas.schema": ("BytesSchema", "JsonSchema", "Schema", "StringSchema"),
    "client.api.table_view": ("TableView",),
    "client.api.tracing": ("trace_context",),
    "client.api.worker": ("Worker",),
    "client.messages.message_batch": ("MessageBatch",),
    "functions": ("Context", "Function", "IdentitySerDe", "PickleSerDe", "SerDe"),
    "runtime.client_loggers": ("ConsoleLogger", "FileLogger", "LoggerLevel"),
    "runtime.client_authentication": (
        "Authentication",
        "AuthenticationAthenz",
        "AuthenticationBasic",
        "AuthenticationOauth2",
        "AuthenticationTLS",
        "AuthenticationToken",
    ),
    "runtime.crypto_key_reader": ("CryptoKeyReader",),
}
_HOME = {name: f"pulsarish.{module}" for module, names in _MODULES.items() for name in names}


_SUBMODULES = ("exceptions", "functions", "schema", "tableview")


def __getattr__(name: str) -> Any:
    """Import a public name or submodule at its first use."""
    if name == "__version__":
        return import_module("pulsarish.runtime.version").program_version()
    if name in _SUBMODULES:
        return import_module(f"pulsarish.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'pulsarish' has no attribute {name!r}")
    # What has no home of its own is an exception.
    value = getattr(import_module(_HOME.get(name, "pulsarish.exceptions")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
