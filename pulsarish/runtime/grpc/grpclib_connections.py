"""The network of a client in a forked child: gRPC with the pure-Python library grpclib.

gRPC's C core cannot be started again in the child of a process that used it, and nothing here
touches it. The promises of the seam hold as in ``connections.py``. The conformance suite checks
both. This module has only the client's side.
"""

from __future__ import annotations

import asyncio

from grpclib.const import Status

from pulsarish.runtime.grpc.channel_pool import ChannelKey, ChannelPool, PooledChannel
from pulsarish.runtime.grpc.grpclib_streams import GrpclibStream, Link
from pulsarish.runtime.network.addresses import plain_address
from pulsarish.runtime.network.dialing import Dialer
from pulsarish.runtime.network.endpoints import (
    CALL_LANE,
    HTTP2,
    ConnectionLimits,
    method_path,
)
from pulsarish.runtime.network.http_tunnel import open_tunnel
from pulsarish.runtime.seams import (
    CallFailed,
    NoSuchMethod,
    Stream,
    StreamBroken,
    Tasks,
    Unreachable,
)
from pulsarish.security.credentials import Credentials, CredentialsSource, no_credentials

__all__ = ["GrpclibConnections"]

_CLOSED_HERE = "the connection was closed on this side"


class _Channel(PooledChannel):
    """One connection.

    ``settled`` is set when the attempt to connect is over: then ``link`` or ``failure`` is set.
    """

    __slots__ = ("failure", "is_closed", "link", "settled")

    def __init__(self) -> None:
        super().__init__()
        self.link: Link | None = None
        self.failure: StreamBroken | None = None
        self.settled = asyncio.Event()
        self.is_closed = False


