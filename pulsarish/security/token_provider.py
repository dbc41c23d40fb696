"""Method ``token``: JSON Web Tokens that are signed with a key of this cluster, as Apache Pulsar's
``AuthenticationProviderToken`` takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pulsarish.model.errors import AuthenticationError
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import Certificate, Credentials
from pulsarish.security.identity import Identity
from pulsarish.security.keys import (
    VerificationKey,
    load_public_key,
    load_public_keys,
    load_secret_key,
    select_key,
)
from pulsarish.security.limits import limits_of
from pulsarish.security.narrowed_token import verify_chain
from pulsarish.security.provider_names import TOKEN
from pulsarish.security.signed_token import (
    audience_matches,
    credential_id_of,
    expiry_of,
    role_of,
)

__all__ = ["TokenProvider"]


class TokenProvider:
    """Checks tokens with the keys of ``token_secret_key``, ``token_public_key`` and, by key id, of
    ``token_secret_keys`` and ``token_public_keys``.

    For a rotation, add the new key under its id, give out tokens that name the id, and remove the
    old key when the last token that it signed has expired.

    Args:
        keys: the keys, instead of those that the options name.

    Raises ``ConfigError`` for a key that is missing, unreadable, too weak or of the wrong kind.
    """

    name = TOKEN
    method = TOKEN

    def __init__(
        self,
        config: AuthenticationConfig,
        wall_ms: Callable[[], int],
        keys: Sequence[VerificationKey] | None = None,
    ) -> None:
        self._wall_ms = wall_ms
        self._claim = config.token_auth_claim
        self._audience = config.token_audience
        self._audience_claim = config.token_audience_claim or "aud"
        self._skew_seconds = config.token_allowed_clock_skew_seconds
        self._require_expiry = config.token_require_expiry
        self._keys = _load_keys(config) if keys is None else keys

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        return self.check(credentials.data.reveal())

    def check(self, token: bytes) -> Identity:
        """Return whom a token names. Raises ``AuthenticationError``."""
        chain = verify_chain(
            token, lambda header: select_key(self._keys, header.kid, header.algorithm)
        )
        claims = chain[0]
        now_ms = self._wall_ms()
        ends_ms = [
            expiry_of(
                each,
                now_ms,
                skew_seconds=self._skew_seconds,
                require_expiry=self._require_expiry and each is claims,
            )
            for each in chain
        ]
        if self._audience and not audience_matches(
            claims.get(self._audience_claim), (self._audience,)
        ):
            raise AuthenticationError(
                f"the token's {self._audience_claim} does not name this cluster's token_audience; "
                "make one with this audience"
            )
        return Identity(
            role_of(claims, self._claim),
            TOKEN,
            min((each for each in ends_ms if each), default=0),
            credential_id=credential_id_of(chain[-1]),
            wider_ids=tuple(filter(None, map(credential_id_of, chain[:-1]))),
            limits=tuple(limits for each in chain for limits in limits_of(each)),
        )


def _load_keys(config: AuthenticationConfig) -> list[VerificationKey]:
    keys = []
    if config.token_secret_key:
        keys.append(load_secret_key("token_secret_key", config.token_secret_key))
    if config.token_public_key:
        keys.append(
            load_public_key(
                "token_public_key", config.token_public_key, algorithm=config.token_public_alg
            )
        )
    keys += [
        load_secret_key(f"token_secret_keys[{kid}]", reference, kid)
        for kid, reference in config.token_secret_keys.items()
    ]
    return keys + load_public_keys("token_public_keys", config.token_public_keys)
