"""Real time."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager

__all__ = ["SystemClock"]


class SystemClock:
    """The production ``Clock``: the machine's monotonic and wall clocks, and the running event
    loop's timers.
    """

    __slots__ = ()

    def monotonic(self) -> float:
        # Not loop.time(): uvloop answers that from a cached millisecond.
        return time.perf_counter()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(seconds)
