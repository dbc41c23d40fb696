"""What the client costs: rates and latencies of the blocking face against a broker, the fake one
unless ``--url`` names a real one.

    python bench/client.py                                    all, against the fake broker
    python bench/client.py --url pulsarish://127.0.0.1:6660   against a running cluster
    python bench/client.py publish-100 drain                  only these
    python bench/client.py --forked publish-1k                by a client in a forked child

The fake broker is a process of its own. A client in a forked child speaks gRPC without its C core.

Prints one line of JSON a measurement: rate a second, microseconds of this process's CPU a message,
latencies in ms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pulsarish

ROOT = pathlib.Path(__file__).resolve().parent.parent


def percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        f"p{share}_ms": round(
            ordered[min(len(ordered) - 1, len(ordered) * share // 100)] * 1_000, 3
        )
        for share in (50, 90, 99)
    }


def publish(
    client: pulsarish.Client, topic: str, *, size: int, count: int, batching: bool, window: int
) -> dict[str, Any]:
    producer = client.create_producer(
        topic,
        batching_enabled=batching,
        max_pending_messages=window,
        block_if_queue_full=True,
        batching_max_publish_delay_ms=10,
    )
    failures: list[Any] = []
    acknowledged = 0

    def done(result: Any, _message_id: Any) -> None:
        nonlocal acknowledged
        acknowledged += 1
        if result != pulsarish.Result.Ok:
            failures.append(result)

    payload = b"x" * size
    send = producer.send_async
    for _ in range(min(count, 20_000)):
        send(payload, done)
    producer.flush()
    acknowledged = 0
    started, used = time.perf_counter(), time.process_time()
    for _ in range(count):
        send(payload, done)
    producer.flush()
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    producer.close()
    assert acknowledged == count, f"{acknowledged} of {count} acknowledged"
    assert not failures, failures[:3]
    return {"rate": round(count / seconds), "cpu_us": round(cpu / count * 1e6, 2)}


def fill(
    client: pulsarish.Client, topic: str, *, size: int, count: int, batching: bool = True
) -> None:
    producer = client.create_producer(
        topic, batching_enabled=batching, max_pending_messages=20_000, block_if_queue_full=True
    )
    for _ in range(count):
        producer.send_async(b"x" * size, None)
    producer.flush()
    producer.close()


def drain(
    client: pulsarish.Client, topic: str, *, size: int, count: int, batch: bool, acknowledge: bool
) -> dict[str, Any]:
    client.subscribe(topic, "drain", initial_position=pulsarish.InitialPosition.Earliest).close()
    fill(client, topic, size=size, count=count)
    policy = pulsarish.ConsumerBatchReceivePolicy(1_000, 1 << 20, 100)
    started, used = time.perf_counter(), time.process_time()
    consumer = client.subscribe(
        topic,
        "drain",
        # A shared subscription stops at 50,000 unacknowledged messages.
        consumer_type=pulsarish.ConsumerType.Shared
        if acknowledge
        else pulsarish.ConsumerType.Exclusive,
        initial_position=pulsarish.InitialPosition.Earliest,
        receiver_queue_size=20_000,
        batch_receive_policy=policy,
    )
    received = 0
    while received < count:
        if batch:
            messages = consumer.batch_receive()
            received += len(messages)
            if acknowledge:
                consumer.acknowledge(messages)
        else:
            message = consumer.receive(timeout_millis=10_000)
            received += 1
            if acknowledge:
                consumer.acknowledge(message)
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    consumer.close()
    return {"rate": round(count / seconds), "cpu_us": round(cpu / count * 1e6, 2)}


def one_at_a_time(client: pulsarish.Client, topic: str, *, size: int, count: int) -> dict[str, Any]:
    producer = client.create_producer(topic)
    payload, times = b"x" * size, []
    for _ in range(count):
        started = time.perf_counter()
        producer.send(payload)
        times.append(time.perf_counter() - started)
    producer.close()
    return percentiles(times[count // 10 :])


def open_loop(
    client: pulsarish.Client, topic: str, *, rate: int, seconds: float, size: int
) -> dict[str, Any]:
    """Messages at a fixed rate whatever the answers do; latency counts from when each was due."""
    producer = client.create_producer(topic, max_pending_messages=200_000)
    times: list[float] = []
    payload = b"x" * size
    started, used = time.perf_counter(), time.process_time()
    total = int(rate * seconds)

    def callback(due: float) -> Callable[[Any, Any], None]:
        return lambda _result, _message_id: times.append(time.perf_counter() - due)

    sent = 0
    while sent < total:
        due_count = min(total, int((time.perf_counter() - started) * rate) + 1)
        while sent < due_count:
            producer.send_async(payload, callback(started + sent / rate))
            sent += 1
        time.sleep(max(0.0, started + sent / rate - time.perf_counter()))
    producer.flush()
    cpu = time.process_time() - used
    producer.close()
    return {
        "rate": rate,
        **percentiles(times[total // 10 :]),
        "cpu_us": round(cpu / total * 1e6, 2),
    }


def end_to_end(
    client: pulsarish.Client, topic: str, *, rate: int, seconds: float, size: int
) -> dict[str, Any]:
    consumer = client.subscribe(topic, "end-to-end")
    producer = client.create_producer(topic, max_pending_messages=100_000)
    total = int(rate * seconds)
    times: list[float] = []

    def receive() -> None:
        for _ in range(total):
            message = consumer.receive(timeout_millis=10_000)
            times.append(time.perf_counter() - float(message.data()[:20]))
            consumer.acknowledge(message)

    thread = threading.Thread(target=receive)
    thread.start()
    started = time.perf_counter()
    for number in range(total):
        time.sleep(max(0.0, started + number / rate - time.perf_counter()))
        producer.send_async(f"{time.perf_counter():020.9f}".encode().ljust(size, b"x"), None)
    thread.join()
    producer.close()
    consumer.close()
    return {"rate": rate, **percentiles(times[total // 10 :])}


MEASUREMENTS: dict[str, Callable[[pulsarish.Client, str], dict[str, Any]]] = {
    "publish-100": lambda client, topic: publish(
        client, topic, size=100, count=600_000, batching=True, window=20_000
    ),
    "publish-1k": lambda client, topic: publish(
        client, topic, size=1_000, count=200_000, batching=True, window=20_000
    ),
    "publish-unbatched-1k": lambda client, topic: publish(
        client, topic, size=1_000, count=100_000, batching=False, window=2_000
    ),
    "drain": lambda client, topic: drain(
        client, topic, size=100, count=600_000, batch=False, acknowledge=False
    ),
    "drain-acknowledged": lambda client, topic: drain(
        client, topic, size=100, count=300_000, batch=False, acknowledge=True
    ),
    "drain-batch": lambda client, topic: drain(
        client, topic, size=100, count=600_000, batch=True, acknowledge=False
    ),
    "drain-batch-acknowledged": lambda client, topic: drain(
        client, topic, size=100, count=300_000, batch=True, acknowledge=True
    ),
    "one-at-a-time-1k": lambda client, topic: one_at_a_time(client, topic, size=1_000, count=2_000),
    "open-2000": lambda client, topic: open_loop(client, topic, rate=2_000, seconds=4, size=1_000),
    "open-5000": lambda client, topic: open_loop(client, topic, rate=5_000, seconds=4, size=1_000),
    "open-20000": lambda client, topic: open_loop(
        client, topic, rate=20_000, seconds=4, size=1_000
    ),
    "end-to-end-1000": lambda client, topic: end_to_end(
        client, topic, rate=1_000, seconds=4, size=1_000
    ),
}


@contextlib.contextmanager
def fake_broker() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.support.fake_broker_process"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"pulsarish://{process.stdout.readline().strip()}"
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", choices=[*MEASUREMENTS, []], help="which measurements; all without"
    )
    parser.add_argument("--url", help="a running cluster")
    parser.add_argument(
        "--forked",
        action="store_true",
        help="measure a client in the forked child of a process that used one",
    )
    arguments = parser.parse_args()
    for name in arguments.names or MEASUREMENTS:
        with contextlib.nullcontext(arguments.url) if arguments.url else fake_broker() as url:
            if arguments.forked:
                in_forked_child(url, lambda name=name, url=url: measure(name, url))
            else:
                measure(name, url)


def measure(name: str, url: str) -> None:
    client = pulsarish.Client(url)
    figures = MEASUREMENTS[name](client, f"bench-{name}-{time.time_ns()}")
    client.close()
    print(json.dumps({"name": name, **figures}), flush=True)


def in_forked_child(url: str, work: Callable[[], None]) -> None:
    with pulsarish.Client(url):
        child = os.fork()
        if child == 0:
            work()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


if __name__ == "__main__":
    main()
