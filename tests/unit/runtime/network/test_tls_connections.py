"""Every listener and client with TLS: who gets through, what each end learns."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from pulsarish.model.errors import ConfigError
from pulsarish.runtime.connections import NodeConnections
from pulsarish.runtime.contained_protocol import ContainedProtocol
from pulsarish.runtime.grpc.grpclib_connections import GrpclibConnections
from pulsarish.runtime.network import listening
from pulsarish.runtime.network.dialing import Dialer
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.seams import (
    ClientConnections,
    HttpRequest,
    HttpResponse,
    Listener,
    Stream,
    StreamBroken,
    Unreachable,
)
from pulsarish.runtime.tasks import Supervisor
from pulsarish.security.credentials import Caller, Certificate
from pulsarish.security.tls import TlsClientConfig, certificate_of
from tests.support.certificates import Certificates, certificates
from tests.support.worlds import run_in_production_loop

LIMITS = ConnectionLimits(handshake_timeout_seconds=2.0)


def client(tls: TlsClientConfig | None) -> NodeConnections:
    return NodeConnections(tasks=Supervisor(), tls=tls)


def run(work: Callable[[NodeConnections], Awaitable[None]]) -> None:
    """Run ``work`` with the connections of a node that trusts the test's authority."""

    async def working() -> None:
        node = NodeConnections(
            tasks=Supervisor(), limits=LIMITS, tls=certificates().client_config()
        )
        try:
            await work(node)
        finally:
            await node.close()

    run_in_production_loop(working)


async def say_who(_request: bytes, caller: Caller) -> bytes:
    return _name(caller.certificate)


def _name(certificate: Certificate | None) -> bytes:
    return b"none" if certificate is None else certificate.common_name.encode()


async def say_who_on_stream(stream: Stream) -> None:
    await stream.send([_name(stream.caller.certificate)])


async def serve(
    node: NodeConnections, kind: str, made: Certificates | None = None, **options: str
) -> Listener:
    serve = node.serve_framed if kind == "framed" else node.serve
    tls = (made or certificates()).server_config(**options)  # type: ignore[arg-type]
    return await serve("127.0.0.1:0", {"t.stream": say_who_on_stream}, {"t.who": say_who}, tls=tls)


async def refused(connections: ClientConnections, address: str) -> str:
    """Return why neither a stream nor a call gets through."""
    reasons = []
    for attempt in (
        lambda: connections.open(address, "t.stream"),
        lambda: connections.call(address, "t.who", b"", timeout_seconds=20),
    ):
        with pytest.raises(StreamBroken) as caught:
            await attempt()
        assert not isinstance(caught.value, Unreachable)
        reasons.append(str(caught.value))
    return reasons[0]


@pytest.mark.parametrize("kind", ["grpc", "framed"])
def test_a_verified_certificate_arrives_with_streams_and_calls(kind: str) -> None:
    async def work(node: NodeConnections) -> None:
        listener = await serve(node, kind)
        assert await node.call(listener.address, "t.who", b"", timeout_seconds=20) == b"client"
        stream = await node.open(listener.address, "t.stream")
        assert await stream.receive() == b"client"

    run(work)


@pytest.mark.parametrize("kind", ["grpc", "framed"])
def test_a_client_that_a_listener_refuses_learns_why(kind: str) -> None:
    async def work(node: NodeConnections) -> None:
        listener = await serve(node, kind)
        without = client(certificates().client_config(""))
        assert "refuses this client's certificate" in await refused(without, listener.address)

    run(work)


@pytest.mark.parametrize("kind", ["grpc", "framed"])
def test_a_server_of_an_unknown_authority_is_refused(kind: str, tmp_path: Path) -> None:
    async def work(node: NodeConnections) -> None:
        listener = await serve(node, kind, Certificates(tmp_path), client_certificate="none")
        assert "the peer's certificate is refused" in await refused(node, listener.address)

    run(work)


