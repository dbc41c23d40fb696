"""The runtime in real processes: kill -9, SIGSTOP, signals, a dead critical task, HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from pulsarish.runtime.grpc.connections import GrpcConnections
from pulsarish.runtime.grpc.grpclib_connections import GrpclibConnections
from pulsarish.runtime.loop import EXIT_SECOND_SIGNAL
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.seams import (
    CallFailed,
    HttpRequest,
    HttpResponse,
    Stream,
    StreamBroken,
    Unreachable,
)
from pulsarish.runtime.tasks import EXIT_CRITICAL_TASK, Supervisor
from tests.support.worlds import run_in_production_loop

_NODE = """
    import asyncio, sys
    from pulsarish.runtime.log import configure_logs
    from pulsarish.runtime.loop import run_node
    from pulsarish.runtime.world import production as make_production

    async def echo(stream):
        while (message := await stream.receive()) is not None:
            await stream.send([message])

    class Node:
        def __init__(self, production, address):
            self.production, self.ready_line = production, address
        async def stop(self):
            print("stopping", flush=True)
            {on_stop}
            await self.production.close()

    async def start(process):
        production = make_production(outside=process.outside)
        listener = await production.connections.serve("127.0.0.1:0", {{"t.echo": echo}}, {{}})
        {on_start}
        return Node(production, listener.address)

    configure_logs()
    sys.exit(run_node(start))
