"""What one topic with many readers costs: ``python -m bench.fan_out [CASE]...``.

A case is ``kind-protocol-count-connections``: ``readers``, ``replicas`` (readers at a broker that
does not own the topic; with ``sdk``) or ``subscriptions`` (durable ones, with an
acknowledgement of each message), how many there are, and over how many connections. The protocol is
``binary`` (Apache Pulsar's) or ``own``, both by hand, or that of a client: ``sdk`` or ``official``
(Apache Pulsar's Python client). ``--against CHECKOUT`` measures servers from another tree in turn
with this one, in ``--rounds``. ``--apache HOME`` measures Apache Pulsar itself in turn
(``bench.apache_pulsar`` says where it comes from), both with three bookies and three copies; it has
one round more, at first, to be warm.

Messages of 1 KB are published one by one: first at a rate at which about ``PACED`` of them a second
are delivered, then as fast as they can be. Printed are deliveries a second of the second part, CPU
of the broker, of all servers and of the client for each delivery in both parts (publishing
included), the time from a publish to its last delivery in the first part, and by what the memory of
the broker and of the client grew for each reader. The memory of a JVM is what is live after a full
collection, except for "broker MiB", which is resident at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import pulsar
import uvloop

import pulsarish.asyncio
from bench.apache_pulsar import Served, running_pulsar
from bench.measure import cpu_seconds, percentile, pids_of, rss_bytes, running_cluster
from bench.steady import servers_from
from pulsarish.runtime.framed.framed_connections import FramedConnections
from pulsarish.runtime.network.dialing import Dialer
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.seams import FRAMED
from pulsarish.runtime.tasks import Supervisor
from pulsarish.wire._pb import broker_pb2, message_pb2, pulsar_pb2
from pulsarish.wire.entry import encode_entry
from pulsarish.wire.framing import split_records
from pulsarish.wire.pulsar_frames import command_frame

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
    "readers-sdk-1000-10",
    "replicas-sdk-1000-10",
    "subscriptions-binary-1-1",
    "subscriptions-binary-100-10",
    "subscriptions-binary-1000-10",
    "subscriptions-own-1000-10",
    "subscriptions-sdk-1000-10",
    "subscriptions-official-1000-10",
)
Figures = dict[str, float]


@dataclass(frozen=True)
class Target:
    """What is measured: servers and how they are reached."""

    broker: int
    pids: list[int]
    pulsar: str
    own: str = ""
    framed: str = ""
    is_java: bool = False

    @property
    def memory_bytes(self) -> int:
        """What the broker needs."""
        if not self.is_java:
            return rss_bytes(self.broker)
        command = ["jcmd", str(self.broker), "GC.class_histogram"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(done.stdout.strip().splitlines()[-1].split()[2])


class Consumers(Protocol):
    """Consumers that share a connection."""

    async def subscribe(self, names: Sequence[str], *, durable: bool) -> None:
        """Open one after another: ``durable`` subscriptions, or readers from the end on."""
        ...

    async def close(self) -> None: ...


class BinaryConnection(asyncio.Protocol):
    """Consumers, or a producer. Counts entries of consumers."""

    def __init__(self, topic: str, on_entries: Callable[[int], None]) -> None:
        self._topic = topic
        self._on_entries = on_entries
        self._sequence = 0
        self._data = b""
        self._is_durable = False
        self._answered = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        connect = pulsar_pb2.Connect(client_version="bench", protocol_version=19)
        self._send(pulsar_pb2.Command(type=2, connect=connect))

    @classmethod
    async def open(
        cls, url: str, topic: str, on_entries: Callable[[int], None]
    ) -> BinaryConnection:
        host, _, port = url.rpartition("/")[2].partition(":")
        _, opened = await asyncio.get_running_loop().create_connection(
            lambda: cls(topic, on_entries), host, int(port)
        )
        await opened._answered.wait()
        return opened

    async def close(self) -> None:
        self._transport.close()

    def _send(self, command: pulsar_pb2.Command) -> None:
        self._transport.write(command_frame(command))

    async def _ask(self, command: pulsar_pb2.Command) -> None:
        self._answered.clear()
        self._send(command)
        await self._answered.wait()

    async def open_producer(self) -> None:
        """Open the producer. It finds the topic's owner first, which is the only broker."""
        lookup = pulsar_pb2.LookupTopic(topic=self._topic, request_id=1, authoritative=True)
        await self._ask(pulsar_pb2.Command(type=23, lookup=lookup))
        producer = pulsar_pb2.Producer(topic=self._topic, producer_id=1, request_id=2)
        await self._ask(pulsar_pb2.Command(type=5, producer=producer))

    def publish(self, payload: bytes) -> None:
        """Send a message. Its receipt is not looked at: its consumers get it afterwards."""
        number = self._sequence
        self._sequence += 1
        metadata = message_pb2.MessageMetadata(
            producer_name="bench",
            sequence_id=number,
            publish_time=int(time.time() * 1_000),
        )
        entry = encode_entry(metadata, payload)
        send = pulsar_pb2.Send(producer_id=1, sequence_id=number)
        command = pulsar_pb2.Command(type=6, send=send).SerializeToString()
        head = struct.pack(">II", 4 + len(command) + len(entry), len(command))
        self._transport.write(head + command + entry)

    async def subscribe(self, names: Sequence[str], *, durable: bool) -> None:
        self._is_durable = durable
        for number, name in enumerate(names):
            asked = pulsar_pb2.Subscribe(
                topic=self._topic,
                subscription=name,
                sub_type=0,
                consumer_id=number,
                request_id=number,
                durable=durable,
            )
            if not durable:
                asked.start_message_id.ledger_id = asked.start_message_id.entry_id = LATEST
            await self._ask(pulsar_pb2.Command(type=4, subscribe=asked))
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
        elif command.type not in (7, 36):  # receipts, and who is the active consumer
            assert command.type in (3, 13, 17, 24), command
            self._answered.set()


