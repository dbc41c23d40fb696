"""What every end of a stream or call needs, with any transport: limits, addresses, paths, waits.

Imports no gRPC.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pulsarish.runtime.network.addresses import plain_address, split_address
from pulsarish.runtime.seams import Buffer, NotSpoken, StreamBroken, Unreachable
from pulsarish.security.tls import tls_reason

__all__ = [
    "AUTH_DATA",
    "AUTH_METHOD",
    "CALL_LANE",
    "FINISHED",
    "HTTP2",
    "ConnectionLimits",
    "Waits",
    "cannot_listen",
    "connect_error",
    "joined",
    "method_path",
    "no_handshake",
    "unresolved",
]

T = TypeVar("T")

CALL_LANE = "call"
# Names of gRPC metadata; the value of a name that ends in "-bin" is bytes.
AUTH_METHOD = "pulsarish-auth-method"
AUTH_DATA = "pulsarish-auth-data-bin"
HTTP2 = "h2"
"""The protocol of gRPC, as TLS names it."""
_SERVICE = "/pulsarish."
_PROBE_SECONDS = 2.0

# Means "the client has finished". gRPC's own end of stream looks the same on the server whether the
# client finished or vanished. No protobuf message begins with this byte: it would be a field of
# wire type 7, which does not exist.
FINISHED = b"\xffpulsarish: finished"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a process's network."""

    connect_timeout_seconds: float = 3.0
    """Time to make a connection, and again for the peer to accept a stream."""
    message_bytes_max: int = 64 << 20
    """Limit of a message in either direction; a larger one breaks its stream."""
    idle_channels_max: int = 64
    """Connections that stay open without a stream or call; the one that was idle the longest is
    closed first.
    """
    streams_per_connection_max: int = 1_000
    """Streams and calls that one connection may have open on a server; more wait until one ends."""
    handshake_timeout_seconds: float = 10.0
    """Time for a peer to begin on a new connection of a server; with TLS, first for the handshake,
    and then again.
    """
    connection_idle_seconds: float = 600.0
    """A server closes a connection that had no stream or call for this long."""
    unread_answers_bytes_max: int = 64 << 20
    """Answers to calls that callers have not received yet.

    Beyond it the server disconnects the caller that has waited the longest.
    """
    partial_input_bytes_max: int = 128 << 20
    """Bytes of framed messages that are not whole yet, of all connections.

    Beyond it the server ends the connection whose message has been incomplete for the longest.
    """
    untaken_bytes_max: int = 256 << 20
    """Framed messages that were received and wait for the handlers of their streams.

    Beyond it the connection that has had some for the longest is ended.
    """


class Waits:
    """Lets ``abort`` end a wait inside gRPC. The waiter sees only ``StreamBroken``."""

    __slots__ = ("_tasks", "broken")

    def __init__(self) -> None:
        self.broken: str | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    def end(self, reason: str) -> bool:
        """Break the stream; pending waits raise. Return whether this was the first call."""
        if self.broken is not None:
            return False
        self.broken = reason
        for task in self._tasks:
            task.cancel()
        return True

    def check(self) -> None:
        if self.broken is not None:
            raise StreamBroken(self.broken)

    async def on(self, work: Awaitable[T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        try:
            return await work
        except asyncio.CancelledError:
            if self.broken is None:
                if task.cancelling() > 0:
                    raise
                # gRPC raises this when the call had ended.
                raise StreamBroken("the call has ended") from None
            # ``end`` cancelled this task. A cancellation by another task at the same time still
            # counts.
            if task.cancelling() > 0 and task.uncancel() > 0:
                raise
            raise StreamBroken(self.broken) from None
        finally:
            self._tasks.remove(task)


def joined(parts: Sequence[Buffer]) -> bytes:
    if len(parts) == 1 and type(parts[0]) is bytes:
        return parts[0]
    return b"".join(parts)


def method_path(method: str) -> str:
    """``bookie.add`` is ``/pulsarish.bookie/add`` on the wire."""
    service, _, name = method.partition(".")
    return f"{_SERVICE}{service}/{name}"


async def connect_error(address: str, tls: ssl.SSLContext | None = None) -> StreamBroken:
    """Return why a connection could not be made.

    Tries to connect: gRPC has only one error for it, and the difference moves topics. A peer that
    takes the connection and ends it later is no ``Unreachable``: its process is there, whether it
    speaks TLS or not.

    Args:
        tls: for a handshake, with an address that uses TLS.
    """
    loop = asyncio.get_running_loop()
    host, port = split_address(address)
    try:
        found = await loop.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except OSError as error:
        return unresolved(plain_address(address), error)
    for family, kind, protocol, _, target in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setblocking(False)
            try:
                async with asyncio.timeout(1.0):
                    await loop.sock_connect(probe, target)
            except (ConnectionRefusedError, ConnectionResetError):
                continue
            except (OSError, TimeoutError) as error:
                return StreamBroken(f"{address} cannot be reached: {error}")
            if tls is not None:
                return await _tls_error(address, tls, probe.dup())
            return NotSpoken(
                f"{address} takes connections but does not speak the protocol; perhaps it speaks "
                "TLS, or something else"
            )
    return Unreachable(f"no process listens at {plain_address(address)}")


async def _tls_error(address: str, tls: ssl.SSLContext, connected: socket.socket) -> StreamBroken:
    """Return why a TLS handshake failed, after another one on this connection."""
    loop = asyncio.get_running_loop()
    host, _ = split_address(address)
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            transport, _ = await loop.create_connection(
                asyncio.Protocol, sock=connected, ssl=tls, server_hostname=host.strip("[]")
            )
    except ssl.SSLError as error:
        return StreamBroken(f"{address}: {tls_reason(error)}")
    except (ConnectionError, TimeoutError) as error:
        return no_handshake(address, error)
    except OSError as error:
        return StreamBroken(f"{plain_address(address)} cannot be reached: {error}")
    transport.abort()
    return StreamBroken(
        f"{address} speaks TLS but not the protocol, or it refuses this client's certificate"
    )


def no_handshake(address: str, error: OSError) -> StreamBroken:
    """Return the error for a peer that takes connections and ends the handshake of TLS, or does not
    answer it.
    """
    why = str(error) or ("not in time" if isinstance(error, TimeoutError) else "it ends it")
    return StreamBroken(
        f"{plain_address(address)} takes connections but does not complete a TLS handshake "
        f"({why}): if that port has no TLS, use a URL that begins without +ssl, or with http://"
    )


def unresolved(name: str, error: OSError) -> StreamBroken:
    """Return the error for a host that DNS does not know."""
    return StreamBroken(
        f"the host name of {name} cannot be resolved ({error.strerror or error}): correct it, or "
        "its entry in DNS"
    )


def cannot_listen(address: str, error: OSError) -> OSError:
    """Return the error for an address that cannot be listened on, with its reason."""
    reason = (
        "the address is in use by another process"
        if error.errno == errno.EADDRINUSE
        else error.strerror or str(error)
    )
    return OSError(error.errno, f"cannot listen on {address}: {reason}")
