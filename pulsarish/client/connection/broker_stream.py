"""One stream of a client to a broker: a reader task, a writer task, and a task that watches for
silence.

A stream that is broken, silent or violates the protocol ends once, with a reason, and everything
that uses it is notified. Requests without an answer fail with a retryable error. ``send`` and
``receive`` are never cancelled: a silent stream is aborted.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from google.protobuf.message import DecodeError

from pulsarish.model.errors import (
    AuthenticationError,
    ChecksumError,
    ConnectError,
    PulsarishError,
    Timeout,
    error_from_code,
)
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import (
    FINISH,
    Buffer,
    CallFailed,
    Clock,
    Stream,
    StreamBroken,
    Tasks,
)
from pulsarish.runtime.wake_signal import WakeSignal
from pulsarish.security.credentials import Credentials

__all__ = ["BrokerStream", "StreamLimits", "error_of", "refused_credentials"]

_log = get_logger("client.stream")

# A transport puts the peer's address before the broker's text.
_REFUSED: Final = re.compile(r"(?:^|: )AuthenticationError: (.*)", re.DOTALL)

_RENEW_SECONDS_MIN: Final = 0.5
_RENEW_SECONDS_MAX: Final = 5.0
"""Pauses between questions to a source of credentials that has no newer ones."""

Answered = Callable[[PulsarishError | None, Any], None]


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Times and sizes of a stream. The protocol fixes the first two."""

    heartbeat_seconds: float = 10.0
    silence_seconds: float = 30.0
    """The stream is aborted when nothing was received for this long."""
    unanswered_seconds: float = 1.0
    """When an answer is due and nothing was received for this long, the broker is pinged over
    another connection.
    """
    ping_timeout_seconds: float = 2.0
    message_bytes: int = 1 << 20
    """The target size of a message with entries."""
    unanswered_messages_max: int = 2
    """Unanswered messages with entries.

    Entries that arrive in the meantime share the next message.
    """


def error_of(outcome: Any) -> PulsarishError | None:
    """Return the error of an outcome: of anything with a code and a message; ``None`` when the code
    is 0.
    """
    return error_from_code(outcome.code, outcome.message) if outcome.code else None


def refused_credentials(address: str, reason: str) -> AuthenticationError | None:
    """Return the error of a stream or call that a broker ended because of the credentials that came
    with it; ``None`` when ``reason`` is another one.
    """
    refusal = _REFUSED.search(reason)
    if refusal is None:
        return None
    return AuthenticationError(f"broker {address} refuses the credentials: {refusal.group(1)}")


