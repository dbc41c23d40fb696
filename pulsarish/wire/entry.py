"""A topic entry in Apache Pulsar's layout: what one producer call shipped, a message or a batch.

``magic 0x0e01 u16 | crc32c u32 | metadata size u32 | MessageMetadata | payload``, big-endian; the CRC covers the metadata size and all
after it. The client makes these bytes and everybody else carries them verbatim. Source: Apache Pulsar's public binary protocol.
"""

from __future__ import annotations

import base64
import binascii
import functools
import struct
from typing import Final

from google.protobuf.message import DecodeError
from google_crc32c import extend

from pulsarish.model.errors import ChecksumError
from pulsarish.model.hashing import murmur3_32_hash
from pulsarish.wire._pb.message_pb2 import MessageMetadata

__all__ = [
    "ENTRY_HEAD_SIZE",
    "KEY_HASHES",
    "MAGIC",
    "MESSAGES_IN_BATCH_MAX",
    "as_bytes",
    "as_text",
    "encode_entry",
    "key_hash",
    "parse_metadata",
    "split_entry",
    "sticky_key",
    "verify_entry",
]

MAGIC: Final = 0x0E01
_HEAD: Final = struct.Struct(">HII")
_SIZE: Final = struct.Struct(">I")
ENTRY_HEAD_SIZE: Final = _HEAD.size  # 10
MESSAGES_IN_BATCH_MAX: Final = 1_000_000
"""What an entry may say that it holds: acknowledgements within it are kept as bits, so that the number costs memory."""
KEY_HASHES: Final = 1 << 16
"""Key-shared subscriptions tell keys apart by a hash of this many values."""
_KEY_HASHES_KEPT: Final = 16_384

Buffer = bytes | memoryview


def encode_entry(metadata: MessageMetadata, payload: bytes) -> bytes:
    encoded = metadata.SerializeToString()
    body = b"".join((_SIZE.pack(len(encoded)), encoded, payload))
    return struct.pack(">HI", MAGIC, extend(0, body)) + body


def verify_entry(entry: Buffer) -> None:
    """Check magic, CRC and that the metadata lies inside. Raises ``ChecksumError``."""
    if len(entry) < ENTRY_HEAD_SIZE:
        raise ChecksumError(f"an entry of {len(entry)} bytes is shorter than its head of {ENTRY_HEAD_SIZE}")
    magic, crc, size = _HEAD.unpack_from(entry)
    if magic != MAGIC:
        raise ChecksumError(f"an entry starts with {magic:#06x}, not with the magic {MAGIC:#06x}")
    if extend(0, bytes(entry[6:])) != crc:
        raise ChecksumError("an entry does not match its CRC32C")
    if ENTRY_HEAD_SIZE + size > len(entry):
        raise ChecksumError("an entry's metadata reaches past its end")


def parse_metadata(entry: Buffer) -> MessageMetadata:
    """The metadata of a verified entry. Raises ``ChecksumError`` when it is no ``MessageMetadata``."""
    size = _HEAD.unpack_from(entry)[2]
    try:
        return MessageMetadata.FromString(bytes(entry[ENTRY_HEAD_SIZE : ENTRY_HEAD_SIZE + size]))
    except DecodeError as error:
        raise ChecksumError(f"an entry's metadata cannot be read: {error}") from None


def split_entry(entry: Buffer) -> tuple[MessageMetadata, memoryview]:
    """The metadata and the payload of a verified entry."""
    size = _HEAD.unpack_from(entry)[2]
    return parse_metadata(entry), memoryview(entry)[ENTRY_HEAD_SIZE + size :]


def as_bytes(text: str | bytes) -> bytes:
    """A text as it was written. One that is no UTF-8, such as the key of a client in C++, comes out of protobuf as bytes."""
    return text if isinstance(text, bytes) else text.encode()


def as_text(text: str | bytes) -> str:
    """The same to be read; what is no UTF-8 is replaced."""
    return text if isinstance(text, str) else text.decode(errors="replace")


def sticky_key(metadata: MessageMetadata) -> bytes:
    """By what a key-shared subscription keeps entries together: the ordering key, else the key, decoded where its producer encoded it.

    An entry without either has a key of its own, which the chunks of one message share.
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
    """Where a sticky key lies among ``KEY_HASHES``. Apache Pulsar reserves 0 and uses 1 in its place."""
    return murmur3_32_hash(key) % KEY_HASHES or 1