"""

Start = Callable[..., "tuple[subprocess.Popen[str], str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(*, on_start: str = "pass", on_stop: str = "pass") -> tuple[subprocess.Popen[str], str]:
        code = textwrap.dedent(_NODE).format(on_start=on_start, on_stop=on_stop)
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield run
    for process in started:
        process.kill()
        process.communicate()


Network = type[GrpcConnections] | type[GrpclibConnections]
NETWORKS = pytest.mark.parametrize("network", [GrpcConnections, GrpclibConnections])


@NETWORKS
def test_a_killed_process_is_unreachable_at_once(start: Start, network: Network) -> None:
    process, address = start()

    async def work() -> None:
        connections = network(tasks=Supervisor())
        stream = await connections.open(address, "t.echo")
        await stream.send([b"x"])
        assert await stream.receive() == b"x"
        process.kill()
        process.wait()
        with pytest.raises(StreamBroken):
            await stream.receive()
        with pytest.raises(Unreachable):
            await connections.open(address, "t.echo")
        await connections.close()

    run_in_production_loop(work)


@NETWORKS
def test_a_stopped_process_is_silent_but_not_unreachable(start: Start, network: Network) -> None:
    process, address = start()
    os.kill(process.pid, signal.SIGSTOP)

    async def work() -> None:
        connections = network(
            tasks=Supervisor(), limits=ConnectionLimits(connect_timeout_seconds=0.5)
        )
        # Its kernel still takes connections. Taking silence for absence would move topics away from
        # a living owner.
        with pytest.raises(StreamBroken) as caught:
            await connections.open(address, "t.echo")
        assert not isinstance(caught.value, Unreachable)
        with pytest.raises(TimeoutError):
            await connections.call(address, "t.any", b"", timeout_seconds=0.3)
        # Whoever has patience is connected once it goes on.
        patient = network(tasks=Supervisor(), limits=ConnectionLimits(connect_timeout_seconds=30.0))
        opening = asyncio.ensure_future(patient.open(address, "t.echo"))
        await asyncio.sleep(0)
        os.kill(process.pid, signal.SIGCONT)
        stream = await opening
        with pytest.raises(CallFailed):
            await connections.call(address, "t.any", b"", timeout_seconds=30)  # it has no such call
        await stream.send([b"x"])
        assert await stream.receive() == b"x"
        await patient.close()
        await connections.close()

    run_in_production_loop(work)


@NETWORKS
def test_a_larger_message_than_the_limit_breaks_its_stream(network: Network) -> None:
    async def double(stream: Stream) -> None:
        while (message := await stream.receive()) is not None:
            await stream.send([message, message])

    async def work() -> None:
        served = GrpcConnections(tasks=Supervisor())
        listener = await served.serve("127.0.0.1:0", {"t.double": double}, {})
        connections = network(tasks=Supervisor(), limits=ConnectionLimits(message_bytes_max=1_000))
        fits = await connections.open(listener.address, "t.double")
        await fits.send([bytes(500)])
        assert await fits.receive() == bytes(1_000)
        received = await connections.open(listener.address, "t.double")
        await received.send([bytes(501)])
        with pytest.raises(StreamBroken, match=r"1002.*1000"):
            await received.receive()
        sent = await connections.open(listener.address, "t.double")
        with pytest.raises(StreamBroken):
            await sent.send([bytes(1_001)])
            await sent.receive()
        # Others on the same connection go on.
        await fits.send([b"x"])
        assert await fits.receive() == b"xx"
        await connections.close()
        await served.close()

    run_in_production_loop(work)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_gracefully(start: Start, number: signal.Signals) -> None:
    process, _ = start()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "stopping\n"), err
    assert "Traceback" not in err


def test_a_second_signal_ends_at_once(start: Start) -> None:
    process, _ = start(on_stop="await asyncio.sleep(600)")
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == EXIT_SECOND_SIGNAL


def test_a_dead_critical_task_ends_the_process_loudly(start: Start) -> None:
    on_start = """
        from pulsarish.runtime.containment import Critical
        async def die():
            await asyncio.sleep(0.05)
            raise OSError("fdatasync failed")
        _ = production.tasks.spawn(die(), name="journal", critical=Critical.JOURNAL)
    """
    process, _ = start(on_start=textwrap.indent(textwrap.dedent(on_start).strip(), "    ").strip())
    _, err = process.communicate(timeout=30)
    assert process.returncode == EXIT_CRITICAL_TASK
    assert "a critical task failed, the node ends" in err
    assert "task=journal" in err
    assert "OSError: fdatasync failed" in err


def test_http_requests_and_refusals(tmp_path: Path) -> None:
    async def handler(request: HttpRequest) -> HttpResponse:
        if request.segments == ("fail",):
            raise ValueError("broken handler")
        if request.segments == ("nothing",):
            return HttpResponse(204)
        text = (
            f"{request.method} {request.path} {request.segments} {dict(request.query)} "
            f"{request.headers['x-name']} {len(request.body)}"
        )
        return HttpResponse(201, text.encode(), "text/plain", {"X-Answer": "yes"})

    def ask(address: str) -> None:
        connection = http.client.HTTPConnection(address, timeout=30)

        def exchange(
            method: str, target: str, body: bytes | None = None
        ) -> tuple[http.client.HTTPResponse, bytes]:
            connection.request(method, target, body, {"X-Name": "n"})
            answer = connection.getresponse()
            return answer, answer.read()

        answer, body = exchange("PUT", "/topics/a%2Fb/c%20d/?x=1%202", b"12345")
        assert (answer.status, answer.headers["X-Answer"], answer.headers["Content-Type"]) == (
            201,
            "yes",
            "text/plain",
        )
        assert abs(parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()) < 60
        assert body.decode() == "PUT /topics/a/b/c d ('topics', 'a/b', 'c d') {'x': '1 2'} n 5"
        answer, body = exchange("GET", "/fail")  # on the same connection: it was kept alive
        assert (answer.status, json.loads(body)) == (500, {"reason": "ValueError: broken handler"})
        answer, body = exchange("HEAD", "/x")
        assert (answer.status, body, int(answer.headers["Content-Length"]) > 0) == (201, b"", True)
        answer, body = exchange("DELETE", "/nothing")
        assert (answer.status, body, answer.headers["Content-Length"]) == (204, b"", None)
        answer, body = exchange("POST", "/big", bytes(1_001))
        assert (answer.status, answer.headers["Connection"]) == (413, "close")
        assert "1000 bytes" in json.loads(body)["reason"]
        connection.close()
        connection = http.client.HTTPConnection(address, timeout=30)
        connection.request("GET", "/", headers={"X-Long": "x" * (17 << 10)})
        assert connection.getresponse().status == 431
        connection.close()
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as raw:
            # Two requests in one segment are answered in their order; what is no HTTP is answered
            # and ends the connection.
            raw.sendall(
                b"GET /1 HTTP/1.1\r\nHost: x\r\nX-Name: n\r\n\r\nGET /2 HTTP/1.1\r\nHost: "
                b"x\r\nX-Name: n\r\n\r\nnonsense\r\n\r\n"
            )
            text = b"".join(iter(lambda: raw.recv(65536), b"")).decode()
        assert text.index("GET /1") < text.index("GET /2") < text.index("HTTP/1.1 400")

    async def work() -> None:
        connections = GrpcConnections(tasks=Supervisor())
        listener = await connections.serve_http(
            "127.0.0.1:0", handler, body_limit=lambda _method, _segments: 1_000
        )
        with pytest.raises(OSError, match=listener.address):
            await connections.serve_http(listener.address, handler)
        await asyncio.to_thread(ask, listener.address)
        await listener.stop(1)
        await connections.close()
        await asyncio.sleep(0)

    run_in_production_loop(work)
