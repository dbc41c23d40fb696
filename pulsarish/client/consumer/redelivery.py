"""The core of redelivery: negative acknowledgements after a delay, and messages not acknowledged in
time.

Both work by entry, as the broker does: a batch is redelivered as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

__all__ = ["NegativeAcks", "UnackedTracker"]

EntryKey = tuple[int, int]


class NegativeAcks:
    """Entries to request again.

    ``delay_ms`` returns the delay for a number of earlier deliveries.
    """

    def __init__(self, delay_ms: Callable[[int], int]) -> None:
        self._delay_ms = delay_ms
        self._due: dict[EntryKey, float] = {}
        self._heap: list[tuple[float, EntryKey]] = []

    def add(self, key: EntryKey, redelivery_count: int, now: float) -> None:
        """Add an entry. A later call for the same entry does not move it."""
        if key in self._due:
            return
        due = now + self._delay_ms(redelivery_count) / 1_000
        self._due[key] = due
        heappush(self._heap, (due, key))

    def remove(self, key: EntryKey) -> None:
        """Remove an entry that was acknowledged after all."""
        self._due.pop(key, None)

    def clear(self) -> None:
        self._due.clear()
        self._heap.clear()

    def next_due(self) -> float | None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[EntryKey]:
        taken: list[EntryKey] = []
        while (due := self.next_due()) is not None and due <= now:
            key = heappop(self._heap)[1]
            del self._due[key]
            taken.append(key)
        return taken

    def __contains__(self, key: EntryKey) -> bool:
        return key in self._due


class UnackedTracker:
    """Entries that the program holds, with the times at which they are requested again."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        # ordered by time: all have the same delay, and a new delivery goes to the end
        self._due: dict[EntryKey, float] = {}

    def add(self, key: EntryKey, now: float) -> None:
        self._due.pop(key, None)
        self._due[key] = now + self._timeout

    def extend(self, key: EntryKey, now: float) -> None:
        """Let the time of an entry begin again, if the program holds it."""
        if key in self._due:
            self.add(key, now)

    def remove(self, key: EntryKey) -> None:
        self._due.pop(key, None)

    def remove_up_to(self, last: EntryKey) -> None:
        for key in [key for key in self._due if key <= last]:
            del self._due[key]

    def remove_all(self, keys: Iterable[EntryKey]) -> None:
        for key in keys:
            self._due.pop(key, None)

    def clear(self) -> None:
        self._due.clear()

    def next_due(self) -> float | None:
        return next(iter(self._due.values()), None)

    def take_due(self, now: float) -> list[EntryKey]:
        taken: list[EntryKey] = []
        for key, due in self._due.items():
            if due > now:
                break
            taken.append(key)
        for key in taken:
            del self._due[key]
        return taken
