"""Compressing the payload of an entry, as Apache Pulsar's clients do; ``wire/payload.py`` undoes it."""

from __future__ import annotations

import zlib

from pulsarish.client.enums import CompressionType
from pulsarish.model.errors import UnsupportedFeature

__all__ = ["check_compression", "compress"]


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
