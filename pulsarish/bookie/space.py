"""How full the disks are, and what is still taken (rule 13): decisions only."""

from __future__ import annotations

from enum import Enum

__all__ = ["SpaceMode", "next_mode"]

_MARGIN = 1.25  # writable again only with this much more than the threshold, so that the mode does not flap


class SpaceMode(Enum):
    WRITABLE = "writable"
    READ_ONLY = "read_only"  # fencing and what recovery writes still work
    RESERVED = "reserved"  # fencing only; the rest of the space is for checkpoints and deletion


def next_mode(mode: SpaceMode, free_bytes: int, *, read_only_free_bytes: int, reserved_bytes: int) -> SpaceMode:
    """The mode for this much free space, the least of all directories."""
    if free_bytes < reserved_bytes:
        return SpaceMode.RESERVED
    if mode is SpaceMode.RESERVED and free_bytes < reserved_bytes * _MARGIN:
        return SpaceMode.RESERVED
    threshold = read_only_free_bytes if mode is SpaceMode.WRITABLE else read_only_free_bytes * _MARGIN
    return SpaceMode.READ_ONLY if free_bytes < threshold else SpaceMode.WRITABLE
