"""Who may call a bookie."""

from __future__ import annotations

from pulsarish.model.errors import AuthorizationError
from pulsarish.security.cluster_key import ClusterKey
from pulsarish.security.credentials import Caller
from pulsarish.security.membership import MEMBER_KINDS, Membership

__all__ = ["Access"]


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

    def check(self, caller: Caller) -> None:
        """Check that a caller may use streams and calls.

        Raises ``AuthenticationError``, ``AuthorizationError``.
        """
        if refusal := self.certificate_refusal(caller):
            raise AuthorizationError(refusal)
        if self._key is not None:
            role = self._key.identify(caller.credentials).role
            if role not in MEMBER_KINDS:
                raise AuthorizationError(
                    f"role {role!r} is no member of the cluster; members are "
                    f"{', '.join(MEMBER_KINDS)}"
                )
        caller.on_identified()

    @property
    def asks_certificates(self) -> bool:
        return self._membership is not None

    def certificate_refusal(self, caller: Caller) -> str:
        """Return why the certificate of a caller is no member's, or no longer; empty if it is."""
        return "" if self._membership is None else self._membership.refusal(caller.certificate)
