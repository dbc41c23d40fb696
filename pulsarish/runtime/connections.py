"""The network on gRPC: generic handlers with bytes in and bytes out.

Rules that were paid for elsewhere and hold here:

* Nothing of gRPC is ever cancelled in passing: cancelling a gRPC read or write kills the call. Ending a stream is ``abort`` and only that.
* A client that leaves cancels the server's handler coroutine in the middle of whatever it awaits. So that coroutine only waits for the
  end of the stream; the application's handler runs as a task of its own and works on a ``Stream``.
* One event loop a process touches gRPC. With several, gRPC prints errors for ever.
* ``Unreachable`` is evidence that the peer's process is gone: it is raised only when a connection attempt made *now* is refused. Silence,
  an unknown host, a firewall or a stopped process are ``StreamBroken``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

# gRPC's C core writes its own complaints to standard error, past every log setting. Whoever wants them sets the variable.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Processes are started by exec, never by fork with gRPC in use.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import grpc.aio

from pulsarish.runtime.grpc_streams import ClientStream, ServerStream
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import CallFailed, CallHandler, HttpHandler, Listener, Stream, StreamBroken, StreamHandler, Tasks, Unreachable
from pulsarish.runtime.version import program_name

__all__ = ["ConnectionLimits", "GrpcConnections"]

_log = get_logger("connections")

_SERVICE = "/pulsarish."
_CALL_LANE = "call"
# The status of a call whose handler raised: a code that gRPC itself never makes.
_HANDLER_FAILED = grpc.StatusCode.ABORTED
# Error text travels in a header, whose size HTTP/2 peers limit.
_DETAILS_CHARS_MAX = 1_000
_RECONNECT_MS_MIN = 100
_RECONNECT_MS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a process's network may use."""

    connect_timeout_seconds: float = 3.0
    """For a connection to be made, and again for the peer to accept a stream."""
    message_bytes_max: int = 64 << 20
    """The greatest message in either direction; a larger one breaks its stream."""
    idle_channels_max: int = 64
    """Connections kept open without a stream or call; the longest idle is closed first."""
    http_body_bytes_max: int = 16 << 20
    """The greatest body of an HTTP request; a larger one is answered with 413."""


class _Channel:
    """One TCP connection to a peer, for one lane. ``stale``: given to nobody any more, closed when its last user leaves."""

    __slots__ = ("answered_count", "channel", "stale", "users_count")

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.users_count = 0
        self.answered_count = 0
        self.stale = False


