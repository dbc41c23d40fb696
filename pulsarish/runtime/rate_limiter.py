"""Hold work to a rate."""

from __future__ import annotations

from pulsarish.model.rate_limits import TokenBucket
from pulsarish.runtime.seams import Clock

__all__ = ["RateLimiter"]


class RateLimiter:
    """Holds work to a rate, in units of the caller (bytes, ledgers) a second.

    A caller that has done work waits until the rate allows more. Several callers share the rate.

    Args:
        saved_max: the units of unused time that count later. 0: the time that work takes is not
            made up for.
    """

    def __init__(self, clock: Clock, per_second: float, *, saved_max: float = 0.0) -> None:
        self._clock = clock
        self._bucket = TokenBucket(per_second, saved_max, 0.0, clock.monotonic())

    def limit(self, per_second: float) -> None:
        """Change the rate. A wait that has begun stays as long as it is."""
        self._bucket.limit(per_second, self._bucket.burst, self._clock.monotonic())

    def change_rate(self, per_second: float) -> None:
        """Change the rate, above 0, as often as wanted: what was taken is paid at the new rate.

        A wait that has begun stays as long as it is.
        """
        self._bucket.change_rate(per_second, self._clock.monotonic())

    async def take(self, count: float) -> None:
        """Wait until ``count`` units, and what was taken before, are paid for."""
        now = self._clock.monotonic()
        self._bucket.take(count, now)
        await self._clock.sleep(self._bucket.debt_seconds(now))
