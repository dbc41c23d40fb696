"""Decrypts the entries that a consumer receives, with the keys of its key reader.

``cryptography`` is imported with the first encrypted entry of a consumer that has a key reader.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from pulsarish.client.enums import ConsumerCryptoFailureAction
from pulsarish.client.messages.message import Entry
from pulsarish.model.errors import CryptoError
from pulsarish.runtime.crypto_key_reader import CryptoKeyReader
from pulsarish.wire._pb.message_pb2 import EncryptionKeys, MessageMetadata
from pulsarish.wire.entry import as_text, payload_start

if TYPE_CHECKING:
    from pulsarish.security.message_crypto import PayloadCipher

__all__ = ["Decryption"]

_CIPHERS_MAX: Final = 1_000
"""Data keys that are kept: a producer changes its own every four hours."""


class Decryption:
    """Of one topic or partition. The inbox's lock is held around every call."""

    def __init__(self, reader: CryptoKeyReader | None, action: ConsumerCryptoFailureAction) -> None:
        self._reader = reader
        self._is_lenient = action is ConsumerCryptoFailureAction.CONSUME
        self._ciphers: OrderedDict[tuple[str, bytes], PayloadCipher] = OrderedDict()

    def open(self, entry: Entry, metadata: MessageMetadata) -> None:
        """Decrypt the payload of an entry in place. With ``CONSUME`` it stays as it is when that is
        not possible.

        Raises ``CryptoError``.
        """
        try:
            payload = self._decrypted(entry, metadata)
        except CryptoError:
            if not self._is_lenient:
                raise
            entry.is_sealed = True
            return
        entry.data = b"".join((entry.data[: payload_start(entry.data)], payload))
        entry.is_sealed = False

    def _decrypted(self, entry: Entry, metadata: MessageMetadata) -> bytes:
        reader = self._reader
        if reader is None:
            raise CryptoError(
                "the message is encrypted and the consumer has no keys: give it a "
                "crypto_key_reader, or set crypto_failure_action to DISCARD or CONSUME"
            )
        refusals = []
        payload = memoryview(entry.data)[payload_start(entry.data) :]
        for key in metadata.encryption_keys:
            try:
                cipher = self._cipher(reader, key)
            except CryptoError as error:
                refusals.append(f"key {as_text(key.key)!r}: {error}")
                continue
            try:
                return cipher.decrypt(metadata.encryption_param, payload)
            except CryptoError as error:
                raise CryptoError(f"the message is encrypted, and {error}") from None
        raise CryptoError(
            f"the message is encrypted and cannot be decrypted ({'; '.join(refusals)}): give the "
            "crypto_key_reader its private key, or set crypto_failure_action to DISCARD or CONSUME"
        )

    def _cipher(self, reader: CryptoKeyReader, key: EncryptionKeys) -> PayloadCipher:
        """Return the cipher of a data key. Raises ``CryptoError``."""
        from pulsarish.security.message_crypto import PayloadCipher, unwrap_data_key

        name = as_text(key.key)
        found = self._ciphers.get((name, key.value))
        if found is not None:
            self._ciphers.move_to_end((name, key.value))
            return found
        key_metadata = {as_text(pair.key): as_text(pair.value) for pair in key.metadata}
        try:
            private_key = reader.private_key(name, key_metadata)
        except CryptoError:
            raise
        except Exception as error:
            # A key reader of the program.
            raise CryptoError(f"the crypto_key_reader raised {error!r}") from error
        try:
            found = PayloadCipher(unwrap_data_key(private_key, key.value))
        except CryptoError as error:
            raise CryptoError(f"{reader.source_of(is_private=True)}: {error}") from None
        self._ciphers[name, key.value] = found
        if len(self._ciphers) > _CIPHERS_MAX:
            self._ciphers.popitem(last=False)
        return found
