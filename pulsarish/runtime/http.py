"""The HTTP server of a node: h11 parses and frames, a protocol of asyncio carries.

It turns requests into ``HttpRequest`` and ``HttpResponse`` back, and does nothing else: routes,
permissions and JSON belong to the node. Memory and time are bounded whatever a client does: one
request of a connection is handled at a time, and the next one is not begun before the answer is
sent. A connection that does not go on in time is closed. Connections that wait for their clients
make room for new ones, and those that hold incomplete requests or unread answers are ended when all
of them hold too much (``runtime/peer_limits.py``).

A ready-made server was measured instead (``docs/ARCHITECTURE.md``, "The HTTP server").
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import replace
from email.utils import formatdate
from typing import Final, cast
from urllib.parse import parse_qsl, unquote

import h11

from pulsarish.runtime.contained_protocol import ContainedProtocol
from pulsarish.runtime.descriptors import reserved_connections_limit
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.network.listening import Listening, listen, pause_at_every_byte
from pulsarish.runtime.network.tls_contexts import ServerTls
from pulsarish.runtime.peer_limits import ConnectionSlots, HeldBytes
from pulsarish.runtime.seams import (
    BodyLimit,
    HttpHandler,
    HttpRequest,
    HttpResponse,
    Listener,
    Tasks,
)
from pulsarish.security.credentials import Certificate
from pulsarish.security.tls import TlsServerConfig, certificate_of

__all__ = ["HttpTraffic", "serve_http"]

_log = get_logger("http")

HEAD_SECONDS: Final = 10.0
"""A new connection must bring the first line and headers of a request in this time, and so must one
that has begun a later request.
"""
IDLE_SECONDS: Final = 75.0
"""A connection that was answered and brings no further request for this long is closed."""
BODY_SECONDS: Final = 30.0
"""The body of a request must be whole in this time."""
ANSWER_SECONDS: Final = 15.0
"""A client that receives nothing of its answer for this long is disconnected."""
SLOW_REQUEST_SECONDS: Final = 3.0
"""A request whose answer took longer is logged."""
HEAD_BYTES_MAX: Final = 16 << 10
"""A request whose first line and headers are longer is answered with 431."""
EMPTY_BODY_BYTES_MAX: Final = 4 << 10
"""The greatest body where none is wanted: some clients send an empty object."""
CHUNKS_MAX: Final = 10_000
"""A body in more chunks is answered with 413: each costs time, however small it is."""
PARTIAL_BYTES_MAX: Final = 32 << 20
"""Incomplete requests of all connections of a process."""
UNSENT_BYTES_MAX: Final = 128 << 20
"""Answers that clients do not receive, of all connections of a process.

