"""The coverage rule of fencing and of LAC reads: when enough members have answered (rule 5).

A writer confirms an entry once Qa members of its write quorum have answered. So it can confirm
nothing more as soon as in *every* write quorum fewer than Qa members have not answered, that is, at
least Qw - Qa + 1 have. This is counted for each write quorum, never for the ensemble as a whole:
with Qw = Qa = 2 of three, one answer may cover two quorums and leave the third open.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pulsarish.model.ledger_metadata import check_quorums

__all__ = ["Coverage", "negatives_needed"]


def negatives_needed(write_quorum: int, ack_quorum: int) -> int:
    """Return Qw - Qa + 1.

    When this many members do not have an entry, no Qa members have it or will have it once fenced
    (rule 6).
    """
    return write_quorum - ack_quorum + 1


@dataclass(slots=True)
class Coverage:
    """The places of one ensemble that have answered."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    _heard: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        check_quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)
        self._heard = [False] * self.ensemble_size

    def hear(self, index: int) -> None:
        self._heard[index] = True

    @property
    def heard_count(self) -> int:
        return sum(self._heard)

    @property
    def covered(self) -> bool:
        """Whether every write quorum has Qw - Qa + 1 answers."""
        needed = negatives_needed(self.write_quorum, self.ack_quorum)
        size = self.ensemble_size
        if self.write_quorum == size:  # there is one write quorum
            return sum(self._heard) >= needed
        return all(
            sum(self._heard[(start + step) % size] for step in range(self.write_quorum)) >= needed
            for start in range(size)
        )
