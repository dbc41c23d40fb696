"""What every end of a gRPC stream or call needs, whichever library speaks gRPC: limits, addresses, paths, waits. Imports no gRPC."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pulsarish.runtime.seams import Buffer, StreamBroken, Unreachable

__all__ = ["CALL_LANE", "FINISHED", "ConnectionLimits", "Waits", "connect_error", "joined", "method_path", "split_address"]

T = TypeVar("T")

CALL_LANE = "call"
_SERVICE = "/pulsarish."

# Says "the client has finished". gRPC's own end of stream looks the same on the server whether the client finished or vanished. No
# protobuf message begins with this byte: it would be a field of wire type 7, which does not exist.
FINISHED = b"\xffpulsarish: finished"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a process's network may use."""

    connect_timeout_seconds: float = 3.0
    """For a connection to be made, and again for the peer to accept a stream."""
    message_bytes_max: int = 64 << 20
    """The greatest message in either direction; a larger one breaks its stream."""
    idle_channels_max: int = 64
    """Connections kept open without a stream or call; the longest idle is closed first."""
    streams_per_connection_max: int = 1_000
    """Streams and calls that one connection may have open on a server; more wait for one that ends."""
    handshake_timeout_seconds: float = 10.0
    """For a peer to begin HTTP/2 on a new connection of a server."""
    connection_idle_seconds: float = 600.0
    """A server closes a connection without a stream or call after this."""
    unread_answers_bytes_max: int = 64 << 20
    """Answers to calls that callers have not taken yet; beyond it the one that has waited the longest is disconnected."""


class Waits:
    """Lets ``abort`` end a wait inside gRPC without the waiter noticing more than ``StreamBroken``."""

    __slots__ = ("_tasks", "broken")

    def __init__(self) -> None:
        self.broken: str | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    def end(self, reason: str) -> bool:
        """Break, once; pending waits raise. Answers whether this was the first time."""
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
                # gRPC's way of saying that the call had ended.
                raise StreamBroken("the call has ended") from None
            # ``end`` cancelled this task; a cancellation of somebody else beside it still counts.
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


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def connect_error(address: str) -> StreamBroken:
    """Why a connection could not be made, found by trying: gRPC has only a sentence for it, and the difference moves topics."""
    loop = asyncio.get_running_loop()
    host, port = split_address(address)
    try:
        found = await loop.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except OSError as error:
        return StreamBroken(f"{address} cannot be resolved: {error}")
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
            return StreamBroken(f"{address} takes connections but does not speak gRPC")
    return Unreachable(f"nobody listens at {address}")
