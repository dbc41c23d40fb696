"""Faults of a bookie's disk: full, and a sync that fails.

Where the means are missing the run is void and says which.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from pulsarish.chaos.scenario import Scenario, writes_without
from pulsarish.chaos.stage import Quorums, Stage, VoidRun
from pulsarish.runtime.modes import DIRECTORY_MODE

__all__ = ["FULL_SECONDS", "STORAGE_SCENARIOS", "fill", "mount_small_disk", "run_as_root"]

_SMALL_BOOKIE: Final = "bookie-1"
_SMALL_DISK_MIB: Final = 192
FULL_SECONDS: Final = 5.0
_FILL_BYTES: Final = 1 << 20
_COMMAND_SECONDS: Final = 10.0


def run_as_root(*command: str) -> None:
    """Raises ``VoidRun`` when the command is not there or refuses."""
    if shutil.which(command[0]) is None:
        raise VoidRun(f"there is no {command[0]} on this machine")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise VoidRun(f"{command[0]} did not end within {_COMMAND_SECONDS:g} s") from None
    if done.returncode:
        raise VoidRun(f"{' '.join(command)}: {done.stderr.strip()}")


def mount_small_disk(stage: Stage, node: str, size_mib: int) -> None:
    """Put a node's data on a tmpfs of this size, before the node is started.

    Raises ``VoidRun`` where that is not possible.
    """
    directory = stage.directory / node / "data"
    directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    run_as_root("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(directory))
    stage.at_end.append(lambda: run_as_root("umount", "-l", str(directory)))


def _mount_small_disk(stage: Stage) -> None:
    mount_small_disk(stage, _SMALL_BOOKIE, _SMALL_DISK_MIB)


def fill(path: Path) -> int:
    """Until no byte is left; how many were written."""
    written = 0
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                written += file.write(bytes(_FILL_BYTES))
        except OSError:
            return written


def _is_registered(stage: Stage, *, read_only: bool) -> bool:
    found = stage.observer.bookies().get(_SMALL_BOOKIE)
    return found is not None and found.read_only is read_only


def _full_disk(stage: Stage) -> None:
    """Rule 13: it takes nothing more, and goes on by itself once there is room."""
    pid = stage.cluster.pid(_SMALL_BOOKIE)
    filler = stage.directory / _SMALL_BOOKIE / "data" / "filler"
    stage.mark("fault", f"the disk of {_SMALL_BOOKIE} is filled to the last byte")
    fill(filler)
    stage.wait("the bookie is read-only", lambda: _is_registered(stage, read_only=True))
    stage.wait("the ledger is written without it", lambda: writes_without(stage, _SMALL_BOOKIE))
    stage.mark(
        "bite", f"{_SMALL_BOOKIE} is registered as read-only and the ledger goes on without it"
    )
    stage.sleep(FULL_SECONDS)
    filler.unlink()
    if stage.cluster.pid(_SMALL_BOOKIE) != pid:
        stage.wrong.append(f"{_SMALL_BOOKIE} did not live through a full disk")
        stage.start(_SMALL_BOOKIE)
    stage.wait("the bookie is writable", lambda: _is_registered(stage, read_only=False))
    stage.mark("heal", f"{_SMALL_BOOKIE} is writable again")


def _sync_fails(stage: Stage) -> None:
    """Rule 9: a bookie that cannot sync ends at once, without answering. strace makes the call
    fail; it cannot drop the bytes.
    """
    victim = stage.members()[0]
    pid = stage.cluster.pid(victim)
    strace = shutil.which("strace")
    if strace is None:
        raise VoidRun("there is no strace on this machine")
    stage.mark("fault", f"fdatasync fails with EIO in {victim} of the ensemble")
    command = [
        strace,
        "-f",
        "-q",
        "-o",
        os.devnull,
        "-e",
        "trace=fdatasync,fsync",
        "-e",
        "inject=fdatasync,fsync:error=EIO",
        "-p",
        str(pid),
    ]
    tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        stage.wait(
            "the bookie ends",
            lambda: stage.cluster.pid(victim) is None or tracer.poll() is not None,
        )
    finally:
        tracer.terminate()
        _, said = tracer.communicate()
    if stage.cluster.pid(victim) is not None:
        raise VoidRun(f"strace could not be attached: {said.strip()}")
    stage.wait("the ledger is written without it", lambda: writes_without(stage, victim))
    stage.mark("bite", f"{victim} has ended and the ledger goes on without it")
    stage.start(victim)
    stage.wait("the bookie is registered", lambda: victim in stage.observer.bookies())
    stage.mark("heal", f"{victim} runs again")


_SMALL_FILES: Final = (
    ("bookie", "journal_file_size_bytes=4194304"),
    ("bookie", "write_cache_size_bytes=8388608"),
    ("bookie", "reserved_bytes=33554432"),
    ("bookie", "read_only_free_bytes=67108864"),
    ("bookie", "disk_check_interval_seconds=1"),
)
STORAGE_SCENARIOS: Final = (
    Scenario(
        "full-disk",
        "the disk of one bookie is full for a while",
        _full_disk,
        # Every bookie is in the ensemble, so the one with the small disk is.
        quorums=Quorums(3, 3, 2),
        no_negative=True,
        settings=_SMALL_FILES,
        prepare=_mount_small_disk,
    ),
    Scenario(
        "sync-fails", "fdatasync fails in a bookie of the ensemble", _sync_fails, no_negative=True
    ),
)
