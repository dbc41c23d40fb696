"""What one topic with many readers costs: ``python -m bench.fan_out [CASE]...``.

A case is ``kind-protocol-count-connections``: ``readers`` or ``subscriptions`` (durable ones, with
an acknowledgement of each message), ``binary`` (Apache Pulsar's protocol) or ``own``, how many
there are, and over how many connections. ``--against CHECKOUT`` measures servers from another tree
in turn with this one, in ``--rounds``.

Messages of 1 KB are published one by one: first at a rate at which about ``PACED`` of them a second
are delivered, then as fast as they can be. Printed are deliveries a second of the second part, CPU
of the broker for each delivery in both parts (publishing included), the time from a publish to its
last delivery in the first part, and by what the broker's memory grew for each reader.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import uvloop

import pulsarish.asyncio
from bench.measure import cpu_seconds, percentile, rss_bytes, running_cluster
from bench.steady import servers_from
from pulsarish.runtime.framed.framed_connections import FramedConnections
from pulsarish.runtime.network.dialing import Dialer
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.seams import FRAMED
from pulsarish.runtime.tasks import Supervisor
from pulsarish.wire._pb import broker_pb2, pulsar_pb2
from pulsarish.wire.framing import split_records
from pulsarish.wire.pulsar_frames import command_frame

TOPIC: Final = "persistent://public/default/fan-out"
SIZE_BYTES: Final = 1_024
PACED: Final = 10_000  # deliveries a second of the first part
PACED_SECONDS: Final = 4.0
PACED_RATE_MAX: Final = 1_000  # messages a second
BURST_DELIVERIES: Final = 200_000
BURST_MESSAGES_MAX: Final = 20_000
PERMITS: Final = 1_000_000
LATEST: Final = (1 << 63) - 1
_MESSAGE: Final = b"\x08\x09\x4a"
CASES: Final = (
    "readers-binary-1-1",
    "readers-binary-10-1",
    "readers-binary-100-1",
    "readers-binary-1000-1",
    "readers-binary-1000-10",
    "readers-own-1-1",
    "readers-own-1000-1",
    "readers-own-1000-10",
    "subscriptions-binary-1-1",
    "subscriptions-binary-100-10",
    "subscriptions-binary-1000-10",
    "subscriptions-own-1000-10",
)
Figures = dict[str, float]


class BinaryConsumers(asyncio.Protocol):
    """The consumers of one connection. Counts their entries."""

    def __init__(self, on_entries: Callable[[int], None]) -> None:
        self._on_entries = on_entries
        self._data = b""
        self._is_durable = False
        self._answered = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        connect = pulsar_pb2.Connect(client_version="bench", protocol_version=19)
        self._send(pulsar_pb2.Command(type=2, connect=connect))

    def _send(self, command: pulsar_pb2.Command) -> None:
        self._transport.write(command_frame(command))

    async def subscribe(self, names: Sequence[str], *, durable: bool) -> None:
        await self._answered.wait()
        self._is_durable = durable
        for number, name in enumerate(names):
            asked = pulsar_pb2.Subscribe(
                topic=TOPIC,
                subscription=name,
                sub_type=0,
                consumer_id=number,
                request_id=number,
                durable=durable,
            )
            if not durable:
                asked.start_message_id.ledger_id = asked.start_message_id.entry_id = LATEST
            self._answered.clear()
            self._send(pulsar_pb2.Command(type=4, subscribe=asked))
            await self._answered.wait()
            flow = pulsar_pb2.Flow(consumer_id=number, message_permits=PERMITS)
            self._send(pulsar_pb2.Command(type=11, flow=flow))

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        at, end, entries = 0, len(data), 0
        acknowledged: list[bytes] = []
        while end - at >= 8:
            total, size = struct.unpack_from(">II", data, at)
            if at + 4 + total > end:
                break
            if data.startswith(_MESSAGE, at + 8):
                entries += 1
                if self._is_durable:
                    found = pulsar_pb2.Command.FromString(data[at + 8 : at + 8 + size]).message
                    ack = pulsar_pb2.Ack(
                        consumer_id=found.consumer_id,
                        ack_type=0,
                        message_id=[found.message_id],
                    )
                    acknowledged.append(command_frame(pulsar_pb2.Command(type=10, ack=ack)))
            else:
                self._on_command(pulsar_pb2.Command.FromString(data[at + 8 : at + 8 + size]))
            at += 4 + total
        self._data = data[at:]
        if acknowledged:
            self._transport.write(b"".join(acknowledged))
        if entries:
            self._on_entries(entries)

    def _on_command(self, command: pulsar_pb2.Command) -> None:
        if command.type == 18:
            self._send(pulsar_pb2.Command(type=19, pong=pulsar_pb2.Pong()))
        else:
            assert command.type in (3, 13), command
            self._answered.set()


class OwnConsumers:
    """The same on a stream ``broker.consume``."""

    def __init__(self, on_entries: Callable[[int], None]) -> None:
        self._on_entries = on_entries
        self._asked = broker_pb2.ConsumeRequest()
        self._taken = 0
        self._is_durable = False
        self._answered = asyncio.Event()
        self._wake = asyncio.Event()

    async def open(self, connections: FramedConnections, address: str) -> None:
        self._stream = await connections.open(address, "broker.consume")
        self._tasks = [
            asyncio.create_task(self._stream.deliver(self._received)),
            asyncio.create_task(self._write()),
        ]

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            asked, self._asked = self._asked, broker_pb2.ConsumeRequest()
            asked.taken = self._taken
            await self._stream.send([asked.SerializeToString()])

    async def subscribe(self, names: Sequence[str], *, durable: bool) -> None:
        self._is_durable = durable
        for number, name in enumerate(names, 1):
            asked = self._asked.subscribe.add(
                topic=TOPIC,
                subscription=name,
                consumer_id=number,
                request_id=number,
                durable=durable,
                initial_position=0,
            )
            if not durable:
                asked.start.ledger = asked.start.entry = LATEST
            self._answered.clear()
            self._wake.set()
            await self._answered.wait()
            self._asked.flow_consumers.append(number)
            self._asked.flow_permits.append(PERMITS)
            self._wake.set()

    def _received(self, data: bytes) -> None:
        head, _ = split_records(data)
        found = broker_pb2.ConsumeResponse.FromString(head)
        for each in found.subscribed:
            assert not each.outcome.message, each
            self._answered.set()
        if found.counted:
            self._taken += 1
            self._wake.set()
        if self._is_durable:
            for row in zip(found.consumer_ids, found.ledgers, found.entry_ids, strict=True):
                self._asked.acks.add(consumer_id=row[0], ledgers=[row[1]], entries=[row[2]])
        if found.consumer_ids:
            self._on_entries(len(found.consumer_ids))


class Publishing:
    """Publishes, and waits until all readers have everything."""

    def __init__(self, producer: pulsarish.asyncio.Producer, readers: int) -> None:
        self._producer = producer
        self._readers = readers
        self._sent: list[float] = []
        self._delivered = 0
        self._done = asyncio.Event()
        self.took_ms: list[float] = []

    def on_entries(self, count: int) -> None:
        before, self._delivered = self._delivered, self._delivered + count
        now = time.perf_counter()
        # A producer that had to connect again may have sent some twice.
        for sent in self._sent[before // self._readers : self._delivered // self._readers]:
            self.took_ms.append((now - sent) * 1_000)
        if self._delivered >= len(self._sent) * self._readers:
            self._done.set()

    async def publish(self, count: int, rate: float | None) -> None:
        """Publish ``count`` messages, ``rate`` a second or as fast as they can be."""
        began = time.perf_counter()
        receipts = []
        for number in range(count):
            if rate is not None:
                await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            self._sent.append(time.perf_counter())
            receipts.append(asyncio.ensure_future(self._producer.send(b"x" * SIZE_BYTES)))
        await asyncio.gather(*receipts)
        while self._delivered < len(self._sent) * self._readers:
            self._done.clear()
            await self._done.wait()


async def measure(kind: str, protocol: str, count: int, connections: int) -> Figures:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        framed_port = probe.getsockname()[1]
    # A broker that is too busy to answer keeps its topic.
    settings = [f"framed_port={framed_port}", "metadata_session_timeout_ms=60000"]
    with running_cluster(bookies=1, broker=settings) as cluster:
        broker = cluster.pid("broker-1")
        assert broker is not None
        client = pulsarish.asyncio.Client(cluster.service_urls()["pulsarish"])
        producer = await client.create_producer(
            TOPIC, batching_enabled=False, max_pending_messages=BURST_MESSAGES_MAX
        )
        for _ in range(200):
            _ = await producer.send(b"warm")
        publishing = Publishing(producer, count)
        memory = rss_bytes(broker)
        limits = ConnectionLimits()
        framed = FramedConnections(tasks=Supervisor(), limits=limits, dialer=Dialer(None, limits))
        streams: list[OwnConsumers] = []
        for first in range(connections):
            names = [f"{kind}-{number}" for number in range(first, count, connections)]
            consumers: BinaryConsumers | OwnConsumers
            if protocol == "own":
                consumers = OwnConsumers(publishing.on_entries)
                streams.append(consumers)
                await consumers.open(framed, f"{FRAMED}127.0.0.1:{framed_port}")
            else:
                port = cluster.node("broker-1").ports["pulsar"]
                _, consumers = await asyncio.get_running_loop().create_connection(
                    lambda: BinaryConsumers(publishing.on_entries), "127.0.0.1", port
                )
            await consumers.subscribe(names, durable=kind == "subscriptions")
        opened = rss_bytes(broker)
        await publishing.publish(10, 100.0)
        publishing.took_ms.clear()
        rate = min(PACED_RATE_MAX, PACED / count)
        paced = int(rate * PACED_SECONDS)
        used = cpu_seconds([broker])
        await publishing.publish(paced, rate)
        paced_us = (cpu_seconds([broker]) - used) / paced / count * 1e6
        last_ms = percentile(publishing.took_ms, 50)
        burst = min(BURST_MESSAGES_MAX, BURST_DELIVERIES // count)
        used, began = cpu_seconds([broker]), time.perf_counter()
        await publishing.publish(burst, None)
        took = time.perf_counter() - began
        burst_us = (cpu_seconds([broker]) - used) / burst / count * 1e6
        highest = rss_bytes(broker)
        await client.close()
        for stream in streams:
            stream.close()
        await framed.close()
    return {
        "deliveries/s": burst * count / took,
        "us each, burst": burst_us,
        "us each, paced": paced_us,
        "last p50 ms": last_ms,
        "KiB each, opened": (opened - memory) / count / 1_024,
        "broker MiB": highest / (1 << 20),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="*", default=CASES)
    parser.add_argument("--against", type=Path, help="another source tree, measured in turn")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    trees = [None] if arguments.against is None else [arguments.against, None]
    for case in arguments.case:
        kind, protocol, count, connections = case.split("-")
        found: list[list[Figures]] = [[] for _ in trees]
        for _ in range(arguments.rounds):
            for number, tree in enumerate(trees):
                with servers_from(tree):
                    work = measure(kind, protocol, int(count), int(connections))
                    found[number].append(uvloop.run(work))
        cells = []
        for key in found[0][0]:
            medians = [statistics.median(each[key] for each in side) for side in found]
            cells.append(f"{key} " + " / ".join(f"{each:,.4g}" for each in medians))
            if len(medians) > 1 and all(medians):
                cells[-1] += f" x{medians[1] / medians[0]:.2f}"
        print(f"| {case} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
