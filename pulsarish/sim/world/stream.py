"""The two ends of a simulated stream: whole messages in order until the stream breaks."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from pulsarish.runtime.network.stream_tasks import TaskStream
from pulsarish.runtime.seams import Buffer, StreamBroken
from pulsarish.security.credentials import ANONYMOUS_CALLER, Caller
from pulsarish.sim.world.network import Network, Wire

if TYPE_CHECKING:
    from pulsarish.sim.world.nodes import Process

__all__ = ["SimStream"]

# How far a sender may be ahead of the reader before ``send`` waits. gRPC and the kernel together
# buffer about this much.
SEND_AHEAD_BYTES = 4 * 1024 * 1024
YIELD_CHANCE = 0.25  # the chance that ``send`` lets other tasks run although the transport has room
SETTLE_SECONDS = 1.0  # until an end of a connection that a partition killed notices it


class SimStream(TaskStream):
    """One end of a stream.

    ``other`` is set when both exist. This end's wire carries messages to it.
    """

    other: SimStream

    def __init__(
        self,
        network: Network,
        number: int,
        process: Process,
        peer: str,
        out: Wire,
        caller: Caller = ANONYMOUS_CALLER,
    ) -> None:
        self.number = number
        self.peer = peer
        self.caller = caller
        self.process = process
        self._network = network
        self._out = out
        self._inbox: deque[bytes] = deque()
        # sent by the other end and not received here yet: on its way or in the inbox
        self._unread_bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._broken: str | None = None
        self._finished = False  # this end sends nothing more
        # the other end sends nothing more, and everything that it sent is in the inbox
        self._ended = False
        # for a client's end: the server has finished, so it reads nothing more of ours
        self._closed = False
        self._is_server = False

    def wires(self) -> tuple[Wire, Wire]:
        return self._out, self.other._out

    @property
    def is_open(self) -> bool:
        """Return whether this end has not seen its end.

        A process that dies while it connects leaves a half-open connection.
        """
        return self._broken is None and not self._closed

    # -- the seam

    async def send(self, parts: Sequence[Buffer]) -> None:
        self.process.check()
        self._raise_if_gone()
        assert not self._finished, "send after finish"
        message = self._network.carried(self._out.link, b"".join(parts))
        other = self.other
        other._unread_bytes += len(message)
        self._out.carry(lambda: other._arrive(message))
        if self._network.chance(YIELD_CHANCE):
            await asyncio.sleep(0)
        while other._unread_bytes > SEND_AHEAD_BYTES and self._broken is None and not self._closed:
            self._writer = self._network.loop.create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        self._raise_if_gone()

    async def receive(self) -> bytes | None:
        self.process.check()
        while not self._inbox:
            self._raise_if_broken()
            if self._ended:
                return None
            self._reader = self._network.loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._inbox.popleft()
        self._unread_bytes -= len(message)
        self.other._wake(self.other._writer)
        return message

    async def finish(self) -> None:
        self.process.check()
        if self._finished or self._closed or self._broken is not None:
            return
        self._finished = True
        self._out.carry(self.other._arrive_end)

    def abort(self, reason: str) -> None:
        if self._broken is not None or not self.process.alive:
            return
        self._break(reason)
        if not self._closed:
            other = self.other
            self._out.carry(lambda: other._break(f"the peer broke the stream: {reason}"))

    def draw_size(self, most: int) -> int:
        """Return how much of ``most`` bytes goes out at once on a byte connection: usually all,
        sometimes a piece cut anywhere.
        """
        return self._network.draw_size(most)

    # -- the server's side

    def serve(self, handler: Callable[[SimStream], Awaitable[None]]) -> asyncio.Task[None]:
        """Run the handler of this server end. The stream ends with the handler."""
        self._is_server = True
        return self._network.loop.create_task(self._handle(handler), name=f"stream-{self.number}")

    async def _handle(self, handler: Callable[[SimStream], Awaitable[None]]) -> None:
        try:
            await handler(self)
        except StreamBroken as error:
            self.abort(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            self.abort(f"the handler raised {error!r}")
            self.process.node.report(f"the handler of stream {self.number} raised", error)
        else:
            await self.finish()

    # -- what the network does with this end

    def _arrive(self, message: bytes) -> None:
        if self._broken is not None or not self.process.alive:
            return
        self._network.trace(
            f"net {self.number}{'>' if self._is_server else '<'} {len(message)} "
            f"{zlib.crc32(message):08x}"
        )
        self._inbox.append(message)
        self._wake(self._reader)

    def _arrive_end(self) -> None:
        if self._broken is not None:
            return
        self._ended = True
        self._wake(self._reader)
        if not self._is_server:
            self._closed = True
            self._wake(self._writer)
            self.other._break("the stream is closed")
            self._network.forget(self.number)

    def _break(self, reason: str) -> None:
        if self._broken is not None:
            return
        self._broken = reason
        self._inbox.clear()
        self._network.trace(f"net break {self.number} {self.process}: {reason}")
        self._wake(self._reader)
        self._wake(self._writer)
        if self.other._broken is not None:
            self._network.forget(self.number)

    def process_died(self, process: Process) -> None:
        for end in (self, self.other):
            if end.process is process:
                end._die()

    def _die(self) -> None:
        other = self.other
        if self._broken is None:
            self._out.carry(lambda: other._break("connection reset: the peer died"))
        self._broken = "the process died"
        if other._broken is not None:
            self._network.forget(self.number)

    def lose(self, reason: str) -> None:
        """Lose the connection in a partition.

        Each end notices it at its own time. What was on its way is lost.
        """
        for end in (self, self.other):
            end._out.kill()
            self._network.loop.call_later(
                SETTLE_SECONDS, end._break, reason, context=self._network.context
            )

    # -- helpers

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise StreamBroken(f"{self.peer}: {self._broken}")

    def _raise_if_gone(self) -> None:
        self._raise_if_broken()
        if self._closed:
            raise StreamBroken(f"{self.peer}: the server closed the stream")

    def _wake(self, waiter: asyncio.Future[None] | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
