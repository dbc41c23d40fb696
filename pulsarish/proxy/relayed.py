"""A client's connection that is passed on to a broker, byte for byte: what all faces of the proxy share."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from pulsarish.model.errors import NotAllowed, ServiceNotReady
from pulsarish.proxy.brokers import KnownBrokers
from pulsarish.proxy.config import ProxyConfig
from pulsarish.runtime.contained_protocol import ContainedProtocol
from pulsarish.runtime.containment import contained
from pulsarish.runtime.seams import StreamBroken, Tasks, World

__all__ = ["Counts", "RelayedConnection"]


class Counts(Protocol):
    """Who counts connections."""

    def opened(self, connection: RelayedConnection) -> bool:
        """False when there are too many."""
        ...

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
        self._client.write(self._greeting)

    def data_received(self, data: bytes) -> None:
        self._client.to_client(data)

    def pause_writing(self) -> None:
        self._client.read(wanted=False)

    def resume_writing(self) -> None:
        self._client.read(wanted=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._client.close()


class RelayedConnection(ContainedProtocol):
    """Until ``hold`` what the client says goes to ``received``; after ``pass_on`` it goes to the broker. Each end is read no faster than
    the other takes it."""

    def __init__(self, world: World, config: ProxyConfig, brokers: KnownBrokers, counts: Counts) -> None:
        super().__init__(world.tasks)
        self.peer = ""
        self._world = world
        self._config = config
        self._brokers = brokers
        self._counts = counts
        self._transport: asyncio.Transport | None = None
        self._broker: _BrokerEnd | None = None
        self._held: list[bytes] | None = None  # what came while the broker was being connected to

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # None: the client was gone again before it was accepted.
        host, port = (transport.get_extra_info("peername") or ("unknown", 0))[:2]
        self.peer = f"{host}:{port}"
        self._world = contained(self._world, self.scope)
        if self._counts.opened(self):
            self.begun()
        else:
            self._transport.abort()

    def begun(self) -> None:
        """The client is there."""

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._counts.ended(self)
        if self._broker is not None and self._broker.transport is not None:
            self._broker.transport.close()

    def pause_writing(self) -> None:
        self._take_in(wanted=False)

    def resume_writing(self) -> None:
        self._take_in(wanted=True)

    def _take_in(self, *, wanted: bool) -> None:
        """Read on or not from whoever the client is written for."""
        end = self._broker
        if end is None:
            self.read(wanted=wanted)
        elif end.transport is not None and not end.transport.is_closing():
            (end.transport.resume_reading if wanted else end.transport.pause_reading)()

    def data_received(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
        elif self._broker is None:
            self.received(data)
        elif self._broker.transport is not None:
            self._counts.relayed(len(data))
            self._broker.transport.write(data)

    def to_client(self, data: bytes) -> None:
        self._counts.relayed(len(data))
        self.write(data)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def read(self, *, wanted: bool) -> None:
        """Read on from the client or not."""
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    def close(self) -> None:
        """What was written is sent first."""
        if self._transport is not None:
            self._transport.close()

    def hold(self) -> None:
        """From now on what comes is for the broker that ``pass_on`` will connect to."""
        self._held = []

    @property
    def alive(self) -> bool:
        return self._transport is not None

    async def pass_on(self, address: str, first: bytes, *, greeting: bytes = b"") -> None:
        """Connect to a broker, and give it ``first``, then what was held. The client is told ``greeting`` before anything of the broker's.

        Raises ``NotAllowed``, ``ServiceNotReady``.
        """
        if not self._brokers.allowed(address):
            raise NotAllowed(f"{address} is no broker that this proxy may connect to")
        end = _BrokerEnd(self._world.tasks, self, greeting)
        try:
            async with self._world.clock.timeout(self._config.broker_connect_timeout_seconds):
                await self._world.connections.open_bytes(address, lambda: end)
        except (StreamBroken, TimeoutError) as error:
            raise ServiceNotReady(f"broker {address} is away: {error or 'no connection in time'}") from None
        if end.transport is None or not self.alive:
            if end.transport is not None:
                end.transport.abort()
            return
        end.transport.write(b"".join([first, *(self._held or ())]))
        self._held = None
        self._broker = end
