"""Reads of a backlog, from bookies: ``python -m bench.cold_reads [stopped|shared|lone|ahead] ...``.

* ``stopped``: the time to the first message of a backlog while one of three bookies is stopped
  (SIGSTOP), for each of six topics and each of the three bookies.
* ``shared``: bytes that bookies gave for each byte of the log, for readers that start within a
  second and read one backlog to its end.
* ``lone``: the rate of one reader of a backlog.
* ``ahead``: the same without and with read-ahead, in turn, and the reads that asked a bookie only
  when the reader was there.

``--broker NAME=VALUE`` sets an option of the broker. The defaults before are
``ledger.speculative_reads_share_max=0`` and ``managed_ledger_read_cache_size_bytes=0``.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import time
import urllib.request
from collections.abc import Callable, Sequence

import pulsarish
import pulsarish.asyncio
from bench.measure import cpu_seconds, running_cluster
from pulsarish.local_cluster.processes import Cluster

TOPICS = 6
STOPPED_MESSAGES = 200
BACKLOG_BYTES = 48 << 20
READERS = 20
SPREAD_SECONDS = 1.0
ROUNDS = 3
PAIRS = 5
MISSES = "pulsarish_ml_read_cache_misses_total"
# Nothing of the backlog is in the cache of the newest entries.
COLD = ("managed_ledger_cache_size_bytes=0",)


def fill(cluster: Cluster, topic: str, count: int, size_bytes: int) -> None:
    client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    payload = b"x" * size_bytes
    for _ in range(count):
        producer.send_async(payload, lambda _result, _message_id: None)
    producer.flush()
    client.close()


def counted(cluster: Cluster, role: str, name: str) -> float:
    """Return the sum of a counter over all brokers, or all bookies."""
    total = 0.0
    for node in cluster.nodes():
        if node.role == role:
            url = f"http://127.0.0.1:{node.http_port}/metrics"
            with urllib.request.urlopen(url, timeout=5) as answer:
                for line in answer.read().decode().splitlines():
                    if line.startswith(name):
                        total += float(line.rpartition(" ")[2])
    return total


def bytes_read(cluster: Cluster) -> float:
    """Return the bytes of entries that all bookies have given so far."""
    return counted(cluster, "bookie", "bookie_READ_BYTES")


def broker_pids(cluster: Cluster) -> list[int]:
    return [
        pid for node in cluster.nodes() if node.role == "broker" and (pid := cluster.pid(node.name))
    ]


def stopped(settings: Sequence[str]) -> None:
    first: list[float] = []
    later: list[float] = []
    for number in (1, 2, 3):
        with running_cluster(broker=(*COLD, *settings)) as cluster:
            client = pulsarish.Client(cluster.service_urls()["pulsarish"])
            topics = [f"persistent://public/default/cold-{each}" for each in range(TOPICS)]
            for topic in topics:
                fill(cluster, topic, STOPPED_MESSAGES, 1_024)
                _ = client.create_reader(topic, pulsarish.MessageId.latest)  # loads it
            name = f"bookie-{number}"
            cluster.send_signal(name, signal.SIGSTOP)
            took = []
            for topic in topics:
                began = time.perf_counter()
                reader = client.create_reader(topic, pulsarish.MessageId.earliest)
                _ = reader.read_next()
                took.append(time.perf_counter() - began)
            cluster.send_signal(name, signal.SIGCONT)
            client.close()
            print(f"{name} stopped: {', '.join(f'{each:.2f}' for each in took)} s", flush=True)
            took.sort(reverse=True)
            first.append(took[0])
            later += took[1:]
    print(
        f"the slowest read of a cluster {max(first):.2f} s, the others p50 "
        f"{statistics.median(later):.2f} s, most {max(later):.2f} s",
        flush=True,
    )


async def _drain(url: str, topic: str, count: int, wait_seconds: float) -> float:
    await asyncio.sleep(wait_seconds)
    began = time.perf_counter()
    client = pulsarish.asyncio.Client(url)
    try:
        reader = await client.create_reader(topic, pulsarish.MessageId.earliest)
        for _ in range(count):
            _ = await reader.read_next()
    finally:
        await client.close()
    return time.perf_counter() - began


async def _drain_all(url: str, topic: str, count: int, readers: int) -> list[float]:
    return await asyncio.gather(
        *(
            _drain(url, topic, count, SPREAD_SECONDS * number / max(1, readers - 1))
            for number in range(readers)
        )
    )


def backlog(settings: Sequence[str], readers: int, size_bytes: int) -> None:
    count = BACKLOG_BYTES // size_bytes
    with running_cluster(broker=(*COLD, *settings)) as cluster:
        topic = "persistent://public/default/backlog"
        fill(cluster, topic, count, size_bytes)
        broker = broker_pids(cluster)
        url = cluster.service_urls()["pulsarish"]
        for _ in range(ROUNDS):
            before, cpu = bytes_read(cluster), cpu_seconds(broker)
            took = asyncio.run(_drain_all(url, topic, count, readers))
            read = bytes_read(cluster) - before
            print(
                f"{readers} readers of {BACKLOG_BYTES >> 20} MiB, messages of {size_bytes} bytes: "
                f"bookies gave {read / BACKLOG_BYTES:.2f} of the log, slowest reader "
                f"{max(took):.1f} s ({count / max(took):,.0f} messages/s), CPU of the broker "
                f"{(cpu_seconds(broker) - cpu) / count / readers * 1e6:.1f} us a message",
                flush=True,
            )


def shared(settings: Sequence[str]) -> None:
    backlog(settings, READERS, 10_240)


def lone(settings: Sequence[str]) -> None:
    for size_bytes in (10_240, 1_024):
        backlog(settings, 1, size_bytes)


def ahead(settings: Sequence[str]) -> None:
    for size_bytes in (100, 1_024, 10_240):
        count = min(BACKLOG_BYTES // size_bytes, 40_000)
        rates: dict[str, list[float]] = {"without": [], "with": []}
        costs: dict[str, list[float]] = {"without": [], "with": []}
        waited: dict[str, list[float]] = {"without": [], "with": []}
        for _ in range(PAIRS):
            for name in rates:
                off = ("managed_ledger_read_ahead_size_bytes=0",) if name == "without" else ()
                with running_cluster(broker=(*COLD, *settings, *off)) as cluster:
                    topic = "persistent://public/default/backlog"
                    fill(cluster, topic, count, size_bytes)
                    broker = broker_pids(cluster)
                    misses, cpu = counted(cluster, "broker", MISSES), cpu_seconds(broker)
                    url = cluster.service_urls()["pulsarish"]
                    took = asyncio.run(_drain_all(url, topic, count, 1))[0]
                    rates[name].append(count / took)
                    costs[name].append((cpu_seconds(broker) - cpu) / count * 1e6)
                    waited[name].append(counted(cluster, "broker", MISSES) - misses)
        for name in rates:
            print(
                f"{name} read-ahead, {count} messages of {size_bytes} bytes: "
                f"{statistics.median(rates[name]):,.0f} messages/s "
                f"({min(rates[name]):,.0f} to {max(rates[name]):,.0f}), CPU of the broker "
                f"{statistics.median(costs[name]):.1f} us a message, "
                f"{statistics.median(waited[name]):.0f} reads when the reader was there",
                flush=True,
            )


WORK: dict[str, Callable[[Sequence[str]], None]] = {
    "stopped": stopped,
    "shared": shared,
    "lone": lone,
    "ahead": ahead,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("work", nargs="*", choices=[*WORK, []], help="all without")
    parser.add_argument("--broker", action="append", default=[], metavar="NAME=VALUE")
    chosen = parser.parse_args()
    for name in chosen.work or WORK:
        WORK[name](chosen.broker)


if __name__ == "__main__":
    main()
