"""The places of administration: how many requests run, how many wait, and who is next. Plain state, awaited by the face."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Admission"]


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
