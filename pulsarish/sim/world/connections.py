"""``Connections`` of one process in the simulated network: streams, calls, and the HTTP and byte
listeners.

Everything travels over ``SimStream``, also calls and HTTP. So all of them meet the same delays,
cuts and resets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from pulsarish.runtime.fresh_credentials import FreshConnections, FreshCredentials
from pulsarish.runtime.network.addresses import is_tls, plain_address
from pulsarish.runtime.seams import (
    FRAMED,
    TLS,
    BodyLimit,
    CallFailed,
    CallHandler,
    ClientConnections,
    Connections,
    HttpHandler,
    HttpRequest,
    HttpResponse,
    Stream,
    StreamBroken,
    StreamHandler,
    Unreachable,
)
from pulsarish.runtime.version import program_name
from pulsarish.security.client_security import ClientSecurity
from pulsarish.security.credentials import (
    Caller,
    Certificate,
    Credentials,
    CredentialsSource,
    no_credentials,
)
from pulsarish.security.tls import TlsServerConfig
from pulsarish.sim.world.byte_connection import SimTransport
from pulsarish.sim.world.network import Accept, Network, Service, Wire
from pulsarish.sim.world.nodes import Process, SimClock
from pulsarish.sim.world.stream import SimStream

__all__ = ["SimConnections", "SimListener"]

CONNECT_TIMEOUT_SECONDS = 10.0

# Method names of connections that are not a stream of messages. The method of a call is this prefix
# and the call's name.
_CALL = "call:"
_HTTP = "http"
_BYTES = "bytes"
_OK = b"\x00"
_FAILED = b"\x01"


class SimListener:
    """A listening address of a process."""

    def __init__(
        self, network: Network, clock: SimClock, address: str, service: Service, transport: str
    ) -> None:
        self.address = transport + address
        self._listening = address
        self._network = network
        self._clock = clock
        self._service = service

    async def stop(self, grace_seconds: float) -> None:
        """Accept no new connection.

        Give the open ones ``grace_seconds`` to end, then break them.
        """
        service = self._service
        service.process.check()
        self._network.close(self._listening, service)
        left = list(service.streams.values())
        if left and grace_seconds > 0:
            service.idle = asyncio.Event()
            try:
                async with self._clock.timeout(grace_seconds):
                    await service.idle.wait()
            except TimeoutError:
                left = list(service.streams.values())
            else:
                left = []
        for stream in left:
            stream.abort("the server stops")


class SimConnections:
    """The network as one process sees it."""

    def __init__(self, network: Network, process: Process, clock: SimClock) -> None:
        self.credentials: CredentialsSource = no_credentials
        """What this process shows to the processes that it connects to."""
        self.certificate: Certificate | None = None
        """What it shows over TLS. Nothing is encrypted or verified here."""
        self._network = network
        self._process = process
        self._clock = clock

    def showing(self, credentials: CredentialsSource) -> SimConnections:
        """Return connections of the same process that show other credentials."""
        other = SimConnections(self._network, self._process, self._clock)
        other.credentials = credentials
        return other

    async def credentials_now(self) -> Credentials:
        return self.credentials()

    async def open(self, address: str, method: str, *, lane: str = "") -> Stream:
        # Every stream is a connection of its own, so lanes are always separate.
        return await self._connect(address, method)

    async def call(
        self, address: str, method: str, request: bytes, *, timeout_seconds: float
    ) -> bytes:
        async with self._clock.timeout(timeout_seconds):
            answer = await self._exchange(address, _CALL + method, request)
        if answer[:1] == _FAILED:
            raise CallFailed(answer[1:].decode())
        return answer[1:]

    async def serve(
        self,
        address: str,
        streams: Mapping[str, StreamHandler],
        calls: Mapping[str, CallHandler],
        *,
        message_bytes_max: int = 0,
        tls: TlsServerConfig | None = None,
        is_shared: bool = False,
    ) -> SimListener:
        return self._listen(address, self._accept(streams, calls), tls=tls, is_shared=is_shared)

    async def serve_framed(
        self,
        address: str,
        streams: Mapping[str, StreamHandler],
        calls: Mapping[str, CallHandler],
        *,
        message_bytes_max: int = 0,
        tls: TlsServerConfig | None = None,
        is_shared: bool = False,
    ) -> SimListener:
        # One simulated network stands for both transports: both keep the promises of the seam.
        return self._listen(
            address, self._accept(streams, calls), FRAMED, tls=tls, is_shared=is_shared
        )

    async def serve_bytes(
        self,
        address: str,
        factory: Callable[[], asyncio.Protocol],
        *,
        tls: TlsServerConfig | None = None,
        is_shared: bool = False,
    ) -> SimListener:
        async def accept(stream: SimStream) -> None:
            await SimTransport(stream, factory()).begin().run()

        return self._listen(address, {_BYTES: accept}, tls=tls, is_shared=is_shared)

    async def open_bytes(
        self, address: str, factory: Callable[[], asyncio.Protocol]
    ) -> asyncio.Protocol:
        protocol = factory()
        transport = SimTransport(await self._connect(address, _BYTES), protocol).begin()
        _ = asyncio.get_running_loop().create_task(transport.run(), name=f"bytes-{address}")
        return protocol

    async def serve_http(
        self,
        address: str,
        handler: HttpHandler,
        *,
        body_limit: BodyLimit | None = None,
        tls: TlsServerConfig | None = None,
        is_shared: bool = False,
    ) -> SimListener:
        async def answer(request: bytes, caller: Caller) -> bytes:
            asked = msgspec.msgpack.decode(request, type=HttpRequest)
            known = replace(
                asked,
                peer=caller.address,
                certificate=caller.certificate,
                has_tls=tls is not None,
            )
            return msgspec.msgpack.encode(await handler(known))

        return self._listen(address, {_HTTP: self._answering(answer)}, tls=tls, is_shared=is_shared)

    async def http(self, address: str, request: HttpRequest) -> HttpResponse:
        """Send a request to a ``serve_http`` listener, for tests.

        Return status 500 when the handler raises.
        """
        answer = await self._exchange(address, _HTTP, msgspec.msgpack.encode(request))
        if answer[:1] == _FAILED:
            return HttpResponse(500, answer[1:], "text/plain")
        return msgspec.msgpack.decode(answer[1:], type=HttpResponse)

    # -- how it is done

    def _listen(
        self,
        address: str,
        accept: dict[str, Accept],
        transport: str = "",
        *,
        tls: TlsServerConfig | None,
        is_shared: bool,
    ) -> SimListener:
        assert not is_shared, "each simulated node has a host of its own"
        self._process.check()
        service = Service(self._process, accept, has_tls=tls is not None)
        listening = self._network.listen(plain_address(address), service)
        if tls is not None:
            transport += TLS
        return SimListener(self._network, self._clock, listening, service, transport)

    def _accept(
        self, streams: Mapping[str, StreamHandler], calls: Mapping[str, CallHandler]
    ) -> dict[str, Accept]:
        answering = {_CALL + method: self._answering(handler) for method, handler in calls.items()}
        return {**streams, **answering}

    def _answering(self, handler: CallHandler) -> Accept:
        async def serve(stream: SimStream) -> None:
            request = await stream.receive()
            assert request is not None
            try:
                answer = _OK + await handler(request, stream.caller)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
                # The caller gets the error. But a handler puts the errors that it expects into its
                # reply, so this one is a defect.
                answer = _FAILED + str(error).encode()
                self._process.node.report(
                    f"the handler of a call raised on stream {stream.number}", error
                )
            await stream.send([answer])

        return serve

    async def _exchange(self, address: str, method: str, request: bytes) -> bytes:
        stream = await self._connect(address, method)
        try:
            await stream.send([request])
            answer = await stream.receive()
        finally:
            stream.abort("the call is over")
        if answer is None:
            raise StreamBroken(f"{address}: no answer")
        return answer

    async def _connect(self, address: str, method: str) -> SimStream:
        """Return the client's end of a new connection.

        Raises ``Unreachable`` when no process listens there, ``StreamBroken`` after a long silence.
        """
        self._process.check()
        network, process = self._network, self._process
        has_tls = is_tls(address)
        face = "framed" if address.startswith(FRAMED) else "grpc"
        address = plain_address(address)
        service = network.service(address)
        # The machine of a dead process refuses the connection. The name in the address says which
        # machine that is.
        target = service.process.node.name if service is not None else address.rpartition(":")[0]
        number = network.number()
        connected: asyncio.Future[SimStream] = network.loop.create_future()
        out = Wire(network, process.node.name, target)
        back = Wire(network, target, process.node.name)

        def fail(error: StreamBroken) -> None:
            if not connected.done():
                connected.set_exception(error)

        def arrive() -> None:
            service = network.service(address)
            if service is None or network.refuses(target):
                back.carry(lambda: fail(Unreachable(f"{address}: no process listens there")))
            elif service.has_tls != has_tls:
                back.carry(lambda: fail(StreamBroken(f"{address}: only one end speaks TLS")))
            elif method not in service.accept:
                back.carry(
                    lambda: fail(StreamBroken(f"{address}: nothing here is called {method}"))
                )
            else:
                network.loop.call_soon(accept, service, context=service.process.context.copy())

        def accept(service: Service) -> None:
            client = SimStream(network, number, process, address, out)
            peer = f"{process.node.name}:{number}"
            server = SimStream(
                network,
                number,
                service.process,
                peer,
                back,
                Caller(
                    peer,
                    program_name(),
                    self.credentials(),
                    self.certificate if has_tls else None,
                    face=face,
                ),
            )
            client.other, server.other = server, client
            network.remember(client)
            network.trace(f"net open {number} {process}->{service.process} {method}")
            service.add(server)
            task = server.serve(service.accept[method])
            task.add_done_callback(lambda _: service.remove(server))
            back.carry(lambda: answer(client))

        def answer(client: SimStream) -> None:
            if connected.done():
                client.abort("the client waits for this connection no longer")
            else:
                connected.set_result(client)

        out.carry(arrive)
        silence = network.loop.call_later(
            CONNECT_TIMEOUT_SECONDS,
            fail,
            StreamBroken(f"{address}: no answer to the connection"),
            context=network.context,
        )
        try:
            return await connected
        finally:
            silence.cancel()


def client_connections(connections: Connections, security: ClientSecurity) -> ClientConnections:
    """Return the connections of a client in the process that ``connections`` belong to."""
    assert isinstance(connections, SimConnections)
    assert security.tls is None, "the simulated network has no TLS"
    credentials = FreshCredentials(security.provider)
    return FreshConnections(connections.showing(credentials.latest), credentials)
