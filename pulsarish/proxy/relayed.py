"""A client's connection that is passed on to a broker, byte for byte.

All listeners of the proxy share this code.

Memory is bounded whatever a client does: a connection must begin in time, and each end is read no
faster than the other one receives. The bytes that wait in between are counted. When all connections
together hold too many bytes, one whose input waits, or that does not receive, is closed
(``runtime/peer_limits.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final, Protocol, cast

from pulsarish.model.errors import ServiceNotReady
from pulsarish.proxy.brokers import KnownBrokers
from pulsarish.proxy.config import ProxyConfig
from pulsarish.runtime.contained_protocol import ContainedProtocol
from pulsarish.runtime.containment import contained
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.listening import pause_at_every_byte
from pulsarish.runtime.peer_limits import PeerLimits
from pulsarish.runtime.seams import StreamBroken, Tasks, World

__all__ = ["Counts", "RelayedConnection"]

_log = get_logger("proxy.connections")

# a client that does not receive the last answer of a closed connection is disconnected after this
_FLUSH_SECONDS: Final = 15.0


class Counts(Protocol):
    """The proxy, which counts connections."""

    limits: PeerLimits

    def connect_port(self) -> int:
        """Return the port where CONNECT of HTTP is served without TLS.

        Raises ``NotAllowedError`` when there is none.
        """
        ...

    def opened(self, connection: RelayedConnection) -> None: ...

    def ended(self, connection: RelayedConnection) -> None: ...

    def relayed(self, size_bytes: int) -> None: ...


class _BrokerEnd(ContainedProtocol):
    def __init__(self, tasks: Tasks, client: RelayedConnection, greeting: bytes) -> None:
        super().__init__(tasks)
        self.transport: asyncio.Transport | None = None
        self._client = client
        self._greeting = greeting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        pause_at_every_byte(self.transport)  # all that wait are counted
        self._client.write(self._greeting)

    def data_received(self, data: bytes) -> None:
        self._client.to_client(data)

    def pause_writing(self) -> None:
        assert self.transport is not None
        self._client.input_waits(self.transport.get_write_buffer_size())
        self._client.read(wanted=False)

    def resume_writing(self) -> None:
        self._client.input_waits(0)
        self._client.read(wanted=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._client.close()


class RelayedConnection(ContainedProtocol):
    """A connection that can be passed on to a broker.

    Until ``hold`` the client's bytes go to ``received``; after ``pass_on`` they go to the broker.
    Each end is read no faster than the other one receives.
    """

    def __init__(
        self, world: World, config: ProxyConfig, brokers: KnownBrokers, counts: Counts
    ) -> None:
        super().__init__(world.tasks)
        self.peer = ""
        self.has_tls = False
        self._world = world
        self._config = config
        self._brokers = brokers
        self._counts = counts
        self._transport: asyncio.Transport | None = None
        self._broker: _BrokerEnd | None = None
        self._held: list[bytes] | None = None  # received while the connection to the broker is made
        self._admitted = False
        self._started = False
        self._watches: dict[asyncio.Task[None], None] = {}
        self._reading = True
        self._unsent = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # None: the client was gone again before it was accepted.
        host, port = (transport.get_extra_info("peername") or ("unknown", 0))[:2]
        self.peer = f"{host}:{port}"
        self.has_tls = transport.get_extra_info("ssl_object") is not None
        refused = self._counts.limits.slots.take(self, str(host))
        if refused:
            _log.warning("connection refused", peer=self.peer, reason=refused)
            self._transport.abort()
            return
        self._admitted = True
        pause_at_every_byte(self._transport)  # all that wait are counted
        self._world = contained(self._world, self.scope)
        self._counts.opened(self)
        self.watch(self._end_unless_started(), "start")
        self.begun()

    def begun(self) -> None:
        """Begin to serve the connection: it has a slot."""

    def started(self) -> None:
        """Note that the client has sent its request: the connection does not make room for new ones
        any more.
        """
        self._started = True
        self._counts.limits.slots.mark_active(self)

    def watch(self, work: Coroutine[object, object, None], what: str) -> None:
        """Start a task that ends with the connection, because tasks of closed connections would
        fill the memory.
        """
        task = self._world.tasks.spawn(work, name=f"{what} {self.peer}")
        self._watches[task] = None
        task.add_done_callback(lambda done: self._watches.pop(done, None))

    async def _end_unless_started(self) -> None:
        seconds = self._config.connect_timeout_seconds
        await self._world.clock.sleep(seconds)
        if not self._started:
            self.abort(f"no CONNECT was received in {seconds:g} s")

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._admitted:
            return
        for each in list(self._watches):
            each.cancel()
        limits = self._counts.limits
        limits.slots.leave(self)
        self.input_waits(0)
        limits.unsent.set(self, 0)
        self._counts.ended(self)
        if self._broker is not None and self._broker.transport is not None:
            self._broker.transport.close()

    def pause_writing(self) -> None:
        self._unsent = True
        self._note_unsent()
        self._take_in(wanted=False)

    def resume_writing(self) -> None:
        self._unsent = False
        self._counts.limits.unsent.set(self, 0)
        self._take_in(wanted=True)

    def _note_unsent(self) -> None:
        if self._transport is not None:
            self._counts.limits.unsent.set(self, self._transport.get_write_buffer_size())

    def input_waits(self, size_bytes: int) -> None:
        """Count what was received and waits: incomplete, for an answer, or for the broker to
        receive it.
        """
        if self._transport is not None or not size_bytes:
            self._counts.limits.partial_input.set(self, size_bytes)

    def pace(self) -> None:
        """Read on from a client that is not passed on, or pause."""
        self.read(wanted=not self._unsent and self._held is None)

    def _take_in(self, *, wanted: bool) -> None:
        """Read on or pause at the end whose bytes go to the client."""
        end = self._broker
        if end is None:
            self.pace()
        elif end.transport is not None and not end.transport.is_closing():
            (end.transport.resume_reading if wanted else end.transport.pause_reading)()

    def data_received(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
            self.input_waits(sum(map(len, self._held)))
        elif self._broker is None:
            self.received(data)
        elif self._broker.transport is not None:
            self._counts.relayed(len(data))
            self._broker.transport.write(data)

    def to_client(self, data: bytes) -> None:
        self._counts.relayed(len(data))
        self.write(data)

    def write(self, data: bytes) -> None:
        # uvloop's transports refuse writes after an abort.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            if self._unsent:
                self._note_unsent()

    def read(self, *, wanted: bool) -> None:
        """Read on from the client, or pause."""
        if (
            self._transport is not None
            and not self._transport.is_closing()
            and wanted != self._reading
        ):
            self._reading = wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    def close(self) -> None:
        """Close after the written bytes are sent; a client that does not receive them is
        disconnected.
        """
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.close()
            if transport.get_write_buffer_size():
                self.watch(self._end_unless_flushed(), "flush")

    async def _end_unless_flushed(self) -> None:
        await self._world.clock.sleep(_FLUSH_SECONDS)
        if self._transport is not None:
            self._transport.abort()

    def abort(self, reason: str) -> None:
        """Close at once."""
        if self._transport is not None:
            if not self._transport.is_closing():
                _log.warning("connection closed", peer=self.peer, reason=reason)
            self._transport.abort()

    def hold(self, first: bytes) -> None:
        """Keep ``first``, and later bytes, for the broker that ``pass_on`` will connect to.

        Do not read further until then.
        """
        self._held = [first]
        self.input_waits(len(first))
        self.pace()

    @property
    def alive(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def pass_on(self, address: str, *, greeting: bytes = b"") -> None:
        """Connect to a broker, and send it the kept bytes.

        The client gets ``greeting`` before any byte of the broker.

        ``address`` must be one that ``KnownBrokers`` allows. Raises ``ServiceNotReady``.
        """
        end = _BrokerEnd(self._world.tasks, self, greeting)
        try:
            async with self._world.clock.timeout(self._config.broker_connect_timeout_seconds):
                await self._world.connections.open_bytes(address, lambda: end)
        except (StreamBroken, TimeoutError) as error:
            raise ServiceNotReady(
                f"broker {address} is unavailable: {error or 'no connection in time'}"
            ) from None
        if end.transport is None or not self.alive:
            if end.transport is not None:
                end.transport.abort()
            return
        held, self._held = self._held or [], None
        self._broker = end
        self.input_waits(0)
        self.read(wanted=True)
        end.transport.write(b"".join(held))
