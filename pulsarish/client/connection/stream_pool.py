"""The streams of a client: at most one of each kind to each broker, shared by all producers or
consumers.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Generic, TypeVar

from pulsarish.client.connection.broker_stream import StreamLimits
from pulsarish.client.connection.consume_stream import ConsumeStream
from pulsarish.client.connection.publish_stream import PublishStream
from pulsarish.model.errors import AlreadyClosed, AuthenticationError, ConnectError
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import ClientConnections, Clock, StreamBroken, Tasks, Unreachable
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["BrokerGone", "StreamPool"]

T = TypeVar("T", PublishStream, ConsumeStream)


class BrokerGone(ConnectError):
    """The broker's process refuses connections: ask another broker who owns the topic."""

    code = ConnectError.code


class StreamPool(Generic[T]):
    """The streams of one kind, by the broker's gRPC address, which names the broker.

    Args:
        book: says at which address of the broker a stream is opened.
    """

    def __init__(
        self,
        kind: type[T],
        method: str,
        *,
        connections: ClientConnections,
        clock: Clock,
        tasks: Tasks,
        limits: StreamLimits,
        book: AddressBook,
    ) -> None:
        self._kind: type[T] = kind
        self._method = method
        self._connections = connections
        self._clock = clock
        self._tasks = tasks
        self._limits = limits
        self._book = book
        self._streams: dict[str, T] = {}
        self._opening: dict[str, asyncio.Future[T]] = {}
        self._closed = False
        self._changes_count = 0

    async def get(self, address: str) -> T:
        """Return the stream to a broker; open it when there is none.

        Raises ``BrokerGone``, ``ConnectError`` or ``AuthenticationError``.
        """
        stream = self._streams.get(address)
        if stream is not None and stream.lost is None:
            return stream
        opening = self._opening.get(address)
        if opening is None:
            opening = self._opening[address] = asyncio.get_running_loop().create_future()
            _ = self._tasks.spawn(
                self._open(address, opening), name=f"client open {self._method} {address}"
            )
        # Shielded: a caller that stops waiting must not cancel it for the others.
        return await asyncio.shield(opening)

    async def _open(self, address: str, opening: asyncio.Future[T]) -> None:
        route = self._book.route(address)
        changes_count = self._changes_count
        try:
            if route is None:
                raise StreamBroken(
                    "it is of a cluster that the client has left"
                    if self._book.get(address) is None
                    else 'it offers no frames; use transport="auto"'
                )
            stream = await self._connections.open(route, self._method)
        except AuthenticationError as error:
            opening.set_exception(error)
            opening.exception()
            return
        except StreamBroken as error:
            if route is not None:
                self._book.on_failed(address, route)
            kind = BrokerGone if isinstance(error, Unreachable) else ConnectError
            opening.set_exception(kind(f"broker {address} cannot be reached: {error}"))
            # Retrieve the exception so that asyncio does not warn when every caller stopped
            # waiting.
            opening.exception()
            return
        except Exception as error:
            # A defect, or an address that is none. Report it to the callers, which would wait
            # forever otherwise.
            opening.set_exception(ConnectError(f"broker {address!r} cannot be reached: {error!r}"))
            opening.exception()
            raise
        finally:
            del self._opening[address]
        self._book.on_reached(address, route)
        link = self._kind(
            stream,
            address=address,
            clock=self._clock,
            tasks=self._tasks,
            limits=self._limits,
            ping=partial(self._ping, route),
            credentials_now=self._connections.credentials_now,
        )
        link.start()
        if self._changes_count != changes_count:
            link.close()
            opening.set_exception(ConnectError(f"the client has left the cluster of {address}"))
            opening.exception()
            return
        if self._closed:
            link.close()
            opening.set_exception(AlreadyClosed("the client was closed"))
            opening.exception()
            return
        self._streams[address] = link
        opening.set_result(link)

    async def _ping(self, route: str, timeout_seconds: float) -> None:
        await self._connections.call(
            route,
            "broker.ping",
            pb.PingRequest().SerializeToString(),
            timeout_seconds=timeout_seconds,
        )

    def abandon(self, reason: str) -> None:
        """Give all streams up: those that use them open again, elsewhere."""
        self._changes_count += 1
        streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            stream.give_up(reason)

    def close(self) -> None:
        self._closed = True
        streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            stream.close()
