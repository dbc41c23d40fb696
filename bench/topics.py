"""What many topics cost: ``python bench/topics.py [open] [create] [crowd]``.

* ``open``: one asyncio client opens a producer on each of 3,000 topics that do not exist yet, 64 at
  a time, and sends one message with each. The rate, the broker's memory a topic, and what it uses
  idle afterwards.
* ``create``: 32 callers create topics over HTTP, each on a kept connection.
* ``crowd``: 64 callers list, read statistics, create and delete among 20,000 topics while 2,000
  messages/s are published and lookups go on; their p99 against that without the callers, in one
  run.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from functools import partial
from multiprocessing.sharedctypes import Synchronized

import pulsarish
import pulsarish.asyncio
from bench.measure import (
    cpu_by_role,
    cpu_seconds,
    per_item_ms,
    percentile,
    rss_bytes,
    running_cluster,
    wait_until,
)
from pulsarish.local_cluster.processes import Cluster

OPEN_TOPICS = 3000
OPEN_CALLERS = 64
IDLE_SECONDS = 10.0
SETTLE_SECONDS = 25.0
CREATE_CALLERS = 32
CREATE_TOPICS = 6000
CROWD_TOPICS = 20_000
CROWD_CALLERS = 64
CROWD_PROCESSES = 2
CROWD_SECONDS = 15.0
CROWD_RATE = 2000
CROWD_NICENESS = 10
SIZE_BYTES = 1024
TENANT = "public/default"


# Opening a producer on each of many topics.


async def open_and_send(url: str, first: int, count: int) -> float:
    """Topics opened and sent to, a second."""
    client = pulsarish.asyncio.Client(url)
    numbers = iter(range(first, first + count))
    producers = []

    async def caller() -> None:
        for number in numbers:
            producer = await client.create_producer(f"persistent://{TENANT}/open-{number}")
            await producer.send(b"x" * 100)
            producers.append(producer)

    started, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(OPEN_CALLERS)))
    rate = count / (time.perf_counter() - started)
    print(f"{rate:.1f} {time.process_time() - used:.3f}", flush=True)
    # Held open, until the other end has measured the broker.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await client.close()
    return rate


def open_client(url: str, first: int, count: int) -> subprocess.Popen[str]:
    """A client in a process of its own, so that the broker's memory and time are measured beside
    it.
    """
    command = [sys.executable, "-m", "bench.topics", "--open-at", url, str(first), str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def opening() -> None:
    with running_cluster() as cluster:
        url = cluster.service_urls()["pulsarish"]
        broker = cluster.pid("broker-1")
        assert broker is not None
        clients = []
        # The first topics fill what is filled once: caches, the allocator's arenas.
        for first, count in ((0, 300), (300, OPEN_TOPICS)):
            memory, before = rss_bytes(broker), {**cpu_by_role(cluster), "client": 0.0}
            client = open_client(url, first, count)
            clients.append(client)
            assert client.stdout is not None
            rate, client_seconds = map(float, client.stdout.readline().split())
            used = per_item_ms(
                before, {**cpu_by_role(cluster), "client": client_seconds}, OPEN_TOPICS
            )
        memory = rss_bytes(broker) - memory
        time.sleep(SETTLE_SECONDS)
        idle = cpu_seconds([broker])
        time.sleep(IDLE_SECONDS)
        idle = cpu_seconds([broker]) - idle
        print(
            f"a producer and a message on each of {OPEN_TOPICS} new topics: {rate:,.0f}/s, "
            f"{used}, {memory / OPEN_TOPICS / 1000:.1f} KB of broker memory a topic, broker "
            f"idle after {idle / IDLE_SECONDS:.2%} of a core"
            "   (wanted: 800/s, 12 KB, 1 %)",
            flush=True,
        )
        for client in clients:
            client.kill()
            client.wait()


# Creating topics over HTTP.


class Caller:
    """One caller of the administration, on a connection that it keeps."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urllib.parse.urlparse(url).netloc, timeout=60)

    def ask(self, method: str, path: str) -> tuple[int, bytes]:
        self._connection.request(method, path)
        answer = self._connection.getresponse()
        return answer.status, answer.read()


