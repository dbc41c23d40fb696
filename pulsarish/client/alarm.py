"""A timer on the seams: one short-lived task while something is due, none otherwise."""

from __future__ import annotations

from collections.abc import Callable

from pulsarish.runtime.seams import Clock, Tasks

__all__ = ["Alarm"]

_AGAIN_SECONDS = 0.001


class Alarm:
    """Calls ``ring`` in the loop once the earliest time that was set has come. ``ring`` may set it again."""

    __slots__ = ("_clock", "_due", "_name", "_ring", "_running", "_slice", "_tasks")

    def __init__(self, clock: Clock, tasks: Tasks, name: str, ring: Callable[[], None], *, slice_seconds: float = 1.0) -> None:
        """``slice_seconds``: how late it may notice that an earlier time was set while it waits for a later one."""
        self._clock = clock
        self._tasks = tasks
        self._name = name
        self._ring = ring
        self._slice = slice_seconds
        self._due: float | None = None
        self._running = False

    def set(self, due: float | None) -> None:
        """Ring at ``due`` (monotonic seconds) or at what was set before, whichever is earlier. ``None`` changes nothing."""
        if due is None:
            return
        if self._due is None or due < self._due:
            self._due = due
        if not self._running:
            self._running = True
            _ = self._tasks.spawn(self._run(), name=self._name, critical=False)

    async def _run(self) -> None:
        try:
            while self._due is not None:
                left = self._due - self._clock.monotonic()
                if left > 0:
                    await self._clock.sleep(min(left, self._slice))
                    continue
                self._due = None
                self._ring()
                self._space_out()
        finally:
            self._running = False

    def _space_out(self) -> None:
        """A time that was set and is past already would never let go of the loop."""
        if self._due is not None:
            self._due = max(self._due, self._clock.monotonic() + _AGAIN_SECONDS)

    def cancel(self) -> None:
        self._due = None
