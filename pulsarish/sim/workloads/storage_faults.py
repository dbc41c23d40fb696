"""Faults of ``storage_workload`` that need no more than the node: metadata that lag or lack something, and a disk that others fill."""

from __future__ import annotations

from collections.abc import Sequence

from pulsarish.bookie.entry_logs.entry_log_format import LOG_SUFFIX
from pulsarish.metadata import paths
from pulsarish.sim.workloads.storage_oracle import StoredLedger
from pulsarish.sim.world.disk import SimDisk
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation

__all__ = ["forget_ledgers", "lag", "squeeze"]

_LAG_SECONDS = 0.3


def lag(sim: Simulation, node: Node) -> None:
    """The metadata server to which the node is connected falls behind for a while."""
    session_id = node.session_id
    sim.metadata.lag(session_id)
    sim.at(_LAG_SECONDS, lambda: sim.metadata.catch_up(session_id))


def forget_ledgers(sim: Simulation, ledgers: Sequence[StoredLedger], seconds: float) -> None:
    """For so long the metadata service shows no record of some ledgers. Each meets that once in its life: a record that is missing at two
    looks counts as missing all the time between them."""
    forgotten = sim.metadata.forgotten
    for ledger in ledgers:
        if not ledger.deleted and not ledger.forgotten and sim.faults.random() < 0.5:
            ledger.forgotten = True
            forgotten[paths.ledger(ledger.ledger_id)] = None
    sim.at(seconds, forgotten.clear)


def squeeze(sim: Simulation, disk: SimDisk) -> None:
    """Another program fills the disk for a moment: at any time, or between a look at the free space and the write of an entry log."""
    fill = sim.faults.choice((0, 300, 2_000, None, None))
    if fill is None:
        disk.fill_before_write(LOG_SUFFIX)
        return
    well = disk.capacity_bytes
    disk.capacity_bytes = disk.used_bytes() + fill

    def end() -> None:
        disk.capacity_bytes = max(well, disk.capacity_bytes)

    sim.at(sim.faults.uniform(0.01, 0.3), end)
