"""A limit in bytes a second."""

from __future__ import annotations

from pulsarish.runtime.seams import Clock

__all__ = ["ByteRate"]


class ByteRate:
    """A rate limit in bytes, shared by all callers of ``take``.

    A caller that has moved bytes waits until the rate allows more. Unused time is not saved for
    later.
    """

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._rate = bytes_per_second
        self._free_at = 0.0

    async def take(self, size_bytes: int) -> None:
        now = self._clock.monotonic()
        self._free_at = max(now, self._free_at) + size_bytes / self._rate
        await self._clock.sleep(self._free_at - now)
