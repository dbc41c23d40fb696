"""Every mutant, by its name.

One is switched on at a time. The product does not import any of them.
"""

from __future__ import annotations

from typing import Final

from pulsarish.sim.mutants.backups import BACKUP_MUTANTS
from pulsarish.sim.mutants.balance import BALANCE_MUTANTS
from pulsarish.sim.mutants.bookie_groups import GROUP_MUTANTS
from pulsarish.sim.mutants.cancellations import CANCELLATION_MUTANTS
from pulsarish.sim.mutants.captures import CAPTURE_MUTANTS
from pulsarish.sim.mutants.cluster import CLUSTER_MUTANTS
from pulsarish.sim.mutants.containment import CONTAINMENT_MUTANTS
from pulsarish.sim.mutants.disk import DISK_MUTANTS
from pulsarish.sim.mutants.drains import DRAIN_MUTANTS
from pulsarish.sim.mutants.faces import FACE_MUTANTS
from pulsarish.sim.mutants.garbage import GARBAGE_MUTANTS
from pulsarish.sim.mutants.hostile import HOSTILE_MUTANTS
from pulsarish.sim.mutants.journal import JOURNAL_MUTANTS
from pulsarish.sim.mutants.ledgers import LEDGER_MUTANTS
from pulsarish.sim.mutants.letters import LETTER_MUTANTS
from pulsarish.sim.mutants.lost_metadata import LOST_METADATA_MUTANTS
from pulsarish.sim.mutants.message_life import LIFE_MUTANTS
from pulsarish.sim.mutants.metadata import METADATA_MUTANTS
from pulsarish.sim.mutants.namesakes import NAMESAKE_MUTANTS
from pulsarish.sim.mutants.orphans import ORPHAN_MUTANTS
from pulsarish.sim.mutants.outages import OUTAGE_MUTANTS
from pulsarish.sim.mutants.patterns import PATTERN_MUTANTS
from pulsarish.sim.mutants.placement import PLACEMENT_MUTANTS
from pulsarish.sim.mutants.priorities import PRIORITY_MUTANTS
from pulsarish.sim.mutants.progress import PROGRESS_MUTANTS
from pulsarish.sim.mutants.quotas import QUOTA_MUTANTS
from pulsarish.sim.mutants.rates import RATE_MUTANTS
from pulsarish.sim.mutants.reader_checkpoints import READER_CHECKPOINT_MUTANTS
from pulsarish.sim.mutants.repair import REPAIR_MUTANTS
from pulsarish.sim.mutants.rights import RIGHTS_MUTANTS
from pulsarish.sim.mutants.schedules import SCHEDULE_MUTANTS
from pulsarish.sim.mutants.shared_reads import SHARED_READ_MUTANTS
from pulsarish.sim.mutants.storage import STORAGE_MUTANTS
from pulsarish.sim.mutants.topic_log import LOG_MUTANTS
from pulsarish.sim.mutants.volume_additions import VOLUME_ADDITION_MUTANTS
from pulsarish.sim.mutants.volume_removals import VOLUME_MUTANTS
from pulsarish.sim.workloads.safeguard import Mutant

__all__ = ["MUTANTS"]

_ALL: Final = (
    *STORAGE_MUTANTS,
    *JOURNAL_MUTANTS,
    *GARBAGE_MUTANTS,
    *LEDGER_MUTANTS,
    *REPAIR_MUTANTS,
    *LOG_MUTANTS,
    *LIFE_MUTANTS,
    *PRIORITY_MUTANTS,
    *LETTER_MUTANTS,
    *CANCELLATION_MUTANTS,
    *NAMESAKE_MUTANTS,
    *READER_CHECKPOINT_MUTANTS,
    *CLUSTER_MUTANTS,
    *DISK_MUTANTS,
    *PROGRESS_MUTANTS,
    *CONTAINMENT_MUTANTS,
    *METADATA_MUTANTS,
    *BACKUP_MUTANTS,
    *LOST_METADATA_MUTANTS,
    *HOSTILE_MUTANTS,
    *RIGHTS_MUTANTS,
    *FACE_MUTANTS,
    *PATTERN_MUTANTS,
    *BALANCE_MUTANTS,
    *PLACEMENT_MUTANTS,
    *ORPHAN_MUTANTS,
    *OUTAGE_MUTANTS,
    *DRAIN_MUTANTS,
    *RATE_MUTANTS,
    *CAPTURE_MUTANTS,
    *SCHEDULE_MUTANTS,
    *SHARED_READ_MUTANTS,
    *QUOTA_MUTANTS,
    *VOLUME_MUTANTS,
    *VOLUME_ADDITION_MUTANTS,
    *GROUP_MUTANTS,
)

MUTANTS: Final[dict[str, Mutant]] = {mutant.name: mutant for mutant in _ALL}

assert len(MUTANTS) == len(_ALL), "two mutants have one name"
