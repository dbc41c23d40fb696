"""The turns of topics that are to be loaded, in the order in which they came.

When a broker has died, all its topics come to another one at once. If it began all of them, it
would do the same step for each in turn, and the first one would be ready when nearly all are. So
few are under way at a time, which is enough for all that two cores can do. A topic that waits for
something, as for bookies that do not answer, lets others begin.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from pulsarish.runtime.seams import Clock, Tasks

__all__ = ["AT_ONCE_MAX", "LATE_SECONDS", "LoadTurns"]

AT_ONCE_MAX: Final = 64
"""Turns at a time, of those that began within the last ``LATE_SECONDS``."""
LATE_SECONDS: Final = 1.0


class LoadTurns:
    """Turns of one broker."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._line: deque[asyncio.Future[int]] = deque()
        self._begun: dict[int, float] = {}  # turns that are not late, in the order of their begin
        self._number = 0
        self._watching = False

    @property
    def waiting_count(self) -> int:
        return len(self._line)

    async def take(self) -> int:
        """Wait for a turn, and return its number, with which it must be ended."""
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        self._begin_next()
        if self._line and not self._watching:
            self._watching = True
            _ = self._tasks.spawn(self._watch(), name="turns of topics")
        return await turn

    def end(self, number: int) -> None:
        """End a turn. As many begin as may."""
        self._begun.pop(number, None)
        self._begin_next()

    def _begin_next(self) -> None:
        now = self._clock.monotonic()
        while self._begun:
            number, since = next(iter(self._begun.items()))
            if now - since < LATE_SECONDS:
                break
            del self._begun[number]
        while self._line and len(self._begun) < AT_ONCE_MAX:
            turn = self._line.popleft()
            if not turn.done():  # it was not cancelled while it waited
                self._number += 1
                self._begun[self._number] = now
                turn.set_result(self._number)

    async def _watch(self) -> None:
        """Let others begin when turns become late, while no turn begins or ends."""
        try:
            while self._line:
                await self._clock.sleep(LATE_SECONDS / 4)
                self._begin_next()
        finally:
            self._watching = False
