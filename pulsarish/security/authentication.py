"""Authentication: from what a caller shows to who it is."""

from __future__ import annotations

from typing import Protocol

from pulsarish.security.credentials import Certificate, Credentials
from pulsarish.security.identity import UNCHECKED, Identity

__all__ = ["Authenticator", "NoAuthentication"]


class Authenticator(Protocol):
    """Decides who a caller is."""

    @property
    def enabled(self) -> bool:
        """Whether callers are checked. If not, every caller is ``UNCHECKED``."""
        ...

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        """Return who shows these credentials.

        Raises ``AuthenticationError``, whose text is for the peer: which method, what is wrong
        with the credential and what to do, never the credential itself. Raises
        ``ServiceNotReady`` when the outcome cannot be known now.
        """
        ...

    def is_revoked(self, identity: Identity) -> bool:
        """Return whether what was accepted before is revoked now."""
        ...


class NoAuthentication:
    """The authenticator of a process that does not check its callers."""

    enabled = False

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        return UNCHECKED

    def is_revoked(self, identity: Identity) -> bool:
        return False
