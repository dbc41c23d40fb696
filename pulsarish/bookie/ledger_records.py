"""Copies of the records of this bookie's ledgers, for the day on which the metadata are lost.

``pulsarish storage rebuild-metadata`` makes the metadata again from the copies of all bookies. No
bookie decides anything by its copies: they may be old.

A copy is made about a second after the ledger came here, and again when a round of garbage
collection finds a newer record. So a bookie that joins the ensemble of a ledger has the record that
names it. Versions are compared within one epoch of the metadata tree: in a tree that was restored
they may have begun again. While the tree is marked as restored or older, its records may be older
than the copies, and replace none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pulsarish.bookie.ledger_index import ROWS_MAX, KeptRecord
from pulsarish.bookie.store import EntryStore
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.tree_age import TreeAge
from pulsarish.model.errors import BookieIOError, CorruptData, MetadataUnavailable
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock, Versioned

__all__ = ["LedgerRecords"]

_log = get_logger("bookie.ledger_records")
_PAUSE_SECONDS: Final = 1.0
"""How long new ledgers are gathered before their records are read together."""
_AGAIN_SECONDS: Final = 2.0
"""After this time records that do not name this bookie are read once more."""
_RETRY_SECONDS: Final = 10.0
_PAGE: Final = 500


class LedgerRecords:
    """The copies of one volume."""

    def __init__(self, store: EntryStore, records: Records, age: TreeAge, clock: Clock) -> None:
        self.written = 0
        """Copies that this process has written."""
        self._store = store
        self._records = records
        self._age = age
        self._clock = clock
        self._busy = asyncio.Lock()
        self._stopping = asyncio.Event()

    async def stop(self) -> None:
        """Begin nothing more, and return when what runs has ended."""
        self._stopping.set()
        self._store.states.has_new.set()
        async with self._busy:
            pass

    async def follow(self) -> None:
        """Copy the records of ledgers that come here, until ``stop``."""
        states, new = self._store.states, list[int]()
        while not self._stopping.is_set():
            if not new:
                await states.has_new.wait()
            if not self._stopping.is_set():
                await self._clock.sleep(_PAUSE_SECONDS)
            new = list(dict.fromkeys((*new, *states.take_new())))
            doubtful: list[int] = []
            try:
                while new and not self._stopping.is_set():
                    doubtful += await self.read(new[:_PAGE])
                    del new[:_PAGE]
                if doubtful and not self._stopping.is_set():
                    await self._clock.sleep(_AGAIN_SECONDS)
                    for first in range(0, len(doubtful), _PAGE):
                        _ = await self.read(doubtful[first : first + _PAGE])
            except (MetadataUnavailable, CorruptData, BookieIOError) as error:
                _log.debug("records of new ledgers are not copied yet", reason=error)
                new = [*new, *doubtful][-ROWS_MAX:]  # garbage collection copies the others
                await self._clock.sleep(_RETRY_SECONDS)

    async def read(self, ledger_ids: Sequence[int]) -> list[int]:
        """Read the records of these ledgers, and keep copies.

        Return those without a record that names this bookie: the metadata server may lag behind.

        Raises ``MetadataUnavailable``, ``CorruptData``, ``BookieIOError``.
        """
        async with self._busy:
            if self._stopping.is_set():
                return []
            is_marked = await self._age.known_mark() is not None
            epoch = self._age.seen.epoch
            # Keep this order: a restore marks the tree before it changes anything.
            *nodes, restored = await self._records.nodes(
                [*(paths.ledger(each) for each in ledger_ids), paths.RESTORED]
            )
            found = [
                (ledger_id, node)
                for ledger_id, node in zip(ledger_ids, nodes, strict=True)
                if node is not None
            ]
            await self._keep(found, epoch, is_marked=is_marked or restored is not None)
        own_name = self._store.instance_id.encode()
        named = {ledger_id: None for ledger_id, node in found if own_name in node.data}
        return [each for each in ledger_ids if each not in named]

    async def keep(
        self, found: Sequence[tuple[int, Versioned]], epoch: int, *, is_marked: bool
    ) -> None:
        """Keep copies of records that were just read, as far as they are newer.

        Args:
            epoch: of the tree, before they were read.
            is_marked: the tree was marked as restored or older before or after they were read.

        Raises ``BookieIOError``.
        """
        async with self._busy:
            if not self._stopping.is_set():
                await self._keep(found, epoch, is_marked=is_marked)

    async def _keep(
        self, found: Sequence[tuple[int, Versioned]], epoch: int, *, is_marked: bool
    ) -> None:
        index = self._store.index
        wanted: list[tuple[int, KeptRecord]] = []
        before = await index.kept_records([ledger_id for ledger_id, _ in found])
        for (ledger_id, node), kept in zip(found, before, strict=True):
            now = KeptRecord(epoch, node.version, node.data)
            if kept is None or (not is_marked and _is_newer(now, kept)):
                wanted.append((ledger_id, now))
        if not wanted:
            return
        async with self._store.checkpointer.lock:  # no ledger leaves the trash meanwhile
            here = await self._here([ledger_id for ledger_id, _ in wanted])
            rows = [each for each in wanted if here[each[0]]]
            with self._store.index_write():
                await index.keep_records(rows)
        self.written += len(rows)

    async def _here(self, ledger_ids: Sequence[int]) -> dict[int, bool]:
        """Return for each of these ledgers whether the bookie has it, in the trash or not."""
        index, loaded = self._store.index, self._store.states.loaded
        rows = await index.ledger_rows(ledger_ids)
        trashed = await index.trashed_rows(ledger_ids)
        return {
            ledger_id: row is not None
            or kept is not None
            or ((state := loaded.get(ledger_id)) is not None and state.exists)
            for ledger_id, row, kept in zip(ledger_ids, rows, trashed, strict=True)
        }


def _is_newer(now: KeptRecord, kept: KeptRecord) -> bool:
    return now[:2] > kept[:2]
