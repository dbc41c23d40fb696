"""How a client secures its connections: what it shows to servers, and what it demands of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol

from pulsarish.security.credentials import Credentials
from pulsarish.security.tls import TlsClientConfig

__all__ = ["PLAIN", "ClientSecurity", "CredentialsProvider", "HttpScheme"]

HttpScheme = Literal["", "Bearer", "Basic"]


class CredentialsProvider(Protocol):
    """Gives a client's credentials at each opening of a connection."""

    is_immediate: bool
    """Whether ``credentials`` returns at once: it reads no file and asks no other program."""
    holds_secret: bool
    """Whether it was made with a secret, not with a reference to one."""
    secret_file: str
    """The file of its secret; empty: it has none."""
    http_scheme: HttpScheme
    """How the credentials stand in the header ``Authorization``; empty: they do not."""

    def credentials(self) -> Credentials:
        """Return what the client shows now. May block, in any thread.

        Raises ``AuthenticationError`` that says what is wrong with the source, ``ConnectError``
        when a server that gives credentials cannot be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The security of one client's connections."""

    provider: CredentialsProvider | None = None
    """``None``: the client shows no credentials."""
    tls: TlsClientConfig | None = None
    """``None``: connections are plain."""
    tunnel: str = ""
    """``host:port`` of the proxy that its connections pass by CONNECT of HTTP; empty: none."""


PLAIN: Final = ClientSecurity()
"""No credentials, no TLS."""
