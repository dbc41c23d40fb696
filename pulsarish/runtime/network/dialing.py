"""Make connections of asyncio to peers, with or without TLS as their addresses say."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar

from pulsarish.runtime.network.addresses import is_tls, split_address
from pulsarish.runtime.network.endpoints import ConnectionLimits, connect_error
from pulsarish.runtime.network.listening import TLS_SHUTDOWN_SECONDS
from pulsarish.runtime.network.tls_contexts import ClientTls
from pulsarish.runtime.seams import StreamBroken
from pulsarish.security.tls import TlsClientConfig, tls_reason

__all__ = ["Dialer"]

P = TypeVar("P", bound=asyncio.BaseProtocol)

_NO_OPTIONS: Final = TlsClientConfig()


class Dialer:
    """Makes a client's connections.

    Raises ``ConfigError`` for certificate files that cannot be used.

    Args:
        tls: for addresses with TLS; without it, servers are checked with the system's authorities.
    """

    def __init__(self, tls: TlsClientConfig | None, limits: ConnectionLimits) -> None:
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

    async def failure(self, address: str, *protocols: str) -> StreamBroken:
        """Return why a connection could not be made. Connects again to find out."""
        context = self.tls.context(*protocols) if is_tls(address) else None
        return await connect_error(address, context)
