"""Which backups of a schedule stay, and when the next one is due."""

from __future__ import annotations

import pytest

from pulsarish.metadata.backup.rotation import (
    Rotation,
    SavedBackup,
    rotate,
    saved_backups,
    seconds_until_due,
)

START = 1_767_225_600  # 2026-01-01T00:00:00Z


def made(*nodes: int) -> list[SavedBackup]:
    """One an hour."""
    return [SavedBackup(START + 3_600 * number, count) for number, count in enumerate(nodes)]


def test_a_name_says_when_it_was_made_and_of_how_many_nodes() -> None:
    assert SavedBackup(START, 56).name == "metadata-20260101T000000Z-56.jsonl.gz"
    names = [each.name for each in made(5, 7)]
    assert saved_backups(reversed(names)) == made(5, 7)
    foreign = [
        "metadata-backup.jsonl.gz",
        "metadata-20261301T000000Z-56.jsonl.gz",
        "metadata-20260101T000000Z-056.jsonl.gz",
        "metadata-20260101T000000Z-56.jsonl.gz.part",
        "x-metadata-20260101T000000Z-56.jsonl.gz",
        ".lock",
    ]
    assert saved_backups(foreign) == []


@pytest.mark.parametrize(("now", "wait"), [(0, 3_600), (10, 3_590), (4_000, 0), (-9_000, 3_600)])
def test_the_next_one_is_due_when_the_newest_is_old_enough(now: int, wait: int) -> None:
    assert seconds_until_due(made(1), 3_600, START + now) == wait
    assert seconds_until_due([], 3_600, START) == 0


def test_the_oldest_go() -> None:
    four = made(10, 10, 10, 10)
    assert rotate(four, four[-1], 4) == Rotation()
    assert rotate(four, four[-1], 2) == Rotation((four[1], four[0]))
    assert rotate(four[:-1], four[-1], 2) == Rotation((four[1], four[0]))
    assert rotate(four, four[-1], 1).deleted == (four[2], four[1], four[0])


def test_the_one_that_was_just_made_stays_after_the_clock_was_turned_back() -> None:
    later = made(10, 10, 10)
    now = SavedBackup(START - 86_400, 10)
    assert rotate([now, *later], now, 2).deleted == (later[1], later[0])


def test_the_last_one_that_was_more_than_twice_as_large_stays() -> None:
    shrunk = made(1_000, 990, 400, 401, 90, 80)
    rotation = rotate(shrunk, shrunk[-1], 2)
    assert rotation.deleted == (shrunk[2], shrunk[0])
    assert shrunk[1].name in rotation.kept_because
    assert shrunk[3].name in rotation.kept_because
    grown = [*shrunk, SavedBackup(START + 86_400, 700)]
    assert rotate(grown, grown[-1], 2) == Rotation((*reversed(grown[:5]),))


def test_nothing_goes_while_the_tree_is_in_doubt() -> None:
    four = made(10, 10, 10, 10)
    assert rotate(four, four[-1], 2, doubt="restored") == Rotation(kept_because="restored")
    assert rotate(four, four[-1], 4, doubt="restored") == Rotation()
