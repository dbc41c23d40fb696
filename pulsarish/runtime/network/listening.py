"""Listen for connections of asyncio, with or without TLS.

With TLS a connection reaches its protocol only after the handshake. Until then its client is
unknown and may be silent, so handshakes are limited in time and number
(``runtime/peer_limits.py``), and asyncio's own server, which does not count them, is not used.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from pulsarish.runtime.descriptors import connections_limit
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.addresses import split_address
from pulsarish.runtime.network.endpoints import ConnectionLimits, cannot_listen
from pulsarish.runtime.network.tls_contexts import ServerTls
from pulsarish.runtime.peer_limits import ConnectionSlots
from pulsarish.runtime.seams import TLS, Tasks
from pulsarish.security.tls import tls_reason

__all__ = ["TLS_SHUTDOWN_SECONDS", "Listening", "listen", "pause_at_every_byte"]

_log = get_logger("connections")

TLS_SHUTDOWN_SECONDS: Final = 5.0
"""How long the end of a connection waits for the peer's word that it has received everything."""
_HANDSHAKES_MAX: Final = 2_000
_BACKLOG: Final = 1_024
_ACCEPT_RETRY_SECONDS: Final = 0.5
_Factory = Callable[[], asyncio.BaseProtocol]


class Listening:
    """A bound address.

    ``address`` is ``host:port``, with ``TLS`` before it when it speaks TLS.
    """

    def __init__(self, address: str, close: Callable[[], None]) -> None:
        self.address = address
        self.close = close
        """Takes no more connections. Those that are open stay."""


async def listen(
    address: str,
    factory: _Factory,
    *,
    tls: ServerTls | None,
    limits: ConnectionLimits,
    tasks: Tasks,
    is_shared: bool = False,
) -> Listening:
    """Listen on ``host:port``. ``factory`` makes the protocol of each connection.

    ``is_shared``: other processes may listen there, too, if all of them share.

    Raises ``OSError`` that names the address and the reason.
    """
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    try:
        if tls is None:
            server = await loop.create_server(factory, host.strip("[]"), port, reuse_port=is_shared)
            return Listening(f"{host}:{server.sockets[0].getsockname()[1]}", server.close)
        sockets = await _bind(host.strip("[]"), port, is_shared=is_shared)
    except OSError as error:
        raise cannot_listen(f"{host}:{port}", error) from None
    listener = _TlsListener(factory, tls, limits, tasks)
    for each in sockets:
        listener.begin(each)
    return Listening(f"{TLS}{host}:{sockets[0].getsockname()[1]}", listener.close)


def pause_at_every_byte(transport: asyncio.WriteTransport) -> None:
    """Have a protocol paused by every byte that the kernel does not take.

    With TLS, bytes that are encrypted already are not counted: at most 64 KiB.
    """
    # The transport of TLS with a limit of 0 pauses without a byte, and never goes on.
    has_tls = transport.get_extra_info("ssl_object") is not None
    transport.set_write_buffer_limits(high=1 if has_tls else 0)


async def _bind(host: str, port: int, *, is_shared: bool) -> list[socket.socket]:
    """Return a listening socket for each address of the host."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, target in dict.fromkeys(found):
            bound = socket.socket(family, kind, protocol)
            sockets.append(bound)
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind(target)
            bound.listen(_BACKLOG)
    except OSError:
        for bound in sockets:
            bound.close()
        raise
    return sockets


class _Handshake:
    """A connection whose client has not shown yet that it speaks TLS."""

    task: asyncio.Task[None]

    def abort(self, _reason: str) -> None:
        self.task.cancel()


class _TlsListener:
    def __init__(
        self, factory: _Factory, tls: ServerTls, limits: ConnectionLimits, tasks: Tasks
    ) -> None:
        self._factory = factory
        self._tls = tls
        self._seconds = limits.handshake_timeout_seconds
        self._tasks = tasks
        handshakes_max = max(min(connections_limit() // 4, _HANDSHAKES_MAX), 2)
        self._slots = ConnectionSlots(handshakes_max, handshakes_max // 2, what="TLS handshakes")
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: dict[_Handshake, None] = {}

    def begin(self, listening: socket.socket) -> None:
        self._sockets.append(listening)
        self._accepting.append(self._tasks.spawn(self._accept(listening), name="accept tls"))

    def close(self) -> None:
        for task in self._accepting:
            task.cancel()
        for listening in self._sockets:
            listening.close()
        for handshake in list(self._handshakes):
            handshake.abort("the server is stopping")

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except OSError as error:
                # Perhaps no descriptor is free. The next one may be.
                _log.warning("a connection was not accepted", reason=error)
                await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            handshake = _Handshake()
            refused = self._slots.take(handshake, str(peer[0]))
            if refused:
                _log.warning("connection refused", peer=f"{peer[0]}:{peer[1]}", reason=refused)
                connection.close()
            else:
                self._handshakes[handshake] = None
                handshake.task = self._tasks.spawn(
                    self._shake(handshake, connection, f"{peer[0]}:{peer[1]}"),
                    name=f"tls handshake {peer[0]}:{peer[1]}",
                )
            # Many that wait must not keep the loop from its other work.
            await asyncio.sleep(0)

    async def _shake(self, handshake: _Handshake, connection: socket.socket, peer: str) -> None:
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._factory,
                connection,
                ssl=self._tls.context(),
                ssl_handshake_timeout=self._seconds,
                ssl_shutdown_timeout=TLS_SHUTDOWN_SECONDS,
            )
        except ssl.SSLError as error:
            _log.warning("a TLS handshake failed", peer=peer, reason=tls_reason(error))
        except OSError as error:
            _log.info("a client left during the TLS handshake", peer=peer, reason=error)
        finally:
            del self._handshakes[handshake]
            self._slots.leave(handshake)
