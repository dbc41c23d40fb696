"""Decide from the free disk space what a bookie still accepts (rule 13), without I/O."""

from __future__ import annotations

import errno
from enum import Enum

from pulsarish.model.units import human_bytes

__all__ = ["SpaceMode", "check_room_to_start", "next_mode", "registered_free_bytes", "space_reason"]

# a bookie is writable again only with this much above the threshold, so that the mode does not flap
_MARGIN = 1.25
# Free space is registered again when it differs by more than this share: a disk of 1 TB is
# registered about 30 times until it is full.
_REGISTERED_STEP = 0.2


class SpaceMode(Enum):
    WRITABLE = "writable"
    READ_ONLY = "read_only"  # fencing and what recovery writes still work
    RESERVED = "reserved"  # fencing only; the rest of the space is for checkpoints and deletion


def space_reason(
    mode: SpaceMode,
    directory: str,
    free_bytes: int,
    *,
    read_only_free_bytes: int,
    reserved_bytes: int,
) -> str:
    """Return why a bookie does not accept everything, and what helps; empty for a writable one.

    Args:
        directory: the one with the least free space.
        free_bytes: free there.
    """
    if mode is SpaceMode.WRITABLE:
        return ""
    name, limit = (
        ("reserved_bytes", reserved_bytes)
        if mode is SpaceMode.RESERVED
        else ("read_only_free_bytes", read_only_free_bytes)
    )
    return (
        f"the disk of {directory} has {human_bytes(free_bytes)} free, and the bookie is "
        f"{mode.value} below {name} = {human_bytes(limit)}:"
        f" free space on it, or set a smaller {name}"
    )


def check_room_to_start(directory: str, free_bytes: int, journal_file_size_bytes: int) -> None:
    """Raise ``OSError`` where the journal cannot preallocate its next file."""
    if free_bytes < journal_file_size_bytes:
        raise OSError(
            errno.ENOSPC,
            f"the disk of {directory} has {human_bytes(free_bytes)} free, and the journal "
            f"needs {human_bytes(journal_file_size_bytes)}"
            " (journal_file_size_bytes) to start: free space on it, or set a smaller "
            "journal_file_size_bytes",
        )


def next_mode(
    mode: SpaceMode, free_bytes: int, *, read_only_free_bytes: int, reserved_bytes: int
) -> SpaceMode:
    """Return the mode for this free space, the least of all directories."""
    if free_bytes < reserved_bytes:
        return SpaceMode.RESERVED
    if mode is SpaceMode.RESERVED and free_bytes < reserved_bytes * _MARGIN:
        return SpaceMode.RESERVED
    threshold = (
        read_only_free_bytes if mode is SpaceMode.WRITABLE else read_only_free_bytes * _MARGIN
    )
    return SpaceMode.READ_ONLY if free_bytes < threshold else SpaceMode.WRITABLE


def registered_free_bytes(registered: int, free_bytes: int) -> int:
    """Return the free space to register: the registered one, until it is far from the truth."""
    is_near = abs(free_bytes - registered) <= _REGISTERED_STEP * registered
    return registered if is_near else free_bytes
