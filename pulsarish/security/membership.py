"""Which certificates are those of a cluster's own processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, get_args

from pulsarish.security.credentials import Certificate

__all__ = ["MEMBER_KINDS", "MemberKind", "Membership", "member_uri"]

MemberKind = Literal["bookie", "broker", "autorecovery", "operator"]
MEMBER_KINDS: Final = get_args(MemberKind)
"""The kinds of processes that may talk to bookies."""
_SCHEME: Final = "URI:pulsarish://"


def member_uri(cluster: str, kind: str, name: str = "") -> str:
    """Return the name of a cluster's process in its certificate: ``pulsarish://prod/bookie/b1``."""
    return f"pulsarish://{cluster}/{kind}" + (f"/{name}" if name else "")


class Membership:
    """Tells members of a cluster from other clients, by their certificates.

    A member's certificate has the URI ``pulsarish://CLUSTER/KIND`` or ``pulsarish://CLUSTER/KIND/
    NAME`` with one of ``MEMBER_KINDS``, or its common name is one of the allowed roles. Without a
    cluster and roles, every certificate that TLS has verified is a member's.

    Args:
        cluster: the cluster in the URIs; empty: no URI makes a member.
        roles: common names.
        wall_ms: the time, for certificates that expire while their connection is open.
    """

    def __init__(self, cluster: str, roles: Sequence[str], wall_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._roles = frozenset(roles)
        self._wall_ms = wall_ms

    def refusal(self, certificate: Certificate | None) -> str:
        """Return why a peer is no member; empty when it is one."""
        if certificate is None:
            return "this process takes only members of its cluster, which show a certificate"
        if self._wall_ms() >= certificate.expires_at_ms:
            return f"the certificate of {certificate.common_name!r} has expired; renew it"
        if not self._cluster and not self._roles:
            return ""
        if certificate.common_name and certificate.common_name in self._roles:
            return ""
        if self._cluster and any(self._is_member(name) for name in certificate.names):
            return ""
        return (
            f"the certificate of {certificate.common_name!r} is that of no member of this cluster: "
            "it needs a name as tls_cluster_name says, or a common name of tls_allowed_roles"
        )

    def _is_member(self, name: str) -> bool:
        if not name.startswith(_SCHEME):
            return False
        cluster, _, rest = name.removeprefix(_SCHEME).partition("/")
        return cluster == self._cluster and rest.partition("/")[0] in MEMBER_KINDS
