"""How a received message was encrypted, for programs that decrypt it themselves.

The classes and methods are those of Apache Pulsar's Python client.
"""

from __future__ import annotations

from pulsarish.client.enums import CompressionType
from pulsarish.wire._pb.message_pb2 import EncryptionKeys, MessageMetadata
from pulsarish.wire.entry import as_text

__all__ = ["EncryptionContext", "EncryptionKey"]


class EncryptionKey:
    """A data key, encrypted with the public key of this name."""

    def __init__(self, key: EncryptionKeys) -> None:
        self._key = key

    @property
    def key(self) -> str:
        """The name of the public key."""
        return as_text(self._key.key)

    @property
    def value(self) -> bytes:
        """The encrypted data key."""
        return self._key.value

    @property
    def metadata(self) -> dict[str, str]:
        """What the producer's key reader said of the key."""
        return {as_text(pair.key): as_text(pair.value) for pair in self._key.metadata}

    def __repr__(self) -> str:
        return (
            f"EncryptionKey(key={self.key}, value_len={len(self.value)}, metadata={self.metadata})"
        )


class EncryptionContext:
    """How the entry of a message was encrypted and compressed."""

    def __init__(self, metadata: MessageMetadata, *, is_decryption_failed: bool) -> None:
        self._metadata = metadata
        self._is_decryption_failed = is_decryption_failed

    def keys(self) -> list[EncryptionKey]:
        """The data key, encrypted with each public key."""
        return [EncryptionKey(key) for key in self._metadata.encryption_keys]

    def param(self) -> bytes:
        """The IV of AES in GCM. For a message in chunks, that of its first chunk."""
        return self._metadata.encryption_param

    def algorithm(self) -> str:
        """The algorithm as the producer named it; most name none, and then it is empty."""
        return self._metadata.encryption_algo

    def compression_type(self) -> CompressionType:
        return CompressionType(self._metadata.compression)

    def uncompressed_message_size(self) -> int:
        """The size of the decrypted and uncompressed payload in bytes; 0 if it was not
        compressed.
        """
        is_compressed = self.compression_type() is not CompressionType.NONE
        return self._metadata.uncompressed_size if is_compressed else 0

    def batch_size(self) -> int:
        """The number of messages in the batch; -1 if the entry is no batch."""
        metadata = self._metadata
        is_batch = metadata.HasField("num_messages_in_batch")
        return metadata.num_messages_in_batch if is_batch else -1

    def is_decryption_failed(self) -> bool:
        """Whether ``data()`` is the encrypted payload, compressed, of the whole batch."""
        return self._is_decryption_failed

    def __repr__(self) -> str:
        return (
            f"EncryptionContext(algorithm={self.algorithm()}, "
            f"compression_type={self.compression_type().name}, "
            f"uncompressed_message_size={self.uncompressed_message_size()}, "
            f"is_decryption_failed={self.is_decryption_failed()}, keys={self.keys()})"
        )
