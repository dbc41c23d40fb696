"""What a bookie says of a disk that is nearly full: the disk, the free space, the limit, and what
helps.
"""

from __future__ import annotations

import pytest

from pulsarish.bookie.space import (
    SpaceMode,
    check_room_to_start,
    registered_free_bytes,
    space_reason,
)

_MIB = 1 << 20
LIMITS = {"read_only_free_bytes": 1024 * _MIB, "reserved_bytes": 512 * _MIB}


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (SpaceMode.WRITABLE, ""),
        (
            SpaceMode.READ_ONLY,
            (
                "the disk of /d has 700 MiB free, and the bookie is read_only below "
                "read_only_free_bytes = 1.0 GiB: free space"
            ),
        ),
        (
            SpaceMode.RESERVED,
            (
                "the disk of /d has 700 MiB free, and the bookie is reserved below reserved_bytes "
                "= 512 MiB: free space"
            ),
        ),
    ],
)
def test_the_reason_names_disk_space_limit_and_remedy(mode: SpaceMode, words: str) -> None:
    reason = space_reason(mode, "/d", 700 * _MIB, **LIMITS)
    assert reason.startswith(words)
    assert bool(reason) == bool(words)


def test_a_disk_without_room_for_the_journal_is_refused_at_the_start() -> None:
    check_room_to_start("/j", 64 * _MIB, 64 * _MIB)
    with pytest.raises(
        OSError,
        match=(
            r"disk of /j has 40.0 MiB free, and the journal needs 64.0 MiB "
            r"\(journal_file_size_bytes\) to start"
        ),
    ):
        check_room_to_start("/j", 40 * _MIB, 64 * _MIB)


def test_free_space_is_registered_again_in_coarse_steps() -> None:
    assert registered_free_bytes(0, 500) == 500
    assert registered_free_bytes(500, 600) == 500
    assert registered_free_bytes(500, 601) == 601
    assert registered_free_bytes(500, 399) == 399
    steps, registered = 0, 1 << 40
    for free_bytes in range(1 << 40, 1 << 30, -(1 << 28)):
        now = registered_free_bytes(registered, free_bytes)
        steps, registered = steps + (now != registered), now
    assert steps < 32