class BrokerStream(ABC):
    """A connected stream to one broker. ``start`` runs its tasks.

    Args:
        address: the broker's gRPC address, which names it. The stream may use another one.
        credentials_now: returns what the client's source of credentials gives now.
    """

    kind = ""

    def __init__(
        self,
        stream: Stream,
        *,
        address: str,
        clock: Clock,
        tasks: Tasks,
        limits: StreamLimits,
        ping: Callable[[float], Awaitable[None]],
        credentials_now: Callable[[], Awaitable[Credentials]],
    ) -> None:
        self.address = address
        self.lost: PulsarishError | None = None
        self._stream = stream
        self._clock = clock
        self._tasks = tasks
        self._limits = limits
        self._ping = ping
        self._credentials_now = credentials_now
        self._shown: Credentials | None = None
        self._is_renewing = False
        self._wake = WakeSignal()
        self._over = asyncio.Event()
        self._scope = Scope(ScopeKind.CONNECTION, self.address, self._failed)
        self._requests = count(1)
        self._answers: dict[int, Answered] = {}
        self._heard_at = self._sent_at = clock.monotonic()
        self._was_heard = False
        # when the wait for an answer began; each received message begins it again
        self._waiting_since: float | None = None

    def start(self) -> None:
        for work, name in (
            (self._read(), "read"),
            (self._write(), "write"),
            (self._watch(), "watch"),
        ):
            _ = self._tasks.spawn(
                work, name=f"client {self.kind} {name} {self.address}", scope=self._scope
            )

    def _failed(self, error: BaseException) -> None:
        reason = f"the stream failed in the client: {error!r}"
        self._stream.abort(reason)
        self._end(reason)

    # What the two kinds of streams define.

    @abstractmethod
    def _gather(self) -> Sequence[Buffer] | None:
        """Return the next message; ``None`` when nothing is due, or when the broker must answer
        first.
        """

    @abstractmethod
    def _heartbeat(self) -> bytes:
        """Return an empty message."""

    @abstractmethod
    def _show(self, credentials: Credentials) -> None:
        """Send new credentials with the next message."""

    @abstractmethod
    def _handle(self, data: bytes) -> None:
        """Handle a message.

        Raises ``AssertionError``, ``DecodeError`` or ``ChecksumError`` when it violates the
        protocol.
        """

    @abstractmethod
    def _ended(self, error: PulsarishError) -> None:
        """Notify everything that uses the stream."""

    @property
    @abstractmethod
    def _awaits_answer(self) -> bool:
        """Whether the broker has requests or entries to answer."""

    # Requests.

    def request(self, answered: Answered) -> int:
        """Return the id of a new request.

        ``answered(error, answer)`` is called in the loop, before anything received later.
        """
        if self.lost is not None:
            raise self.lost
        request_id = next(self._requests)
        self._answers[request_id] = answered
        return request_id

    async def answer(
        self,
        send: Callable[[int], None],
        timeout_seconds: float | None,
        *,
        first: Callable[[PulsarishError | None], None] | None = None,
    ) -> Any:
        """Send a request and return its answer.

        Raises the broker's error, ``Timeout``, or ``ConnectError`` when the stream breaks.

        ``first`` is called with the error at the answer or at the end of the stream, before
        anything received later is handled. It is called even when the caller no longer waits.
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
            raise Timeout(
                f"{self.address} did not answer in {timeout_seconds} s: it is slow or cannot be "
                "reached; try again"
            ) from None
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
            await self._stream.deliver(self._on_message)
        except StreamBroken as broken:
            reason = str(broken)
        except (AssertionError, DecodeError, ChecksumError) as error:
            reason = f"the broker said what makes no sense: {error}"
            _log.error("protocol violated", exception=error, broker=self.address)
            self._stream.abort(reason)
        self._end(reason)

    def _on_message(self, data: bytes) -> None:
        self._heard_at = self._clock.monotonic()
        self._was_heard = True
        self._handle(data)

    async def _write(self) -> None:
        try:
            await self._stream.feed(self._next_message, self._wake)
        except StreamBroken as broken:
            self._end(str(broken))

    def _next_message(self) -> Sequence[Buffer] | None:
        if self.lost is not None:
            return FINISH
        parts = self._gather()
        if parts is not None:
            self._sent_at = self._clock.monotonic()
        return parts

    async def _watch(self) -> None:
        limits = self._limits
        while self.lost is None:
            await self._pause(min(limits.unanswered_seconds, limits.heartbeat_seconds) / 2)
            now = self._clock.monotonic()
            if self._over.is_set():
                return
            if now - self._heard_at >= limits.silence_seconds:
                self.give_up(f"{self.address} was silent for {limits.silence_seconds} s")
            elif self._is_overdue(now):
                await self._check_alive()
            elif now - self._sent_at >= limits.heartbeat_seconds * 0.9:
                self._wake_for_heartbeat()

    # Credentials.

    def _on_credentials_asked(self) -> None:
        """Show newer credentials, since those that the broker knows expire soon."""
        if self._is_renewing or self.lost is not None:
            return
        self._is_renewing = True
        _ = self._tasks.spawn(
            self._renew(), name=f"client {self.kind} credentials {self.address}", scope=self._scope
        )

    async def _renew(self) -> None:
        """Ask the source until it gives what this stream has not shown yet.

        A file may be rewritten only shortly before the old token ends. Without newer credentials
        the broker ends the stream, and the next one is opened as after any loss.
        """
        backoff = Backoff(_RENEW_SECONDS_MIN, _RENEW_SECONDS_MAX)
        while self.lost is None:
            try:
                found = await self._credentials_now()
            except (PulsarishError, StreamBroken) as error:
                _log.debug("no new credentials", broker=self.address, reason=error)
            else:
                if found != self._shown and self.lost is None:
                    self._shown = found
                    self._show(found)
                    self._wake.set()
                    break
            await self._pause(backoff.next_seconds())
        self._is_renewing = False

    def _is_overdue(self, now: float) -> bool:
        """Whether an answer has been due for too long while nothing was received."""
        if not self._awaits_answer:
            self._waiting_since = None
        elif self._waiting_since is None or self._heard_at > self._waiting_since:
            self._waiting_since = now
        return (
            self._waiting_since is not None
            and now - self._waiting_since >= self._limits.unanswered_seconds
        )

    async def _check_alive(self) -> None:
        """Ping the broker, which shows whether it is slow or gone long before the silence limit."""
        try:
            await self._ping(self._limits.ping_timeout_seconds)
        except AuthenticationError:
            # No credentials for a ping: that says nothing about the broker.
            self._waiting_since = None
        except (StreamBroken, TimeoutError, CallFailed) as error:
            self.give_up(f"{self.address} owes an answer and does not answer a ping: {error}")
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

    def give_up(self, reason: str) -> None:
        """End the stream, and notify everything that uses it."""
        self._stream.abort(reason)
        self._end(reason)

    def close(self) -> None:
        """End the stream. Its users are not notified; they were closed before."""
        self._end("the client was closed")

    def _end(self, reason: str) -> None:
        if self.lost is not None:
            return
        error: PulsarishError | None = None
        if not self._was_heard:
            error = refused_credentials(self.address, reason)
        # Credentials that the broker has accepted and that expire are renewed at the next opening:
        # to those who use the stream this is a loss like any other.
        error = error or ConnectError(f"connection to broker {self.address} lost: {reason}")
        self.lost = error
        self._wake.set()
        self._over.set()
        answers, self._answers = list(self._answers.values()), {}
        for answered in answers:
            answered(error, None)
        self._ended(error)
