"""How new a metadata tree is."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["NOTHING_SEEN", "TreeState"]


class TreeState(NamedTuple):
    """How far a tree has come.

    The count and the transaction id are compared within one epoch: both only grow there.
    """

    epoch: int
    counted: int
    zxid: int

    def is_older_than(self, other: TreeState) -> bool:
        if self.epoch != other.epoch:
            return self.epoch < other.epoch
        return self.counted < other.counted or self.zxid < other.zxid

    def merged(self, other: TreeState) -> TreeState:
        """Return the newest tree that both are evidence of."""
        if self.epoch != other.epoch:
            return max(self, other)
        return TreeState(self.epoch, max(self.counted, other.counted), max(self.zxid, other.zxid))


NOTHING_SEEN: Final = TreeState(0, 0, 0)
