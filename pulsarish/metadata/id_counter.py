"""How the counter of ledger ids continues above ids that are in use.

A tree that was restored from an older backup has given out more ids than its counter says. Bookies
hold ledgers with these ids, so the counter is raised above them: an id that is used twice mixes the
entries of two ledgers. But a peer may make a bookie store a ledger with any id. The counter must
not follow that one: raised to the greatest id, it could give out no id again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["ID_GAP_MAX", "next_id_above"]

ID_GAP_MAX: Final = 1 << 32
"""Ids in use follow each other more closely than this.

Ids are given out in order; a restore leaves fewer out.
"""


def next_id_above(next_id: int, used: Iterable[int]) -> int:
    """Return the first id that may be given out.

    Args:
        next_id: ids below this one have been given out.
        used: ids in use, ascending. Those after a gap of ``ID_GAP_MAX`` or more were never given
            out: a peer made them up.
    """
    for ledger_id in used:
        if ledger_id >= next_id + ID_GAP_MAX:
            break
        next_id = max(next_id, ledger_id + 1)
    return next_id
