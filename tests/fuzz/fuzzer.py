"""A cluster of real processes under a fuzzer: what is sent, what must hold after each round, and
how a failure is sent again.

What must hold: every process lives and contained no failure of its own code, no event loop stood
for ``LAG_SECONDS_MAX``, memory stays below what it was before plus the budgets for peers and
``GROWTH_BYTES``, and a client publishes and reads as before. At the end all processes are killed
and started again, as what a peer made a node store may end only the next process. Everything that
was acknowledged must then still be there.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import random
import re
import ssl
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from pulsarish.local_cluster import node_http
from pulsarish.local_cluster.locked import is_locked, lock_cluster, profiles_of
from pulsarish.local_cluster.plan import NodePlan, metadata_url, plan_cluster
from pulsarish.local_cluster.ports import free_ports
from pulsarish.local_cluster.processes import Cluster
from pulsarish.local_cluster.security_files import ADMINISTRATOR, SecurityFiles
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.metrics import LAG_BUCKETS_SECONDS
from pulsarish.runtime.network.endpoints import method_path
from pulsarish.runtime.profiles import Profiles
from pulsarish.wire._pb import bookie_pb2
from tests.fuzz.canary import Canary, Defect
from tests.fuzz.inputs import (
    INSTANCE_ID,
    TLS_PORTS,
    Step,
    binary_input,
    bookie_input,
    broker_input,
    connect_input,
    frames_input,
    http_input,
    tls_input,
    zookeeper_input,
)

__all__ = [
    "LAG_SECONDS_MAX",
    "LOCKED_TARGETS",
    "TARGETS",
    "Fuzzer",
    "fuzzed_cluster",
    "load_inputs",
]

LAG_SECONDS_MAX: Final = 2.0
assert LAG_SECONDS_MAX in LAG_BUCKETS_SECONDS, "a longer stand would go unseen up to the next bound"
GROWTH_BYTES: Final = 100 << 20
BUDGET_BYTES: Final = 512 << 20
"""At most what a node may hold for its peers: incomplete input and unread answers of all its
ports.
"""
ROUND_INPUTS: Final = 200
_AT_ONCE: Final = 8
_ANSWER_SECONDS: Final = 0.05
_READY_SECONDS: Final = 180.0  # ten targets may share a machine
_CALL_SECONDS: Final = 5.0
_KEPT_INPUTS: Final = 2 * ROUND_INPUTS
_LAGS: Final = re.compile(
    r'^pulsarish_loop_lags_seconds_bucket\{(?:.*,)?le="([0-9.]+|\+Inf)"(?:,.*)?\} ([0-9.e+]+)$',
    re.MULTILINE,
)
_CONTAINED: Final = re.compile(
    r"^pulsarish_contained_failures_total\{.*\} ([0-9.e+]+)$", re.MULTILINE
)
TARGETS: Final = (
    "binary",
    "broker",
    "bookie",
    "broker-frames",
    "bookie-frames",
    "http",
    "zookeeper",
    "proxy",
    "connect",
)
LOCKED_TARGETS: Final = (*TARGETS, "tls")
"""Of a cluster that asks for credentials, with TLS. Inputs have none, but for the certificate of a
member towards a bookie: without it no input would come further than ``tls``.
"""
_PORTS: Final = {
    "zookeeper": "metadata:client",
    "bookie": "bookie:grpc",
    "broker": "broker:grpc",
    "broker-frames": "broker:framed",
    "bookie-frames": "bookie:framed",
    "proxy": "proxy:pulsar",
    "connect": "proxy:connect",
    "binary": "broker:pulsar",
    "http": "broker:http",
}


@dataclass
class Fuzzer:
    """One fuzzer against one running cluster.

    Args:
        target: one of ``TARGETS``; in a locked cluster one of ``LOCKED_TARGETS``.
        seed: the same seed sends the same inputs in the same order.
        checks_lag: whether an event loop that stood for longer than ``LAG_SECONDS_MAX`` is a
            defect. One that waited for a CPU that long, and did not use as much, is none.
    """

    cluster: Cluster
    target: str
    seed: int
    checks_lag: bool = True
    count: int = 0
    starved_count: int = 0
    """How often a loop stood that had waited for a CPU."""
    inputs: list[list[Step]] = field(default_factory=list)
    """The last ones that were sent, for sending them again."""

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.target}:{self.seed}")
        self._nodes = self.cluster.nodes()
        self._rss = {node.name: self._rss_bytes(node) for node in self._nodes}
        self._highest = dict(self._rss)
        self._broker = next(node for node in self._nodes if node.role == "broker")
        self._bookie = next(node for node in self._nodes if node.role == "bookie")
        self._stands = {node.name: self._stands_count(node) for node in self._nodes}
        self._cpu = {node.name: self._cpu_of(node) for node in self._nodes}
        self._log_ends = {
            node.name: self.cluster.log_path(node.name).stat().st_size for node in self._nodes
        }
        self._security = self.cluster.directory / "security"
        self._is_locked = is_locked(self._nodes)
        url = self.cluster.service_urls()["pulsarish"]
        arguments = (
            Profiles.read(profiles_of(self.cluster)).get(ADMINISTRATOR).arguments(url)
            if self._is_locked
            else {}
        )
        self._canary = Canary(
            url, f"persistent://public/default/canary-{self.target}-{self.seed}", **arguments
        )
        self._paths: dict[str, Any] = {}
        self._instance_id = b""
        self._canary.check()

    def run(self, seconds: float) -> None:
        """Send inputs for so long, and check after each round.

        Raises ``Defect``; ``inputs`` has then what was sent last.
        """
        ends = time.monotonic() + seconds
        with _failures_as_defects():
            if self.target == "http":
                self._paths = json.loads(self._get(self._broker, "/admin/v2/openapi.json"))["paths"]
            while time.monotonic() < ends:
                self._send([self._draw() for _ in range(ROUND_INPUTS)], ends)
                self.check()

    def replay(self, inputs: list[list[Step]]) -> None:
        """Send recorded inputs again: one after another with a check after each, and then as a run
        does. Raises ``Defect``.
        """
        with _failures_as_defects():
            for steps in inputs:
                self._send([steps])
                self.check()
            self._send(inputs)
            self.check()

    def restart(self) -> None:
        """Kill all processes at once, start them, and read everything that was ever acknowledged.

        Raises ``Defect``.
        """
        for node in self._nodes:
            self.cluster.kill(node.name)
        with _failures_as_defects():
            self.cluster.up()
            self._stands = {node.name: self._stands_count(node) for node in self._nodes}
            self._cpu = {node.name: self._cpu_of(node) for node in self._nodes}
            self.check(all_messages=True)

    def close(self) -> None:
        self._canary.close()

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
                return bookie_input(rng)
            case "broker-frames":
                return frames_input(rng, broker_input(rng))
            case "bookie-frames":
                return frames_input(rng, bookie_input(rng))
            case "connect":
                return connect_input(rng)
            case "tls":
                return tls_input(rng)
            case _:
                return binary_input(rng)

    def _place(self, where: str) -> tuple[int, ssl.SSLContext | None]:
        """Return the port that an input goes to, and the TLS that is spoken there.

        ``where``: of an input.
        """
        name = where or _PORTS[self.target]
        role, _, kind = name.partition(":")
        node = next(node for node in self._nodes if node.role == role)
        speaks_tls = self._is_locked and self.target != "tls" and name in TLS_PORTS
        return node.ports[kind or "http"], self._tls(name) if speaks_tls else None

    def _tls(self, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._security / "ca.pem")
        if name.startswith("bookie:"):
            context.load_cert_chain(self._security / "server.pem", self._security / "server.key")
        if name.endswith(":grpc"):
            context.set_alpn_protocols(["h2"])
        return context

    def _channel(self) -> grpc.aio.Channel:
        address = f"127.0.0.1:{self._place('')[0]}"
        if not self._is_locked:
            return grpc.aio.insecure_channel(address)
        is_member = self.target == "bookie"
        return grpc.aio.secure_channel(
            address,
            grpc.ssl_channel_credentials(
                (self._security / "ca.pem").read_bytes(),
                (self._security / "server.key").read_bytes() if is_member else None,
                (self._security / "server.pem").read_bytes() if is_member else None,
            ),
        )

    def _send(self, inputs: list[list[Step]], ends: float = float("inf")) -> None:
        asks_bookie = self.target in ("bookie", "bookie-frames") and not self._is_locked
        if asks_bookie and not self._instance_id:
            self._instance_id = asyncio.run(_bookie_instance(self._bookie.ports["grpc"]))
        with self._canary.publishing():
            asyncio.run(self._send_all(inputs, ends))

    async def _send_all(self, inputs: list[list[Step]], ends: float) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)
        channel = self._channel() if self.target in ("broker", "bookie") else None

        async def send(steps: list[Step]) -> None:
            async with gate:
                if time.monotonic() > ends:
                    return
                self.count += 1
                self.inputs.append(steps)
                del self.inputs[:-_KEPT_INPUTS]
                where, messages = steps[0]
                if channel is None or "." not in where:
                    await _write(
                        *self._place(where),
                        [self._addressed(each) for each in messages],
                        hangs_up=zlib.crc32(messages[0]) % 3 > 0,
                    )
                else:
                    await _call(
                        channel,
                        [
                            (method, [self._addressed(each) for each in data])
                            for method, data in steps
                        ],
                    )

        try:
            await asyncio.gather(*(send(steps) for steps in inputs))
        finally:
            if channel is not None:
                await channel.close()

    def _addressed(self, message: bytes) -> bytes:
        """Inputs name no bookie of one cluster, so that another cluster can get them again; both
        ids are of the same length.
        """
        return message.replace(INSTANCE_ID, self._instance_id) if self._instance_id else message

    # What must hold.

    def check(self, *, all_messages: bool = False) -> None:
        """Raise ``Defect`` for the first thing that does not hold."""
        for node in self._nodes:
            if self.cluster.pid(node.name) is None:
                raise Defect(
                    f"{node.name} died: "
                    f"{self.cluster.log_path(node.name).read_text(errors='replace')[-3_000:]}"
                )
        for node in self._nodes:
            began = time.monotonic()
            metrics = self._get(node, "/metrics").decode()
            took_seconds = time.monotonic() - began
            if took_seconds > 10 * LAG_SECONDS_MAX:
                raise Defect(f"{node.name} answered /metrics after {took_seconds:.1f} s")
            self._check_loop(node, _stands_in(metrics))
            contained = sum(map(float, _CONTAINED.findall(metrics)))
            if contained:
                raise Defect(
                    f"{node.name} contained {contained:.0f} failures of its own code: see "
                    f"{self.cluster.log_path(node.name)}"
                )
            log = self._new_log(node)
            if "Traceback" in log:
                raise Defect(
                    f"{node.name} logged an error that it does not foresee: "
                    f"{log[log.index('Traceback') :][:3_000]}"
                )
            rss_bytes = self._rss_bytes(node, "VmHWM")
            self._highest[node.name] = max(self._highest[node.name], rss_bytes)
            if rss_bytes > self._rss[node.name] + BUDGET_BYTES + GROWTH_BYTES:
                raise Defect(
                    f"{node.name} had up to {rss_bytes >> 20} MiB in memory, and "
                    f"{self._rss[node.name] >> 20} before"
                )
        self._canary.check(all_messages=all_messages)

    def _check_loop(self, node: NodePlan, stands: float) -> None:
        before, now = self._cpu[node.name], self._cpu_of(node)
        self._cpu[node.name] = now
        if stands <= self._stands[node.name]:
            return
        self._stands[node.name] = stands
        used_seconds, waited_seconds = now[0] - before[0], now[1] - before[1]
        if used_seconds < LAG_SECONDS_MAX <= waited_seconds:
            self.starved_count += 1
        elif self.checks_lag:
            raise Defect(
                f"the event loop of {node.name} stood for more than {LAG_SECONDS_MAX} s; since the "
                f"last check it used a CPU for {used_seconds:.1f} s and waited for one for "
                f"{waited_seconds:.1f} s"
            )

    def _cpu_of(self, node: NodePlan) -> tuple[float, float]:
        """Return for how many seconds the node's loop has used a CPU, and waited for one."""
        pid = self.cluster.pid(node.name)
        if pid is None:
            return 0.0, 0.0
        used_ns, waited_ns, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
        return int(used_ns) / 1e9, int(waited_ns) / 1e9

    def _stands_count(self, node: NodePlan) -> float:
        return _stands_in(self._get(node, "/metrics").decode())

    def _new_log(self, node: NodePlan) -> str:
        """Return the lines that were logged since the last check."""
        with self.cluster.log_path(node.name).open("rb") as log:
            log.seek(self._log_ends[node.name])
            new = log.read()
        self._log_ends[node.name] += len(new)
        return new.decode(errors="replace")

    @property
    def longest_send_seconds(self) -> float:
        """How long the normal client waited for an acknowledgement at most."""
        return self._canary.longest_seconds

    def growth(self) -> str:
        """Return the memory of the nodes before, at most and now, in MiB."""
        return ", ".join(
            (
                f"{node.name} {self._rss[node.name] >> 20} -> "
                f"{self._highest[node.name] >> 20} -> {self._rss_bytes(node) >> 20}"
            )
            for node in self._nodes
        )

    def _rss_bytes(self, node: NodePlan, kind: str = "VmRSS") -> int:
        """``kind`` VmHWM: the most since the process began."""
        pid = self.cluster.pid(node.name)
        status = Path(f"/proc/{pid}/status").read_text() if pid is not None else ""
        found = re.search(rf"{kind}:\s+(\d+) kB", status)
        return int(found[1]) << 10 if found else 0

    def _get(self, node: NodePlan, path: str) -> bytes:
        try:
            with node_http.get(
                node.ports["http"], path, trust_file=node.trust_file, timeout_seconds=60
            ) as answer:
                return answer.read()
        except OSError as error:
            raise Defect(f"{node.name} does not answer GET {path}: {error!r}") from None

    # What is kept of a failure.

    def save(self, path: Path) -> None:
        """Write what was sent last, for ``load_inputs``."""
        kept = [
            [
                (method, [base64.b64encode(data).decode() for data in messages])
                for method, messages in steps
            ]
            for steps in self.inputs
        ]
        path.write_text(json.dumps({"target": self.target, "seed": self.seed, "inputs": kept}))


