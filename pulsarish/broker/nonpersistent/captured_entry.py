"""An entry of a non-persistent topic in the form in which a persistent topic stores it."""

from __future__ import annotations

import struct
from typing import Final

from google.protobuf.message import DecodeError

from pulsarish.model.errors import ChecksumError, OperationNotSupported
from pulsarish.model.topic_name import TopicName
from pulsarish.wire._pb.message_pb2 import MessageMetadata, SingleMessageMetadata
from pulsarish.wire.entry import as_text, encode_entry, split_entry
from pulsarish.wire.payload import compress, decompress, split_batch

__all__ = ["CAPTURED_FROM", "captured_entry", "captured_producer"]

CAPTURED_FROM: Final = "pulsarish-captured-from"
"""The property of a captured message with the name of its topic."""
_BATCH_MESSAGES_MAX: Final = 5_000
"""The broker does nothing else while it unpacks a batch."""
_SIZE: Final = struct.Struct(">I")


def captured_producer(source: TopicName, name: str) -> str:
    """Return the name that signs the captured messages of a producer.

    Sequence ids count for a producer on one topic. So each topic gives it another name.
    """
    return f"capture {source.full} {name}"


def captured_entry(entry: bytes, source: TopicName, *, batch_bytes_max: int) -> tuple[str, bytes]:
    """Return the name of the producer that signs the stored entry, and that entry.

    It has the same messages, each with the property ``CAPTURED_FROM``. Key, event time, sequence
    ids, delivery time and properties stay. The version of the schema is left out, since it counts
    the schemas of the source. A batch that cannot be read here (encrypted, damaged), that has very
    many messages, or that would be above ``batch_bytes_max`` unpacked stays as it is: only its
    producer's name says where it comes from.
    """
    metadata, payload = split_entry(entry)
    metadata.producer_name = captured_producer(source, as_text(metadata.producer_name))
    for field in ("schema_version", "txnid_least_bits", "txnid_most_bits"):
        metadata.ClearField(field)
    content = bytes(payload)
    if not metadata.HasField("num_messages_in_batch"):
        _name_source(metadata, source)
    elif not metadata.encryption_keys and metadata.num_messages_in_batch <= _BATCH_MESSAGES_MAX:
        try:
            content = _batch(metadata, content, source, batch_bytes_max)
        except (ChecksumError, OperationNotSupported):
            content = bytes(payload)
    return metadata.producer_name, encode_entry(metadata, content)


def _batch(metadata: MessageMetadata, payload: bytes, source: TopicName, bytes_max: int) -> bytes:
    """Return a batch whose messages name their topic, and note its size in ``metadata``.

    Raises ``ChecksumError``, ``OperationNotSupported``.
    """
    kind = metadata.compression
    plain = decompress(kind, payload, metadata.uncompressed_size, bytes_max=bytes_max)
    places = split_batch(
        plain, metadata.num_messages_in_batch, lambda _, head, start, end: (head, start, end)
    )
    parts: list[bytes] = []
    for head, start, end in places:
        try:
            single = SingleMessageMetadata.FromString(plain[head:start])
        except DecodeError as error:
            raise ChecksumError(f"a batch is damaged: {error}") from None
        _name_source(single, source)
        encoded = single.SerializePartialToString()
        parts += (_SIZE.pack(len(encoded)), encoded, plain[start:end])
    named = b"".join(parts)
    if len(named) > bytes_max:
        raise OperationNotSupported(f"a batch would have {len(named)} bytes, above {bytes_max}")
    packed = compress(kind, named)
    metadata.num_messages_in_batch = len(places)
    metadata.uncompressed_size = len(named)
    return packed


def _name_source(metadata: MessageMetadata | SingleMessageMetadata, source: TopicName) -> None:
    for each in metadata.properties:
        if each.key == CAPTURED_FROM:
            each.value = source.full
            return
    metadata.properties.add(key=CAPTURED_FROM, value=source.full)
