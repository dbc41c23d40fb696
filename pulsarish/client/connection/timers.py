"""The timers of a client on the seams: one task for all of them while something is due, none otherwise.

A program may have thousands of producers, each with a time-out of its own: a task for each would be most of what they cost.
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
"""From so many on, and when they are half of all, times that hold no more are taken out."""


class Timers:
    """What rings when, the earliest first."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._times: list[tuple[float, int, Timer]] = []  # a heap; one whose alarm has another time by now does not hold any more
        self._count = 0
        self._stale = 0
        self._running = False
        self._awaited = math.inf  # the time that the task sleeps until
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
        """A time that was put does not hold any more."""
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
            again = bool(self._times)  # one that raised does not take the others with it
            raise
        finally:
            self._running = False  # cancelled, it is not begun anew: its owner stops
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
            self._awaited = -math.inf  # nothing is sooner: it looks by itself


class Timer:
    """Calls ``ring`` in the loop once the earliest time that was set has come. ``ring`` may set it again."""

    __slots__ = ("_alarms", "_ring", "due")

    def __init__(self, alarms: Timers, ring: Callable[[], None]) -> None:
        self.due: float | None = None
        """When it rings, in monotonic seconds."""
        self._alarms = alarms
        self._ring = ring

    def set(self, due: float | None) -> None:
        """Ring at ``due`` (monotonic seconds) or at what was set before, whichever is earlier. ``None`` changes nothing."""
        if due is None or (self.due is not None and self.due <= due):
            return
        before, self.due = self.due, due
        self._alarms.put(due, self)
        if before is not None:
            self._alarms.no_longer()

    def rings(self, again: float) -> None:
        """Its time has come; one that is set meanwhile holds from ``again`` on."""
        self.due = None
        self._ring()
        self._put_off(again)

    def _put_off(self, again: float) -> None:
        """A time that was set and is past already would never let go of the loop."""
        if self.due is not None and self.due < again:
            self.due = again
            self._alarms.put(again, self)
            self._alarms.no_longer()

    def cancel(self) -> None:
        if self.due is not None:
            self.due = None
            self._alarms.no_longer()
