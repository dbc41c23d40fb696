"""Find the own protocol of brokers, for a service URL of Apache Pulsar's protocol or of HTTP.

One question to one host: the handshake of the binary protocol, or one request of HTTP. A broker
answers with the service URLs of its own protocol, a proxy also with its port for CONNECT. A broker
of Apache Pulsar has none, and is named as such.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import quote

from google.protobuf.message import DecodeError

from pulsarish.client.connection.peer_kinds import (
    FirstBytes,
    PeerKind,
    advice,
    kind_of,
    look_at,
)
from pulsarish.client.service_url import ServiceUrl, parse_service_url
from pulsarish.model.errors import (
    AuthenticationError,
    AuthorizationError,
    ConnectError,
    InvalidConfiguration,
    NotAllowedError,
    OperationNotSupported,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.runtime.network.addresses import host_of, plain_address
from pulsarish.runtime.seams import TLS, ClientConnections, Clock, StreamBroken, Tasks, Unreachable
from pulsarish.runtime.version import program_name
from pulsarish.security.credentials import NO_CREDENTIALS, Credentials
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import FrameReader, command_frame

__all__ = ["FoundService", "ServiceFinder"]

_PROTOCOL_VERSION: Final = 20
_CONNECT: Final = 2
_CONNECTED: Final = 3
_ERROR: Final = 14
_AUTH_CHALLENGE: Final = 36
_FRAME_BYTES_MAX: Final = 64 << 10
_OURS: Final = "Pulsarish"
"""What the version of a server of this project begins with."""
_PATH: Final = "/lookup/v2/native-urls"
_REFUSALS: Final[dict[int, type[PulsarishError]]] = {
    pb.AUTHENTICATION_ERROR: AuthenticationError,
    pb.AUTHORIZATION_ERROR: AuthorizationError,
    pb.NOT_ALLOWED_ERROR: NotAllowedError,
}
_STATUSES: Final[dict[int, type[PulsarishError]]] = {
    401: AuthenticationError,
    403: AuthorizationError,
    412: NotAllowedError,
}


@dataclass(frozen=True, slots=True)
class FoundService:
    addresses: tuple[str, ...]
    """Of the own protocol, the broker that answered first."""
    tunnel: str = ""
    """``host:port`` of the proxy by which they are reached with CONNECT; empty: directly."""


class ServiceFinder:
    """Asks the hosts of a service URL.

    Args:
        listener: whose addresses are wanted; empty: of the one that a host belongs to.
        timeout_seconds: for each host.
    """

    def __init__(
        self,
        url: ServiceUrl,
        connections: ClientConnections,
        clock: Clock,
        tasks: Tasks,
        *,
        listener: str,
        timeout_seconds: float,
    ) -> None:
        self._url = url
        self._connections = connections
        self._clock = clock
        self._tasks = tasks
        self._listener = listener
        self._timeout_seconds = timeout_seconds

    async def find(self) -> FoundService:
        """Return the answer of the first host that has one.

        Raises ``OperationNotSupported`` for a broker of Apache Pulsar, ``AuthenticationError``,
        ``AuthorizationError`` or ``NotAllowedError`` for a refusal, ``ConnectError`` when no host
        answers.
        """
        ask = self._ask_by_http if self._url.is_http else self._ask_broker
        failures: list[str] = []
        refusal: PulsarishError | None = None
        for address in self._url.addresses:
            try:
                return await ask(address)
            except ServiceNotReady as error:
                failures.append(str(error))
            except (Unreachable, TimeoutError) as error:
                failures.append(self._words(address, error))
            except StreamBroken as error:
                failures.append(str(error).removeprefix(TLS))
            except PulsarishError as error:  # another host may be one of Pulsarish's
                refusal = refusal or error
        if refusal is not None:
            raise refusal
        raise ConnectError(f"{self._url.text} cannot be reached: {'; '.join(failures)}")

    def _words(self, address: str, error: Exception) -> str:
        at = plain_address(address)
        if isinstance(error, Unreachable):
            return f"no process listens at {at}: start a broker there, or correct host and port"
        return (
            f"{at} gave no answer in {self._timeout_seconds:g} s: its process may be stopped or "
            "overloaded, or a firewall drops what is sent there"
        )

    async def _exchange(
        self, address: str, request: bytes, is_whole: Callable[[FirstBytes], bool]
    ) -> bytes:
        """Return what a host answers: all of it, or as much as makes ``is_whole`` true.

        Raises ``StreamBroken`` that says what is wrong with a host that does not speak the
        protocol.
        """
        silent = False
        async with self._clock.timeout(self._timeout_seconds):
            peer = cast(
                "FirstBytes",
                await self._connections.open_bytes(
                    address, lambda: FirstBytes(request, self._tasks)
                ),
            )
        try:
            async with self._clock.timeout(self._timeout_seconds):
                while not peer.has_ended and not is_whole(peer):
                    await peer.more()
        except TimeoutError:
            silent = True
        finally:
            peer.close()
        if is_whole(peer):
            return bytes(peer.received)
        kind = PeerKind.SILENT
        if peer.received or not silent:
            kind = kind_of(bytes(peer.received))
        if kind is PeerKind.CLOSES:
            # A port with TLS ends a connection that begins with something else.
            kind = await look_at(self._connections, address, self._clock, self._tasks) or kind
        raise StreamBroken(advice(address, self._url.scheme, kind))

    # The binary protocol.

    async def _ask_broker(self, address: str) -> FoundService:
        connect = pb.Connect(
            client_version=program_name(),
            protocol_version=_PROTOCOL_VERSION,
            wants_native_urls=True,
            listener_name=self._listener,
        )
        credentials = await self._connections.credentials_now()
        if credentials != NO_CREDENTIALS:
            connect.auth_method_name = credentials.method
            connect.auth_data = credentials.data.reveal()
        request = command_frame(pb.Command(type=_CONNECT, connect=connect))
        answer = _first_command(
            await self._exchange(address, request, lambda peer: _first_command(peer.received))
        )
        assert answer is not None
        if answer.type == _ERROR:
            kind = _REFUSALS.get(answer.error.error, ServiceNotReady)
            raise kind(f"{plain_address(address)}: {answer.error.message}")
        if answer.type == _AUTH_CHALLENGE:
            raise AuthenticationError(
                f"{plain_address(address)} asks for more than the credentials of method "
                f"{credentials.method or 'none'!r}: pass a token, basic credentials or a "
                "certificate"
            )
        return self._found(address, answer.connected)

    def _found(self, address: str, connected: pb.Connected) -> FoundService:
        at, version = plain_address(address), connected.server_version
        if not version.startswith(_OURS):
            raise _apache(at, version)
        if not connected.native_urls:
            raise ServiceNotReady(
                f"{at} is a Pulsarish server ({version}) that names no address of its own "
                "protocol: upgrade it, or begin the service URL with pulsarish://"
            )
        tunnel = ""
        if connected.connect_port:
            tunnel = f"{host_of(address)}:{connected.connect_port}"
        return FoundService(_addresses(at, connected.native_urls), tunnel)

    # HTTP.

    async def _ask_by_http(self, address: str) -> FoundService:
        at = plain_address(address)
        path = _PATH + (f"?listenerName={quote(self._listener, '')}" if self._listener else "")
        lines = [f"GET {path} HTTP/1.1", f"Host: {at}", "Connection: close", "Accept: */*"]
        lines.append(f"User-Agent: {program_name()}")
        if authorization := _authorization(await self._connections.credentials_now()):
            lines.append(f"Authorization: {authorization}")
        request = ("\r\n".join(lines) + "\r\n\r\n").encode()
        received = await self._exchange(
            address, request, lambda peer: peer.has_ended and peer.received.startswith(b"HTTP/1.")
        )
        status, headers, body = _http_answer(at, received)
        if status == 200:
            try:
                urls = json.loads(body)["nativeUrls"]
                return FoundService(_addresses(at, urls))
            except (ValueError, KeyError, TypeError):
                raise StreamBroken(
                    f"{at} answers the request for {_PATH} with what is no list of service URLs: "
                    "name a broker's http_address"
                ) from None
        if status == 404:
            if "broker-address" in headers or "jetty" in headers.get("server", "").lower():
                raise _apache(at, headers.get("server", "") or "by HTTP")
            raise StreamBroken(
                f"{at} has no {_PATH} (status 404): it is no broker of Pulsarish, or an old one; "
                "name a broker's http_address, or begin the service URL with pulsarish://"
            )
        reason = _reason(body)
        kind = _STATUSES.get(status, ServiceNotReady)
        raise kind(f"{at} answers the request for {_PATH} with status {status}: {reason}")


def _apache(at: str, version: str) -> OperationNotSupported:
    return OperationNotSupported(
        f"{at} is a broker of Apache Pulsar ({version}), whose protocol this client does not "
        "speak: use Apache Pulsar's client for it, or name a broker of Pulsarish"
    )


def _addresses(at: str, urls: Sequence[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for url in urls:
        try:
            found.update(dict.fromkeys(parse_service_url(url).addresses))
        except InvalidConfiguration as error:
            raise StreamBroken(f"{at} names a service URL that is none: {error}") from None
    return tuple(found)


def _first_command(received: bytes | bytearray) -> Any:
    """Return the first command of an answer; ``None`` while it is not whole, or is none."""
    frames = FrameReader(_FRAME_BYTES_MAX).feed(bytes(received))
    if not frames:
        return None
    try:
        command = pb.Command.FromString(frames[0].command)
    except DecodeError:
        return None
    return command if command.type in (_CONNECTED, _ERROR, _AUTH_CHALLENGE) else None


def _authorization(credentials: Credentials) -> str:
    data = credentials.data.reveal()
    if credentials.method == "basic":
        return f"Basic {base64.b64encode(data).decode()}"
    return f"Bearer {data.decode('ascii', 'replace')}" if credentials.method == "token" else ""


class _Received:
    """The bytes of an answer, as ``http.client`` reads them."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._data)


def _http_answer(at: str, received: bytes) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers with names in lower case, and body. Raises ``StreamBroken``."""
    # Imported here: few clients ask by HTTP, and all would wait for the modules of mail behind it.
    from http.client import HTTPException, HTTPResponse

    answer = HTTPResponse(cast("Any", _Received(received)))
    try:
        answer.begin()
        body = answer.read()
    except (HTTPException, OSError, ValueError) as error:
        raise StreamBroken(f"{at} gives an answer of HTTP that cannot be read: {error!r}") from None
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


def _reason(body: bytes) -> str:
    """Return the reason in the body of an error."""
    try:
        return str(json.loads(body)["reason"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace").strip() or "without a reason"
