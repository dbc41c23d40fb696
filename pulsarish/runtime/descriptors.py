"""The limit of open files: every connection takes one, and the process must keep some for its own files."""

from __future__ import annotations

import resource
from typing import Final

__all__ = ["connections_limit", "raise_descriptor_limit"]

_RESERVE_MIN: Final = 64
_RESERVE_MAX: Final = 1_024
"""Open files kept for the process itself: journal, entry logs, RocksDB's tables, and connections that it makes."""


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the most that the system allows this process. The default of shells, 1,024, is for old programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_limit(wanted: int = 0) -> int:
    """Return how many connections a listener may have open.

    Args:
        wanted: the configured limit; 0: as many as the limit of open files allows.

    Returns:
        The limit of open files without a reserve of a quarter (64 to 1,024), or ``wanted`` if that is less.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = max(soft - min(max(soft // 4, _RESERVE_MIN), _RESERVE_MAX), 1)
    return min(wanted, allowed) if wanted else allowed
