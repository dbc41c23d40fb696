"""The production network of a process: gRPC and the framed transport, chosen by the address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from pulsarish.runtime.framed.framed_connections import FramedConnections
from pulsarish.runtime.grpc.connections import GrpcConnections
from pulsarish.runtime.network.addresses import host_of
from pulsarish.runtime.network.dialing import Dialer
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.seams import FRAMED, Stream, StreamBroken, Tasks
from pulsarish.security.credentials import CredentialsSource, no_credentials
from pulsarish.security.tls import TlsClientConfig

if TYPE_CHECKING:
    from pulsarish.runtime.grpc.grpclib_connections import GrpclibConnections

__all__ = ["NodeConnections", "RoutedConnections"]


class RoutedConnections:
    """The network of a client. Made and used in one event loop.

    Args:
        grpc: for addresses of gRPC.
        credentials: what this end shows to the processes that it connects to.
        dialer: makes the connections of the framed transport.
    """

    def __init__(
        self,
        grpc: GrpcConnections | GrpclibConnections,
        *,
        tasks: Tasks,
        limits: ConnectionLimits | None = None,
        credentials: CredentialsSource = no_credentials,
        dialer: Dialer | None = None,
    ) -> None:
        self._grpc = grpc
        self.credentials_now = grpc.credentials_now
        self._close_grpc = grpc.close
        limits = limits or ConnectionLimits()
        self._dialer = dialer or Dialer(None, limits)
        self._framed = FramedConnections(
            tasks=tasks,
            limits=limits,
            dialer=self._dialer,
            credentials=credentials,
        )

    async def open(self, address: str, method: str, *, lane: str = "") -> Stream:
        if address.startswith(FRAMED):
            self._check_no_proxy(address)
            # Every stream has a connection of its own, so lanes never wait for each other.
            return await self._framed.open(address, method)
        return await self._grpc.open(address, method, lane=lane)

    async def call(
        self, address: str, method: str, request: bytes, *, timeout_seconds: float
    ) -> bytes:
        if address.startswith(FRAMED):
            self._check_no_proxy(address)
            return await self._framed.call(
                address, method, request, timeout_seconds=timeout_seconds
            )
        return await self._grpc.call(address, method, request, timeout_seconds=timeout_seconds)

    async def open_bytes(
        self, address: str, factory: Callable[[], asyncio.Protocol]
    ) -> asyncio.Protocol:
        return await self._dialer.connect_through(address, factory)

    def _check_no_proxy(self, address: str) -> None:
        """Raise ``StreamBroken`` where this host is reached by a proxy.

        gRPC passes it by CONNECT; frames do not, and the host may not be reachable past it.
        """
        if self._dialer.proxy_for(address) is not None:
            raise StreamBroken(
                f"{host_of(address)} is reached by a proxy, which frames do not pass"
            )

    async def close(self) -> None:
        """Close every listener and connection at once; open streams and calls break."""
        await self._framed.close()
        await self._close_grpc()


class NodeConnections(RoutedConnections):
    """The production ``Connections``.

    Raises ``ConfigError`` for certificate files that cannot be used.

    Args:
        tls: for addresses with TLS. A node checks its peers in full.
    """

    def __init__(
        self,
        *,
        tasks: Tasks,
        limits: ConnectionLimits | None = None,
        credentials: CredentialsSource = no_credentials,
        tls: TlsClientConfig | None = None,
    ) -> None:
        assert tls is None or tls.is_strict, "gRPC's C core checks every server in full"
        limits = limits or ConnectionLimits()
        dialer = Dialer(tls, limits)
        grpc = GrpcConnections(tasks=tasks, limits=limits, credentials=credentials, dialer=dialer)
        super().__init__(grpc, tasks=tasks, limits=limits, credentials=credentials, dialer=dialer)
        self.serve = grpc.serve
        self.serve_framed = self._framed.serve
        self.serve_bytes = grpc.serve_bytes
        self.serve_http = grpc.serve_http
        self._open_bytes = grpc.open_bytes

    async def open_bytes(
        self, address: str, factory: Callable[[], asyncio.Protocol]
    ) -> asyncio.Protocol:
        # Without a proxy of the environment: servers reach each other directly.
        return await self._open_bytes(address, factory)
