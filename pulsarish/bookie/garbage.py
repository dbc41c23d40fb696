"""Deleting what the metadata no longer has (rule 12)."""

from __future__ import annotations

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.store import LedgerStore
from pulsarish.metadata.update import Records
from pulsarish.runtime.seams import Clock

__all__ = ["GarbageCollector"]


class GarbageCollector:
    def __init__(self, store: LedgerStore, records: Records, clock: Clock, config: BookieConfig, *, cluster_id: str) -> None:
        pass

    async def collect(self) -> None:
        pass

    async def stop(self) -> None:
        pass
