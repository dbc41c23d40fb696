"""Faults of a bookie's storage after which an operator has to act: a damaged index, and a disk that comes back older as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pulsarish.sim.world.index import INDEX_DAMAGE

if TYPE_CHECKING:
    from pulsarish.sim.world.faults import Fault
    from pulsarish.sim.world.world import Simulation

__all__ = ["OLDER_SECONDS", "DiskFaults", "DiskOperator"]

OLDER_SECONDS: Final = 1.5
"""About this many seconds of writes are lost by a metadata service, an index or a disk that comes back older."""
_LOOK_AGAIN_SECONDS: Final = 0.5


class DiskOperator(Protocol):
    """An operator who looks after the disks of bookies."""

    def rebuild_index(self, name: str) -> None:
        """Rebuild the index of this bookie from its entry logs, and start it."""
        ...

    def give_up_journal(self, name: str) -> None:
        """Start this bookie without what its journal lacks."""
        ...

    def journal_end(self, name: str) -> int | None:
        """The number that the next record of its journal gets, while it serves."""
        ...

    def position_known(self, name: str) -> int:
        """Below which record the metadata know its journal to be durable."""
        ...


class DiskFaults:
    """What ``storage`` does about them, and when. Without one nothing is damaged."""

    def __init__(self, sim: Simulation, storage: DiskOperator | None) -> None:
        self._sim = sim
        self._storage = storage
        self._healed = False
        self._to_rebuild: dict[str, None] = {}
        self._to_give_up: dict[str, None] = {}

    def heal(self) -> None:
        """No new damage; the operator does at once what he has not done yet."""
        self._healed = True
        for name in list(self._to_rebuild):
            self._rebuild(name)
        for name in list(self._to_give_up):
            self._give_up(name)

    def rot_index(self, fault: Fault) -> None:
        """Damage the index. Later the operator rebuilds it; or none does, and the machine is replaced once all is well."""
        if self._storage is None:
            return
        node = self._sim.nodes[fault.node]
        number = int(fault.amount * 2 * len(INDEX_DAMAGE))
        damage, rebuilt = INDEX_DAMAGE[number // 2], number % 2 == 0
        older = node.disk.snapshot_index()

        def begin() -> None:
            if self._healed:
                return
            # One bad block may be found by a bookie that runs, and does not keep it from starting: without an operator it would stay.
            if damage != "block":
                node.crash()
            if node.disk.damage_index(damage, older) and (rebuilt or damage == "block"):
                self._to_rebuild[fault.node] = None
            node.revive()
            self._sim.at(fault.lasts_seconds, lambda: self._rebuild(fault.node))

        self._sim.at(OLDER_SECONDS if damage == "older" else 0.0, begin)

    def older_disk(self, fault: Fault) -> None:
        """Put the whole disk back as it was, without something that the metadata know to have been durable: nothing is promised for what is
        younger than that. Later the operator gives up what is missing; or the machine is replaced once all is well."""
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
