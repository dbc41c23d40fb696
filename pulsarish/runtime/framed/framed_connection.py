"""One TCP connection of the framed transport, at either end.

It cuts what arrives into frames, sends frames, and ends. What the frames mean is known to its
``FrameUser``: a stream (``framed_stream.py``) or calls (``framed_calls.py``).

How it ends:

* ``abort`` closes it now. What the peer has not received is lost.
* ``end`` closes it after what was written. The kernel resets a connection that is closed while
  bytes wait to be read, and the peer then loses the tail of what was sent. So this end closes only
  its sending direction, and throws away what still arrives until the peer closes, for at most
  ``LINGER_SECONDS``. With TLS its close does the same.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from pulsarish.runtime.contained_protocol import ContainedBufferedProtocol
from pulsarish.runtime.framed.frames import (
    HEADER,
    OPEN_BYTES_MAX,
    FrameDecoder,
    FrameError,
    Kind,
    frame,
)
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.peer_limits import HeldBytes
from pulsarish.runtime.seams import Buffer, Tasks
from pulsarish.security.credentials import Certificate
from pulsarish.security.tls import certificate_of, tls_reason

__all__ = ["FrameUser", "FramedConnection", "FramedLimits"]

_log = get_logger("connections")

LINGER_SECONDS: Final = 5.0
# A message of many small parts is copied once. One of few large parts is given to the kernel as it
# is.
_JOIN_BELOW_BYTES: Final = 4_096
_UNSENT_BYTES: Final = 1 << 20
"""Bytes that the kernel has not taken, above which the peer counts as not receiving."""
_KEEPALIVE_IDLE_SECONDS: Final = 60
_KEEPALIVE_INTERVAL_SECONDS: Final = 10
_KEEPALIVE_PROBES: Final = 3
_USER_TIMEOUT_MS: Final = 30_000


class FrameUser(Protocol):
    """Handles the frames of one connection."""

    def on_frame(self, kind: int, body: bytes) -> None:
        """Handle a frame. Raises ``FrameError`` for one that breaks the rules."""
        ...

    def on_writable(self) -> None:
        """Note that the peer receives again what is sent."""
        ...

    def on_lost(self, reason: str) -> None:
        """Note that the connection is gone. Called once."""
        ...


class FramedLimits:
    """What all framed connections of a process together may hold for their peers.

    Args:
        partial_bytes_max: bytes of frames that are not whole yet.
        untaken_bytes_max: bytes of messages that their owners have not taken.
        unread_bytes_max: bytes that clients have not received.
    """

    def __init__(
        self, partial_bytes_max: int, untaken_bytes_max: int, unread_bytes_max: int
    ) -> None:
        self.partial_input = HeldBytes(partial_bytes_max, "incomplete frames")
        self.untaken = HeldBytes(untaken_bytes_max, "messages that wait")
        self.unread = HeldBytes(unread_bytes_max, "unread answers")


class FramedConnection(ContainedBufferedProtocol):
    """A connection.

    Args:
        scratch: see ``FrameDecoder``.
        is_server: whether what the peer does not receive counts towards the limit of all
            connections.
        on_made: called when the connection is there, with this object; then ``user`` must be set.
    """

    user: FrameUser

    def __init__(
        self,
        tasks: Tasks,
        scratch: memoryview,
        limits: FramedLimits,
        on_made: Callable[[FramedConnection], None],
        *,
        is_server: bool,
    ) -> None:
        super().__init__(tasks)
        self.peer = "unknown"
        self._limits = limits
        self._is_server = is_server
        self._on_made = on_made
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(scratch, self._on_frame, OPEN_BYTES_MAX)
        self._is_ending = False
        self._is_lost = False
        self._has_received = False
        self.is_paused = False
        """Whether the peer does not receive, so that little more should be sent."""

    @property
    def is_open(self) -> bool:
        """Whether frames can be sent and received."""
        return not (self._is_ending or self._is_lost)

    @property
    def certificate(self) -> Certificate | None:
        """The peer's certificate, verified; ``None`` when it shows none."""
        transport = self._transport
        return None if transport is None else certificate_of(transport.get_extra_info("ssl_object"))

    @property
    def unsent_bytes(self) -> int:
        """The bytes that the kernel has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def note_untaken(self, size_bytes: int) -> None:
        """Count the messages that wait for their owner, towards the limit of all connections."""
        if not self._is_lost:
            self._limits.untaken.set(self, size_bytes)

    def allow(self, body_bytes_max: int) -> None:
        """Set the limit of a frame that is received from now on."""
        self._decoder.body_bytes_max = body_bytes_max

    # -- sending

    def send(self, kind: Kind, parts: Sequence[Buffer], size_bytes: int) -> None:
        """Send one frame whose body is the parts joined. Does nothing when the connection ends."""
        transport = self._transport
        if transport is None or not self.is_open:
            return
        head = HEADER.pack(size_bytes, kind)
        if size_bytes < _JOIN_BELOW_BYTES * len(parts):
            transport.write(b"".join((head, *parts)))
        else:
            transport.writelines((head, *parts))
        if self.is_paused:
            self._count_unread()

    def send_small(self, kind: Kind, body: bytes = b"") -> None:
        if self._transport is not None and self.is_open:
            self._transport.write(frame(kind, body))
            if self.is_paused:
                self._count_unread()

    # -- ending

    def abort(self, reason: str) -> None:
        """Close the connection now."""
        if self._transport is not None:
            _log.debug("connection aborted", peer=self.peer, reason=reason)
            self._is_ending = True
            self._decoder.stop()
            self._transport.abort()
            self._lose(reason)

    def end(self) -> None:
        """Close the connection after what was sent."""
        transport = self._transport
        if transport is None or not self.is_open:
            return
        self._is_ending = True
        self._decoder.stop()
        self._limits.partial_input.set(self, 0)
        if transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._end_now)

    def _end_now(self) -> None:
        # A transport of asyncio that ended meanwhile must not be aborted.
        if self._transport is not None:
            self._transport.abort()

    # -- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast("asyncio.Transport", transport)
        address = made.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "unknown"
        made.set_write_buffer_limits(high=_UNSENT_BYTES)
        _notice_dead_peers(made.get_extra_info("socket"))
        self._on_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        decoder = self._decoder
        self._has_received = True
        try:
            decoder.filled(nbytes)
        except FrameError as error:
            _log.warning("connection ended", peer=self.peer, reason=error)
            self.abort(str(error))
            return
        held_bytes = decoder.held_bytes
        if held_bytes or self._limits.partial_input.holds(self):
            self._limits.partial_input.set(self, held_bytes)

    def eof_received(self) -> bool:
        return False  # the loop closes the connection

    def pause_writing(self) -> None:
        self.is_paused = True
        self._count_unread()

    def resume_writing(self) -> None:
        self.is_paused = False
        if self._is_server:
            self._limits.unread.set(self, 0)
        self.user.on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self._lose(f"{self.peer} has left{self._hint()}")
        else:
            why = tls_reason(exc) if isinstance(exc, ssl.SSLError) else exc
            self._lose(f"{self.peer}: {why}")
        self._transport = None

    def _hint(self) -> str:
        """Return what may help, when a server leaves without a word."""
        if self._is_server or self._has_received or self._transport is None:
            return ""
        if self._transport.get_extra_info("ssl_object") is None:
            return " without a word; perhaps it speaks TLS there"
        return " without a word; perhaps it refuses this client's certificate, or requires one"

    def _count_unread(self) -> None:
        if self._is_server and not self._is_lost:
            self._limits.unread.set(self, max(1, self.unsent_bytes))

    def _lose(self, reason: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._decoder.stop()
            for held in (self._limits.partial_input, self._limits.untaken, self._limits.unread):
                held.set(self, 0)
            self.user.on_lost(reason)

    def _on_frame(self, kind: int, body: bytes) -> None:
        self.user.on_frame(kind, body)


def _notice_dead_peers(connection: socket.socket | None) -> None:
    """Have the kernel end a connection whose peer's machine is gone without a word."""
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS),
    ):
        number = getattr(socket, option, None)  # not on every system
        if number is not None:
            connection.setsockopt(socket.IPPROTO_TCP, number, value)
