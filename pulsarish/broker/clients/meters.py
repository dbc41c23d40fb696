"""Meters of a topic's traffic: plain counters, and rates computed from them without a timer.

A window of time ends when traffic, or a question, comes after its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pulsarish.runtime.metrics import Histogram

__all__ = ["ENTRY_SIZE_BUCKETS_BYTES", "WRITE_LATENCY_BUCKETS_MS", "Meter", "TopicTraffic"]

_WINDOW_SECONDS: Final = 10.0

WRITE_LATENCY_BUCKETS_MS: Final = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
"""The bounds of Apache Pulsar's ``pulsar_storage_write_latency_le_*``."""
ENTRY_SIZE_BUCKETS_BYTES: Final = (
    128,
    512,
    1 << 10,
    2 << 10,
    4 << 10,
    16 << 10,
    100 << 10,
    1 << 20,
)
"""The bounds of Apache Pulsar's ``pulsar_entry_size_le_*``."""


@dataclass(slots=True)
class Meter:
    """Total messages and bytes, and their rates over the last finished window."""

    started: float  # monotonic seconds
    messages: int = 0
    size_bytes: int = 0
    _messages_before: int = 0
    _bytes_before: int = 0
    _message_rate: float = 0.0
    _byte_rate: float = 0.0

    def add(self, messages: int, size_bytes: int, now: float) -> None:
        """Count traffic. Call it once for a batch, never once for each entry."""
        if now - self.started >= _WINDOW_SECONDS:
            self._turn(now)
        self.messages += messages
        self.size_bytes += size_bytes

    def rates(self, now: float) -> tuple[float, float]:
        """Return messages per second and bytes per second."""
        elapsed = now - self.started
        if elapsed >= _WINDOW_SECONDS:
            self._turn(now)
        elif elapsed > 1.0 and self._message_rate == 0.0:
            # The first window is still open: its beginning says more than nothing.
            return (self.messages - self._messages_before) / elapsed, (
                self.size_bytes - self._bytes_before
            ) / elapsed
        return self._message_rate, self._byte_rate

    def _turn(self, now: float) -> None:
        elapsed = now - self.started
        self._message_rate = (self.messages - self._messages_before) / elapsed
        self._byte_rate = (self.size_bytes - self._bytes_before) / elapsed
        self._messages_before, self._bytes_before, self.started = (
            self.messages,
            self.size_bytes,
            now,
        )


class TopicTraffic:
    """What producers sent to a topic and what its log confirmed.

    The first entry creates the histograms: an idle topic has none.
    """

    __slots__ = ("_entry_sizes", "came", "last_stored", "write_latency", "written")

    def __init__(self, now: float) -> None:
        self.came = Meter(now)  # messages and bytes that producers sent
        self.written = Meter(now)  # entries and bytes that the log confirmed
        self.last_stored = 0.0  # monotonic seconds; 0: no entry yet
        # milliseconds from an entry's arrival to its confirmation
        self.write_latency: Histogram | None = None
        self._entry_sizes: Histogram | None = None

    def entry_sizes(self) -> Histogram:
        """Return the histogram of the sizes of entries given to the log.

        Creates it on first use.
        """
        if self._entry_sizes is None:
            self._entry_sizes = Histogram(ENTRY_SIZE_BUCKETS_BYTES)
        return self._entry_sizes

    @property
    def known_entry_sizes(self) -> Histogram | None:
        """The histogram of entry sizes; ``None`` before the first entry."""
        return self._entry_sizes

    def stored(self, entries: int, size_bytes: int, took_ms: float, now: float) -> None:
        """Count entries that the log confirmed."""
        if self.write_latency is None:
            self.write_latency = Histogram(WRITE_LATENCY_BUCKETS_MS)
        self.write_latency.observe(took_ms, entries)
        self.written.add(entries, size_bytes, now)
        self.last_stored = now
