"""What listens at an address that does not answer as it should: said by the first bytes that it
sends, so that an error can name the remedy.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from enum import Enum
from typing import Final, cast

from pulsarish.runtime.contained_protocol import ContainedProtocol
from pulsarish.runtime.network.addresses import is_tls, plain_address
from pulsarish.runtime.seams import ClientConnections, Clock, StreamBroken, Tasks

__all__ = ["FirstBytes", "PeerKind", "advice", "kind_of", "look_at"]

_LOOK_SECONDS: Final = 1.0
_FIRST_BYTES_MAX: Final = 64 << 10
_HTTP2_HEAD_BYTES: Final = 9
_SETTINGS: Final = 4
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")  # an alert, a handshake


class PeerKind(Enum):
    """What a peer speaks."""

    TLS = "speaks TLS"
    HTTP = "speaks HTTP"
    HTTP2 = "speaks HTTP/2, as the ports of gRPC do"
    CLOSES = "ends the connection"
    SILENT = "takes the connection and does not answer"
    OTHER = "speaks another protocol"


def kind_of(first: bytes) -> PeerKind:
    """Return what a peer speaks whose answer begins with these bytes; none: it closed."""
    if not first:
        return PeerKind.CLOSES
    if first[:2] in _TLS_RECORDS:
        return PeerKind.TLS
    if first.startswith(b"HTTP/1."):
        return PeerKind.HTTP
    if (
        len(first) >= _HTTP2_HEAD_BYTES
        and first[:2] == b"\0\0"
        and first[3] == _SETTINGS
        and first[5:_HTTP2_HEAD_BYTES] == b"\0\0\0\0"
    ):
        return PeerKind.HTTP2
    return PeerKind.OTHER


def advice(address: str, scheme: str, kind: PeerKind) -> str:
    """Return a sentence with what was found at an address, what it means, and the remedy.

    Args:
        scheme: of the service URL.
    """
    at = plain_address(address)
    native, binary = scheme.startswith("pulsarish"), scheme.startswith("pulsar:")
    what = f"{at} does not speak {_SPOKEN[scheme]}: it {kind.value}"
    match kind:
        case PeerKind.TLS:
            remedy = f"begin the service URL with {_WITH_TLS.get(scheme, scheme)}://"
        case PeerKind.HTTP:
            remedy = f"begin the service URL with http:// for this port, or name {_PORTS[scheme]}"
        case PeerKind.HTTP2:
            remedy = (
                f"name {_PORTS[scheme]}"
                if native
                else "begin the service URL with pulsarish:// for this port of a broker, or name "
                f"{_PORTS[scheme]}"
            )
        case PeerKind.SILENT:
            remedy = (
                "its process may be stopped or overloaded, or a firewall or load balancer has no "
                "server behind it: look there"
            )
        case _:
            other = "pulsar://" if native else "pulsarish://"
            remedy = f"name {_PORTS[scheme]}" + (
                f"; a broker's port of another protocol needs another scheme, such as {other}"
                if native or binary
                else ""
            )
    return f"{what}; {remedy}"


_SPOKEN: Final = {
    "pulsarish": "Pulsarish's protocol",
    "pulsarish+ssl": "Pulsarish's protocol with TLS",
    "pulsar": "Apache Pulsar's binary protocol",
    "pulsar+ssl": "Apache Pulsar's binary protocol with TLS",
    "http": "HTTP",
    "https": "HTTPS",
}
_WITH_TLS: Final = {"pulsarish": "pulsarish+ssl", "pulsar": "pulsar+ssl", "http": "https"}
_PORTS: Final = {
    "pulsarish": "a broker's listen_address, usually port 6660",
    "pulsarish+ssl": "a broker's listen_address_tls, usually port 6661",
    "pulsar": "a broker's pulsar_address, usually port 6650",
    "pulsar+ssl": "a broker's pulsar_address_tls, usually port 6651",
    "http": "a broker's http_address, usually port 8080",
    "https": "a broker's http_address_tls",
}


class FirstBytes(ContainedProtocol):
    """Sends one request and gathers the answer.

    Args:
        request: is sent when the connection is there.
    """

    def __init__(self, request: bytes, tasks: Tasks) -> None:
        super().__init__(tasks)
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._arrived = asyncio.Event()
        self.received = bytearray()
        self.has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) > _FIRST_BYTES_MAX:
            self.close()
        self._arrived.set()

    def eof_received(self) -> bool:
        self._arrived.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_ended = True
        self._transport = None
        self._arrived.set()

    async def more(self) -> None:
        """Wait until more has come, or the connection has ended."""
        await self._arrived.wait()
        self._arrived.clear()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def look_at(
    connections: ClientConnections, address: str, clock: Clock, tasks: Tasks
) -> PeerKind | None:
    """Return what listens at an address without TLS: greet it as a client of TLS does.

    ``None`` when that is not known.
    """
    if is_tls(address):
        return None
    try:
        async with clock.timeout(_LOOK_SECONDS):
            peer = cast(
                "FirstBytes",
                await connections.open_bytes(address, lambda: FirstBytes(_client_hello(), tasks)),
            )
    except (StreamBroken, TimeoutError):
        return None
    try:
        async with clock.timeout(_LOOK_SECONDS):
            while len(peer.received) < _HTTP2_HEAD_BYTES and not peer.has_ended:
                await peer.more()
    except TimeoutError:
        if not peer.received:
            return PeerKind.SILENT
    finally:
        peer.close()
    return kind_of(bytes(peer.received))


def _client_hello() -> bytes:
    """Return the first bytes of a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    handshake = context.wrap_bio(ssl.MemoryBIO(), sent)
    with contextlib.suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return sent.read()
