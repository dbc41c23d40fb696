"""The HTTP face's server: the only place that imports aiohttp's server side.

It turns requests into ``HttpRequest`` and ``HttpResponse`` back, and does nothing else: routes, permissions and JSON belong to the node.
Imported when a node starts to serve HTTP, so that clients and the command line do not pay for it.
"""

from __future__ import annotations

import asyncio
import json
from urllib.parse import unquote

from aiohttp import web

from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import HttpHandler, HttpRequest, HttpResponse, Listener

__all__ = ["serve_http"]

_log = get_logger("http")


class _BodyTooLarge(Exception):
    pass


async def serve_http(host: str, port: int, handler: HttpHandler, *, body_bytes_max: int) -> Listener:
    """Listen on ``host:port``. An exception of ``handler`` is logged and answered with 500. Raises ``OSError``."""

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        try:
            answer = await handler(await _taken(request, body_bytes_max))
        except _BodyTooLarge:
            answer = _refusal(413, f"the request body is larger than {body_bytes_max} bytes")
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets an answer and the log a traceback
            _log.error("http handler failed", exception=error, method=request.method, path=request.path)
            answer = _refusal(500, f"{type(error).__name__}: {error}")
        headers = {"Content-Type": answer.content_type, **answer.headers}
        return web.Response(status=answer.status, body=answer.body, headers=headers)

    server = web.Server(serve, access_log=None)
    # Not aiohttp's own runner: this is all that it would do here.
    listening = await asyncio.get_running_loop().create_server(server, host.strip("[]"), port)
    return _HttpListener(f"{host}:{listening.sockets[0].getsockname()[1]}", listening, server)


class _HttpListener:
    def __init__(self, address: str, listening: asyncio.AbstractServer, server: web.Server) -> None:
        self.address = address
        self._listening = listening
        self._server = server

    async def stop(self, grace_seconds: float) -> None:
        self._listening.close()
        # Idle keep-alive connections end at once, running requests within the grace.
        self._server.pre_shutdown()
        await self._server.shutdown(grace_seconds)


async def _taken(request: web.BaseRequest, body_bytes_max: int) -> HttpRequest:
    parts: list[bytes] = []
    size_bytes = 0
    async for part in request.content.iter_any():
        size_bytes += len(part)
        if size_bytes > body_bytes_max:
            raise _BodyTooLarge
        parts.append(part)
    # Split first, decode second: "%2F" inside a topic's name is not a separator.
    raw = request.rel_url.raw_path.split("/")[1:]
    if raw and raw[-1] == "":
        raw.pop()
    segments = tuple(unquote(segment) for segment in raw)
    return HttpRequest(
        method=request.method,
        path="/" + "/".join(segments),
        query=dict(request.rel_url.query),
        headers={name.lower(): value for name, value in request.headers.items()},
        body=b"".join(parts),
        segments=segments,
    )


def _refusal(status: int, reason: str) -> HttpResponse:
    return HttpResponse(status, json.dumps({"reason": reason}).encode())
