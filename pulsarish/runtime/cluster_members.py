"""What a process shows as a member of its cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock
from pulsarish.security.cluster_key import ClusterKey
from pulsarish.security.credentials import CredentialsSource, no_credentials
from pulsarish.security.membership import MemberKind

__all__ = ["member_credentials", "read_cluster_key"]

_log: Final = get_logger("security.cluster_key")


def read_cluster_key(path: str, wall_ms: Callable[[], int]) -> ClusterKey:
    """Read the file of ``cluster_key_file``, now and whenever it changes.

    A change that cannot be taken is logged. Raises ``ConfigError``.
    """
    return ClusterKey.read(
        path, wall_ms, lambda problem: _log.error("a cluster key is not taken", reason=problem)
    )


def member_credentials(path: str, role: MemberKind) -> Callable[[Clock], CredentialsSource]:
    """Return what makes the credentials of a member whose option ``cluster_key_file`` is ``path``;
    empty: they are none. It raises ``ConfigError``.
    """

    def make(clock: Clock) -> CredentialsSource:
        return (
            read_cluster_key(path, clock.wall_ms).credentials_of(role) if path else no_credentials
        )

    return make
