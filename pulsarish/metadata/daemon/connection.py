"""One client's TCP connection to ``pulsarish metadata``: frames in, jobs to the commit engine, frames out; and four-letter words."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final, Protocol, cast

from pulsarish.metadata.daemon.jobs import ConnectJob, RequestJob, SessionTable
from pulsarish.metadata.daemon.zkwire import Malformed, decode_connect, decode_request
from pulsarish.metadata.tree.engine import Job
from pulsarish.runtime.log import get_logger

__all__ = ["Connection", "Server"]

_LENGTH: Final = struct.Struct(">i")
_log = get_logger("metadata.connection")


class Server(Protocol):
    """What a connection needs of its daemon."""

    table: SessionTable
    request_bytes_max: int
    outstanding_requests_max: int

    def admit(self, connection: Connection) -> bool:
        """Count a new connection; False when there are too many or the daemon stops."""
        ...

    def left(self, connection: Connection) -> None: ...

    def heard(self, session_id: int) -> None:
        """Something came from the session."""
        ...

    def submit(self, job: Job) -> bool:
        """Queue a job; False when the daemon stops."""
        ...

    def has_frames(self, connection: Connection) -> None:
        """The connection wants ``flush`` at the end of the batch."""
        ...

    @property
    def words(self) -> dict[bytes, Callable[[], str]]: ...


class Connection(asyncio.Protocol):
    """Reads frames in order and stops reading while too many requests are unanswered or the client does not take its answers."""

    def __init__(self, server: Server, number: int) -> None:
        self.session_id = 0
        self.number = number
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._shaken_hands = False
        self._outstanding = 0
        self._frames: list[bytes] = []
        self._ending = False
        self._paused_by_client = False
        self._reading = True

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._transport = cast("asyncio.Transport", transport)
        if not self._server.admit(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.left(self)

    def pause_writing(self) -> None:
        self._paused_by_client = True
        self._pace()

    def resume_writing(self) -> None:
        self._paused_by_client = False
        self._pace()

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        self._received += data
        if self.session_id:
            self._server.heard(self.session_id)
        at = 0
        received = self._received
        while len(received) - at >= 4:
            word = None if self._shaken_hands else self._server.words.get(bytes(received[at : at + 4]))
            if word is not None:
                self._end_with(word().encode())
                return
            (size,) = _LENGTH.unpack_from(received, at)
            if not 0 <= size <= self._server.request_bytes_max:
                self._refuse(f"a request of {size} bytes; at most {self._server.request_bytes_max} are taken")
                return
            if len(received) - at - 4 < size:
                break
            frame = bytes(received[at + 4 : at + 4 + size])
            at += 4 + size
            try:
                job = self._job(frame)
            except Malformed as error:
                self._refuse(str(error))
                return
            if not self._server.submit(job):
                return
            self._outstanding += 1
        del received[:at]
        self._pace()

    def _job(self, frame: bytes) -> Job:
        if self._shaken_hands:
            return RequestJob(self._server.table, self, *decode_request(frame))
        self._shaken_hands = True
        return ConnectJob(self._server.table, self, decode_connect(frame))

    def _refuse(self, reason: str) -> None:
        _log.warning("connection refused", connection=self.number, session=f"{self.session_id:#x}", reason=reason)
        self.close()

    def _pace(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        limit = self._server.outstanding_requests_max
        # Resuming at half keeps the two from alternating with every request.
        wanted = not self._paused_by_client and self._outstanding < (limit if self._reading else limit // 2)
        if wanted != self._reading:
            self._reading = wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    # The jobs' side

    def answer(self, frame: bytes) -> None:
        if self._transport is not None:
            if not self._frames:
                self._server.has_frames(self)
            self._frames.append(frame)

    def answered(self) -> None:
        self._outstanding -= 1

    def end(self) -> None:
        self._ending = True
        self._server.has_frames(self)

    def flush(self) -> int:
        """Send what the batch queued; the number of frames."""
        count = len(self._frames)
        if self._transport is not None:
            if self._frames:
                self._transport.write(b"".join(self._frames))
                self._frames.clear()
            if self._ending:
                self._transport.close()
            else:
                self._pace()
        return count

    def close(self) -> None:
        self._ending = True
        if self._transport is not None:
            self._transport.abort()

    def _end_with(self, content: bytes) -> None:
        self._ending = True
        if self._transport is not None:
            self._transport.write(content)
            self._transport.close()
