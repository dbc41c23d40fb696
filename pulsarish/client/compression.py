"""Compressing and restoring the payload of an entry. The bytes are those that Apache Pulsar's clients write and read."""

from __future__ import annotations

import zlib

from pulsarish.client.enums import CompressionType
from pulsarish.model.errors import ChecksumError, UnsupportedFeature

__all__ = ["check_compression", "compress", "decompress"]


def check_compression(kind: CompressionType) -> None:
    """Raises ``UnsupportedFeature`` for what this client cannot write."""
    if kind is CompressionType.SNAPPY:
        raise UnsupportedFeature("compression_type SNAPPY is not supported: use CompressionType.LZ4, ZSTD or ZLib")


def compress(kind: CompressionType, payload: bytes) -> bytes:
    # The libraries are imported where they are used: most programs use none of them, and importing costs milliseconds.
    if kind is CompressionType.LZ4:
        import lz4.block

        packed: bytes = lz4.block.compress(payload, store_size=False)
        return packed
    if kind is CompressionType.ZLib:
        return zlib.compress(payload)
    if kind is CompressionType.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor().compress(payload)
    check_compression(kind)
    return payload


def decompress(kind: int, payload: bytes, uncompressed_size: int) -> bytes:
    """Restore a payload whose metadata announces ``uncompressed_size``, which bounds the memory that is used.

    Raises ``ChecksumError`` when the bytes are not what was announced, ``UnsupportedFeature`` for an unknown kind.
    """
    restored: bytes
    try:
        if kind == CompressionType.NONE:
            return payload
        if kind == CompressionType.LZ4:
            import lz4.block

            restored = lz4.block.decompress(payload, uncompressed_size=uncompressed_size)
        elif kind == CompressionType.ZLib:
            restored = zlib.decompressobj().decompress(payload, uncompressed_size + 1)
        elif kind == CompressionType.ZSTD:
            import zstandard

            with zstandard.ZstdDecompressor().stream_reader(payload) as reader:
                restored = reader.read(uncompressed_size + 1)
        else:
            raise UnsupportedFeature(f"an entry is compressed with kind {kind}, which this client cannot read (it reads LZ4, ZLib, ZSTD)")
    except UnsupportedFeature:
        raise
    except Exception as error:
        # Each library has errors of its own; all of them mean that these bytes are not what the producer made.
        raise ChecksumError(f"a compressed payload cannot be restored: {error}") from error
    if len(restored) != uncompressed_size:
        raise ChecksumError(f"a compressed payload announced {uncompressed_size} bytes and holds other than that")
    return restored
