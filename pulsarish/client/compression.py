"""Which kinds of compression a producer may ask for; ``wire/payload.py`` compresses."""

from __future__ import annotations

from pulsarish.client.enums import CompressionType
from pulsarish.model.errors import UnsupportedFeature

__all__ = ["check_compression"]


def check_compression(kind: CompressionType) -> None:
    """Raises ``UnsupportedFeature`` for what this client cannot write."""
    if kind is CompressionType.SNAPPY:
        raise UnsupportedFeature("compression_type SNAPPY is not supported: use CompressionType.LZ4, ZSTD or ZLib")
