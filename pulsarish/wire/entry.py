"""A topic entry in Apache Pulsar's layout: what one producer call sent, a message or a batch.

``magic 0x0e01 u16 | crc32c u32 | metadata size u32 | MessageMetadata | payload``, big-endian; the
CRC covers the metadata size and everything after it. The client makes these bytes and all servers
carry them unchanged. Source: Apache Pulsar's public binary protocol.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
import struct
from typing import Final

from google.protobuf.message import DecodeError
from google_crc32c import extend

from pulsarish.model.errors import ChecksumError
from pulsarish.model.hashing import murmur3_32_hash
from pulsarish.wire._pb.message_pb2 import MessageMetadata

__all__ = [
    "ENCRYPTION_TAG_BYTES",
    "ENTRY_HEAD_SIZE",
    "EXPIRES_PROPERTY",
    "KEY_HASHES",
    "MAGIC",
    "MESSAGES_IN_BATCH_MAX",
    "PRIORITIES",
    "PRIORITY_DEFAULT",
    "PRIORITY_PROPERTY",
    "as_bytes",
    "as_text",
    "decode_metadata",
    "encode_entry",
    "encoded_metadata",
    "expiry_time",
    "is_plain",
    "key_hash",
    "message_times",
    "parse_metadata",
    "payload_start",
    "priority_of",
    "split_entry",
    "sticky_key",
    "stored_expiry_time",
    "stored_priority",
    "verify_entry",
]

MAGIC: Final = 0x0E01
_HEAD: Final = struct.Struct(">HII")
_SIZE: Final = struct.Struct(">I")
ENTRY_HEAD_SIZE: Final = _HEAD.size  # 10
ENCRYPTION_TAG_BYTES: Final = 16
"""How much longer an encrypted payload is."""
MESSAGES_IN_BATCH_MAX: Final = 1_000_000
"""Limit of the messages that an entry may announce.

