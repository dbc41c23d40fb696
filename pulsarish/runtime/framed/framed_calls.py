"""Calls over one framed connection: many at a time, answered in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from pulsarish.runtime.framed.framed_connection import FramedConnection
from pulsarish.runtime.framed.frames import NUMBER, FrameError, Kind
from pulsarish.runtime.network.handlers import CallRefused, answer_call
from pulsarish.runtime.seams import CallFailed, CallHandler, StreamBroken, Tasks
from pulsarish.security.credentials import Caller, Credentials

__all__ = ["CallClient", "CallServer"]

_NUMBER_MAX: Final = (1 << 32) - 1
_CALLS_MAX: Final = 1_000
"""Calls of one connection that a server works on at a time."""


class CallClient:
    """The caller's end.

    Args:
        address: of the server, for errors.
        on_over: called once when the connection has ended.
        shown: the credentials of all calls of this connection.
    """

    def __init__(
        self,
        connection: FramedConnection,
        address: str,
        message_bytes_max: int,
        on_over: Callable[[], None],
        shown: Credentials,
    ) -> None:
        self.answered_count = 0
        self.shown = shown
        self.made_at = asyncio.get_running_loop().time()
        self._connection = connection
        self._address = address
        self._message_bytes_max = message_bytes_max
        self._on_over = on_over
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._number = 0
        self._is_retired = False
        self._accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_usable(self) -> bool:
        return self._connection.is_open

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    async def accepted(self) -> None:
        """Wait until the server takes calls. Raises ``StreamBroken``."""
        await self._accepted

    async def call(self, method: str, request: bytes) -> bytes:
        """Send one request and return its answer.

        Raises ``CallFailed``, ``StreamBroken``. The caller sets the timeout.
        """
        if not self._connection.is_open:
            raise StreamBroken(f"{self._address}: the connection has ended")
        self._number = number = self._number % _NUMBER_MAX + 1
        name = method.encode()
        head = NUMBER.pack(number) + bytes((len(name),)) + name
        size_bytes = len(head) + len(request)
        if size_bytes > self._message_bytes_max:
            raise CallFailed(
                f"{method} at {self._address}: a request of {len(request)} bytes is above the "
                f"limit of {self._message_bytes_max}"
            )
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        self._connection.send(Kind.CALL, (head, request), size_bytes)
        try:
            return await waiting
        except CallFailed as failed:
            raise CallFailed(f"{method} at {self._address}: {failed}") from None
        finally:
            self._waiting.pop(number, None)
            if self._is_retired and not self._waiting:
                self.close("no longer used")

    def retire(self) -> None:
        """End the connection once no call waits on it."""
        self._is_retired = True
        if not self._waiting:
            self.close("no longer used")

    def close(self, reason: str) -> None:
        self._connection.abort(reason)

    # -- what the connection reports

    def on_frame(self, kind: int, body: bytes) -> None:
        if kind == Kind.ACCEPTED:
            self._connection.allow(self._message_bytes_max)
            if not self._accepted.done():
                self._accepted.set_result(None)
        elif kind in (Kind.ANSWER, Kind.FAILED) and len(body) >= NUMBER.size:
            self.answered_count += 1
            waiting = self._waiting.get(NUMBER.unpack_from(body)[0])
            if waiting is None or waiting.done():
                return  # its caller no longer waits
            if kind == Kind.ANSWER:
                waiting.set_result(body[NUMBER.size :])
            else:
                waiting.set_exception(CallFailed(body[NUMBER.size :].decode(errors="replace")))
        elif kind == Kind.ABORT:
            self._connection.abort(f"{self._address}: {body.decode(errors='replace')}")
        else:
            raise FrameError(f"a frame of kind {kind} and {len(body)} bytes has no place here")

    def on_writable(self) -> None:
        """Do nothing: requests are small, and each caller waits for its answer."""

    def on_lost(self, reason: str) -> None:
        error = StreamBroken(f"{self._address}: {reason}")
        if not self._accepted.done():
            self._accepted.set_exception(error)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
        self._on_over()


class CallServer:
    """The server's end."""

    def __init__(
        self,
        connection: FramedConnection,
        tasks: Tasks,
        handlers: Mapping[str, CallHandler],
        caller: Caller,
        on_over: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._tasks = tasks
        self._handlers = handlers
        self._caller = caller
        self._on_over = on_over
        self._running_count = 0
        self._is_stopping = False
        connection.send_small(Kind.ACCEPTED, NUMBER.pack(0))

    def stop(self) -> None:
        """Take no more calls. The connection ends once the running ones are answered."""
        self._is_stopping = True
        self._end_when_idle()

    def abort(self, reason: str) -> None:
        self._connection.abort(reason)

    def on_frame(self, kind: int, body: bytes) -> None:
        if kind != Kind.CALL or len(body) <= NUMBER.size:
            raise FrameError(f"a frame of kind {kind} and {len(body)} bytes has no place here")
        if self._is_stopping:
            return  # the end of the connection is the answer
        number = body[: NUMBER.size]
        start = NUMBER.size + 1 + body[NUMBER.size]
        try:
            method = body[NUMBER.size + 1 : start].decode()
        except UnicodeDecodeError:
            raise FrameError("the name of a method is not text") from None
        handler = self._handlers.get(method)
        if handler is None:
            self._connection.send_small(Kind.FAILED, number + f"no method {method!r}".encode())
        elif self._running_count >= _CALLS_MAX:
            why = f"{_CALLS_MAX} calls of this connection are under way, the limit"
            self._connection.send_small(Kind.FAILED, number + why.encode())
        else:
            self._running_count += 1
            _ = self._tasks.spawn(
                self._answer(number, method, handler, body[start:]), name=f"call {method}"
            )

    async def _answer(
        self, number: bytes, method: str, handler: CallHandler, request: bytes
    ) -> None:
        try:
            answer = await answer_call(self._tasks, method, handler, request, self._caller)
        except CallRefused as refused:
            self._connection.send_small(Kind.FAILED, number + str(refused).encode())
        else:
            self._connection.send(Kind.ANSWER, (number, answer), len(number) + len(answer))
        finally:
            self._running_count -= 1
            self._end_when_idle()

    def _end_when_idle(self) -> None:
        if self._is_stopping and not self._running_count:
            self._connection.end()

    def on_writable(self) -> None:
        """Do nothing: unread answers of all connections are limited."""

    def on_lost(self, reason: str) -> None:
        self._on_over()
