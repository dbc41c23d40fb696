"""Data keys and payloads: what one key encrypts only that key decrypts, and no bit can change."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from pulsarish.model.errors import CryptoError
from pulsarish.security.message_crypto import (
    IV_BYTES,
    PayloadCipher,
    unwrap_data_key,
    wrap_data_key,
)
from pulsarish.wire.entry import ENCRYPTION_TAG_BYTES
from tests.support.message_keys import Pair, curve_pair, rsa_pair

DATA_KEY = bytes(range(32))
PAIRS = [rsa_pair(), curve_pair(), curve_pair(ec.SECP256R1()), curve_pair(ec.SECP384R1())]
IDS = ["rsa", "p521", "p256", "p384"]
# As the documentation of Apache Pulsar makes it: openssl ecparam -param_enc explicit.
EXPLICIT = b"""\
-----BEGIN PUBLIC KEY-----
MIICXTCCAdAGByqGSM49AgEwggHDAgEBME0GByqGSM49AQECQgH/////////////
////////////////////////////////////////////////////////////////
/////////zCBnwRCAf//////////////////////////////////////////////
///////////////////////////////////////8BEIAUZU+uWGOHJofkpohoLaF
QO6i2nJbmbMV87i0iZGO8QnhVhk5Uex+k3sWUsC9O7G/BzVz34g9LDTx70Uf1GtQ
PwADFQDQnogAKRy4U5bMZxc5MoSqoNpkugSBhQQAxoWOBrcEBOnNnj7LZiOVtEKc
ZIE5BT+1Ifgor2BrTT26oUted+/nWSj+HcEnov+o3jNIs8GFakKb+X5+McLlvWYB
GDkpaniaO8AEXIpftCx9G9mY9URJV5tEaBevvRcnPmYsl+5ymV70JkDFULkBP60H
YTU8cIaicsJAiL6Udp/RZlACQgH/////////////////////////////////////
//////pRhoeDvy+Wa3/MAUj3CaXQO7XJuImcR667b7cekThkCQIBAQOBhgAEAVux
E+eM83E9QPEVvVWp9MHdRBsUnnDqgj+qhXV1uvsn1gsFn4RVu6jHCbXjaVMnin/B
ggU/iruft4iEZUMb8mW0AcqHDFwW8OV9aXxpEnuJYDADqi8FuLtlSbL2NC8byYbl
tiNzsBDdmn4GQ9K8asR3kPpu+kZ/geFPa8EjthzHi5ZO
-----END PUBLIC KEY-----
"""


@pytest.mark.parametrize("pair", PAIRS, ids=IDS)
def test_a_data_key_comes_back_with_the_private_key(pair: Pair) -> None:
    wrapped = wrap_data_key(pair.public, DATA_KEY)
    assert DATA_KEY not in wrapped
    assert wrapped != wrap_data_key(pair.public, DATA_KEY), "each time in another form"
    assert unwrap_data_key(pair.private, wrapped) == DATA_KEY


@pytest.mark.parametrize("pair", PAIRS, ids=IDS)
def test_any_changed_or_missing_byte_of_a_data_key_is_refused(pair: Pair) -> None:
    wrapped = wrap_data_key(pair.public, DATA_KEY)
    places = range(0, len(wrapped), 7)
    changed = [
        wrapped[:at] + bytes([wrapped[at] ^ 1 << at % 8]) + wrapped[at + 1 :] for at in places
    ]
    for damaged in [*changed, wrapped[:-1], wrapped + b"\0", wrapped[:10], b""]:
        with pytest.raises(CryptoError, match="for another key or is damaged"):
            unwrap_data_key(pair.private, damaged)


@pytest.mark.parametrize(("mine", "other"), [(0, 0), (0, 1), (1, 1), (1, 0), (1, 2)])
def test_another_key_does_not_decrypt_a_data_key(mine: int, other: int) -> None:
    stranger = [rsa_pair(), curve_pair(), curve_pair(ec.SECP256R1())][other]
    wrapped = wrap_data_key(PAIRS[mine].public, DATA_KEY)
    with pytest.raises(CryptoError, match="for another key or is damaged"):
        unwrap_data_key(stranger.private, wrapped)


def test_a_private_key_may_be_pkcs8_and_a_public_key_a_certificate() -> None:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "messages")])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    wrapped = wrap_data_key(certificate.public_bytes(serialization.Encoding.PEM), DATA_KEY)
    assert unwrap_data_key(private, wrapped) == DATA_KEY


def test_a_public_key_may_spell_out_its_curve() -> None:
    assert len(wrap_data_key(EXPLICIT, DATA_KEY)) == len(wrap_data_key(PAIRS[1].public, DATA_KEY))


def test_what_is_no_key_is_refused_without_showing_it() -> None:
    other = ed25519.Ed25519PrivateKey.generate()
    strange_private = other.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    strange_public = other.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    with_password = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"pass"),
    )
    for public, reason in (
        (b"secret words", "no public key in PEM"),
        (PAIRS[0].private, "no public key in PEM"),
        (strange_public, "neither RSA nor of an elliptic curve"),
    ):
        with pytest.raises(CryptoError, match=reason) as caught:
            wrap_data_key(public, DATA_KEY)
        assert "secret" not in str(caught.value)
    for private, reason in (
        (b"secret words", "no private key in PEM without a password"),
        (PAIRS[0].public, "no private key in PEM"),
        (with_password, "no private key in PEM without a password"),
        (strange_private, "neither RSA nor of an elliptic curve"),
    ):
        with pytest.raises(CryptoError, match=reason) as caught:
            unwrap_data_key(private, bytes(256))
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("payload", [b"", b"x", b"text" * 100], ids=len)
def test_one_flipped_bit_of_a_payload_is_refused(payload: bytes) -> None:
    cipher = PayloadCipher()
    iv, ciphertext = cipher.encrypt(payload)
    assert len(iv) == IV_BYTES
    assert len(ciphertext) == len(payload) + ENCRYPTION_TAG_BYTES
    assert PayloadCipher(cipher.data_key).decrypt(iv, memoryview(ciphertext)) == payload
    for at in range(len(ciphertext)):
        damaged = ciphertext[:at] + bytes([ciphertext[at] ^ 1 << at % 8]) + ciphertext[at + 1 :]
        with pytest.raises(CryptoError, match="damaged"):
            cipher.decrypt(iv, damaged)
    with pytest.raises(CryptoError, match="damaged"):
        cipher.decrypt(bytes(IV_BYTES), ciphertext)
    for short in (ciphertext[:-1], b""):
        with pytest.raises(CryptoError, match="damaged"):
            cipher.decrypt(iv, short)


def test_an_iv_or_data_key_of_another_size_is_refused() -> None:
    with pytest.raises(CryptoError, match="has 3 bytes, not 12"):
        PayloadCipher().decrypt(b"abc", bytes(ENCRYPTION_TAG_BYTES))
    with pytest.raises(CryptoError, match="has 5 bytes: AES keys have 16, 24 or 32"):
        PayloadCipher(b"short")
