"""Tokens that are made from a wider one by its bearer, without a key of the servers.

A narrowed token is a JSON Web Token of its own. Its claim ``wider`` has the header and the claims
of the wider token, without the signature; the signature itself is the key that signs the narrowed
one (HS256). Only who has the wider token can make it. Who gets the narrowed one cannot find the
signature that was left out, so cannot go back. A server computes the signature again with its
secret key, which is why only tokens of a secret key can be narrowed: a public key cannot sign.

A narrowed token may be narrowed again. All limits, times and ids of the chain count. Macaroons
(Birgisson and others, 2014) chain their limits in this way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from jwt import PyJWS
from jwt.utils import base64url_decode

from pulsarish.model.errors import AuthenticationError, InvalidArgument
from pulsarish.security.keys import HMAC_BYTES, VerificationKey
from pulsarish.security.signed_token import (
    TOKEN_BYTES_MAX,
    TokenHeader,
    read_header,
    read_unverified_claims,
    verify_claims,
)

__all__ = ["NARROWINGS_MAX", "WIDER", "narrow_token", "read_wider_claims", "verify_chain"]

NARROWINGS_MAX: Final = 8
WIDER: Final = "wider"
"""The claim with the header and the claims of the wider token."""
_ALGORITHM: Final = "HS256"
_NO_SIGNATURE: Final = b"."
Select = Callable[[TokenHeader], VerificationKey | None]


def narrow_token(token: bytes, claims: Mapping[str, object]) -> bytes:
    """Return a token with the role of ``token`` and less rights.

    Args:
        claims: the limits, ``exp`` and ``jti`` of the new one.

    Raises ``AuthenticationError`` for what is no token, ``InvalidArgument`` for one that cannot be
    narrowed.
    """
    signing_input, _, signature = token.rpartition(b".")
    parts = _chain(token)
    algorithm = read_header(parts[0]).algorithm
    if algorithm not in HMAC_BYTES:
        raise InvalidArgument(
            f"the token is signed with {algorithm}; only tokens that a secret key signed "
            f"({', '.join(HMAC_BYTES)}) can be narrowed. Ask who made it for one with limits: "
            "pulsarish tokens create --topic, --action and --network"
        )
    if len(parts) > NARROWINGS_MAX:
        raise InvalidArgument(f"a token can be narrowed at most {NARROWINGS_MAX} times")
    key = _decoded(signature)
    payload = {WIDER: signing_input.decode(), **claims}
    made = PyJWS().encode(
        json.dumps(payload, separators=(",", ":")).encode(),
        key,
        _ALGORITHM,
        {"typ": TokenHeader.NARROWED},
    )
    if len(made) > TOKEN_BYTES_MAX:
        raise InvalidArgument(
            f"the token would have {len(made)} bytes; servers read at most {TOKEN_BYTES_MAX}"
        )
    return made.encode()


def read_wider_claims(token: bytes) -> list[Mapping[str, Any]]:
    """Return the unverified claims of the tokens from which this one was narrowed, the nearest
    first; none if it was not.

    Raises ``AuthenticationError``.
    """
    return [read_unverified_claims(part) for part in reversed(_chain(token)[:-1])]


def verify_chain(token: bytes, select: Select) -> list[Mapping[str, Any]]:
    """Return the verified claims of a token and, if it was narrowed, of the wider ones, in the
    order in which they were made. The first has the role.

    Args:
        select: returns the server's key for a header.

    Raises ``AuthenticationError``.
    """
    parts = _chain(token)
    first = parts[0]
    header = read_header(first)
    if len(parts) == 1:
        return [verify_claims(token, header, select(header))]
    key = select(header)
    if key is None or header.algorithm not in HMAC_BYTES:
        raise AuthenticationError(
            "the token was narrowed from one that no secret key of this server has signed; use a "
            "token that was made with it"
        )
    secret = _signature(first, header.algorithm, key.key)
    for part in parts[1:-1]:
        secret = _signature(part, _ALGORITHM, secret)
    # Only the last one has its signature, and that proves all the others.
    last = verify_claims(token, read_header(token), VerificationKey(secret, (_ALGORITHM,)))
    return [*(read_unverified_claims(part) for part in parts[:-1]), last]


def _decoded(signature: bytes) -> bytes:
    try:
        key = base64url_decode(signature)
    except ValueError:
        key = b""
    if len(key) not in HMAC_BYTES.values():
        raise AuthenticationError("the token is damaged: its signature is cut; get it again")
    return key


def _signature(part: bytes, algorithm: str, secret: bytes) -> bytes:
    signing_input = part.rpartition(b".")[0]
    return PyJWS().get_algorithm_by_name(algorithm).sign(signing_input, secret)


def _chain(token: bytes) -> list[bytes]:
    """Return the tokens of a chain, the first one first, all but the last without signature.

    Raises ``AuthenticationError``.
    """
    parts = [token]
    while read_header(parts[0]).is_narrowed:
        wider = read_unverified_claims(parts[0]).get(WIDER)
        if len(parts) > NARROWINGS_MAX or not isinstance(wider, str) or not wider.isascii():
            raise AuthenticationError(
                f"the narrowed token is damaged, or was narrowed more than {NARROWINGS_MAX} times; "
                "make a new one"
            )
        parts.insert(0, wider.encode() + _NO_SIGNATURE)
    return parts