@pytest.mark.parametrize("kind", ["grpc", "framed"])
def test_a_server_of_another_host_is_refused(kind: str, tmp_path: Path) -> None:
    async def work(node: NodeConnections) -> None:
        made = Certificates(tmp_path)
        made.issue("server", hosts=("elsewhere.example",))
        listener = await serve(node, kind, made)
        strict = client(made.client_config())
        assert "IP address mismatch" in await refused(strict, listener.address)
        # Without that check the authority still counts, on gRPC by grpclib.
        for config, gets_through in (
            (replace(made.client_config(), validates_host_name=False), True),
            (replace(certificates().client_config(), validates_host_name=False), False),
            (replace(made.client_config(), trust_file="", allows_insecure=True), True),
        ):
            lax = GrpclibConnections(tasks=Supervisor(), dialer=Dialer(config, LIMITS))
            if kind == "framed":
                continue
            if gets_through:
                answer = await lax.call(listener.address, "t.who", b"", timeout_seconds=20)
                assert answer == b"client"
            else:
                assert "is refused" in await refused(lax, listener.address)
            await lax.close()

    run(work)


@pytest.mark.parametrize("kind", ["grpc", "framed"])
def test_a_client_never_talks_plain_to_a_tls_address_or_the_other_way(kind: str) -> None:
    async def work(node: NodeConnections) -> None:
        secure = await serve(node, kind)
        start = node.serve_framed if kind == "framed" else node.serve
        plain = await start("127.0.0.1:0", {"t.stream": say_who_on_stream}, {"t.who": say_who})
        assert "TLS" in await refused(node, secure.address.replace("tls:", ""))
        prefix, _, rest = plain.address.rpartition("127")
        assert "TLS" in await refused(node, f"{prefix}tls:127{rest}")

    run(work)


@pytest.mark.parametrize("kind", ["grpc", "framed"])
def test_a_client_that_requires_tls_refuses_plain_addresses(kind: str) -> None:
    async def work(node: NodeConnections) -> None:
        start = node.serve_framed if kind == "framed" else node.serve
        plain = await start("127.0.0.1:0", {"t.stream": say_who_on_stream}, {"t.who": say_who})
        careful = client(replace(certificates().client_config(), is_required=True))
        assert "without TLS, which this client requires" in await refused(careful, plain.address)
        with pytest.raises(StreamBroken, match="without TLS"):
            await careful.open_bytes(plain.address, asyncio.Protocol)

    run(work)


@pytest.mark.parametrize("kind", ["grpc", "framed"])
def test_changed_files_are_used_without_a_dropped_connection(kind: str, tmp_path: Path) -> None:
    async def work(node: NodeConnections) -> None:
        made = Certificates(tmp_path)
        held = asyncio.Event()

        async def echo(stream: Stream) -> None:
            held.set()
            while (message := await stream.receive()) is not None:
                await stream.send([message])

        start = node.serve_framed if kind == "framed" else node.serve
        listener = await start(
            "127.0.0.1:0", {"t.echo": echo}, {"t.who": say_who}, tls=made.server_config()
        )
        old = client(made.client_config())
        stream = await old.open(listener.address, "t.echo")
        await held.wait()
        other = Certificates(tmp_path, "the next authority")
        other.issue("server")
        other.issue("client")
        await asyncio.sleep(1.1)  # the files are looked at once a second
        new = client(other.client_config())
        assert await new.call(listener.address, "t.who", b"", timeout_seconds=20) == b"client"
        await stream.send([b"still here"])
        assert await stream.receive() == b"still here"
        await new.close()
        await old.close()

    run(work)