def _topic_path(name: str) -> str:
    return f"/admin/v2/persistent/{TENANT}/{name}"


async def ask_many(netloc: str, requests: list[tuple[str, str]], callers: int) -> list[float]:
    """Make the requests, so many at a time; how long each took.

    Written by hand, because http.client costs more than the broker does.
    """
    host, _, port = netloc.partition(":")
    todo = iter(requests)
    took: list[float] = []

    async def caller() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for method, path in todo:
            began = time.perf_counter()
            writer.write(
                f"{method} {path} HTTP/1.1\r\nHost: {netloc}\r\nContent-Length: 0\r\n\r\n".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                ),
                0,
            )
            body = await reader.readexactly(length)
            status = int(head.split(None, 2)[1])
            assert status in (200, 204), f"{method} {path}: {status} {body!r}"
            took.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(caller() for _ in range(callers)))
    return took


def create_topics(url: str, prefix: str, count: int) -> list[float]:
    requests = [("PUT", _topic_path(f"{prefix}-{number}")) for number in range(count)]
    return asyncio.run(ask_many(urllib.parse.urlparse(url).netloc, requests, CREATE_CALLERS))


def creating() -> None:
    with running_cluster() as cluster:
        url = cluster.service_urls()["http"]
        create_topics(url, "warm", 500)
        before, started, own = cpu_by_role(cluster), time.perf_counter(), time.process_time()
        took = create_topics(url, "created", CREATE_TOPICS)
        seconds = time.perf_counter() - started
        used = per_item_ms(
            {**before, "callers": own},
            {**cpu_by_role(cluster), "callers": time.process_time()},
            CREATE_TOPICS,
        )
        print(
            f"{CREATE_TOPICS} topics created over HTTP by {CREATE_CALLERS} callers: "
            f"{CREATE_TOPICS / seconds:,.0f}/s, p50 {percentile(took, 50) * 1000:.1f} ms, p99 "
            f"{percentile(took, 99) * 1000:.1f} ms, {used}   (wanted: 1,000/s)",
            flush=True,
        )


# A crowd of administrators beside the data path.


def _all_ask(going: Synchronized[int]) -> bool:
    return going.value == CROWD_PROCESSES


