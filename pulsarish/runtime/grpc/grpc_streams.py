"""The two ends of a gRPC stream with the one interface ``Stream``, on gRPC's C core.

A break is recorded in one place, ``Waits.broken``. It wakes a pending ``send`` and ``receive``: it
cancels the task that waits inside gRPC and turns that cancellation into ``StreamBroken``. There is
no other way to leave a write that flow control blocks because the peer has stopped reading. It
costs nothing while the stream is whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio

from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.endpoints import AUTH_DATA, AUTH_METHOD, FINISHED, Waits, joined
from pulsarish.runtime.network.peer_sockets import shut_down_connection
from pulsarish.runtime.network.stream_tasks import TaskStream
from pulsarish.runtime.seams import Buffer, StreamBroken
from pulsarish.security.credentials import (
    ANONYMOUS_CALLER,
    NO_CREDENTIALS,
    Caller,
    Certificate,
    Credentials,
    Secret,
)
from pulsarish.security.tls import parse_certificate

__all__ = ["ClientStream", "ServerStream", "caller_of", "peer_address"]

_log = get_logger("connections")

# Means "the stream has a handler". gRPC also gives empty metadata for a stream that was refused or
# lost its connection, and reports only later that it has ended.
_ACCEPTED = ("pulsarish-accepted", "1")
_STATUS_SECONDS = 0.25
"""How long to wait for the status of a stream whose metadata do not say that it was accepted.

Servers of older versions do not send it. The status of a refused stream has arrived by then.
"""

_FINISHED_HERE = "the stream was finished on this side"

# gRPC raises these on an ended call: a status, a failed batch, a misuse after the end, a stopped
# server.
_ENDED = (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError)


def caller_of(context: Any) -> Caller:
    """Return who the client of a stream or call says it is."""
    metadata = dict(context.invocation_metadata())
    # gRPC appends its own name to the name of a client.
    program = metadata.get("user-agent", "").partition(" ")[0]
    method = metadata.get(AUTH_METHOD, "")
    return Caller(
        peer_address(context),
        "" if program.startswith("grpc-") else program,
        Credentials(method, Secret(metadata.get(AUTH_DATA, b""))) if method else NO_CREDENTIALS,
        _certificate(context),
    )


def _certificate(context: Any) -> Certificate | None:
    """Return the client's certificate, which gRPC has verified."""
    # gRPC gives it only to servers that require one.
    encoded = context.auth_context().get("x509_pem_cert")
    return parse_certificate(encoded[0]) if encoded else None


def peer_address(context: Any) -> str:
    """Return the ``host:port`` of a client."""
    # gRPC puts the address family first, and writes the brackets of IPv6 as %5B and %5D.
    return unquote(context.peer().partition(":")[2])


