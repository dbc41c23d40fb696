"""What is in the indexes and journals of one volume or of several, at one time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from pulsarish.bookie.inspection.directories import Inspected
from pulsarish.bookie.inspection.journals import entries_above_mark
from pulsarish.bookie.inspection.ledgers import LedgerFacts, ledgers_here
from pulsarish.bookie.ledger_index import LedgerIndex, entry_key
from pulsarish.bookie.limbo import Limbo
from pulsarish.model.ledger_metadata import LedgerMetadata

__all__ = ["Look", "absent_entries", "looking_at"]

_PAGE_ENTRIES: Final = 500


@dataclass(frozen=True, slots=True)
class Look:
    """What volumes of a bookie had at one time.

    ``replayed``: entries that a start would take from the journals, by ledger. ``absent_below``:
    the bookie answers "unknown" for ledgers below this id that are in none of its volumes.
    """

    indexes: Sequence[LedgerIndex]
    facts: dict[int, LedgerFacts]
    replayed: dict[int, dict[int, None]]
    absent_below: int

    async def without_entries(
        self, instance_id: str, named: Sequence[LedgerMetadata]
    ) -> dict[int, list[int]]:
        """Return the entries that each of these closed ledgers should have here and has not.

        A ledger in the trash or in limbo is left out: the bookie repairs these by itself.
        """
        found: dict[int, list[int]] = {}
        for ledger in named:
            here = self.facts.get(ledger.ledger_id)
            if here is not None and (here.is_trashed or here.limbo):
                continue
            if here is None and ledger.ledger_id < self.absent_below:
                continue
            pending = self.replayed.get(ledger.ledger_id, {})
            entry_ids: list[int] = []
            for first in range(0, ledger.last_entry + 1, _PAGE_ENTRIES):
                last = min(first + _PAGE_ENTRIES - 1, ledger.last_entry)
                wanted = [
                    entry_id
                    for entry_id in range(first, last + 1)
                    if entry_id not in pending and instance_id in ledger.write_set(entry_id)
                ]
                entry_ids += await absent_entries(self.indexes, ledger.ledger_id, wanted)
            if entry_ids:
                found[ledger.ledger_id] = entry_ids
        return found


@asynccontextmanager
async def looking_at(volumes: Sequence[Inspected]) -> AsyncIterator[Look]:
    """Yield what is in these volumes of one bookie now.

    Raises ``CorruptData``, ``BookieIOError``, ``OSError``.
    """
    replayed: dict[int, dict[int, None]] = {}
    # The journals first: what leaves them is in the indexes then.
    for volume in volumes:
        for ledger_id, entries in (await entries_above_mark(volume)).items():
            replayed.setdefault(ledger_id, {}).update(entries)
    indexes: list[LedgerIndex] = []
    facts: dict[int, LedgerFacts] = {}
    absent_below = 0
    async with AsyncExitStack() as stack:
        for volume in volumes:
            opened = await stack.enter_async_context(volume.opened_indexes())
            here = [each.index for each in opened]
            indexes += here
            for each in await ledgers_here(volume, here):
                known = facts.get(each.ledger_id)
                if known is None or known.is_trashed:
                    facts[each.ledger_id] = each
            limbo = Limbo(volume.files, volume.ledgers[0])
            await limbo.load()
            absent_below = max(absent_below, limbo.absent_below)
        yield Look(indexes, facts, replayed, absent_below)


async def absent_entries(
    indexes: Sequence[LedgerIndex], ledger_id: int, entry_ids: Sequence[int]
) -> list[int]:
    """Return those of the entries that no index has."""
    if not entry_ids:
        return []
    keys = [entry_key(ledger_id, entry_id) for entry_id in entry_ids]
    places = [await each.locations(keys) for each in indexes]
    return [
        entry_id
        for number, entry_id in enumerate(entry_ids)
        if all(found[number] is None for found in places)
    ]
