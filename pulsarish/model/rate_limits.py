"""Rate limits by token buckets: the core.

Time is the monotonic clock of the node, given by the caller.

A bucket may go into debt, because a batch is taken whole. Then nothing more may be taken until the
debt is paid. So traffic above the limit waits and never fails, and over time the rate is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["CallerRates", "CountedRateLimit", "RateLimit", "TokenBucket"]


@dataclass(slots=True)
class TokenBucket:
    """A token bucket: ``rate`` tokens per second, at most ``burst`` saved up.

    A rate of 0 or less means no limit.
    """

    rate: float = 0.0
    burst: float = 0.0
    tokens: float = 0.0
    _at: float = 0.0

    def limit(self, rate: float, burst: float, now: float) -> None:
        """Apply a new limit. A debt stays, but takes at most the time of one burst to pay."""
        if (rate, burst) == (self.rate, self.burst):
            return
        self._fill(now)
        self.tokens = burst if self.rate <= 0 else max(-burst, min(self.tokens, burst))
        self.rate, self.burst, self._at = rate, burst, now

    def rescale(self, rate: float, now: float) -> None:
        """Set the rate of a part of a limit, and a burst of one second of it.

        A debt stays as it is, and is paid at the new rate. Parts change all the time: a debt that
        each change made smaller would never be paid, and one that grew with its part would take as
        long as with a part that was far too small.
        """
        if self.rate <= 0 or rate <= 0:
            self.limit(rate, max(rate, 0.0), now)
        else:
            self._fill(now)
            self.tokens = min(self.tokens, rate)
            self.rate = self.burst = rate

    def change_rate(self, rate: float, now: float) -> None:
        """Set another rate, above 0. A debt stays as it is, and is paid at the new rate."""
        self._fill(now)
        self.rate = rate

    def _fill(self, now: float) -> None:
        if self.rate > 0:
            self.tokens = min(self.tokens + (now - self._at) * self.rate, self.burst)
            self._at = now

    def take(self, count: float, now: float) -> None:
        if self.rate > 0:
            self._fill(now)
            self.tokens -= count

    def available(self, now: float) -> float:
        """Return how much may be taken now; infinite without a limit."""
        if self.rate <= 0:
            return float("inf")
        self._fill(now)
        return self.tokens

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until something may be taken; 0: now."""
        if self.rate <= 0:
            return 0.0
        self._fill(now)
        return 0.0 if self.tokens > 0 else (1.0 - self.tokens) / self.rate

    def debt_seconds(self, now: float) -> float:
        """Return the seconds until what was taken is paid for; 0: it is."""
        if self.rate <= 0:
            return 0.0
        self._fill(now)
        return max(0.0, -self.tokens / self.rate)

    def check(self) -> None:
        assert self.rate <= 0 or self.tokens <= self.burst


_UNLIMITED: Final = TokenBucket()
"""Shared by all that have no limit. It counts nothing."""


def _own(bucket: TokenBucket, rate: float) -> TokenBucket:
    """Return the bucket for a limit of this rate; the shared one while it has none."""
    return TokenBucket() if bucket is _UNLIMITED and rate > 0 else bucket


def _limited(bucket: TokenBucket, rate: float, burst: float, now: float) -> TokenBucket:
    bucket = _own(bucket, rate)
    if bucket is not _UNLIMITED:
        bucket.limit(rate, burst, now)
    return bucket


class RateLimit:
    """Limits on messages and bytes, each with its own bucket.

    Most topics have no limit, and then no bucket of their own.
    """

    __slots__ = ("messages", "size_bytes")

    def __init__(self) -> None:
        self.messages = self.size_bytes = _UNLIMITED

    def limit(self, messages: float, size_bytes: float, period_seconds: float, now: float) -> None:
        """Apply limits of messages and bytes per period; 0 or less: no limit."""
        self.messages = _limited(self.messages, messages / period_seconds, max(messages, 0.0), now)
        self.size_bytes = _limited(
            self.size_bytes, size_bytes / period_seconds, max(size_bytes, 0.0), now
        )

    def rescale(self, messages: float, size_bytes: float, now: float) -> None:
        """Set a part of limits of messages and bytes a second; 0 or less: no limit."""
        self.messages = _own(self.messages, messages)
        self.size_bytes = _own(self.size_bytes, size_bytes)
        if self.messages is not _UNLIMITED:
            self.messages.rescale(messages, now)
        if self.size_bytes is not _UNLIMITED:
            self.size_bytes.rescale(size_bytes, now)

    @property
    def limited(self) -> bool:
        return self.messages.rate > 0 or self.size_bytes.rate > 0

    def take(self, messages: int, size_bytes: int, now: float) -> None:
        self.messages.take(messages, now)
        self.size_bytes.take(size_bytes, now)

    def wait_seconds(self, now: float) -> float:
        return max(self.messages.wait_seconds(now), self.size_bytes.wait_seconds(now))

    def check(self) -> None:
        self.messages.check()
        self.size_bytes.check()


class CountedRateLimit(RateLimit):
    """Limits that count what was taken in all, also while there is no limit."""

    __slots__ = ("bytes_count", "messages_count")

    def __init__(self) -> None:
        super().__init__()
        self.messages_count = self.bytes_count = 0

    def take(self, messages: int, size_bytes: int, now: float) -> None:
        self.messages_count += messages
        self.bytes_count += size_bytes
        super().take(messages, size_bytes, now)


_CALLERS_MIN: Final = 128


class CallerRates:
    """The same limit for each of many callers: what is above it is refused, so that a burst never
    has more than ``count``.

    Callers that have nothing to pay are forgotten.
    """

    __slots__ = ("_buckets", "_count", "_period_seconds", "_sweep_at")

    def __init__(self) -> None:
        self._buckets: dict[object, TokenBucket] = {}
        self._count = 0
        self._period_seconds = 1.0
        self._sweep_at = _CALLERS_MIN

    def limit(self, count: int, period_seconds: float) -> None:
        """Allow each caller ``count`` calls in a period; 0 or less: no limit.

        Another limit than before begins with nothing to pay.
        """
        if (count, period_seconds) != (self._count, self._period_seconds):
            self._buckets.clear()
            self._count, self._period_seconds = count, period_seconds

    def refused_seconds(self, caller: object, now: float) -> float:
        """Count a call, unless it is above the limit.

        Return the seconds until it may be repeated; 0: it is allowed, and counted.
        """
        if self._count <= 0:
            return 0.0
        bucket = self._buckets.get(caller)
        if bucket is None:
            if len(self._buckets) >= self._sweep_at:
                self._forget(now)
            bucket = self._buckets[caller] = TokenBucket()
            bucket.limit(self._count / self._period_seconds, self._count, now)
        lacks = 1.0 - bucket.available(now)
        if lacks > 0:
            return lacks / bucket.rate
        bucket.take(1, now)
        return 0.0

    def _forget(self, now: float) -> None:
        for caller, bucket in list(self._buckets.items()):
            if bucket.available(now) >= bucket.burst:
                del self._buckets[caller]
        self._sweep_at = max(_CALLERS_MIN, 2 * len(self._buckets))

    def check(self) -> None:
        assert self._count > 0 or not self._buckets
        for bucket in self._buckets.values():
            bucket.check()
            assert bucket.tokens >= 0
