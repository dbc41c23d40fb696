"""Faults of a bookie's storage that need an operator afterwards: a damaged index, and a whole disk
that comes back older.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pulsarish.sim.world.index import INDEX_DAMAGE

if TYPE_CHECKING:
    from pulsarish.sim.world.faults import Fault
    from pulsarish.sim.world.world import Simulation

__all__ = ["OLDER_SECONDS", "DiskFaults", "DiskOperator"]

OLDER_SECONDS: Final = 1.5
"""A metadata service, an index or a disk that comes back older loses about this many seconds of
writes.
"""
_LOOK_AGAIN_SECONDS: Final = 0.5


class DiskOperator(Protocol):
    """An operator who looks after the disks of bookies."""

    def rebuild_index(self, name: str) -> None:
        """Rebuild the index of this bookie from its entry logs, and start the bookie."""
        ...

    def give_up_journal(self, name: str) -> None:
        """Start this bookie without the records that are missing in its journal."""
        ...

    def journal_end(self, name: str) -> int | None:
        """Return the number of the next record of this bookie's journal, or None when the bookie
        does not serve.
        """
        ...

    def position_known(self, name: str) -> int:
        """Return the record number up to which (exclusive) the metadata know that the journal of
        this bookie is durable.
        """
        ...


class DiskFaults:
    """The damage and what the operator ``storage`` does after it.

    Without an operator nothing is damaged.
    """

    def __init__(self, sim: Simulation, storage: DiskOperator | None) -> None:
        self._sim = sim
        self._storage = storage
        self._healed = False
        self._to_rebuild: dict[str, None] = {}
        self._to_give_up: dict[str, None] = {}

    def heal(self) -> None:
        """Do no more damage. The operator does the pending repairs at once."""
        self._healed = True
        for name in list(self._to_rebuild):
            self._rebuild(name)
        for name in list(self._to_give_up):
            self._give_up(name)

    def rot_index(self, fault: Fault) -> None:
        """Damage the index.

        Later the operator rebuilds it, or the machine is replaced at the end of the run.
        """
        if self._storage is None:
            return
        node = self._sim.nodes[fault.node]
        number = int(fault.amount * 2 * len(INDEX_DAMAGE))
        damage, rebuilt = INDEX_DAMAGE[number // 2], number % 2 == 0
        older = node.disk.snapshot_index()

        def begin() -> None:
            if self._healed:
                return
            # A bookie that runs may find one bad block and still be able to start. Without an
            # operator the bad block would stay.
            if damage != "block":
                node.crash()
            if node.disk.damage_index(damage, older) and (rebuilt or damage == "block"):
                self._to_rebuild[fault.node] = None
            node.revive()
            self._sim.at(fault.lasts_seconds, lambda: self._rebuild(fault.node))

        self._sim.at(OLDER_SECONDS if damage == "older" else 0.0, begin)

    def older_disk(self, fault: Fault) -> None:
        """Put the whole disk back as it was, without something that the metadata know to have been
        durable.

        Nothing is promised for data that is younger. Later the operator gives up what is missing,
        or the machine is replaced.
        """
        storage, node = self._storage, self._sim.nodes[fault.node]
        end = storage.journal_end(fault.node) if storage is not None else None
        if storage is None or end is None:
            return
        image = node.disk.image()

        def begin() -> None:
            if self._healed or node.disk.wipes_count != image.wipes_count:
                return
            if storage.position_known(fault.node) <= end:
                self._sim.at(_LOOK_AGAIN_SECONDS, begin)
                return
            node.crash()
            node.disk.put_back(image)
            if any(index.has_bad_block for index in node.disk.indexes.values()):
                # The operator may have repaired it since.
                self._to_rebuild[fault.node] = None
                self._sim.at(fault.lasts_seconds, lambda: self._rebuild(fault.node))
            if fault.amount < 0.5:
                self._to_give_up[fault.node] = None
            node.revive()
            self._sim.at(fault.lasts_seconds, lambda: self._give_up(fault.node))

        self._sim.at(OLDER_SECONDS * (0.4 + fault.amount), begin)

    def _rebuild(self, name: str) -> None:
        if name in self._to_rebuild and self._storage is not None:
            del self._to_rebuild[name]
            self._storage.rebuild_index(name)

    def _give_up(self, name: str) -> None:
        if name in self._to_give_up and self._storage is not None:
            del self._to_give_up[name]
            self._storage.give_up_journal(name)
