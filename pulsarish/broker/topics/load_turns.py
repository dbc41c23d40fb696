"""The turns of topics that are to be loaded: a limited number at a time, in the order in which they
came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["LoadTurns"]


class LoadTurns:
    """Turns of one broker.

    Args:
        limit: returns how many may be taken at a time. It may change.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self.taken_count = 0
        self._limit = limit
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def waiting_count(self) -> int:
        return len(self._line)

    async def take(self) -> None:
        """Wait for a turn. ``end`` must follow."""
        if self._line or self.taken_count >= self._limit():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._line.append(turn)
            await turn
        else:
            self.taken_count += 1

    def end(self) -> None:
        """End a turn. As many begin as the limit now permits."""
        self.taken_count -= 1
        while self._line and self.taken_count < self._limit():
            self.taken_count += 1
            self._line.popleft().set_result(None)
