"""A cluster of real processes under a fuzzer: what is sent, what must hold after each round, and how a failure is sent again.

What must hold: every process lives and contained no failure of its own code, no event loop stood for ``LAG_SECONDS_MAX``, memory stays
below what it was before plus the budgets for peers and ``GROWTH_BYTES``, and a client publishes and reads as before: everything that was
acknowledged is there.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import random
import re
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

import pulsarish
from pulsarish.local_cluster.ports import free_ports
from pulsarish.local_cluster.processes import Cluster, NodePlan, metadata_url, plan_cluster
from pulsarish.runtime.grpc.endpoints import method_path
from pulsarish.wire._pb import bookie_pb2
from tests.fuzz.inputs import Step, binary_input, bookie_input, broker_input, connect_input, http_input, zookeeper_input

__all__ = ["TARGETS", "Defect", "Fuzzer", "fuzzed_cluster", "load_inputs"]

LAG_SECONDS_MAX: Final = 2.0
GROWTH_BYTES: Final = 100 << 20
BUDGET_BYTES: Final = 512 << 20
"""At most what a node may hold for its peers: incomplete input and unread answers of all its ports."""
ROUND_INPUTS: Final = 200
_AT_ONCE: Final = 8
_ANSWER_SECONDS: Final = 0.05
_CALL_SECONDS: Final = 5.0
_KEPT_INPUTS: Final = 2 * ROUND_INPUTS
_LAGS: Final = re.compile(r'^pulsarish_loop_lags_seconds_bucket\{(?:.*,)?le="([0-9.]+|\+Inf)"(?:,.*)?\} ([0-9.e+]+)$', re.MULTILINE)
_CONTAINED: Final = re.compile(r"^pulsarish_contained_failures_total\{.*\} ([0-9.e+]+)$", re.MULTILINE)
TARGETS: Final = ("binary", "broker", "bookie", "http", "zookeeper", "proxy", "connect")


class Defect(Exception):
    """What a fuzzer found."""


@dataclass
class _Canary:
    """A normal client of the same cluster."""

    client: Any
    topic: str
    sent: list[bytes] = field(default_factory=list)

    def check(self) -> None:
        """Publish a few messages, and read all from the first one on. Raises ``Defect``."""
        if not self.sent:
            # It keeps all messages: without a subscription a closed ledger is trimmed.
            self.client.subscribe(self.topic, "keeps", initial_position=pulsarish.InitialPosition.Earliest).close()
        producer = self.client.create_producer(self.topic)
        for _ in range(5):
            content = f"canary {len(self.sent)}".encode()
            producer.send(content)
            self.sent.append(content)
        producer.close()
        reader = self.client.create_reader(self.topic, pulsarish.MessageId.earliest)
        try:
            found = [reader.read_next(timeout_millis=20_000).data() for _ in self.sent]
        except pulsarish.Timeout:
            raise Defect("what was acknowledged cannot be read within 20 s") from None
        finally:
            reader.close()
        if found != self.sent:
            raise Defect(f"{len(self.sent)} messages were acknowledged, and other ones are read: {found[:3]}...")


@dataclass
class Fuzzer:
    """One fuzzer against one running cluster.

    Args:
        target: one of ``TARGETS``.
        seed: the same seed sends the same inputs in the same order.
    """

    cluster: Cluster
    target: str
    seed: int
    count: int = 0
    inputs: list[list[Step]] = field(default_factory=list)
    """The last ones that were sent, for sending them again."""

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.target}:{self.seed}")
        self._nodes = self.cluster.nodes()
        self._rss = {node.name: self._rss_bytes(node) for node in self._nodes}
        self._broker = next(node for node in self._nodes if node.role == "broker")
        self._bookie = next(node for node in self._nodes if node.role == "bookie")
        client = pulsarish.Client(f"pulsarish://127.0.0.1:{self._broker.ports['grpc']}")
        self._canary = _Canary(client, f"persistent://public/default/canary-{self.target}-{self.seed}")
        self._paths: dict[str, Any] = {}
        self._instance_id = ""
        self._canary.check()

    def run(self, seconds: float) -> None:
        """Send inputs for so long, and check after each round. Raises ``Defect``; ``inputs`` has then what was sent last."""
        ends = time.monotonic() + seconds
        if self.target == "http":
            self._paths = json.loads(self._get(self._broker, "/admin/v2/openapi.json"))["paths"]
        while time.monotonic() < ends:
            asyncio.run(self._send_all([self._draw() for _ in range(ROUND_INPUTS)], ends))
            self.check()

    def replay(self, inputs: list[list[Step]]) -> None:
        """Send recorded inputs again, one after another, and check after each. Raises ``Defect``."""
        for steps in inputs:
            asyncio.run(self._send_all([steps], float("inf")))
            self.check()

    def close(self) -> None:
        self._canary.client.close()

    # What is sent.

    def _draw(self) -> list[Step]:
        rng = self._rng
        match self.target:
            case "http":
                return http_input(rng, self._paths)
            case "zookeeper":
                return zookeeper_input(rng)
            case "broker":
                return broker_input(rng)
            case "bookie":
                return bookie_input(rng, self._bookie_instance())
            case "connect":
                return connect_input(rng)
            case _:
                return binary_input(rng)

    def _bookie_instance(self) -> str:
        if not self._instance_id:
            self._instance_id = asyncio.run(_bookie_instance(self._bookie.ports["grpc"]))
        return self._instance_id

    def _port(self) -> int:
        match self.target:
            case "http":
                return self._broker.ports["http"]
            case "zookeeper":
                return next(node for node in self._nodes if node.role == "metadata").ports["client"]
            case "bookie":
                return self._bookie.ports["grpc"]
            case "broker":
                return self._broker.ports["grpc"]
            case "proxy" | "connect":
                return next(node for node in self._nodes if node.role == "proxy").ports["pulsar" if self.target == "proxy" else "connect"]
            case _:
                return self._broker.ports["pulsar"]

    async def _send_all(self, inputs: list[list[Step]], ends: float) -> None:
        port, gate = self._port(), asyncio.Semaphore(_AT_ONCE)
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}") if self.target in ("broker", "bookie") else None

        async def send(steps: list[Step]) -> None:
            async with gate:
                if time.monotonic() > ends:
                    return
                self.count += 1
                self.inputs.append(steps)
                del self.inputs[:-_KEPT_INPUTS]
                if channel is None:
                    await _write(port, steps[0][1], hangs_up=zlib.crc32(steps[0][1][0]) % 3 > 0)
                else:
                    await _call(channel, steps)

        try:
            await asyncio.gather(*(send(steps) for steps in inputs))
        finally:
            if channel is not None:
                await channel.close()

    # What must hold.

    def check(self) -> None:
        """Raise ``Defect`` for the first thing that does not hold."""
        for node in self._nodes:
            if self.cluster.pid(node.name) is None:
                raise Defect(f"{node.name} died: {self.cluster.log_path(node.name).read_text(errors='replace')[-3_000:]}")
        for node in self._nodes:
            began = time.monotonic()
            metrics = self._get(node, "/metrics").decode()
            took_seconds = time.monotonic() - began
            if took_seconds > 10 * LAG_SECONDS_MAX:
                raise Defect(f"{node.name} answered /metrics after {took_seconds:.1f} s")
            lags = {float(bound): float(count) for bound, count in _LAGS.findall(metrics)}
            if lags and max(lags.values()) > lags[min(bound for bound in lags if bound >= LAG_SECONDS_MAX)]:
                raise Defect(f"the event loop of {node.name} stood for more than {LAG_SECONDS_MAX} s")
            contained = sum(map(float, _CONTAINED.findall(metrics)))
            if contained:
                raise Defect(f"{node.name} contained {contained:.0f} failures of its own code: see {self.cluster.log_path(node.name)}")
            log = self.cluster.log_path(node.name).read_text(errors="replace")
            if "Traceback" in log:
                raise Defect(f"{node.name} logged an error that it does not foresee: {log[log.index('Traceback') :][:3_000]}")
            rss_bytes = self._rss_bytes(node)
            if rss_bytes > self._rss[node.name] + BUDGET_BYTES + GROWTH_BYTES:
                raise Defect(f"{node.name} has {rss_bytes >> 20} MiB in memory, and had {self._rss[node.name] >> 20} before")
        self._canary.check()

    def growth(self) -> str:
        """Memory of the nodes before and now, in MiB."""
        return ", ".join(f"{node.name} {self._rss[node.name] >> 20} -> {self._rss_bytes(node) >> 20}" for node in self._nodes)

    def _rss_bytes(self, node: NodePlan) -> int:
        pid = self.cluster.pid(node.name)
        status = Path(f"/proc/{pid}/status").read_text() if pid is not None else ""
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) << 10 if found else 0

    def _get(self, node: NodePlan, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", node.ports["http"], timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        except OSError as error:
            raise Defect(f"{node.name} does not answer GET {path}: {error!r}") from None
        finally:
            connection.close()

    # What is kept of a failure.

    def save(self, path: Path) -> None:
        """Write what was sent last, for ``load_inputs``."""
        kept = [[(method, [base64.b64encode(data).decode() for data in messages]) for method, messages in steps] for steps in self.inputs]
        path.write_text(json.dumps({"target": self.target, "seed": self.seed, "inputs": kept}))


def load_inputs(path: Path) -> tuple[str, list[list[Step]]]:
    """The target and the inputs of a file that ``Fuzzer.save`` wrote."""
    kept = json.loads(path.read_text())
    inputs = [[(method, [base64.b64decode(data) for data in messages]) for method, messages in steps] for steps in kept["inputs"]]
    return kept["target"], inputs


async def _write(port: int, writes: list[bytes], *, hangs_up: bool) -> None:
    """Write to a connection, read a little, and leave, with or without a goodbye."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return  # the check says whether the node lives
    try:
        for data in writes:
            writer.write(data)
            async with asyncio.timeout(_CALL_SECONDS):
                await writer.drain()
        async with asyncio.timeout(_ANSWER_SECONDS):
            while await reader.read(65_536):
                pass
    except (OSError, TimeoutError):
        pass
    finally:
        if hangs_up:
            writer.transport.abort()
        else:
            writer.close()


