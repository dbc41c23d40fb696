"""The network on framed connections: streams and calls, at both ends.

Addresses of this transport are ``framed:host:port`` and ``framed:tls:host:port``. ``Unreachable``
is evidence that no process listens: it is raised only when a connection attempt made now is
refused. Silence, an unknown host, a firewall or a failed TLS handshake are ``StreamBroken``.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from pulsarish.runtime.descriptors import connections_limit
from pulsarish.runtime.framed.framed_calls import CallClient, CallServer
from pulsarish.runtime.framed.framed_connection import FramedConnection, FramedLimits, FrameUser
from pulsarish.runtime.framed.framed_stream import WINDOW_BYTES, FramedStream
from pulsarish.runtime.framed.frames import (
    SCRATCH_BYTES,
    FrameError,
    Kind,
    Opening,
    decode_opening,
    encode_opening,
)
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.addresses import plain_address
from pulsarish.runtime.network.dialing import Dialer
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.network.handlers import run_stream
from pulsarish.runtime.network.listening import Listening, listen
from pulsarish.runtime.network.tls_contexts import ServerTls
from pulsarish.runtime.peer_limits import ConnectionSlots
from pulsarish.runtime.seams import (
    FRAMED,
    CallHandler,
    Stream,
    StreamBroken,
    StreamHandler,
    Tasks,
    Unreachable,
)
from pulsarish.runtime.version import program_name
from pulsarish.security.credentials import Caller, Credentials, CredentialsSource, no_credentials
from pulsarish.security.tls import TlsServerConfig

__all__ = ["FramedConnections"]

_log = get_logger("connections")

U = TypeVar("U", bound=FrameUser)

_IDLE_CALLERS_MAX: Final = 64
_CREDENTIALS_SECONDS: Final = 5.0
_UNKNOWN_SHARE: Final = 4
"""Callers of one address that are not identified get this part of the places for connections."""
_CLOSED_HERE: Final = "the connection was closed on this side"


class FramedConnections:
    """Streams and calls on frames. Made and used in one event loop."""

    def __init__(
        self,
        *,
        tasks: Tasks,
        limits: ConnectionLimits,
        dialer: Dialer,
        credentials: CredentialsSource = no_credentials,
    ) -> None:
        self._credentials = credentials
        self._dialer = dialer
        self.tasks = tasks
        self.limits = limits
        self.held = FramedLimits(
            limits.partial_input_bytes_max,
            limits.untaken_bytes_max,
            limits.unread_answers_bytes_max,
        )
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._callers: dict[str, CallClient] = {}  # in order of last use
        self._connecting: dict[str, asyncio.Future[CallClient]] = {}
        self._opened: dict[FramedConnection, None] = {}
        self._listeners: list[_FramedListener] = []

    async def credentials_now(self) -> Credentials:
        return self._credentials()

    async def open(self, address: str, method: str) -> Stream:
        def begin(connection: FramedConnection) -> FramedStream:
            self._opened[connection] = None
            return FramedStream(
                connection,
                peer=address,
                is_server=False,
                message_bytes_max=self.limits.message_bytes_max,
                sent_bytes_max=self.limits.message_bytes_max,
                on_over=lambda: self._forget(connection),
            )

        stream = await self._connect(address, method, self._credentials(), begin)
        try:
            await stream.accepted(self.limits.connect_timeout_seconds)
        except asyncio.CancelledError:
            stream.abort("its caller no longer waits")
            raise
        return stream

    async def call(
        self, address: str, method: str, request: bytes, *, timeout_seconds: float
    ) -> bytes:
        caller: CallClient | None = None
        answered_count = 0
        try:
            async with asyncio.timeout(timeout_seconds):
                caller = await self._caller(address)
                answered_count = caller.answered_count
                return await caller.call(method, request)
        except TimeoutError:
            if caller is not None and caller.answered_count == answered_count:
                # Nothing arrived since the call was sent: the next call opens a new connection.
                self._retire(address, caller)
            raise TimeoutError(
                f"{method} at {address} gave no answer in {timeout_seconds} s"
            ) from None

    async def serve(
        self,
        address: str,
        streams: Mapping[str, StreamHandler],
        calls: Mapping[str, CallHandler],
        *,
        message_bytes_max: int = 0,
        tls: TlsServerConfig | None = None,
        is_shared: bool = False,
    ) -> _FramedListener:
        listener = _FramedListener(
            self, streams, calls, message_bytes_max or self.limits.message_bytes_max
        )
        listening = await listen(
            address,
            lambda: self.new_connection(listener.on_made, is_server=True),
            tls=None if tls is None else ServerTls(tls),
            limits=self.limits,
            tasks=self.tasks,
            is_shared=is_shared,
        )
        listener.begin(listening)
        self._listeners.append(listener)
        return listener

    async def close(self) -> None:
        """Close every listener and connection at once; open streams and calls break."""
        for listener in self._listeners:
            await listener.stop(0)
        for connection in list(self._opened):
            connection.abort(_CLOSED_HERE)

    def new_connection(
        self, on_made: Callable[[FramedConnection], None], *, is_server: bool
    ) -> FramedConnection:
        return FramedConnection(self.tasks, self._scratch, self.held, on_made, is_server=is_server)

    # -- the client's side

    async def _connect(
        self,
        address: str,
        method: str,
        credentials: Credentials,
        begin: Callable[[FramedConnection], U],
    ) -> U:
        """Return the user of a new connection, which ``begin`` makes.

        Raises ``Unreachable``, ``StreamBroken``.
        """
        seconds = self.limits.connect_timeout_seconds
        users: list[U] = []
        opening = encode_opening(Opening(WINDOW_BYTES, method, program_name(), credentials))

        def on_made(connection: FramedConnection) -> None:
            # Here, because the connection may be lost again before ``create_connection`` returns.
            connection.user = user = begin(connection)
            users.append(user)
            connection.send_small(Kind.OPEN, opening)

        plain = address.removeprefix(FRAMED)
        try:
            async with asyncio.timeout(seconds):
                await self._dialer.connect(
                    address, lambda: self.new_connection(on_made, is_server=False)
                )
        except ConnectionRefusedError as error:
            raise Unreachable(f"no process listens at {plain_address(address)}") from error
        except TimeoutError:
            raise StreamBroken(f"{plain} did not complete a connection in {seconds} s") from None
        except OSError as error:
            # A host with several addresses may have several reasons.
            raise await self._dialer.failure(plain) from error
        return users[0]

    async def _caller(self, address: str) -> CallClient:
        """Return the connection for calls to an address.

        Raises ``Unreachable``, ``StreamBroken``.
        """
        caller = self._callers.pop(address, None)
        if caller is not None and caller.is_usable:
            if not self._is_outdated(caller):
                self._callers[address] = caller
                return caller
            caller.retire()
        connecting = self._connecting.get(address)
        if connecting is None:
            connecting = asyncio.get_running_loop().create_future()
            self._connecting[address] = connecting
            _ = self.tasks.spawn(
                self._connect_caller(address, connecting), name=f"connect calls {address}"
            )
        # Others wait for the same connection, so that this caller's timeout must not end it.
        return await asyncio.shield(connecting)

    def _is_outdated(self, caller: CallClient) -> bool:
        """Return whether a connection showed other credentials than its calls have to show now.

        A source may give others each time it is asked, so a new connection has some seconds.
        """
        age_seconds = asyncio.get_running_loop().time() - caller.made_at
        return age_seconds > _CREDENTIALS_SECONDS and caller.shown != self._credentials()

    async def _connect_caller(self, address: str, connecting: asyncio.Future[CallClient]) -> None:
        shown = self._credentials()

        def begin(connection: FramedConnection) -> CallClient:
            self._opened[connection] = None
            return CallClient(
                connection,
                address,
                self.limits.message_bytes_max,
                lambda: self._forget(connection),
                shown,
            )

        try:
            caller = await self._connect(address, "", shown, begin)
            try:
                # Longer than most calls wait: a process that stands still is silent to them, and
                # this connection is theirs when it goes on.
                async with asyncio.timeout(self.limits.handshake_timeout_seconds):
                    await caller.accepted()
            except TimeoutError:
                caller.close("no answer in time")
                raise StreamBroken(f"{address} did not accept a connection for calls") from None
        except StreamBroken as broken:
            connecting.set_exception(broken)
            _ = connecting.exception()  # its callers may have left
        else:
            self._callers[address] = caller
            connecting.set_result(caller)
            self._close_idle()
        finally:
            del self._connecting[address]
            connecting.cancel()  # does nothing when it has a result

    def _retire(self, address: str, caller: CallClient) -> None:
        """Give a connection no new calls. It is closed when none waits on it."""
        if self._callers.get(address) is caller:
            del self._callers[address]
        caller.retire()

    def _close_idle(self) -> None:
        idle = [address for address, caller in self._callers.items() if caller.is_idle]
        for address in idle[: max(0, len(idle) - _IDLE_CALLERS_MAX)]:
            self._retire(address, self._callers[address])

    def _forget(self, connection: FramedConnection) -> None:
        self._opened.pop(connection, None)


class _Handshake:
    """A connection of a listener whose client has not said yet what it wants."""

    def __init__(self, listener: _FramedListener, connection: FramedConnection) -> None:
        self._listener = listener
        self._connection = connection

    def abort(self, reason: str) -> None:
        self._connection.abort(reason)

    def on_frame(self, kind: int, body: bytes) -> None:
        if kind != Kind.OPEN:
            raise FrameError("the first frame opens nothing")
        self._listener.accept(self._connection, decode_opening(body))

    def on_writable(self) -> None:
        """Do nothing: nothing was sent yet."""

    def on_lost(self, reason: str) -> None:
        self._listener.left(self._connection)


class _FramedListener:
    """A listening address, its streams and its connections for calls."""

    address: str

    def __init__(
        self,
        connections: FramedConnections,
        streams: Mapping[str, StreamHandler],
        calls: Mapping[str, CallHandler],
        message_bytes_max: int,
    ) -> None:
        self._tasks = connections.tasks
        self._streams = streams
        self._calls = calls
        self._message_bytes_max = message_bytes_max
        self._sent_bytes_max = connections.limits.message_bytes_max
        self._handshake_seconds = connections.limits.handshake_timeout_seconds
        connections_max = connections_limit() // 2
        self._slots = ConnectionSlots(
            connections_max,
            waiting_per_address_max=max(connections_max // _UNKNOWN_SHARE, 1),
            what="framed connections",
        )
        self._listening: Listening | None = None
        self._users: dict[FramedConnection, _Handshake | FramedStream | CallServer] = {}
        self._made: weakref.WeakSet[FramedConnection] = weakref.WeakSet()
        """Also those whose stream is over and that wait for the client's end."""
        self._is_stopping = False
        self._idle = asyncio.Event()

    def begin(self, listening: Listening) -> None:
        self.address = FRAMED + listening.address
        self._listening = listening

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new streams and calls at once.

        Running ones have ``grace_seconds`` and are then broken.
        """
        if self._listening is not None:
            self._listening.close()
        self._is_stopping = True
        for user in list(self._users.values()):
            if isinstance(user, CallServer):
                user.stop()
            elif isinstance(user, _Handshake):
                user.abort("the server is stopping")
        if self._users and grace_seconds > 0:
            self._idle.clear()
            try:
                async with asyncio.timeout(grace_seconds):
                    await self._idle.wait()
            except TimeoutError:
                _log.debug("streams are broken at the stop", count=len(self._users))
        for user in list(self._users.values()):
            user.abort("the server is stopping")
        for connection in list(self._made):
            connection.abort("the server has stopped")

    # -- what connections report

    def on_made(self, connection: FramedConnection) -> None:
        self._made.add(connection)
        connection.user = handshake = _Handshake(self, connection)
        self._users[connection] = handshake
        refused = self._slots.take(connection, connection.peer.rpartition(":")[0])
        if refused or self._is_stopping:
            connection.abort(refused or "the server is stopping")
            return
        asyncio.get_running_loop().call_later(
            self._handshake_seconds, self._end_handshake, connection, handshake
        )

    def _end_handshake(self, connection: FramedConnection, handshake: _Handshake) -> None:
        if self._users.get(connection) is handshake:
            connection.abort(f"nothing was asked for in {self._handshake_seconds} s")

    def accept(self, connection: FramedConnection, opening: Opening) -> None:
        """Give a connection to the handler that its client asks for."""

        def on_over() -> None:
            self.left(connection)

        method = opening.method
        handler = self._streams.get(method)
        if method and handler is None:
            _log.warning("a stream is refused", peer=connection.peer, method=method[:64])
            connection.send_small(Kind.ABORT, f"no method {method[:64]!r}".encode())
            connection.end()
            return
        caller = Caller(
            connection.peer,
            opening.program,
            opening.credentials,
            connection.certificate,
            "framed",
            # A connection for calls stays when a call is refused, and a check takes its time. Until
            # the caller is known, the connection makes room for new ones.
            lambda: self._slots.mark_active(connection),
        )
        connection.allow(self._message_bytes_max)
        if handler is None:
            calls = CallServer(connection, self._tasks, self._calls, caller, on_over)
            connection.user = self._users[connection] = calls
            return
        stream = FramedStream(
            connection,
            peer=connection.peer,
            caller=caller,
            is_server=True,
            message_bytes_max=self._message_bytes_max,
            sent_bytes_max=self._sent_bytes_max,
            on_over=on_over,
        )
        connection.user = self._users[connection] = stream
        stream.accept(opening.window_bytes)
        _ = self._tasks.spawn(
            run_stream(self._tasks, method, handler, stream),
            name=f"stream {method} {connection.peer}",
        )

    def left(self, connection: FramedConnection) -> None:
        self._slots.leave(connection)
        self._users.pop(connection, None)
        if not self._users:
            self._idle.set()
