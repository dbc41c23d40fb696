"""Who a caller is, once a provider has checked it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["UNCHECKED", "Identity"]


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


UNCHECKED: Final = Identity("")
"""Every caller of a process without authentication."""
