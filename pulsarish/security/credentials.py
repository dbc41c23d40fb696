"""What a peer shows to say who it is, before it is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "ANONYMOUS_CALLER",
    "NO_CREDENTIALS",
    "Caller",
    "Certificate",
    "Credentials",
    "CredentialsSource",
    "Secret",
    "no_credentials",
    "shown_in_connect",
]


class Secret:
    """Bytes that are never printed: a token, a password, a key.

    ``str`` and ``repr`` give stars, so a log line, a metric or a traceback cannot show it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: bytes | str) -> None:
        self._value = value.encode() if isinstance(value, str) else bytes(value)

    def reveal(self) -> bytes:
        """Return the bytes, for the code that checks or sends them."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


_NO_SECRET: Final = Secret(b"")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client sends: Apache Pulsar's ``auth_method_name`` and ``auth_data``."""

    method: str = ""
    """``token``, ``basic``, ``tls``, a name of a provider of one's own; empty: none were sent."""
    data: Secret = _NO_SECRET
    """A JSON Web Token; ``user:password``; empty for ``tls``."""


def shown_in_connect(method: str, data: bytes) -> Credentials:
    """Return what a CONNECT of Apache Pulsar's protocol shows.

    Clients without authentication name the method ``none``.
    """
    if method in ("", "none") and not data:
        return NO_CREDENTIALS
    return Credentials(method, Secret(data))


@dataclass(frozen=True, slots=True)
class Certificate:
    """A peer's certificate, which TLS has verified against the trusted authorities."""

    common_name: str
    names: tuple[str, ...] = ()
    """The subject's alternative names, as ``DNS:host`` or ``URI:uri``."""
    expires_at_ms: int = 0
    """End of validity, in milliseconds since the epoch."""


NO_CREDENTIALS: Final = Credentials()

CredentialsSource = Callable[[], Credentials]
"""Returns what a client shows now. Asked at each opening, because tokens are renewed."""


def no_credentials() -> Credentials:
    return NO_CREDENTIALS


def _ignore() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The peer of one stream or call, as its connection knows it.

    Only ``certificate`` was verified; the rest is what the peer says.
    """

    address: str = ""
    """``host:port`` of the peer."""
    program: str = ""
    """What the peer calls itself; empty when it says nothing."""
    credentials: Credentials = NO_CREDENTIALS
    certificate: Certificate | None = None
    face: str = "grpc"
    """The protocol of the port: ``grpc`` or ``framed``."""
    on_identified: Callable[[], None] = field(default=_ignore, compare=False, repr=False)
    """Called when the process has decided that it serves this caller; perhaps several times."""


ANONYMOUS_CALLER: Final = Caller()
