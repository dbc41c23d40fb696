"""The network on gRPC: generic handlers with bytes in and bytes out.

Rules that were learned from failures elsewhere:

* No task cancels gRPC calls in passing: cancelling a gRPC read or write ends the call. Only
  ``abort`` ends a stream.
* A client that leaves cancels the server's handler coroutine in the middle of its current await. So
  that coroutine only waits for the end of the stream. The application's handler runs as its own
  task and works on a ``Stream``.
* One event loop a process uses gRPC. With several, gRPC prints errors forever.
* ``Unreachable`` is evidence that the peer's process is gone. It is raised only when a connection
  attempt made *now* is refused. Silence, an unknown host, a firewall or a stopped process are
  ``StreamBroken``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

# Set before the first import of grpc in the process, which reads them: only the modules imported
# below may import grpc. gRPC's C core writes its own messages to standard error, past every log
# setting. Set the variable to see them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# The child of a fork does not use the core: see background.py.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import grpc.aio

from pulsarish.runtime.grpc.channel_pool import ChannelPool, PooledChannel
from pulsarish.runtime.grpc.grpc_streams import ClientStream, ServerStream, caller_of, peer_address
from pulsarish.runtime.grpc.tls_credentials import channel_credentials, server_credentials
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.addresses import is_tls, plain_address, split_address
from pulsarish.runtime.network.dialing import Dialer
from pulsarish.runtime.network.endpoints import (
    AUTH_DATA,
    AUTH_METHOD,
    CALL_LANE,
    HTTP2,
    ConnectionLimits,
    cannot_listen,
    method_path,
)
from pulsarish.runtime.network.handlers import CallRefused, answer_call, run_stream
from pulsarish.runtime.network.listening import Listening, listen
from pulsarish.runtime.network.peer_sockets import shut_down_connection
from pulsarish.runtime.network.tls_contexts import ServerTls
from pulsarish.runtime.peer_limits import HeldBytes
from pulsarish.runtime.seams import (
    TLS,
    BodyLimit,
    CallFailed,
    CallHandler,
    HttpHandler,
    Listener,
    NoSuchMethod,
    Stream,
    StreamBroken,
    StreamHandler,
    Tasks,
    Unreachable,
)
from pulsarish.runtime.version import program_name
from pulsarish.security.credentials import Caller, Credentials, CredentialsSource, no_credentials
from pulsarish.security.tls import TlsServerConfig

if TYPE_CHECKING:
    from pulsarish.runtime.http import HttpTraffic

__all__ = ["GrpcConnections", "start_core"]

_log = get_logger("connections")

# The status of a call whose handler raised: a code that gRPC itself never sends.
_HANDLER_FAILED = grpc.StatusCode.ABORTED
_METADATA_BYTES_MAX = 16 << 10
# A small compressed message may decode to a large one. A call with any coding but "identity" is
# refused before it is decoded.
_UNCOMPRESSED = ("grpc.compression_enabled_algorithms_bitset", 1)
# Answers to calls that are smaller are not counted: the number of streams of a connection is
# limited.
_COUNTED_ANSWER_BYTES_MIN = 16 << 10
_RECONNECT_MS_MIN = 100
_RECONNECT_MS_MAX = 1_000


def start_core() -> None:
    """Start gRPC's C core for the rest of the process.

    Releasing it would wait for its thread, which does not exist in the child of a fork.
    """
    grpc.aio.init_grpc_aio()


class _Channel(PooledChannel):
    __slots__ = ("channel",)

    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__()
        self.channel = channel


class GrpcConnections:
    """The production ``Connections``. Made and used in one event loop."""

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
        self._listeners: list[_GrpcListener] = []
        self._http_traffic: HttpTraffic | None = None
        self._streams: dict[int, ClientStream] = {}
        self._streams_count = 0
        sizes = self._limits.message_bytes_max
        self._sizes = [
            ("grpc.max_send_message_length", sizes),
            ("grpc.max_receive_message_length", sizes),
        ]
        self._unread = HeldBytes(self._limits.unread_answers_bytes_max, "answers to calls")

    async def credentials_now(self) -> Credentials:
        return self._credentials()

    async def open(self, address: str, method: str, *, lane: str = "") -> Stream:
        entry, key = await self._connect(address, lane, self._limits.connect_timeout_seconds)
        number = self._streams_count
        self._streams_count += 1

        def over(suspect: bool) -> None:
            del self._streams[number]
            self._channels.leave(key, entry, suspect)

        call = entry.channel.stream_stream(method_path(method))(metadata=self._metadata())
        stream = ClientStream(call, address, over)
        self._streams[number] = stream
        try:
            await stream.accepted(self._limits.connect_timeout_seconds)
        except StreamBroken as broken:
            # gRPC may not have noticed yet that a connection it reports as ready is gone. No byte
            # of the caller was sent so far, so a second look is sound. For a call it would not be,
            # because the peer may have accepted the request.
            if stream.lost_connection:
                found = await self._dialer.failure(address, HTTP2)
                if isinstance(found, Unreachable):
                    raise found from broken
            raise
        return stream

    async def call(
        self, address: str, method: str, request: bytes, *, timeout_seconds: float
    ) -> bytes:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        entry, key = await self._connect(address, CALL_LANE, timeout_seconds)
        answered_count = entry.answered_count
        silent = False
        try:
            answer: bytes = await entry.channel.unary_unary(method_path(method))(
                request,
                timeout=max(0.001, deadline - loop.time()),
                metadata=self._metadata(),
            )
        except grpc.aio.AioRpcError as error:
            code, text = error.code(), f"{method} at {address}: {error.details()}"
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                # Nothing arrived on this connection since the call was sent: the next call opens a
                # new one.
                silent = entry.answered_count == answered_count
                raise TimeoutError(
                    f"{method} at {address} gave no answer in {timeout_seconds} s"
                ) from None
            if code in (_HANDLER_FAILED, grpc.StatusCode.UNIMPLEMENTED):
                entry.answered_count += 1
                kind = CallFailed if code is _HANDLER_FAILED else NoSuchMethod
                raise kind(text) from None
            raise StreamBroken(f"{text} ({code.name})") from None
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise StreamBroken(
                f"{method} at {address}: the connection was closed on this side"
            ) from None
        else:
            entry.answered_count += 1
            return answer
        finally:
            self._channels.leave(key, entry, silent)

    async def serve(
        self,
        address: str,
        streams: Mapping[str, StreamHandler],
        calls: Mapping[str, CallHandler],
        *,
        message_bytes_max: int = 0,
        tls: TlsServerConfig | None = None,
        is_shared: bool = False,
    ) -> Listener:
        server_tls = None if tls is None else ServerTls(tls)
        options = _server_options(self._limits, message_bytes_max, is_shared=is_shared)
        server = grpc.aio.server(options=options)
        handlers = {
            method_path(method): self._stream_handler(method, handler)
            for method, handler in streams.items()
        }
        handlers |= {
            method_path(method): self._call_handler(method, handler)
            for method, handler in calls.items()
        }
        server.add_generic_rpc_handlers([_Handlers(handlers)])
        host, port = split_address(address)
        try:
            if server_tls is None:
                port = server.add_insecure_port(f"{host}:{port}")
            else:
                port = server.add_secure_port(f"{host}:{port}", server_credentials(server_tls))
        except RuntimeError as error:
            raise await _listen_error(f"{host}:{port}", error) from None
        await server.start()
        transport = "" if server_tls is None else TLS
        listener = _GrpcListener(f"{transport}{host}:{port}", server)
        self._listeners.append(listener)
        return listener

    async def serve_bytes(
        self,
        address: str,
        factory: Callable[[], asyncio.Protocol],
        *,
        tls: TlsServerConfig | None = None,
        is_shared: bool = False,
    ) -> Listener:
        """Listen for raw bytes.

        ``stop`` ends the listening; the factory's protocols close their connections themselves.
        """
        return _ByteListener(
            await listen(
                address,
                factory,
                tls=None if tls is None else ServerTls(tls),
                limits=self._limits,
                tasks=self._tasks,
                is_shared=is_shared,
            )
        )

    async def open_bytes(
        self, address: str, factory: Callable[[], asyncio.Protocol]
    ) -> asyncio.Protocol:
        try:
            return await self._dialer.connect(address, factory)
        except ConnectionRefusedError as error:
            raise Unreachable(f"{address}: no process listens there") from error
        except OSError as error:
            raise StreamBroken(f"{address}: {error}") from error

    async def serve_http(
        self,
        address: str,
        handler: HttpHandler,
        *,
        body_limit: BodyLimit | None = None,
        tls: TlsServerConfig | None = None,
        is_shared: bool = False,
    ) -> Listener:
        # Imported here: clients and the command line never start a server.
        from pulsarish.runtime.http import HttpTraffic, serve_http

        self._http_traffic = self._http_traffic or HttpTraffic()
        return await serve_http(
            address,
            handler,
            tasks=self._tasks,
            traffic=self._http_traffic,
            body_limit=body_limit,
            limits=self._limits,
            tls=tls,
            is_shared=is_shared,
        )

    async def close(self) -> None:
        """Close every listener and connection at once; open streams and calls break."""
        for listener in self._listeners:
            await listener.stop(0)
        for stream in list(self._streams.values()):
            # Closing a channel ends only those calls in which a task waits at this moment.
            stream.abort("the connection was closed on this side")
        for entry in self._channels.take_all():
            await entry.channel.close()

    # The client's side: channels.

    def _metadata(self) -> tuple[tuple[str, str | bytes], ...] | None:
        credentials = self._credentials()
        if not credentials.method:
            return None
        return ((AUTH_METHOD, credentials.method), (AUTH_DATA, credentials.data.reveal()))

    async def _connect(
        self, address: str, lane: str, timeout_seconds: float
    ) -> tuple[_Channel, tuple[str, str]]:
        """Return a connected channel, with the caller counted as a user."""
        self._dialer.check(address)
        key = (address, lane)
        entry = self._channels.enter(key)
        state = entry.channel.get_state(try_to_connect=True)
        if state is grpc.ChannelConnectivity.READY:
            return entry, key
        failure: Exception | None = None
        try:
            async with asyncio.timeout(timeout_seconds):
                while state is not grpc.ChannelConnectivity.READY:
                    if state in (
                        grpc.ChannelConnectivity.TRANSIENT_FAILURE,
                        grpc.ChannelConnectivity.SHUTDOWN,
                    ):
                        failure = await self._dialer.failure(address, HTTP2)
                        break
                    await entry.channel.wait_for_state_change(state)
                    state = entry.channel.get_state(try_to_connect=True)
        except TimeoutError:
            kind = TimeoutError if lane == CALL_LANE else StreamBroken
            failure = kind(f"{address} did not complete a connection in {timeout_seconds} s")
        except grpc.aio.UsageError:
            failure = StreamBroken(f"{address}: the connection was closed on this side")
        except asyncio.CancelledError:
            self._channels.leave(key, entry, False)
            raise
        if failure is not None:
            self._channels.leave(key, entry, True)
            raise failure
        return entry, key

    def _make_channel(self, address: str) -> _Channel:
        options = [*self._sizes, *_channel_options(self._limits)]
        if self._dialer.tunnel:
            options.append(("grpc.http_proxy", self._dialer.tunnel))
        target = plain_address(address)
        if not is_tls(address):
            return _Channel(grpc.aio.insecure_channel(target, options=options))
        return _Channel(
            grpc.aio.secure_channel(target, channel_credentials(self._dialer.tls), options=options)
        )

    def _close(self, entry: _Channel) -> None:
        async def close() -> None:
            await entry.channel.close()

        _ = self._tasks.spawn(close(), name="close-channel")

    # The server's side: handlers.

    def _stream_handler(self, method: str, handler: StreamHandler) -> grpc.RpcMethodHandler:
        async def serve(_requests: AsyncIterator[bytes], context: Any) -> None:
            stream = ServerStream(context)
            await stream.accept()
            _ = self._tasks.spawn(
                run_stream(self._tasks, method, handler, stream),
                name=f"stream {method} {stream.peer}",
            )
            await stream.over()

        return grpc.stream_stream_rpc_method_handler(serve)

    def _call_handler(self, method: str, handler: CallHandler) -> grpc.RpcMethodHandler:
        async def run(
            request: bytes, caller: Caller, answered: asyncio.Future[bytes | str]
        ) -> None:
            outcome: bytes | str = "the server is stopping"
            try:
                outcome = await answer_call(self._tasks, method, handler, request, caller)
            except CallRefused as refused:
                outcome = str(refused)
            finally:
                if not answered.done():  # done: the caller left and gRPC cancelled its wait
                    answered.set_result(outcome)

        async def serve(request: bytes, context: Any) -> bytes:
            answered: asyncio.Future[bytes | str] = asyncio.get_running_loop().create_future()
            _ = self._tasks.spawn(run(request, caller_of(context), answered), name=f"call {method}")
            outcome = await answered
            if isinstance(outcome, str):
                # Set, not aborted: an abort is an exception that gRPC would carry through its own
                # machinery.
                context.set_code(_HANDLER_FAILED)
                context.set_details(outcome)
                return b""
            if len(outcome) >= _COUNTED_ANSWER_BYTES_MIN:
                self._count(outcome, context)
            return outcome

        return grpc.unary_unary_rpc_method_handler(serve)

    def _count(self, answer: bytes, context: Any) -> None:
        """Count an answer until its caller has received it."""
        caller = _Caller(peer_address(context))
        self._unread.set(caller, len(answer))
        context.add_done_callback(lambda _: self._unread.set(caller, 0))


class _Caller:
    """A caller that has not received the answer to its call yet."""

    def __init__(self, peer: str) -> None:
        self._peer = peer

    def abort(self, reason: str) -> None:
        _log.warning("connection ended", peer=self._peer, reason=reason)
        _ = shut_down_connection(self._peer)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def __init__(self, handlers: Mapping[str, grpc.RpcMethodHandler]) -> None:
        self._handlers = handlers

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(handler_call_details.method)


class _GrpcListener:
    def __init__(self, address: str, server: grpc.aio.Server) -> None:
        self.address = address
        self._server = server

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new streams and calls at once.

        Running ones have ``grace_seconds`` and are then broken.
        """
        await self._server.stop(grace_seconds)


