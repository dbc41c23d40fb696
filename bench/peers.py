"""What peers cost a cluster, normal and hostile ones: ``python -m bench.peers [ROW...]``.

Each row runs against a fresh cluster of one metadata daemon, one bookie and one broker, while
another client sends a message every 20 ms and asks for ``/health``. Printed are the memory of the
process that the peers talk to (before, at its highest, and after they have left), and how long the
other client waited.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import resource
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final

import pulsarish
from bench.measure import percentile, rss_bytes, running_cluster
from pulsarish.local_cluster.processes import Cluster
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import command_frame

TOPIC: Final = "persistent://public/default/peers"
IDLE_CONNECTIONS: Final = 5_000
PRODUCERS: Final = 20_000
CONSUMERS: Final = 2_000
SUBSCRIPTIONS: Final = 1_000
LARGE_BYTES: Final = 5_000_000
LARGE_MESSAGES: Final = 200
HOLES: Final = 50_000
HELD_SECONDS: Final = 5.0
PROBE_SECONDS: Final = 0.02
HELLO: Final = command_frame(
    pb.Command(type=2, connect=pb.Connect(client_version="bench", protocol_version=19))
)
OF_TOPIC: Final = "/admin/v2/persistent/public/default/peers"


@dataclass
class Probe:
    """The client that is measured beside the peers."""

    cluster: Cluster
    send_ms: list[float] = field(default_factory=list)
    health_ms: list[float] = field(default_factory=list)
    failures: int = 0
    stopped: bool = False

    def run(self) -> None:
        broker = self.cluster.node("broker-1")
        client = pulsarish.Client(self.cluster.service_urls()["pulsarish"])
        producer = client.create_producer("persistent://public/default/probe")
        while not self.stopped:
            began = time.perf_counter()
            try:
                producer.send(b"x")
                self.send_ms.append((time.perf_counter() - began) * 1000)
                began = time.perf_counter()
                connection = http.client.HTTPConnection(
                    "127.0.0.1", broker.ports["http"], timeout=60
                )
                connection.request("GET", "/health")
                self.failures += connection.getresponse().status != 200
                connection.close()
                self.health_ms.append((time.perf_counter() - began) * 1000)
            except (OSError, http.client.HTTPException, pulsarish.PulsarException):
                self.failures += 1
            time.sleep(PROBE_SECONDS)
        client.close()


# Peers. Each opens what it needs, holds it, and leaves.

Streams = list[asyncio.StreamWriter]


async def connected(port: int, count: int, sent: bytes) -> Streams:
    """Connections on which the same was sent.

    Those that the server ends meanwhile are among them.
    """
    gate = asyncio.Semaphore(100)

    async def one() -> asyncio.StreamWriter:
        async with gate:
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
            writer.write(sent)
            return writer

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def hold(streams: Streams) -> None:
    await asyncio.sleep(HELD_SECONDS)
    for writer in streams:
        writer.transport.abort()


async def idle_connections(cluster: Cluster) -> None:
    await hold(await connected(cluster.node("broker-1").ports["pulsar"], IDLE_CONNECTIONS, HELLO))


async def producers(cluster: Cluster) -> None:
    opened = b"".join(
        command_frame(
            pb.Command(
                type=5, producer=pb.Producer(topic=TOPIC, producer_id=number, request_id=number)
            )
        )
        for number in range(PRODUCERS)
    )
    await hold(await connected(cluster.node("broker-1").ports["pulsar"], 1, HELLO + opened))


def _subscribe(number: int, subscription: str) -> bytes:
    asked = pb.Subscribe(
        topic=TOPIC,
        subscription=subscription,
        sub_type="SUB_SHARED",
        consumer_id=number,
        request_id=number,
    )
    return command_frame(pb.Command(type=4, subscribe=asked))


async def consumers(cluster: Cluster) -> None:
    opened = b"".join(_subscribe(number, "one") for number in range(CONSUMERS))
    await hold(await connected(cluster.node("broker-1").ports["pulsar"], 1, HELLO + opened))


async def subscriptions(cluster: Cluster) -> None:
    opened = b"".join(_subscribe(number, f"s{number}") for number in range(SUBSCRIPTIONS))
    await hold(await connected(cluster.node("broker-1").ports["pulsar"], 1, HELLO + opened))


async def large_messages(cluster: Cluster) -> None:
    def publish() -> None:
        client = pulsarish.Client(cluster.service_urls()["pulsarish"])
        made = [
            client.create_producer(f"{TOPIC}-{number}", batching_enabled=False)
            for number in range(10)
        ]
        content = bytes(LARGE_BYTES)
        for number in range(LARGE_MESSAGES):
            made[number % 10].send_async(content, None)
        for producer in made:
            producer.flush()
        client.close()

    await asyncio.to_thread(publish)


async def holes(cluster: Cluster) -> None:
    """Every second message is acknowledged."""

    def work() -> None:
        client = pulsarish.Client(cluster.service_urls()["pulsarish"])
        consumer = client.subscribe(
            TOPIC, "holes", consumer_type=pulsarish.ConsumerType.Shared, receiver_queue_size=5_000
        )
        producer = client.create_producer(TOPIC, batching_enabled=False)
        for number in range(HOLES):
            producer.send_async(b"x" * 100, None)
            if number % 1_000 == 999:
                producer.flush()
        for number in range(HOLES):
            message = consumer.receive(timeout_millis=30_000)
            if number % 2:
                consumer.acknowledge(message)
        client.close()

    await asyncio.to_thread(work)


async def silent_connections(cluster: Cluster) -> None:
    await hold(await connected(cluster.node("broker-1").ports["pulsar"], IDLE_CONNECTIONS, b""))


async def unfinished_frames(cluster: Cluster) -> None:
    frame = struct.pack(">II", LARGE_BYTES, 10) + bytes(LARGE_BYTES - 100)
    port = cluster.node("broker-1").ports["pulsar"]
    streams = await connected(port, 100, HELLO)
    await asyncio.sleep(0.5)
    for writer in streams:
        writer.write(frame)
    await hold(streams)


async def unread_lookups(cluster: Cluster) -> None:
    asked = command_frame(pb.Command(type=23, lookup=pb.LookupTopic(topic=TOPIC, request_id=1)))
    streams = await connected(cluster.node("broker-1").ports["pulsar"], 50, HELLO + asked * 20_000)
    for writer in streams:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
    await hold(streams)


async def half_open_http(cluster: Cluster) -> None:
    await hold(
        await connected(cluster.node("broker-1").ports["http"], 2_000, b"GET /health HTTP/1.1\r\n")
    )


async def unread_http(cluster: Cluster) -> None:
    streams = await connected(
        cluster.node("broker-1").ports["http"],
        50,
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500,
    )
    for writer in streams:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
    await hold(streams)


async def unfinished_bodies(cluster: Cluster) -> None:
    head = (
        f"POST {OF_TOPIC}/subscription/s/resetcursor HTTP/1.1\r\nHost: "
        "localhost\r\nContent-Length: 2000000\r\n\r\n"
    ).encode()
    await hold(
        await connected(cluster.node("broker-1").ports["http"], 100, head + bytes(1_999_000))
    )


async def silent_metadata_clients(cluster: Cluster) -> None:
    await hold(await connected(cluster.node("metadata").ports["client"], 3_000, b""))


Row = tuple[str, str, Callable[[Cluster], Coroutine[object, object, None]]]
ROWS: Final[dict[str, Row]] = {
    "idle": (f"{IDLE_CONNECTIONS:,} idle connections", "broker-1", idle_connections),
    "producers": (f"{PRODUCERS:,} producers on one connection", "broker-1", producers),
    "consumers": (f"{CONSUMERS:,} consumers on one subscription", "broker-1", consumers),
    "subscriptions": (f"{SUBSCRIPTIONS:,} subscriptions on one topic", "broker-1", subscriptions),
    "large": (f"{LARGE_MESSAGES} messages of 5 MB by 10 producers", "broker-1", large_messages),
    "holes": (f"{HOLES:,} messages, each second one acknowledged", "broker-1", holes),
    "silent": (
        f"hostile: {IDLE_CONNECTIONS:,} connections without CONNECT",
        "broker-1",
        silent_connections,
    ),
    "frames": ("hostile: 100 unfinished frames of 5 MB", "broker-1", unfinished_frames),
    "lookups": ("hostile: 50 x 20,000 lookups, unread", "broker-1", unread_lookups),
    "half-open": ("hostile: 2,000 unfinished HTTP requests", "broker-1", half_open_http),
    "metrics": ("hostile: 50 x 500 /metrics, unread", "broker-1", unread_http),
    "bodies": ("hostile: 100 unfinished bodies of 2 MB", "broker-1", unfinished_bodies),
    "metadata": (
        "hostile: 3,000 silent connections to the metadata",
        "metadata",
        silent_metadata_clients,
    ),
}


def measured(name: str) -> None:
    """Run one row and print it."""
    what, node, peers = ROWS[name]
    with running_cluster(bookies=1) as cluster:
        pid = cluster.pid(node)
        assert pid is not None
        probe = Probe(cluster)
        probing = threading.Thread(target=probe.run)
        probing.start()
        time.sleep(2)
        quiet_ms = percentile(probe.send_ms, 50)
        probe.send_ms.clear()
        probe.health_ms.clear()
        before = highest = rss_bytes(pid)
        done = threading.Event()

        def attack() -> None:
            try:
                asyncio.run(peers(cluster))
            finally:
                done.set()

        attacking = threading.Thread(target=attack)
        attacking.start()
        while not done.wait(0.02):
            highest = max(highest, rss_bytes(pid))
        attacking.join()
        time.sleep(2)
        probe.stopped = True
        probing.join()
        after = rss_bytes(pid)
    sends, healths = probe.send_ms, probe.health_ms
    print(
        f"{what}: {node} {before / 1e6:.0f} -> {highest / 1e6:.0f} MB, {after / 1e6:.0f} "
        "afterwards; beside it a send takes"
        f" {percentile(sends, 50):.1f} ms (p99 {percentile(sends, 99):.0f}, alone {quiet_ms:.1f}),"
        f" /health at most {max(healths, default=0):.0f} ms, {probe.failures} failures",
        flush=True,
    )


def main() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], help="all without")
    for name in parser.parse_args().rows or ROWS:
        measured(name)


if __name__ == "__main__":
    main()
