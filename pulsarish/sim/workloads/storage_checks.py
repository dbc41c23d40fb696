"""Checks of a bookie's entry logs at the end: they hold everything that the index counts for them,
up to the end of each.
"""

from __future__ import annotations

from typing import Final

from pulsarish.bookie.store import EntryStore
from pulsarish.model.errors import CorruptData

__all__ = ["check_logs"]

_ENTRIES_MAX: Final = 100_000


async def check_logs(store: EntryStore) -> None:
    """Read each entry log as compaction does.

    Raises ``AssertionError`` when a log has less of a living ledger than was written to it.
    """
    async with store.checkpointer.lock:
        for log_id in await store.index.logs_begun():
            if log_id != store.logs.current_id:
                await _check_log(store, log_id)


async def _check_log(store: EntryStore, log_id: int) -> None:
    counted = await store.index.log_ledgers(log_id)
    found = dict.fromkeys(counted, 0)
    end = "it ends there"
    try:
        async for chunk in store.logs.scan(log_id):
            found[chunk.ledger_id] = found.get(chunk.ledger_id, 0) + sum(
                size for _, _, size in chunk.locations
            )
    except (CorruptData, FileNotFoundError) as error:
        end = str(error)  # what a crash has torn is after everything that counts
    for ledger_id, size_bytes in counted.items():
        if found[ledger_id] < size_bytes:
            # Without an entry there, only the counts of a removed log are left.
            rows = await store.index.entry_locations(ledger_id, 0, _ENTRIES_MAX)
            assert all(location[0] != log_id for _, location in rows), (
                f"log {log_id} has {found[ledger_id]} of {size_bytes} bytes of ledger "
                f"{ledger_id}: {end}"
            )
