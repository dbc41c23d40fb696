"""How fast a cluster is up, what it weighs and what it costs idle: ``python bench/cluster.py``."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time

from bench.measure import cpu_seconds, pids_of, rss_bytes, running_cluster

ROUNDS = 3
IDLE_SECONDS = 10.0


def cluster_round() -> tuple[float, float, float]:
    """Seconds until ready, megabytes resident in all, percent of a core idle."""
    started = time.perf_counter()
    with running_cluster(bookies=3, brokers=1) as cluster:
        up = time.perf_counter() - started
        time.sleep(2)
        pids = pids_of(cluster)
        before, at = cpu_seconds(pids), time.perf_counter()
        time.sleep(IDLE_SECONDS)
        idle = (cpu_seconds(pids) - before) / (time.perf_counter() - at) * 100
        return up, sum(rss_bytes(pid) for pid in pids) / 1e6, idle


def standalone_round() -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory(prefix="pulsarish-bench-") as directory:
        started = time.perf_counter()
        command = [sys.executable, "-m", "pulsarish", "standalone", "--data", directory]
        command += ["--bookie-set", "listen_address=127.0.0.1:0"]
        command += [
            "--broker-set",
            "listen_address=127.0.0.1:0",
            "--broker-set",
            "http_address=127.0.0.1:0",
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "ready" in line, line
            up = time.perf_counter() - started
            time.sleep(2)
            before, at = cpu_seconds([process.pid]), time.perf_counter()
            time.sleep(IDLE_SECONDS)
            idle = (cpu_seconds([process.pid]) - before) / (time.perf_counter() - at) * 100
            return up, rss_bytes(process.pid) / 1e6, idle
        finally:
            process.terminate()
            process.wait(20)


def main() -> None:
    for name, work, floor in (
        ("cluster of 1 metadata, 3 bookies, 1 broker", cluster_round, "3 s, 350 MB, 1 %"),
        ("standalone", standalone_round, "1 s, 120 MB"),
    ):
        rounds = [work() for _ in range(ROUNDS)]
        up, memory, idle = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(
            f"{name}: up in {up:.2f} s, {memory:.0f} MB resident, {idle:.2f} % of a core idle   "
            f"(wanted: {floor})",
            flush=True,
        )


if __name__ == "__main__":
    main()
