"""What an owner knows of the messages in one ledger of its topic. No I/O."""

from __future__ import annotations

from array import array
from typing import Final

__all__ = ["BLOCK_ENTRIES", "UNKNOWN", "LedgerCounts"]

BLOCK_ENTRIES: Final = 500
"""Consecutive entries of a ledger whose messages have one sum."""

UNKNOWN: Final = -1


class LedgerCounts:
    """What is known of one ledger: the sums of its blocks, and what was appended since the last
    whole one.
    """

    __slots__ = ("counted", "sums", "tail")

    def __init__(self) -> None:
        # entries from the first one on that were counted when they were appended
        self.counted = 0
        self.sums: list[int] = []
        self.tail: array[int] = array("I")

    def sum_of(self, number: int) -> int:
        """Return the messages of a whole block; ``UNKNOWN``."""
        return self.sums[number] if number < len(self.sums) else UNKNOWN

    def total(self, entries: int) -> int:
        """Return the messages of all ``entries`` of the ledger; ``UNKNOWN``."""
        if self.counted != entries and len(self.sums) * BLOCK_ENTRIES < entries:
            return UNKNOWN
        return UNKNOWN if UNKNOWN in self.sums else sum(self.sums) + sum(self.tail)

    def note(self, number: int, messages: int) -> None:
        """Keep the sum of a whole block that was read."""
        assert not self.tail or number < len(self.sums), "it was counted when it was appended"
        self.sums += [UNKNOWN] * (number + 1 - len(self.sums))
        self.sums[number] = messages
