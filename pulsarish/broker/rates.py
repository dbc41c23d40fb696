"""Rates from plain counters, without a timer: a window turns over when traffic or a question comes after its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Meter"]

_WINDOW_SECONDS: Final = 10.0


@dataclass(slots=True)
class Meter:
    """Messages and bytes in all, and their rates over the last finished window."""

    started: float  # monotonic seconds
    messages: int = 0
    size_bytes: int = 0
    _messages_before: int = 0
    _bytes_before: int = 0
    _message_rate: float = 0.0
    _byte_rate: float = 0.0

    def add(self, messages: int, size_bytes: int, now: float) -> None:
        """Called once for a batch, never once for an entry."""
        if now - self.started >= _WINDOW_SECONDS:
            self._turn(now)
        self.messages += messages
        self.size_bytes += size_bytes

    def rates(self, now: float) -> tuple[float, float]:
        """Messages a second, bytes a second."""
        elapsed = now - self.started
        if elapsed >= _WINDOW_SECONDS:
            self._turn(now)
        elif elapsed > 1.0 and self._message_rate == 0.0:
            # The first window is still open: what there is of it says more than nothing.
            return (self.messages - self._messages_before) / elapsed, (self.size_bytes - self._bytes_before) / elapsed
        return self._message_rate, self._byte_rate

    def _turn(self, now: float) -> None:
        elapsed = now - self.started
        self._message_rate = (self.messages - self._messages_before) / elapsed
        self._byte_rate = (self.size_bytes - self._bytes_before) / elapsed
        self._messages_before, self._bytes_before, self.started = self.messages, self.size_bytes, now
