"""The memory of each process of a run over time, and the rate of acknowledgements next to it."""

from __future__ import annotations

import math
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any, Final

__all__ = ["HARNESS", "ProcessMemory"]

HARNESS: Final = "harness"
_MIB: Final = 1 << 20
_TENTH: Final = 10


class ProcessMemory:
    """Samples in a thread of its own, until ``stop``. 4 bytes are kept for each sample.

    Args:
        names: the nodes there are now.
        rss_bytes: the memory of a node; 0: it does not run.
        acked: how many messages are acknowledged.
    """

    def __init__(
        self,
        names: Callable[[], Iterable[str]],
        rss_bytes: Callable[[str], int],
        acked: Callable[[], int],
        *,
        every_seconds: float,
    ) -> None:
        self.seconds = array("f")
        self.acked = array("q")
        self.mib: dict[str, array[float]] = {}
        self._names = names
        self._rss_bytes = rss_bytes
        self._acked = acked
        self._every_seconds = every_seconds
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample_all, name="process memory", daemon=True)

    def start(self) -> None:
        self._began = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _sample_all(self) -> None:
        while True:
            self.add(
                time.monotonic() - self._began,
                self._acked(),
                {name: self._rss_bytes(name) for name in self._names()} | {HARNESS: _own_bytes()},
            )
            if self._ended.wait(self._every_seconds):
                return

    def add(self, seconds: float, acked: int, rss_bytes: dict[str, int]) -> None:
        """Add one sample of all processes. A process without memory does not run."""
        self.seconds.append(seconds)
        self.acked.append(acked)
        for name in rss_bytes.keys() - self.mib.keys():
            self.mib[name] = array("f", [math.nan] * (len(self.seconds) - 1))
        for name, samples in self.mib.items():
            found = rss_bytes.get(name, 0)
            samples.append(found / _MIB if found else math.nan)

    def row(self) -> dict[str, dict[str, float]]:
        """Return for each process, in MiB: the median of its first and of its last tenth, and the
        most.
        """
        rows = {}
        for name in sorted(self.mib):
            found = [each for each in self.mib[name] if not math.isnan(each)]
            if found:
                part = max(1, len(found) // _TENTH)
                rows[name] = {
                    "first": round(median(found[:part]), 1),
                    "last": round(median(found[-part:]), 1),
                    "most": round(max(found), 1),
                }
        return rows

    def series(self) -> dict[str, Any]:
        """Return all samples, for JSON."""
        return {
            "seconds": [round(each, 1) for each in self.seconds],
            "acked": list(self.acked),
            "mib": {
                name: [None if math.isnan(each) else round(each, 1) for each in samples]
                for name, samples in sorted(self.mib.items())
            },
        }


def _own_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
