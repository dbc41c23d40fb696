"""What the cluster benches share: a cluster on free ports under a temporary directory, CPU and memory of processes, percentiles."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pulsarish.cli.processes import Cluster, plan_cluster

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@contextmanager
def running_cluster(*, bookies: int = 3, brokers: int = 1, metadata: str = "embedded", broker: Sequence[str] = ()) -> Iterator[Cluster]:
    """A cluster that is stopped, and whose data is removed, at the end."""
    with tempfile.TemporaryDirectory(prefix="pulsarish-bench-") as directory:
        cluster = Cluster(Path(directory))
        nodes = plan_cluster(bookies=bookies, brokers=brokers, metadata=metadata, base_port=0)
        for node in nodes:
            if node.role == "broker":
                node.settings += broker
        cluster.create(nodes)
        try:
            cluster.up()
            yield cluster
        finally:
            for node in nodes:
                if cluster.pid(node.name) is not None:
                    cluster.kill(node.name)


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time of processes so far."""
    total = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
    return total


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def pids_of(cluster: Cluster) -> list[int]:
    return [pid for node in cluster.nodes() if (pid := cluster.pid(node.name)) is not None]


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which ``percent`` of the sorted values lie; 0 when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0
