"""Faults at chosen system calls of a real process: killed at the N-th, or calls that fail.

``hook.c`` is compiled once and preloaded. Unlike ``strace`` it counts the calls of all threads
together, needs no right to trace, and costs nothing while nothing is armed.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntFlag
from pathlib import Path
from typing import Final

import pytest

__all__ = ["Calls", "Hook", "left_out", "sampled"]

_HERE: Final = Path(__file__).parent
_BUILD: Final = _HERE.parent.parent / "build" / "power"
_NUMBERS: Final = struct.Struct("<6q")
_SIZE: Final = 4096
_HIT_AT: Final = 40


class Calls(IntFlag):
    """What is counted; as in ``hook.c``."""

    SYNC = 1
    WRITE = 2
    RENAME = 4
    OPEN = 8
    REMOVE = 16


def left_out(reason: str) -> None:
    """Skip a test for which something is missing; in CI, which has all that is needed, fail it."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(f"left out: {reason}")


def sampled(total: int, count: int) -> list[int]:
    """Return ``count`` of the numbers from 1 to ``total``, evenly; with POWER_ALL all."""
    if os.environ.get("POWER_ALL") or total <= count:
        return list(range(1, total + 1, int(os.environ.get("POWER_STEP", "1"))))
    return sorted({1 + round(place * (total - 1) / (count - 1)) for place in range(count)})


def _library() -> Path:
    source = _HERE / "hook.c"
    library = _BUILD / "hook.so"
    if library.exists() and library.stat().st_mtime >= source.stat().st_mtime:
        return library
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        left_out("faults at system calls, because there is no C compiler")
        raise AssertionError
    _BUILD.mkdir(parents=True, exist_ok=True)
    half = library.with_name(f"hook-{os.getpid()}.so")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(half), str(source), "-ldl"]
    subprocess.run(command, check=True)
    half.replace(library)
    return library


class Hook:
    """The faults of one process at a time, on files below one directory.

    Args:
        control: a file for the faults.
        under: the directory.
    """

    def __init__(self, control: Path, under: Path) -> None:
        control.write_bytes(bytes(_SIZE))
        self._environment = {
            "LD_PRELOAD": str(_library()),
            "FAULT_CONTROL": str(control),
            "FAULT_UNDER": str(under),
        }
        with control.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _SIZE)

    @contextmanager
    def preloaded(self) -> Iterator[None]:
        """Within the block, processes that are started have the hook."""
        before = dict(os.environ)
        os.environ.update(self._environment)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def arm(self, calls: Calls, at: int, *, error: int = 0, times: int = 1) -> None:
        """Count from here on, and at call number ``at`` kill the process, or with ``error`` fail
        this one and the next, ``times`` in all. ``at`` 0: only count.
        """
        self._shared[:] = bytes(_SIZE)
        self._shared[8 : _NUMBERS.size] = _NUMBERS.pack(0, at, error, at + times - 1, 0, 0)[8:]
        self._shared[:8] = struct.pack("<q", calls)

    def disarm(self) -> None:
        self._shared[:8] = bytes(8)

    @property
    def count(self) -> int:
        """The number of calls since it was armed."""
        return int(struct.unpack_from("<q", self._shared, 32)[0])

    @property
    def hit(self) -> str:
        """The call that was hit and its file; empty: none yet."""
        if not struct.unpack_from("<q", self._shared, _HIT_AT)[0]:
            return ""
        return self._shared[_NUMBERS.size :].split(b"\0", 1)[0].decode()
