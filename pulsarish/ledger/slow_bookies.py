"""The bookies that answer reads slowly: how long to wait for each before another replica is asked,
too, which ones are asked last, and how many additional reads this may cost.

No I/O, no clock, no randomness: the caller brings the time, in seconds of one monotonic clock.
"""

from __future__ import annotations

from typing import Final

from pulsarish.ledger.options import LedgerOptions

__all__ = ["SlowBookies"]

_UNKNOWN_SECONDS: Final = 0.25
"""The wait for a bookie that has not answered a read yet. It includes the time to connect."""
_BURST: Final = 20.0
"""Additional reads that may be sent at once, before the share of all reads limits them."""
_MEAN_GAIN: Final = 1 / 8
_DEVIATION_GAIN: Final = 1 / 4
_DEVIATIONS: Final = 4
"""The wait is the mean time of an answer and this multiple of the mean deviation."""


class _Times:
    """How long one bookie takes to answer a read: running mean and mean deviation."""

    __slots__ = ("deviation", "mean")

    def __init__(self, took_seconds: float) -> None:
        self.mean = took_seconds
        self.deviation = took_seconds / 2

    def add(self, took_seconds: float) -> None:
        distance = took_seconds - self.mean
        self.deviation += (abs(distance) - self.deviation) * _DEVIATION_GAIN
        self.mean += distance * _MEAN_GAIN


class SlowBookies:
    """Shared by all reads of a process."""

    def __init__(self, options: LedgerOptions) -> None:
        self.sent_count = 0
        """Reads that were sent to another replica because the first one was late."""
        self._share = options.speculative_reads_share_max
        self._wait_min = options.speculative_read_delay_min_ms / 1000
        self._wait_max = options.speculative_read_delay_max_ms / 1000
        self._avoid = options.slow_bookie_avoided_ms / 1000
        self._times: dict[str, _Times] = {}
        self._avoided_until: dict[str, float] = {}
        self._budget = _BURST

    @property
    def is_used(self) -> bool:
        """Whether late reads are sent to another replica at all."""
        return self._share > 0

    def wait_seconds(self, member: str) -> float:
        """Return how long a read waits for this bookie before another one is asked."""
        times = self._times.get(member)
        wait = times.mean + _DEVIATIONS * times.deviation if times is not None else _UNKNOWN_SECONDS
        return min(max(wait, self._wait_min), self._wait_max)

    def avoided(self, now: float) -> list[str]:
        """Return the bookies that are asked last."""
        until = self._avoided_until
        for member in [member for member, end in until.items() if end <= now]:
            del until[member]
        return list(until)

    def answered(self, member: str, took_seconds: float) -> None:
        """Note an answer, also one that no read waits for any more.

        A bookie that is in time is no longer avoided.
        """
        if self._avoided_until and took_seconds <= self.wait_seconds(member):
            self._avoided_until.pop(member, None)
        # One long stop does not keep the wait long: no wait is above the limit anyway.
        took_seconds = min(took_seconds, self._wait_max)
        times = self._times.get(member)
        if times is None:
            self._times[member] = _Times(took_seconds)
        else:
            times.add(took_seconds)

    def late(self, member: str, now: float) -> None:
        """Avoid a bookie for a while, because it has not answered a read in time."""
        self._avoided_until[member] = now + self._avoid

    def read_begins(self) -> None:
        """Count a read: each one adds to what additional reads may cost."""
        self._budget = min(self._budget + self._share, _BURST)

    def may_send(self) -> bool:
        """Whether an additional read may be sent now. ``send`` counts it."""
        return self._budget >= 1

    def send(self) -> None:
        """Count an additional read."""
        self._budget -= 1
        self.sent_count += 1

    def forget(self, member: str) -> None:
        """Drop what is known of a bookie that is gone."""
        self._times.pop(member, None)
        self._avoided_until.pop(member, None)
