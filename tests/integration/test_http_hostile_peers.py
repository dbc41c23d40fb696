"""What clients of an HTTP port may do to a node: end their own connections, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from pulsarish.runtime import http as server
from pulsarish.runtime.http import HttpTraffic, serve_http
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.peer_limits import ConnectionSlots, HeldBytes
from pulsarish.runtime.seams import HttpRequest, HttpResponse
from pulsarish.runtime.tasks import Supervisor
from tests.support.worlds import run_in_production_loop

BODY_MAX = 100_000
LARGE = 12 << 20  # more than the sockets of a connection take


@dataclass
class Node:
    """A node with an HTTP port, and what reached its handler."""

    traffic: HttpTraffic = field(default_factory=HttpTraffic)
    tasks: Supervisor = field(default_factory=Supervisor)
    port: int = 0
    paths: list[str] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: HttpRequest) -> HttpResponse:
        self.paths.append(request.path)
        match request.path:
            case "/large":
                return HttpResponse(200, bytes(LARGE))
            case "/wait":
                await self.release.wait()
            case "/bad-header":
                return HttpResponse(200, headers={"X": "a\r\nb"})
            case _:
                pass
        return HttpResponse(200, f"{request.path} {len(request.body)}".encode())

    async def connect(self, data: bytes = b"") -> Peer:
        raw = socket.socket()
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.port))
        peer = Peer(raw)
        if data:
            await peer.send(data)
        return peer


@dataclass
class Peer:
    """A client that sends what it likes, and receives only when it is told to."""

    raw: socket.socket

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.raw, data)

    async def rest(self) -> bytes:
        """Everything until the connection ends, in order or not."""
        received = bytearray()
        try:
            async with asyncio.timeout(30):
                while data := await asyncio.get_running_loop().sock_recv(self.raw, 65536):
                    received += data
        except ConnectionError:
            pass
        finally:
            self.raw.close()
        return bytes(received)

    async def answer(self, size_bytes: int = 1) -> bytes:
        """At least so many bytes of what comes next."""
        received = bytearray()
        async with asyncio.timeout(30):
            while len(received) < size_bytes:
                received += await asyncio.get_running_loop().sock_recv(self.raw, 65536)
        return bytes(received)


def attack(scenario: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario; afterwards the node must serve a normal client."""

    async def run() -> None:
        node = Node()
        listener = await serve_http(
            "127.0.0.1:0",
            node.handle,
            tasks=node.tasks,
            traffic=node.traffic,
            body_limit=lambda _method, _segments: BODY_MAX,
            limits=ConnectionLimits(),
        )
        node.port = int(listener.address.rpartition(":")[2])
        await scenario(node)
        normal = await node.connect(b"GET /normal HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"/normal 0" in await normal.rest()
        await listener.stop(0)
        await asyncio.sleep(0)
        assert (
            node.traffic.slots.used_count
            == node.traffic.partial_input.used_bytes
            == node.traffic.unsent.used_bytes
            == 0
        )

    run_in_production_loop(run)


async def holds(condition: Callable[[], bool]) -> None:
    """Return once the condition holds."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  # the node knows nothing of its tests
            await asyncio.sleep(0.01)


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def post(*headers: str, body: bytes = b"") -> bytes:
    return (
        "".join(f"{line}\r\n" for line in ("POST /p HTTP/1.1", "Host: x", *headers, "")).encode()
        + body
    )


def test_answers_that_are_not_read_are_made_one_at_a_time_and_the_client_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.3)

    async def scenario(node: Node) -> None:
        peer = await node.connect(get("/large") * 16)
        await holds(lambda: bool(node.paths) and not node.traffic.slots.used_count)
        assert node.paths == ["/large"]
        peer.raw.close()

    attack(scenario)


def test_pipelined_requests_are_all_answered_to_a_client_that_reads() -> None:
    async def scenario(node: Node) -> None:
        closing = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        peer = await node.connect(
            get("/large") * 3 + post("Content-Length: 3", body=b"abc") + closing
        )
        received = await peer.rest()
        assert received.count(b"HTTP/1.1 200") == 5
        assert len(received) > 3 * LARGE
        assert received.index(b"/p 3") < received.index(b"/last 0")

    attack(scenario)


def test_unread_answers_of_all_connections_are_bounded() -> None:
    async def scenario(node: Node) -> None:
        node.traffic.unsent = HeldBytes(3 * LARGE, "unread answers")
        peers = [await node.connect(get("/large")) for _ in range(8)]
        await holds(lambda: len(node.paths) == 8 and node.traffic.unsent.ended_count >= 4)
        assert 2 * LARGE < node.traffic.unsent.used_bytes <= 3 * LARGE
        _ = await peers[-1].answer(LARGE)
        for peer in peers:
            peer.raw.close()

    attack(scenario)


def test_incomplete_bodies_of_all_connections_are_bounded() -> None:
    async def scenario(node: Node) -> None:
        node.traffic.partial_input = HeldBytes(4 * BODY_MAX, "incomplete requests")
        peers = [
            await node.connect(post(f"Content-Length: {BODY_MAX}", body=bytes(BODY_MAX - 1)))
            for _ in range(10)
        ]
        await holds(lambda: node.traffic.partial_input.ended_count == 6)
        assert node.traffic.partial_input.used_bytes <= 4 * BODY_MAX
        await peers[-1].send(b"x")
        assert b"/p 100000" in await peers[-1].answer()
        for peer in peers:
            peer.raw.close()

    attack(scenario)


@pytest.mark.parametrize(
    ("request_bytes", "status", "reason"),
    [
        (post(f"Content-Length: {BODY_MAX + 1}"), 413, "100000 bytes"),
        (
            post(
                "Transfer-Encoding: chunked",
                body=b"10000\r\n" + bytes(65536) + b"\r\nffff\r\n" + bytes(65535),
            ),
            413,
            "100000 bytes",
        ),
        (post("Transfer-Encoding: chunked", body=b"2\r\nxx\r\n" * 10_001), 413, "chunks"),
        (post("Content-Length: 1", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400, "both"),
        (b"GET / HTTP/1.1\nHost: x\n\n", 400, "line feed"),
        (b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400, "line feed"),
        (get("/") + b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, 431, "16384"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "no HTTP"),
        (post(f"Content-Length: {'9' * 5_000}"), 400, ""),
    ],
    ids=["announced", "chunked", "chunks", "both", "bare", "mixed", "head", "tls", "digits"],
)
def test_what_is_refused_is_answered_with_the_reason(
    request_bytes: bytes, status: int, reason: str
) -> None:
    async def scenario(node: Node) -> None:
        received = await (await node.connect(request_bytes)).rest()
        assert f"HTTP/1.1 {status}".encode() in received
        assert reason.encode() in received
        assert b"/p" not in received

    attack(scenario)


def test_a_refused_client_that_sends_on_hears_the_reason() -> None:
    async def scenario(node: Node) -> None:
        size = 2 << 20
        received = await (
            await node.connect(post(f"Content-Length: {size}", body=bytes(size)))
        ).rest()
        assert b"HTTP/1.1 413" in received

    attack(scenario)


@pytest.mark.parametrize(
    "sent", [b"", b"GET", get("/") + b"GET / HT", post("Content-Length: 5", body=b"abc")]
)
def test_a_request_that_does_not_go_on_ends_its_connection(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("HEAD_SECONDS", "BODY_SECONDS"):
        monkeypatch.setattr(server, limit, 0.3)

    async def scenario(node: Node) -> None:
        peer = await node.connect(sent)
        _ = await peer.rest()

    attack(scenario)


def test_half_open_connections_make_room_and_requests_that_run_stay() -> None:
    async def scenario(node: Node) -> None:
        node.traffic.slots = ConnectionSlots(20)
        working = await node.connect(get("/wait"))
        await holds(lambda: bool(node.paths))
        silent = [await node.connect(b"GET /" if number % 2 else b"") for number in range(50)]
        asking = await node.connect(get("/health"))
        assert b"/health 0" in await asking.answer()
        node.release.set()
        assert b"/wait 0" in await working.answer()
        assert node.traffic.slots.ended_count == 32
        for peer in (*silent, asking, working):
            peer.raw.close()

    attack(scenario)


def test_an_answer_that_cannot_be_sent_ends_its_connection() -> None:
    async def scenario(node: Node) -> None:
        assert await (await node.connect(get("/bad-header"))).rest() == b""
        assert sum(node.tasks.contained_failures.values()) == 1

    attack(scenario)
