"""Publish latency while bookies checkpoint: an open loop at a fixed rate, long enough for several
checkpoints.

    python bench/steady.py                          5,000/s of 1 KB for 40 s, two rounds
    python bench/steady.py --against ../before      in turn with servers from another tree
    python bench/steady.py --bookie checkpoint_interval_seconds=3

Latency counts from when a message was due. The worst second shows what a checkpoint costs; the
median second what there is without one.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pulsarish
from bench.measure import TICKS_PER_SECOND, cpu_seconds, percentile, pids_of, running_cluster
from pulsarish.local_cluster.processes import Cluster

TOPIC = "persistent://public/default/steady"
SIZE_BYTES = 1024
WARM_SECONDS = 2.0


@contextmanager
def servers_from(tree: Path | None) -> Iterator[None]:
    """Servers started meanwhile run the code of this tree."""
    before = dict(os.environ)
    if tree is not None:
        # Without the second ``python -m`` would look into the current directory first.
        os.environ.update(PYTHONPATH=str(tree.absolute()), PYTHONSAFEPATH="1")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def publish(url: str, rate: int, seconds: float) -> list[tuple[float, float]]:
    """When each message was due, from the start, and how long its receipt took."""
    client = pulsarish.Client(url)
    producer = client.create_producer(
        TOPIC, batching_enabled=False, block_if_queue_full=True, max_pending_messages=200_000
    )
    payload = b"x" * SIZE_BYTES
    for _ in range(100):
        producer.send(payload)
    taken: list[tuple[float, float]] = []
    started = time.perf_counter()

    def send(due: float) -> None:
        def done(result: object, _message_id: object) -> None:
            assert result == pulsarish.Result.Ok, result
            taken.append((due - started, time.perf_counter() - due))

        producer.send_async(payload, done)

    for number in range(int(rate * (seconds + WARM_SECONDS))):
        due = started + number / rate
        if (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        send(due)
    producer.flush()
    client.close()
    return [(at, took) for at, took in taken if at >= WARM_SECONDS]


def machine_busy_seconds() -> float:
    """What all processes together have used: a shared machine spoils latencies, so a round says how
    much was not its own.
    """
    user, nice, system = Path("/proc/stat").read_text().split(maxsplit=4)[1:4]
    return (int(user) + int(nice) + int(system)) / TICKS_PER_SECOND


def checkpoints(cluster: Cluster) -> list[int]:
    found = []
    for node in cluster.nodes():
        if node.role == "bookie":
            with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/metrics") as answer:
                match = re.search(
                    r"^bookie_flush_count\S* (\d+)", answer.read().decode(), re.MULTILINE
                )
                found.append(int(match[1]) if match else 0)
    return found


def measure(
    name: str, tree: Path | None, rate: int, seconds: float, settings: Sequence[str]
) -> list[float]:
    """Measure once and print; the latencies in seconds."""
    with servers_from(tree), running_cluster(bookie=settings) as cluster:
        pids = pids_of(cluster)
        used, busy, own, began = (
            cpu_seconds(pids),
            machine_busy_seconds(),
            time.process_time(),
            time.perf_counter(),
        )
        taken = publish(cluster.service_urls()["pulsarish"], rate, seconds)
        used, busy, own = (
            cpu_seconds(pids) - used,
            machine_busy_seconds() - busy,
            time.process_time() - own,
        )
        others = max(0.0, busy - used - own) / (time.perf_counter() - began) / (os.cpu_count() or 1)
        done = checkpoints(cluster)
    by_second: dict[int, list[float]] = {}
    for at, took in taken:
        by_second.setdefault(int(at), []).append(took)
    p99s = [percentile(values, 99) * 1000 for _, values in sorted(by_second.items())]
    p50, p99, p999 = (
        percentile([took for _, took in taken], share) * 1000 for share in (50, 99, 99.9)
    )
    print(
        f"{name}: {len(taken)} at {rate}/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, p99.9 {p999:.1f} "
        f"ms; p99 of a second: median {statistics.median(p99s):.1f} ms, worst {max(p99s):.1f} ms; "
        f"{done} checkpoints; {used / len(taken) * 1e6:.0f} us of server CPU each; others used "
        f"{others:.0%} of the machine",
        flush=True,
    )
    return [took for _, took in taken]


def summary(name: str, rounds: Sequence[Sequence[float]]) -> None:
    """The median of the rounds: a machine that others use too spoils single ones."""
    figures = [
        statistics.median([percentile(took, share) * 1000 for took in rounds])
        for share in (50, 99, 99.9)
    ]
    print(
        f"{name}, median of {len(rounds)} rounds: p50 {figures[0]:.1f} ms, p99 {figures[1]:.1f} "
        f"ms, p99.9 {figures[2]:.1f} ms",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--against", type=Path, help="another source tree, measured in turn with this one"
    )
    parser.add_argument(
        "--bookie", action="append", default=[], help="a setting of the bookies, key=value"
    )
    arguments = parser.parse_args()
    trees = (
        {"this tree": None}
        if arguments.against is None
        else {str(arguments.against): arguments.against, "this tree": None}
    )
    taken: dict[str, list[list[float]]] = {name: [] for name in trees}
    for _ in range(arguments.rounds):
        for name, tree in trees.items():
            taken[name].append(
                measure(name, tree, arguments.rate, arguments.seconds, arguments.bookie)
            )
    for name, rounds in taken.items():
        summary(name, rounds)


if __name__ == "__main__":
    main()
