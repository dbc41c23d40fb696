"""One ordered queue for everything that kazoo's thread passes to the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["LoopQueue"]


class LoopQueue:
    """Calls that another thread posted, run in the loop in the order of posting, with one wake-up
    for all that wait.

    A wake-up for each answer would cost a system call each and let the loop be interrupted
    thousands of times a second.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def post(self, call: Callable[[], None]) -> None:
        """Post a call, from any thread.

        After the loop has closed, calls are dropped, because no task can use them.
        """
        self._calls.append(call)
        self.wake()

    def post_later(self, call: Callable[[], None]) -> None:
        """Post a call from a thread that calls ``wake`` after all its calls."""
        self._calls.append(call)

    def wake(self) -> None:
        """Have the loop run what was posted."""
        # Post first, read the flag second. The loop resets the flag first and takes calls second.
        # So no call is left behind.
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
            self.wake()  # a call that failed does not delay the others
