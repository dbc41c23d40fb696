"""What the cluster benches share: a cluster on free ports under a temporary directory, CPU and
memory of processes, percentiles.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pulsarish.local_cluster.locked import lock_cluster
from pulsarish.local_cluster.plan import plan_cluster
from pulsarish.local_cluster.processes import Cluster

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
WAIT_SECONDS = 300.0


@contextmanager
def running_cluster(
    *,
    bookies: int = 3,
    brokers: int = 1,
    metadata: str = "embedded",
    broker: Sequence[str] = (),
    bookie: Sequence[str] = (),
    late_ms: int = 0,
    locked: bool = False,
) -> Iterator[Cluster]:
    """A cluster that is stopped, and whose data is removed, at the end.

    With ``late_ms`` bookie-1 answers that much later. ``locked``: all have TLS and tokens.
    """
    with tempfile.TemporaryDirectory(prefix="pulsarish-bench-") as directory, ExitStack() as stack:
        cluster = Cluster(Path(directory))
        nodes = plan_cluster(bookies=bookies, brokers=brokers, metadata=metadata, base_port=0)
        for node in nodes:
            if node.role == "broker":
                node.settings += broker
            if node.role == "bookie":
                node.settings += bookie
            if node.name == "bookie-1" and late_ms:
                port = stack.enter_context(_late_proxy(node.ports["grpc"], late_ms))
                node.settings.append(f"advertised_address=127.0.0.1:{port}")
        if locked:
            lock_cluster(cluster, nodes)
        cluster.create(nodes)
        try:
            cluster.up()
            yield cluster
        finally:
            for node in cluster.nodes():
                if cluster.pid(node.name) is not None:
                    cluster.kill(node.name)


@contextmanager
def _late_proxy(target_port: int, late_ms: int) -> Iterator[int]:
    """The port of a proxy in front of ``target_port``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-m", "bench.late_proxy", str(port), str(target_port), str(late_ms)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield port
    finally:
        process.kill()
        process.wait()


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


def cpu_by_role(cluster: Cluster) -> dict[str, float]:
    """CPU seconds so far of the metadata service, of the bookies together and of the brokers
    together.
    """
    found: dict[str, float] = {}
    for node in cluster.nodes():
        if (pid := cluster.pid(node.name)) is not None:
            found[node.role] = found.get(node.role, 0.0) + cpu_seconds([pid])
    return found


def per_item_ms(before: Mapping[str, float], after: Mapping[str, float], count: int) -> str:
    """What each role used for one of ``count`` things."""
    parts = [f"{role} {(after[role] - before[role]) / count * 1000:.2f}" for role in after]
    return (
        f"{sum(after[role] - before[role] for role in after) / count * 1000:.2f} ms of CPU "
        f"each ({', '.join(parts)})"
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which ``percent`` of the sorted values lie; 0 when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


def wait_until(
    what: str,
    is_true: Callable[[], bool],
    *,
    every_seconds: float = 0.1,
    seconds: float = WAIT_SECONDS,
) -> None:
    """Return once a condition holds. Raises ``TimeoutError`` that says what was waited for."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(every_seconds)
