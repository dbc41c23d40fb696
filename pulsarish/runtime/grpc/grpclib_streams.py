"""One HTTP/2 connection of a client, and the client's end of a gRPC stream on it, with the
pure-Python library grpclib.

A forked child uses this instead of ``grpc_streams.py:ClientStream``. It uses grpclib's HTTP/2
layer, ``grpclib.protocol``, and not its ``grpclib.client``, which has four defects for this use.
The user agent cannot be chosen. The status of a stream that the server ended cannot be read. A
broken stream leaves the waiting task cancelled. A server that stops gracefully breaks all streams
at once.
"""

from __future__ import annotations

import asyncio
import struct
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import cast

from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.metadata import USER_AGENT, decode_grpc_message
from grpclib.protocol import AbstractHandler, Connection, EventsProcessor, H2Protocol
from grpclib.protocol import Stream as HttpStream
from grpclib.utils import Wrapper
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event, RemoteSettingsChanged, StreamEnded
from h2.exceptions import H2Error
from h2.settings import SettingCodes
from hyperframe.frame import Frame, GoAwayFrame

from pulsarish.runtime.contained_protocol import ContainedProtocol
from pulsarish.runtime.network.addresses import is_tls, plain_address
from pulsarish.runtime.network.endpoints import AUTH_DATA, AUTH_METHOD, FINISHED, Waits, joined
from pulsarish.runtime.network.stream_tasks import TaskStream
from pulsarish.runtime.seams import Buffer, StreamBroken, Tasks
from pulsarish.runtime.version import program_name
from pulsarish.security.credentials import ANONYMOUS_CALLER, Credentials

__all__ = ["GrpclibStream", "Link"]

# Bytes that a server may send before this end has read them: on one stream, and on all streams of a
# connection.
_STREAM_WINDOW_BYTES = 4 << 20
_CONNECTION_WINDOW_BYTES = 64 << 20
# Each frame costs the same time in Python, however large it is.
_FRAME_BYTES_MAX = 1 << 20
# Bytes that the event loop keeps for the socket before a send waits.
_WRITE_BUFFER_BYTES = 1 << 20
# Prefix of each message: whether it is compressed, and its size.
_PREFIX = struct.Struct(">?I")


class _Http2(H2Connection):
    """Continues after GOAWAY, which a server also sends before it lets its streams end.

    h2 would refuse every later frame.
    """

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        event = ConnectionTerminated()
        event.error_code = frame.error_code
        event.last_stream_id = frame.last_stream_id
        return [], [event]


class _Writer(Connection):
    """Does not write once the connection is closed, where grpclib's writer would fail."""

    def ack(self, stream_id: int, size: int) -> None:
        if not self.is_closing():
            super().ack(stream_id, size)

    def flush(self) -> None:
        if not self.is_closing():
            super().flush()


class _Events(EventsProcessor):
    """Reports to streams that the server ended them, and to the link what the server sends about
    the connection.
    """

    def __init__(self, link: Link) -> None:
        super().__init__(link.handler, link.connection)
        self._link = link

    def process(self, event: Event) -> None:
        try:
            super().process(event)
        except NotImplementedError:
            # Frames of HTTP/2 extensions, which a client ignores.
            return

    def process_remote_settings_changed(self, event: RemoteSettingsChanged) -> None:
        super().process_remote_settings_changed(event)
        self._link.answered.set()

    def process_stream_ended(self, event: StreamEnded) -> None:
        stream = self.streams.get(event.stream_id)
        super().process_stream_ended(event)
        if stream is not None:
            cast("_Notice", stream.wrapper).ended()

    def process_connection_terminated(self, event: ConnectionTerminated) -> None:
        if event.error_code != ErrorCodes.NO_ERROR:
            self.close(f"the server ended the connection with HTTP/2 error {event.error_code}")
            return
        self._link.is_draining = True
        for number, stream in list(self.streams.items()):
            if event.last_stream_id is not None and number > event.last_stream_id:
                stream.__terminated__("the server takes no new streams")


class _Handler(AbstractHandler):
    def __init__(self, link: Link) -> None:
        self._link = link

    def accept(self, stream: object, headers: object, release_stream: object) -> None:
        raise NotImplementedError("a server opens no streams")

    def cancel(self, stream: object) -> None:
        """Do nothing: grpclib calls the stream's wrapper, too."""

    def close(self) -> None:
        self._link.is_lost = True
        self._link.answered.set()


