"""The life of one stream to one bookie, whatever it carries: connect, send, receive answers, detect
silence, break off, back off.

Promises:
* At most ``unanswered_messages_max`` messages are unanswered. What waits meanwhile is joined into
  the next message. A subclass may say that little waits. Then the stream waits for one answer
  first: that costs a round trip and saves both sides a message.
* One reader task and one writer task own the stream. Neither ``send`` nor ``receive`` ever has a
  timeout. ``tick`` detects silence from outside, and ``abort`` ends it.
* When the stream is lost, for any reason, ``_lost`` is called once. The subclass then fails
  everything that is unanswered or waits.
* Nothing is tried again before its back-off has passed. Meanwhile the bookie is ``down``, and a
  sender gets this answer at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from google.protobuf.message import DecodeError

from pulsarish.ledger.options import LedgerOptions
from pulsarish.model.errors import ChecksumError
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import (
    FINISH,
    Buffer,
    ClientConnections,
    Clock,
    Stream,
    StreamBroken,
    Tasks,
)
from pulsarish.runtime.wake_signal import WakeSignal

__all__ = ["BookieStream", "StreamWorld"]


class StreamWorld(Protocol):
    """The part of a ``World`` that a stream needs."""

    @property
    def clock(self) -> Clock: ...

    @property
    def tasks(self) -> Tasks: ...

    @property
    def connections(self) -> ClientConnections: ...


class BookieStream:
    """Base of the add stream and the read stream.

    ``method`` and ``lane`` are those of the ``ClientConnections`` seam.
    """

    def __init__(
        self,
        world: StreamWorld,
        options: LedgerOptions,
        book: AddressBook,
        member: str,
        *,
        method: str,
        lane: str,
    ) -> None:
        self.member = member
        self._world = world
        self._clock = world.clock
        self._options = options
        self._book = book
        self._method = method
        self._lane = lane
        self.scope = Scope(ScopeKind.CONNECTION, f"{method} of {member}", self._failed)
        self._stream: Stream | None = None
        self._signal = WakeSignal()
        self._connecting = False
        self._closed = False
        self._sent_count = 0  # messages on this stream
        self._answered_count = 0
        self._waiting_since = 0.0  # when the wait for the next answer, or for the connection, began
        self._last_heard = 0.0
        self._backoff = Backoff(
            options.reconnect_backoff_min_ms / 1000, options.reconnect_backoff_max_ms / 1000
        )
        self._down_until = 0.0

    # -- what subclasses implement

    def _next_message(self) -> list[Buffer] | None:
        """Return the next message, made of everything that waits; ``None`` when nothing waits."""
        raise NotImplementedError

    def _presses(self) -> bool:
        """Whether enough waits for a message of its own while another one is unanswered."""
        return True

    def _heard(self, data: bytes) -> int:
        """Decode a message and act on it.

        Return how many messages of this stream are answered by now.
        """
        raise NotImplementedError

    def _lost(self, reason: str) -> None:
        """Fail everything that is unanswered or waits."""
        raise NotImplementedError

    # -- life

    @property
    def down(self) -> bool:
        """Whether the bookie broke off or refused so recently that it is not tried again yet."""
        return (
            self._stream is None
            and not self._connecting
            and self._clock.monotonic() < self._down_until
        )

    @property
    def connected(self) -> bool:
        return self._stream is not None

    @property
    def in_use(self) -> bool:
        """Whether a ledger waits for an answer or may send more."""
        raise NotImplementedError

    @property
    def silent_ms(self) -> float:
        """Return the milliseconds since the bookie last answered, or since the stream was
        connected.
        """
        return (self._clock.monotonic() - self._last_heard) * 1000

    @property
    def unanswered_count(self) -> int:
        return self._sent_count - self._answered_count

    def _wake(self) -> None:
        """Start sending, because something waits."""
        if self._stream is not None:
            self._signal.set()
        elif not self._connecting and not self._closed:
            self._connecting = True
            self._waiting_since = self._clock.monotonic()
            _ = self._world.tasks.spawn(
                self._run(), name=f"{self._method}-{self.member}", scope=self.scope
            )

    async def _run(self) -> None:
        address = self._book.route(self.member)
        if address is None:
            self._over(f"no address of bookie {self.member} is known")
            return
        try:
            stream = await self._world.connections.open(address, self._method, lane=self._lane)
        except StreamBroken as error:
            self._book.on_failed(self.member, address)
            self._over(str(error))
            return
        self._book.on_reached(self.member, address)
        if self._closed:
            stream.abort("the client was closed")
            return
        self._connecting = False
        self._stream = stream
        self._signal = WakeSignal()
        self._sent_count = self._answered_count = 0
        self._last_heard = self._clock.monotonic()
        _ = self._world.tasks.spawn(
            self._send(stream, self._signal),
            name=f"{self._method}-send-{self.member}",
            scope=self.scope,
        )
        reason = await self._receive(stream)
        if stream is self._stream:
            self._over(reason)

    async def _receive(self, stream: Stream) -> str:
        """Receive answers until the stream ends. Return why it ended."""

        def on_message(data: bytes) -> None:
            if stream is not self._stream:
                return  # given up
            self._last_heard = self._waiting_since = self._clock.monotonic()
            self._backoff.reset()
            self._answered_count = self._heard(data)
            self._signal.set()

        try:
            await stream.deliver(on_message)
        except StreamBroken as error:
            return str(error)
        except (DecodeError, ChecksumError) as error:
            stream.abort(f"an answer cannot be read: {error}")
            return f"an answer of bookie {self.member} cannot be read: {error}"
        stream.abort("the bookie finished")
        return f"bookie {self.member} ended the stream"

    async def _send(self, stream: Stream, signal: WakeSignal) -> None:
        def next_message() -> Sequence[Buffer] | None:
            if stream is not self._stream:
                return FINISH
            parts = None
            out = self.unanswered_count
            if not out or (out < self._options.unanswered_messages_max and self._presses()):
                parts = self._next_message()
            if parts is not None:
                self._count_message()
            return parts

        # The reader task sees this error, too, and handles it.
        with suppress(StreamBroken):
            await stream.feed(next_message, signal)

    def _count_message(self) -> None:
        if self.unanswered_count == 0:
            self._waiting_since = self._clock.monotonic()
        self._sent_count += 1

    def _over(self, reason: str) -> None:
        """Handle the end of the stream, or of the attempt to connect."""
        self._connecting = False
        self._stream = None
        self._signal.set()  # the writer task then sees that its stream is gone
        self._down_until = self._clock.monotonic() + self._backoff.next_seconds()
        self._lost(reason)

    def break_off(self, reason: str) -> None:
        """End the stream now. Everything that is unanswered or waits fails before this returns."""
        stream = self._stream
        if stream is not None:
            self._over(reason)
            stream.abort(reason)

    def _failed(self, error: BaseException) -> None:
        """Handle the failure of a connection task.

        What is unanswered or waits fails; the next sender connects again.
        """
        reason = (
            f"the connection to bookie {self.member} failed here: {type(error).__name__}: {error}"
        )
        if self._stream is not None:
            self.break_off(reason)
        else:
            self._over(reason)

    def close(self) -> None:
        self._closed = True
        if self._stream is not None:
            self.break_off("the client was closed")
        else:
            self._lost("the client was closed")

    def silent(self, timeout_ms: int) -> bool:
        """Whether an answer, or the connection itself, is overdue."""
        waits = self._connecting or (self._stream is not None and self.unanswered_count > 0)
        return waits and (self._clock.monotonic() - self._waiting_since) * 1000 >= timeout_ms

    def forgive(self) -> None:
        """Start the bookie's time limit again, because this process itself was stopped."""
        self._waiting_since = self._last_heard = self._clock.monotonic()

    def tick(self) -> None:
        """Check for silence. Called every ``check_interval_ms``."""
        raise NotImplementedError
