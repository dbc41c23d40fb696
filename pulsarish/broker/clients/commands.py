"""What a client says to a session and what the session answers, independent of any wire format.

The gRPC and binary protocols translate between these and bytes. Sessions do not know any wire
format.

They are structs of msgspec: a dataclass takes many times as long to define and to make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import msgspec

from pulsarish.model.errors import PulsarishError
from pulsarish.model.position import EARLIEST, Position
from pulsarish.model.schema import Schema
from pulsarish.model.subscription_type import SubscriptionType

__all__ = [
    "NO_EPOCH",
    "NO_INSTANCE",
    "AccessMode",
    "Acknowledge",
    "ActiveChanged",
    "Answer",
    "CloseConsumer",
    "CloseProducer",
    "Command",
    "ConsumerClosed",
    "EndOfTopic",
    "ExtendAck",
    "Flow",
    "GetLastMessageId",
    "GetOrCreateSchema",
    "GetSchema",
    "InitialPosition",
    "KeySharedMode",
    "KeySharedPolicy",
    "LastMessageId",
    "OpenProducer",
    "Outcome",
    "ProducerClosed",
    "ProducerOpened",
    "Receipts",
    "Redeliver",
    "SchemaFound",
    "SchemaVersion",
    "Seek",
    "SendFailed",
    "Sends",
    "Subscribe",
    "Subscribed",
    "Unsubscribe",
]


NO_EPOCH: Final = -1
"""Epoch of a topic that never had an exclusive producer, or of a producer that has none."""
NO_INSTANCE: Final = 0
"""Instance of a producer whose client tells none."""


class AccessMode(Enum):
    """How a producer shares its topic with other producers; the numbers are those of the
    protocols.
    """

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


class KeySharedMode(Enum):
    """How hashes of keys are split among the consumers of a key-shared subscription."""

    AUTO_SPLIT = 0
    STICKY = 1


class InitialPosition(Enum):
    """Where a new subscription starts."""

    LATEST = 0
    EARLIEST = 1


# Commands.


class OpenProducer(msgspec.Struct, frozen=True):
    """Open a producer. Answered by ``ProducerOpened``."""

    request_id: int
    producer_id: int
    topic: str
    name: str = ""  # empty: the broker chooses one
    epoch: int = 0  # a newer epoch of the same instance replaces an older one
    access_mode: AccessMode = AccessMode.SHARED
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    schema: Schema | None = None
    initial_subscription: str = ""  # created at the start of the topic, unless it exists
    topic_epoch: int = NO_EPOCH  # an exclusive producer that reconnects: the epoch it had
    instance: int | None = NO_INSTANCE
    """Of the client's producer object.

    ``NO_INSTANCE``: not known, the name alone tells it from others. ``None``: only its connection
    and id do.
    """
    takes_over: bool = False  # its epoch is enough to replace a producer of another instance
    was_open: bool = False  # the instance was open before: it may send again what has no receipt
    encrypts: bool = False  # all of its messages are encrypted
    is_of_broker: bool = False  # the broker itself publishes: audit lines, schedules


class CloseProducer(msgspec.Struct, frozen=True):
    """Close a producer. Answered by ``Outcome``."""

    request_id: int
    producer_id: int


class KeySharedPolicy(msgspec.Struct, frozen=True):
    """How a key-shared consumer shares keys.

    ``ranges``: for a sticky consumer, first and last hash, both included.
    """

    mode: KeySharedMode = KeySharedMode.AUTO_SPLIT
    allow_out_of_order_delivery: bool = False
    ranges: Sequence[tuple[int, int]] = ()


class Subscribe(msgspec.Struct, frozen=True):
    """Open a consumer, and create its subscription if it is new. Answered by ``Subscribed``."""

    request_id: int
    consumer_id: int
    topic: str
    subscription: str
    type: SubscriptionType = SubscriptionType.EXCLUSIVE
    name: str = ""
    priority_level: int = 0
    durable: bool = True
    start: Position | None = None  # readers: the first position to deliver
    initial_position: InitialPosition = InitialPosition.LATEST
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    read_compacted: bool = False
    schema: Schema | None = None
    key_shared: KeySharedPolicy = KeySharedPolicy()
    # stored if this creates the subscription
    subscription_properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    # a new subscription starts with messages published this long ago
    start_rollback_seconds: int = 0
    # grows when the consumer asks for a redelivery of everything; deliveries carry it back
    epoch: int = -1
    creates_topic: bool = True  # False: do not create a missing topic, for consumers of a pattern
    replicates_state: bool = False  # accepted without an effect: there is only one cluster
    replica: bool = False  # readers: whichever broker this is, it serves the topic
    # the client acknowledges a batch of which it got a part; False: a filter gives it the whole
    takes_parts: bool = True


class CloseConsumer(msgspec.Struct, frozen=True):
    """Close a consumer. Answered by ``Outcome``."""

    request_id: int
    consumer_id: int


class Unsubscribe(msgspec.Struct, frozen=True):
    """Delete the consumer's subscription. Answered by ``Outcome``."""

    request_id: int
    consumer_id: int
    force: bool = False


class Seek(msgspec.Struct, frozen=True):
    """Move the consumer's subscription to a position (inclusive), or else to a publish time."""

    request_id: int
    consumer_id: int
    position: Position | None = None
    publish_time_ms: int = 0


class GetLastMessageId(msgspec.Struct, frozen=True):
    """Ask for the last message of the topic. Answered by ``LastMessageId``."""

    request_id: int
    consumer_id: int


class Flow(msgspec.Struct, frozen=True):
    """Allow the broker to deliver more messages to a consumer. There is no answer."""

    consumer_id: int
    permits: int  # messages


