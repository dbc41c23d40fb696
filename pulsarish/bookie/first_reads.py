"""Which entries readers have read from the entry logs, by number only, so that a read cache keeps
nothing of a first read.

A group of 64 entries of one ledger takes one integer. The groups that were read last are
remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

__all__ = ["GROUP_BYTES", "FirstReads"]

GROUP_BYTES: Final = 250
"""The memory of one group."""
_GROUP_BITS: Final = 6
_GROUP_ENTRIES: Final = 1 << _GROUP_BITS
_ALL: Final = (1 << _GROUP_ENTRIES) - 1


class FirstReads:
    """The last ``groups_max`` groups of entries that were read."""

    def __init__(self, groups_max: int) -> None:
        self.groups_max = groups_max
        self._groups: OrderedDict[tuple[int, int], int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._groups)

    def knows(self, ledger_id: int, first: int, last: int) -> bool:
        """Return whether entries near to these were read, and remember them for longer."""
        groups, known = self._groups, False
        for number in range(first >> _GROUP_BITS, (last >> _GROUP_BITS) + 1):
            key = (ledger_id, number)
            if key in groups:
                groups.move_to_end(key)
                known = True
        return known

    def add(self, ledger_id: int, first: int, last: int) -> bool:
        """Remember that these entries were read. Return whether most of them had been before."""
        groups, before_count = self._groups, 0
        for number in range(first >> _GROUP_BITS, (last >> _GROUP_BITS) + 1):
            start = number << _GROUP_BITS
            mask = _ALL
            if first > start:
                mask &= _ALL << (first - start)
            if last < start + _GROUP_ENTRIES - 1:
                mask &= (1 << (last - start + 1)) - 1
            key = (ledger_id, number)
            before = groups.pop(key, 0)
            groups[key] = (before | mask) & _ALL
            before_count += (before & mask).bit_count()
        while len(groups) > self.groups_max:
            groups.popitem(last=False)
        return 2 * before_count > last - first + 1
