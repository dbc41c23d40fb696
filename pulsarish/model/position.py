"""Position of an entry in a topic: its ledger and its number in that ledger, ordered as they were
written.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["EARLIEST", "ID_MAX", "LATEST", "NO_ENTRY", "Position"]

NO_ENTRY: Final = -1
ID_MAX: Final = 2**63 - 2
"""The greatest id of a ledger or an entry: the next one is a signed 64-bit number, too."""


class Position(NamedTuple):
    """A ledger id and an entry id.

    Positions of one topic compare in the order of its log, since ledger ids only grow.
    """

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST: Final = Position(-1, -1)
LATEST: Final = Position(2**63 - 1, 2**63 - 1)
