"""A message as a consumer gets it, and the taking apart of an entry into messages.

An entry is checked and kept as it came; its messages are cut out when the program asks for them, and their metadata are read only when
an accessor needs them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from pulsarish.client.enums import KeyForm
from pulsarish.client.message_id import MessageId, known_id
from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.client.schemas.schema import Decode, KeyedDecode
from pulsarish.model.errors import ChecksumError, InvalidArgument
from pulsarish.wire._pb.message_pb2 import MessageMetadata, SingleMessageMetadata
from pulsarish.wire.entry import as_bytes, as_text, split_entry
from pulsarish.wire.payload import decompress, split_batch

__all__ = ["UNPACKED_BYTES_MAX", "Entry", "Message", "batch_places", "open_entry"]

UNPACKED_BYTES_MAX: Final = 1 << 30
"""An entry that announces more is left unread: a few MB on the wire may announce 4 GB."""


class Entry:
    """A delivered entry: where it lies, how often it was delivered before, and its verified bytes.

    ``ack_set``: which messages of a batch are still to be delivered (bit i of byte i / 8); ``None``: all. ``chunks``: where the entries
    lie of which this one was put together, the first chunk's first; it has the place of the last chunk.
    """

    __slots__ = ("ack_set", "chunks", "data", "entry_id", "ledger_id", "redelivery_count")

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

    def wants(self, index: int) -> bool:
        """Whether this message of the batch is to be delivered."""
        bits = self.ack_set
        return bits is None or (index >> 3 < len(bits) and bits[index >> 3] >> (index & 7) & 1 == 1)


DecodeOf = Callable[[MessageMetadata], Decode]
"""How messages of an entry with these metadata are read."""


class _Opened:
    """What all messages of one entry share."""

    __slots__ = (
        "chunks",
        "decode",
        "entry_id",
        "ledger_id",
        "messages_count",
        "metadata",
        "partition",
        "payload",
        "redelivery_count",
        "topic",
    )

    def __init__(
        self, entry: Entry, metadata: MessageMetadata, payload: memoryview, topic: str, partition: int, decode_of: DecodeOf
    ) -> None:
        self.ledger_id = entry.ledger_id
        self.entry_id = entry.entry_id
        self.redelivery_count = entry.redelivery_count
        self.topic = topic
        self.partition = partition
        self.chunks = entry.chunks
        self.metadata = metadata
        self.decode = decode_of(metadata)
        if metadata.encryption_keys:
            # The consumer takes encrypted entries as they are: compressed, and a batch as one message.
            self.payload = bytes(payload)
            self.messages_count = 0
            return
        self.payload = decompress(self.metadata.compression, bytes(payload), self.metadata.uncompressed_size, bytes_max=UNPACKED_BYTES_MAX)
        self.messages_count = self.metadata.num_messages_in_batch if self.metadata.HasField("num_messages_in_batch") else 0


class Message:
    """A received message. All accessors are methods, as in Apache Pulsar's Python client."""

    __slots__ = ("_end", "_entry", "_head", "_index", "_start")

    def __init__(self, entry: _Opened, index: int, head: int, start: int, end: int) -> None:
        self._entry = entry
        self._index = index  # in the batch; -1 when the entry is no batch
        self._head = head  # where the single metadata begin in the batch; they end where the payload starts
        self._start = start
        self._end = end

    def data(self) -> bytes:
        """The payload."""
        return self._entry.payload[self._start : self._end]

    def size(self) -> int:
        """The size of the payload in bytes."""
        return self._end - self._start

    def value(self) -> Any:
        """The payload as the schema reads it. Raises ``InvalidArgument`` when it cannot."""
        decode = self._entry.decode
        return self.decoder()(self.data()) if type(decode) is KeyedDecode else decode(self.data())

    def decoder(self) -> Decode:
        """How the schema reads the payload of this message."""
        decode = self._entry.decode
        if not isinstance(decode, KeyedDecode):
            return decode
        metadata, key, both = self._metadata(), self._key_bytes(), decode.both
        return lambda data: both(key, None if metadata.null_value else data)

    def message_id(self) -> MessageId:
        entry = self._entry
        return known_id(entry.partition, entry.ledger_id, entry.entry_id, self._index, entry.messages_count, entry.topic, entry.chunks)

    def properties(self) -> dict[str, str]:
        return {as_text(pair.key): as_text(pair.value) for pair in self._metadata().properties}

    def partition_key(self) -> str:
        """The key by which the message was routed; empty when it has none."""
        return as_text(self._metadata().partition_key)

    def has_partition_key(self) -> bool:
        return self._metadata().HasField("partition_key")

    def _key_bytes(self) -> bytes | None:
        """The key as its producer had it. Raises ``InvalidArgument`` for what is no Base64 and says that it is."""
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
                f"the message's key is not the Base64 that it should be ({error}): read it with partition_key()"
            ) from None

    def copied(self, properties: Mapping[str, str]) -> Extras:
        """What a copy of the message carries beside its payload, with these properties more."""
        metadata = self._metadata()
        form = KeyForm.BASE64 if metadata.partition_key_b64_encoded else KeyForm.NULL if metadata.null_partition_key else KeyForm.TEXT
        return Extras(
            properties={**self.properties(), **properties},
            partition_key=self.partition_key() if self.has_partition_key() else None,
            event_timestamp_ms=self.event_timestamp(),
            is_null=metadata.null_value,
            key_form=form,
        )

    def ordering_key(self) -> str:
        return as_text(self._metadata().ordering_key)

    def publish_timestamp(self) -> int:
        """When the producer sent it, in ms since the epoch."""
        return self._entry.metadata.publish_time

    def event_timestamp(self) -> int:
        """The time that the program gave it, in ms since the epoch; 0 when it gave none."""
        return self._metadata().event_time

    def topic_name(self) -> str:
        """The topic; for a partitioned topic the partition."""
        return self._entry.topic

    def redelivery_count(self) -> int:
        """How often it was delivered before."""
        return self._entry.redelivery_count

    def schema_version(self) -> bytes:
        """Of the schema that it was written with, in 8 bytes; empty without one."""
        return self._entry.metadata.schema_version

    def producer_name(self) -> str:
        return self._entry.metadata.producer_name

    def sequence_id(self) -> int:
        """The number that its producer gave it."""
        metadata = self._metadata()
        if self._index < 0 or metadata.HasField("sequence_id"):
            return metadata.sequence_id
        return self._entry.metadata.sequence_id + self._index

    def _metadata(self) -> MessageMetadata | SingleMessageMetadata:
        """The metadata of this one message: a batch's own, otherwise the entry's."""
        if self._index < 0:
            return self._entry.metadata
        return SingleMessageMetadata.FromString(self._entry.payload[self._head : self._start])

    def __repr__(self) -> str:
        return f"Message({self.message_id()}, {self._end - self._start} bytes)"


