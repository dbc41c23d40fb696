"""Who a caller is, on every port: authentication, and proxies that speak for others."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pulsarish.model.errors import AuthenticationError, PulsarishError, TooManyRequests
from pulsarish.security.audit import NO_AUDIT, AuditClass, AuditEvent, Auditor, Disposition
from pulsarish.security.authentication import Authenticator
from pulsarish.security.credentials import NO_CREDENTIALS, Caller, Certificate, Credentials, Secret
from pulsarish.security.failed_attempts import FailedAttempts
from pulsarish.security.identity import NO_ORIGIN, UNCHECKED, Identity, Origin
from pulsarish.security.provider_names import BASIC

__all__ = ["NO_ORIGINAL", "Callers", "Original", "refusal_text"]

REFUSED: Final = "AuthenticationError: "


@dataclass(frozen=True, slots=True)
class Original:
    """The client for which a proxy says that it speaks."""

    role: str = ""
    credentials: Credentials = NO_CREDENTIALS


NO_ORIGINAL: Final = Original()
_OTHER: Final = "other"
_METHODS: Final = ("token", "basic", "tls", "oauth2", "anonymous", "none", _OTHER)
_REFUSED: Final = "refused"
_UNAVAILABLE: Final = "unavailable"
"""The check was not possible now."""
_SLOWED: Final = "slowed_down"
"""Too many attempts from the address had failed, so this one was not checked."""
_REASONS: Final = (_REFUSED, _UNAVAILABLE, _SLOWED)


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
        audit: gets a record of each authentication.
        attempts: slows addresses down whose authentications fail; ``None``: none is.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        *,
        proxy_roles: Collection[str] = (),
        checks_original: bool = False,
        audit: Auditor = NO_AUDIT,
        attempts: FailedAttempts | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._proxy_roles = frozenset(proxy_roles)
        self._checks_original = checks_original
        self._audit = audit
        self._attempts = attempts
        self.is_revoked = authenticator.is_revoked
        self.successes = dict.fromkeys(_METHODS, 0)
        """Authentications by method."""
        self.failures = dict.fromkeys(
            [(method, reason) for method in _METHODS for reason in _REASONS], 0
        )
        """Failed authentications by method, as the caller names it, and reason."""

    @property
    def are_checked(self) -> bool:
        """Whether callers are authenticated. If not, every caller is ``UNCHECKED``."""
        return self._authenticator.enabled

    async def identify(
        self,
        credentials: Credentials,
        certificate: Certificate | None = None,
        original: Original = NO_ORIGINAL,
        origin: Origin = NO_ORIGIN,
    ) -> Identity:
        """Return who a caller is.

        Raises ``AuthenticationError``, ``ServiceNotReady``, and ``TooManyRequests`` for an address
        from which too many attempts failed.
        """
        if not self._authenticator.enabled:
            return replace(UNCHECKED, origin=origin)
        self._check_address(credentials, certificate, origin)
        check = self._identity(credentials, certificate, original, origin)
        return await self._recorded("Logon", credentials.method, check, origin)

    async def _recorded(
        self, activity: str, method: str, check: Awaitable[Identity], origin: Origin
    ) -> Identity:
        """Count and audit an authentication. Raises what ``check`` raises."""
        try:
            identity = replace(await check, origin=origin)
            if not all(limits.permit_address(origin.host) for limits in identity.limits):
                raise AuthenticationError(
                    f"the token of role {identity.role!r} is limited to other networks than that "
                    "of this connection; use it there, or another token"
                )
        except PulsarishError as error:
            is_refused = isinstance(error, AuthenticationError)
            method = _method_of(method)
            self.failures[method, _REFUSED if is_refused else _UNAVAILABLE] += 1
            disposition = Disposition.DENIED if is_refused else Disposition.FAILED
            text = str(error)
            if isinstance(error, TooManyRequests) and self._attempts is not None:
                more = self._attempts.busy(origin.host)
                if more is None:
                    raise
                text += f"; {more} more since the last record of this" if more else ""
            self._note_failure(activity, method, origin, disposition, text)
            raise
        self.successes[_method_of(identity.method)] += 1
        self._audit.note(
            AuditEvent(
                kind=AuditClass.AUTHENTICATION,
                activity=activity,
                identity=identity,
                disposition=Disposition.ALLOWED,
            )
        )
        return identity

    def _note_failure(
        self, activity: str, method: str, origin: Origin, disposition: Disposition, reason: str
    ) -> None:
        self._audit.note(
            AuditEvent(
                kind=AuditClass.AUTHENTICATION,
                activity=activity,
                identity=Identity("", method, origin=origin),
                disposition=disposition,
                reason=reason,
            )
        )

    def _check_address(
        self, credentials: Credentials, certificate: Certificate | None, origin: Origin
    ) -> None:
        """Raise ``TooManyRequests`` for an address from which too many attempts failed.

        The first refusal of a window is recorded. The others are counted, so that no peer can fill
        the audit trail.
        """
        if self._attempts is None or (certificate is not None and not credentials.data):
            return  # TLS has verified a certificate, which no client can guess
        refusal = self._attempts.refusal(origin.host, credentials)
        if refusal is None:
            return
        method = _method_of(credentials.method)
        self.failures[method, _SLOWED] += 1
        if refusal.is_first:
            self._note_failure("Logon", method, origin, Disposition.DENIED, refusal.text)
        raise TooManyRequests(refusal.text)

    async def _authenticated(
        self, credentials: Credentials, certificate: Certificate | None, origin: Origin
    ) -> Identity:
        """Ask the authenticator, and note for the address what came of it."""
        if self._attempts is None:
            return await self._authenticator.authenticate(credentials, certificate)
        check = self._checked(self._attempts, credentials, certificate, origin)
        if credentials.method != BASIC:
            return await check
        # The check of a password goes on when its caller leaves, and holds its place until then.
        running = asyncio.ensure_future(check)
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(running)

    async def _checked(
        self,
        attempts: FailedAttempts,
        credentials: Credentials,
        certificate: Certificate | None,
        origin: Origin,
    ) -> Identity:
        with attempts.checking(origin.host, credentials):
            try:
                identity = await self._authenticator.authenticate(credentials, certificate)
            except AuthenticationError:
                attempts.failed(origin.host, credentials)
                raise
        attempts.succeeded(credentials)
        return identity

    async def refresh(
        self, credentials: Credentials, certificate: Certificate | None, before: Identity
    ) -> Identity:
        """Return the identity of a connection that shows new credentials, of the same role.

        Behind a proxy they are the proxy's or, if those of its client were checked, the client's.
        They move their own end only, and the connection ends with the earlier one. Raises as
        ``identify``.
        """
        self._check_address(credentials, certificate, before.origin)
        check = self._renewed(credentials, certificate, before)
        return await self._recorded("Renew", credentials.method, check, before.origin)

    async def _renewed(
        self, credentials: Credentials, certificate: Certificate | None, before: Identity
    ) -> Identity:
        found = await self._authenticated(credentials, certificate, before.origin)
        parts = before.parts or (before,)
        known = next((part for part in parts if part.role == found.role), None)
        if known is None:
            raise AuthenticationError(
                f"the new credentials are those of role {found.role!r}, and the connection belongs "
                f"to role {before.proxy_role or before.role!r}; open another one"
            )
        if found.limits != known.limits:
            raise AuthenticationError(
                "the new token has other limits than the one that opened the connection; open "
                "another one"
            )
        if not before.proxy_role:
            return found
        return _behind_proxy([found if part is known else part for part in parts], before.role)

    async def identify_caller(self, caller: Caller) -> Identity:
        """Return who the caller of a stream or call is.

        Raises ``AuthenticationError``, ``ServiceNotReady``.
        """
        origin = Origin(caller.address, caller.face)
        identity = await self.identify(caller.credentials, caller.certificate, origin=origin)
        caller.on_identified()
        return identity

    async def identify_request(
        self, header: str, certificate: Certificate | None, original_role: str, peer: str = ""
    ) -> Identity:
        """Return who sent an HTTP request. Raises ``AuthenticationError``.

        Args:
            header: of the name Authorization; empty when it is missing.
            original_role: the header X-Original-Principal of proxies.
            peer: ``host:port`` of the client.
        """
        origin = Origin(peer, "http")
        if not self._authenticator.enabled:
            return replace(UNCHECKED, origin=origin)
        try:
            credentials = _of_header(header)
        except AuthenticationError as error:
            shown = Credentials(_OTHER, Secret(header))
            self._check_address(shown, None, origin)
            if self._attempts is not None:
                self._attempts.failed(origin.host, shown)
            return await self._recorded("Logon", _OTHER, _refused(error), origin)
        return await self.identify(credentials, certificate, Original(original_role), origin)

    async def _identity(
        self,
        credentials: Credentials,
        certificate: Certificate | None,
        original: Original,
        origin: Origin,
    ) -> Identity:
        identity = await self._authenticated(credentials, certificate, origin)
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
            # A failure is that of the proxy's client, and not of the proxy's address.
            checked = await self._authenticator.authenticate(original.credentials, None)
            if checked.role != original.role:
                raise AuthenticationError(
                    f"proxy {identity.role!r} speaks for role {original.role!r}, and passed on "
                    f"credentials of role {checked.role!r}"
                )
            return _behind_proxy([identity, checked], checked.role)
        spoken = _behind_proxy([identity], original.role)
        if self.is_revoked(spoken):
            raise AuthenticationError(f"role {original.role!r} is revoked; ask for a new one")
        return spoken


def _behind_proxy(parts: Sequence[Identity], role: str) -> Identity:
    """Return who a proxy's connection is: the rights end with the first of ``parts`` that ends.

    Args:
        parts: the proxy, and its client if its credentials were checked.
        role: of the client.
    """
    proxy, client = parts[0], parts[-1]
    ends = [part.expires_at_ms for part in parts if part.expires_at_ms]
    return replace(
        client,
        role=role,
        proxy_role=proxy.role,
        expires_at_ms=min(ends) if ends else 0,
        limits=tuple(limits for part in parts for limits in part.limits),
        proxy_ids=() if client is proxy else _ids_of(proxy),
        parts=tuple(parts),
    )


def _ids_of(identity: Identity) -> tuple[str, ...]:
    return tuple(filter(None, (identity.credential_id, *identity.wider_ids)))


async def _refused(error: AuthenticationError) -> Identity:
    raise error


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
