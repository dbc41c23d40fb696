"""The two ends of a framed stream with the one interface ``Stream``.

A stream is a connection of its own. Each end may send what the other's *window* allows: the
receiver gives credit back as its owner takes messages. So an end never has to stop reading, and
notices at once when its peer aborts or dies, even while its owner takes nothing. What waits for an
owner is at most a window and one message.

A break is recorded in ``_broken``. It drops what was received and not taken, and wakes a waiting
``send`` and ``receive``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from pulsarish.runtime.framed.framed_connection import FramedConnection
from pulsarish.runtime.framed.frames import NUMBER, FrameError, Kind
from pulsarish.runtime.seams import Buffer, StreamBroken
from pulsarish.runtime.wake_signal import WakeSignal
from pulsarish.security.credentials import ANONYMOUS_CALLER, Caller

__all__ = ["WINDOW_BYTES", "FramedStream"]

WINDOW_BYTES: Final = 4 << 20
"""The bytes of messages that an end takes ahead of its owner."""
_CREDIT_BYTES: Final = WINDOW_BYTES // 4
_MESSAGE_COST_BYTES: Final = 64
"""What a message counts besides its bytes, so that many empty ones are limited, too."""
_REASON_BYTES_MAX: Final = 1_000


async def _raising(error: Exception) -> None:
    raise error


class FramedStream:
    """One end.

    Args:
        is_server: the server's end closes the connection when it finishes.
        message_bytes_max: the limit of a received message.
        sent_bytes_max: the limit of a message that is sent.
        on_over: called once when the connection has ended.
    """

    def __init__(
        self,
        connection: FramedConnection,
        *,
        peer: str,
        caller: Caller = ANONYMOUS_CALLER,
        is_server: bool,
        message_bytes_max: int,
        sent_bytes_max: int,
        on_over: Callable[[], None],
    ) -> None:
        self.peer = peer
        self.caller = caller
        self._connection = connection
        self._is_server = is_server
        self._message_bytes_max = message_bytes_max
        self._sent_bytes_max = sent_bytes_max
        self._on_over = on_over
        self._credit_bytes = 0  # what this end may still send
        self._inbox: deque[bytes] = deque()
        self._unread_bytes = 0  # received and not given back as credit
        self._taken_bytes = 0  # taken by the owner and not given back yet
        self._reader: asyncio.Future[None] | None = None
        self._on_delivery: Callable[[bytes], Awaitable[None] | None] | None = None
        self._handed: Awaitable[None] | None = None  # what its last call leaves to the owner's task
        self._fed: asyncio.Future[None] | None = None
        self._next_message: Callable[[], Sequence[Buffer] | None] | None = None
        self._signal = WakeSignal()
        self._is_stalled = False  # messages may wait that the peer did not take
        self._writer: asyncio.Future[None] | None = None
        self._accepted: asyncio.Future[None] | None = None
        self._broken: str | None = None
        self._finished = False  # this end sends nothing more
        self._ended = False  # the peer sends nothing more

    # -- the seam

    async def send(self, parts: Sequence[Buffer]) -> None:
        self._check()
        assert not self._finished, "send after finish"
        # A peer that gives credit and does not receive is waited for, too.
        while not self._has_room:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None
            self._check()
        self._send(parts)
        self._check()

    @property
    def _has_room(self) -> bool:
        return self._credit_bytes > 0 and not self._connection.is_paused

    def _send(self, parts: Sequence[Buffer]) -> None:
        size_bytes = 0
        for part in parts:
            size_bytes += len(part)
        if size_bytes > self._sent_bytes_max:
            self.abort(
                f"a message of {size_bytes} bytes is above the limit of {self._sent_bytes_max}"
            )
            return
        self._credit_bytes -= size_bytes + _MESSAGE_COST_BYTES
        self._connection.send(Kind.MESSAGE, parts, size_bytes)

    async def feed(
        self, next_message: Callable[[], Sequence[Buffer] | None], signal: WakeSignal
    ) -> None:
        self._check()
        loop = asyncio.get_running_loop()
        fed = self._fed = loop.create_future()
        self._next_message = next_message
        self._signal = signal
        signal.set()
        # In the next turn of the loop: what is waiting by then shares a message.
        signal.watch(lambda: loop.call_soon(self._pump))
        try:
            await fed
        finally:
            signal.watch(None)
            self._fed = self._next_message = None

    def _pump(self) -> None:
        """Send the owner's messages as long as the peer takes them."""
        fed, next_message = self._fed, self._next_message
        if fed is None or fed.done() or next_message is None:
            return
        self._signal.clear()
        try:
            while not (is_stalled := not self._has_room):
                parts = next_message()
                if parts is None:
                    break
                if not parts:
                    self._finish()
                    fed.set_result(None)
                    return
                self._send(parts)
                if self._broken is not None:
                    return
            self._is_stalled = is_stalled
        except Exception as error:
            # Whatever it is: the owner gets it, unless it ends already.
            if fed.done():
                raise
            fed.set_exception(error)

    async def receive(self) -> bytes | None:
        while not self._inbox:
            if not await self._wait_for_messages():
                return None
        return self._take()

    async def _wait_for_messages(self) -> bool:
        """Wait until there may be messages in the inbox; ``False`` after the last one."""
        if self._ended or (self._is_server and self._finished):
            return False
        self._check()
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None
        return True

    async def deliver(self, on_message: Callable[[bytes], Awaitable[None] | None]) -> None:
        while True:
            while self._inbox:
                waiting = on_message(self._take())
                if waiting is not None:
                    await waiting
            self._on_delivery = on_message
            try:
                if not await self._wait_for_messages():
                    return
            finally:
                self._on_delivery = None
            handed, self._handed = self._handed, None
            if handed is not None:
                await handed

    def _take(self) -> bytes:
        message = self._inbox.popleft()
        self._taken_bytes += len(message) + _MESSAGE_COST_BYTES
        if self._taken_bytes >= _CREDIT_BYTES:
            if self._unread_bytes >= _CREDIT_BYTES:
                self._connection.note_untaken(self._unread_bytes - self._taken_bytes)
            self._unread_bytes -= self._taken_bytes
            self._connection.send_small(Kind.CREDIT, NUMBER.pack(self._taken_bytes))
            self._taken_bytes = 0
        return message

    async def finish(self) -> None:
        self._finish()

    def _finish(self) -> None:
        if self._finished or self._broken is not None:
            return
        self._finished = True
        self._connection.send_small(Kind.FINISH)
        if self._is_server:
            self._inbox.clear()
            self._wake(self._reader)
            self._end()

    def abort(self, reason: str) -> None:
        if self._broken is not None or (self._is_server and self._finished):
            return
        connection = self._connection
        if connection.unsent_bytes:
            # Bytes wait that the peer does not receive: the reason would wait behind them.
            connection.abort(reason)
        else:
            connection.send_small(Kind.ABORT, reason.encode()[:_REASON_BYTES_MAX])
            self._end()
        self._break(reason)

    # -- opening

    def accept(self, window_bytes: int) -> None:
        """Let the client send, and send within its window."""
        self._credit_bytes = window_bytes
        self._connection.send_small(Kind.ACCEPTED, NUMBER.pack(WINDOW_BYTES))

    async def accepted(self, timeout_seconds: float) -> None:
        """Wait until the server's handler has the stream. Raises ``StreamBroken``."""
        if not self._credit_bytes and self._broken is None:
            self._accepted = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self._accepted
            except TimeoutError:
                self.abort(f"{self.peer} did not accept the stream in {timeout_seconds} s")
            finally:
                self._accepted = None
        if not self._ended:
            self._check()

    # -- what the connection reports

    def on_frame(self, kind: int, body: bytes) -> None:
        if kind == Kind.MESSAGE:
            self._on_message(body)
        elif kind == Kind.CREDIT and len(body) == NUMBER.size:
            self._credit_bytes += NUMBER.unpack(body)[0]
            self.on_writable()
        elif kind == Kind.FINISH:
            self._ended = True
            self._wake(self._reader)
            if not self._is_server:
                self._end()
                self._wake(self._writer)
                self._break_feed()
        elif kind == Kind.ABORT:
            self._end()
            self._break(f"{self.peer}: {body[:_REASON_BYTES_MAX].decode(errors='replace')}")
        elif kind == Kind.ACCEPTED and not self._is_server and len(body) == NUMBER.size:
            self._credit_bytes = NUMBER.unpack(body)[0]
            self._connection.allow(self._message_bytes_max)
            self._wake(self._accepted)
        else:
            raise FrameError(f"a frame of kind {kind} and {len(body)} bytes has no place here")

    def on_writable(self) -> None:
        self._wake(self._writer)
        if self._is_stalled:
            self._is_stalled = False
            self._signal.set()

    def on_lost(self, reason: str) -> None:
        if not (self._finished if self._is_server else self._ended):
            self._break(reason)
        self._on_over()

    def _on_message(self, body: bytes) -> None:
        if self._broken is not None:
            return
        if self._ended:
            raise FrameError("a message after the end")
        self._unread_bytes += len(body) + _MESSAGE_COST_BYTES
        if self._unread_bytes > WINDOW_BYTES + self._message_bytes_max + _MESSAGE_COST_BYTES:
            raise FrameError(f"the peer sent more than its window of {WINDOW_BYTES} bytes")
        if self._unread_bytes >= _CREDIT_BYTES:
            self._connection.note_untaken(self._unread_bytes)
        self._inbox.append(body)
        reader = self._reader
        if reader is None or reader.done():
            return
        if self._on_delivery is None:
            reader.set_result(None)
            return
        # The owner waits for messages: hand it this one without waking its task.
        try:
            self._handed = self._on_delivery(self._take())
        except Exception as error:  # noqa: BLE001
            # Whatever it is: the owner gets it.
            self._handed = _raising(error)
        if self._handed is not None:
            self._wake(reader)

    # -- ending

    def _end(self) -> None:
        self._connection.end()

    def _break(self, reason: str) -> None:
        if self._broken is None:
            self._broken = reason
            self._inbox.clear()
            for waiting in (self._reader, self._writer, self._accepted):
                self._wake(waiting)
            self._break_feed()

    def _break_feed(self) -> None:
        if self._fed is not None and not self._fed.done():
            try:
                self._check()
            except StreamBroken as broken:
                self._fed.set_exception(broken)

    def _check(self) -> None:
        if self._broken is not None:
            raise StreamBroken(self._broken)
        if self._ended and not self._is_server:
            raise StreamBroken(f"{self.peer} has ended the stream")

    def _wake(self, waiting: asyncio.Future[None] | None) -> None:
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
