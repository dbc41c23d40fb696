"""Admission of admin requests: how many run, how many wait, in which order, and how much of the
event loop they take from messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from pulsarish.runtime.seams import Clock

__all__ = ["PAUSE_SECONDS_MAX", "Admission", "LoopShare"]

PAUSE_SECONDS_MAX: Final = 1.0
"""The longest time that a request is held back because of earlier requests."""

T = TypeVar("T")


class Admission:
    """Limits requests to ``running_max`` at a time.

    Others wait in order; at most ``waiting_max`` may wait.
    """

    def __init__(self, running_max: int, waiting_max: int) -> None:
        self.running = 0
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether the next request can neither run nor wait."""
        return self.running >= self._running_max and len(self._waiting) >= self._waiting_max

    async def enter(self) -> None:
        """Wait for a place. Give it back with ``leave``."""
        if self.running < self._running_max:
            self.running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def leave(self) -> None:
        """Give the place to the request that has waited the longest."""
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self.running -= 1

    def check(self) -> None:
        assert 0 <= self.running <= self._running_max
        assert not self._waiting or self.running == self._running_max


class LoopShare:
    """The share of the event loop that admin requests may take while messages flow: at most
    ``share_max``, over some seconds.

    Their work is measured step by step. No request begins before the share allows it for the time
    taken so far. So cheap requests follow each other at once, and a long list delays the next
    requests. When the machine is busy and each step takes longer, fewer requests run.
    """

    def __init__(self, clock: Clock, share_max: float, messages_flow: Callable[[], bool]) -> None:
        """Create the share.

        ``messages_flow`` says whether messages were published or delivered within the last moment.
        Without, nothing is held back.
        """
        self._clock = clock
        self._share_max = share_max
        self._messages_flow = messages_flow
        self._turn = asyncio.Lock()
        self._free_at = 0.0

    @property
    def pause_seconds(self) -> float:
        """How long the next request has to wait, as far as known now."""
        return max(0.0, self._free_at - self._clock.monotonic()) if self._messages_flow() else 0.0

    async def turn(self) -> None:
        """Wait until a request may begin: in the order of calls, each after the first step of the
        one before.
        """
        async with self._turn:
            while pause := self.pause_seconds:
                await self._clock.sleep(pause)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` and measure its steps. Return its result, or raise its error."""
        return await _Metered(work, self._clock, self._took)

    def _took(self, seconds: float) -> None:
        if self._messages_flow():
            now = self._clock.monotonic()
            due = max(self._free_at, now - seconds) + seconds / self._share_max
            # However long the work took, another request begins after this time.
            self._free_at = min(due, now + PAUSE_SECONDS_MAX)


class _Metered(Awaitable[T]):
    """Runs a coroutine and reports how long each of its steps took, from one wait to the next."""

    def __init__(
        self, work: Coroutine[Any, Any, T], clock: Clock, took: Callable[[float], None]
    ) -> None:
        self._work = work
        self._clock = clock
        self._took = took

    def __await__(self) -> Generator[Any, Any, T]:
        work, monotonic = self._work, self._clock.monotonic
        failure: BaseException | None = None
        while True:
            began = monotonic()
            try:
                waits_for = work.send(None) if failure is None else work.throw(failure)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self._took(monotonic() - began)
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001  # cancellation too: the work must get it
                failure = error
            else:
                failure = None
