"""Which replicas are near this process, and how many reads they serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate

__all__ = ["LocalReads"]

_LEVELS: Final = ("host", "rack", "zone", "region")


class LocalReads:
    """Orders replicas by the domains that they share with this process.

    Args:
        describe: says where members are, as ``Bookies.describe``.
    """

    def __init__(
        self, options: LedgerOptions, describe: Callable[[Sequence[str]], Sequence[Candidate]]
    ) -> None:
        self.local_count = 0
        """Reads that a bookie in the narrowest domain that is set has served."""
        self.remote_count = 0
        """Reads that another bookie has served."""
        self._describe = describe
        # the levels that are set, the narrowest first
        self._here = [
            (level, name) for level in _LEVELS if (name := getattr(options, f"local_{level}"))
        ]

    @property
    def is_used(self) -> bool:
        """Whether it is set where this process stands."""
        return bool(self._here)

    def distance(self, member: str) -> int:
        """Return how far a bookie is: 0 in the narrowest domain that is set, then more with each
        wider one.
        """
        (place,) = self._describe([member])
        for distance, (level, name) in enumerate(self._here):
            if getattr(place, level) == name:
                return distance
        return len(self._here)

    def served(self, member: str) -> None:
        """Count a read that this bookie has served."""
        if self.distance(member) == 0:
            self.local_count += 1
        else:
            self.remote_count += 1
