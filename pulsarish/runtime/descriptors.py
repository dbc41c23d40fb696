"""The limit of open files.

Every connection takes one, and the process must keep some for its own files.
"""

from __future__ import annotations

import resource
from typing import Final

__all__ = ["connections_limit", "raise_descriptor_limit", "reserved_connections_limit"]

_RESERVE_MIN: Final = 64
_RESERVE_MAX: Final = 1_024
"""Open files kept for the process itself: journal, entry logs, RocksDB's tables, connections that
it makes, and its HTTP port.
"""


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the most that the system allows this process.

    The default of shells, 1,024, is for old programs.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_limit(wanted: int = 0) -> int:
    """Return how many connections a listener may have open.

    Args:
        wanted: the configured limit; 0: as many as the limit of open files allows.

    Returns:
        The limit of open files without a reserve of a quarter (64 to 1,024), or ``wanted`` if that
        is less.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = max(soft - _reserve(soft), 1)
    return min(wanted, allowed) if wanted else allowed


def reserved_connections_limit() -> int:
    """Return how many connections the HTTP listeners of a process may have open.

    It is half of the reserve, so that clients of other listeners cannot take what health checks
    need.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _reserve(soft) // 2


def _reserve(limit: int) -> int:
    return min(max(limit // 4, _RESERVE_MIN), _RESERVE_MAX)