class Acknowledge(msgspec.Struct):
    """Acknowledge entries or messages of batches. ``request_id`` 0: no receipt is requested.

    A command names messages of a batch in one of two ways. ``batch_indexes`` names single messages:
    it is empty, or has one number for each position, -1 for the whole entry.
    ``left_unacknowledged`` names the messages that stay unacknowledged: it is empty, or has one set
    for each position, as bits from the lowest, 0 for the whole entry.
    """

    consumer_id: int
    positions: Sequence[Position]
    request_id: int = 0
    cumulative: bool = False
    batch_indexes: Sequence[int] = ()
    left_unacknowledged: Sequence[int] = ()


class Redeliver(msgspec.Struct, frozen=True):
    """Ask for the redelivery of entries. ``request_id`` 0: no answer is requested."""

    consumer_id: int
    positions: Sequence[Position] = ()  # none: everything unacknowledged
    epoch: int = -1
    request_id: int = 0


class ExtendAck(msgspec.Struct, frozen=True):
    """Say that the consumer goes on working on entries. There is no answer."""

    consumer_id: int
    positions: Sequence[Position]


class GetSchema(msgspec.Struct, frozen=True):
    """Ask for a version of the topic's schema (8 bytes, big-endian), ``None`` for the newest.

    Any broker answers, for any topic.
    """

    request_id: int
    topic: str
    version: bytes | None = None


class GetOrCreateSchema(msgspec.Struct, frozen=True):
    """Ask for the version of a schema on the topic, which adds it if it is new.

    Any broker answers, for any topic.
    """

    request_id: int
    topic: str
    schema: Schema


Command = (
    OpenProducer
    | CloseProducer
    | Subscribe
    | CloseConsumer
    | Unsubscribe
    | Seek
    | GetLastMessageId
    | Flow
    | Acknowledge
    | Redeliver
    | ExtendAck
    | GetSchema
    | GetOrCreateSchema
)

# Answers. The order among the answers of one producer or consumer matters, and every protocol keeps
# it.


class Outcome(msgspec.Struct, frozen=True):
    """The answer to a request without an answer of its own. ``error`` ``None``: it was done."""

    request_id: int
    error: PulsarishError | None = None


class ProducerOpened(msgspec.Struct, frozen=True):
    """The answer to ``OpenProducer``."""

    request_id: int
    producer_id: int
    error: PulsarishError | None = None
    name: str = ""
    last_sequence_id: int = -1
    deduplication: bool = False
    # version of the producer's schema, for the metadata of its messages
    schema_version: bytes = b""
    topic_epoch: int = NO_EPOCH
    ready: bool = True
    """``False``: the producer waits for exclusive access.

    This answer is sent again when it is ready.
    """
    message_bytes_max: int = 0
    """The largest message that the topic accepts, once the producer is open."""


class ProducerClosed(msgspec.Struct, frozen=True):
    """The broker closed the producer.

    The client looks the topic up and sends again what has no receipt.
    """

    producer_id: int
    error: PulsarishError


Sends = list[tuple[int, int]]
"""The sequence id and highest sequence id of each SEND without an outcome, oldest first.

There is one for each opening of a producer. Each outcome of that opening removes its own pair, so a
producer that is closed or opened again never gets an outcome of another opening. ``None`` where
clients count outcomes themselves.
"""


@dataclass(slots=True)
class Receipts:
    """Receipts for the next ``count`` entries of a producer, stored from ``ledger_id``,
    ``first_entry`` on.

    Ledger -1: they had been stored before.
    """

    producer_id: int
    count: int
    ledger_id: int
    first_entry: int
    sequence_id: int  # of the last entry
    sends: Sends | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SendFailed:
    """The next entry of the producer was refused."""

    producer_id: int
    sequence_id: int  # -1 when it could not be read
    error: PulsarishError
    sends: Sends | None = field(default=None, compare=False)


class Subscribed(msgspec.Struct, frozen=True):
    """The answer to ``Subscribe``."""

    request_id: int
    consumer_id: int
    error: PulsarishError | None = None


class ConsumerClosed(msgspec.Struct, frozen=True):
    """The broker closed the consumer. ``error`` says whether the client may subscribe again."""

    consumer_id: int
    error: PulsarishError


class ActiveChanged(msgspec.Struct, frozen=True):
    """A failover consumer became active or inactive."""

    consumer_id: int
    active: bool


class LastMessageId(msgspec.Struct, frozen=True):
    """The last message of a topic. Entry -1: there is no message."""

    request_id: int
    error: PulsarishError | None = None
    last: Position = EARLIEST
    batch_index: int = -1  # of the last message in the entry; -1 when it is not a batch
    mark_delete: Position = EARLIEST
    partition: int = -1  # of the topic; -1 when it is none


class EndOfTopic(msgspec.Struct, frozen=True):
    """A terminated topic has no more messages for the consumer."""

    consumer_id: int


class SchemaFound(msgspec.Struct, frozen=True):
    """A schema.

    The error is ``TopicNotFound`` or ``SchemaNotFound`` when the topic, or a schema of that
    version, does not exist.
    """

    request_id: int
    error: PulsarishError | None = None
    schema: Schema | None = None
    version: bytes = b""


class SchemaVersion(msgspec.Struct, frozen=True):
    """The version of a schema, in answer to ``GetOrCreateSchema``."""

    request_id: int
    error: PulsarishError | None = None
    version: bytes = b""


Answer = (
    Outcome
    | ProducerOpened
    | ProducerClosed
    | Receipts
    | SendFailed
    | Subscribed
    | ConsumerClosed
    | ActiveChanged
    | LastMessageId
    | EndOfTopic
    | SchemaFound
    | SchemaVersion
)
