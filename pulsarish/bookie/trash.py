"""The trash: ledgers that the metadata do not have any more, kept for a while before their space is
freed.

One row of the index puts a ledger into the trash. Its entries keep their rows, and compaction
counts their bytes as live. For writers the ledger is deleted: fenced and unknown. Reads still find
its entries, because a negative answer must stay true. The ledger is restored whole, with its fence,
when the metadata name it again or an operator restores it. After the grace period the rows of its
entries are deleted, and then the entry logs are rewritten without them.

The grace period counts by the monotonic clock, so it begins again when the bookie starts.
"""

from __future__ import annotations

from typing import NamedTuple

from pulsarish.bookie.ledger_index import ROWS_MAX, TrashedLedger
from pulsarish.bookie.store import EntryStore
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock

__all__ = ["Trash", "TrashedSize"]

_log = get_logger("bookie.trash")


class TrashedSize(NamedTuple):
    ledger_id: int
    since_ms: int
    size_bytes: int


class Trash:
    """The trash of one bookie.

    ``put``, ``restore`` and ``empty`` exclude checkpoints and compaction.
    """

    def __init__(self, store: EntryStore, clock: Clock) -> None:
        self.count = 0
        """Ledgers in the trash when they were last listed."""
        self.restored = 0
        self._store = store
        self._clock = clock
        # by ledger: since when this process knows that it is in the trash
        self._known_at: dict[int, float] = {}

    async def ledgers(self) -> list[TrashedLedger]:
        """Return all ledgers of the trash, by id."""
        found: list[TrashedLedger] = []
        while page := await self._store.index.trashed(
            found[-1].ledger_id if found else -1, ROWS_MAX
        ):
            found += page
        now = self._clock.monotonic()
        self._known_at = {each.ledger_id: self._known_at.get(each.ledger_id, now) for each in found}
        self.count = len(found)
        return found

    async def sizes(self) -> list[TrashedSize]:
        """Return all ledgers of the trash, with the bytes that their entries take in entry logs."""
        found = await self.ledgers()
        size_bytes = dict.fromkeys((each.ledger_id for each in found), 0)
        if found:
            for log_id in await self._store.index.logs_begun():
                dropped = await self._store.index.log_dropped(log_id)
                for ledger_id, count in (await self._store.index.log_ledgers(log_id)).items():
                    if ledger_id in size_bytes:
                        size_bytes[ledger_id] += count - dropped.get(ledger_id, 0)
        return [
            TrashedSize(each.ledger_id, each.since_ms, size_bytes[each.ledger_id]) for each in found
        ]

    def is_due(self, ledger_id: int, grace_seconds: float) -> bool:
        """Return whether a ledger that ``ledgers`` has listed has been in the trash for this
        time.
        """
        known_at = self._known_at.get(ledger_id)
        return known_at is not None and self._clock.monotonic() - known_at >= grace_seconds

    async def put(self, ledger_id: int) -> bool:
        """Put a ledger into the trash, durably.

        ``False``: not now, because something of it is still being written.
        """
        store = self._store
        async with store.checkpointer.lock:
            state = await store.states.get(ledger_id)
            if not state.exists:
                return False
            if store.cache.holds(ledger_id):
                return False  # entries that are not in an entry log yet could not be restored
            row = state.row()
            (before,) = await store.index.trashed_rows([ledger_id])
            merged, whole = (
                (row, True) if before is None else (row.merged(before.row), before.since_ms > 0)
            )
            await store.index.trash_ledger(ledger_id, merged, self._clock.wall_ms(), whole=whole)
            self._known_at[ledger_id] = self._clock.monotonic()
            self.count = len(self._known_at)
            now = store.states.loaded.get(ledger_id)
            if store.cache.holds(ledger_id) or (now is not None and now.row() != row):
                # Entries came in the meantime. Its row is written again, and the next round tries
                # again.
                store.states.changed(await store.states.get(ledger_id))
                return False
            store.states.drop(ledger_id)
        _log.info("put a ledger into the trash", ledger=ledger_id)
        return True

    async def restore(self, ledger_id: int) -> bool:
        """Take a ledger out of the trash, durably.

        ``False``: it is not there, or not whole any more.
        """
        store = self._store
        async with store.checkpointer.lock:
            (found,) = await store.index.trashed_rows([ledger_id])
            if found is None:
                return False
            if not found.since_ms:
                _log.error(
                    "a ledger stays in the trash, because some of its entries are deleted already",
                    ledger=ledger_id,
                )
                return False
            state = await store.states.get(ledger_id)
            existed = state.exists
            row = found.row.merged(state.row()) if existed else found.row
            with store.index_write():
                await store.index.restore_ledger(ledger_id, row)
            store.states.restored(ledger_id, row, existed=existed)
            _ = self._known_at.pop(ledger_id, None)
            self.count = len(self._known_at)
        self.restored += 1
        _log.warning("took a ledger out of the trash", ledger=ledger_id)
        return True

    async def empty(self, ledger_id: int) -> bool:
        """Delete a ledger of the trash forever.

        ``False``: it is not there, or was written to since.
        """
        store = self._store
        async with store.checkpointer.lock:
            (found,) = await store.index.trashed_rows([ledger_id])
            if found is None or (await store.states.get(ledger_id)).exists:
                return False
            # Delete its own row last: after a crash in between the ledger is found again, with the
            # note that it is not whole.
            with store.index_write():
                await store.index.begin_emptying(ledger_id, found.row)
            while keys := await store.index.entry_keys(ledger_id, ROWS_MAX):
                places = await store.index.locations(keys) if store.read_cache.size_bytes else []
                with store.index_write():
                    await store.index.rows.write([], keys, sync=False)
                store.read_cache.drop(places)
            with store.index_write():
                await store.index.forget_trashed(ledger_id)
            _ = self._known_at.pop(ledger_id, None)
            self.count = len(self._known_at)
        _log.info("deleted a ledger that the metadata do not have", ledger=ledger_id)
        return True
