"""One order for everything that kazoo's thread tells the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["LoopQueue"]


class LoopQueue:
    """Calls posted by another thread, run in the loop in the order of posting, with one wake-up for all that wait.

    A wake-up per answer would cost a system call each and let the loop be interrupted thousands of times a second.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def post(self, call: Callable[[], None]) -> None:
        """From any thread. After the loop has closed, calls are dropped: nobody is there to hear them."""
        self._calls.append(call)
        self.wake()

    def post_later(self, call: Callable[[], None]) -> None:
        """From a thread that calls ``wake`` when it has posted all that it has now."""
        self._calls.append(call)

    def wake(self) -> None:
        """Have the loop run what was posted."""
        # First the call, then the look at the flag; and in the loop first the flag, then the calls: so none is left behind.
        if self._calls and not self._scheduled:
            self._scheduled = True
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._scheduled = False
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            self.wake()  # one that failed does not keep the others waiting
