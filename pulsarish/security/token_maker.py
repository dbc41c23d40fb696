"""Make keys and sign tokens, for commands and tools; servers only check them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import PyJWS

from pulsarish.model.errors import InvalidArgument
from pulsarish.security.keys import ASYMMETRIC_ALGORITHMS, SigningKey
from pulsarish.security.signed_token import TOKEN_BYTES_MAX

__all__ = ["make_key_pair", "sign_token"]

_RSA_BITS = 2_048
_CURVES: Mapping[str, type[ec.EllipticCurve]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}


def make_key_pair(algorithm: str) -> tuple[bytes, bytes]:
    """Return a new private key (DER, PKCS#8) and its public key (DER, SubjectPublicKeyInfo), the
    forms of Apache Pulsar's tools.
    """
    assert algorithm in ASYMMETRIC_ALGORITHMS
    private: Any
    if algorithm in _CURVES:
        private = ec.generate_private_key(_CURVES[algorithm]())
    elif algorithm == "EdDSA":
        private = ed25519.Ed25519PrivateKey.generate()
    else:
        private = rsa.generate_private_key(65_537, _RSA_BITS)
    return (
        private.private_bytes(
            serialization.Encoding.DER,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )


def sign_token(
    claims: Mapping[str, object], key: SigningKey, *, algorithm: str = "", kid: str = ""
) -> bytes:
    """Return a signed JSON Web Token.

    Args:
        algorithm: empty: the key's preferred one.
        kid: the key id in the header; empty: none.

    Raises ``InvalidArgument`` when the key is not used with the algorithm, or when servers would
    refuse the token for its size.
    """
    chosen = algorithm or key.algorithms[0]
    if chosen not in key.algorithms:
        raise InvalidArgument(
            f"the algorithm {chosen} does not fit this key, which is used with "
            f"{', '.join(key.algorithms)}"
        )
    payload = json.dumps(claims, separators=(",", ":")).encode()
    token = PyJWS().encode(payload, key.key, chosen, {"kid": kid} if kid else None).encode()
    if len(token) > TOKEN_BYTES_MAX:
        raise InvalidArgument(
            f"the token would have {len(token)} bytes; servers read at most {TOKEN_BYTES_MAX}"
        )
    return token