class GrpcConnections:
    """The production ``Connections``. Made and used in one event loop."""

    def __init__(self, *, tasks: Tasks, limits: ConnectionLimits | None = None) -> None:
        self._tasks = tasks
        self._limits = limits if limits is not None else ConnectionLimits()
        # In order of last use: the first idle one is the longest idle.
        self._channels: dict[tuple[str, str], _Channel] = {}
        self._listeners: list[_GrpcListener] = []
        self._streams: dict[int, ClientStream] = {}
        self._streams_count = 0
        sizes = self._limits.message_bytes_max
        self._sizes = [("grpc.max_send_message_length", sizes), ("grpc.max_receive_message_length", sizes)]

    async def open(self, address: str, method: str, *, lane: str = "") -> Stream:
        entry, key = await self._connect(address, lane, self._limits.connect_timeout_seconds)
        number = self._streams_count
        self._streams_count += 1

        def over(suspect: bool) -> None:
            del self._streams[number]
            self._leave(key, entry, suspect)

        stream = ClientStream(entry.channel.stream_stream(_path(method))(), address, over)
        self._streams[number] = stream
        try:
            await stream.accepted(self._limits.connect_timeout_seconds)
        except StreamBroken as broken:
            # gRPC may not yet have noticed that the connection it calls ready is gone. Nothing of the caller's has been sent so far, so
            # that looking again is sound; for a call it would not be, because the request may have been taken.
            if stream.lost_connection:
                found = await _connect_error(address)
                if isinstance(found, Unreachable):
                    raise found from broken
            raise
        return stream

    async def call(self, address: str, method: str, request: bytes, *, timeout_seconds: float) -> bytes:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        entry, key = await self._connect(address, _CALL_LANE, timeout_seconds)
        answered_count = entry.answered_count
        silent = False
        try:
            answer: bytes = await entry.channel.unary_unary(_path(method))(request, timeout=max(0.001, deadline - loop.time()))
        except grpc.aio.AioRpcError as error:
            code, text = error.code(), f"{method} at {address}: {error.details()}"
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                # Nothing came back on this connection since the call was sent: the next call tries a new one.
                silent = entry.answered_count == answered_count
                raise TimeoutError(f"{method} at {address} gave no answer in {timeout_seconds} s") from None
            if code in (_HANDLER_FAILED, grpc.StatusCode.UNIMPLEMENTED):
                entry.answered_count += 1
                raise CallFailed(text) from None
            raise StreamBroken(f"{text} ({code.name})") from None
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise StreamBroken(f"{method} at {address}: the connection was closed on this side") from None
        else:
            entry.answered_count += 1
            return answer
        finally:
            self._leave(key, entry, silent)

    async def serve(self, address: str, streams: Mapping[str, StreamHandler], calls: Mapping[str, CallHandler]) -> Listener:
        # Without so_reuseport=0 two processes share a port silently.
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0), *self._sizes])
        handlers = {_path(method): self._stream_handler(method, handler) for method, handler in streams.items()}
        handlers |= {_path(method): self._call_handler(method, handler) for method, handler in calls.items()}
        server.add_generic_rpc_handlers([_Handlers(handlers)])
        host, port = _split(address)
        try:
            port = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise await _listen_error(address, error) from None
        await server.start()
        listener = _GrpcListener(f"{host}:{port}", server)
        self._listeners.append(listener)
        return listener

    async def serve_bytes(self, address: str, factory: Callable[[], asyncio.Protocol]) -> Listener:
        """The listener's ``stop`` ends listening; the connections belong to the factory's protocols, which close them."""
        host, port = _split(address)
        try:
            server = await asyncio.get_running_loop().create_server(factory, host.strip("[]"), port)
        except OSError as error:
            raise _cannot_listen(address, error) from None
        return _ByteListener(f"{host}:{server.sockets[0].getsockname()[1]}", server)

    async def open_bytes(self, address: str, factory: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        host, port = _split(address)
        try:
            _, protocol = await asyncio.get_running_loop().create_connection(factory, host.strip("[]"), port)
        except ConnectionRefusedError as error:
            raise Unreachable(f"{address}: nobody listens") from error
        except OSError as error:
            raise StreamBroken(f"{address}: {error}") from error
        return protocol

    async def serve_http(self, address: str, handler: HttpHandler) -> Listener:
        # Imported here: clients and the command line never start a server.
        from pulsarish.runtime.http import serve_http

        host, port = _split(address)
        try:
            return await serve_http(host, port, handler, tasks=self._tasks, body_bytes_max=self._limits.http_body_bytes_max)
        except OSError as error:
            raise _cannot_listen(address, error) from None

    async def close(self) -> None:
        """Close every listener and connection at once; what is open breaks."""
        for listener in self._listeners:
            await listener.stop(0)
        for stream in list(self._streams.values()):
            # Closing a channel ends only those calls in which a task is waiting at this moment.
            stream.abort("the connection was closed on this side")
        channels = list(self._channels.values())
        self._channels.clear()
        for entry in channels:
            entry.stale = True
            await entry.channel.close()

    # The client's side: channels.

    async def _connect(self, address: str, lane: str, timeout_seconds: float) -> tuple[_Channel, tuple[str, str]]:
        """A connected channel with this caller counted as a user."""
        key = (address, lane)
        entry = self._channels.pop(key, None)
        if entry is not None and entry.channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            # It would repeat an old failure until its back-off is over, although the peer may be there again.
            self._retire(entry)
            entry = None
        if entry is None:
            entry = _Channel(grpc.aio.insecure_channel(address, options=[*self._sizes, *_channel_options(self._limits)]))
        self._channels[key] = entry
        entry.users_count += 1
        state = entry.channel.get_state(try_to_connect=True)
        if state is grpc.ChannelConnectivity.READY:
            return entry, key
        failure: Exception | None = None
        try:
            async with asyncio.timeout(timeout_seconds):
                while state is not grpc.ChannelConnectivity.READY:
                    if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
                        failure = await _connect_error(address)
                        break
                    await entry.channel.wait_for_state_change(state)
                    state = entry.channel.get_state(try_to_connect=True)
        except TimeoutError:
            kind = TimeoutError if lane == _CALL_LANE else StreamBroken
            failure = kind(f"{address} did not complete a connection in {timeout_seconds} s")
        except grpc.aio.UsageError:
            failure = StreamBroken(f"{address}: the connection was closed on this side")
        except asyncio.CancelledError:
            self._leave(key, entry, False)
            raise
        if failure is not None:
            self._leave(key, entry, True)
            raise failure
        return entry, key

    def _leave(self, key: tuple[str, str], entry: _Channel, stale: bool) -> None:
        """A user of a channel is done with it; ``stale``: nobody else should start on it."""
        entry.users_count -= 1
        assert entry.users_count >= 0, "a channel was left twice"
        if stale and self._channels.get(key) is entry:
            del self._channels[key]
            entry.stale = True
        if entry.users_count == 0:
            if entry.stale:
                self._close(entry)
            else:
                self._close_idle()

    def _retire(self, entry: _Channel) -> None:
        entry.stale = True
        if entry.users_count == 0:
            self._close(entry)

    def _close_idle(self) -> None:
        idle = [key for key, entry in self._channels.items() if entry.users_count == 0]
        for key in idle[: max(0, len(idle) - self._limits.idle_channels_max)]:
            self._close(self._channels.pop(key))

    def _close(self, entry: _Channel) -> None:
        async def close() -> None:
            await entry.channel.close()

        _ = self._tasks.spawn(close(), name="close-channel")

    # The server's side: handlers.

    def _stream_handler(self, method: str, handler: StreamHandler) -> grpc.RpcMethodHandler:
        async def run(stream: ServerStream) -> None:
            try:
                await handler(stream)
            except StreamBroken as broken:
                _log.debug("stream broken", method=method, peer=stream.peer, reason=broken)
                stream.abort(str(broken))
            except asyncio.CancelledError:
                stream.abort("the server is stopping")
                raise
            except Exception as error:  # noqa: BLE001  # whatever it is, the client hears that its stream is over
                _log.error("stream handler failed", exception=error, method=method, peer=stream.peer)
                stream.abort(_describe(error))
            finally:
                # A handler that returns has nothing more to say.
                await stream.finish()

        async def serve(_requests: AsyncIterator[bytes], context: Any) -> None:
            stream = ServerStream(context)
            await stream.accept()
            _ = self._tasks.spawn(run(stream), name=f"stream {method} {stream.peer}")
            await stream.over()

        return grpc.stream_stream_rpc_method_handler(serve)

    def _call_handler(self, method: str, handler: CallHandler) -> grpc.RpcMethodHandler:
        async def run(request: bytes, answered: asyncio.Future[bytes | str]) -> None:
            outcome: bytes | str = "the server is stopping"
            try:
                outcome = await handler(request)
            except Exception as error:  # noqa: BLE001  # whatever it is, it goes to the log and to the caller
                _log.error("call handler failed", exception=error, method=method)
                outcome = _describe(error)
            finally:
                if not answered.done():  # done: the caller left and gRPC cancelled its wait
                    answered.set_result(outcome)

        async def serve(request: bytes, context: Any) -> bytes:
            answered: asyncio.Future[bytes | str] = asyncio.get_running_loop().create_future()
            _ = self._tasks.spawn(run(request, answered), name=f"call {method}")
            outcome = await answered
            if isinstance(outcome, str):
                # Set, not aborted: an abort is an exception that gRPC would carry through its own machinery.
                context.set_code(_HANDLER_FAILED)
                context.set_details(outcome)
                return b""
            return outcome

        return grpc.unary_unary_rpc_method_handler(serve)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def __init__(self, handlers: Mapping[str, grpc.RpcMethodHandler]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(handler_call_details.method)


class _GrpcListener:
    def __init__(self, address: str, server: grpc.aio.Server) -> None:
        self.address = address
        self._server = server

    async def stop(self, grace_seconds: float) -> None:
        """Refuse what is new at once; what runs has ``grace_seconds`` and is then broken."""
        await self._server.stop(grace_seconds)


class _ByteListener:
    def __init__(self, address: str, server: asyncio.AbstractServer) -> None:
        self.address = address
        self._server = server

    async def stop(self, grace_seconds: float) -> None:
        self._server.close()


def _path(method: str) -> str:
    """``bookie.add`` is ``/pulsarish.bookie/add`` on the wire."""
    service, _, name = method.partition(".")
    return f"{_SERVICE}{service}/{name}"


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_DETAILS_CHARS_MAX]


def _is_cancelled() -> bool:
    """Whether somebody cancels the running task. gRPC raises ``CancelledError`` also for a call that merely ended."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _channel_options(limits: ConnectionLimits) -> list[tuple[str, int | str]]:
    return [
        ("grpc.primary_user_agent", program_name()),
        # Otherwise all channels to one target share one TCP connection, and lanes would wait for each other.
        ("grpc.use_local_subchannel_pool", 1),
        # A call that may have been taken is never sent a second time behind our back.
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS_MIN),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS_MAX),
        # In spite of its name: how long one attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", int(limits.connect_timeout_seconds * 1_000)),
    ]


async def _connect_error(address: str) -> StreamBroken:
    """Why a connection could not be made, found by trying: gRPC has only a sentence for it, and the difference moves topics."""
    loop = asyncio.get_running_loop()
    host, port = _split(address)
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


async def _listen_error(address: str, cause: RuntimeError) -> OSError:
    """gRPC says only that it could not bind; the operating system says why."""
    host, port = _split(address)
    with contextlib.ExitStack() as stack:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
            for family, kind, protocol, _, target in found:
                probe = stack.enter_context(socket.socket(family, kind, protocol))
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(target)
                probe.listen(1)
        except OSError as error:
            return _cannot_listen(address, error)
    return OSError(f"cannot listen on {address}: {cause}")


def _cannot_listen(address: str, error: OSError) -> OSError:
    reason = "the address is in use by another process" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
    return OSError(error.errno, f"cannot listen on {address}: {reason}")
