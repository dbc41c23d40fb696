"""What the two streams of a client to a broker have in common: one reader task, one writer task, and a watch over silence.

It promises: a broken, silent or misbehaving stream ends once, with a reason, and everybody on it hears that; what waited for an answer
fails with a retryable error. Nothing ever times out or cancels a ``send`` or a ``receive``: silence ends in ``abort``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from google.protobuf.message import DecodeError

from pulsarish.model.errors import ChecksumError, ConnectError, PulsarishError, Timeout, error_from_code
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Buffer, CallFailed, Clock, Stream, StreamBroken, Tasks

__all__ = ["BrokerStream", "StreamLimits", "error_of"]

_log = get_logger("client.stream")

Answered = Callable[[PulsarishError | None, Any], None]


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Times and sizes of a stream. The first two are the protocol's."""

    heartbeat_seconds: float = 10.0
    silence_seconds: float = 30.0
    """Without anything from the broker for so long the stream is given up."""
    unanswered_seconds: float = 1.0
    """An answer is awaited and nothing came for so long: the broker is asked by a call, on a connection of its own."""
    ping_timeout_seconds: float = 2.0
    message_bytes: int = 1 << 20
    """What a message of entries aims at."""
    unanswered_messages_max: int = 2
    """Messages with entries that are under way: what waits meanwhile goes out in the next one."""


def error_of(outcome: Any) -> PulsarishError | None:
    """The error of an ``Outcome`` or of anything else with a code and a message."""
    return error_from_code(outcome.code, outcome.message) if outcome.code else None


class BrokerStream(ABC):
    """One stream to one broker. Made connected; ``start`` runs its tasks."""

    kind = ""

    def __init__(
        self, stream: Stream, *, clock: Clock, tasks: Tasks, limits: StreamLimits, ping: Callable[[float], Awaitable[None]]
    ) -> None:
        self.address = stream.peer
        self.lost: PulsarishError | None = None
        self._stream = stream
        self._clock = clock
        self._tasks = tasks
        self._limits = limits
        self._ping = ping
        self._wake = asyncio.Event()
        self._over = asyncio.Event()
        self._requests = count(1)
        self._answers: dict[int, Answered] = {}
        self._heard_at = self._sent_at = clock.monotonic()
        self._waiting_since: float | None = None  # since when an answer is awaited without anything heard

    def start(self) -> None:
        for work, name in ((self._read(), "read"), (self._write(), "write"), (self._watch(), "watch")):
            _ = self._tasks.spawn(work, name=f"client {self.kind} {name} {self.address}")

    # What each kind of stream does.

    @abstractmethod
    def _gather(self) -> Sequence[Buffer] | None:
        """The next message, of all that waits; ``None`` when there is nothing or the broker must answer first."""

    @abstractmethod
    def _heartbeat(self) -> bytes:
        """A message that says nothing."""

    @abstractmethod
    def _handle(self, data: bytes) -> None:
        """One message of the broker. Raises ``AssertionError``, ``DecodeError``, ``ChecksumError`` when it makes no sense."""

    @abstractmethod
    def _ended(self, error: PulsarishError) -> None:
        """Tell everybody on the stream."""

    @property
    @abstractmethod
    def _awaits_answer(self) -> bool:
        """Whether the broker owes something."""

    # Requests.

    def request(self, answered: Answered) -> int:
        """A number for a request; ``answered`` is called in the loop with its error and its answer, before anything that came after it."""
        if self.lost is not None:
            raise self.lost
        request_id = next(self._requests)
        self._answers[request_id] = answered
        return request_id

    async def answer(
        self, send: Callable[[int], None], timeout_seconds: float | None, *, first: Callable[[PulsarishError | None], None] | None = None
    ) -> Any:
        """Make a request and wait for its answer. Raises its error, ``Timeout``, or ``ConnectError`` when the stream breaks.

        ``first`` is called at the answer, or the stream's end, before anything that comes after it, even when nobody waits any more.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(error: PulsarishError | None, answer: Any) -> None:
            if first is not None:
                first(error)
            if future.done():
                return
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

        request_id = self.request(answered)
        send(request_id)
        self._wake.set()
        try:
            async with self._clock.timeout(timeout_seconds):
                return await future
        except TimeoutError:
            raise Timeout(f"{self.address} did not answer in {timeout_seconds} s: it is slow or cannot be reached; try again") from None
        finally:
            if first is None:
                self._answers.pop(request_id, None)

    def _answered(self, outcome: Any, answer: Any) -> None:
        waiting = self._answers.pop(outcome.request_id, None)
        if waiting is not None:
            waiting(error_of(outcome), answer)

    # Tasks.

    async def _read(self) -> None:
        reason = "the broker has closed the stream"
        try:
            while (data := await self._stream.receive()) is not None:
                self._heard_at = self._clock.monotonic()
                self._handle(data)
        except StreamBroken as broken:
            reason = str(broken)
        except (AssertionError, DecodeError, ChecksumError) as error:
            reason = f"the broker said what makes no sense: {error}"
            _log.error("protocol violated", exception=error, broker=self.address)
            self._stream.abort(reason)
        self._end(reason)

    async def _write(self) -> None:
        try:
            while self.lost is None:
                parts = self._gather()
                if parts is None:
                    await self._wake.wait()
                    self._wake.clear()
                    continue
                self._sent_at = self._clock.monotonic()
                await self._stream.send(parts)
            await self._stream.finish()
        except StreamBroken as broken:
            self._end(str(broken))

    async def _watch(self) -> None:
        limits = self._limits
        while self.lost is None:
            await self._pause(min(limits.unanswered_seconds, limits.heartbeat_seconds) / 2)
            now = self._clock.monotonic()
            if self._over.is_set():
                return
            if now - self._heard_at >= limits.silence_seconds:
                self._give_up(f"{self.address} was silent for {limits.silence_seconds} s")
            elif self._is_overdue(now):
                await self._check_alive()
            elif now - self._sent_at >= limits.heartbeat_seconds * 0.9:
                self._wake_for_heartbeat()

    def _is_overdue(self, now: float) -> bool:
        """Whether an answer has been awaited for too long with nothing heard meanwhile."""
        if not self._awaits_answer:
            self._waiting_since = None
        elif self._waiting_since is None or self._heard_at > self._waiting_since:
            self._waiting_since = now
        return self._waiting_since is not None and now - self._waiting_since >= self._limits.unanswered_seconds

    async def _check_alive(self) -> None:
        """The broker is slow or gone: a call tells which, long before the silence limit does."""
        try:
            await self._ping(self._limits.ping_timeout_seconds)
        except (StreamBroken, TimeoutError, CallFailed) as error:
            self._give_up(f"{self.address} owes an answer and does not answer a ping: {error}")
        else:
            self._waiting_since = None

    async def _pause(self, seconds: float) -> None:
        try:
            async with self._clock.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return

    heartbeat_due = False

    def _wake_for_heartbeat(self) -> None:
        self.heartbeat_due = True
        self._wake.set()

    # The end.

    def _give_up(self, reason: str) -> None:
        self._stream.abort(reason)
        self._end(reason)

    def close(self) -> None:
        """End the stream from this side; those on it hear nothing, since they were closed before."""
        self._end("the client was closed")

    def _end(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = error = ConnectError(f"connection to broker {self.address} lost: {reason}")
        self._wake.set()
        self._over.set()
        answers, self._answers = list(self._answers.values()), {}
        for answered in answers:
            answered(error, None)
        self._ended(error)
