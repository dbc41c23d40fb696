"""Who may call a bookie, and what each may do there."""

from __future__ import annotations

from typing import Final

from pulsarish.model.errors import AuthorizationError
from pulsarish.security.cluster_key import ClusterKey, Member
from pulsarish.security.credentials import Caller
from pulsarish.security.membership import Membership

__all__ = ["PERMISSIONS", "Access", "check_ledger", "may_call"]

_OWNERS: Final = frozenset({"broker", "operator"})
_REPAIRERS: Final = _OWNERS | {"bookie", "autorecovery"}
"""A bookie can host auto-recovery."""
_AUDITORS: Final = _REPAIRERS | {"auditor"}
_READERS: Final = _AUDITORS | {"reader"}

PERMISSIONS: Final[dict[str, frozenset[str]]] = {
    "bookie.add": _REPAIRERS,
    "bookie.read": _READERS,
    "bookie.fence": _REPAIRERS,
    "bookie.read_lac": _READERS,
    "bookie.write_lacs": _OWNERS,
    "bookie.recovery_read": _REPAIRERS,  # it fences
    "bookie.list_ledgers": _AUDITORS,
    "bookie.list_entries": _AUDITORS,
    "bookie.clear_limbo": _REPAIRERS,
    "bookie.list_trash": _OWNERS | {"auditor"},
    "bookie.change_trash": _OWNERS,
    "bookie.collect_garbage": _OWNERS,
    "bookie.volume": _OWNERS,
    "bookie.add_volume": _OWNERS,
    "bookie.status": _AUDITORS,
}
"""The roles that may use each call and stream. What has no row is for no one."""

_NO_ONE: Final[frozenset[str]] = frozenset()


def may_call(role: str, method: str) -> bool:
    """Return whether the token of a role opens a call or stream."""
    return role in PERMISSIONS.get(method, _NO_ONE)


def check_ledger(member: Member | None, ledger_id: int) -> None:
    """Raise ``AuthorizationError`` for a ledger that a member's token does not name."""
    if member is not None and member.ledgers is not None and ledger_id not in member.ledgers:
        raise AuthorizationError(
            f"the token of this {member.role} does not name ledger {ledger_id}"
        )


class Access:
    """Serves members of the cluster.

    Without ``key`` and ``membership`` it serves everybody. With both, a member needs both.

    Args:
        key: members show a token made with it, and may do what ``PERMISSIONS`` say.
        membership: members show a certificate of this cluster.
    """

    def __init__(self, key: ClusterKey | None, membership: Membership | None) -> None:
        self._key = key
        self._membership = membership

    def check(self, caller: Caller, method: str) -> Member | None:
        """Check that a caller may use a stream or call, and return who it is; ``None``: its token
        is not asked for.

        Raises ``AuthenticationError``, ``AuthorizationError``.
        """
        if refusal := self._certificate_refusal(caller):
            raise AuthorizationError(refusal)
        member = None
        if self._key is not None:
            member = self._key.identify(caller.credentials)
            if not may_call(member.role, method):
                raise AuthorizationError(
                    f"role {member.role!r} of the cluster may not use {method}"
                )
        caller.on_identified()
        return member

    @property
    def ends_streams(self) -> bool:
        """Whether what opened a stream may end while it is open."""
        return self._key is not None or self._membership is not None

    def end_of(self, caller: Caller, member: Member | None) -> str:
        """Return why a stream that was permitted ends now; empty if it stays."""
        refusal = self._certificate_refusal(caller)
        if refusal or self._key is None or member is None:
            return refusal
        return self._key.end_of(member)

    def _certificate_refusal(self, caller: Caller) -> str:
        """Return why the certificate of a caller is no member's, or no longer; empty if it is."""
        return "" if self._membership is None else self._membership.refusal(caller.certificate)
