"""How the program's side of a producer or consumer meets the loop's side: in one loop, or from other threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

__all__ = ["InLoop", "LoopBridge", "Wakeup"]


class LoopBridge(Protocol):
    def lock(self) -> AbstractContextManager[object]:
        """A lock for one core's state."""
        ...

    def post(self, work: Callable[[], None]) -> None:
        """Run ``work`` in the loop, from whatever thread this is called in."""
        ...


class InLoop:
    """Both sides are the one event loop."""

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def post(self, work: Callable[[], None]) -> None:
        work()


class Wakeup:
    """Tells the loop that there is something to do, once however often it is told before the loop has looked."""

    __slots__ = ("_handoff", "_told", "_work")

    def __init__(self, handoff: LoopBridge, work: Callable[[], None]) -> None:
        self._handoff = handoff
        self._work = work
        self._told = False

    def give(self) -> None:
        # Two threads may both pass here: then the loop looks twice, which does no harm.
        if not self._told:
            self._told = True
            self._handoff.post(self._run)

    def _run(self) -> None:
        # Cleared first: what is added while the loop looks makes it look again.
        self._told = False
        self._work()