Acknowledgements within it are kept as bits, so the number costs memory.
"""
EXPIRES_PROPERTY: Final = "pulsarish-expires-at-ms"
"""The property of a message that expires: when it does, in milliseconds since the epoch."""
_EXPIRES: Final = EXPIRES_PROPERTY.encode()
_TIME_DIGITS_MAX: Final = 18  # below 2 ** 63
PRIORITY_PROPERTY: Final = "pulsarish-priority"
"""The property of a message with a priority: one digit."""
_PRIORITY: Final = PRIORITY_PROPERTY.encode()
PRIORITIES: Final = 10
"""Priorities are 0 to 9. Shared subscriptions may deliver the highest one first."""
PRIORITY_DEFAULT: Final = 4
"""The priority of a message without one, and of a batch."""
KEY_HASHES: Final = 1 << 16
"""Key-shared subscriptions distinguish keys by a hash with this many values."""
_KEY_HASHES_KEPT: Final = 16_384
_NAME_BYTES_MAX: Final = 0x7F
# After the producer's name: sequence id and publish time, each of at most 9 bytes.
_PLAIN_FIELDS: Final = re.compile(
    rb"\x10[\x80-\xff]{0,8}[\x00-\x7f]\x18[\x80-\xff]{0,8}[\x00-\x7f]"
)

Buffer = bytes | memoryview


def encode_entry(metadata: MessageMetadata, payload: bytes) -> bytes:
    """Return an entry. Fields that its producer left out may be missing, as when it was read."""
    encoded = metadata.SerializePartialToString()
    body = b"".join((_SIZE.pack(len(encoded)), encoded, payload))
    return struct.pack(">HI", MAGIC, extend(0, body)) + body


def verify_entry(entry: Buffer) -> None:
    """Check magic, CRC and that the metadata lies inside. Raises ``ChecksumError``."""
    if len(entry) < ENTRY_HEAD_SIZE:
        raise ChecksumError(
            f"an entry of {len(entry)} bytes is shorter than its head of {ENTRY_HEAD_SIZE}"
        )
    magic, crc, size = _HEAD.unpack_from(entry)
    if magic != MAGIC:
        raise ChecksumError(f"an entry starts with {magic:#06x}, not with the magic {MAGIC:#06x}")
    if extend(0, bytes(entry[6:])) != crc:
        raise ChecksumError("an entry does not match its CRC32C")
    if ENTRY_HEAD_SIZE + size > len(entry):
        raise ChecksumError("an entry's metadata reaches past its end")


def parse_metadata(entry: Buffer) -> MessageMetadata:
    """Return the metadata of a verified entry.

    Raises ``ChecksumError`` when it is not a ``MessageMetadata``.
    """
    return decode_metadata(encoded_metadata(entry))


def encoded_metadata(entry: Buffer) -> bytes:
    """Return the metadata of a verified entry as they are written."""
    size = _HEAD.unpack_from(entry)[2]
    return bytes(entry[ENTRY_HEAD_SIZE : ENTRY_HEAD_SIZE + size])


def decode_metadata(encoded: bytes) -> MessageMetadata:
    """Decode metadata. Raises ``ChecksumError`` when they are not a ``MessageMetadata``."""
    try:
        return MessageMetadata.FromString(encoded)
    except DecodeError as error:
        raise ChecksumError(f"an entry's metadata cannot be read: {error}") from None


def is_plain(encoded: bytes) -> bool:
    """Whether an entry's metadata are only what each entry has: producer name, sequence id and
    publish time.

    Then the entry is one message as it was sent: neither a batch nor a chunk, without compression,
    encryption, schema, key and properties. Names above 127 bytes do not count as plain.
    """
    return (
        len(encoded) > 2
        and encoded[0] == 0x0A
        and encoded[1] <= _NAME_BYTES_MAX
        and _PLAIN_FIELDS.fullmatch(encoded, 2 + encoded[1]) is not None
    )


def expiry_time(metadata: MessageMetadata) -> int:
    """Return when an entry expires (ms since the epoch), as its property ``EXPIRES_PROPERTY`` says;
    0: never; -1: the property has no such time.

    A batch has no such property: the properties of its messages are in its payload.
    """
    found = 0
    if metadata.num_messages_in_batch == 1:
        for each in metadata.properties:
            if each.key == EXPIRES_PROPERTY:
                value = as_text(each.value)
                is_time = value.isascii() and value.isdecimal() and len(value) <= _TIME_DIGITS_MAX
                found = (int(value) if is_time else 0) or -1
    return found


def message_times(entry: Buffer) -> tuple[int, int, int]:
    """Return when a stored entry was published, when it is to be delivered, and when it expires (ms
    since the epoch); 0: it does not say.
    """
    metadata = parse_metadata(entry)
    return metadata.publish_time, metadata.deliver_at_time, max(0, expiry_time(metadata))


def stored_expiry_time(entry: Buffer) -> int:
    """Return when a stored entry expires (ms since the epoch); 0: never."""
    encoded = encoded_metadata(entry)
    return max(0, expiry_time(decode_metadata(encoded))) if _EXPIRES in encoded else 0


def priority_of(metadata: MessageMetadata) -> int:
    """Return the priority of an entry, as its property ``PRIORITY_PROPERTY`` says;
    ``PRIORITY_DEFAULT``: it has none; -1: the property is not a priority.

    A batch has no such property: the properties of its messages are in its payload.
    """
    if metadata.num_messages_in_batch == 1:
        for each in metadata.properties:
            if each.key == PRIORITY_PROPERTY:
                value = as_text(each.value)
                is_digit = len(value) == 1 and value.isascii() and value.isdecimal()
                return int(value) if is_digit else -1
    return PRIORITY_DEFAULT


def stored_priority(entry: Buffer) -> int:
    """Return the priority of a stored entry. One that is not a priority counts as none: it was
    published while no policy asked for priorities.
    """
    encoded = encoded_metadata(entry)
    if _PRIORITY not in encoded:
        return PRIORITY_DEFAULT
    found = priority_of(decode_metadata(encoded))
    return PRIORITY_DEFAULT if found < 0 else found


def split_entry(entry: Buffer) -> tuple[MessageMetadata, memoryview]:
    """Return the metadata and the payload of a verified entry."""
    return parse_metadata(entry), memoryview(entry)[payload_start(entry) :]


def payload_start(entry: Buffer) -> int:
    """Return the offset of the payload of a verified entry."""
    size: int = _HEAD.unpack_from(entry)[2]
    return ENTRY_HEAD_SIZE + size


def as_bytes(text: str | bytes) -> bytes:
    """Return a text as it was written.

    Protobuf returns a text that is not UTF-8, such as the key of a C++ client, as bytes.
    """
    return text if isinstance(text, bytes) else text.encode()


def as_text(text: str | bytes) -> str:
    """Return a text for reading. Bytes that are not UTF-8 are replaced."""
    return text if isinstance(text, str) else text.decode(errors="replace")


def sticky_key(metadata: MessageMetadata) -> bytes:
    """Return the key by which a key-shared subscription keeps entries together.

    It is the ordering key, else the key, decoded where its producer encoded it. An entry without
    either has a key of its own, which the chunks of one message share.
    """
    if metadata.HasField("ordering_key"):
        return bytes(metadata.ordering_key)
    if metadata.HasField("partition_key"):
        key = as_bytes(metadata.partition_key)
        if metadata.partition_key_b64_encoded:
            try:
                return base64.b64decode(key, validate=True)
            except binascii.Error:
                return key
        return key
    return f"{metadata.producer_name}-{metadata.sequence_id}".encode()


@functools.lru_cache(maxsize=_KEY_HASHES_KEPT)
def key_hash(key: bytes) -> int:
    """Return the hash of a sticky key among ``KEY_HASHES``.

    Apache Pulsar reserves 0 and uses 1 in its place.
    """
    return murmur3_32_hash(key) % KEY_HASHES or 1
