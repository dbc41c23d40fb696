"""The providers of a process, in order: who shows these credentials."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Final

from pulsarish.model.errors import AuthenticationError, ConfigError, PulsarishError
from pulsarish.security.authentication import NoAuthentication
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import Certificate, Credentials
from pulsarish.security.identity import Identity
from pulsarish.security.provider import Fetch, Offload, Provider
from pulsarish.security.provider_names import BASIC, BUILT_IN, OAUTH2, TLS, TOKEN, provider_names
from pulsarish.security.revocation import Revocations
from pulsarish.security.roles import role_fault

__all__ = ["ProviderChain", "make_authenticator"]

_NO_METHODS: Final = ("", "none")
"""What Apache Pulsar's clients without authentication send."""
_ANONYMOUS: Final = "anonymous"


class ProviderChain:
    """Asks the providers of a client's method, in order. The first that accepts decides.

    A client that names no method is known by its certificate, if ``tls`` is a provider and there is
    one. Otherwise it gets the anonymous role, or is refused. A credential that was refused never
    becomes anonymous.

    Args:
        revocations: what is refused although a provider accepts it.
        on_problem: gets a sentence when a provider fails with an unexpected error.
    """

    enabled: Final = True

    def __init__(
        self,
        providers: Sequence[Provider],
        revocations: Revocations,
        anonymous_role: str,
        on_problem: Callable[[str], None],
    ) -> None:
        self.revocations = revocations
        self._providers = providers
        self._anonymous_role = anonymous_role
        self._on_problem = on_problem
        self.methods: Final = tuple(dict.fromkeys(each.method for each in providers))
        """What clients may name, in order."""

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        """Return who shows these credentials.

        Raises ``AuthenticationError``; a retryable error when the outcome cannot be known now, such
        as ``ServiceNotReady`` when an issuer's keys cannot be fetched.
        """
        identity = await self._identify(credentials, certificate)
        if self.is_revoked(identity):
            raise AuthenticationError(
                f"{identity.method}: this credential or role is revoked; ask for a new one"
            )
        return identity

    def is_revoked(self, identity: Identity) -> bool:
        return self.revocations.is_revoked(identity)

    async def _identify(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        method = credentials.method
        if method in _NO_METHODS:
            if credentials.data:
                raise AuthenticationError(
                    f"a credential came without its method; send one of {self._accepted()}"
                )
            if certificate is None or TLS not in self.methods:
                return self._anonymous()
            method = TLS
        providers = [each for each in self._providers if each.method == method]
        if not providers:
            raise AuthenticationError(
                f"the method {method[:64]!a} is not accepted here; use {self._accepted()}"
            )
        reasons = []
        for provider in providers:
            try:
                return await self._ask(provider, credentials, certificate)
            except AuthenticationError as error:
                reasons.append(f"{provider.name}: {error}")
        raise AuthenticationError("; ".join(reasons))

    async def _ask(
        self, provider: Provider, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        try:
            identity = await provider.authenticate(credentials, certificate)
            fault = role_fault(identity.role)
        except PulsarishError:
            raise
        except Exception as error:  # noqa: BLE001  # a provider's defect denies one caller
            # Only the kind of the error: its text may hold what the caller sent.
            self._on_problem(f"the provider {provider.name} failed with {type(error).__name__}")
            raise AuthenticationError("the check failed; see the server's log") from None
        if fault:
            raise AuthenticationError(f"the role {fault}")
        return identity

    def _anonymous(self) -> Identity:
        if not self._anonymous_role:
            raise AuthenticationError(f"no credentials were sent; use {self._accepted()}")
        return Identity(self._anonymous_role, _ANONYMOUS)

    def _accepted(self) -> str:
        return ", ".join(self.methods)


def make_authenticator(
    config: AuthenticationConfig,
    *,
    wall_ms: Callable[[], int],
    offload: Offload,
    fetch: Fetch,
    salt: bytes,
    on_problem: Callable[[str], None],
) -> ProviderChain | NoAuthentication:
    """Return what checks the callers of a process.

    Args:
        wall_ms: milliseconds since the epoch.
        offload: runs a function in another thread.
        fetch: gets the content behind an https URL, for the keys of issuers.
        salt: 16 random bytes or more of this process.
        on_problem: gets a sentence for the log when a file or key cannot be read again, or a
            provider fails.

    Raises ``ConfigError`` that names option, file and remedy.
    """
    config.validate()
    if not config.authentication_enabled:
        return NoAuthentication()
    providers: list[Provider] = []
    for name in provider_names(config.authentication_providers):
        provider = _make_provider(name, config, wall_ms, offload, fetch, salt, on_problem)
        for other in providers:
            both_built_in = name in BUILT_IN and other.name in BUILT_IN
            if provider.name == other.name or (
                provider.method == other.method and not both_built_in
            ):
                raise ConfigError(
                    f"authentication_providers: {name} has the name {provider.name} and the method "
                    f"{provider.method}, which {other.name} has, too; give it others"
                )
        providers.append(provider)
    return ProviderChain(
        providers,
        Revocations(config.revocation_file, wall_ms, on_problem),
        config.anonymous_user_role,
        on_problem,
    )


def _make_provider(
    name: str,
    config: AuthenticationConfig,
    wall_ms: Callable[[], int],
    offload: Offload,
    fetch: Fetch,
    salt: bytes,
    on_problem: Callable[[str], None],
) -> Provider:
    # Each imports the libraries that it needs, which other processes do not pay for.
    if name == TOKEN:
        from pulsarish.security.token_provider import TokenProvider

        return TokenProvider(config, wall_ms)
    if name == BASIC:
        from pulsarish.security.basic_provider import BasicProvider

        return BasicProvider(config, wall_ms, offload, salt, on_problem)
    if name == TLS:
        from pulsarish.security.certificate_provider import CertificateProvider

        return CertificateProvider(config, wall_ms)
    if name == OAUTH2:
        from pulsarish.security.oidc_provider import OidcProvider

        return OidcProvider(config, wall_ms, fetch, on_problem)
    return _load_provider(name, config, wall_ms)


def _load_provider(name: str, config: AuthenticationConfig, wall_ms: Callable[[], int]) -> Provider:
    module, _, attribute = name.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)(config, wall_ms)
    except ConfigError:
        raise
    except Exception as error:  # whatever the operator's own code raises
        raise ConfigError(
            f"authentication_providers: {name} cannot be made: {type(error).__name__}: {error}"
        ) from error
    for member in ("name", "method"):
        value = getattr(made, member, None)
        if not isinstance(value, str) or not value.isidentifier():
            raise ConfigError(
                f"authentication_providers: {name} needs an attribute {member} that is one word"
            )
    provider: Provider = made
    return provider
