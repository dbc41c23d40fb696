"""What this process and its machine use of CPU and memory, as counters since their start."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass

__all__ = ["Usage", "cores", "resident_bytes", "usage"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Counters. Of a machine that does not tell, its own are 0."""

    process_cpu_seconds: float = 0.0
    resident_bytes: int = 0
    machine_busy_seconds: float = 0.0
    """CPU time that was used on all cores together."""
    machine_cores: int = 1
    machine_memory_bytes: int = 0


def usage() -> Usage:
    """Read the counters of this process and its machine."""
    return Usage(
        time.process_time(),
        resident_bytes(),
        _machine_busy_seconds(),
        os.cpu_count() or 1,
        os.sysconf("SC_PHYS_PAGES") * resource.getpagesize(),
    )


def cores() -> int:
    """Return how many cores this process may use: by its affinity, and by the quota of its
    container.
    """
    count = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max") as limit:
            quota, period = limit.read().split()
    except (OSError, ValueError):
        return count
    return count if quota == "max" else min(count, max(1, int(quota) // int(period)))


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def _machine_busy_seconds() -> float:
    """Return the time that was neither idle nor waiting for disks."""
    try:
        with open("/proc/stat") as stat:
            user, nice, system, _idle, _iowait, *rest = map(int, stat.readline().split()[1:8])
    except (OSError, ValueError):
        return 0.0
    return float(user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")
