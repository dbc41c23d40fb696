"""Mutants of the rotation of the metadata's backups: the last good one is not deleted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from pulsarish.metadata.backup import rotation
from pulsarish.metadata.backup.rotation import SavedBackup, rotate
from pulsarish.sim.workloads.safeguard import Mutant, replacing

__all__ = ["BACKUP_MUTANTS"]

_STEPS: Final = 60
_EVERY_SECONDS: Final = 3_600


def _check_rotation(seed: int) -> None:
    """Make backups of a tree that loses most of its nodes once, under a clock that is set forward
    and back.

    The newest backup stays, and the last whole one for as long as the tree is not whole. They do
    not become many.
    """
    rng = random.Random(f"{seed}:backups")
    keep, now, whole_nodes = rng.randint(1, 6), 1_767_225_600, rng.randint(50, 10_000)
    begin = rng.randrange(1, _STEPS // 2)
    end = begin + rng.randrange(1, _STEPS // 2)
    saved: list[SavedBackup] = []
    whole: SavedBackup | None = None
    for step in range(_STEPS):
        now += _EVERY_SECONDS
        if rng.random() < 0.1:
            now += rng.randint(-10, 10) * _EVERY_SECONDS
        is_whole = not begin <= step < end
        nodes = rng.randrange(whole_nodes * 9 // 10, whole_nodes)
        made = SavedBackup(now, nodes if is_whole else rng.randrange(whole_nodes * 4 // 10))
        before = sorted({*saved, made})
        deleted = rotate(before, made, keep).deleted
        saved = [each for each in before if each not in deleted]
        assert made in saved, f"{made.name} was deleted at once"
        if is_whole:
            whole = made
        elif step > begin:
            assert any(2 * each.nodes > whole_nodes for each in saved), (
                f"the tree has been broken since step {begin}, and {whole} is deleted"
            )
        assert len(saved) <= keep + _ladder(saved), f"{len(saved)} backups, and {keep} are to stay"


def _ladder(saved: Sequence[SavedBackup]) -> int:
    """Return how many backups may stay besides, each twice as large as the next."""
    return max(each.nodes for each in saved).bit_length()


def _by_clock(_was: object) -> object:
    def others(saved: Sequence[SavedBackup], _made: SavedBackup) -> list[SavedBackup]:
        return sorted(saved, reverse=True)

    return others


def _however_small(_was: object) -> object:
    def larger(_kept: Sequence[SavedBackup], _old: Sequence[SavedBackup]) -> list[SavedBackup]:
        return []

    return larger


BACKUP_MUTANTS: Final = (
    Mutant(
        "backup_deleted_by_its_clock",
        "the backup that was just made stays, though older ones have a later time",
        (),
        replacing(rotation, "_others", _by_clock),
        _check_rotation,
        20,
    ),
    Mutant(
        "last_whole_backup_rotated",
        "the last backup of a tree that had more than twice as many nodes stays",
        (),
        replacing(rotation, "_larger", _however_small),
        _check_rotation,
        20,
    ),
)
