"""One client's TCP connection to ``pulsarish metadata``.

It reads frames, submits jobs to the commit engine and sends their answers. It also answers
four-letter words.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Final, Protocol, cast

from pulsarish.metadata.daemon.jobs import ConnectJob, RequestJob
from pulsarish.metadata.daemon.limits import ANSWER_MAX_BYTES, PeerLimits
from pulsarish.metadata.daemon.sessions import SessionTable
from pulsarish.metadata.daemon.zkwire import (
    CONNECT_MAX_BYTES,
    LongReply,
    Malformed,
    UnsupportedRequest,
    decode_connect,
    decode_request,
)
from pulsarish.metadata.tree.engine import Job, JobQueue
from pulsarish.runtime.contained_protocol import ContainedProtocol
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Tasks
from pulsarish.security.credentials import Certificate
from pulsarish.security.tls import certificate_of

__all__ = ["Connection", "Server"]

_LENGTH: Final = struct.Struct(">i")
_FLUSH_BYTES: Final = 1 << 20
"""Bytes sent in one turn of the loop: a client that receives everything at once must not delay the
others.
"""
_WRITE_BYTES: Final = 64 << 10
_COUNTED_BYTES: Final = 4 << 10
"""The bytes that a connection holds are counted above this.

Smaller ones would pay for the count and hold next to nothing.
"""
_LOGIN: Final = "the login"
_log = get_logger("metadata.connection")


class Server(Protocol):
    """The daemon, as a connection needs it."""

    tasks: Tasks
    table: SessionTable
    limits: PeerLimits
    request_bytes_max: int
    outstanding_requests_max: int
    requires_login: bool

    def refusal(self, certificate: Certificate | None) -> str:
        """Return why a client with TLS is refused; empty when it is not."""
        ...

    def admit(self, connection: Connection) -> str:
        """Count a new connection. Return why it is refused, or an empty string."""
        ...

    def left(self, connection: Connection) -> None: ...

    def heard(self, session_id: int) -> None:
        """Note that the session sent something."""
        ...

    def submit(self, job: Job, queue: JobQueue) -> bool:
        """Queue a job. Return False when the daemon stops."""
        ...

    def resume(self, queue: JobQueue) -> None: ...

    def drop(self, queue: JobQueue) -> None:
        """Forget the jobs of the queue."""
        ...

    def has_answers(self, connection: Connection) -> None:
        """Note that the connection needs ``flush`` at the end of the batch."""
        ...

    def flush_soon(self, connection: Connection) -> None:
        """Note that the connection needs ``flush`` in the next turn of the loop."""
        ...

    def answer_word(self, word: bytes, address: str) -> str | None:
        """Return the answer to a four-letter word from an address; ``None``: it is no word."""
        ...


class Connection(ContainedProtocol):
    """Read frames in order, and send their answers.

    The connection stops reading while too many requests are unanswered, or too many answers are not
    received. It is aborted when its peer keeps it waiting too long: for the handshake, for the rest
    of a request, or for receiving answers.
    """

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server.tasks)
        self.session_id = 0
        self.is_admitted = not server.requires_login
        self.number = number
        self.address = ""
        self.gone = False
        self.queue = JobQueue()
        self._server = server
        self._limits = server.limits
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._shaken_hands = False
        self._outstanding = 0
        self._outstanding_bytes = 0
        self._answers: deque[bytes | LongReply] = deque()
        self._unsent_bytes = 0  # of answers that are given or decided
        self._wants_flush = False
        self._ending = False
        self._aborted = False
        self._paused_by_client = False
        self._reading = True
        self._waits_for = ""
        self._progressed = False
        self._requests_held = 0
        self._answers_held = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport but do not inherit from it.
        self._transport = cast("asyncio.Transport", transport)
        self.address = str((transport.get_extra_info("peername") or ("unknown",))[0])
        refused = self._server.admit(self)
        secured = transport.get_extra_info("ssl_object")
        if not refused and secured is not None:
            refused = self._server.refusal(certificate_of(secured))
        if refused:
            self.abort(refused)
        else:
            self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.gone = True
        self._received.clear()
        self._answers.clear()
        self._limits.leave(self)
        if self.queue.paused:  # its requests waited for a client that does not receive its answers
            self._drop_requests()
        self._count_requests()
        self._server.left(self)

    def pause_writing(self) -> None:
        self._paused_by_client = True

    def resume_writing(self) -> None:
        self._paused_by_client = False
        self._progressed = True
        self._server.flush_soon(self)

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        self._received += data
        if self.session_id:
            self._server.heard(self.session_id)
        self._take_requests()
        self._look()

    def _take_requests(self) -> None:
        """Decode and submit received requests, up to the number that the client may have in
        progress.
        """
        received = self._received
        at = 0
        while len(received) - at >= 4 and self._may_ask():
            if not self._shaken_hands:
                answer = self._server.answer_word(bytes(received[at : at + 4]), self.address)
                if answer is not None:
                    self._end_with(answer.encode())
                    return
            (size,) = _LENGTH.unpack_from(received, at)
            limit = self._server.request_bytes_max if self._shaken_hands else CONNECT_MAX_BYTES
            if not 0 <= size <= limit:
                what = "a request" if self._shaken_hands else "a handshake"
                self.abort(f"{what} of {size} bytes; at most {limit} are accepted")
                return
            if len(received) - at - 4 < size:
                break
            frame = bytes(received[at + 4 : at + 4 + size])
            at += 4 + size
            try:
                job = self._job(frame)
            except Malformed as error:
                self.abort(str(error))
                return
            if not self._server.submit(job, self.queue):
                return
            self._outstanding += 1
            self._outstanding_bytes += size
            self._progressed = True
        del received[:at]

    def _may_ask(self) -> bool:
        # Resume only at half, so that reading does not stop and start with every request.
        count_limit, bytes_limit = (
            self._server.outstanding_requests_max,
            self._server.request_bytes_max,
        )
        if not self._reading:
            count_limit, bytes_limit = count_limit // 2 or 1, bytes_limit // 2
        return (
            not self.queue.paused
            and self._outstanding < count_limit
            and self._outstanding_bytes < bytes_limit
        )

    def _job(self, frame: bytes) -> Job:
        if self._shaken_hands:
            logins = self._server.table.logins
            xid, request = decode_request(frame, () if logins is None else logins.identities())
            if isinstance(request, UnsupportedRequest) and request.reason:
                _log.warning(
                    "request refused",
                    connection=self.number,
                    session=f"{self.session_id:#x}",
                    reason=request.reason,
                )
            return RequestJob(self._server.table, self, xid, request, len(frame))
        self._shaken_hands = True
        return ConnectJob(self._server.table, self, decode_connect(frame), len(frame))

    def attach(self, session_id: int) -> None:
        self.session_id = session_id
        if self.is_admitted:
            self._limits.slots.mark_active(self)

    def admit(self) -> None:
        self.is_admitted = True
        self._limits.slots.mark_active(self)

    def detach(self) -> None:
        self.session_id = 0
        self.end()

    def expect(self, answer: bytes | LongReply) -> None:
        self._unsent_bytes += len(answer) if isinstance(answer, bytes) else answer.size_bytes
        if self._unsent_bytes > ANSWER_MAX_BYTES:
            self.queue.paused = True

    def answer(self, answer: bytes | LongReply) -> None:
        if self._transport is not None:
            self._answers.append(answer)
            if not self._wants_flush:
                self._want_flush()

    def answered(self, size_bytes: int) -> None:
        self._outstanding -= 1
        self._outstanding_bytes -= size_bytes
        if not self._wants_flush:
            self._want_flush()

    def end(self) -> None:
        self._ending = True
        self._limits.slots.mark_waiting(self)
        self._want_flush()

    def _want_flush(self) -> None:
        if not self._wants_flush:
            self._wants_flush = True
            self._server.has_answers(self)

    def flush(self) -> int:
        """Send queued answers as far as the client receives them, and read again if allowed.

        Return the number of answers sent.
        """
        self._wants_flush = False
        if self._transport is None or self._transport.is_closing():
            self._count_requests()
            return 0
        count = self._send()
        if self.queue.paused and self._unsent_bytes <= ANSWER_MAX_BYTES // 2:
            self._server.resume(self.queue)
        if self._answers:
            if not self._paused_by_client:
                self._server.flush_soon(self)
        elif self._ending:
            self._transport.close()
        if not self._ending:
            self._take_requests()
        self._look()
        return count

    def _send(self) -> int:
        assert self._transport is not None
        room_bytes, count, small = _FLUSH_BYTES, 0, list[bytes]()
        small_bytes = 0
        while self._answers and not self._paused_by_client and room_bytes > 0:
            answer = self._answers[0]
            if isinstance(answer, bytes):
                self._answers.popleft()
                count += 1
                small.append(answer)
                small_bytes += len(answer)
                room_bytes -= len(answer)
                self._unsent_bytes -= len(answer)
                if small_bytes < _WRITE_BYTES and self._answers:
                    continue
            if small:
                self._transport.write(b"".join(small))
                small.clear()
                small_bytes = 0
            if isinstance(answer, LongReply):
                piece = next(answer.pieces, None)
                if piece is None:
                    self._answers.popleft()
                    count += 1
                    self._unsent_bytes -= answer.size_bytes
                else:
                    self._transport.write(piece)
                    room_bytes -= len(piece)
        if small:
            self._transport.write(b"".join(small))
        return count

    def abort(self, reason: str) -> None:
        """Close the connection now: the peer exceeded a limit, sent something that is not a
        request, or was too slow.
        """
        if self._aborted:
            return
        self._ending = self._aborted = True
        _log.warning(
            "connection ended",
            connection=self.number,
            address=self.address,
            session=f"{self.session_id:#x}",
            reason=reason,
        )
        self._drop_requests()
        if self._transport is not None:
            self._transport.abort()
        else:
            self._server.left(self)  # the queued jobs of this connection were dropped, too

    def abort_late(self) -> None:
        """Close the connection now: the peer's time has passed."""
        self.abort(f"waited {self._limits.deadlines.seconds:g} s for {self._waits_for}")

    def _drop_requests(self) -> None:
        self._outstanding_bytes -= sum(job.size_bytes for job in self.queue.jobs)
        self._server.drop(self.queue)

    def _end_with(self, content: bytes) -> None:
        self._ending = True
        self._received.clear()
        if self._transport is not None:
            self._transport.write(content)
            self._transport.close()

    def _look(self) -> None:
        """Read or pause, count what the peer holds, and start or end its time."""
        transport = self._transport
        if transport is None:
            return
        unsent_bytes = self._unsent_bytes if self._answers else 0
        if self._paused_by_client:
            unsent_bytes += transport.get_write_buffer_size()
        if unsent_bytes < _COUNTED_BYTES:
            unsent_bytes = 0
        if unsent_bytes != self._answers_held:
            self._answers_held = unsent_bytes
            self._limits.answers.set(self, unsent_bytes)
        self._count_requests()
        self._time(self._what_the_peer_owes())
        if transport.is_closing():
            return
        wanted = not self._paused_by_client and not self._ending and self._may_ask()
        if wanted != self._reading:
            self._reading = wanted
            (transport.resume_reading if wanted else transport.pause_reading)()

    def _what_the_peer_owes(self) -> str:
        if self._paused_by_client or self._ending:
            return "it to receive its answers"
        if not self.session_id:
            return "" if self._outstanding else "the handshake"
        if not self.is_admitted:
            return _LOGIN
        return "the rest of a request" if self._received and self._may_ask() else ""

    def _time(self, waits_for: str) -> None:
        # What a client sends before its login gives it no more time for that.
        goes_on = self._progressed and waits_for != _LOGIN
        if waits_for == self._waits_for and not (waits_for and goes_on):
            return
        self._waits_for, self._progressed = waits_for, False
        if waits_for:
            self._limits.deadlines.start(self)
        else:
            self._limits.deadlines.stop(self)

    def _count_requests(self) -> None:
        held_bytes = len(self._received) + self._outstanding_bytes
        if held_bytes < _COUNTED_BYTES:
            held_bytes = 0
        if held_bytes != self._requests_held:
            self._requests_held = held_bytes
            self._limits.requests.set(self, held_bytes)
