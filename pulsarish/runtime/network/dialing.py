"""Make connections of asyncio to peers, with or without TLS as their addresses say."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import SplitResult, urlsplit

from pulsarish.runtime.network.addresses import host_of, is_tls, plain_address, split_address
from pulsarish.runtime.network.endpoints import (
    ConnectionLimits,
    connect_error,
    no_handshake,
    unresolved,
)
from pulsarish.runtime.network.http_tunnel import open_tunnel, proxy_for
from pulsarish.runtime.network.listening import TLS_SHUTDOWN_SECONDS
from pulsarish.runtime.network.tls_contexts import ClientTls
from pulsarish.runtime.seams import StreamBroken, Unreachable
from pulsarish.security.tls import TlsClientConfig, tls_reason

__all__ = ["Dialer"]

P = TypeVar("P", bound=asyncio.BaseProtocol)

_NO_OPTIONS: Final = TlsClientConfig()


class Dialer:
    """Makes a client's connections.

    Raises ``ConfigError`` for certificate files that cannot be used.

    Args:
        tls: for addresses with TLS; without it, servers are checked with the system's authorities.
        tunnel: ``host:port`` of the proxy that all connections pass by CONNECT of HTTP, in place
            of one that the environment names; empty: none.
    """

    def __init__(
        self, tls: TlsClientConfig | None, limits: ConnectionLimits, *, tunnel: str = ""
    ) -> None:
        self.tunnel = f"http://{tunnel}" if tunnel else ""
        """The URL of the proxy."""
        self.tls_config = tls or _NO_OPTIONS
        self._limits = limits
        self._tls = None if tls is None else ClientTls(tls)

    @property
    def tls(self) -> ClientTls:
        """The files of this client."""
        if self._tls is None:
            self._tls = ClientTls(self.tls_config)
        return self._tls

    def check(self, address: str) -> None:
        """Raise ``StreamBroken`` for an address without TLS, where TLS is required."""
        if self.tls_config.is_required and not is_tls(address):
            raise StreamBroken(
                f"{address} is an address without TLS, which this client requires; let the server "
                "advertise one with TLS"
            )

    async def connect(
        self,
        address: str,
        factory: Callable[[], P],
        *,
        protocols: tuple[str, ...] = (),
        tunnel: socket.socket | None = None,
    ) -> P:
        """Return the protocol of a new connection.

        Raises ``OSError`` when the peer is not reached, and ``StreamBroken`` when TLS failed.

        Args:
            protocols: the application protocols that the client speaks, as TLS names them.
            tunnel: is connected to the address already.
        """
        self.check(address)
        host, port = split_address(address)
        host = host.strip("[]")
        loop = asyncio.get_running_loop()
        if not is_tls(address):
            if tunnel is not None:
                return (await loop.create_connection(factory, sock=tunnel))[1]
            return (await loop.create_connection(factory, host, port))[1]
        where: dict[str, object] = (
            {"host": host, "port": port} if tunnel is None else {"sock": tunnel}
        )
        try:
            _, protocol = await loop.create_connection(  # type: ignore[call-overload]
                factory,
                **where,
                ssl=self.tls.context(*protocols),
                server_hostname=host,
                ssl_handshake_timeout=self._limits.handshake_timeout_seconds,
                ssl_shutdown_timeout=TLS_SHUTDOWN_SECONDS,
            )
        except ssl.SSLError as error:
            raise StreamBroken(f"{address}: {tls_reason(error)}") from error
        return protocol  # type: ignore[no-any-return]

    def proxy_for(self, address: str) -> SplitResult | None:
        """Return the proxy for this address; ``None``: connect directly."""
        return urlsplit(self.tunnel) if self.tunnel else proxy_for(host_of(address).strip("[]"))

    async def connect_through(self, address: str, factory: Callable[[], P]) -> P:
        """Return the protocol of a new connection, made by the proxy where there is one.

        Raises ``Unreachable`` when no process listens, ``StreamBroken`` with the reason, also when
        the proxy refuses.
        """
        self.check(address)  # before a proxy connects to it
        proxy = self.proxy_for(address)
        tunnel = None if proxy is None else await _tunnel_to(address, proxy)
        try:
            return await self.connect(address, factory, tunnel=tunnel)
        except ConnectionRefusedError as error:
            raise Unreachable(f"{plain_address(address)}: no process listens there") from error
        except socket.gaierror as error:
            raise unresolved(plain_address(address), error) from error
        except OSError as error:
            if is_tls(address) and isinstance(error, ConnectionError):
                raise no_handshake(address, error) from error
            raise StreamBroken(f"{plain_address(address)} cannot be reached: {error}") from error

    async def failure(self, address: str, *protocols: str) -> StreamBroken:
        """Return why a connection could not be made. Connects again to find out."""
        proxy = self.proxy_for(address)
        if proxy is not None:
            return await _tunnel_failure(address, proxy)
        context = self.tls.context(*protocols) if is_tls(address) else None
        return await connect_error(address, context)


async def _tunnel_to(address: str, proxy: SplitResult) -> socket.socket:
    """Return a socket that the proxy has connected to an address.

    Raises ``StreamBroken``, which names the proxy: nothing is known of the process at the address.
    """
    at = f"{proxy.hostname}:{proxy.port}" if proxy.port else str(proxy.hostname)
    try:
        return await open_tunnel(proxy, plain_address(address))
    except socket.gaierror as error:
        raise unresolved(f"the proxy {at}", error) from error
    except OSError as error:
        why = "no process listens there" if isinstance(error, ConnectionRefusedError) else error
        raise StreamBroken(
            f"{plain_address(address)} cannot be reached through the proxy {at}: {why}"
        ) from error


async def _tunnel_failure(address: str, proxy: SplitResult) -> StreamBroken:
    try:
        (await _tunnel_to(address, proxy)).close()
    except StreamBroken as failure:
        return failure
    return StreamBroken(
        f"{plain_address(address)} does not speak the protocol, reached through the proxy "
        f"{proxy.hostname}"
    )
