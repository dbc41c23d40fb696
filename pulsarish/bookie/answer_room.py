"""The bytes of read answers that a bookie holds until its clients receive them."""

from __future__ import annotations

import asyncio
from typing import Final

from pulsarish.runtime.seams import Clock, Stream

__all__ = ["AnswerRoom"]

_TAKE_SECONDS_MAX: Final = 2.0


class AnswerRoom:
    """Limit the bytes of answers that all streams hold together.

    A stream holds one answer at a time.

    An answer waits until it fits, in order of arrival. While one waits, the bookie aborts streams
    whose client has not received its answer for ``_TAKE_SECONDS_MAX``, the oldest first. While
    there is room a client may be slow.
    """

    def __init__(self, limit_bytes: int, clock: Clock) -> None:
        self.used_bytes = 0
        self.ended_count = 0
        """Streams that were aborted because of the limit since the start."""
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._held: dict[Stream, tuple[int, float]] = {}  # bytes, and since when; the oldest first
        self._turn = asyncio.Lock()
        self._released = asyncio.Event()

    async def enter(self, stream: Stream, size_bytes: int) -> None:
        """Wait until an answer of this size fits. Call ``leave`` after it is sent."""
        size_bytes = min(size_bytes, self._limit_bytes)
        async with self._turn:
            while self.used_bytes + size_bytes > self._limit_bytes:
                oldest, (_, since) = next(iter(self._held.items()))
                left = since + _TAKE_SECONDS_MAX - self._clock.monotonic()
                if left <= 0:
                    self.leave(oldest)
                    self.ended_count += 1
                    oldest.abort(
                        f"an answer was not taken for {_TAKE_SECONDS_MAX} s, and others wait; "
                        "read answers as they come"
                    )
                    continue
                self._released.clear()
                try:
                    async with self._clock.timeout(left):
                        await self._released.wait()
                except TimeoutError:
                    continue
            self._held[stream] = (size_bytes, self._clock.monotonic())
            self.used_bytes += size_bytes

    def leave(self, stream: Stream) -> None:
        """Release what the stream holds, if anything."""
        size_bytes, _ = self._held.pop(stream, (0, 0.0))
        self.used_bytes -= size_bytes
        self._released.set()