def administrate(url: str, number: int, going: Synchronized[int], done: Synchronized[int]) -> None:
    """A process of callers that list, read statistics, create and delete, while ``going``: which
    counts the processes that have begun, and is negative in the end. It gives way to those whose
    latency is measured: what it uses itself is no cost of administration.
    """
    os.nice(CROWD_NICENESS)

    def caller(own: int) -> None:
        rng = random.Random(own)
        ask, count = Caller(url).ask, 0
        while going.value >= 0:
            kind = rng.randrange(10)
            if kind == 0:
                status, _ = ask("GET", f"/admin/v2/persistent/{TENANT}?limit=1000")
            elif kind < 6:
                status, _ = ask(
                    "GET", f"{_topic_path(f'crowd-{rng.randrange(CROWD_TOPICS)}')}/stats"
                )
            elif kind < 8:
                status, _ = ask("PUT", _topic_path(f"extra-{own}-{count}"))
            else:
                status, _ = ask("DELETE", _topic_path(f"extra-{own}-{count - 1}"))
            # 404: nothing of that name was made yet. 429 and 503: told to wait, which is an answer
            # too.
            assert status in (200, 204, 404, 409, 429, 503), status
            count += 1
            with done.get_lock():
                done.value += 1

    threads = [
        threading.Thread(target=caller, args=[number * 1000 + index])
        for index in range(CROWD_CALLERS // CROWD_PROCESSES)
    ]
    for thread in threads:
        thread.start()
    with going.get_lock():
        going.value += 1
    for thread in threads:
        thread.join()


def publish_and_look(cluster: Cluster, seconds: float) -> tuple[list[float], list[float]]:
    """Latencies of publishing at a fixed rate, from when each was due, and of lookups beside it."""
    url = cluster.service_urls()
    client = pulsarish.Client(url["pulsarish"])
    producer = client.create_producer(
        f"persistent://{TENANT}/crowd-0",
        batching_enabled=False,
        block_if_queue_full=True,
        max_pending_messages=100_000,
    )
    published: list[float] = []
    lookups: list[float] = []
    until = time.perf_counter() + seconds

    def look() -> None:
        ask = Caller(url["http"]).ask
        while time.perf_counter() < until:
            began = time.perf_counter()
            status, _ = ask(
                "GET",
                f"/lookup/v2/topic/persistent/{TENANT}/crowd-{random.randrange(CROWD_TOPICS)}",
            )
            assert status == 200, status
            lookups.append(time.perf_counter() - began)
            time.sleep(0.005)

    def done(due: float) -> Callable[[object, object], None]:
        def heard(result: object, _message_id: object) -> None:
            assert result == pulsarish.Result.Ok, result
            published.append(time.perf_counter() - due)

        return heard

    looking = threading.Thread(target=look)
    looking.start()
    started = time.perf_counter()
    for number in range(int(CROWD_RATE * seconds)):
        due = started + number / CROWD_RATE
        if (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        producer.send_async(b"x" * SIZE_BYTES, done(due))
    producer.flush()
    looking.join()
    client.close()
    return published, lookups


def crowding() -> None:
    with running_cluster() as cluster:
        url = cluster.service_urls()["http"]
        create_topics(url, "crowd", CROWD_TOPICS)
        publish_and_look(cluster, 2.0)
        ratios: list[tuple[float, float]] = []
        for _ in range(2):
            alone = publish_and_look(cluster, CROWD_SECONDS)
            spawning = multiprocessing.get_context("spawn")
            done: Synchronized[int] = spawning.Value("i", 0)
            going: Synchronized[int] = spawning.Value("i", 0)
            processes = [
                spawning.Process(target=administrate, args=(url, number, going, done))
                for number in range(CROWD_PROCESSES)
            ]
            for process in processes:
                process.start()
            # What is measured is what they ask, not their own start.
            wait_until("all processes ask", partial(_all_ask, going))
            time.sleep(1)
            before = done.value
            crowded = publish_and_look(cluster, CROWD_SECONDS)
            asked = done.value - before
            going.value = -1
            for process in processes:
                process.join()
            (p_alone, l_alone), (p_crowd, l_crowd) = (
                [percentile(took, 99) * 1000 for took in pair] for pair in (alone, crowded)
            )
            ratios.append((p_crowd / p_alone, l_crowd / l_alone))
            print(
                f"{CROWD_CALLERS} callers among {CROWD_TOPICS} topics, "
                f"{asked / CROWD_SECONDS:,.0f} requests/s: publish p99 {p_alone:.1f} -> "
                f"{p_crowd:.1f} ms, lookup p99 {l_alone:.1f} -> {l_crowd:.1f} ms",
                flush=True,
            )
        publish, lookup = (statistics.median(column) for column in zip(*ratios, strict=True))
        print(
            f"beside a crowd of administrators: publish p99 {publish:.1f} times, lookup p99 "
            f"{lookup:.1f} times   (wanted: at most 2)",
            flush=True,
        )


CASES = {"open": opening, "create": creating, "crowd": crowding}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="all without")
    parser.add_argument(
        "--open-at",
        nargs=3,
        metavar=("URL", "FIRST", "COUNT"),
        help="be the client of the case open",
    )
    arguments = parser.parse_args()
    if arguments.open_at:
        url, first, count = arguments.open_at
        asyncio.run(open_and_send(url, int(first), int(count)))
        return
    for name in arguments.cases or CASES:
        CASES[name]()


if __name__ == "__main__":
    main()
