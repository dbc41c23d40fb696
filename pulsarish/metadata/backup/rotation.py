"""Which backups of a schedule are kept, and when the next one is due. No I/O, no clock.

A backup that is deleted cannot be had back, and the tree that the newest ones were made of may have
lost nodes. So the one that was just made stays, whatever its clock said, and so does the last one
that has more than twice as many nodes as all newer ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

__all__ = ["Rotation", "SavedBackup", "rotate", "saved_backups", "seconds_until_due"]

_TIME: Final = "%Y%m%dT%H%M%SZ"
_NAME: Final = re.compile(
    r"metadata-(?P<time>[0-9]{8}T[0-9]{6}Z)-(?P<nodes>[0-9]{1,18})\.jsonl\.gz"
)


@dataclass(frozen=True, slots=True, order=True)
class SavedBackup:
    """A backup of a schedule, as its name says: when it was made, and of how many nodes."""

    made_seconds: int
    """Since the epoch."""
    nodes: int

    @property
    def name(self) -> str:
        made = datetime.fromtimestamp(self.made_seconds, UTC)
        return f"metadata-{made.strftime(_TIME)}-{self.nodes}.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Rotation:
    """The backups that are deleted, and why others stay, if that needs a word."""

    deleted: tuple[SavedBackup, ...] = ()
    kept_because: str = ""


def saved_backups(names: Iterable[str]) -> list[SavedBackup]:
    """Return the backups of a schedule among these names, the oldest first.

    Files with other names are never touched.
    """
    found: list[SavedBackup] = []
    for name in names:
        if match := _NAME.fullmatch(name):
            try:
                made = datetime.strptime(match["time"], _TIME).replace(tzinfo=UTC)
            except ValueError:
                continue  # such as a thirteenth month
            saved = SavedBackup(int(made.timestamp()), int(match["nodes"]))
            if saved.name == name:
                found.append(saved)
    return sorted(found)


def seconds_until_due(
    saved: Sequence[SavedBackup], every_seconds: int, now_seconds: float
) -> float:
    """Return how long the next backup has time, counted from the newest one.

    It is never more than ``every_seconds``, also if the clock was turned back.
    """
    if not saved:
        return 0.0
    return min(max(saved[-1].made_seconds + every_seconds - now_seconds, 0.0), every_seconds)


def rotate(
    saved: Sequence[SavedBackup], made: SavedBackup, keep: int, *, doubt: str = ""
) -> Rotation:
    """Return what goes after a backup.

    Args:
        saved: all backups, the one that was made among them, or not.
        made: the one that was just made.
        keep: how many stay, with it.
        doubt: why the tree may not be worth more than the older backups; empty: it is.
    """
    others = _others(saved, made)
    kept, old = [made, *others[: keep - 1]], others[keep - 1 :]
    if doubt and old:
        return Rotation(kept_because=doubt)
    larger = _larger(kept, old)
    return Rotation(
        tuple(each for each in old if each not in larger),
        "the tree has shrunk to less than half since; delete it by hand once that is right: "
        + ", ".join(each.name for each in larger)
        if larger
        else "",
    )


def _others(saved: Sequence[SavedBackup], made: SavedBackup) -> list[SavedBackup]:
    """Return all but the one that was made, the newest first."""
    return sorted((each for each in saved if each != made), reverse=True)


def _larger(kept: Sequence[SavedBackup], old: Sequence[SavedBackup]) -> list[SavedBackup]:
    """Return those of the old ones, the newest first, that have more than twice as many nodes as
    all newer ones that stay.
    """
    found: list[SavedBackup] = []
    largest = max(each.nodes for each in kept)
    for each in old:
        if each.nodes > 2 * largest:
            found.append(each)
            largest = each.nodes
    return found
