"""Every mutant, by its name. They live beside the simulation and are switched on one at a time; nothing that is served knows of them."""

from __future__ import annotations

from typing import Final

from pulsarish.sim.cluster_mutants import CLUSTER_MUTANTS
from pulsarish.sim.containment_mutants import CONTAINMENT_MUTANTS
from pulsarish.sim.disk_mutants import DISK_MUTANTS
from pulsarish.sim.garbage_mutants import GARBAGE_MUTANTS
from pulsarish.sim.ledger_mutants import LEDGER_MUTANTS
from pulsarish.sim.log_mutants import LOG_MUTANTS
from pulsarish.sim.metadata_mutants import METADATA_MUTANTS
from pulsarish.sim.mutants import Mutant
from pulsarish.sim.progress_mutants import PROGRESS_MUTANTS
from pulsarish.sim.repair_mutants import REPAIR_MUTANTS
from pulsarish.sim.storage_mutants import STORAGE_MUTANTS

__all__ = ["MUTANTS"]

_ALL: Final = (
    *STORAGE_MUTANTS,
    *GARBAGE_MUTANTS,
    *LEDGER_MUTANTS,
    *REPAIR_MUTANTS,
    *LOG_MUTANTS,
    *CLUSTER_MUTANTS,
    *DISK_MUTANTS,
    *PROGRESS_MUTANTS,
    *CONTAINMENT_MUTANTS,
    *METADATA_MUTANTS,
)

MUTANTS: Final[dict[str, Mutant]] = {mutant.name: mutant for mutant in _ALL}

assert len(MUTANTS) == len(_ALL), "two mutants have one name"
