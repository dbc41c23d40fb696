"""Connect the program's side of a producer or consumer with the event loop: in the loop itself, or
from other threads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

__all__ = ["InLoop", "LoopBridge", "Wakeup"]


class LoopBridge(Protocol):
    def lock(self) -> AbstractContextManager[object]:
        """Return the lock for one core's state."""
        ...

    def post(self, work: Callable[[], None]) -> None:
        """Run ``work`` in the loop; may be called from any thread."""
        ...


class InLoop:
    """The bridge for programs that run in the event loop themselves."""

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def post(self, work: Callable[[], None]) -> None:
        work()


class Wakeup:
    """Schedules a callback in the loop, at most once until it has run."""

    __slots__ = ("_handoff", "_told", "_work")

    def __init__(self, handoff: LoopBridge, work: Callable[[], None]) -> None:
        self._handoff = handoff
        self._work = work
        self._told = False

    def give(self) -> None:
        # Two threads may both get here. Then the callback runs twice, which is harmless.
        if not self._told:
            self._told = True
            self._handoff.post(self._run)

    def _run(self) -> None:
        # Clear it first: what is added during the callback schedules another run.
        self._told = False
        self._work()
