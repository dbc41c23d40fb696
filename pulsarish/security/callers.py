"""Who a caller is, on every port: authentication, and proxies that speak for others."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Collection
from dataclasses import dataclass, replace
from typing import Final

from pulsarish.model.errors import AuthenticationError, PulsarishError
from pulsarish.security.authentication import Authenticator
from pulsarish.security.credentials import NO_CREDENTIALS, Caller, Certificate, Credentials, Secret
from pulsarish.security.identity import UNCHECKED, Identity

__all__ = ["Callers", "Original", "refusal_text"]

REFUSED: Final = "AuthenticationError: "


@dataclass(frozen=True, slots=True)
class Original:
    """The client for which a proxy says that it speaks."""

    role: str = ""
    credentials: Credentials = NO_CREDENTIALS


NO_ORIGINAL: Final = Original()
_OTHER: Final = "other"
_METHODS: Final = ("token", "basic", "tls", "oauth2", "anonymous", "none", _OTHER)


def refusal_text(error: PulsarishError) -> str:
    """Return the text with which a stream ends whose client did not prove who it is.

    Clients know it by its beginning.
    """
    return f"{REFUSED}{error}" if isinstance(error, AuthenticationError) else str(error)


class Callers:
    """Authenticates the callers of a broker.

    A role of ``proxy_roles`` is a proxy: it must name the role for which it speaks, and both need
    each permission. No other role may name one (``proxyRoles`` of Apache Pulsar).

    Args:
        authenticator: decides who a caller is.
        proxy_roles: roles of proxies.
        checks_original: whether a proxy must pass on the credentials of its client, which are
            checked as well (``authenticateOriginalAuthData``).
    """

    def __init__(
        self,
        authenticator: Authenticator,
        *,
        proxy_roles: Collection[str] = (),
        checks_original: bool = False,
    ) -> None:
        self._authenticator = authenticator
        self._proxy_roles = frozenset(proxy_roles)
        self._checks_original = checks_original
        self.is_revoked = authenticator.is_revoked
        self.successes = dict.fromkeys(_METHODS, 0)
        """Authentications by method."""
        self.failures = dict.fromkeys(_METHODS, 0)
        """Refused authentications by method, as the caller names it."""

    @property
    def are_checked(self) -> bool:
        """Whether callers are authenticated. If not, every caller is ``UNCHECKED``."""
        return self._authenticator.enabled

    async def identify(
        self,
        credentials: Credentials,
        certificate: Certificate | None = None,
        original: Original = NO_ORIGINAL,
    ) -> Identity:
        """Return who a caller is. Raises ``AuthenticationError``, ``ServiceNotReady``."""
        if not self._authenticator.enabled:
            return UNCHECKED
        return await self._counted(credentials, self._identity(credentials, certificate, original))

    async def _counted(self, credentials: Credentials, check: Awaitable[Identity]) -> Identity:
        try:
            identity = await check
        except PulsarishError:
            self.failures[_method_of(credentials.method)] += 1
            raise
        self.successes[_method_of(identity.method)] += 1
        return identity

    async def refresh(
        self, credentials: Credentials, certificate: Certificate | None, before: Identity
    ) -> Identity:
        """Return the identity of a connection that shows new credentials, of the same role.

        Behind a proxy they are the proxy's. Raises as ``identify``.
        """
        found = await self._counted(
            credentials, self._authenticator.authenticate(credentials, certificate)
        )
        if found.role != (before.proxy_role or before.role):
            raise AuthenticationError(
                f"the new credentials are those of role {found.role!r}, and the connection belongs "
                f"to role {before.proxy_role or before.role!r}; open another one"
            )
        if not before.proxy_role:
            return found
        if not self._checks_original:
            return replace(before, expires_at_ms=found.expires_at_ms)
        # Those of the client were checked, too, and did not change.
        ends = [each.expires_at_ms for each in (before, found) if each.expires_at_ms]
        return replace(before, expires_at_ms=min(ends) if ends else 0)

    async def identify_caller(self, caller: Caller) -> Identity:
        """Return who the caller of a stream or call is.

        Raises ``AuthenticationError``, ``ServiceNotReady``.
        """
        return await self.identify(caller.credentials, caller.certificate)

    async def identify_request(
        self, header: str, certificate: Certificate | None, original_role: str
    ) -> Identity:
        """Return who sent an HTTP request. Raises ``AuthenticationError``.

        Args:
            header: of the name Authorization; empty when it is missing.
            original_role: the header X-Original-Principal of proxies.
        """
        if not self._authenticator.enabled:
            return UNCHECKED
        return await self.identify(_of_header(header), certificate, Original(original_role))

    async def _identity(
        self, credentials: Credentials, certificate: Certificate | None, original: Original
    ) -> Identity:
        identity = await self._authenticator.authenticate(credentials, certificate)
        if identity.role not in self._proxy_roles:
            if original != NO_ORIGINAL:
                raise AuthenticationError(
                    f"role {identity.role!r} speaks for another one, and is no proxy; add it to "
                    "proxy_roles of the broker"
                )
            return identity
        if not original.role:
            raise AuthenticationError(
                f"role {identity.role!r} is in proxy_roles, and does not say for which role it "
                "speaks; a proxy sends the role of its client"
            )
        if original.role in self._proxy_roles:
            raise AuthenticationError(
                f"proxy {identity.role!r} speaks for role {original.role!r}, which is a proxy, too"
            )
        if self._checks_original:
            checked = await self._authenticator.authenticate(original.credentials, None)
            if checked.role != original.role:
                raise AuthenticationError(
                    f"proxy {identity.role!r} speaks for role {original.role!r}, and passed on "
                    f"credentials of role {checked.role!r}"
                )
            ends = [each.expires_at_ms for each in (identity, checked) if each.expires_at_ms]
            return replace(
                checked, proxy_role=identity.role, expires_at_ms=min(ends) if ends else 0
            )
        return replace(identity, role=original.role, proxy_role=identity.role)


def _of_header(header: str) -> Credentials:
    """Return the credentials of an Authorization header. Raises ``AuthenticationError``."""
    if not header:
        return NO_CREDENTIALS
    scheme, _, value = header.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer" and value:
        return Credentials("token", Secret(value))
    if scheme.lower() == "basic" and value:
        try:
            return Credentials("basic", Secret(b64decode(value, validate=True)))
        except ValueError:
            raise AuthenticationError(
                "the header Authorization is not Basic with base64 of user:password"
            ) from None
    raise AuthenticationError(
        "the header Authorization must be 'Bearer TOKEN', or 'Basic' and base64 of user:password"
    )


def _method_of(method: str) -> str:
    """Return the method under which a caller is counted: a caller may write anything there."""
    return method if method in _METHODS else "none" if not method else _OTHER
