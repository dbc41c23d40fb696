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
        # Of this round, by the size of batches in bits: the bytes, and what they took. A byte of a
        # small batch takes longer, which says nothing of the bookies.
        self._round: dict[int, tuple[int, float]] = {}
        # The least that a byte of such a batch took, in this span of time and in the one before.
        self._base: dict[int, float] = {}
        self._base_before: dict[int, float] = {}
        self._base_until = now + _BASE_SECONDS

    def note(self, size_bytes: int, seconds: float, now: float) -> None:
        """Note what was copied since the last call, mostly one batch, and what that took."""
        if size_bytes:
            before_bytes, before_seconds = self._round.get(size_bytes.bit_length(), (0, 0.0))
            self._round[size_bytes.bit_length()] = (
                before_bytes + size_bytes,
                before_seconds + seconds,
            )
        if not self._ratio or not self._round or now < self._began + _ROUND_SECONDS:
            return
        copied, self._round, self._began = self._round, {}, now
        if now >= self._base_until:
            self._base_before, self._base = self._base, {}
            self._base_until = now + _BASE_SECONDS
        took = at_best = 0.0
        for bits, (copied_bytes, copied_seconds) in copied.items():
            base = min(self._base.get(bits, math.inf), copied_seconds / copied_bytes)
            self._base[bits] = base
            took += copied_seconds
            at_best += copied_bytes * min(base, self._base_before.get(bits, math.inf))
        is_slow = took > self._ratio * at_best
        changed = self.per_second * (_SLOWER if is_slow else _FASTER)
        self.per_second = min(self._most, max(self._least, changed))

    def check(self) -> None:
        assert self._least <= self.per_second <= self._most