More than the largest answer, an entry of 64 MiB.
"""
_DISCARD_SECONDS: Final = 2.0
_DISCARD_BYTES_MAX: Final = 16 << 20
"""What a client still sends when its request is refused is read and dropped, so that the reason
reaches it.
"""
_JOINED_BYTES_MAX: Final = 64 << 10  # a larger body is not copied to stand behind its headers
_BARE_LINE_FEED: Final = re.compile(rb"(?<!\r)\n")
_END_OF_HEAD: Final = b"\r\n\r\n"
_NO_CONTENT: Final = 204


class HttpTraffic:
    """What the HTTP listeners of a process share: the limits on their connections.

    One address gets half of the connections.
    """

    def __init__(self) -> None:
        connections_max = reserved_connections_limit()
        self.slots = ConnectionSlots(
            connections_max, max(connections_max // 2, 1), what="HTTP connections"
        )
        self.partial_input = HeldBytes(PARTIAL_BYTES_MAX, "incomplete HTTP requests")
        self.unsent = HeldBytes(UNSENT_BYTES_MAX, "HTTP answers that their clients do not receive")


async def serve_http(
    address: str,
    handler: HttpHandler,
    *,
    tasks: Tasks,
    traffic: HttpTraffic,
    body_limit: BodyLimit | None,
    limits: ConnectionLimits,
    tls: TlsServerConfig | None = None,
    is_shared: bool = False,
) -> Listener:
    """Listen on ``host:port``.

    Args:
        handler: answers a request. Its exception is logged and answered with 500.
        body_limit: the greatest body of a request, in bytes; without it ``EMPTY_BODY_BYTES_MAX``.
        limits: of the TLS handshakes.

    Raises:
        OSError: the address cannot be listened on.
        ConfigError: a certificate file cannot be used.
    """
    listener = _HttpListener(handler, tasks, traffic, body_limit)
    listener.listening = await listen(
        address,
        lambda: _HttpConnection(listener),
        tls=None if tls is None else ServerTls(tls),
        limits=limits,
        tasks=tasks,
        is_shared=is_shared,
    )
    listener.address = listener.listening.address
    return listener


class _HttpListener:
    address: str
    listening: Listening

    def __init__(
        self, handler: HttpHandler, tasks: Tasks, traffic: HttpTraffic, body_limit: BodyLimit | None
    ) -> None:
        self.handler = handler
        self.tasks = tasks
        self.traffic = traffic
        self.body_limit = body_limit
        self.stopping = False
        self.connections: dict[_HttpConnection, None] = {}  # in the order in which they were opened
        self._empty: asyncio.Future[None] | None = None

    def closed(self, connection: _HttpConnection) -> None:
        """Forget a connection that ended."""
        self.connections.pop(connection, None)
        if not self.connections and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    async def stop(self, grace_seconds: float) -> None:
        """End idle connections at once, and those with a request within the grace."""
        self.listening.close()
        self.stopping = True
        for connection in list(self.connections):
            connection.close_if_idle()
        if self.connections:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=grace_seconds)
        for connection in list(self.connections):
            connection.abort("the listener stops")


class _Refused(Exception):
    """A request that is not handled, and the reason for its client."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _HttpConnection(ContainedProtocol):
    """One connection of a client.

    It is not read while a request is handled or an answer is not sent.
    """

    transport: asyncio.Transport

    def __init__(self, listener: _HttpListener) -> None:
        super().__init__(listener.tasks)
        self._listener = listener
        self._traffic = listener.traffic
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._request: HttpRequest | None = None
        self._body = bytearray()
        self._body_bytes_max = 0
        self._chunks_count = 0
        self._reading = True
        self._busy = False  # a request is handled
        self._unsent = False  # an answer is not sent
        self._closing = False  # closes once the answer is sent
        # this many bytes are read and dropped, as the request was refused; 0: it was not
        self._discards_bytes = 0
        self._peer = ""
        self._certificate: Certificate | None = None
        self._has_tls = False
        self._deadline: asyncio.TimerHandle | None = None

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's own class is none of asyncio's
        self.transport = cast("asyncio.Transport", transport)
        host, port = (transport.get_extra_info("peername") or ("unknown", 0))[:2]
        self._peer = f"{host}:{port}"
        refused = (
            "the listener stops"
            if self._listener.stopping
            else self._traffic.slots.take(self, str(host))
        )
        if refused:
            _log.warning("http connection refused", peer=self._peer, reason=refused)
            self.transport.abort()
            return
        self._listener.connections[self] = None
        pause_at_every_byte(self.transport)
        ssl_object = transport.get_extra_info("ssl_object")
        self._has_tls = ssl_object is not None
        self._certificate = certificate_of(ssl_object)
        self._set_deadline(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._traffic.slots.leave(self)
        self._traffic.partial_input.set(self, 0)
        self._traffic.unsent.set(self, 0)
        self._body = bytearray()
        # a handler may still run; what was received is not kept for it
        self._h11 = h11.Connection(h11.SERVER)
        self._listener.closed(self)

    def data_received(self, data: bytes) -> None:
        if self._discards_bytes:
            self._discard(len(data))
        else:
            self._h11.receive_data(data)
            self._advance()

    def eof_received(self) -> bool:
        if not self._discards_bytes:
            self._h11.receive_data(b"")
            self._advance()
        return self._busy or self._unsent  # keep our side open for the answer

    def pause_writing(self) -> None:
        self._unsent = True
        self._read(wanted=self._discards_bytes > 0)
        unsent_bytes = self.transport.get_write_buffer_size()
        self._traffic.unsent.set(self, unsent_bytes)
        self._set_deadline(ANSWER_SECONDS, unsent_bytes)

    def resume_writing(self) -> None:
        self._unsent = False
        self._traffic.unsent.set(self, 0)
        self._cancel_deadline()
        self._go_on()

    def _read(self, *, wanted: bool) -> None:
        if wanted != self._reading and not self.transport.is_closing():
            self._reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    # Time.

    def _set_deadline(self, seconds: float, unsent_bytes: int = 0) -> None:
        self._cancel_deadline()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._late, unsent_bytes)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self, unsent_before_bytes: int) -> None:
        if not self._unsent:
            self.transport.abort()  # nothing is lost: nothing waits to be sent
            return
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes >= unsent_before_bytes:
            self.abort(f"the client received nothing of its answer for {ANSWER_SECONDS:g} s")
        else:
            self._set_deadline(ANSWER_SECONDS, unsent_bytes)

    def abort(self, reason: str) -> None:
        """Close at once."""
        if not self.transport.is_closing():
            _log.warning("http connection closed", peer=self._peer, reason=reason)
        self.transport.abort()

    def close_if_idle(self) -> None:
        if not self._busy and not self._unsent:
            self.transport.close()

    # What comes in.

    def _advance(self) -> None:
        """Take what was received, until a request is whole or more is needed."""
        try:
            while not (self._busy or self._unsent or self._closing):
                if self._request is None:
                    self._check_head()
                event = self._h11.next_event()
                match event:
                    case h11.Request():
                        self._take_head(event)
                    case h11.Data():
                        self._take_body(event)
                    case h11.EndOfMessage():
                        self._begin()
                    case h11.ConnectionClosed():
                        self.transport.close()
                        return
                    case _:
                        break
        except h11.RemoteProtocolError as error:
            # h11 raises it in a way that makes a cycle, which would keep this connection.
            error.__traceback__ = None
            self._refuse(error.error_status_hint, f"this is no HTTP/1.1 request: {error}")
        except _Refused as refusal:
            self._refuse(refusal.status, str(refusal))
        else:
            self._note_input()

    def _note_input(self) -> None:
        """Count what is held of a request that is not handled yet, and limit the time for its
        head.
        """
        if self._busy or self._request is None:
            held_bytes = len(self._h11.trailing_data[0])
            if held_bytes and not self._busy and not self._traffic.partial_input.holds(self):
                self._set_deadline(HEAD_SECONDS)
        else:
            held_bytes = max(len(self._body), 1)
        self._traffic.partial_input.set(self, held_bytes)

    def _check_head(self) -> None:
        """Refuse what h11 takes: a long head that came at once, and lines that end without a
        carriage return. Raises ``_Refused``.
        """
        received, _ = self._h11.trailing_data
        end = received.find(_END_OF_HEAD)
        head_bytes = end if end >= 0 else len(received)
        if head_bytes > HEAD_BYTES_MAX:
            raise _Refused(
                431, f"the first line and the headers are longer than {HEAD_BYTES_MAX} bytes"
            )
        if _BARE_LINE_FEED.search(received, 0, head_bytes):
            raise _Refused(
                400,
                "this is no HTTP/1.1 request: a line ends with a line feed alone; end it with CR "
                "LF",
            )

    def _take_head(self, event: h11.Request) -> None:
        request = replace(
            _taken(event, self._peer), certificate=self._certificate, has_tls=self._has_tls
        )
        if "transfer-encoding" in request.headers and "content-length" in request.headers:
            raise _Refused(
                400, "the request has both Content-Length and Transfer-Encoding; send one of them"
            )
        limit = self._listener.body_limit
        self._body_bytes_max = (
            EMPTY_BODY_BYTES_MAX if limit is None else limit(request.method, request.segments)
        )
        if int(request.headers.get("content-length", 0)) > self._body_bytes_max:
            raise _Refused(413, self._too_large())
        self._request, self._chunks_count = request, 0
        if self._h11.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[]))
        self._set_deadline(BODY_SECONDS)

    def _too_large(self) -> str:
        return (
            f"the request body is larger than {self._body_bytes_max} bytes, the limit for this path"
        )

    def _take_body(self, event: h11.Data) -> None:
        self._body += event.data
        self._chunks_count += event.chunk_start
        if len(self._body) > self._body_bytes_max:
            raise _Refused(413, self._too_large())
        if self._chunks_count > CHUNKS_MAX:
            raise _Refused(
                413,
                f"the request body comes in more than {CHUNKS_MAX} chunks; send larger ones, or "
                "Content-Length",
            )

    def _begin(self) -> None:
        request = self._request
        assert request is not None
        if self._body:
            request = replace(request, body=bytes(self._body))
            self._body = bytearray()
        self._cancel_deadline()
        self._busy = True
        self._traffic.slots.mark_active(self)
        self._traffic.partial_input.set(self, 0)
        self._read(wanted=False)
        _ = self._listener.tasks.spawn(self._handle(request), name="http-request", scope=self.scope)

    # What goes out.

    async def _handle(self, request: HttpRequest) -> None:
        began = time.perf_counter()
        try:
            answer = await self._listener.handler(request)
        except Exception as error:  # noqa: BLE001
            # Whatever it is, the client gets an answer and the log a traceback.
            _log.error(
                "http handler failed", exception=error, method=request.method, path=request.path
            )
            answer = _refusal(500, f"{type(error).__name__}: {error}")
        took_seconds = time.perf_counter() - began
        if took_seconds >= SLOW_REQUEST_SECONDS:
            _log.warning(
                "slow request",
                method=request.method,
                path=request.path,
                status=answer.status,
                took_ms=round(took_seconds * 1000),
            )
        if self.transport.is_closing():
            return
        self._busy = False
        self._traffic.slots.mark_waiting(self)
        self._closing = self._listener.stopping
        self._answer(answer, with_body=request.method != "HEAD")
        if not self._unsent:
            self._go_on()

    def _refuse(self, status: int, reason: str) -> None:
        """Answer a request that is not read to its end, and close."""
        self._closing = True
        self._discards_bytes = _DISCARD_BYTES_MAX
        self._body = bytearray()
        self._traffic.partial_input.set(self, 0)
        if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._answer(
                _refusal(status, reason),
                with_body=self._request is None or self._request.method != "HEAD",
            )
        if not self._unsent:
            self._go_on()

    def _discard(self, size_bytes: int) -> None:
        self._discards_bytes -= size_bytes
        if self._discards_bytes <= 0:
            self.transport.abort()

    def _go_on(self) -> None:
        """The answer is sent: wait for the next request, take it if it is here already, or
        close.
        """
        if self._busy or self.transport.is_closing():
            return
        if self._discards_bytes:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            else:
                self.transport.close()  # which, with TLS, drops what still arrives
            self._set_deadline(_DISCARD_SECONDS)
        elif self._request is not None and self._h11.our_state is h11.SEND_RESPONSE:
            self._set_deadline(BODY_SECONDS)  # only "100 Continue" was sent
            self._read(wanted=True)
            self._advance()
        elif (
            self._closing
            or self._h11.our_state is not h11.DONE
            or self._h11.their_state is not h11.DONE
        ):
            self.transport.close()
        else:
            self._h11.start_next_cycle()
            self._request = None
            self._traffic.partial_input.set(self, 0)
            self._set_deadline(IDLE_SECONDS)
            self._read(wanted=True)
            self._advance()

    def _answer(self, answer: HttpResponse, *, with_body: bool) -> None:
        headers = [("Date", formatdate(usegmt=True)), *answer.headers.items()]  # RFC 9110, 6.6.1
        if answer.status != _NO_CONTENT:
            headers += [
                ("Content-Type", answer.content_type),
                ("Content-Length", str(len(answer.body))),
            ]
        if self._closing:
            headers.append(("Connection", "close"))
        events: list[h11.Event] = [h11.Response(status_code=answer.status, headers=headers)]
        if answer.body and with_body:
            events.append(h11.Data(data=answer.body))
        self._write(*events, h11.EndOfMessage())

    def _write(self, *events: h11.Event) -> None:
        """Send events in one write, so in one packet where they fit; a large body is sent as it
        is.
        """
        parts = [self._h11.send(event) or b"" for event in events]
        if sum(map(len, parts)) <= _JOINED_BYTES_MAX:
            self.transport.write(b"".join(parts))
        else:
            self.transport.writelines(parts)


def _parameters(query: str) -> dict[str, str]:
    """Return the parameters of a query. One that is repeated is a list with commas."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _taken(request: h11.Request, peer: str) -> HttpRequest:
    path, _, query = request.target.decode("latin-1").partition("?")
    # Split first, decode second: "%2F" inside a topic's name is not a separator.
    raw = path.split("/")[1:]
    if raw and raw[-1] == "":
        raw.pop()
    segments = tuple(unquote(segment) for segment in raw)
    return HttpRequest(
        method=request.method.decode("ascii"),
        path="/" + "/".join(segments),
        query=_parameters(query),
        headers={
            name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers
        },
        body=b"",
        segments=segments,
        peer=peer,
    )


def _refusal(status: int, reason: str) -> HttpResponse:
    return HttpResponse(status, json.dumps({"reason": reason}).encode())
