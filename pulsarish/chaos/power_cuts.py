"""Power cuts: bookies on a disk that forgets what was not synced.

A control on a disk that lies about syncs must lose messages.
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from pulsarish.chaos.scenario import Scenario
from pulsarish.chaos.stage import Quorums, Stage, VoidRun
from pulsarish.chaos.storage import run_as_root
from pulsarish.runtime.modes import DIRECTORY_MODE

__all__ = ["POWER_SCENARIOS", "ForgetfulDisk"]

_ANSWER_SECONDS: Final = 30.0
_BETWEEN_CUTS: Final = 1_000
"""Messages that are acknowledged between two cuts, and on a lying disk before its cut."""


class ForgetfulDisk:
    """A process of its own that serves the file system under a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(DIRECTORY_MODE, parents=True)
        if os.geteuid() or not Path("/dev/fuse").exists():
            raise VoidRun(
                "the disk that forgets is mounted through /dev/fuse by root: one of them is missing"
            )
        command = [sys.executable, "-m", "pulsarish.chaos.lossy_disk", str(directory)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if (said := self._answer()) != "mounted":
            raise VoidRun(f"the disk that forgets could not be mounted: {said}")

    def ask(self, command: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _ANSWER_SECONDS)
        if not ready:
            raise VoidRun(
                f"the disk under {self._directory} did not answer within {_ANSWER_SECONDS:g} s"
            )
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """Unmount it once no process uses it."""
        run_as_root("umount", "-l", str(self._directory))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(_ANSWER_SECONDS)


def _mount_forgetful_disks(stage: Stage) -> None:
    for number in range(1, stage.options.bookies + 1):
        name = f"bookie-{number}"
        disk = ForgetfulDisk(stage.directory / name / "data")
        stage.at_end.append(disk.close)
        stage.disks[name] = disk.ask


def _cut_power(stage: Stage, chance: random.Random, *, of_all: bool) -> int:
    """Kill bookies, let their disks forget, start them again; returns how many bytes and names were
    in danger.
    """
    names = list(stage.disks) if of_all else [chance.choice(stage.members())]
    stage.kill(*names)
    in_danger = 0
    for name in names:
        _word, lost_bytes, lost_names = stage.disks[name](f"cut {chance.getrandbits(32)}").split()
        in_danger += int(lost_bytes) + int(lost_names)
    stage.start(*names)
    stage.wait("the bookies are registered", lambda: set(names) <= set(stage.observer.bookies()))
    return in_danger


def _wait_for_more(stage: Stage) -> None:
    acked = len(stage.ack_seconds)
    stage.wait("messages are acknowledged", lambda: len(stage.ack_seconds) >= acked + _BETWEEN_CUTS)


def _power_cuts(stage: Stage, *, of_all: bool) -> None:
    chance = random.Random(stage.options.seed)
    in_danger = 0
    for number in range(1, stage.options.cuts + 1):
        stage.sleep(chance.random())
        stage.mark("fault", f"power cut {number} of {'all bookies' if of_all else 'one bookie'}")
        in_danger += _cut_power(stage, chance, of_all=of_all)
        _wait_for_more(stage)
        stage.mark("heal", "the bookies are back and messages are acknowledged")
    if not in_danger:
        raise VoidRun("no byte and no name was unsynced at any of the cuts")
    stage.mark("bite", f"{in_danger} bytes and names were unsynced at {stage.options.cuts} cuts")


def _lying_disks(stage: Stage) -> None:
    for ask in stage.disks.values():
        ask("lie")
    stage.mark("fault", "from now on the disks lie about syncs")
    _wait_for_more(stage)
    in_danger = _cut_power(stage, random.Random(stage.options.seed), of_all=True)
    stage.mark("bite", f"power cut of all bookies, {in_danger} bytes and names were unsynced")


_SMALL_FILES: Final = (
    ("bookie", "journal_file_size_bytes=4194304"),
    ("bookie", "entry_log_size_bytes=8388608"),
)
POWER_SCENARIOS: Final = (
    Scenario(
        "power-cut",
        "the power of one bookie of the ensemble is cut, --cuts times",
        partial(_power_cuts, of_all=False),
        quorums=Quorums(3, 3, 2),
        no_negative=True,
        settings=_SMALL_FILES,
        prepare=_mount_forgetful_disks,
    ),
    Scenario(
        "power-cut-all",
        "the power of all bookies is cut at once, --cuts times",
        partial(_power_cuts, of_all=True),
        quorums=Quorums(3, 3, 2),
        settings=_SMALL_FILES,
        prepare=_mount_forgetful_disks,
    ),
    Scenario(
        "power-cut-lying-disks",
        "the same on disks that lie about syncs: a control, messages must be missing",
        _lying_disks,
        quorums=Quorums(3, 3, 2),
        must_lose=True,
        settings=_SMALL_FILES,
        prepare=_mount_forgetful_disks,
    ),
)
