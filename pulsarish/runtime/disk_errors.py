"""What an operator does about an error of a disk."""

from __future__ import annotations

import errno
from typing import Final

__all__ = ["disk_remedy", "is_full", "named"]

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_FAILING: Final = (errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV)


def named(error: OSError, path: str) -> OSError:
    """Name the file in the error of a call that knew only its descriptor."""
    if error.filename is None:
        error.filename = path
    return error


def is_full(error: BaseException) -> bool:
    """Return whether an error says that a disk is full, which is no damage.

    RocksDB's errors say it in words alone.
    """
    is_ours = isinstance(error, OSError) and error.errno in _FULL
    return is_ours or "no space left" in str(error).lower()


def disk_remedy(error: BaseException) -> str:
    """Return what to do about an error of a disk; empty for any other."""
    if not isinstance(error, OSError):
        return ""
    if is_full(error):
        return "make room on this disk, then start again"
    if error.errno in _FAILING:
        return (
            "the disk or its file system fails: look into the kernel's log (dmesg), and start "
            "again once the disk works; what was acknowledged is read again then. If the data of "
            "a bookie are lost: pulsarish bookies decommission"
        )
    return ""
