"""The HTTP face's server: h11 parses and frames, a protocol of asyncio's carries.

It turns requests into ``HttpRequest`` and ``HttpResponse`` back, and does nothing else: routes, permissions and JSON belong to the node.
A whole web framework would cost each process 13 MB and a third of its start.
"""

from __future__ import annotations

import asyncio
import json
import time
from email.utils import formatdate
from typing import Final, cast
from urllib.parse import parse_qsl, unquote

import h11

from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import HttpHandler, HttpRequest, HttpResponse, Listener, Tasks

__all__ = ["serve_http"]

_log = get_logger("http")

IDLE_SECONDS: Final = 75.0
"""A connection without a request for this long is closed."""
SLOW_REQUEST_SECONDS: Final = 3.0
"""A request whose answer took longer is logged."""
HEAD_BYTES_MAX: Final = 16 << 10
"""A request whose first line and headers are longer is answered with 431."""
CONNECTIONS_MAX: Final = 1_000
"""Connections beyond this are closed at once."""
_NO_CONTENT: Final = 204


async def serve_http(host: str, port: int, handler: HttpHandler, *, tasks: Tasks, body_bytes_max: int) -> Listener:
    """Listen on ``host:port``. An exception of ``handler`` is logged and answered with 500. Raises ``OSError``."""
    listener = _HttpListener(handler, tasks, body_bytes_max)
    listening = await asyncio.get_running_loop().create_server(lambda: _HttpConnection(listener), host.strip("[]"), port)
    listener.listening = listening
    listener.address = f"{host}:{listening.sockets[0].getsockname()[1]}"
    return listener


class _HttpListener:
    address: str
    listening: asyncio.AbstractServer

    def __init__(self, handler: HttpHandler, tasks: Tasks, body_bytes_max: int) -> None:
        self.handler = handler
        self.tasks = tasks
        self.body_bytes_max = body_bytes_max
        self.stopping = False
        # By a running number: closing goes in the order of opening.
        self.connections: dict[int, _HttpConnection] = {}
        self.numbers = 0
        self._empty: asyncio.Future[None] | None = None

    def closed(self, number: int) -> None:
        """A connection has gone."""
        self.connections.pop(number, None)
        if not self.connections and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    async def stop(self, grace_seconds: float) -> None:
        """Idle connections end at once, running requests within the grace."""
        self.listening.close()
        self.stopping = True
        for connection in list(self.connections.values()):
            connection.close_if_idle()
        if self.connections:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=grace_seconds)
        for connection in list(self.connections.values()):
            connection.transport.abort()


class _HttpConnection(asyncio.Protocol):
    """One connection: a request at a time; while one is being handled the socket is not read."""

    transport: asyncio.Transport

    def __init__(self, listener: _HttpListener) -> None:
        self._listener = listener
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._request: h11.Request | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._busy = False
        self._number = -1
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's own class is none of asyncio's
        if self._listener.stopping or len(self._listener.connections) >= CONNECTIONS_MAX:
            transport.close()
            return
        self._number = self._listener.numbers
        self._listener.numbers += 1
        self._listener.connections[self._number] = self
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.closed(self._number)
        if self._idle is not None:
            self._idle.cancel()

    def close_if_idle(self) -> None:
        if not self._busy:
            self.transport.close()

    def _wait_for_request(self) -> None:
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.transport.close)

    def data_received(self, data: bytes) -> None:
        self._h11.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        self._h11.receive_data(b"")
        self._advance()
        return self._busy  # keep our side open for an answer that is being made

    def _advance(self) -> None:
        """Take what has come, until a request is whole or more is needed."""
        try:
            while not self._busy:
                event = self._h11.next_event()
                match event:
                    case h11.Request():
                        self._request, self._body, self._body_bytes = event, [], 0
                        # h11 looks at what is incomplete only; a long head may have come at once.
                        if len(event.target) + sum(len(name) + len(value) for name, value in event.headers) > HEAD_BYTES_MAX:
                            self._refuse(431, f"the first line and the headers are longer than {HEAD_BYTES_MAX} bytes")
                            return
                        if self._h11.they_are_waiting_for_100_continue:
                            self._write(h11.InformationalResponse(status_code=100, headers=[]))
                    case h11.Data():
                        self._body_bytes += len(event.data)
                        if self._body_bytes > self._listener.body_bytes_max:
                            self._refuse(413, f"the request body is larger than {self._listener.body_bytes_max} bytes")
                            return
                        self._body.append(bytes(event.data))
                    case h11.EndOfMessage():
                        self._begin()
                    case h11.ConnectionClosed():
                        self.transport.close()
                        return
                    case _:  # NEED_DATA, or PAUSED until this request is answered
                        return
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, f"this is no HTTP/1.1 request: {error}")

    def _begin(self) -> None:
        assert self._request is not None
        if self._idle is not None:
            self._idle.cancel()
        self._busy = True
        self.transport.pause_reading()
        request = _taken(self._request, b"".join(self._body))
        _ = self._listener.tasks.spawn(self._handle(request), name="http-request")

    async def _handle(self, request: HttpRequest) -> None:
        began = time.perf_counter()
        try:
            answer = await self._listener.handler(request)
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets an answer and the log a traceback
            _log.error("http handler failed", exception=error, method=request.method, path=request.path)
            answer = _refusal(500, f"{type(error).__name__}: {error}")
        took_seconds = time.perf_counter() - began
        if took_seconds >= SLOW_REQUEST_SECONDS:
            _log.warning("slow request", method=request.method, path=request.path, status=answer.status, took_ms=round(took_seconds * 1000))
        if self.transport.is_closing():
            return
        self._answer(answer, close=self._listener.stopping)
        self._busy = False
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
            self.transport.resume_reading()
            self._wait_for_request()
            self._advance()
        else:
            self.transport.close()

    def _refuse(self, status: int, reason: str) -> None:
        """Answer what cannot be read on, and close."""
        if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._answer(_refusal(status, reason), close=True)
        self.transport.close()

    def _answer(self, answer: HttpResponse, *, close: bool) -> None:
        headers = [("Date", formatdate(usegmt=True)), *answer.headers.items()]  # RFC 9110, 6.6.1
        if answer.status != _NO_CONTENT:
            headers += [("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body)))]
        if close:
            headers.append(("Connection", "close"))
        events: list[h11.Event] = [h11.Response(status_code=answer.status, headers=headers)]
        if answer.body and (self._request is None or self._request.method != b"HEAD"):
            events.append(h11.Data(data=answer.body))
        self._write(*events, h11.EndOfMessage())

    def _write(self, *events: h11.Event) -> None:
        """One write, so one packet where it fits, for all of an answer."""
        self.transport.write(b"".join(self._h11.send(event) or b"" for event in events))


def _taken(request: h11.Request, body: bytes) -> HttpRequest:
    path, _, query = request.target.decode("latin-1").partition("?")
    # Split first, decode second: "%2F" inside a topic's name is not a separator.
    raw = path.split("/")[1:]
    if raw and raw[-1] == "":
        raw.pop()
    segments = tuple(unquote(segment) for segment in raw)
    return HttpRequest(
        method=request.method.decode("ascii"),
        path="/" + "/".join(segments),
        query=dict(parse_qsl(query, keep_blank_values=True)),
        headers={name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers},
        body=body,
        segments=segments,
    )


def _refusal(status: int, reason: str) -> HttpResponse:
    return HttpResponse(status, json.dumps({"reason": reason}).encode())
