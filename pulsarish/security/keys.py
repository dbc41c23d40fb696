"""Keys that sign and check tokens. The kind of a key decides its algorithms, never a token."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from pulsarish.model.errors import ConfigError
from pulsarish.security.watched_file import read_bounded

__all__ = [
    "ASYMMETRIC_ALGORITHMS",
    "HMAC_BYTES",
    "SigningKey",
    "VerificationKey",
    "load_public_key",
    "load_public_keys",
    "load_secret_key",
    "load_signing_key",
    "public_algorithms",
    "read_reference",
    "select_key",
]

HMAC_BYTES: Final[Mapping[str, int]] = {"HS256": 32, "HS384": 48, "HS512": 64}
"""The least length of a secret for each algorithm: that of its hash (RFC 7518, 3.2)."""
_RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_RSA_BITS: Final = range(2_048, 8_193)
"""A shorter key can be factored; a longer one makes each check slow."""
_EC_ALGORITHMS: Final[Mapping[str, str]] = {
    "secp256r1": "ES256",
    "secp384r1": "ES384",
    "secp521r1": "ES512",
}
_EDDSA: Final = "EdDSA"
ASYMMETRIC_ALGORITHMS: Final = (*_RSA_ALGORITHMS, *_EC_ALGORITHMS.values(), _EDDSA)
_FORMS: Final = "file:///path, a path, data:;base64,... or env:NAME"


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key that checks signatures, and the algorithms that it may be used with."""

    key: Any = field(repr=False)
    """Bytes of a shared secret, or a public key of ``cryptography``."""
    algorithms: tuple[str, ...]
    kid: str = ""
    """The key id that tokens name; empty: the key of tokens that name no other one."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that signs, and the algorithms that it may be used with, the preferred one first."""

    key: Any = field(repr=False)
    algorithms: tuple[str, ...]


def select_key(keys: Sequence[VerificationKey], kid: str, algorithm: str) -> VerificationKey | None:
    """Return the key that checks a token, or ``None``.

    A token that names a key id gets the key of that id; if there is none, it gets the key without
    an id. A token without a key id gets the key without an id; if there is none, it gets the only
    key that fits its algorithm. A key is never used with an algorithm of another kind.
    """
    named = [each for each in keys if kid and each.kid == kid]
    fitting = [
        each
        for each in named or [each for each in keys if not each.kid]
        if algorithm in each.algorithms
    ]
    if not fitting and not kid:
        fitting = [each for each in keys if algorithm in each.algorithms]
        if len(fitting) > 1:
            return None
    return fitting[0] if fitting else None


# Read what an option refers to.


def read_reference(option: str, reference: str) -> bytes:
    """Return the bytes that an option refers to: ``file:///path``, a path, ``data:;base64,...`` or
    ``env:NAME``.

    The variable of ``env:`` has base64, PEM, or one of the other forms. Raises ``ConfigError``. Its
    text has no part of the reference that may be a key by mistake.
    """
    if reference.startswith("env:"):
        return _from_environment(option, reference.removeprefix("env:"))
    if reference.startswith("data:"):
        return _from_data_url(option, reference)
    if reference.startswith("file:"):
        return read_bounded(option, _path_of(option, reference))
    if Path(reference).is_file() or _looks_like_path(reference):
        return read_bounded(option, reference)
    raise ConfigError(f"{option} refers to no file that is there; write it as {_FORMS}")


def _from_environment(option: str, name: str) -> bytes:
    value = os.environ.get(name, "")
    if not value:
        raise ConfigError(f"{option}: the environment variable {name} is not set or empty")
    if value.startswith(("data:", "file:")):
        return read_reference(option, value)
    if value.startswith("-----BEGIN "):
        return value.encode()
    return _decode_base64(f"{option}: the environment variable {name}", value)


def _from_data_url(option: str, reference: str) -> bytes:
    kind, comma, content = reference.partition(",")
    if not comma or not kind.endswith(";base64"):
        raise ConfigError(
            f"{option}: a data URL must look like data:;base64,... with standard base64"
        )
    return _decode_base64(f"{option}: the data URL", content)