class Link(ContainedProtocol, H2Protocol):
    """One connection.

    ``answered`` is set when the server's HTTP/2 settings have arrived, or the connection is lost.
    """

    def __init__(self, tasks: Tasks) -> None:
        ContainedProtocol.__init__(self, tasks)
        plain = H2Configuration(
            client_side=True,
            header_encoding="ascii",
            validate_inbound_headers=False,
            validate_outbound_headers=False,
            normalize_inbound_headers=False,
            normalize_outbound_headers=False,
        )
        H2Protocol.__init__(self, _Handler(self), Configuration().__for_client__(), plain)
        self.answered = asyncio.Event()
        self.is_lost = False
        self.is_draining = False
        """The server lets open streams end, and accepts no new ones."""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        http2 = _Http2(config=self.h2_config)
        http2.initiate_connection()
        http2.increment_flow_control_window(
            _CONNECTION_WINDOW_BYTES - http2.local_settings.initial_window_size
        )
        http2.update_settings(
            {
                SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW_BYTES,
                SettingCodes.MAX_FRAME_SIZE: _FRAME_BYTES_MAX,
            }
        )
        self.connection = _Writer(http2, self._transport, config=self.config)
        self.connection.flush()
        self.processor = _Events(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        # A reset that the client sent while writing was paused waits in h2.
        self.connection.flush()

    def close(self, reason: str, *, linger_seconds: float) -> None:
        """Break open streams.

        Written bytes have ``linger_seconds`` to leave, for a peer may have stopped reading.
        """
        self.processor.close(reason)
        asyncio.get_running_loop().call_later(linger_seconds, self._transport.abort)


class _Notice(Wrapper):
    """grpclib calls this when a stream is over."""

    def __init__(self, stream: GrpclibStream) -> None:
        super().__init__()
        self._stream = stream

    def cancel(self, error: Exception) -> None:
        self._stream.lost(str(error))

    def ended(self) -> None:
        self._stream.ended()


class GrpclibStream(TaskStream):
    """The client's end.

    ``over`` is called once when the stream has ended. Its argument is true when the connection may
    be broken too.
    """

    def __init__(
        self, link: Link, address: str, *, message_bytes_max: int, over: Callable[[bool], None]
    ) -> None:
        self.peer = address
        self.caller = ANONYMOUS_CALLER
        self.status: tuple[Status, str] | None = None
        """The status with which the server ended the stream."""
        self._link = link
        self._bytes_max = message_bytes_max
        self._over = over
        self._http: HttpStream | None = None
        self._release: Callable[[], None] | None = None
        self._sends = Waits()
        self._receives = Waits()
        self._finished = False
        self._is_over = False
        self._is_quiet = False  # the server has finished and this end has received everything

    # Begin.

    async def begin(self, path: str, credentials: Credentials) -> None:
        """Request the stream from the server. Raises ``StreamBroken``."""
        self._sends.check()
        if self._link.is_lost:
            self.lost("the connection is lost")
            self._sends.check()
        self._http = self._link.connection.create_stream(wrapper=_Notice(self))
        headers = [
            (":method", "POST"),
            (":scheme", "https" if is_tls(self.peer) else "http"),
            (":path", path),
            (":authority", plain_address(self.peer)),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", f"{program_name()} {USER_AGENT}"),
        ]
        if credentials.method:
            headers.append((AUTH_METHOD, credentials.method))
            headers.append((AUTH_DATA, b64encode(credentials.data.reveal()).decode()))
        try:
            self._release = await self._sends.on(
                self._http.send_request(headers, _processor=self._link.processor)
            )
        except H2Error as error:
            self.abort(f"{self.peer}: {error}")
            self._sends.check()

    async def accepted(self, path: str, credentials: Credentials, timeout_seconds: float) -> None:
        """Open the stream and wait until the peer's handler has it. Raises ``StreamBroken``."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.begin(path, credentials)
                assert self._http is not None
                headers = await self._receives.on(self._http.recv_headers())
        except TimeoutError:
            self.abort(f"{self.peer} did not accept the stream in {timeout_seconds} s")
            self._receives.check()
            raise
        answer = dict(headers)
        if answer.get(":status") != "200":
            self.abort(
                f"{self.peer} does not speak gRPC: it answered HTTP status {answer.get(':status')}"
            )
        elif "grpc-status" in answer and self.status is not None:
            # The server sends only headers with a status: no handler has the stream.
            self._receives.end(self._why())
        self._receives.check()

    # The end, as grpclib reports it.

    def ended(self) -> None:
        """The server ended the stream. The program may still read what arrived before."""
        assert self._http is not None
        self.status = _status(dict(self._http.trailers or self._http.headers or ()))
        self._sends.end(self._why())
        self._done(False)

    def lost(self, reason: str) -> None:
        """The stream was reset or the connection is lost. After a regular end neither matters."""
        if self.status is None:
            self._sends.end(f"{self.peer}: {reason}")
            self._receives.end(f"{self.peer}: {reason}")
            self._let_go()
        self._done(False)

    def _why(self) -> str:
        assert self.status is not None
        return f"{self.peer}: {self.status[1] or 'the stream has ended'} ({self.status[0].name})"

    def _done(self, suspect: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self._over(suspect)

    def _let_go(self) -> None:
        release, self._release = self._release, None
        # A lost connection forgets its streams by itself.
        if release is not None and not self._link.is_lost:
            release()

    # The seam.

    async def send(self, parts: Sequence[Buffer]) -> None:
        self._sends.check()
        assert not self._finished, "send after finish"
        await self._send(parts, end=False)

    async def receive(self) -> bytes | None:
        if self._is_quiet:
            return None
        self._receives.check()
        assert self._http is not None
        try:
            prefix = await self._receives.on(self._http.recv_data(_PREFIX.size))
            if prefix:
                compressed, size = _PREFIX.unpack(prefix)
                if compressed or size > self._bytes_max:
                    kind = "compressed" if compressed else f"larger than {self._bytes_max} bytes"
                    self.abort(f"{self.peer} sent a message of {size} bytes that is {kind}")
                    self._receives.check()
                return await self._receives.on(self._http.recv_data(size))
        except AssertionError:
            # grpclib raises this for a stream that ends within a message.
            self._receives.end(f"{self.peer}: the stream ended within a message")
        self._let_go()
        self._receives.check()
        if self.status is None or self.status[0] is not Status.OK:
            self._receives.end(self._why())
            self._receives.check()
        self._is_quiet = True
        return None

    async def finish(self) -> None:
        if self._finished or self._sends.broken is not None:
            return
        try:
            await self.send_last([FINISHED])
        except StreamBroken:
            # Over already; ``receive`` reports it to the owner.
            return

    async def send_last(self, parts: Sequence[Buffer]) -> None:
        """Send one message and end this direction. Raises ``StreamBroken``."""
        self._finished = True
        await self._send(parts, end=True)

    def abort(self, reason: str) -> None:
        # The reason to abort is often that the peer stopped answering, perhaps because the
        # connection is lost.
        self.leave(reason, suspect=True)

    def leave(self, reason: str, *, suspect: bool) -> None:
        """Break the stream now if it has not ended.

        ``suspect``: no new stream should use its connection.
        """
        self._sends.end(reason)
        if not self._receives.end(reason):
            return
        if (
            self._http is not None
            and self._http.id is not None
            and not self._link.is_lost
            and self._http.closable
        ):
            self._http.reset_nowait(ErrorCodes.CANCEL)
        self._let_go()
        self._done(suspect)

    async def _send(self, parts: Sequence[Buffer], *, end: bool) -> None:
        assert self._http is not None
        body = joined(parts)
        if len(body) > self._bytes_max:
            self.abort(
                f"a message of {len(body)} bytes for {self.peer} is larger than {self._bytes_max} "
                "bytes"
            )
            self._sends.check()
        try:
            await self._sends.on(
                self._http.send_data(_PREFIX.pack(False, len(body)) + body, end_stream=end)
            )
        except H2Error as error:
            self._sends.check()
            raise StreamBroken(f"{self.peer}: {error}") from None


def _status(headers: dict[str, str]) -> tuple[Status, str]:
    try:
        return Status(int(headers["grpc-status"])), decode_grpc_message(
            headers.get("grpc-message", "")
        )
    except (KeyError, ValueError):
        return (
            Status.UNKNOWN,
            (
                "the stream ended without a status of gRPC, HTTP status "
                f"{headers.get(':status', 'none')}"
            ),
        )
