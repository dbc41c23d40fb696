"""The primitives of end-to-end encryption of messages, in the form of Apache Pulsar's clients.

A payload is encrypted with a data key: AES-256 in GCM, with a random IV of 12 bytes for each entry
and the tag of 16 bytes behind the ciphertext. The data key is encrypted with a public key: RSA with
OAEP (SHA-1, MGF1 with SHA-1), or for a key of an elliptic curve ECIES with the parameters that
Bouncy Castle has by default, as Apache Pulsar's client in Java has it: ECDH with an ephemeral key,
a stream that is the exclusive or with KDF2 (SHA-1), and HMAC (SHA-1).

Keys are read in PEM, a public key also in a certificate. An error never holds key material.
"""

from __future__ import annotations

import hmac
import os
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.x963kdf import X963KDF

from pulsarish.model.errors import CryptoError

__all__ = ["IV_BYTES", "PayloadCipher", "unwrap_data_key", "wrap_data_key"]

IV_BYTES: Final = 12
_DATA_KEY_BYTES: Final = 32
_DATA_KEY_SIZES: Final = (16, 24, 32)
"""Sizes in bytes of the data keys that other clients make."""
_OAEP: Final = padding.OAEP(
    mgf=padding.MGF1(algorithm=hashes.SHA1()),  # noqa: S303 # what the other clients use
    algorithm=hashes.SHA1(),  # noqa: S303
    label=None,
)
_ECIES_MAC_KEY_BYTES: Final = 16
_ECIES_MAC_BYTES: Final = 20
_ECIES_LENGTH_TAG: Final = bytes(8)
"""The length of the encoding parameters, which are empty, in bits."""

_LOAD_ERRORS: Final = (ValueError, TypeError, UnsupportedAlgorithm)


class PayloadCipher:
    """Encrypts and decrypts payloads with one data key. Several threads may use it."""

    __slots__ = ("_cipher", "data_key")

    def __init__(self, data_key: bytes | None = None) -> None:
        """``data_key``: ``None``: a new one. Raises ``CryptoError`` for a wrong size."""
        if data_key is not None and len(data_key) not in _DATA_KEY_SIZES:
            raise CryptoError(f"the data key has {len(data_key)} bytes: AES keys have 16, 24 or 32")
        self.data_key: Final = os.urandom(_DATA_KEY_BYTES) if data_key is None else data_key
        self._cipher = AESGCM(self.data_key)

    def encrypt(self, payload: bytes) -> tuple[bytes, bytes]:
        """Return a new IV, and the ciphertext with its tag."""
        iv = os.urandom(IV_BYTES)
        return iv, self._cipher.encrypt(iv, payload, None)

    def decrypt(self, iv: bytes, ciphertext: bytes | memoryview) -> bytes:
        """Return the payload. Raises ``CryptoError`` for a ciphertext that was changed."""
        if len(iv) != IV_BYTES:
            raise CryptoError(f"its IV (encryption_param) has {len(iv)} bytes, not {IV_BYTES}")
        try:
            return self._cipher.decrypt(iv, ciphertext, None)
        except InvalidTag:
            raise CryptoError(
                "its content is damaged or was encrypted with another data key: the tag does not "
                "match"
            ) from None


def wrap_data_key(public_key: bytes, data_key: bytes) -> bytes:
    """Return the data key encrypted with a public key.

    Args:
        public_key: in PEM, of RSA or an elliptic curve, or a certificate of one.

    Raises ``CryptoError``.
    """
    try:
        key = (
            x509.load_pem_x509_certificate(public_key).public_key()
            if b"BEGIN CERTIFICATE" in public_key
            else serialization.load_pem_public_key(public_key)
        )
    except _LOAD_ERRORS as error:
        raise CryptoError(f"it holds no public key in PEM ({_first_line(error)})") from None
    if isinstance(key, rsa.RSAPublicKey):
        try:
            return key.encrypt(data_key, _OAEP)
        except ValueError:
            raise CryptoError(f"its RSA key of {key.key_size} bits is too small") from None
    if isinstance(key, ec.EllipticCurvePublicKey):
        return _ecies_encrypt(key, data_key)
    raise CryptoError("it holds a public key that is neither RSA nor of an elliptic curve")


def unwrap_data_key(private_key: bytes, wrapped: bytes) -> bytes:
    """Return the data key that was encrypted with the public key of ``private_key`` (in PEM,
    without a password).

    Raises ``CryptoError``.
    """
    try:
        key = serialization.load_pem_private_key(private_key, None)
    except _LOAD_ERRORS as error:
        raise CryptoError(
            f"it holds no private key in PEM without a password ({_first_line(error)})"
        ) from None
    if isinstance(key, rsa.RSAPrivateKey):
        try:
            return key.decrypt(wrapped, _OAEP)
        except ValueError:
            raise CryptoError(_OTHER_KEY) from None
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return _ecies_decrypt(key, wrapped)
    raise CryptoError("it holds a private key that is neither RSA nor of an elliptic curve")


_OTHER_KEY: Final = (
    "it does not decrypt the message's data key, which was encrypted for another key or is damaged"
)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].split(". ", 1)[0] or type(error).__name__


def _ecies_keys(point: bytes, shared: bytes, size: int) -> tuple[bytes, bytes]:
    """Return the key of the MAC and the stream of ``size`` bytes.

    ``point``: the ephemeral public key, not compressed. ``shared``: the secret of ECDH.
    """
    # KDF2 without parameters is the KDF of X9.63 without shared information.
    length = _ECIES_MAC_KEY_BYTES + size
    keys = X963KDF(algorithm=hashes.SHA1(), length=length, sharedinfo=None).derive(  # noqa: S303
        point + shared
    )
    return keys[:_ECIES_MAC_KEY_BYTES], keys[_ECIES_MAC_KEY_BYTES:]


def _ecies_mac(key: bytes, ciphertext: bytes) -> bytes:
    return hmac.digest(key, ciphertext + _ECIES_LENGTH_TAG, "sha1")


def _exclusive_or(data: bytes, stream: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(data, stream, strict=True))


def _ecies_encrypt(public_key: ec.EllipticCurvePublicKey, data: bytes) -> bytes:
    ephemeral = ec.generate_private_key(public_key.curve)
    point = ephemeral.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    mac_key, stream = _ecies_keys(point, ephemeral.exchange(ec.ECDH(), public_key), len(data))
    ciphertext = _exclusive_or(data, stream)
    return point + ciphertext + _ecies_mac(mac_key, ciphertext)


def _ecies_decrypt(private_key: ec.EllipticCurvePrivateKey, wrapped: bytes) -> bytes:
    point_size = 1 + 2 * ((private_key.curve.key_size + 7) // 8)
    point, rest = wrapped[:point_size], wrapped[point_size:]
    ciphertext, mac = rest[:-_ECIES_MAC_BYTES], rest[-_ECIES_MAC_BYTES:]
    try:
        ephemeral = ec.EllipticCurvePublicKey.from_encoded_point(private_key.curve, point)
    except ValueError:
        raise CryptoError(_OTHER_KEY) from None
    shared = private_key.exchange(ec.ECDH(), ephemeral)
    mac_key, stream = _ecies_keys(point, shared, len(ciphertext))
    if not hmac.compare_digest(_ecies_mac(mac_key, ciphertext), mac):
        raise CryptoError(_OTHER_KEY)
    return _exclusive_or(ciphertext, stream)
