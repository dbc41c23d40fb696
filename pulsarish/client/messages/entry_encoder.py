"""Encode entries by hand, field by field.

The bytes and their order are those of the generated classes.

Every message takes this path. A generated object for each message would cost more than the rest of
the send. A test compares the bytes with the generated classes. Layouts: ``wire/entry.py`` (an
entry) and ``proto/pulsarish/message.proto`` (its metadata).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from google_crc32c import extend

from pulsarish.client.enums import KeyForm
from pulsarish.wire.entry import EXPIRES_PROPERTY, MAGIC, PRIORITY_PROPERTY
from pulsarish.wire.varint import ONE_BYTE, encode_varint

__all__ = [
    "BATCHED_BYTES_MAX",
    "NO_EXTRAS",
    "Extras",
    "chunk_fields",
    "encode_batch",
    "encode_head",
    "encode_plain_head",
    "encryption_keys_field",
    "encryption_param_field",
    "producer_prefix",
    "publish_time_field",
    "schema_version_field",
]

_SIZE: Final = struct.Struct(">I")
_MAGIC_CRC: Final = struct.Struct(">HI")
# Field 8 of a single message's metadata with the low seven bits of the sequence id: when more bits
# follow, and when none follow.
_SEQUENCE_MORE: Final = tuple(bytes((0x40, value | 0x80)) for value in range(128))
_SEQUENCE_LAST: Final = tuple(bytes((0x40, value)) for value in range(128))
_HEADS_MAX: Final = 4_096

BATCHED_BYTES_MAX: Final = 24
"""The most bytes that a message without extras adds to a batch, besides its payload: its size, and
the size and the sequence id as fields.
"""
_FIELDS_BYTES_MAX: Final = 16  # tags and sizes of a property or key, or the event time


@dataclass(frozen=True, slots=True)
class Extras:
    """Properties, keys and other fields of a message besides its payload.

    Most messages have none, and then no such object exists.
    """

    properties: Mapping[str, str] | None = None
    partition_key: str | None = None
    ordering_key: str | None = None
    event_timestamp_ms: int = 0
    deliver_at_ms: int = 0
    is_null: bool = False
    """The message has no content.

    That differs from empty content; the payload is empty in both cases.
    """
    key_form: KeyForm = KeyForm.TEXT
    """Form of ``partition_key``, which is ASCII with ``BASE64`` and ``None`` with ``NULL``."""

    @property
    def is_sent_alone(self) -> bool:
        """Whether the message must not be in a batch, because the broker reads its extras."""
        return self.deliver_at_ms != 0 or (
            self.properties is not None
            and (EXPIRES_PROPERTY in self.properties or PRIORITY_PROPERTY in self.properties)
        )

    def read_by_brokers(self) -> Extras:
        """Return what brokers read of these extras, for the metadata of a batch of one message."""
        own = self.properties or {}
        read = {name: own[name] for name in (EXPIRES_PROPERTY, PRIORITY_PROPERTY) if name in own}
        return Extras(
            properties=read or None,
            deliver_at_ms=self.deliver_at_ms,
        )

    def size_bytes_max(self) -> int:
        """Upper bound of the bytes that these extras add to a message of a batch."""
        size = _FIELDS_BYTES_MAX
        if not self.properties and self.ordering_key is None:  # the case of nearly all messages
            return (
                size
                if self.partition_key is None
                else size + len(self.partition_key.encode()) + _FIELDS_BYTES_MAX
            )
        for name, value in (self.properties or {}).items():
            size += len(name.encode()) + len(value.encode()) + _FIELDS_BYTES_MAX
        for text in (self.partition_key, self.ordering_key):
            if text is not None:
                size += len(text.encode()) + _FIELDS_BYTES_MAX
        return size


NO_EXTRAS: Final = Extras()


def _field_bytes(tag: bytes, value: bytes) -> bytes:
    return tag + encode_varint(len(value)) + value


def _properties(tag: bytes, properties: Mapping[str, str]) -> bytes:
    out = []
    for key, value in properties.items():
        pair = _field_bytes(b"\x0a", key.encode()) + _field_bytes(b"\x12", value.encode())
        out.append(_field_bytes(tag, pair))
    return b"".join(out)


def _single_head(payload_size: int, sequence_id: int, extras: Extras) -> bytes:
    """Return the size and the ``SingleMessageMetadata`` that precede a payload in a batch."""
    parts = []
    if extras.properties:
        parts.append(_properties(b"\x0a", extras.properties))
    if extras.partition_key is not None:
        parts.append(_field_bytes(b"\x12", extras.partition_key.encode()))
    parts.append(b"\x18" + encode_varint(payload_size))
    if extras.event_timestamp_ms:
        parts.append(b"\x28" + encode_varint(extras.event_timestamp_ms))
    if extras.key_form is KeyForm.BASE64:
        parts.append(b"\x30\x01")
    if extras.ordering_key is not None:
        parts.append(_field_bytes(b"\x3a", extras.ordering_key.encode()))
    parts.append(b"\x40" + encode_varint(sequence_id))
    if extras.is_null:
        parts.append(b"\x48\x01")
    if extras.key_form is KeyForm.NULL:
        parts.append(b"\x50\x01")
    metadata = b"".join(parts)
    return _SIZE.pack(len(metadata)) + metadata


# Everything before the sequence id, by the size of the encoded sequence id, then by payload size.
# Bounded, since a program may send messages of any size.
_plain_heads: dict[int, dict[int, bytes]] = {}


def _plain_head(heads: dict[int, bytes], payload_size: int, sequence_size: int) -> bytes:
    size_field = b"\x18" + encode_varint(payload_size)
    head = _SIZE.pack(len(size_field) + sequence_size) + size_field
    if len(heads) < _HEADS_MAX:
        heads[payload_size] = head
    return head


def _plain_parts(payloads: Sequence[bytes], first_sequence_id: int) -> list[bytes]:
    """Return heads and payloads of messages without extras whose sequence ids are consecutive: the
    common case, kept short.
    """
    parts: list[bytes] = []
    append = parts.append
    sequence_id = first_sequence_id
    high = -1
    rest, sequence_size, tails, heads = b"", 0, _SEQUENCE_LAST, {}
    for payload in payloads:
        if sequence_id >> 7 != high:
            high = sequence_id >> 7
            rest = encode_varint(high) if high else b""
            tails = _SEQUENCE_MORE if high else _SEQUENCE_LAST
            sequence_size = 2 + len(rest)
            heads = _plain_heads.setdefault(sequence_size, {})
        size = len(payload)
        append(
            (heads.get(size) or _plain_head(heads, size, sequence_size))
            + tails[sequence_id & 0x7F]
            + rest
        )
        append(payload)
        sequence_id += 1
    return parts


# Everything before the sequence id, by key, payload size and size of the sequence id after its
# first byte. Bounded like the table above.
_keyed_heads: dict[tuple[str | None, int, int], bytes] = {}


def _keyed_head(of_head: tuple[str | None, int, int]) -> bytes:
    key, payload_size, rest_size = of_head
    fields = b"\x18" + encode_varint(payload_size)
    if key is not None:
        fields = _field_bytes(b"\x12", key.encode()) + fields
    head = _SIZE.pack(len(fields) + 2 + rest_size) + fields
    if len(_keyed_heads) < _HEADS_MAX:
        _keyed_heads[of_head] = head
    return head


def encode_batch(
    payloads: Sequence[bytes], sequence_ids: Sequence[int], extras: Mapping[int, Extras]
) -> bytes:
    """Return the payload of a batch entry, before compression.

    Args:
        sequence_ids: one for each payload.
        extras: by index of the payload.
    """
    if not extras and isinstance(sequence_ids, range):
        return b"".join(_plain_parts(payloads, sequence_ids.start))
    parts: list[bytes] = []
    append = parts.append
    keyed = _keyed_heads
    high = -1
    rest, tails = b"", _SEQUENCE_LAST
    for index, payload in enumerate(payloads):
        beside = extras.get(index, NO_EXTRAS)
        sequence_id = sequence_ids[index]
        if (
            beside.properties
            or beside.event_timestamp_ms
            or beside.ordering_key is not None
            or beside.is_null
            or beside.key_form
        ):
            append(_single_head(len(payload), sequence_id, beside))
        else:
            # Keys repeat, and messages have few different sizes: the bytes before the sequence id
            # are made once.
            if sequence_id >> 7 != high:
                high = sequence_id >> 7
                rest, tails = (
                    (encode_varint(high), _SEQUENCE_MORE) if high else (b"", _SEQUENCE_LAST)
                )
            of_head = (beside.partition_key, len(payload), len(rest))
            append((keyed.get(of_head) or _keyed_head(of_head)) + tails[sequence_id & 0x7F] + rest)
        append(payload)
    return b"".join(parts)


def producer_prefix(producer_name: str) -> bytes:
    """Return the first field of every ``MessageMetadata`` of a producer."""
    return _field_bytes(b"\x0a", producer_name.encode())


def encode_head(
    prefix: bytes,
    *,
    sequence_id: int,
    publish_time_ms: int,
    payload: bytes,
    compression: int = 0,
    uncompressed_size: int = 0,
    messages_count: int = 0,
    highest_sequence_id: int = 0,
    extras: Extras = NO_EXTRAS,
    schema_field: bytes = b"",
    chunk_field: bytes = b"",
) -> bytes:
    """Return everything of an entry before its payload: magic, CRC32C, size and
    ``MessageMetadata``.

    Args:
        uncompressed_size: written when there is a compression.
        messages_count: 0 for an entry that is not a batch.
        highest_sequence_id: written for a batch only.
        schema_field: result of ``schema_version_field``; for an encrypted payload, after those of
            ``encryption_keys_field`` and ``encryption_param_field``.
        chunk_field: result of ``chunk_fields``.
    """
    parts = [prefix, b"\x10", encode_varint(sequence_id), b"\x18", encode_varint(publish_time_ms)]
    if extras is not NO_EXTRAS:
        if extras.properties:
            parts.append(_properties(b"\x22", extras.properties))
        if extras.partition_key is not None:
            parts.append(_field_bytes(b"\x32", extras.partition_key.encode()))
    if compression:
        parts += (b"\x40", ONE_BYTE[compression], b"\x48", encode_varint(uncompressed_size))
    elif chunk_field:
        # Apache Pulsar's client in Go assembles only chunks that carry their size.
        parts += (b"\x48", encode_varint(uncompressed_size))
    if messages_count:
        parts += (b"\x58", encode_varint(messages_count))
    if extras is not NO_EXTRAS:
        _late_fields(parts, extras, schema_field)
    elif schema_field:
        parts.append(schema_field)
    if messages_count:
        parts += (b"\xc0\x01", encode_varint(highest_sequence_id))
    if extras.is_null:
        parts.append(b"\xc8\x01\x01")
    if chunk_field:
        parts.append(chunk_field)
    if extras.key_form is KeyForm.NULL:
        parts.append(b"\xf0\x01\x01")
    metadata = b"".join(parts)
    sized = _SIZE.pack(len(metadata)) + metadata
    return _MAGIC_CRC.pack(MAGIC, extend(extend(0, sized), payload)) + sized


def encode_plain_head(prefix: bytes, sequence_id: int, time_field: bytes, payload: bytes) -> bytes:
    """Return the head of the common entry: not a batch, without further fields.

    Args:
        time_field: result of ``publish_time_field``, followed by ``schema_version_field`` where
            there is a schema.
    """
    metadata = prefix + b"\x10" + encode_varint(sequence_id) + time_field
    sized = _SIZE.pack(len(metadata)) + metadata
    return _MAGIC_CRC.pack(MAGIC, extend(extend(0, sized), payload)) + sized


def publish_time_field(publish_time_ms: int) -> bytes:
    return b"\x18" + encode_varint(publish_time_ms)


def chunk_fields(uuid: str, chunk_id: int, chunks_count: int, total_size: int) -> bytes:
    """Return the fields that mark an entry as a chunk.

    ``total_size`` is the size of all chunks together.
    """
    numbers = (
        b"\xd8\x01",
        encode_varint(chunks_count),
        b"\xe0\x01",
        encode_varint(total_size),
        b"\xe8\x01",
        encode_varint(chunk_id),
    )
    return b"".join((_field_bytes(b"\xd2\x01", uuid.encode()), *numbers))


def schema_version_field(version: bytes) -> bytes:
    """Return the field with the schema version; empty for an empty version."""
    return _field_bytes(b"\x82\x01", version) if version else b""


def encryption_keys_field(name: str, wrapped: bytes) -> bytes:
    """Return the field with the data key, encrypted with the public key of this name."""
    return _field_bytes(
        b"\x6a", _field_bytes(b"\x0a", name.encode()) + _field_bytes(b"\x12", wrapped)
    )


def encryption_param_field(iv: bytes) -> bytes:
    return _field_bytes(b"\x7a", iv)


def _late_fields(parts: list[bytes], extras: Extras, schema_field: bytes) -> None:
    if extras.event_timestamp_ms:
        parts += (b"\x60", encode_varint(extras.event_timestamp_ms))
    if schema_field:
        parts.append(schema_field)
    if extras.key_form is KeyForm.BASE64:
        parts.append(b"\x88\x01\x01")
    if extras.ordering_key is not None:
        parts.append(_field_bytes(b"\x92\x01", extras.ordering_key.encode()))
    if extras.deliver_at_ms:
        parts += (b"\x98\x01", encode_varint(extras.deliver_at_ms))
