"""The places of administration: how many requests run, how many wait, who is next, and how much of the loop they take beside messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from pulsarish.runtime.seams import Clock

__all__ = ["PAUSE_SECONDS_MAX", "Admission", "LoopShare"]

PAUSE_SECONDS_MAX: Final = 1.0
"""The longest time for which a request is held back for what others took."""

T = TypeVar("T")


class Admission:
    """``running_max`` places. Whoever finds none waits in order; beyond ``waiting_max`` there is no waiting either."""

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
        """Returns with a place, which ``leave`` gives back."""
        if self.running < self._running_max:
            self.running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def leave(self) -> None:
        """Hand the place to the one who has waited longest."""
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self.running -= 1

    def check(self) -> None:
        assert 0 <= self.running <= self._running_max
        assert not self._waiting or self.running == self._running_max


class LoopShare:
    """How much of the event loop administration takes while messages flow: at most ``share_max`` of its time, over some seconds.

    What its work takes is measured step by step, and no request begins before as much time has passed as that share allows for what was
    taken already. So cheap requests come one after another, a long list holds the next ones back, and on a machine that has no processor
    left, where each step takes longer, there are fewer of them.
    """

    def __init__(self, clock: Clock, share_max: float, messages_flow: Callable[[], bool]) -> None:
        """``messages_flow`` says whether clients have published or been delivered anything in the last moment; without, nothing is held
        back."""
        self._clock = clock
        self._share_max = share_max
        self._messages_flow = messages_flow
        self._turn = asyncio.Lock()
        self._free_at = 0.0

    @property
    def pause_seconds(self) -> float:
        """How long the next request has to wait, as far as is known now."""
        return max(0.0, self._free_at - self._clock.monotonic()) if self._messages_flow() else 0.0

    async def turn(self) -> None:
        """Returns when a request may begin: in the order of calls, each after the first step of the one before."""
        async with self._turn:
            while pause := self.pause_seconds:
                await self._clock.sleep(pause)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` returns or raises, its steps counted."""
        return await _Metered(work, self._clock, self._took)

    def _took(self, seconds: float) -> None:
        if self._messages_flow():
            now = self._clock.monotonic()
            due = max(self._free_at, now - seconds) + seconds / self._share_max
            # However long something took, another request begins after this.
            self._free_at = min(due, now + PAUSE_SECONDS_MAX)


class _Metered(Awaitable[T]):
    """Runs a coroutine and tells how long each of its steps took, from one wait to the next."""

    def __init__(self, work: Coroutine[Any, Any, T], clock: Clock, took: Callable[[float], None]) -> None:
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
            except BaseException as error:  # noqa: BLE001  # cancellation too: it is the work's own to hear
                failure = error
            else:
                failure = None