def _decode_base64(what: str, text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{what} is not valid base64") from None


def _path_of(option: str, reference: str) -> str:
    url = urlsplit(reference)
    if url.netloc not in ("", "localhost") or not url.path.startswith("/"):
        raise ConfigError(
            f"{option}: a file URL must look like file:///path, with an absolute path"
        )
    return unquote(url.path)


def _looks_like_path(reference: str) -> bool:
    """Return whether an error may show the text: a key given without ``data:`` has no directory."""
    parent = Path(reference).parent
    try:
        return str(parent) not in ("/", ".") and parent.is_dir()
    except (OSError, ValueError):
        return False


# Keys of options.


def load_secret_key(option: str, reference: str, kid: str = "") -> VerificationKey:
    """Return the shared secret that an option refers to.

    Raises ``ConfigError`` when it is too short, or is a key of a pair: everyone who has the public
    key could sign with it.
    """
    content = read_reference(option, reference)
    if b"-----BEGIN " in content or _public(content) is not None or _private(content) is not None:
        raise ConfigError(
            f"{option} refers to a key of a pair, not to a secret: use the option for such "
            "keys, or make a secret with pulsarish tokens create-secret-key"
        )
    shortest = min(HMAC_BYTES.values())
    if len(content) < shortest:
        raise ConfigError(
            f"{option} refers to a secret of {len(content)} bytes; at least {shortest} are needed: "
            "make one with pulsarish tokens create-secret-key"
        )
    return VerificationKey(content, _secret_algorithms(content), kid)


def load_public_key(
    option: str,
    reference: str,
    *,
    kid: str = "",
    algorithm: str = "",
    algorithm_option: str = "token_public_alg",
) -> VerificationKey:
    """Return the public key that an option refers to, as DER or PEM.

    Args:
        algorithm: the only one to accept; empty: all that the key can be used with.
        algorithm_option: the option that names it, for errors.

    Raises ``ConfigError``.
    """
    content = read_reference(option, reference)
    key = _public(content)
    if key is None:
        if _private(content) is not None:
            raise ConfigError(
                f"{option} refers to a private key; give the public key, which pulsarish tokens "
                "create-key-pair writes beside it"
            )
        raise ConfigError(
            f"{option} does not refer to a public key in DER or PEM; make one with pulsarish "
            "tokens create-key-pair"
        )
    algorithms, fault = public_algorithms(key)
    if fault:
        raise ConfigError(f"{option} refers to {fault}")
    if algorithm:
        if algorithm not in algorithms:
            raise ConfigError(
                f"{algorithm_option} = {algorithm} does not fit the key of {option}, which is used "
                f"with {', '.join(algorithms)}"
            )
        algorithms = (algorithm,)
    return VerificationKey(key, algorithms, kid)


def load_public_keys(option: str, references: Mapping[str, str]) -> list[VerificationKey]:
    """Return the public keys of an option that maps key ids to references."""
    return [
        load_public_key(f"{option}[{kid}]", reference, kid=kid)
        for kid, reference in references.items()
    ]


def load_signing_key(option: str, reference: str) -> SigningKey:
    """Return the private key that an option refers to, as DER or PEM without a password.

    Raises ``ConfigError``.
    """
    content = read_reference(option, reference)
    key = _private(content)
    if key is None:
        what = "a public key" if _public(content) is not None else "something else"
        raise ConfigError(
            f"{option} must refer to a private key in DER (PKCS#8) or PEM without a password, not "
            f"to {what}; make one with pulsarish tokens create-key-pair"
        )
    algorithms, fault = public_algorithms(key.public_key())
    if fault:
        raise ConfigError(f"{option} refers to {fault}")
    return SigningKey(key, algorithms)


def public_algorithms(key: object) -> tuple[tuple[str, ...], str]:
    """Return the algorithms that a public key is used with, or none and what is wrong with it."""
    match key:
        case rsa.RSAPublicKey() if key.key_size in _RSA_BITS:
            return _RSA_ALGORITHMS, ""
        case rsa.RSAPublicKey():
            return (), (
                f"an RSA key of {key.key_size} bits; {_RSA_BITS.start} to {_RSA_BITS.stop - 1} are "
                "allowed"
            )
        case ec.EllipticCurvePublicKey() if key.curve.name in _EC_ALGORITHMS:
            return (_EC_ALGORITHMS[key.curve.name],), ""
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            return (_EDDSA,), ""
        case _:
            return (), (
                "a key of a kind that signs no tokens; use RSA, P-256, P-384, P-521, Ed25519 or "
                "Ed448"
            )


def _secret_algorithms(secret: bytes) -> tuple[str, ...]:
    return tuple(name for name, least in HMAC_BYTES.items() if len(secret) >= least)


def _public(content: bytes) -> Any:
    load = (
        serialization.load_pem_public_key
        if content.lstrip().startswith(b"-----BEGIN ")
        else serialization.load_der_public_key
    )
    try:
        return load(content)
    except (ValueError, UnsupportedAlgorithm):
        return None


def _private(content: bytes) -> Any:
    load = (
        serialization.load_pem_private_key
        if content.lstrip().startswith(b"-----BEGIN ")
        else serialization.load_der_private_key
    )
    try:
        return load(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