def open_entry(entry: Entry, topic: str, partition: int, decode_of: DecodeOf) -> tuple[MessageMetadata, list[Message]]:
    """The metadata and the messages of a verified entry; no message of a chunk that was not put together with the others.

    Raises ``ChecksumError`` when it does not hold what it says.
    """
    metadata, payload = split_entry(entry.data)
    if metadata.num_chunks_from_msg > 1 and not entry.chunks:
        return metadata, []
    opened = _Opened(entry, metadata, payload, topic, partition, decode_of)
    if opened.messages_count == 0:
        return opened.metadata, [Message(opened, -1, 0, 0, len(opened.payload))]
    try:
        messages = split_batch(opened.payload, opened.messages_count, partial(Message, opened))
    except ChecksumError as error:
        raise ChecksumError(f"the entry at {entry.ledger_id}:{entry.entry_id} cannot be read: {error}") from None
    if entry.ack_set is not None:
        messages = [message for message in messages if entry.wants(message._index)]
    return opened.metadata, messages


def batch_places(messages: list[Message]) -> tuple[int, list[int] | None]:
    """The size of the batch that the messages are of (0: none), and their indexes when they are not all of it."""
    size = messages[0]._entry.messages_count
    return size, None if len(messages) >= size else [message._index for message in messages]
