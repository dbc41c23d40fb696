"""What several broker processes behind one address bring: ``python -m bench.cores``.

``--processes`` 1 and 2 are measured in turn, in ``--rounds``, on a cluster of their own with one
bookie. Two client processes publish to ``--topics`` topics as fast as they are acknowledged, one
entry a message, and consume them. Printed are the medians, and the least and greatest, of messages
a second that were published and consumed, and of CPU time of the brokers for each.

With clients, bookie and brokers on the same few cores, the machine is full before a broker is.
``--share 0.2`` lets each broker process run a fifth of the time only, by SIGSTOP and SIGCONT: as on
cores that are slower than the rest. So the brokers are the limit, and what a second process adds
can be seen on a machine with few cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pulsarish.asyncio
from bench.measure import cpu_seconds, running_cluster
from pulsarish.admin import Admin
from pulsarish.local_cluster.plan import metadata_url
from pulsarish.local_cluster.processes import Cluster

CLIENTS = 2
SIZE_BYTES = 1_024
UNANSWERED = 200  # messages of one producer
WARM_SECONDS = 2.0
SLICE_SECONDS = 0.05


@contextmanager
def running_brokers(cluster: Cluster, processes: int) -> Iterator[tuple[str, list[int]]]:
    """Brokers of ``cluster``: the gRPC and HTTP address of all, and their pids."""
    words = [sys.executable, "-m", "pulsarish", "broker", "--processes", str(processes)]
    for setting in (
        "broker_id=b",
        "listen_address=127.0.0.1:0",
        "http_address=127.0.0.1:0",
        "pulsar_address=",
        f"metadata_url={metadata_url(cluster.nodes())}",
        "load_balancer_enabled=false",
        "log_level=warning",
        *(f"managed_ledger.{each}=1" for each in ("ensemble_size", "write_quorum", "ack_quorum")),
    ):
        words += ["--set", setting]
    group = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert group.stdout is not None
        line = ""
        while "internal:" not in line and "grpc=" not in line:
            line = group.stdout.readline()
            assert line, "the brokers did not start"
            if processes > 1 and "brokers ready" not in line:
                line = ""
        addresses = [word.replace("=", "//").rpartition("//")[2] for word in line.split()[3:]]
        children = Path(f"/proc/{group.pid}/task/{group.pid}/children").read_text().split()
        pids = [int(pid) for pid in children] if processes > 1 else [group.pid]
        yield " ".join(addresses[:2]), pids
    finally:
        group.terminate()
        group.wait(30)


@contextmanager
def slowed(pids: Sequence[int], share: float) -> Iterator[None]:
    """Let processes run for this share of the time only."""
    ended = threading.Event()

    def take_turns() -> None:
        while not ended.is_set():
            for number, seconds in ((signal.SIGSTOP, 1 - share), (signal.SIGCONT, share)):
                for pid in pids:
                    os.kill(pid, number)
                time.sleep(seconds * SLICE_SECONDS)

    turns = threading.Thread(target=take_turns)
    if share < 1:
        turns.start()
    try:
        yield
    finally:
        ended.set()
        if share < 1:
            turns.join()


def spread(http: str, topics: int) -> None:
    """Have the topics' bundles served by all brokers in turn."""
    own = [each["http_address"] for each in Admin(f"http://{http}").brokers.list()]
    for number in range(topics):
        path = f"/lookup/v2/topic/persistent/public/default/c{number}?authoritative=true"
        with urllib.request.urlopen(f"http://{own[number % len(own)]}{path}", timeout=30) as answer:
            answer.read()


async def _client(url: str, topics: Sequence[str], seconds: float) -> dict[str, float]:
    counts = {"published": 0, "consumed": 0}
    until = time.perf_counter() + WARM_SECONDS + seconds
    begun = time.perf_counter() + WARM_SECONDS

    async def publish(client: pulsarish.asyncio.Client, topic: str) -> None:
        producer = await client.create_producer(
            topic, batching_enabled=False, max_pending_messages=UNANSWERED
        )

        async def one_by_one() -> None:
            while time.perf_counter() < until:
                await producer.send(bytes(SIZE_BYTES))
                counts["published"] += time.perf_counter() >= begun

        await asyncio.gather(*(one_by_one() for _ in range(UNANSWERED)))

    async def consume(client: pulsarish.asyncio.Client, topic: str) -> None:
        consumer = await client.subscribe(topic, "s")
        while time.perf_counter() < until:
            try:
                message = await asyncio.wait_for(consumer.receive(), 1)
            except TimeoutError:
                continue
            await consumer.acknowledge(message)
            counts["consumed"] += time.perf_counter() >= begun

    client = pulsarish.asyncio.Client(url)
    work = [each(client, topic) for topic in topics for each in (consume, publish)]
    await asyncio.gather(*work)
    await client.close()
    return {name: count / seconds for name, count in counts.items()}


def measure(processes: int, topics: int, seconds: float, share: float) -> dict[str, float]:
    with running_cluster(bookies=1, brokers=1) as cluster:
        cluster.stop("broker-1")
        with running_brokers(cluster, processes) as (addresses, pids):
            grpc, http = addresses.split()
            spread(http, topics)
            names = [f"c{number}" for number in range(topics)]
            words = [sys.executable, "-m", "bench.cores", "--client", f"pulsarish://{grpc}"]
            words += ["--seconds", str(seconds)]
            with slowed(pids, share):
                before = cpu_seconds(pids)
                clients = [
                    subprocess.Popen(
                        [*words, *names[first::CLIENTS]], stdout=subprocess.PIPE, text=True
                    )
                    for first in range(CLIENTS)
                ]
                found = [json.loads(each.communicate()[0]) for each in clients]
                used = cpu_seconds(pids) - before
    rates = {name: sum(each[name] for each in found) for name in ("published", "consumed")}
    # The warm-up counts for the CPU time, and for the messages.
    messages = rates["published"] * (seconds + WARM_SECONDS)
    return {**rates, "cpu_us": used / max(messages, 1) * 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--topics", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--client", metavar="URL", help="Be a client of the topics that follow.")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.client:
        print(json.dumps(asyncio.run(_client(given.client, given.names, given.seconds))))
        return
    rounds: dict[int, list[dict[str, float]]] = {}
    for _ in range(given.rounds):
        for processes in given.processes:
            found = measure(processes, given.topics, given.seconds, given.share)
            rounds.setdefault(processes, []).append(found)
    for processes, results in rounds.items():
        figures = []
        for name, unit in (("published", "/s"), ("consumed", "/s"), ("cpu_us", "")):
            values = sorted(each[name] for each in results)
            figures.append(
                f"{name} {statistics.median(values):,.0f}{unit} "
                f"({values[0]:,.0f} to {values[-1]:,.0f})"
            )
        print(f"{processes} processes: {', '.join(figures)}", flush=True)


if __name__ == "__main__":
    main()