class ClientStream(TaskStream):
    """The client's end.

    ``over`` is called once when the stream has ended. Its argument is true when the connection may
    be broken too.
    """

    def __init__(self, call: Any, address: str, over: Callable[[bool], None]) -> None:
        self.peer = address
        self.caller = ANONYMOUS_CALLER
        self._call = call
        self._over = over
        self._waits = Waits()
        self._finished = False
        self._suspect = False
        self._is_over = False
        self.lost_connection = False
        """The stream ended because there is no connection, not because the peer ended it."""
        call.add_done_callback(self._done)

    def _done(self, _call: Any) -> None:
        # gRPC calls back twice when a write fails while the status arrives.
        if not self._is_over:
            self._is_over = True
            self._over(self._suspect)

    async def accepted(self, timeout_seconds: float) -> None:
        """Wait until the peer's handler has the stream. Raises ``StreamBroken``."""
        try:
            async with asyncio.timeout(timeout_seconds):
                metadata = await self._waits.on(self._call.initial_metadata())
        except TimeoutError:
            self.abort(f"{self.peer} did not accept the stream in {timeout_seconds} s")
        else:
            if _ACCEPTED not in tuple(metadata or ()):
                await self._refused()
        self._waits.check()

    async def _refused(self) -> None:
        """End the stream with its status.

        Does nothing when it has none: then an older version has accepted it. Nor when it is ``OK``,
        which only a handler gives: gRPC may tell of the end of a short stream before its beginning.
        """
        try:
            async with asyncio.timeout(_STATUS_SECONDS):
                code = await self._waits.on(self._call.code())
        except TimeoutError:
            return
        if self._waits.broken is None and code is not grpc.StatusCode.OK:
            self._waits.end(await self._why())

    async def send(self, parts: Sequence[Buffer]) -> None:
        self._waits.check()
        assert not self._finished, "send after finish"
        try:
            await self._waits.on(self._call.write(joined(parts)))
        except _ENDED:
            raise StreamBroken(await self._why()) from None

    async def receive(self) -> bytes | None:
        self._waits.check()
        try:
            message = await self._waits.on(self._call.read())
        except _ENDED:
            raise StreamBroken(await self._why()) from None
        if message is grpc.aio.EOF:
            return None
        data: bytes = message
        return data

    async def finish(self) -> None:
        if self._finished or self._waits.broken is not None:
            return
        self._finished = True
        try:
            await self._waits.on(self._call.write(FINISHED))
            await self._waits.on(self._call.done_writing())
        except (*_ENDED, StreamBroken):
            # Over already; ``receive`` reports it to the owner.
            return

    def abort(self, reason: str) -> None:
        if self._waits.end(reason):
            # The reason to abort is often that the peer stopped answering, perhaps because the
            # connection is lost.
            self._suspect = True
            self._call.cancel()

    async def _why(self) -> str:
        if self._waits.broken is not None:
            return self._waits.broken
        code = await self._call.code()
        self.lost_connection = code is grpc.StatusCode.UNAVAILABLE
        return f"{self.peer}: {await self._call.details() or 'the stream has ended'} ({code.name})"


class ServerStream(TaskStream):
    """The server's end.

    gRPC's handler coroutine waits in ``over``; everything else belongs to the application's tasks.

    After ``over`` has returned, gRPC frees the call, so no code here touches the context then.
    """

    def __init__(self, context: Any) -> None:
        self.caller = caller_of(context)
        self.peer = self.caller.address
        self._context = context
        self._waits = Waits()
        self._quiet = False  # this end receives nothing more, and that is not an error
        self._finished = False
        self._sending = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def accept(self) -> None:
        """Send the client that its stream has a handler."""
        await self._context.send_initial_metadata((_ACCEPTED,))

    async def over(self) -> None:
        """Wait until this end finishes or aborts, or the client leaves (which cancels this
        coroutine).
        """
        try:
            await self._over
        except asyncio.CancelledError:
            self._waits.end(f"{self.peer} has left")
            raise
        if self._waits.broken is not None:
            self._context.set_code(grpc.StatusCode.ABORTED)
            self._context.set_details(self._waits.broken)
        else:
            # The final status ends pending reads. The owner has finished and sees a regular end.
            self._quiet = True
            self._waits.end(_FINISHED_HERE)

    async def send(self, parts: Sequence[Buffer]) -> None:
        self._waits.check()
        assert not self._finished, "send after finish"
        self._sending = True
        try:
            await self._waits.on(self._context.write(joined(parts)))
        except _ENDED:
            self._waits.end(f"{self.peer} has left")
            self._waits.check()
        finally:
            self._sending = False

    async def receive(self) -> bytes | None:
        if self._quiet:
            return None
        self._waits.check()
        try:
            message: Any = await self._waits.on(self._context.read())
        except _ENDED:
            message = grpc.aio.EOF
        except StreamBroken:
            # This end finished while it read: not an error.
            message = FINISHED if self._waits.broken == _FINISHED_HERE else grpc.aio.EOF
        if message is grpc.aio.EOF:
            self._waits.end(f"{self.peer} has left")
            self._waits.check()
        if message == FINISHED:
            self._quiet = True
            return None
        data: bytes = message
        return data

    async def finish(self) -> None:
        self._finished = True
        if not self._over.done():
            self._over.set_result(None)

    def abort(self, reason: str) -> None:
        if self._waits.end(reason) and not self._over.done():
            self._over.set_result(None)
            if self._sending and not shut_down_connection(self.peer):
                # The peer does not read, and the core would keep the message as long as the
                # connection is open.
                _log.debug("no connection to end", peer=self.peer)
