"""A flag that ends work in threads, which a signal handler may set."""

from __future__ import annotations

from queue import Empty, SimpleQueue

__all__ = ["StopFlag"]


class StopFlag:
    """Set once, by a thread or a signal handler; threads wait for it.

    ``threading.Event`` is no such flag: its ``set`` takes a lock, which the interrupted thread may
    hold, and then never returns. Source: Python's documentation of ``queue.SimpleQueue``, whose
    ``put`` takes none.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._wakes.put(None)

    def wait(self, timeout_seconds: float) -> bool:
        """Return whether the flag is set, at the latest after ``timeout_seconds``."""
        if not self._is_set:
            try:
                self._wakes.get(timeout=max(0.0, timeout_seconds))
            except Empty:
                return self._is_set
            self._wakes.put(None)  # for the next one who waits
        return True
