"""Apache Pulsar's official Python client against three bookies with fsync, beside the same client
against a stub that stores nothing.

    python -m bench.official [--runs 3] [publish|batched|drain|single|end-to-end ...]

Each run measures the stub and the cluster one right after the other, so that a noisy machine is
noisy for both; medians are printed.
"""

from __future__ import annotations

import argparse
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar

from bench.measure import cpu_by_role, percentile, running_cluster
from pulsarish.local_cluster.ports import free_ports
from pulsarish.local_cluster.processes import Cluster

PAYLOAD = b"x" * 1024
WANTED = {
    "publish": "85 % of the stub's rate, at most 45 us of server CPU a message",
    "batched": "90 % of the stub's rate",
    "drain": "40,000/s",
    "single": "p50 1.6 ms",
    "end-to-end": "p50 5 ms",
}


def client(url: str) -> Any:
    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def publish(url: str, topic: str, count: int, *, batching: bool) -> float:
    """Messages a second with a window of 2,000."""
    connection = client(url)
    producer = connection.create_producer(
        topic,
        batching_enabled=batching,
        max_pending_messages=2_000,
        block_if_queue_full=True,
        batching_max_publish_delay_ms=5,
    )
    done = threading.Semaphore(0)
    for _ in range(2_000):
        producer.send_async(PAYLOAD, lambda *_: done.release())
    for _ in range(2_000):
        done.acquire()
    begun = time.perf_counter()
    for _ in range(count):
        producer.send_async(PAYLOAD, lambda *_: done.release())
    for _ in range(count):
        done.acquire()
    seconds = time.perf_counter() - begun
    connection.close()
    return count / seconds


def drain(url: str, topic: str, count: int) -> float:
    """Messages a second out of a backlog in which each is an entry, acknowledged, with a
    listener-free receive loop.
    """
    connection = client(url)
    consumer = connection.subscribe(
        topic, "drain", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=5_000
    )
    consumer.receive(10_000)
    begun = time.perf_counter()
    message = None
    for _ in range(count - 1):
        message = consumer.receive(10_000)
    seconds = time.perf_counter() - begun
    consumer.acknowledge_cumulative(message)
    connection.close()
    return (count - 1) / seconds


def single(url: str, topic: str, count: int) -> list[float]:
    """Milliseconds of each send, one after the other."""
    connection = client(url)
    producer = connection.create_producer(topic, batching_enabled=False)
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        producer.send(PAYLOAD)
        times.append((time.perf_counter() - begun) * 1000)
    connection.close()
    return times[100:]


def end_to_end(url: str, topic: str, seconds: float) -> list[float]:
    """Milliseconds from send to receive at 1,000 a second."""
    connection = client(url)
    consumer = connection.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = connection.create_producer(topic, batching_enabled=False)
    times: queue.Queue[float] = queue.Queue()
    count = int(seconds * 1_000)

    def receive() -> None:
        for _ in range(count):
            message = consumer.receive(10_000)
            times.put((time.perf_counter() - float(message.properties()["at"])) * 1000)
            consumer.acknowledge(message)

    receiver = threading.Thread(target=receive)
    receiver.start()
    begun = time.perf_counter()
    for number in range(count):
        while (wait := begun + number / 1_000 - time.perf_counter()) > 0:
            time.sleep(wait)
        producer.send_async(PAYLOAD, None, properties={"at": repr(time.perf_counter())})
    receiver.join()
    connection.close()
    return [times.get() for _ in range(count)][500:]


@contextmanager
def running_stub() -> Iterator[str]:
    port = next(free_ports("127.0.0.1"))
    command = [sys.executable, "-m", "bench.pulsar_stub", str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield f"pulsar://127.0.0.1:{port}"
        finally:
            process.kill()


def measure(name: str, stub: str, cluster: Cluster, run: int) -> dict[str, float]:
    url = cluster.service_urls()["pulsar"]
    topic = f"bench-{name}-{run}"

    def counted(work: Callable[[], float], count: int) -> dict[str, float]:
        before = cpu_by_role(cluster)
        rate = work()
        after = cpu_by_role(cluster)
        used = {f"us {role}": (after[role] - before[role]) / count * 1e6 for role in after}
        return {"rate": rate, "us server CPU": sum(used.values()), **used}

    match name:
        case "publish" | "batched":
            batching = name == "batched"
            count = 150_000 if batching else 60_000
            ceiling = publish(stub, topic, count, batching=batching)
            found = counted(lambda: publish(url, topic, count, batching=batching), count)
            return {**found, "stub rate": ceiling, "of the stub": found["rate"] / ceiling}
        case "drain":
            count = 60_000
            publish(url, topic, count - 2_000, batching=False)
            return counted(lambda: drain(url, topic, count), count)
        case "single":
            times = single(url, topic, 2_000)
        case _:
            times = end_to_end(url, topic, 6)
    return {"p50 ms": percentile(times, 50), "p99 ms": percentile(times, 99)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", choices=[*WANTED, []], metavar="NAME", help=", ".join(WANTED)
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--broker", action="append", default=[], metavar="KEY=VALUE", help="an option of the broker"
    )
    arguments = parser.parse_args()
    with running_stub() as stub, running_cluster(broker=arguments.broker) as cluster:
        for name in arguments.names or WANTED:
            runs = [measure(name, stub, cluster, run) for run in range(arguments.runs)]
            figures = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            told = ", ".join(
                f"{key} {value:,.2f}" if value < 1_000 else f"{key} {value:,.0f}"
                for key, value in figures.items()
            )
            print(f"{name}: {told} (wanted: {WANTED[name]})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
