"""The metadata of a bookie, for commands about its disks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.tree_memory import remembered_age
from pulsarish.metadata import paths
from pulsarish.metadata.access import access_of
from pulsarish.metadata.process import open_store
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import LedgerIds
from pulsarish.model.errors import NotFound
from pulsarish.runtime.files import LocalFiles
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.network.tls_options import tls_of_client
from pulsarish.runtime.seams import World
from pulsarish.runtime.tasks import Supervisor
from pulsarish.runtime.world import production

__all__ = ["Tree", "tree_of"]


@dataclass(frozen=True, slots=True)
class Tree:
    """The metadata that a bookie uses, and the files of its directories."""

    config: BookieConfig
    world: World
    files: LocalFiles
    records: Records

    async def guarded(self) -> Records:
        """Return records that are refused when the tree came back older.

        Raises ``CorruptData`` for what the bookie remembers of the tree.
        """
        clock, metadata = self.world.clock, self.world.metadata
        age = await remembered_age(self.records, clock, self.files, self.config)
        return Records(metadata, clock, self.world.random, guard=age)

    async def ledgers_given_out(self) -> int:
        """Return an id that is above those of all ledgers.

        Raises ``MetadataUnavailable`` for a tree that came back older.
        """
        found = await (await self.guarded()).get(paths.LEDGER_IDS, LedgerIds)
        if found is None:
            raise NotFound(
                f"the metadata at {self.config.metadata_url} have never given out a ledger id: "
                "check metadata_url"
            )
        return found[0].next_id


@asynccontextmanager
async def tree_of(config: BookieConfig) -> AsyncIterator[Tree]:
    """Yield the metadata that a bookie with this configuration uses."""
    outside = OutsideWork()
    # A task that fails is this command's failure, not the end of a server.
    parts = production(outside=outside, supervisor=Supervisor(died=lambda _name, _error: None))
    try:
        store = await open_store(
            config.metadata_url, parts, outside, access=access_of(config, tls_of_client(config))
        )
        try:
            world = parts.world(store)
            records = Records(store, parts.clock, parts.random)
            yield Tree(config, world, parts.files, records)
        finally:
            await store.close()
    finally:
        await parts.close()
