"""The pause in acknowledgements when a process dies, and the latency with a slow one: ``python bench/failover.py``.

An open loop publishes 1 KB messages at a fixed rate while the owner broker or a bookie is killed, or a bookie is stopped (SIGSTOP). The
pause is the longest time without an acknowledgement after the event; latencies count from when a message was due.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pulsarish
from bench.measure import percentile, pids_of, rss_bytes, running_cluster
from pulsarish.admin import Admin
from pulsarish.cli.processes import Cluster

RATE = 5000
SIZE_BYTES = 1024
SECONDS_BEFORE = 4.0
SECONDS_AFTER = 10.0
TOPIC = "persistent://public/default/failover"


@dataclass
class Run:
    acked_at: list[float] = field(default_factory=list)
    latencies: list[tuple[float, float]] = field(default_factory=list)  # due, seconds
    failed: int = 0
    event_at: float = 0.0

    def pause_seconds(self) -> float:
        after = [self.event_at, *(at for at in self.acked_at if at >= self.event_at)]
        return max(later - earlier for earlier, later in pairwise(after))

    def p99_ms(self, *, before: bool) -> float:
        chosen = [seconds for due, seconds in self.latencies if (due < self.event_at) == before]
        return percentile(chosen, 99) * 1000


def publish(cluster: Cluster, event: Callable[[], None]) -> Run:
    run = Run()
    client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    producer = client.create_producer(
        TOPIC, batching_enabled=False, block_if_queue_full=True, max_pending_messages=200_000, send_timeout_millis=60_000
    )
    payload = b"x" * SIZE_BYTES
    for _ in range(100):
        producer.send(payload)
    started = time.perf_counter()
    total = int(RATE * (SECONDS_BEFORE + SECONDS_AFTER))
    happened: threading.Thread | None = None

    def send(due: float) -> None:
        def done(result: object, _message_id: object) -> None:
            now = time.perf_counter()
            if result == pulsarish.Result.Ok:
                run.acked_at.append(now)
                run.latencies.append((due, now - due))
            else:
                run.failed += 1

        producer.send_async(payload, done)

    for number in range(total):
        due = started + number / RATE
        wait = due - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        if happened is None and due - started >= SECONDS_BEFORE:
            run.event_at = time.perf_counter()
            happened = threading.Thread(target=event)
            happened.start()
        send(due)
    producer.flush()
    assert happened is not None
    happened.join()
    client.close()
    return run


def report(name: str, run: Run, wanted: str, extra: str = "") -> None:
    print(
        f"{name}: longest pause {run.pause_seconds():.2f} s, publish p99 {run.p99_ms(before=True):.1f} ms before, "
        f"{run.p99_ms(before=False):.1f} ms after, {run.failed} failed{extra}   (wanted: {wanted})",
        flush=True,
    )


def owner_killed() -> None:
    with running_cluster(brokers=2) as cluster:
        owner = Admin(cluster.service_urls()["http"]).lookup(TOPIC)["brokerId"]
        report("owner broker killed", publish(cluster, lambda: cluster.kill(owner)), "2 s, none failed")


def bookie_killed() -> None:
    with running_cluster(bookies=4) as cluster:
        report("one of four bookies killed", publish(cluster, lambda: cluster.kill("bookie-1")), "0.1 s, none failed")
    with running_cluster() as cluster:
        report("one of three bookies killed", publish(cluster, lambda: cluster.kill("bookie-1")), "0.1 s, none failed")


def bookie_stopped() -> None:
    with running_cluster() as cluster:
        pids = pids_of(cluster)
        before = sum(rss_bytes(pid) for pid in pids) / 1e6
        run = publish(cluster, lambda: cluster.send_signal("bookie-1", signal.SIGSTOP) and None)
        after = sum(rss_bytes(pid) for pid in pids) / 1e6
        report("bookie stopped (SIGSTOP)", run, "p99 at most 1.5 times, memory bounded", f", resident {before:.0f} -> {after:.0f} MB")


def bookie_late() -> None:
    with running_cluster(late_ms=200) as cluster:
        pids = pids_of(cluster)
        before = sum(rss_bytes(pid) for pid in pids) / 1e6
        run = publish(cluster, lambda: None)
        after = sum(rss_bytes(pid) for pid in pids) / 1e6
        report("bookie 200 ms late all the time", run, "p99 at most 1.5 times of without", f", resident {before:.0f} -> {after:.0f} MB")


CASES = {"owner": owner_killed, "bookie": bookie_killed, "stopped": bookie_stopped, "late": bookie_late}


def main() -> None:
    for name in sys.argv[1:] or CASES:
        CASES[name]()


if __name__ == "__main__":
    main()