def load_inputs(path: Path) -> tuple[str, list[list[Step]]]:
    """The target and the inputs of a file that ``Fuzzer.save`` wrote."""
    kept = json.loads(path.read_text())
    inputs = [
        [(method, [base64.b64decode(data) for data in messages]) for method, messages in steps]
        for steps in kept["inputs"]
    ]
    return kept["target"], inputs


@contextmanager
def _failures_as_defects() -> Iterator[None]:
    """A failure of a call to the cluster is a defect as well: with its seed and inputs, it can be
    looked into.
    """
    try:
        yield
    except (PulsarishError, OSError, http.client.HTTPException, grpc.RpcError) as error:
        raise Defect(f"the cluster does not serve: {error!r}") from error


def _stands_in(metrics: str) -> float:
    """Return how often an event loop stood for more than ``LAG_SECONDS_MAX``, from a page of
    metrics; 0 without that metric.
    """
    lags = {float(bound): float(count) for bound, count in _LAGS.findall(metrics)}
    return max(lags.values()) - lags[LAG_SECONDS_MAX] if lags else 0.0


async def _write(
    port: int, tls: ssl.SSLContext | None, writes: list[bytes], *, hangs_up: bool
) -> None:
    """Write to a connection, read a little, and leave, with or without a goodbye."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    except OSError:
        return  # the check says whether the node lives
    try:
        for data in writes:
            if writer.transport.is_closing():
                break
            writer.write(data)
            async with asyncio.timeout(_CALL_SECONDS):
                await writer.drain()
        async with asyncio.timeout(_ANSWER_SECONDS):
            while await reader.read(65_536):
                pass
    except (OSError, TimeoutError):
        pass
    finally:
        is_closed = False
        if not hangs_up:
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await writer.wait_closed()
                    is_closed = True
        if not is_closed:
            # With TLS, the goodbye of a peer that does not answer takes long. A transport of
            # asyncio must not be aborted after it closed with something left to send.
            writer.transport.abort()


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


async def _bookie_instance(port: int) -> bytes:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        answer = await channel.unary_unary(method_path("bookie.status"))(b"", timeout=_CALL_SECONDS)
    found = bookie_pb2.StatusResponse.FromString(answer).instance_id.encode()
    assert len(found) == len(INSTANCE_ID), (
        f"{found!r} cannot take the place of {INSTANCE_ID!r}: the messages would change their "
        "length"
    )
    return found


@contextmanager
def fuzzed_cluster(directory: Path, *, locked: bool = False) -> Iterator[Cluster]:
    """Metadata, a bookie, a broker and a proxy, as processes on free ports.

    ``locked``: it asks for credentials, with TLS on all ports of the broker, the bookie's for data
    and the proxy's for clients.
    """
    nodes = plan_cluster(bookies=1, brokers=1, metadata="embedded", base_port=0)
    cluster = Cluster(directory, ready_seconds=_READY_SECONDS)
    if locked:
        lock_cluster(cluster, nodes)
    for node in nodes:
        if node.role == "bookie":
            # Ids that a peer made it store must meet the collection of garbage.
            node.settings += [
                "gc_interval_seconds=1",
                "gc_second_look_seconds=0.2",
                "trash_grace_seconds=1",
            ]
        if node.role == "broker":
            # A client that connects again sends again what was not acknowledged: once stays once.
            node.settings.append("broker_deduplication_enabled=true")
        if locked and node.role == "broker":
            # The normal client has the fuzzer's address, which would be refused with it.
            node.settings.append("authentication_failures_max=0")
    ports = dict(zip(("pulsar", "connect", "http"), free_ports("127.0.0.1"), strict=False))
    settings = [f"metadata_url={metadata_url(nodes)}", f"http_address=127.0.0.1:{ports['http']}"]
    for kind in ("pulsar", "connect"):
        address = f"127.0.0.1:{ports[kind]}"
        if locked:
            settings += [f"{kind}_address=", f"{kind}_address_tls={address}"]
        else:
            settings.append(f"{kind}_address={address}")
    if locked:
        security = SecurityFiles(directory / "security")
        settings += [
            f"metadata_auth_file={security.metadata_login}",
            f"tls_certificate_file_path={security.home / 'server.pem'}",
            f"tls_key_file_path={security.home / 'server.key'}",
            "tls_enabled_with_broker=true",
            f"broker_client_trust_certs_file_path={security.trust}",
        ]
    cluster.create([*nodes, NodePlan("proxy", "proxy", ports, settings)])
    try:
        cluster.up()
        yield cluster
    finally:
        for node in cluster.nodes():
            if cluster.pid(node.name) is not None:
                cluster.kill(node.name)
