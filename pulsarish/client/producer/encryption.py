"""Encrypts the payloads of a producer with a data key that it changes every four hours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pulsarish.client.messages.entry_encoder import encryption_keys_field, encryption_param_field
from pulsarish.model.errors import CryptoError
from pulsarish.runtime.crypto_key_reader import CryptoKeyReader
from pulsarish.runtime.log import get_logger
from pulsarish.security.message_crypto import PayloadCipher, wrap_data_key
from pulsarish.wire.entry import ENCRYPTION_TAG_BYTES

__all__ = ["DATA_KEY_SECONDS", "Encryption"]

_log = get_logger("client.producer")

DATA_KEY_SECONDS: Final = 4 * 3_600.0
"""How long a data key is used, as in Apache Pulsar's clients."""
_ENTRIES_MAX: Final = 1 << 30
"""Entries that one data key encrypts at most: random IVs of 12 bytes stay distinct by far."""
_RETRY_SECONDS: Final = 60.0


class Encryption:
    """Of one producer and all its partitions. Threads of several partitions may use it: then two of
    them may both change the key, which does no harm.
    """

    def __init__(
        self, names: Sequence[str], reader: CryptoKeyReader, monotonic: Callable[[], float]
    ) -> None:
        """Make the first data key.

        Args:
            names: of the public keys that the data key is encrypted with.
            monotonic: the monotonic time in seconds.

        Raises ``CryptoError`` naming the key and its file.
        """
        self._names = names
        self._reader = reader
        self._monotonic = monotonic
        self._entries_left = 0
        self._change_at = 0.0
        self._current = self._made()

    overhead_bytes: Final = ENCRYPTION_TAG_BYTES
    """How much longer a payload becomes."""

    def encrypt(self, payload: bytes) -> tuple[bytes, bytes]:
        """Return the fields of the entry's metadata that readers need, and the encrypted
        payload.
        """
        if self._entries_left <= 0 or self._monotonic() >= self._change_at:
            self._change()
        self._entries_left -= 1
        keys_field, cipher = self._current
        iv, ciphertext = cipher.encrypt(payload)
        return keys_field + encryption_param_field(iv), ciphertext

    def _change(self) -> None:
        try:
            self._current = self._made()
        except CryptoError as error:
            # Messages that wait must not fail because a key is replaced at this moment.
            _log.warning("data key not changed, the old one is used on", reason=error)
            self._change_at = self._monotonic() + _RETRY_SECONDS
            self._entries_left = max(self._entries_left, 1)

    def _made(self) -> tuple[bytes, PayloadCipher]:
        cipher = PayloadCipher()
        field = b"".join(
            encryption_keys_field(name, self._wrapped(name, cipher)) for name in self._names
        )
        self._change_at = self._monotonic() + DATA_KEY_SECONDS
        self._entries_left = _ENTRIES_MAX
        return field, cipher

    def _wrapped(self, name: str, cipher: PayloadCipher) -> bytes:
        source = ""
        try:
            public_key = self._reader.public_key(name, {})
            source = f"{self._reader.source_of(is_private=False)}: "
            return wrap_data_key(public_key, cipher.data_key)
        except CryptoError as error:
            raise CryptoError(f"encryption_key {name!r}: {source}{error}") from None
        except Exception as error:
            # A key reader of the program.
            raise CryptoError(
                f"encryption_key {name!r}: the crypto_key_reader raised {error!r}"
            ) from error
