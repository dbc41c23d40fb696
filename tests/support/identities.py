"""An authenticator for tests: the credential is ``ROLE`` or ``ROLE@END``, in milliseconds."""

from __future__ import annotations

from pulsarish.model.errors import AuthenticationError
from pulsarish.security.credentials import Certificate, Credentials, Secret
from pulsarish.security.identity import Identity

__all__ = ["NamedRoles", "shown"]


def shown(role: str, end_ms: int = 0) -> Credentials:
    return Credentials("token", Secret(f"{role}@{end_ms}" if end_ms else role))


class NamedRoles:
    """Believes everybody but those without a role, ``wrong``, and those whose time is over."""

    enabled = True

    def __init__(self) -> None:
        self.revoked: set[str] = set()

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        role, _, end = credentials.data.reveal().decode().partition("@")
        if credentials.method != "token" or role in ("", "wrong"):
            raise AuthenticationError("no token that is known here")
        return Identity(role, "token", int(end or 0))

    def is_revoked(self, identity: Identity) -> bool:
        return identity.role in self.revoked
