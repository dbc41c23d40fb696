"""The HTTP ports of a server without an admin API, plain and with TLS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.addresses import plain_address
from pulsarish.runtime.network.tls_options import HasTlsOptions, tls_of_server
from pulsarish.runtime.seams import (
    Connections,
    HttpHandler,
    HttpRequest,
    HttpResponse,
    Listener,
)
from pulsarish.security.metrics_tokens import MetricsTokens

__all__ = ["WatchPorts"]

_log: Final = get_logger("metrics")


class _HasWatchPorts(HasTlsOptions, Protocol):
    @property
    def http_address(self) -> str: ...

    @property
    def http_address_tls(self) -> str: ...

    @property
    def metrics_token_file(self) -> str: ...


class WatchPorts:
    """The HTTP ports of a process: the plain one, that with TLS, both or none.

    Args:
        wall_ms: the time, in milliseconds since the epoch.
    """

    def __init__(
        self, connections: Connections, config: _HasWatchPorts, wall_ms: Callable[[], int]
    ) -> None:
        self.address = self.address_tls = ""
        """``host:port`` of the port without and with TLS once it is open; empty: there is none."""
        self._connections = connections
        self._config = config
        self._wall_ms = wall_ms
        self._listeners: list[Listener] = []

    async def open(self, handle: HttpHandler) -> None:
        """Begin to listen.

        Raises ``OSError`` (a port in use), ``ConfigError`` (a certificate or a token that cannot be
        used).
        """
        config = self._config
        if config.metrics_token_file:
            handle = _for_bearers(
                MetricsTokens(
                    config.metrics_token_file,
                    self._wall_ms,
                    lambda problem: _log.error("changed tokens are not used", reason=problem),
                ),
                handle,
            )
        if config.http_address:
            plain = await self._connections.serve_http(config.http_address, handle)
            self._listeners.append(plain)
            self.address = plain.address
        if config.http_address_tls:
            tls = tls_of_server(config)
            secure = await self._connections.serve_http(config.http_address_tls, handle, tls=tls)
            self._listeners.append(secure)
            self.address_tls = plain_address(secure.address)

    async def stop(self, grace_seconds: float) -> None:
        """End idle connections at once, and those with a request within the grace."""
        for listener in self._listeners:
            await listener.stop(grace_seconds)

    def ready_words(self) -> str:
        """Return what a ready line says of the ports, after a space; empty without ports."""
        found = {"http": self.address, "https": self.address_tls}
        return "".join(f" {scheme}={address}" for scheme, address in found.items() if address)


def _for_bearers(tokens: MetricsTokens, handle: HttpHandler) -> HttpHandler:
    """Return a handler that answers everything but health to requests with a token only."""

    async def answer(request: HttpRequest) -> HttpResponse:
        is_open = request.path.strip("/") == "health"
        if is_open or tokens.accept(request.headers.get("authorization", "")):
            return await handle(request)
        reason = b'{"reason": "a token of metrics_token_file is needed: Authorization: Bearer"}'
        return HttpResponse(401, reason, headers={"WWW-Authenticate": "Bearer"})

    return answer
