"""The payload of an entry: compress it, decompress it within a limit, and split a batch.

A batch has for each message a size, its own metadata and its content.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final, TypeVar

from google.protobuf.message import DecodeError

from pulsarish.model.errors import ChecksumError, OperationNotSupported
from pulsarish.wire._pb import message_pb2 as pb
from pulsarish.wire._pb.message_pb2 import SingleMessageMetadata

__all__ = ["compress", "decompress", "split_batch"]

T = TypeVar("T")

_SIZE: Final = struct.Struct(">I")


def compress(kind: int, payload: bytes) -> bytes:
    """Compress as Apache Pulsar's clients do.

    Raises ``OperationNotSupported`` for a kind that this version cannot write.
    """
    # The libraries are imported where they are used: most programs use none of them, and an import
    # costs milliseconds.
    if kind == pb.NONE:
        return payload
    if kind == pb.LZ4:
        import lz4.block

        packed: bytes = lz4.block.compress(payload, store_size=False)
        return packed
    if kind == pb.ZLIB:
        return zlib.compress(payload)
    if kind == pb.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor().compress(payload)
    if kind == pb.SNAPPY:
        import cramjam

        return bytes(cramjam.snappy.compress_raw(payload))
    raise OperationNotSupported(
        f"compression of kind {kind} cannot be written here (LZ4, ZLIB, ZSTD and SNAPPY can)"
    )


def decompress(kind: int, payload: bytes, uncompressed_size: int, *, bytes_max: int) -> bytes:
    """Return a payload whose metadata announces ``uncompressed_size``.

    Uses no more memory than that: what a producer wrote must not exhaust the memory of a reader.

    Raises ``ChecksumError`` when the bytes are not what was announced, ``OperationNotSupported``
    for an unknown kind and for more than ``bytes_max``.
    """
    if kind == pb.NONE:
        return payload
    if uncompressed_size > bytes_max:
        raise OperationNotSupported(
            f"a payload announces {uncompressed_size} bytes when unpacked; at most {bytes_max} "
            "are unpacked here"
        )
    restored: bytes
    try:
        if kind == pb.LZ4:
            import lz4.block

            restored = lz4.block.decompress(payload, uncompressed_size=uncompressed_size)
        elif kind == pb.ZLIB:
            restored = zlib.decompressobj().decompress(payload, uncompressed_size + 1)
        elif kind == pb.ZSTD:
            import zstandard

            with zstandard.ZstdDecompressor().stream_reader(payload) as reader:
                restored = reader.read(uncompressed_size + 1)
        elif kind == pb.SNAPPY:
            restored = _decompress_snappy(payload, uncompressed_size)
        else:
            raise OperationNotSupported(
                f"a payload is compressed with kind {kind}, which cannot be undone here (LZ4, "
                "ZLIB, ZSTD and SNAPPY can)"
            )
    except (OperationNotSupported, ChecksumError):
        raise
    except Exception as error:
        # Each library has its own errors. All of them mean that these bytes are not what the
        # producer made.
        raise ChecksumError(f"a compressed payload cannot be restored: {error}") from error
    if len(restored) != uncompressed_size:
        raise ChecksumError(
            f"a compressed payload announced {uncompressed_size} bytes and holds other than that"
        )
    return restored


def _decompress_snappy(payload: bytes, uncompressed_size: int) -> bytes:
    """The raw block format, without frames, as Apache Pulsar's clients write it."""
    import cramjam

    # The block announces its own size, and the library would allocate that much memory for it.
    found = cramjam.snappy.decompress_raw_len(payload)
    if found != uncompressed_size:
        raise ChecksumError(
            f"a compressed payload announced {uncompressed_size} bytes and holds {found}"
        )
    return bytes(cramjam.snappy.decompress_raw(payload))


def split_batch(payload: bytes, count: int, made: Callable[[int, int, int, int], T]) -> list[T]:
    """Return ``made(index, head, start, end)`` for each message of a batch.

    The message's own metadata are from ``head`` to ``start``, its content from there to ``end``.
    Messages that compaction removed are left out. Raises ``ChecksumError`` when the payload is not
    exactly ``count`` messages.
    """
    messages: list[T] = []
    append = messages.append
    size_at = _SIZE.unpack_from
    at = 0
    # What the last two messages had before their sequence ids, and the sizes that follow from it:
    # most messages of a batch have the same.
    before = b""
    skip = length = 0
    last_length = -1
    try:
        for index in range(count):
            if before and payload.startswith(before, at):
                head = at + 4
                start = at + skip
                at = start + length
                append(made(index, head, start, at))
                continue
            head = at + 4
            start = head + size_at(payload, at)[0]
            length = -1
            # A message with only its size and perhaps its sequence id (fields 3 and 8) is decoded
            # here, others by the class.
            if payload[head] == 0x18:
                low = payload[head + 1]
                if low < 0x80:
                    length, after = low, head + 2
                else:
                    length, after = low & 0x7F | payload[head + 2] << 7, head + 3
                    if length >= 0x4000:
                        length = -1
                if length >= 0 and after != start and payload[after] != 0x40:
                    length = -1
                before = b""
                if length >= 0 and length == last_length:
                    before = payload[at : after if after == start else after + 1]
                    skip = start - at
                last_length = length
            if length < 0:
                single = SingleMessageMetadata.FromString(payload[head:start])
                length, before = single.payload_size, b""
                if single.compacted_out:
                    at = start + length
                    continue
            at = start + length
            append(made(index, head, start, at))
    except (IndexError, struct.error, DecodeError) as error:
        raise ChecksumError(f"a batch is cut or damaged: {error}") from None
    if at != len(payload):
        raise ChecksumError(
            f"a batch is cut or damaged: {len(payload)} bytes hold {count} messages of {at} bytes"
        )
    return messages