class GrpclibConnections:
    """A ``ClientConnections``. Made and used in one event loop."""

    def __init__(
        self,
        *,
        tasks: Tasks,
        limits: ConnectionLimits | None = None,
        credentials: CredentialsSource = no_credentials,
        dialer: Dialer | None = None,
    ) -> None:
        self._tasks = tasks
        self._credentials = credentials
        self._limits = limits if limits is not None else ConnectionLimits()
        self._dialer = dialer or Dialer(None, self._limits)
        self._channels = ChannelPool(
            idle_max=self._limits.idle_channels_max,
            make=self._make_channel,
            is_usable=_is_usable,
            close=self._close,
        )
        self._streams: dict[int, GrpclibStream] = {}
        self._streams_count = 0

    async def credentials_now(self) -> Credentials:
        return self._credentials()

    async def open(self, address: str, method: str, *, lane: str = "") -> Stream:
        link, entry, key = await self._connect(address, lane, self._limits.connect_timeout_seconds)
        stream = self._stream(link, entry, key)
        try:
            await stream.accepted(
                method_path(method), self._credentials(), self._limits.connect_timeout_seconds
            )
        except StreamBroken as broken:
            stream.abort(str(broken))
            # The client may not have noticed yet that the connection is gone. No byte of the caller
            # was sent so far, so a second look is sound. For a call it would not be, because the
            # peer may have accepted the request.
            if link.is_lost:
                found = await self._dialer.failure(address, HTTP2)
                if isinstance(found, Unreachable):
                    raise found from broken
            raise
        except asyncio.CancelledError:
            stream.abort("the opening of the stream was cancelled")
            raise
        return stream

    async def call(
        self, address: str, method: str, request: bytes, *, timeout_seconds: float
    ) -> bytes:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        link, entry, key = await self._connect(address, CALL_LANE, timeout_seconds)
        answered_count = entry.answered_count
        stream = self._stream(link, entry, key)
        silent = False
        try:
            async with asyncio.timeout(max(0.001, deadline - loop.time())):
                await stream.begin(method_path(method), self._credentials())
                await stream.send_last([request])
                answer = await stream.receive()
                if answer is None or await stream.receive() is not None:
                    raise StreamBroken(
                        f"{method} at {address}: the server did not send exactly one answer"
                    )
        except TimeoutError:
            # Nothing arrived on this connection since the call was sent: the next call opens a new
            # one.
            silent = entry.answered_count == answered_count
            raise TimeoutError(
                f"{method} at {address} gave no answer in {timeout_seconds} s"
            ) from None
        except StreamBroken as broken:
            if stream.status is not None and stream.status[0] in (
                Status.ABORTED,
                Status.UNIMPLEMENTED,
            ):
                entry.answered_count += 1
                kind = CallFailed if stream.status[0] is Status.ABORTED else NoSuchMethod
                raise kind(f"{method} at {address}: {stream.status[1]}") from None
            raise StreamBroken(f"{method}: {broken}") from None
        else:
            entry.answered_count += 1
            return answer
        finally:
            stream.leave("the call is over", suspect=silent)

    async def close(self) -> None:
        """Close every connection at once; open streams and calls break."""
        for stream in list(self._streams.values()):
            stream.abort(_CLOSED_HERE)
        for entry in self._channels.take_all():
            entry.failure = StreamBroken(_CLOSED_HERE)
            entry.settled.set()
            self._close(entry)

    def _stream(self, link: Link, entry: _Channel, key: ChannelKey) -> GrpclibStream:
        number = self._streams_count
        self._streams_count += 1

        def over(suspect: bool) -> None:
            del self._streams[number]
            self._channels.leave(key, entry, suspect)

        stream = GrpclibStream(
            link, key[0], message_bytes_max=self._limits.message_bytes_max, over=over
        )
        self._streams[number] = stream
        return stream

    # Connections.

    async def _connect(
        self, address: str, lane: str, timeout_seconds: float
    ) -> tuple[Link, _Channel, ChannelKey]:
        """Return a connected channel, with the caller counted as a user."""
        self._dialer.check(address)
        key = (address, lane)
        entry = self._channels.enter(key)
        try:
            async with asyncio.timeout(timeout_seconds):
                await entry.settled.wait()
        except TimeoutError:
            self._channels.leave(key, entry, True)
            kind = TimeoutError if lane == CALL_LANE else StreamBroken
            raise kind(f"{address} did not complete a connection in {timeout_seconds} s") from None
        except asyncio.CancelledError:
            self._channels.leave(key, entry, False)
            raise
        if entry.link is None or entry.failure is not None:
            self._channels.leave(key, entry, True)
            failure = entry.failure if entry.failure is not None else StreamBroken(_CLOSED_HERE)
            # Each waiter gets its own exception, with its own traceback.
            raise type(failure)(*failure.args)
        return entry.link, entry, key

    def _make_channel(self, address: str) -> _Channel:
        entry = _Channel()
        _ = self._tasks.spawn(self._dial(entry, address), name=f"connect {address}")
        return entry

    async def _dial(self, entry: _Channel, address: str) -> None:
        link = Link(self._tasks)
        try:
            async with asyncio.timeout(self._limits.connect_timeout_seconds):
                await self._connect_link(link, address)
                # Other programs listen on TCP, too: only a peer that answers with HTTP/2 settings
                # counts as a gRPC server.
                entry.link = link
                await link.answered.wait()
        except StreamBroken as broken:
            entry.failure = broken
        except OSError:
            entry.failure = await self._dialer.failure(address, HTTP2)
        else:
            if link.is_lost:
                entry.failure = await self._dialer.failure(address, HTTP2)
        entry.settled.set()
        if entry.is_closed or entry.failure is not None:
            self._close(entry)

    async def _connect_link(self, link: Link, address: str) -> None:
        proxy = self._dialer.proxy_for(address)
        tunnel = None if proxy is None else await open_tunnel(proxy, plain_address(address))
        await self._dialer.connect(address, lambda: link, protocols=(HTTP2,), tunnel=tunnel)

    def _close(self, entry: _Channel) -> None:
        entry.is_closed = True
        if entry.link is not None:
            entry.link.close(_CLOSED_HERE, linger_seconds=self._limits.connect_timeout_seconds)


def _is_usable(entry: _Channel) -> bool:
    return entry.failure is None and (
        entry.link is None or not (entry.link.is_lost or entry.link.is_draining)
    )
