"""The signal that something waits to be sent."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["WakeSignal"]


class WakeSignal:
    """Set by who has something to send, watched by the stream that sends it.

    Set several times before the stream looks, it counts once.
    """

    __slots__ = ("_on_set", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._on_set: Callable[[], object] | None = None

    def set(self) -> None:
        if not self.is_set:
            self.is_set = True
            if self._on_set is not None:
                self._on_set()

    def clear(self) -> None:
        self.is_set = False

    def watch(self, on_set: Callable[[], object] | None) -> None:
        """Call ``on_set`` each time the signal is set, and now if it is."""
        self._on_set = on_set
        if self.is_set and on_set is not None:
            on_set()
