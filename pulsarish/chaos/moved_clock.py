"""A node with a wall clock that another process may move.

``python -m pulsarish.chaos.moved_clock FILE ROLE...`` is ``pulsarish ROLE...``. ``FILE`` holds by
how many nanoseconds the clock is off, as a signed 64-bit integer in little-endian order. A process
that changes it moves the clock of the running node at once, as an operator who sets a machine's
time. The monotonic clock goes on, as it does there. ``time.time`` and ``time.time_ns`` follow the
file; C libraries that ask the kernel themselves (gRPC, RocksDB) see the true time.
"""

from __future__ import annotations

import importlib
import mmap
import runpy
import struct
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Final

__all__ = ["move_clock", "write_offset"]

_OFFSET: Final = struct.Struct("<q")


def write_offset(path: Path, seconds: int) -> None:
    """Move the clocks that follow ``path`` away from the true time."""
    if not path.exists():
        path.write_bytes(bytes(_OFFSET.size))
    with path.open("r+b", buffering=0) as file:
        file.write(_OFFSET.pack(seconds * 1_000_000_000))


def move_clock(path: Path) -> None:
    """From now on this process's wall clock follows ``path``.

    Raises ``OSError`` when it is not there, ``ValueError`` when too short.
    """
    true_ns, true_seconds = time.time_ns, time.time
    with path.open("rb") as file:
        offset = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)

    def time_ns() -> int:
        moved_by: int = _OFFSET.unpack_from(offset)[0]
        return true_ns() + moved_by

    def time_seconds() -> float:
        return time_ns() / 1e9

    time.time_ns, time.time = time_ns, time_seconds
    # gRPC's Python half reckons deadlines for its C half by this clock; a jump of the machine's
    # would move both.
    vars(importlib.import_module("grpc.aio._utils"))["time"] = SimpleNamespace(time=true_seconds)


if __name__ == "__main__":
    move_clock(Path(sys.argv.pop(1)))
    runpy.run_module("pulsarish", run_name="__main__")
