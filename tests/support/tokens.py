"""Keys, and tokens that are good, bad or hostile, for tests of authentication."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import bcrypt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import PyJWS
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

NOW_MS = 1_800_000_000_000
NOW_SECONDS = NOW_MS // 1_000
SECRET = bytes(range(64))


class Clock:
    """Wall clock that a test sets, in milliseconds."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@functools.cache
def private_key(kind: str) -> Any:
    """A key of the kind: rsa, weak-rsa, other-rsa, p256, p384, p521, secp256k1, ed25519."""
    match kind:
        case "rsa" | "other-rsa":
            return rsa.generate_private_key(65_537, 2_048)
        case "weak-rsa":
            return rsa.generate_private_key(65_537, 1_024)
        case "ed25519":
            return ed25519.Ed25519PrivateKey.generate()
        case _:
            curves = {
                "p256": ec.SECP256R1(),
                "p384": ec.SECP384R1(),
                "p521": ec.SECP521R1(),
                "secp256k1": ec.SECP256K1(),
            }
            return ec.generate_private_key(curves[kind])


def public_bytes(kind: str, form: str = "der") -> bytes:
    encoding = serialization.Encoding.DER if form == "der" else serialization.Encoding.PEM
    found = private_key(kind).public_key()
    return bytes(found.public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo))


def private_bytes(kind: str, form: str = "der") -> bytes:
    encoding = serialization.Encoding.DER if form == "der" else serialization.Encoding.PEM
    return bytes(
        private_key(kind).private_bytes(
            encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def data_url(content: bytes) -> str:
    return f"data:;base64,{base64.b64encode(content).decode()}"


def make_token(
    claims: Mapping[str, object] | bytes,
    key: Any = SECRET,
    algorithm: str = "HS256",
    **header: object,
) -> bytes:
    """A signed token. Claims may be bytes that are no JSON."""
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    signed = PyJWS().encode(payload, key, algorithm, headers=header or None)
    return signed.encode()


def raw_token(header: object, payload: object, signature: bytes = b"") -> bytes:
    """A token whose parts are what they are given as: bytes, or made to JSON."""
    parts = [
        each if isinstance(each, bytes) else json.dumps(each).encode() for each in (header, payload)
    ]
    return b".".join(base64.urlsafe_b64encode(each).rstrip(b"=") for each in (*parts, signature))


def hmac_token(header: object, payload: object, secret: bytes) -> bytes:
    """A token that is signed with HS256 over any header and payload."""
    unsigned = raw_token(header, payload).rpartition(b".")[0]
    signature = hmac.digest(secret, unsigned, hashlib.sha256)
    return unsigned + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")


def jwk(kind: str, **fields: object) -> dict[str, Any]:
    """The public key of the kind, rsa or p256, as an entry of a key set."""
    form = RSAAlgorithm if kind.endswith("rsa") else ECAlgorithm
    public = private_key(kind).public_key()
    return dict(form.to_jwk(public, as_dict=True)) | fields


def key_set(*keys: object) -> bytes:
    return json.dumps({"keys": keys}).encode()


def bcrypt_hash(password: str, *, prefix: str = "2b") -> str:
    """A hash of the least cost, for tests only."""
    made = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
    return made.replace("$2b$", f"${prefix}$", 1)