class OwnConsumers:
    """The same on a stream ``broker.consume``."""

    def __init__(self, topic: str, on_entries: Callable[[int], None]) -> None:
        self._topic = topic
        self._on_entries = on_entries
        self._asked = broker_pb2.ConsumeRequest()
        self._taken = 0
        self._is_durable = False
        self._answered = asyncio.Event()
        self._wake = asyncio.Event()

    async def open(self, address: str) -> None:
        limits = ConnectionLimits()
        self._connections = FramedConnections(
            tasks=Supervisor(), limits=limits, dialer=Dialer(None, limits)
        )
        self._stream = await self._connections.open(address, "broker.consume")
        self._tasks = [
            asyncio.create_task(self._stream.deliver(self._received)),
            asyncio.create_task(self._write()),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._connections.close()

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
                topic=self._topic,
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


class SdkConsumers:
    """The same with the client of this system."""

    def __init__(
        self, topic: str, on_entries: Callable[[int], None], url: str, *, replica: bool
    ) -> None:
        self._topic = topic
        self._on_entries = on_entries
        self._replica = replica
        self._client = pulsarish.asyncio.Client(url)
        self._tasks: list[asyncio.Task[None]] = []

    async def subscribe(self, names: Sequence[str], *, durable: bool) -> None:
        for name in names:
            if durable:
                consumer = await self._client.subscribe(self._topic, name)
                self._tasks.append(asyncio.create_task(self._consume(consumer)))
            else:
                latest = pulsarish.MessageId.latest
                reader = await self._client.create_reader(
                    self._topic, latest, replica=self._replica
                )
                self._tasks.append(asyncio.create_task(self._read(reader)))

    async def _consume(self, consumer: pulsarish.asyncio.Consumer) -> None:
        while True:
            await consumer.acknowledge(await consumer.receive())
            self._on_entries(1)

    async def _read(self, reader: pulsarish.asyncio.Reader) -> None:
        while True:
            await reader.read_next()
            self._on_entries(1)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._client.close()


class OfficialConsumers:
    """The same with Apache Pulsar's client, whose thread calls listeners."""

    def __init__(self, topic: str, on_entries: Callable[[int], None], url: str) -> None:
        self._topic = topic
        self._on_entries = on_entries
        self._client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._loop = asyncio.get_running_loop()
        self._count = 0

    async def subscribe(self, names: Sequence[str], *, durable: bool) -> None:
        for name in names:
            await asyncio.to_thread(self._open, name, durable=durable)

    def _open(self, name: str, *, durable: bool) -> None:
        if durable:
            self._client.subscribe(self._topic, name, message_listener=self._came)
        else:
            latest = pulsar.MessageId.latest
            self._client.create_reader(self._topic, latest, reader_listener=self._read)

    def _came(self, consumer: Any, message: Any) -> None:
        consumer.acknowledge(message)
        self._read(consumer, message)

    def _read(self, _reader: Any, _message: Any) -> None:
        self._count += 1
        if self._count == 1:
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        count, self._count = self._count, 0
        self._on_entries(count)

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)


