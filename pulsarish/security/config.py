"""Options of authentication: Apache Pulsar's names in snake case, where it has the option."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from pulsarish.model.errors import ConfigError
from pulsarish.security.provider_names import BASIC, OAUTH2, TLS, TOKEN, provider_names
from pulsarish.security.roles import compile_role_pattern, role_fault

__all__ = ["SECRET_OPTIONS", "AuthenticationConfig"]

SECRET_OPTIONS: Final = frozenset({"token_secret_key", "token_secret_keys"})
"""Options whose values may be secrets (``data:``): no answer, log or page may show them."""


class AuthenticationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a process finds out who its callers are.

    The class of a process's options extends it, so that the options stand at its top level.
    """

    authentication_enabled: Annotated[
        bool,
        Meta(description="Callers must say who they are. Without, everyone may do everything."),
    ] = False
    authentication_providers: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "What checks callers, in this order: token, basic, tls, oauth2, or module:Class of "
                "your own. Apache Pulsar's class names of these are taken, too."
            )
        ),
    ] = ()
    anonymous_user_role: Annotated[
        str, Meta(description="Role of callers that show no credentials; empty: they are refused.")
    ] = ""
    revocation_file: Annotated[
        str,
        Meta(
            description=(
                "File with the id (jti) of a token, or role:NAME, on each line: these are refused. "
                "It is read again when it changes; empty: none."
            )
        ),
    ] = ""

    # Tokens.
    token_secret_key: Annotated[
        str,
        Meta(
            description=(
                "Secret that signs tokens (HS256, HS384, HS512), at least 32 bytes: file:///path, "
                "a path, data:;base64,... or env:NAME."
            )
        ),
    ] = ""
    token_public_key: Annotated[
        str,
        Meta(
            description=(
                "Public key of the pair that signs tokens (RS, PS, ES, EdDSA), in DER or PEM, "
                "written like token_secret_key."
            )
        ),
    ] = ""
    token_public_alg: Annotated[
        str,
        Meta(
            description=(
                "The only algorithm of tokens for token_public_key, such as RS256; empty: all that "
                "fit the kind of the key."
            )
        ),
    ] = ""
    token_secret_keys: Annotated[
        dict[str, str],
        Meta(
            description=(
                "More secrets, for rotation: the key id (kid) in the header of tokens, and the "
                "secret, written like token_secret_key."
            )
        ),
    ] = {}
    token_public_keys: Annotated[
        dict[str, str],
        Meta(
            description=(
                "More public keys, for rotation: the key id (kid) in the header of tokens, and the "
                "key, written like token_secret_key."
            )
        ),
    ] = {}
    token_auth_claim: Annotated[
        str, Meta(min_length=1, description="The claim of tokens that names the role.")
    ] = "sub"  # noqa: S105  # the name of a claim
    token_audience_claim: Annotated[
        str,
        Meta(
            description=(
                "The claim of tokens that names for whom they are; empty: aud, if token_audience "
                "is set."
            )
        ),
    ] = ""
    token_audience: Annotated[
        str,
        Meta(
            description=(
                "The audience that tokens must name, alone or in a list; empty: any, or none."
            )
        ),
    ] = ""
    token_allowed_clock_skew_seconds: Annotated[
        int,
        Meta(ge=0, le=3_600, description="How much the clock of the tokens' maker may be off."),
    ] = 0
    token_require_expiry: Annotated[
        bool, Meta(description="Tokens that never expire are refused.")
    ] = False

    # Passwords.
    basic_auth_conf: Annotated[
        str,
        Meta(
            description=(
                "File with a user on each line, name:hash with bcrypt, as pulsarish passwords hash "
                "and htpasswd -B write them. It is read again when it changes."
            )
        ),
    ] = ""

    # Certificates.
    tls_role_source: Annotated[
        Literal["CN", "SAN:URI", "SAN:DNS"],
        Meta(
            description=(
                "Which name of a client's certificate is its role: the common name, or an "
                "alternative name of this kind."
            )
        ),
    ] = "CN"
    tls_role_pattern: Annotated[
        str,
        Meta(
            description=(
                "Regular expression that the whole name must match; its group, if it has one, is "
                "the role. Empty: the whole name."
            )
        ),
    ] = ""

    # OAuth2 and OpenID Connect.
    openid_allowed_token_issuers: Annotated[
        tuple[str, ...],
        Meta(description="Issuers (iss) of access tokens that are accepted, letter by letter."),
    ] = ()
    openid_allowed_audiences: Annotated[
        tuple[str, ...],
        Meta(description="Audiences (aud) of which an access token must name one."),
    ] = ()
    openid_jwks: Annotated[
        dict[str, str],
        Meta(
            description=(
                "Where an issuer's keys (JWKS) are: the issuer, and an https URL or a file. "
                "Issuers that are not named here are asked at /.well-known/openid-configuration."
            )
        ),
    ] = {}
    openid_role_claim: Annotated[
        str, Meta(min_length=1, description="The claim of access tokens that names the role.")
    ] = "sub"
    openid_accepted_time_leeway_seconds: Annotated[
        int, Meta(ge=0, le=3_600, description="How much the clock of an issuer may be off.")
    ] = 0
    openid_cache_refresh_after_write_seconds: Annotated[
        int, Meta(ge=1, description="Keys of an issuer older than this are fetched again.")
    ] = 64_800
    openid_cache_expiration_seconds: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Keys of an issuer that could not be fetched again for this long are dropped."
            ),
        ),
    ] = 86_400
    openid_key_id_cache_miss_refresh_seconds: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Tokens with an unknown key id (kid) make the keys of their issuer be fetched at "
                "most this often."
            ),
        ),
    ] = 300

    def validate(self) -> None:
        """Check that the options fit each other, without reading any file.

        Raises ``ConfigError``.
        """
        names = provider_names(self.authentication_providers)
        if self.anonymous_user_role and (fault := role_fault(self.anonymous_user_role)):
            raise ConfigError(f"anonymous_user_role {fault}; give it another name")
        if not self.authentication_enabled:
            return
        if not names:
            raise ConfigError(
                "authentication_enabled = true, but authentication_providers is empty; set it to "
                "what your clients use, such as token"
            )
        for name, check in (
            (TOKEN, self._check_token),
            (BASIC, self._check_basic),
            (TLS, self._check_tls),
            (OAUTH2, self._check_oauth2),
        ):
            if name in names:
                check()

    def _check_token(self) -> None:
        if not (
            self.token_secret_key
            or self.token_public_key
            or self.token_secret_keys
            or self.token_public_keys
        ):
            raise ConfigError(
                "authentication_providers has token, but there is no key: set token_secret_key or "
                "token_public_key; pulsarish tokens create-secret-key makes one"
            )
        if self.token_public_alg and not self.token_public_key:
            raise ConfigError(
                "token_public_alg is set, but token_public_key is not: set both or none"
            )
        if self.token_audience_claim and not self.token_audience:
            raise ConfigError(
                f"token_audience_claim = {self.token_audience_claim} is set, but token_audience is "
                "not: set both or none"
            )
        both = self.token_secret_keys.keys() & self.token_public_keys.keys()
        for kid in sorted(both):
            raise ConfigError(
                f"token_secret_keys and token_public_keys both have the key id {kid}; give one of "
                "them another"
            )
        for option in ("token_secret_keys", "token_public_keys"):
            if "" in getattr(self, option):
                raise ConfigError(f"{option} has an empty key id; name it, or use {option[:-1]}")

    def _check_basic(self) -> None:
        if not self.basic_auth_conf:
            raise ConfigError(
                "authentication_providers has basic, but basic_auth_conf is not set: name a file "
                "with users, which pulsarish passwords hash makes"
            )

    def _check_tls(self) -> None:
        compile_role_pattern(self.tls_role_pattern)

    def _check_oauth2(self) -> None:
        if not self.openid_allowed_token_issuers:
            raise ConfigError(
                "authentication_providers has oauth2, but openid_allowed_token_issuers is empty: "
                "name the issuer of your access tokens"
            )
        if not self.openid_allowed_audiences or "" in self.openid_allowed_audiences:
            raise ConfigError(
                "authentication_providers has oauth2, but openid_allowed_audiences is empty or has "
                "an empty name: name the audience of your access tokens, or tokens for other "
                "services would be accepted"
            )
        for issuer in self.openid_jwks:
            if issuer not in self.openid_allowed_token_issuers:
                raise ConfigError(
                    f"openid_jwks names the issuer {issuer}, which openid_allowed_token_issuers "
                    "does not have; both must be the same letter by letter"
                )
        for issuer in self.openid_allowed_token_issuers:
            if issuer not in self.openid_jwks and not issuer.startswith("https://"):
                raise ConfigError(
                    f"openid_allowed_token_issuers has {issuer}, which is no https URL: its keys "
                    "cannot be found by it; name them in openid_jwks"
                )
        for issuer, place in self.openid_jwks.items():
            if place.startswith("http://"):
                raise ConfigError(
                    f"openid_jwks of {issuer} is {place}: keys are fetched by https only; use "
                    "https:// or a file"
                )
        if self.openid_cache_expiration_seconds < self.openid_cache_refresh_after_write_seconds:
            raise ConfigError(
                "openid_cache_expiration_seconds = "
                f"{self.openid_cache_expiration_seconds} is less than "
                "openid_cache_refresh_after_write_seconds = "
                f"{self.openid_cache_refresh_after_write_seconds}: keys would expire before they "
                "are fetched again"
            )
