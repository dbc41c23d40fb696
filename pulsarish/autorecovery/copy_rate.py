"""The rate of copying: as high as is allowed while bookies answer as fast as they can, and lower
while what is copied waits behind what is published.

No I/O, no clock. What a batch takes, from its read to the answer of the bookie that gets it, grows
when bookies have more to do than they can. That is noticed here, from publishing as from copying.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["CopyRate"]

_ROUND_SECONDS: Final = 0.5
_LEAST_SHARE: Final = 1 / 8
_FASTER: Final = 1.15
_SLOWER: Final = 0.6
_BASE_SECONDS: Final = 300.0


class CopyRate:
    """The bytes that may be copied in a second.

    Args:
        most: the highest rate, bytes a second.
        least: the lowest rate is this or an eighth of ``most``, whichever is higher.
        ratio: copying is slow when a byte takes this many times the least that it has taken in the
            last minutes. 0: it never is.
        now: seconds.
    """

    def __init__(self, most: float, least: float, ratio: float, now: float) -> None:
        self._most = most
        self._least = min(most, max(least, most * _LEAST_SHARE))
        self._ratio = ratio
        # Low at first, or what copying takes by itself would never be seen.
        self.per_second = self._least if ratio else most
        self._began = now
        self._bytes = 0
        self._seconds = 0.0
        # The least that a byte took, in this span of time and in the one before.
        self._base = self._base_before = math.inf
        self._base_until = now + _BASE_SECONDS

    def note(self, size_bytes: int, seconds: float, now: float) -> None:
        """Note what was copied since the last call, and what its batches took together."""
        self._bytes += size_bytes
        self._seconds += seconds
        if not self._ratio or not self._bytes or now < self._began + _ROUND_SECONDS:
            return
        took = self._seconds / self._bytes
        self._began, self._bytes, self._seconds = now, 0, 0.0
        if now >= self._base_until:
            self._base_before, self._base = self._base, math.inf
            self._base_until = now + _BASE_SECONDS
        self._base = min(self._base, took)
        is_slow = took > self._ratio * min(self._base, self._base_before)
        changed = self.per_second * (_SLOWER if is_slow else _FASTER)
        self.per_second = min(self._most, max(self._least, changed))

    def check(self) -> None:
        assert self._least <= self.per_second <= self._most