class _Talk(asyncio.Protocol):
    """Says the name of the peer's certificate, and echoes."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.arrived = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(_name(certificate_of(transport.get_extra_info("ssl_object"))))

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.arrived.set()


def test_bytes_with_tls_know_the_certificates_of_both_ends() -> None:
    async def work(node: NodeConnections) -> None:
        served: list[_Talk] = []

        def make() -> _Talk:
            served.append(_Talk())
            return served[-1]

        listener = await node.serve_bytes("127.0.0.1:0", make, tls=certificates().server_config())
        assert listener.address.startswith("tls:127.0.0.1:")
        here = await node.open_bytes(listener.address, _Talk)
        assert isinstance(here, _Talk)
        await here.arrived.wait()
        await served[0].arrived.wait()
        assert here.received == b"client"
        assert served[0].received == b"server"
        await listener.stop(0)
        with pytest.raises(Unreachable):
            await node.open_bytes(listener.address, _Talk)

    run(work)


async def _ask_http(address: str, request: bytes, *, shows_certificate: bool = True) -> bytes:
    context = ssl.create_default_context(cafile=certificates().trust)
    if shows_certificate:
        config = certificates().client_config()
        context.load_cert_chain(config.certificate_file, config.key_file)
    host, _, port = address.removeprefix("tls:").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    writer.write(request)
    try:
        return await reader.read()
    finally:
        writer.close()


def test_http_with_tls() -> None:
    large = b"x" * 3_000_000

    async def handle(request: HttpRequest) -> HttpResponse:
        if request.path == "/large":
            return HttpResponse(200, large)
        return HttpResponse(200, _name(request.certificate))

    async def work(node: NodeConnections) -> None:
        listener = await node.serve_http(
            "127.0.0.1:0", handle, tls=certificates().server_config(client_certificate="optional")
        )
        get = b"GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        assert (await _ask_http(listener.address, get % b"/")).endswith(b"\r\n\r\nclient")
        answer = await _ask_http(listener.address, get % b"/", shows_certificate=False)
        assert answer.endswith(b"\r\n\r\nnone")
        assert (await _ask_http(listener.address, get % b"/large")).endswith(b"\r\n\r\n" + large)
        # A refused body that is still being sent does not hide the reason.
        post = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n" + bytes(500_000)
        assert (await _ask_http(listener.address, post)).startswith(b"HTTP/1.1 413 ")

    run(work)


def test_a_silent_client_has_a_limited_time_and_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "_HANDSHAKES_MAX", 8)

    async def work(node: NodeConnections) -> None:
        listener = await node.serve_bytes("127.0.0.1:0", _Talk, tls=certificates().server_config())
        host, port = "127.0.0.1", int(listener.address.rpartition(":")[2])
        silent = [await asyncio.open_connection(host, port) for _ in range(10)]

        async def ended(reader: asyncio.StreamReader) -> bool:
            try:
                return await reader.read() == b""
            except ConnectionResetError:
                return True

        # An address has half of the places: the oldest of its own handshakes are ended.
        async with asyncio.timeout(1.5):
            assert all([await ended(reader) for reader, _ in silent[:6]])
        here = await node.open_bytes(listener.address, _Talk)
        assert isinstance(here, _Talk)
        # The others after their time.
        async with asyncio.timeout(10):
            assert all([await ended(reader) for reader, _ in silent[6:]])
        await here.arrived.wait()
        for _, writer in silent:
            writer.close()

    run(work)


class _Cyclic(ContainedProtocol):
    """A connection that its own tasks know, as those of brokers and proxies are."""

    def __init__(self) -> None:
        super().__init__(Supervisor())
        self._scope = self.scope

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._scope = self.scope

    def connection_lost(self, exc: Exception | None) -> None:
        pass


@pytest.mark.parametrize("kind", ["bytes", "framed", "http"])
def test_a_connection_that_ended_keeps_no_buffers_of_tls(kind: str) -> None:
    """They are 256 KiB each, and cycles are collected rarely."""

    def ends_of_tls() -> int:
        return sum(type(each).__name__ == "SSLProtocol" for each in gc.get_objects())

    async def work(node: NodeConnections) -> None:
        tls = certificates().server_config(client_certificate="optional")
        if kind == "bytes":
            listener = await node.serve_bytes("127.0.0.1:0", _Cyclic, tls=tls)
        elif kind == "http":
            listener = await node.serve_http("127.0.0.1:0", _never, tls=tls)
        else:
            listener = await serve(node, kind, client_certificate="optional")
        port = int(listener.address.rpartition(":")[2])
        context = ssl.create_default_context(cafile=certificates().server_config().trust_file)
        gc.collect()
        before = ends_of_tls()
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
            await asyncio.sleep(0.01)
            writer.transport.abort()
        for _ in range(200):
            if ends_of_tls() <= before + 2:  # one that is closing at either end
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{ends_of_tls() - before} ends of TLS are left")

    gc.disable()
    try:
        run(work)
    finally:
        gc.enable()


async def _never(_request: HttpRequest) -> HttpResponse:
    raise AssertionError


def test_bad_files_are_reported_when_a_listener_begins(tmp_path: Path) -> None:
    async def work(node: NodeConnections) -> None:
        made = Certificates(tmp_path)
        config = replace(made.server_config(), key_file=made.issue("other")[1])
        for begin in (
            lambda: node.serve("127.0.0.1:0", {}, {}, tls=config),
            lambda: node.serve_framed("127.0.0.1:0", {}, {}, tls=config),
            lambda: node.serve_bytes("127.0.0.1:0", _Talk, tls=config),
        ):
            with pytest.raises(ConfigError, match="does not belong to the certificate"):
                await begin()
        with pytest.raises(ConfigError, match="tls_trust_certs_file_path"):
            client(TlsClientConfig(trust_file=str(tmp_path / "none")))

    run(work)
