"""The places of administration: how many requests run, how many wait, and who is next. Plain state, awaited by the face."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Admission", "Pace"]


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


class Pace:
    """How fast administration may begin its requests while messages flow: it takes what is left of the processors, which on a machine
    that also runs bookies would otherwise be taken from them. Without messages, and with ``per_second_max`` 0, there is no limit.
    """

    def __init__(self, per_second_max: int) -> None:
        self._interval_seconds = 1 / per_second_max if per_second_max else 0.0
        self._next = 0.0

    def wait_seconds(self, now: float, *, messages_flow: bool) -> float:
        """How long the next request has to wait, which is counted by this call. ``now``: monotonic seconds."""
        if not messages_flow:
            self._next = now
            return 0.0
        begins = max(now, self._next)
        self._next = begins + self._interval_seconds
        return begins - now
