"""Method ``tls``: the role is a name in the client's certificate, which TLS has verified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pulsarish.model.errors import AuthenticationError
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import Certificate, Credentials
from pulsarish.security.identity import Identity
from pulsarish.security.provider_names import TLS
from pulsarish.security.roles import compile_role_pattern, role_fault

__all__ = ["CertificateProvider"]

_NAME_CHARS_MAX: Final = 1_024


class CertificateProvider:
    """Takes the role from the common name, or from the only alternative name that fits.

    With several fitting names the order would decide, so such a certificate is refused.
    """

    name = TLS
    method = TLS

    def __init__(self, config: AuthenticationConfig, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._source = config.tls_role_source
        self._pattern = compile_role_pattern(config.tls_role_pattern)

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        if certificate is None:
            raise AuthenticationError(
                "no client certificate was shown; connect with TLS and a certificate of an "
                "authority that this server trusts"
            )
        if self._wall_ms() >= certificate.expires_at_ms:
            raise AuthenticationError("the client certificate has expired; get a new one")
        return Identity(self._role(certificate), TLS, certificate.expires_at_ms)

    def _role(self, certificate: Certificate) -> str:
        roles = {role for name in self._names(certificate) if (role := self._match(name))}
        if len(roles) != 1:
            raise AuthenticationError(
                f"the client certificate has {len(roles) or 'no'} names of the kind {self._source} "
                "that can be its role; it must have one"
            )
        role = roles.pop()
        fault = role_fault(role)
        if fault:
            raise AuthenticationError(f"the role in the client certificate {fault}")
        return role

    def _names(self, certificate: Certificate) -> list[str]:
        if self._source == "CN":
            return [certificate.common_name]
        kind = self._source.removeprefix("SAN:") + ":"
        return [each.removeprefix(kind) for each in certificate.names if each.startswith(kind)]

    def _match(self, name: str) -> str:
        if self._pattern is None:
            return name
        found = self._pattern.fullmatch(name) if len(name) <= _NAME_CHARS_MAX else None
        if found is None:
            return ""
        return (found[1] or "") if self._pattern.groups else found[0]
