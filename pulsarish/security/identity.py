"""Who a caller is, once a provider has checked it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pulsarish.security.limits import Limits

__all__ = ["NO_ORIGIN", "UNCHECKED", "Identity", "Origin"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a caller came from."""

    peer: str = ""
    """``host:port`` of the connection; behind a relay that of the relay."""
    face: str = ""
    """The port's protocol: ``binary``, ``grpc``, ``framed``, ``http``."""

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0]


NO_ORIGIN: Final = Origin()


@dataclass(frozen=True, slots=True)
class Identity:
    """A checked caller. Permissions are granted to ``role``.

    With ``proxy_role``, a proxy of that role speaks for ``role``: both need the permission.
    """

    role: str
    """Empty only for ``UNCHECKED``."""
    method: str = ""
    """The provider that checked it: ``token``, ``basic``, ``tls``, ``oauth2``, ``anonymous``."""
    expires_at_ms: int = 0
    """When the rights end, in milliseconds since the epoch; 0: never."""
    proxy_role: str = ""
    credential_id: str = ""
    """The id of the token (``jti``), for revocation and audit; empty when it has none."""
    wider_ids: tuple[str, ...] = ()
    """The ids of the tokens from which this one was narrowed. Each revokes it, too."""
    proxy_ids: tuple[str, ...] = ()
    """The ids of the proxy's token and of those it was narrowed from, where the client has a token
    of its own. Each revokes it, too.
    """
    parts: tuple[Identity, ...] = field(default=(), compare=False)
    """Behind a proxy, what was checked: the proxy, and its client if that showed credentials.

    Each can be renewed by itself.
    """
    limits: tuple[Limits, ...] = ()
    """What the token limits itself to. All of them hold, whatever the role may do."""
    origin: Origin = field(default=NO_ORIGIN, compare=False)
    """For audit and for limits of a token to networks."""


UNCHECKED: Final = Identity("")
"""Every caller of a process without authentication."""
