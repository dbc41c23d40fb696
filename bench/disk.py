"""How a bookie could write and read its files: ``python -m bench.disk [DIRECTORY]``.

Prints the time of one operation and its CPU, as medians of rounds in which all ways take turns, and
what each is of the way that bookies use, which is the first of its work:

* ``journal``: groups of 4 KiB, 64 KiB and 1 MiB into a file that was written with zeroes before;
* ``entry log``: slices of 512 KiB that are synced by 4 MiB, into a file that grows;
* ``log in order``: reads of 1 MiB of a log that is not in the page cache;
* ``log at random``: reads of 4 KiB of it.

The directory must be on the disk in question: its files are deleted in the end.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
JOURNAL_BYTES: Final = 32 * MIB
LOG_BYTES: Final = 64 * MIB
GROUPS: Final = 24
"""Groups of the journal in a round."""
READS: Final = 200
"""Reads at random in a round."""
WORTH: Final = 0.8
"""A way that takes no more than this of the time is worth its code."""

Way = Callable[[], int]
"""Does the work of a round and returns its operations."""


def pages(size_bytes: int) -> mmap.mmap:
    """Return memory that begins with a page, as O_DIRECT needs it, filled with noise."""
    memory = mmap.mmap(-1, size_bytes)
    memory[:] = os.urandom(size_bytes)
    return memory


@contextmanager
def opened(path: Path, flags: int = 0) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def uncached(descriptor: int) -> None:
    """Take a file that is synced out of the page cache."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def journal(path: Path, size_bytes: int, *, flags: int = 0, per_write: int = 0) -> Way:
    """Write groups. ``per_write``: flags of each write; without any it is followed by a sync."""
    data = pages(size_bytes)

    def run() -> int:
        with opened(path, flags) as descriptor:
            for number in range(GROUPS):
                offset = number * size_bytes % JOURNAL_BYTES
                if per_write:
                    os.pwritev(descriptor, [data], offset, per_write)
                else:
                    os.pwritev(descriptor, [data], offset)
                    os.fdatasync(descriptor)
        return GROUPS

    return run


def entry_log(path: Path, *, flags: int = 0, drop: bool = False) -> Way:
    data = pages(512 * KIB)

    def run() -> int:
        path.unlink(missing_ok=True)
        with opened(path, flags) as descriptor:
            for number in range(LOG_BYTES // len(data)):
                os.pwritev(descriptor, [data], number * len(data))
                if number % 8 == 7:
                    os.fdatasync(descriptor)
                    if drop:
                        uncached(descriptor)
        return LOG_BYTES // len(data)

    return run


def in_order(path: Path, *, flags: int = 0, advice: int = os.POSIX_FADV_NORMAL) -> Way:
    """Read a log. ``advice`` WILLNEED is given for the next span before each read."""
    memory = pages(MIB)

    def run() -> int:
        with opened(path, flags) as descriptor:
            uncached(descriptor)
            if advice == os.POSIX_FADV_SEQUENTIAL:
                os.posix_fadvise(descriptor, 0, 0, advice)
            for offset in range(0, LOG_BYTES, MIB):
                if advice == os.POSIX_FADV_WILLNEED:
                    os.posix_fadvise(descriptor, offset + MIB, MIB, advice)
                os.preadv(descriptor, [memory], offset)
        return LOG_BYTES // MIB

    return run


def at_random(path: Path, *, flags: int = 0, advice: int = os.POSIX_FADV_NORMAL) -> Way:
    memory, rng = pages(4 * KIB), random.Random(1)

    def run() -> int:
        with opened(path, flags) as descriptor:
            uncached(descriptor)
            os.posix_fadvise(descriptor, 0, 0, advice)
            for _ in range(READS):
                os.preadv(descriptor, [memory], rng.randrange(LOG_BYTES // (4 * KIB)) * 4 * KIB)
        return READS

    return run


def ways(directory: Path) -> dict[str, dict[str, Way]]:
    """Return the ways of each work; the first is that of bookies."""
    log, rows = directory / "read.log", dict[str, dict[str, Way]]()
    zeroed = directory / "zeroed.journal"
    with opened(zeroed) as descriptor:
        for offset in range(0, JOURNAL_BYTES, MIB):
            os.pwrite(descriptor, bytes(MIB), offset)
        os.fsync(descriptor)
    with opened(log) as descriptor:
        data = pages(MIB)
        for offset in range(0, LOG_BYTES, MIB):
            os.pwritev(descriptor, [data], offset)
        os.fsync(descriptor)
    for size_bytes in (4 * KIB, 64 * KIB, MIB):
        rows[f"journal, {size_bytes // KIB} KiB"] = {
            "pwritev, fdatasync": journal(zeroed, size_bytes),
            "RWF_DSYNC": journal(zeroed, size_bytes, per_write=os.RWF_DSYNC),
            "O_DIRECT, fdatasync": journal(zeroed, size_bytes, flags=os.O_DIRECT),
            "O_DIRECT, RWF_DSYNC": journal(
                zeroed, size_bytes, flags=os.O_DIRECT, per_write=os.RWF_DSYNC
            ),
        }
    rows["entry log, 512 KiB"] = {
        "page cache": entry_log(directory / "written.log"),
        "DONTNEED after a sync": entry_log(directory / "written.log", drop=True),
        "O_DIRECT": entry_log(directory / "written.log", flags=os.O_DIRECT),
    }
    rows["log in order, 1 MiB"] = {
        "no advice": in_order(log),
        "SEQUENTIAL": in_order(log, advice=os.POSIX_FADV_SEQUENTIAL),
        "WILLNEED of the next": in_order(log, advice=os.POSIX_FADV_WILLNEED),
        "O_DIRECT": in_order(log, flags=os.O_DIRECT),
    }
    rows["log at random, 4 KiB"] = {
        "no advice": at_random(log),
        "RANDOM": at_random(log, advice=os.POSIX_FADV_RANDOM),
        "O_DIRECT": at_random(log, flags=os.O_DIRECT),
    }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", nargs="?", type=Path, default=Path())
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    cores = os.cpu_count() or 1
    print(
        f"load {load:.1f} on {cores} cores{': the machine is shared' if load > cores / 4 else ''}"
    )
    print("| work | way | ms | CPU ms | of the first | verdict |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="bench-disk-") as made:
        for work, some in ways(Path(made)).items():
            took: dict[str, list[float]] = {name: [] for name in some}
            cpu: dict[str, list[float]] = {name: [] for name in some}
            for number in range(arguments.rounds):
                order = list(some)
                for name in order[number % len(order) :] + order[: number % len(order)]:
                    began, began_cpu = time.perf_counter(), time.process_time()
                    count = some[name]()
                    took[name].append((time.perf_counter() - began) / count * 1000)
                    cpu[name].append((time.process_time() - began_cpu) / count * 1000)
            first = next(iter(some))
            for name in some:
                share = statistics.median(
                    one / other for one, other in zip(took[name], took[first], strict=True)
                )
                print(
                    f"| {work} | {name} | {statistics.median(took[name]):.3f} "
                    f"| {statistics.median(cpu[name]):.3f} | x{share:.2f} "
                    f"| {'wins' if name != first and share <= WORTH else ''} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
