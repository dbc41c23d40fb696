"""A message out of an entry, for an operator's eyes: the one place of the broker that looks at payloads."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import lz4.block
import zstandard
from google.protobuf.message import DecodeError

from pulsarish.model.errors import ChecksumError, UnsupportedFeature
from pulsarish.wire._pb import message_pb2 as pb
from pulsarish.wire.entry import split_entry

__all__ = ["Peeked", "message_in"]

# A payload that says that it is larger is not unpacked: what a client wrote must not fill the broker's memory.
_UNPACKED_BYTES_MAX: Final = 64 << 20
_SIZE: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Peeked:
    payload: bytes
    batch_index: int  # -1: the entry is no batch
    headers: dict[str, str] = field(default_factory=dict)


def message_in(entry: bytes | memoryview, index: int) -> Peeked | int:
    """The message with this index, or how many messages the entry has when those are fewer.

    Raises ``ChecksumError`` for bytes that are no messages, ``UnsupportedFeature`` for a compression that cannot be undone here.
    """
    metadata, body = split_entry(entry)
    batch = metadata.HasField("num_messages_in_batch")
    if index >= metadata.num_messages_in_batch:
        return metadata.num_messages_in_batch
    if metadata.encryption_keys:
        return Peeked(bytes(body), index if batch else -1, {"X-Pulsar-Is-Encrypted": "true"})
    payload = _unpacked(metadata, bytes(body))
    if not batch:
        return Peeked(payload, -1, _headers(metadata.partition_key, metadata.publish_time, metadata.properties))
    single, payload = _single(payload, index)
    return Peeked(payload, index, _headers(single.partition_key, metadata.publish_time, single.properties))


def _headers(key: str, publish_time: int, properties: Iterable[pb.KeyValue]) -> dict[str, str]:
    headers = {"X-Pulsar-publish-time": str(publish_time)}
    if key:
        headers["X-Pulsar-partition-key"] = _header(key)
    return headers | {f"X-Pulsar-PROPERTY-{_header(each.key)}": _header(each.value) for each in properties}


def _header(text: str) -> str:
    """Text as a header may carry it: nothing in it can begin another header."""
    return text.encode("ascii", "backslashreplace").decode().replace("\r", "\\r").replace("\n", "\\n").replace("\x00", "\\0")


def _unpacked(metadata: pb.MessageMetadata, body: bytes) -> bytes:
    size = metadata.uncompressed_size
    if metadata.compression == pb.NONE:
        return body
    if size > _UNPACKED_BYTES_MAX:
        raise UnsupportedFeature(f"a payload of {size} bytes is not unpacked here; consume it instead")
    try:
        match metadata.compression:
            case pb.LZ4:
                return bytes(lz4.block.decompress(body, uncompressed_size=size))
            case pb.ZLIB:
                return zlib.decompressobj().decompress(body, size)
            case pb.ZSTD:
                return zstandard.ZstdDecompressor().decompress(body, max_output_size=size)
            case _:
                kind = pb.CompressionType.Name(metadata.compression)
                raise UnsupportedFeature(f"payloads compressed with {kind} cannot be shown here")
    except (zlib.error, zstandard.ZstdError, lz4.block.LZ4BlockError) as error:
        raise ChecksumError(f"a payload cannot be unpacked: {error}") from None


def _single(payload: bytes, index: int) -> tuple[pb.SingleMessageMetadata, bytes]:
    end = 0
    try:
        for number in range(index + 1):
            (size,) = _SIZE.unpack_from(payload, end)
            start = end + _SIZE.size + size
            single = pb.SingleMessageMetadata.FromString(payload[end + _SIZE.size : start])
            end = start + single.payload_size
            if number == index:
                return single, payload[start:end]
    except (struct.error, DecodeError) as error:
        raise ChecksumError(f"a batch cannot be read: {error}") from None
    raise AssertionError("an index below zero")
