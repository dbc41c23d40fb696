"""A provider: it checks credentials of one method. And what providers get from their process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from pulsarish.security.credentials import Certificate, Credentials
from pulsarish.security.identity import Identity

__all__ = ["Fetch", "Offload", "Provider"]

Offload = Callable[[Callable[[], bool]], Awaitable[bool]]
"""Runs a function in another thread. Cancelling the result need not stop the function."""

Fetch = Callable[[str], Awaitable[bytes]]
"""Gets the content behind an https URL. It verifies the server, follows redirects to https only,
and bounds size and time. Raises ``PulsarishError`` or ``OSError``.
"""


class Provider(Protocol):
    """Checks the credentials of one method.

    A provider of one's own is a class with these members, which ``authentication_providers`` names
    as ``module:Class``. It is made with the process's options and its clock::

        class BadgeProvider:
            name = "badge"
            method = "badge"

            def __init__(
                self, config: AuthenticationConfig, wall_ms: Callable[[], int]
            ) -> None:
                self._roles = read_badges()

            async def authenticate(
                self, credentials: Credentials, certificate: Certificate | None
            ) -> Identity:
                role = self._roles.get(credentials.data.reveal())
                if role is None:
                    raise AuthenticationError("the badge is unknown; ask for a new one")
                return Identity(role, self.name)

    Raise ``ConfigError`` in the constructor for wrong options. Any error in ``authenticate`` is a
    denial. It runs in the event loop, so it must not block.
    """

    name: str
    """The provider's name, for errors, audit and ``Identity.method``."""
    method: str
    """Apache Pulsar's ``auth_method_name`` that clients send."""

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        """Return who shows these credentials. Raises ``AuthenticationError``."""
        ...
