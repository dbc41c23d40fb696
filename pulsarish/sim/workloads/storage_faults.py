"""Faults of ``workloads/storage.py`` that need only the node: old or incomplete metadata, a disk
that another program fills, and messages that look like records of the journal.
"""

from __future__ import annotations

from collections.abc import Sequence

from pulsarish.bookie.entry_logs.entry_log_format import LOG_SUFFIX
from pulsarish.bookie.journal.journal import Journal
from pulsarish.bookie.journal.journal_format import FENCE_PAYLOAD, RecordType, frame_record
from pulsarish.metadata import paths
from pulsarish.sim.workloads.storage_oracle import StoredLedger
from pulsarish.sim.world.disk import SimDisk
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation

__all__ = ["forge_records", "forget_ledgers", "lag", "squeeze"]

_LAG_SECONDS = 0.3
_FORGED_FILES = 6
_RECORD_ALIGN_BYTES = 8


def lag(sim: Simulation, node: Node) -> None:
    """Let the metadata server to which the node is connected fall behind for a while."""
    session_id = node.session_id
    sim.metadata.lag(session_id)
    sim.at(_LAG_SECONDS, lambda: sim.metadata.catch_up(session_id))


def forget_ledgers(sim: Simulation, ledgers: Sequence[StoredLedger], seconds: float) -> None:
    """Let the metadata service show no record of some ledgers, for this many seconds.

    This happens once in the life of each ledger. A record that is missing at two looks counts as
    missing all the time between them.
    """
    forgotten = sim.metadata.forgotten
    for ledger in ledgers:
        if not ledger.deleted and not ledger.forgotten and sim.faults.random() < 0.5:
            ledger.forgotten = True
            forgotten[paths.ledger(ledger.ledger_id)] = None
    sim.at(seconds, forgotten.clear)


def squeeze(sim: Simulation, disk: SimDisk) -> None:
    """Let another program fill the disk for a moment: at any time, or between a check of the free
    space and the write of an entry log.
    """
    fill = sim.faults.choice((0, 300, 2_000, None, None))
    if fill is None:
        disk.fill_before_write(LOG_SUFFIX)
        return
    well = disk.capacity_bytes
    disk.capacity_bytes = disk.used_bytes() + fill

    def end() -> None:
        disk.capacity_bytes = max(well, disk.capacity_bytes)

    sim.at(sim.faults.uniform(0.01, 0.3), end)


def forge_records(journal: Journal) -> bytes:
    """Return a message with records of the journal's next files, each at every alignment.

    They say that everything was synced. A client can know all of a record but the key.
    """
    sequence = 1 << 40
    return b"".join(
        b"".join(
            frame_record(
                journal.file_of(sequence) + ahead,
                0,
                RecordType.FENCE,
                sequence,
                sequence,
                [FENCE_PAYLOAD.pack(0)],
                FENCE_PAYLOAD.size,
            )
        )
        + b"."
        for ahead in range(1, 1 + _FORGED_FILES)
        for _ in range(_RECORD_ALIGN_BYTES)
    )
