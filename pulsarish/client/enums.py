"""The choices of the client, with the names and numbers of Apache Pulsar's Python client."""

from __future__ import annotations

from enum import Enum, IntEnum

from pulsarish.model.subscription_type import SubscriptionType

__all__ = [
    "BatchingType",
    "CompressionType",
    "ConsumerCryptoFailureAction",
    "ConsumerType",
    "HashingScheme",
    "InitialPosition",
    "KeyForm",
    "KeySharedMode",
    "PartitionsRoutingMode",
    "ProducerAccessMode",
    "RegexSubscriptionMode",
]


class _NamedInt(IntEnum):
    """A number that prints as its name, as the official client's enumerations do."""

    __str__ = Enum.__str__


class CompressionType(_NamedInt):
    """How a producer compresses its entries. The numbers are those of the wire."""

    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class ConsumerType(_NamedInt):
    """Who of a subscription's consumers gets a message.

    These are the names of ``SubscriptionType`` that programs use.
    """

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3

    @property
    def is_spread(self) -> bool:
        """Whether several consumers get messages at the same time."""
        return SubscriptionType(self.value).is_spread


class InitialPosition(_NamedInt):
    """Where a new subscription starts."""

    Latest = 0
    Earliest = 1


class KeyForm(_NamedInt):
    """How a message's key stands in its metadata."""

    TEXT = 0
    BASE64 = 1
    """Bytes, as Base64."""
    NULL = 2
    """There is none, where the schema has a place for one."""


class ProducerAccessMode(_NamedInt):
    """Who else may publish to the topic."""

    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class PartitionsRoutingMode(_NamedInt):
    """Which partition a message without a key goes to; a message with a key goes where the hash of
    its key says.
    """

    UseSinglePartition = 0
    RoundRobinDistribution = 1
    CustomPartition = 2


class HashingScheme(_NamedInt):
    """The hash that maps a key to a partition.

    ``BoostHash`` is the default, as in Apache Pulsar's Python client; ``JavaStringHash`` is that of
    its Java client.
    """

    Murmur3_32Hash = 0
    BoostHash = 1
    JavaStringHash = 2


class BatchingType(_NamedInt):
    Default = 0
    KeyBased = 1


class RegexSubscriptionMode(_NamedInt):
    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


class KeySharedMode(_NamedInt):
    AutoSplit = 0
    Sticky = 1


class ConsumerCryptoFailureAction(_NamedInt):
    """What a consumer does with an encrypted message that it cannot decrypt."""

    FAIL = 0
    """``receive`` raises ``CryptoError`` once; the message stays unacknowledged."""
    DISCARD = 1
    """Acknowledge the message and continue with the next."""
    CONSUME = 2
    """Deliver the content as it is stored, encrypted and compressed; a batch is one message."""