class _ByteListener:
    def __init__(self, listening: Listening) -> None:
        self.address = listening.address
        self._listening = listening

    async def stop(self, grace_seconds: float) -> None:
        self._listening.close()


def _is_cancelled() -> bool:
    """Whether the running task is being cancelled.

    gRPC raises ``CancelledError`` also for a call that merely ended.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_usable(entry: _Channel) -> bool:
    # A failed channel would repeat its old failure until its back-off is over, although the peer
    # may be back.
    return entry.channel.get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE


def _channel_options(limits: ConnectionLimits) -> list[tuple[str, int | str]]:
    return [
        ("grpc.primary_user_agent", program_name()),
        _UNCOMPRESSED,
        # Otherwise all channels to one target share one TCP connection, and lanes would wait for
        # each other.
        ("grpc.use_local_subchannel_pool", 1),
        # A call that may have been accepted is never sent a second time implicitly.
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS_MIN),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS_MAX),
        # Despite its name: how long one attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", int(limits.connect_timeout_seconds * 1_000)),
    ]


def _server_options(
    limits: ConnectionLimits, message_bytes_max: int, *, is_shared: bool
) -> list[tuple[str, int]]:
    return [
        # gRPC's own default is to share: two processes would share a port silently.
        ("grpc.so_reuseport", int(is_shared)),
        ("grpc.max_send_message_length", limits.message_bytes_max),
        ("grpc.max_receive_message_length", message_bytes_max or limits.message_bytes_max),
        _UNCOMPRESSED,
        ("grpc.max_concurrent_streams", limits.streams_per_connection_max),
        ("grpc.server_handshake_timeout_ms", int(limits.handshake_timeout_seconds * 1_000)),
        ("grpc.max_connection_idle_ms", int(limits.connection_idle_seconds * 1_000)),
        ("grpc.max_metadata_size", _METADATA_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES_MAX),
    ]


async def _listen_error(address: str, cause: RuntimeError) -> OSError:
    """Return the reason for a failed listen.

    gRPC reports only that it could not bind; the operating system reports why.
    """
    host, port = split_address(address)
    with contextlib.ExitStack() as stack:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                host.strip("[]"), port, type=socket.SOCK_STREAM
            )
            for family, kind, protocol, _, target in found:
                probe = stack.enter_context(socket.socket(family, kind, protocol))
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(target)
                probe.listen(1)
        except OSError as error:
            return cannot_listen(address, error)
    return OSError(f"cannot listen on {address}: {cause}")