async def _call(channel: grpc.aio.Channel, steps: list[Step]) -> None:
    for method, messages in steps:
        path = method_path(method.removesuffix("*"))
        try:
            if method.endswith("*"):
                stream = channel.stream_stream(path)(timeout=_CALL_SECONDS)
                for message in messages:
                    await stream.write(message)
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await stream.read()
                stream.cancel()
            else:
                await channel.unary_unary(path)(messages[0], timeout=_CALL_SECONDS)
        except (grpc.RpcError, TimeoutError, asyncio.InvalidStateError):
            pass


async def _bookie_instance(port: int) -> str:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = await channel.unary_unary(method_path("bookie.status"))(b"", timeout=_CALL_SECONDS)
    return bookie_pb2.StatusResponse.FromString(answer).instance_id


@contextmanager
def fuzzed_cluster(directory: Path) -> Iterator[Cluster]:
    """Metadata, a bookie, a broker and a proxy, as processes on free ports."""
    nodes = plan_cluster(bookies=1, brokers=1, metadata="embedded", base_port=0)
    ports = dict(zip(("pulsar", "connect", "http"), free_ports("127.0.0.1"), strict=False))
    settings = [f"metadata_url={metadata_url(nodes)}", *(f"{kind}_address=127.0.0.1:{port}" for kind, port in ports.items())]
    cluster = Cluster(directory)
    cluster.create([*nodes, NodePlan("proxy", "proxy", ports, settings)])
    try:
        cluster.up()
        yield cluster
    finally:
        for node in cluster.nodes():
            if cluster.pid(node.name) is not None:
                cluster.kill(node.name)
