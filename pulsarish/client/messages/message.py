"""A message as a consumer receives it, and how an entry is split into messages.

The client verifies an entry and keeps its bytes. It extracts a message when the program asks for
it, and decodes a message's metadata when an accessor needs them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final, Generic

from pulsarish.client.enums import KeyForm
from pulsarish.client.message_id import MessageId, known_id
from pulsarish.client.messages.encryption_context import EncryptionContext
from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.client.messages.message_block import Inbox, MessageBlock
from pulsarish.client.schemas.schema import Decode, KeyedDecode
from pulsarish.client.type_variables import Value_co
from pulsarish.model.errors import ChecksumError, CryptoError, InvalidArgument
from pulsarish.wire._pb.message_pb2 import MessageMetadata, SingleMessageMetadata
from pulsarish.wire.entry import (
    ENTRY_HEAD_SIZE,
    as_bytes,
    as_text,
    decode_metadata,
    encoded_metadata,
    is_plain,
)
from pulsarish.wire.payload import decompress, split_batch

__all__ = [
    "UNPACKED_BYTES_MAX",
    "Entry",
    "Message",
    "OpenedEntry",
    "batch_places",
    "copy_extras",
    "entry_runs",
    "open_entry",
]

UNPACKED_BYTES_MAX: Final = 1 << 30
"""Uncompressed size above which the client does not unpack an entry: a few MB on the wire may
announce 4 GB.
"""


class Entry:
    """A delivered entry: its position, its redelivery count and its verified bytes.

    ``ack_set``: the messages of a batch that are still to be delivered (bit i of byte i / 8);
    ``None``: all. ``chunks``: the positions of the chunks that this entry was assembled from, first
    chunk first. An assembled entry has the position of its last chunk.
    """

    __slots__ = (
        "ack_set",
        "chunks",
        "data",
        "entry_id",
        "is_sealed",
        "ledger_id",
        "redelivery_count",
    )

    def __init__(
        self,
        ledger_id: int,
        entry_id: int,
        redelivery_count: int,
        data: bytes | memoryview,
        ack_set: bytes | None = None,
        chunks: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.redelivery_count = redelivery_count
        self.data = data
        self.ack_set = ack_set
        self.chunks = chunks
        self.is_sealed: bool | None = None
        """Of an encrypted entry that was looked at: whether its payload is still encrypted."""

    def wants(self, index: int) -> bool:
        """Whether this message of the batch is to be delivered."""
        bits = self.ack_set
        return bits is None or (index >> 3 < len(bits) and bits[index >> 3] >> (index & 7) & 1 == 1)


Decrypt = Callable[[Entry, MessageMetadata], None]
"""Decrypts an encrypted entry in place, and sets ``is_sealed``. Raises ``CryptoError``."""

DecodeOf = Callable[[MessageMetadata | None], Decode]
"""Returns how to decode messages of an entry with these metadata; ``None``: they say nothing about
that.
"""


class OpenedEntry:
    """What all messages of one entry share."""

    __slots__ = (
        "_metadata",
        "chunks",
        "decode",
        "entry_id",
        "inbox",
        "ledger_id",
        "messages_count",
        "partition",
        "payload",
        "redelivery_count",
        "topic",
    )

    def __init__(
        self,
        entry: Entry,
        metadata: MessageMetadata | bytes,
        payload: bytes,
        messages_count: int,
        topic: str,
        partition: int,
        decode: Decode,
        inbox: Inbox | None = None,
    ) -> None:
        """``metadata``: encoded ones are decoded when a message is asked for them.

        ``messages_count``: 0 when the entry is no batch. ``inbox``: ``None`` for entries that came
        to no consumer.
        """
        self.ledger_id = entry.ledger_id
        self.entry_id = entry.entry_id
        self.redelivery_count = entry.redelivery_count
        self.topic = topic
        self.partition = partition
        self.chunks = entry.chunks
        self.payload = payload
        self.messages_count = messages_count
        self.decode = decode
        self.inbox = inbox
        self._metadata = metadata

    @property
    def metadata(self) -> MessageMetadata:
        metadata = self._metadata
        if isinstance(metadata, bytes):
            # Two threads may both do this, to the same effect.
            metadata = self._metadata = decode_metadata(metadata)
        return metadata


class Message(MessageBlock, Generic[Value_co]):
    """A received message. All accessors are methods, as in Apache Pulsar's Python client.

    ``with message:``, or ``async with`` for one of an asyncio client, acknowledges it at the end of
    the block. When the block raises, the message is negatively acknowledged.
    """

    __slots__ = ("_end", "_entry", "_head", "_index", "_start")

    _entry: OpenedEntry

    def __init__(self, entry: OpenedEntry, index: int, head: int, start: int, end: int) -> None:
        self._entry = entry
        self._index = index  # in the batch; -1 when the entry is not a batch
        # where the single metadata begin in the batch; the payload starts after them
        self._head = head
        self._start = start
        self._end = end

    def data(self) -> bytes:
        """The payload."""
        return self._entry.payload[self._start : self._end]

    def size(self) -> int:
        """The size of the payload in bytes."""
        return self._end - self._start

    def value(self) -> Value_co:
        """The payload, decoded by the schema; ``None`` for a null value.

        A null value whose key is separated is a pair with the value ``None``.

        Raises ``InvalidArgument`` when the schema cannot decode it, and ``CryptoError`` when it is
        still encrypted.
        """
        decode = self._entry.decode
        if type(decode) is KeyedDecode:
            decode = self._decoder()
        # Only an empty payload may be a null value, so the metadata are decoded for no other.
        elif self._start == self._end and self.has_null_value():
            decode = _nothing
        value: Value_co = decode(self.data())
        return value

    def encryption_context(self) -> EncryptionContext | None:
        """How the message was encrypted; ``None`` if it was not."""
        metadata = self._entry.metadata
        if not metadata.encryption_keys:
            return None
        failed = self._entry.decode is decode_sealed
        return EncryptionContext(metadata, is_decryption_failed=failed)

    def has_null_value(self) -> bool:
        """Whether the producer sent ``None``, which removes the message's key from a compacted
        topic and from table views.
        """
        return self._metadata().null_value

    def _decoder(self) -> Decode:
        """How the schema decodes the payload of this message."""
        decode = self._entry.decode
        if not isinstance(decode, KeyedDecode):
            return decode
        metadata, key, both = self._metadata(), self._key_bytes(), decode.both
        return lambda data: both(key, None if metadata.null_value else data)

    def message_id(self) -> MessageId:
        entry = self._entry
        return known_id(
            entry.partition,
            entry.ledger_id,
            entry.entry_id,
            self._index,
            entry.messages_count,
            entry.topic,
            entry.chunks,
        )

    def properties(self) -> dict[str, str]:
        return {as_text(pair.key): as_text(pair.value) for pair in self._metadata().properties}

    def partition_key(self) -> str:
        """The key that routed the message; empty when it has none."""
        return as_text(self._metadata().partition_key)

    def has_partition_key(self) -> bool:
        return self._metadata().HasField("partition_key")

    def _key_bytes(self) -> bytes | None:
        """Return the key as its producer set it.

        Raises ``InvalidArgument`` when it is marked as Base64 and is not Base64.
        """
        metadata = self._metadata()
        if metadata.null_partition_key or not metadata.HasField("partition_key"):
            return None
        key = as_bytes(metadata.partition_key)
        if not metadata.partition_key_b64_encoded:
            return key
        try:
            return base64.b64decode(key, validate=True)
        except binascii.Error as error:
            raise InvalidArgument(
                f"the message's key is not the Base64 that it should be ({error}): read it with "
                "partition_key()"
            ) from None

    def ordering_key(self) -> str:
        return as_text(self._metadata().ordering_key)

    def publish_timestamp(self) -> int:
        """When the producer sent the message, in ms since the epoch."""
        return self._entry.metadata.publish_time

    def event_timestamp(self) -> int:
        """The event time that the program set, in ms since the epoch; 0 when it set none."""
        return self._metadata().event_time

    def topic_name(self) -> str:
        """The topic; for a partitioned topic, the partition."""
        return self._entry.topic

    def redelivery_count(self) -> int:
        """How many times the message was delivered before."""
        return self._entry.redelivery_count

    def schema_version(self) -> bytes:
        """Version of the schema that the message was written with, in 8 bytes; empty without a
        schema.
        """
        return self._entry.metadata.schema_version

    def producer_name(self) -> str:
        return self._entry.metadata.producer_name

    def sequence_id(self) -> int:
        """The sequence id that the producer gave the message."""
        metadata = self._metadata()
        if self._index < 0 or metadata.HasField("sequence_id"):
            return metadata.sequence_id
        return self._entry.metadata.sequence_id + self._index

    def _metadata(self) -> MessageMetadata | SingleMessageMetadata:
        """The metadata of this one message: its own in a batch, otherwise the entry's."""
        if self._index < 0:
            return self._entry.metadata
        return SingleMessageMetadata.FromString(self._entry.payload[self._head : self._start])

    def __repr__(self) -> str:
        return f"Message({self.message_id()}, {self._end - self._start} bytes)"