class Publishing:
    """Publishes, and waits until all readers have everything."""

    def __init__(self, readers: int) -> None:
        self.producer: BinaryConnection
        self._readers = readers
        self._sent: list[float] = []
        self._delivered = 0
        self._done = asyncio.Event()
        self.took_ms: list[float] = []

    def on_entries(self, count: int) -> None:
        before, self._delivered = self._delivered, self._delivered + count
        now = time.perf_counter()
        for sent in self._sent[before // self._readers : self._delivered // self._readers]:
            self.took_ms.append((now - sent) * 1_000)
        if self._delivered >= len(self._sent) * self._readers:
            self._done.set()

    async def publish(self, count: int, rate: float | None) -> None:
        """Publish ``count`` messages, ``rate`` a second or as fast as they can be."""
        began = time.perf_counter()
        for number in range(count):
            if rate is not None:
                await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            self._sent.append(time.perf_counter())
            self.producer.publish(b"x" * SIZE_BYTES)
        while self._delivered < len(self._sent) * self._readers:
            self._done.clear()
            await self._done.wait()


class Used:
    """CPU of the broker, of all servers and of this client since it was made."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._before = self._now()

    def _now(self) -> list[float]:
        target = self._target
        return [cpu_seconds([target.broker]), cpu_seconds(target.pids), time.process_time()]

    def us_each(self, part: str, deliveries: int) -> Figures:
        names = ("broker", "servers", "client")
        return {
            f"{name} us, {part}": (now - before) / deliveries * 1e6
            for name, now, before in zip(names, self._now(), self._before, strict=True)
        }


async def measure(
    target: Target, topic: str, kind: str, protocol: str, count: int, connections: int
) -> Figures:
    publishing = Publishing(count)
    producer = publishing.producer = await BinaryConnection.open(
        target.pulsar, topic, publishing.on_entries
    )
    await producer.open_producer()
    memory, own_memory = target.memory_bytes, rss_bytes(os.getpid())
    opened: list[Consumers] = []
    began = time.perf_counter()
    for first in range(connections):
        names = [f"{kind}-{number}" for number in range(first, count, connections)]
        consumers: Consumers
        if protocol == "own":
            consumers = own = OwnConsumers(topic, publishing.on_entries)
            await own.open(target.framed)
        elif protocol == "binary":
            consumers = await BinaryConnection.open(target.pulsar, topic, publishing.on_entries)
        elif protocol == "sdk":
            consumers = SdkConsumers(
                topic, publishing.on_entries, target.own, replica=kind == "replicas"
            )
        else:
            consumers = OfficialConsumers(topic, publishing.on_entries, target.pulsar)
        opened.append(consumers)
        await consumers.subscribe(names, durable=kind == "subscriptions")
    took_seconds = time.perf_counter() - began
    memory, own_memory = target.memory_bytes - memory, rss_bytes(os.getpid()) - own_memory
    await publishing.publish(10, 100.0)
    publishing.took_ms.clear()
    rate = min(PACED_RATE_MAX, PACED / count)
    paced = int(rate * PACED_SECONDS)
    used = Used(target)
    await publishing.publish(paced, rate)
    found = used.us_each("paced", paced * count)
    found["last p50 ms"] = percentile(publishing.took_ms, 50)
    burst = min(BURST_MESSAGES_MAX, BURST_DELIVERIES // count)
    used, began = Used(target), time.perf_counter()
    await publishing.publish(burst, None)
    found["deliveries/s, burst"] = burst * count / (time.perf_counter() - began)
    found |= used.us_each("burst", burst * count)
    found["open s"] = took_seconds
    found["broker KiB"] = memory / count / 1_024
    found["client KiB"] = own_memory / count / 1_024
    found["broker MiB"] = rss_bytes(target.broker) / (1 << 20)
    for consumers in opened:
        await consumers.close()
    await producer.close()
    return found


def _run(target: Target, topic: str, case: str) -> Figures:
    kind, protocol, count, connections = case.split("-")
    return uvloop.run(measure(target, topic, kind, protocol, int(count), int(connections)))


def measured(target: Target, topic: str, case: str) -> Figures:
    """Measure with a client process of its own, whose memory says something."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as clients:
        return clients.submit(_run, target, topic, case).result()


@contextmanager
def running(bookies: int, brokers: int) -> Iterator[Target]:
    """A cluster of this system. The last broker is measured, and the first one owns the topic."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # A broker that is too busy to answer keeps its topic.
    settings = ["metadata_session_timeout_ms=60000"]
    if brokers == 1:
        settings.append(f"framed_port={port}")
    with running_cluster(bookies=bookies, brokers=brokers, broker=settings) as cluster:
        broker = cluster.pid(f"broker-{brokers}")
        assert broker is not None
        first = f"pulsar://127.0.0.1:{cluster.node('broker-1').ports['pulsar']}"
        own = cluster.service_urls()["pulsarish"]
        yield Target(broker, pids_of(cluster), first, own, f"{FRAMED}127.0.0.1:{port}")


def compare(case: str, trees: Sequence[Path | None], apache: Served | None, rounds: int) -> str:
    """Measure each side in turn. Return the row."""
    found: list[list[Figures]] = [[] for _ in range(len(trees) + (apache is not None))]
    for number in range(rounds + (apache is not None)):
        topic = f"persistent://public/default/fan-out-{case}-{number}"
        if apache is not None:
            theirs = Target(apache.pids[-1], apache.pids, apache.url, is_java=True)
            found[0].append(measured(theirs, topic, case))
            if not number:  # warm
                found[0].clear()
                continue
        for side, tree in zip(found[-len(trees) :], trees, strict=True):
            brokers = 2 if case.startswith("replicas") else 1
            with servers_from(tree), running(1 if apache is None else 3, brokers) as target:
                side.append(measured(target, topic, case))
    cells = []
    for key in found[0][0]:
        medians = [statistics.median(each[key] for each in side) for side in found]
        cells.append(f"{key} " + " / ".join(f"{each:,.4g}" for each in medians))
        if len(medians) > 1 and all(medians):
            ratios = [
                each[key] / before[key] for before, each in zip(found[0], found[1], strict=True)
            ]
            cells[-1] += f" x{statistics.median(ratios):.2f}"
    return f"| {case} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="*", choices=[*CASES, []], help="all without")
    sides = parser.add_mutually_exclusive_group()
    sides.add_argument("--against", type=Path, help="another source tree, measured in turn")
    sides.add_argument("--apache", type=Path, help="the unpacked distribution of Apache Pulsar")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    trees = [None] if arguments.against is None else [arguments.against, None]
    with ExitStack() as stack:
        apache = None
        if arguments.apache is not None:
            apache = stack.enter_context(running_pulsar(arguments.apache.resolve()))
        for case in arguments.case or CASES:
            print(compare(case, trees, apache, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
