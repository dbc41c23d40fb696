"""The timers of a client: one task for all of them, and none while no timer is set.

A program may have thousands of producers with a timeout each. One task per timer would be most of
their cost.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from pulsarish.runtime.seams import Clock, Tasks

__all__ = ["Timer", "Timers"]

_AGAIN_SECONDS: Final = 0.001
_STALE_MAX: Final = 64
"""Compact the heap once more than this many of its times are stale and they are half of it."""


class Timers:
    """The timers of one client, ordered by due time."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        # a heap; an item is stale when its timer has another due time by now
        self._times: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._stale = 0
        self._running = False
        self._awaited = math.inf  # the time until which the task sleeps
        self._sooner = asyncio.Event()

    def alarm(self, ring: Callable[[], None]) -> Timer:
        return Timer(self, ring)

    def put(self, due: float, alarm: Timer) -> None:
        self._count += 1
        heappush(self._times, (due, self._count, alarm))
        if not self._running:
            self._start()
        elif due < self._awaited:
            self._sooner.set()

    def no_longer(self) -> None:
        """Count a time that became stale."""
        self._stale += 1
        if self._stale > _STALE_MAX and 2 * self._stale > len(self._times):
            self._times = [each for each in self._times if each[2].due == each[0]]
            heapify(self._times)
            self._stale = 0

    def _start(self) -> None:
        self._running = True
        _ = self._tasks.spawn(self._run(), name="client alarms")

    async def _run(self) -> None:
        again = False
        try:
            await self._ring_each()
        except Exception:
            again = bool(self._times)  # continue with the other timers after one raised
            raise
        finally:
            self._running = False  # after a cancellation it does not start again: the client stops
            if again:
                self._start()

    async def _ring_each(self) -> None:
        while self._times:
            due, _, alarm = self._times[0]
            left = due - self._clock.monotonic()
            if alarm.due == due and left > 0:
                await self._sleep(due, left)
                continue
            heappop(self._times)
            if alarm.due == due:
                alarm.rings(self._clock.monotonic() + _AGAIN_SECONDS)
            else:
                self._stale -= 1

    async def _sleep(self, due: float, seconds: float) -> None:
        self._awaited = due
        self._sooner.clear()
        try:
            async with self._clock.timeout(seconds):
                await self._sooner.wait()
        except TimeoutError:
            return
        finally:
            self._awaited = -math.inf  # no wake-up needed: the task looks at the heap by itself


class Timer:
    """Calls ``ring`` in the loop at the earliest time that was set.

    ``ring`` may set the timer again.
    """

    __slots__ = ("_alarms", "_ring", "due")

    def __init__(self, alarms: Timers, ring: Callable[[], None]) -> None:
        self.due: float | None = None
        """When it rings, in monotonic seconds; ``None`` when it is not set."""
        self._alarms = alarms
        self._ring = ring

    def set(self, due: float | None) -> None:
        """Set the timer to ``due`` (monotonic seconds), unless an earlier time is set.

        ``None`` changes nothing.
        """
        if due is None or (self.due is not None and self.due <= due):
            return
        before, self.due = self.due, due
        self._alarms.put(due, self)
        if before is not None:
            self._alarms.no_longer()

    def rings(self, again: float) -> None:
        """Ring now. A time that ``ring`` sets is not before ``again``."""
        self.due = None
        self._ring()
        self._put_off(again)

    def _put_off(self, again: float) -> None:
        """Move a time in the past to ``again``, so that a timer cannot keep the loop busy."""
        if self.due is not None and self.due < again:
            self.due = again
            self._alarms.put(again, self)
            self._alarms.no_longer()

    def cancel(self) -> None:
        if self.due is not None:
            self.due = None
            self._alarms.no_longer()
