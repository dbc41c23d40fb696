"""``pulsarish metadata backup --every`` and ``rehearse``, on trees in directories."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from pulsarish.cli.metadata import backups as commands
from pulsarish.cli.metadata.trees import records_of, tree_at
from pulsarish.metadata import paths
from pulsarish.metadata.records import Cookie, RestoredTree
from pulsarish.model.errors import MetadataUnavailable
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.runtime.seams import Op
from pulsarish.wire.json_record import encode_record
from tests.support.commands import run_command
from tests.support.modules import changed

START = 1_767_225_600


class Stopped(Exception):
    """The supervisor stops the command."""


def write(url: str, nodes: dict[str, bytes]) -> None:
    directory = Path(url.removeprefix("embedded:"))
    directory.mkdir(exist_ok=True)

    async def work() -> None:
        async with tree_at(url) as world:
            records = records_of(world)
            for path, data in nodes.items():
                await records.make_parents(path)
                await records.commit([Op("create", path, data)])

    with click.Context(commands.backup):
        asyncio.run(work())


def ledger(ledger_id: int, last_entry: int) -> bytes:
    return encode_record(
        LedgerMetadata(
            ledger_id,
            1,
            1,
            1,
            LedgerPurpose(PurposeKind.TOPIC, "t"),
            (Segment(0, ("b1~1",)),),
            LedgerState.CLOSED,
            last_entry,
        )
    )


@pytest.fixture
def tree(tmp_path: Path) -> str:
    url = f"embedded:{tmp_path / 'tree'}"
    write(url, {paths.ledger(7): ledger(7, 3)})
    return url


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[float]]:
    """Return a function that lets the command sleep so many times before it is stopped."""

    def start(sleeps_max: int) -> list[float]:
        slept: list[float] = []
        now = [float(START)]

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            now[0] += seconds
            if len(slept) > sleeps_max:
                raise Stopped

        monkeypatch.setattr(commands, "time", changed(time, sleep=sleep, time=lambda: now[0]))
        return slept

    return start


def schedule(tree: str, directory: Path, *more: str) -> Any:
    words = ("metadata", "backup", tree, str(directory), "--every", "1h", *more)
    done = run_command({}, *words)
    assert isinstance(done.exception, Stopped), done.output
    return done


def names(directory: Path) -> list[str]:
    return sorted(each for each in os.listdir(directory) if each != ".lock")


def test_backups_are_made_at_intervals_and_the_oldest_go(
    tree: str, tmp_path: Path, clock: Callable[[int], list[float]]
) -> None:
    directory = tmp_path / "backups"
    slept = clock(4)
    directory.mkdir()
    (directory / "metadata-1.part").touch()
    (directory / "mine.jsonl.gz").touch()
    done = schedule(tree, directory, "--keep", "2", "-o", "json")
    assert slept == [0, 3_600, 3_600, 3_600, 3_600]
    assert names(directory) == [
        "metadata-20260101T020000Z-4.jsonl.gz",
        "metadata-20260101T030000Z-4.jsonl.gz",
        "mine.jsonl.gz",
    ]
    assert '"metadata-20260101T010000Z-4.jsonl.gz"' in done.stdout
    assert (directory / names(directory)[0]).stat().st_mode & 0o777 == 0o600


def test_a_backup_that_fails_is_said_and_tried_again(
    tree: str, tmp_path: Path, clock: Callable[[int], list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "backups"
    slept = clock(2)
    left = [MetadataUnavailable("the store is away")]
    was = commands._write_backup

    def fails_once(*arguments: Any, **more: Any) -> Any:
        if left:
            raise left.pop()
        return was(*arguments, **more)

    monkeypatch.setattr(commands, "_write_backup", fails_once)
    done = schedule(tree, directory)
    assert slept == [0, 60, 0]
    assert (
        "no backup was made, and none is deleted; again in 60 s: the store is away" in done.stderr
    )
    clock(0)
    assert names(directory) == []


def test_a_tree_that_is_being_restored_or_is_restored_deletes_nothing(
    tree: str, tmp_path: Path, clock: Callable[[int], list[float]]
) -> None:
    directory = tmp_path / "backups"
    _ = clock(2)
    restored = RestoredTree("x", 1, 2)
    write(tree, {paths.RESTORED: encode_record(restored)})
    done = schedule(tree, directory, "--keep", "1")
    assert "restored or older, and not confirmed" in done.stderr
    assert len(names(directory)) == 2


def test_one_process_at_a_time_makes_backups_into_a_directory(tree: str, tmp_path: Path) -> None:
    with commands._only_one(tmp_path):
        done = run_command({}, "metadata", "backup", tree, str(tmp_path), "--every", "1h")
    assert done.exit_code == 1
    assert "another process makes backups" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--keep", "3"), "give --every, too"),
        (("--every", "0"), "at least 1s"),
        (("--every", "30"), "30m"),
        (("--every", "1h", "--keep", "0"), "x>=1"),
    ],
)
def test_what_is_no_schedule_is_refused(
    tree: str, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = run_command({}, "metadata", "backup", tree, str(tmp_path / "new"), *words)
    assert (done.exit_code, said in done.stderr) == (2, True)
    assert not (tmp_path / "new").exists()


def test_a_rehearsal_restores_the_newest_backup_and_takes_stock(tree: str, tmp_path: Path) -> None:
    directory = tmp_path / "backups"
    directory.mkdir()
    for name in ("metadata-20260101T000000Z-4.jsonl.gz", "metadata-20260101T010000Z-4.jsonl.gz"):
        assert run_command({}, "metadata", "backup", tree, str(directory / name)).exit_code == 0
    write(tree, {paths.ledger(8): ledger(8, 3)})
    before = sorted(os.listdir(tmp_path / "tree"))
    done = run_command({}, "metadata", "rehearse", str(directory), tree, "-o", "json")
    found = json.loads(done.stdout)
    # Ledger 7 is not lost: its bookie has no cookie, and cannot be asked.
    assert (found["ledgers"], found["newer"], found["nodes"]) == (1, [8], 4)
    assert found["file"].endswith("T010000Z-4.jsonl.gz")
    assert (done.exit_code, found["is_well"]) == (0, True)
    assert sorted(os.listdir(tmp_path / "tree")) == before
    write(tree, {paths.cookie("b1"): encode_record(Cookie("b1", "b1~1", "c", "", "", "", 0))})
    done = run_command({}, "metadata", "rehearse", str(directory), tree)
    assert done.exit_code == 1
    assert "bookie b1~1 does not answer" in done.stderr


def test_a_damaged_backup_is_not_rehearsed(tree: str, tmp_path: Path) -> None:
    file = tmp_path / "b.jsonl.gz"
    assert run_command({}, "metadata", "backup", tree, str(file)).exit_code == 0
    file.write_bytes(file.read_bytes()[:-20])
    done = run_command({}, "metadata", "rehearse", str(file), tree)
    assert done.exit_code == 1
    assert "not a complete backup" in done.stderr
