"""The pause in acknowledgements when a process dies, and the latency with a slow one: ``python
bench/failover.py``.

An open loop publishes 1 KB messages at a fixed rate while the owner broker or a bookie is killed,
or a bookie is stopped (SIGSTOP). The pause is the longest time without an acknowledgement after the
event; latencies count from when a message was due.

``recovery`` keeps the producer's queue full instead, kills the owner broker and looks how long
after the first acknowledgement from the new owner a second's rate is back at 90 % of what it was,
and that no send fails before its own time-out.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pulsarish
from bench.measure import percentile, pids_of, rss_bytes, running_cluster
from pulsarish.admin import Admin
from pulsarish.local_cluster.processes import Cluster

RATE = 5000
SIZE_BYTES = 1024
SECONDS_BEFORE = 4.0
SECONDS_AFTER = 10.0
RECOVERED_SHARE = 0.9
SEND_TIMEOUT_SECONDS = 30.0
SATURATED_SECONDS_AFTER = 12.0
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
        TOPIC,
        batching_enabled=False,
        block_if_queue_full=True,
        max_pending_messages=200_000,
        send_timeout_millis=60_000,
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
        f"{name}: longest pause {run.pause_seconds():.2f} s, publish p99 "
        f"{run.p99_ms(before=True):.1f} ms before, {run.p99_ms(before=False):.1f} ms after, "
        f"{run.failed} failed{extra}   (wanted: {wanted})",
        flush=True,
    )


def owner_killed() -> None:
    with running_cluster(brokers=2) as cluster:
        owner = Admin(cluster.service_urls()["http"]).topics.lookup(TOPIC)["brokerId"]
        report(
            "owner broker killed", publish(cluster, lambda: cluster.kill(owner)), "2 s, none failed"
        )


def bookie_killed() -> None:
    with running_cluster(bookies=4) as cluster:
        report(
            "one of four bookies killed",
            publish(cluster, lambda: cluster.kill("bookie-1")),
            "0.1 s, none failed",
        )
    with running_cluster() as cluster:
        report(
            "one of three bookies killed",
            publish(cluster, lambda: cluster.kill("bookie-1")),
            "0.1 s, none failed",
        )


def bookie_stopped() -> None:
    with running_cluster() as cluster:
        pids = pids_of(cluster)
        before = sum(rss_bytes(pid) for pid in pids) / 1e6
        run = publish(cluster, lambda: cluster.send_signal("bookie-1", signal.SIGSTOP) and None)
        after = sum(rss_bytes(pid) for pid in pids) / 1e6
        report(
            "bookie stopped (SIGSTOP)",
            run,
            "p99 at most 1.5 times, memory bounded",
            f", resident {before:.0f} -> {after:.0f} MB",
        )


def bookie_late() -> None:
    with running_cluster(late_ms=200) as cluster:
        pids = pids_of(cluster)
        before = sum(rss_bytes(pid) for pid in pids) / 1e6
        run = publish(cluster, lambda: None)
        after = sum(rss_bytes(pid) for pid in pids) / 1e6
        report(
            "bookie 200 ms late all the time",
            run,
            "p99 at most 1.5 times of without",
            f", resident {before:.0f} -> {after:.0f} MB",
        )


def saturate(
    cluster: Cluster, owner: str, max_pending: int, *, batching: bool
) -> tuple[list[float], list[float], float]:
    """Send as fast as the queue takes it while the owner is killed: when each was acknowledged,
    what the failed ones waited, the kill.
    """
    client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    producer = client.create_producer(
        TOPIC,
        batching_enabled=batching,
        block_if_queue_full=True,
        max_pending_messages=max_pending,
        send_timeout_millis=int(SEND_TIMEOUT_SECONDS * 1000),
    )
    payload = b"x" * SIZE_BYTES
    acked: list[float] = []
    failed: list[float] = []

    def send() -> None:
        began = time.perf_counter()

        def done(result: object, _message_id: object) -> None:
            now = time.perf_counter()
            if result == pulsarish.Result.Ok:
                acked.append(now)
            else:
                failed.append(now - began)

        producer.send_async(payload, done)

    started = time.perf_counter()
    killed_at = 0.0
    killing: threading.Thread | None = None
    while (now := time.perf_counter()) < started + SECONDS_BEFORE + SATURATED_SECONDS_AFTER:
        if killing is None and now >= started + SECONDS_BEFORE:
            killed_at = now
            killing = threading.Thread(target=cluster.kill, args=[owner])
            killing.start()
        send()
    producer.flush()
    assert killing is not None
    killing.join()
    client.close()
    return acked, failed, killed_at


def recovery() -> None:
    for max_pending, batching in ((1000, False), (1000, True), (20_000, False), (20_000, True)):
        with running_cluster(brokers=2) as cluster:
            owner = Admin(cluster.service_urls()["http"]).topics.lookup(TOPIC)["brokerId"]
            acked, failed, killed_at = saturate(cluster, owner, max_pending, batching=batching)
        # The first second fills queues and caches.
        rate = sum(killed_at - SECONDS_BEFORE + 1 <= at < killed_at for at in acked) / (
            SECONDS_BEFORE - 1
        )
        gap_end = max(
            pairwise([killed_at, *(at for at in acked if at >= killed_at)]),
            key=lambda pair: pair[1] - pair[0],
        )[1]
        after = [at - gap_end for at in acked if at >= gap_end]
        # The rate of the second that begins so many tenths of a second later; only whole seconds of
        # the run count.
        rates = [
            bisect_left(after, step / 10 + 1) - bisect_left(after, step / 10)
            for step in range(int((after[-1] - 1) * 10))
        ]
        back = next(
            (step / 10 for step, count in enumerate(rates) if count >= RECOVERED_SHARE * rate), None
        )
        seconds = ", ".join(f"{count:,}" for count in rates[::10][:6])
        early = sum(waited < SEND_TIMEOUT_SECONDS for waited in failed)
        print(
            f"owner killed under a full queue of {max_pending}{', batched' * batching}: "
            f"{rate:,.0f}/s before, first acknowledgement after {gap_end - killed_at:.2f} s, then "
            f"second by second {seconds}; 90 % from "
            f"{'never' if back is None else f'{back:.1f} s'} on; {early} of {len(failed)} failed "
            "before their time   (wanted: 90 % within 5 s, none failed early)",
            flush=True,
        )


CASES = {
    "recovery": recovery,
    "owner": owner_killed,
    "bookie": bookie_killed,
    "stopped": bookie_stopped,
    "late": bookie_late,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="all without")
    for name in parser.parse_args().cases or CASES:
        CASES[name]()


if __name__ == "__main__":
    main()
