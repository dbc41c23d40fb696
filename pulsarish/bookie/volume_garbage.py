"""The garbage collectors of several volumes, as one for calls about the trash and for rounds on
request.
"""

from __future__ import annotations

from collections.abc import Sequence

from pulsarish.bookie.garbage import Collected, GarbageCollector
from pulsarish.bookie.trash import TrashedSize
from pulsarish.bookie.volume import Volume

__all__ = ["VolumesGarbage"]


class VolumesGarbage:
    """The garbage of all volumes that have not failed. Each asks its own volume about a ledger, and
    one has it.
    """

    def __init__(self, volumes: Sequence[Volume], collectors: Sequence[GarbageCollector]) -> None:
        self.wanted = 0
        """The number of the last round that was asked for, in all volumes."""
        # the rounds of each collector that an operator waits for, oldest first
        self._pending: list[list[int]] = []
        self._volumes = volumes
        self._all = collectors

    @property
    def _collectors(self) -> list[GarbageCollector]:
        found = zip(self._volumes, self._all, strict=True)
        return [collector for volume, collector in found if volume.failure is None]

    # -- the trash

    @property
    def trash(self) -> VolumesGarbage:
        return self

    @property
    def count(self) -> int:
        """Ledgers in the trash."""
        return sum(one.trash.count for one in self._collectors)

    async def sizes(self) -> list[TrashedSize]:
        """Return all ledgers of the trash, as ``Trash.sizes``."""
        found = [each for one in self._collectors for each in await one.trash.sizes()]
        return sorted(found, key=lambda each: each.ledger_id)

    async def restore(self, ledger_id: int) -> bool:
        """Take a ledger out of the trash, as ``Trash.restore``."""
        for one in self._collectors:
            if await one.trash.restore(ledger_id):
                return True
        return False

    async def empty_trash(self, ledger_ids: Sequence[int]) -> list[int]:
        """Delete ledgers forever, as ``GarbageCollector.empty_trash``."""
        return [each for one in self._collectors for each in await one.empty_trash(ledger_ids)]

    # -- rounds, as those of ``GarbageCollector``

    def ask(self) -> None:
        for one in self._collectors:
            one.ask()
        rounds = [one.wanted for one in self._all]
        if rounds not in self._pending[-1:]:
            self._pending.append(rounds)
            self.wanted += 1

    @property
    def ended(self) -> int:
        self._pending = [rounds for rounds in self._pending if not self._have_ended(rounds)]
        return self.wanted - len(self._pending)

    def _have_ended(self, rounds: Sequence[int]) -> bool:
        return all(
            volume.failure is not None or one.ended >= wanted
            # A volume that was added since is not waited for.
            for volume, one, wanted in zip(self._volumes, self._all, rounds, strict=False)
        )

    @property
    def failure(self) -> str:
        return "; ".join(dict.fromkeys(one.failure for one in self._collectors if one.failure))

    @property
    def missing_count(self) -> int:
        return sum(one.missing_count for one in self._collectors)

    @property
    def stray_ledgers_count(self) -> int:
        return sum(one.stray_ledgers_count for one in self._collectors)

    @property
    def logs_postponed(self) -> int:
        return sum(one.logs_postponed for one in self._collectors)

    @property
    def last(self) -> Collected:
        return Collected(*map(sum, zip(*(one.last for one in self._collectors), strict=True)))