def _nothing(_data: bytes) -> None:
    """Decode a null value."""


def decode_sealed(_data: bytes) -> object:
    """Decode the payload of a message that is still encrypted: always raises ``CryptoError``."""
    raise CryptoError(
        "the message is encrypted and was not decrypted: read it with data() and "
        "encryption_context(), or give the consumer a crypto_key_reader with the private key"
    )


def copy_extras(
    message: Message, properties: Mapping[str, str], *, deliver_at_ms: int = 0
) -> Extras:
    """Return the extras for a copy of a message, with these properties instead of its own."""
    metadata = message._metadata()
    form = (
        KeyForm.BASE64
        if metadata.partition_key_b64_encoded
        else KeyForm.NULL
        if metadata.null_partition_key
        else KeyForm.TEXT
    )
    return Extras(
        properties=properties,
        partition_key=message.partition_key() if message.has_partition_key() else None,
        ordering_key=message.ordering_key() if metadata.HasField("ordering_key") else None,
        event_timestamp_ms=message.event_timestamp(),
        deliver_at_ms=deliver_at_ms,
        is_null=metadata.null_value,
        key_form=form,
    )


def open_entry(
    entry: Entry,
    topic: str,
    partition: int,
    decode_of: DecodeOf,
    decrypt: Decrypt | None = None,
    inbox: Inbox | None = None,
) -> tuple[MessageMetadata | None, list[Message]]:
    """Return the metadata and the messages of a verified entry.

    There are no metadata for a single message that has only what all have. A chunk that was not
    assembled has no messages. An entry that stays encrypted is one message.

    ``decrypt``: ``None`` leaves entries encrypted. ``inbox``: as for ``OpenedEntry``.

    Raises ``ChecksumError`` when the entry's content does not match its metadata, and the errors of
    ``decrypt``.
    """
    encoded = encoded_metadata(entry.data)
    body = entry.data[ENTRY_HEAD_SIZE + len(encoded) :]
    if is_plain(encoded):
        # Most messages that are not in batches.
        payload = bytes(body)
        opened = OpenedEntry(entry, encoded, payload, 0, topic, partition, decode_of(None), inbox)
        return None, [Message(opened, -1, 0, 0, len(payload))]
    metadata = decode_metadata(encoded)
    is_sealed = False
    if metadata.encryption_keys:
        if decrypt is not None and entry.is_sealed is None:
            decrypt(entry, metadata)
            body = entry.data[ENTRY_HEAD_SIZE + len(encoded) :]
        is_sealed = entry.is_sealed is not False
    if metadata.num_chunks_from_msg > 1 and not entry.chunks:
        return metadata, []
    decode = decode_sealed if is_sealed else decode_of(metadata)
    payload, count = bytes(body), 0
    # What stays encrypted is handed out as it is: compressed, and a batch as one message.
    if not is_sealed:
        payload = decompress(
            metadata.compression, payload, metadata.uncompressed_size, bytes_max=UNPACKED_BYTES_MAX
        )
        if metadata.HasField("num_messages_in_batch"):
            count = metadata.num_messages_in_batch
    opened = OpenedEntry(entry, metadata, payload, count, topic, partition, decode, inbox)
    if count == 0:
        return metadata, [Message(opened, -1, 0, 0, len(payload))]
    try:
        messages = split_batch(payload, count, partial(Message, opened))
    except ChecksumError as error:
        raise ChecksumError(
            f"the entry at {entry.ledger_id}:{entry.entry_id} cannot be read: {error}"
        ) from None
    if entry.ack_set is not None:
        messages = [message for message in messages if entry.wants(message._index)]
    return metadata, messages


def batch_places(messages: list[Message]) -> tuple[int, list[int] | None]:
    """Return the size of the messages' batch (0: not a batch), and their indexes when they are not
    the whole batch.
    """
    size = messages[0]._entry.messages_count
    return size, None if len(messages) >= size else [message._index for message in messages]


_entry_of: Final = attrgetter("_entry")
_index_of: Final = attrgetter("_index")


def entry_runs(messages: Iterable[Message]) -> Iterator[tuple[OpenedEntry, list[int]]]:
    """Yield the entry and the indexes in its batch (-1: no batch) of messages that follow each
    other in one entry.
    """
    for entry, run in groupby(messages, _entry_of):
        yield entry, list(map(_index_of, run))
