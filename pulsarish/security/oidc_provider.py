"""Provider ``oauth2``: access tokens of OAuth2 and OpenID Connect issuers, as JSON Web Tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pulsarish.model.errors import AuthenticationError
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import Certificate, Credentials
from pulsarish.security.identity import Identity
from pulsarish.security.jwks import FetchedKeys, RefreshTimes, parse_jwks
from pulsarish.security.keys import VerificationKey, select_key
from pulsarish.security.limits import limits_of
from pulsarish.security.provider import Fetch
from pulsarish.security.provider_names import OAUTH2, TOKEN
from pulsarish.security.signed_token import (
    audience_matches,
    credential_id_of,
    expiry_of,
    read_header,
    read_unverified_claims,
    role_of,
    verify_claims,
)
from pulsarish.security.watched_file import WatchedFile

__all__ = ["OidcProvider"]


class _IssuerKeys(Protocol):
    async def find(self, kid: str, algorithm: str) -> VerificationKey | None: ...


class _FileKeys:
    """The key set of a file, which is read again when it changes."""

    def __init__(
        self, path: str, wall_ms: Callable[[], int], on_problem: Callable[[str], None]
    ) -> None:
        self._file = WatchedFile(
            "openid_jwks",
            path,
            lambda content, where: parse_jwks(content, f"openid_jwks: {where}"),
            wall_ms,
            on_problem,
        )

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        return select_key(self._file.read(), kid, algorithm)


class OidcProvider:
    """Checks tokens of the issuers in ``openid_allowed_token_issuers``.

    The unverified issuer of a token only chooses among these. Nothing else of the token decides
    where keys come from. Tokens must expire, and must name an allowed audience.

    Args:
        fetch: gets an issuer's keys.
        on_problem: gets a sentence when keys cannot be fetched or read again.

    Raises ``ConfigError`` when a file with keys is wrong. Issuers are asked for their keys when
    they are needed first.
    """

    name = OAUTH2
    method = TOKEN

    def __init__(
        self,
        config: AuthenticationConfig,
        wall_ms: Callable[[], int],
        fetch: Fetch,
        on_problem: Callable[[str], None],
    ) -> None:
        self._wall_ms = wall_ms
        self._audiences = frozenset(config.openid_allowed_audiences)
        self._claim = config.openid_role_claim
        self._leeway_seconds = config.openid_accepted_time_leeway_seconds
        times = RefreshTimes(
            refresh_ms=config.openid_cache_refresh_after_write_seconds * 1_000,
            expire_ms=config.openid_cache_expiration_seconds * 1_000,
            unknown_kid_ms=config.openid_key_id_cache_miss_refresh_seconds * 1_000,
        )

        def make_keys(issuer: str) -> _IssuerKeys:
            place = config.openid_jwks.get(issuer, "")
            if place and not place.startswith("https://"):
                return _FileKeys(place.removeprefix("file://"), wall_ms, on_problem)
            return FetchedKeys(issuer, place, fetch, times, wall_ms, on_problem)

        self._issuers = {
            issuer: make_keys(issuer) for issuer in config.openid_allowed_token_issuers
        }

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        token = credentials.data.reveal()
        header = read_header(token)
        issuer = read_unverified_claims(token).get("iss")
        keys = self._issuers.get(issuer) if isinstance(issuer, str) else None
        if keys is None:
            raise AuthenticationError(
                "the token's issuer (iss) is not one that openid_allowed_token_issuers has"
            )
        key = await keys.find(header.kid, header.algorithm)
        claims = verify_claims(token, header, key)
        expires_at_ms = expiry_of(
            claims, self._wall_ms(), skew_seconds=self._leeway_seconds, require_expiry=True
        )
        if not audience_matches(claims.get("aud"), self._audiences):
            raise AuthenticationError(
                "the token is for another service: its aud has nothing of openid_allowed_audiences"
            )
        return Identity(
            role_of(claims, self._claim),
            OAUTH2,
            expires_at_ms,
            credential_id=credential_id_of(claims),
            limits=limits_of(claims),
        )
