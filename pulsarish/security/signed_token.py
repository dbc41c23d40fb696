"""JSON Web Tokens: check a signature with a key of this server, then the claims.

Nothing of a token is believed before its signature: its header only chooses among the server's
keys. Times are compared with the clock that the caller gives.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec
from jwt import PyJWS
from jwt.exceptions import PyJWTError

from pulsarish.model.errors import AuthenticationError
from pulsarish.security.keys import ASYMMETRIC_ALGORITHMS, HMAC_BYTES, VerificationKey
from pulsarish.security.roles import role_fault

__all__ = [
    "TOKEN_BYTES_MAX",
    "TokenHeader",
    "audience_matches",
    "credential_id_of",
    "expiry_of",
    "read_header",
    "read_unverified_claims",
    "role_of",
    "verify_claims",
]

TOKEN_BYTES_MAX: Final = 16 << 10
_NAME_CHARS_MAX: Final = 256
_SECONDS_MAX: Final = 253_402_300_799
"""The last second of the year 9999. A greater time is one in milliseconds."""
_UNDERSTOOD_NOT: Final = ("crit", "b64", "zip")
"""Header fields that change how a token must be read. None is supported, so none is ignored."""
_ALGORITHMS: Final = (*HMAC_BYTES, *ASYMMETRIC_ALGORITHMS)
_JWS: Final = PyJWS(algorithms=_ALGORITHMS)


@dataclass(frozen=True, slots=True)
class TokenHeader:
    """What an unverified header says of the key."""

    NARROWED: ClassVar = "narrowed+jwt"
    """The ``typ`` of a token that was made from a wider one."""

    algorithm: str
    kid: str
    is_narrowed: bool = False


def read_header(token: bytes) -> TokenHeader:
    """Return what the header says, unverified.

    Raises ``AuthenticationError`` for what is no token, and for fields that would have to be
    understood.
    """
    if len(token) > TOKEN_BYTES_MAX:
        raise AuthenticationError(
            f"the token has {len(token)} bytes; at most {TOKEN_BYTES_MAX} are read"
        )
    if token.count(b".") != 2:
        raise AuthenticationError(
            "this is no JSON Web Token: one has three parts in base64url, divided by dots"
        )
    try:
        header = _JWS.get_unverified_header(token)
    except (PyJWTError, ValueError, RecursionError):
        # The library's text may hold what was sent.
        raise AuthenticationError(
            "the token's header is damaged, or requires extensions (crit); make a new token"
        ) from None
    for name in _UNDERSTOOD_NOT:
        if name in header:
            raise AuthenticationError(
                f"the token's header has {name}, which is not supported; make one without it"
            )
    algorithm, kid = header.get("alg"), header.get("kid", "")
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        raise AuthenticationError(
            f"the token's header must have an alg out of {', '.join(_ALGORITHMS)}"
        )
    if not isinstance(kid, str) or len(kid) > _NAME_CHARS_MAX:
        raise AuthenticationError(
            f"the token's kid must be text of at most {_NAME_CHARS_MAX} characters"
        )
    return TokenHeader(algorithm, kid, header.get("typ") == TokenHeader.NARROWED)


def verify_claims(
    token: bytes, header: TokenHeader, key: VerificationKey | None
) -> Mapping[str, Any]:
    """Return the claims of a token that ``key`` has signed.

    Raises ``AuthenticationError``. Without a key no signature can be right.
    """
    if key is None:
        raise AuthenticationError(
            f"no key of this server is used with the alg {header.algorithm} and the kid of the "
            "token; use a token that was made with a key of this server"
        )
    try:
        # The algorithms of the key, not the one of the token.
        found = _JWS.decode_complete(token, key.key, algorithms=key.algorithms)
    except (PyJWTError, ValueError, TypeError, RecursionError):
        raise AuthenticationError(
            "the token's signature does not match the key of this server; use a token that was "
            "made with it"
        ) from None
    return _claims(found["payload"])


def read_unverified_claims(token: bytes) -> Mapping[str, Any]:
    """Return claims that are not verified: they may only choose which provider checks the token.

    Raises ``AuthenticationError``. Call ``read_header`` first, which bounds the size.
    """
    try:
        found = _JWS.decode_complete(token, options={"verify_signature": False})
    except (PyJWTError, ValueError, RecursionError):
        raise AuthenticationError("the token is damaged; make a new one") from None
    return _claims(found["payload"])


def _claims(payload: bytes) -> Mapping[str, Any]:
    try:
        # Not the standard library: it takes NaN and Infinity as numbers.
        claims = msgspec.json.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise AuthenticationError("the token's claims are not a JSON object; make a new token")
    return claims


# Claims.


def expiry_of(
    claims: Mapping[str, Any], now_ms: int, *, skew_seconds: int, require_expiry: bool
) -> int:
    """Return when a token expires, in milliseconds since the epoch with the skew; 0: never.

    Args:
        skew_seconds: how far the clock of the token's maker may be from this one.

    Raises ``AuthenticationError`` when it is too early or too late, or a time is unreadable.
    """
    expires_seconds = _seconds(claims, "exp")
    starts_seconds = _seconds(claims, "nbf")
    skew_ms = skew_seconds * 1_000
    if starts_seconds is not None and now_ms + skew_ms < int(starts_seconds * 1_000):
        raise AuthenticationError(
            "the token may not be used yet (nbf); wait, or compare the clocks of both machines"
        )
    if expires_seconds is None:
        if require_expiry:
            raise AuthenticationError(
                "the token has no expiry (exp), which this server requires; make one with "
                "--expiry-time"
            )
        return 0
    expires_at_ms = int(expires_seconds * 1_000) + skew_ms
    if now_ms >= expires_at_ms:
        raise AuthenticationError("the token has expired (exp); get a new one")
    return expires_at_ms


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AuthenticationError(f"the token's {name} must be a number of seconds since 1970")
    if not 0 <= value <= _SECONDS_MAX:
        raise AuthenticationError(
            f"the token's {name} must be seconds since 1970, not milliseconds, up to the year 9999"
        )
    return value


def role_of(claims: Mapping[str, Any], name: str) -> str:
    """Return the role in the claim ``name``: text, or a list with one text.

    Raises ``AuthenticationError``. Of a list with several roles the order would decide, so it is
    refused.
    """
    if name not in claims:
        raise AuthenticationError(f"the token has no claim {name}, which names the role")
    value = claims[name]
    if isinstance(value, list):
        if len(value) != 1:
            raise AuthenticationError(
                f"the token's claim {name} is a list of {len(value)} roles; it must name one"
            )
        value = value[0]
    fault = role_fault(value)
    if fault:
        raise AuthenticationError(f"the role in the token's claim {name} {fault}")
    assert isinstance(value, str)
    return value


def credential_id_of(claims: Mapping[str, Any]) -> str:
    """Return the token's id (``jti``), by which it can be revoked; empty when it has none.

    Raises ``AuthenticationError`` for an id that no line of a revocation list could name.
    """
    value = claims.get("jti", "")
    if (
        not isinstance(value, str)
        or len(value) > _NAME_CHARS_MAX
        or not value.isprintable()
        or value != value.strip()
        or value.startswith(("#", "role:"))
    ):
        raise AuthenticationError(
            f"the token's jti must be printable text of at most {_NAME_CHARS_MAX} characters, "
            "without # or role: at its beginning and without spaces at its ends"
        )
    return value


def audience_matches(value: object, allowed: Collection[str]) -> bool:
    """Return whether the audience of a token, text or a list of texts, has an allowed one."""
    values = value if isinstance(value, list) else [value]
    return any(isinstance(each, str) and each in allowed for each in values)
