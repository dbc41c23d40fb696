"""Who may call a bookie."""

from __future__ import annotations

from typing import Final

from pulsarish.model.errors import AuthorizationError
from pulsarish.security.cluster_key import ClusterKey, MemberRole
from pulsarish.security.credentials import Caller
from pulsarish.security.membership import Membership

__all__ = ["Access"]

_MEMBERS: Final = frozenset(
    (MemberRole.BROKER, MemberRole.BOOKIE, MemberRole.AUTORECOVERY, MemberRole.TOOL)
)
_READS: Final = frozenset(("bookie.read", "bookie.read_lac", "bookie.status"))
"""What a reader may call."""


class Access:
    """Serves members of the cluster.

    Without ``key`` and ``membership`` it serves everybody. With both, a member needs both.

    Args:
        key: members show a token made with it.
        membership: members show a certificate of this cluster.
    """

    def __init__(self, key: ClusterKey | None, membership: Membership | None) -> None:
        self._key = key
        self._membership = membership
        self.refusals_count = 0

    def check(self, method: str, caller: Caller) -> None:
        """Check that a caller may use a stream or call.

        Raises ``AuthenticationError``, ``AuthorizationError``.
        """
        try:
            if self._membership is not None:
                refusal = self._membership.refusal(caller.certificate)
                if refusal:
                    raise AuthorizationError(refusal)
            if self._key is None:
                return
            role = self._key.identify(caller.credentials).role
            if role in _MEMBERS or (role == MemberRole.READER and method in _READS):
                return
            raise AuthorizationError(f"role {role!r} may not call {method} of a bookie")
        except Exception:
            self.refusals_count += 1
            raise
