"""The comparison of the ledgers that bookies hold with those that the metadata name.

Nothing is changed.

After a restore from an old backup this is the list of what to repair: ledgers made after the
backup, which only bookies know of, and ledgers deleted after it, which only the metadata know of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from pulsarish.ledger.bookie_control import BookieControl, NoAnswer
from pulsarish.metadata import paths
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState

__all__ = ["Inventory", "ids_held", "take_inventory"]


@dataclass(slots=True)
class Inventory:
    """The result of the comparison. Bookies are instance ids."""

    silent: dict[str, str] = field(default_factory=dict)
    """Bookies that did not answer, and why. The fields below say nothing about them."""
    unknown: dict[int, list[str]] = field(default_factory=dict)
    """Ledgers that no metadata name, with the bookies that hold them.

    Bookies delete them as garbage unless the tree is a restored one.
    """
    unheld: list[int] = field(default_factory=list)
    """Closed ledgers with entries that none of their members holds. All members answered."""
    elsewhere: dict[int, list[str]] = field(default_factory=dict)
    """Ledgers that were open in the backup, with the bookies that hold them and that their record
    does not name.
    """

    @property
    def is_clean(self) -> bool:
        return not (self.silent or self.unknown or self.unheld or self.elsewhere)


async def _held_by(control: BookieControl, bookie: str, found: Callable[[int, str], None]) -> None:
    after, more = -1, True
    while more:
        page, more = await control.list_ledgers(bookie, after)
        for ledger_id in page:
            found(ledger_id, bookie)
        if not page:
            return
        after = page[-1]


async def ids_held(control: BookieControl, bookies: list[str]) -> list[int]:
    """Return the ids of the ledgers that these bookies hold, ascending. Raises ``NoAnswer``."""
    held: set[int] = set()
    await asyncio.gather(
        *(_held_by(control, bookie, lambda ledger_id, _: held.add(ledger_id)) for bookie in bookies)
    )
    return sorted(held)


async def take_inventory(records: Records, control: BookieControl, bookies: list[str]) -> Inventory:
    """Ask these bookies for their ledgers, then the metadata for theirs.

    In this order a ledger made meanwhile does not count as unknown.

    Raises ``MetadataUnavailable``, ``CorruptData``.
    """
    stock = Inventory()
    held: dict[int, list[str]] = {}

    async def ask(bookie: str) -> None:
        try:
            await _held_by(
                control, bookie, lambda ledger_id, by: held.setdefault(ledger_id, []).append(by)
            )
        except NoAnswer as error:
            stock.silent[bookie] = str(error)

    await asyncio.gather(*(ask(bookie) for bookie in bookies))
    unknown = dict(held)
    answered = [bookie for bookie in bookies if bookie not in stock.silent]
    async for branch in ledger_ids(records):
        for found in (
            await records.get_many([paths.ledger(each) for each in branch], LedgerMetadata)
            if branch
            else []
        ):
            if found is not None:
                by = unknown.pop(found[0].ledger_id, [])
                _look(stock, found[0], by, answered)
    stock.unknown = {ledger_id: sorted(unknown[ledger_id]) for ledger_id in sorted(unknown)}
    return stock


def _look(
    stock: Inventory, metadata: LedgerMetadata, held_by: list[str], answered: list[str]
) -> None:
    members = {member: None for segment in metadata.segments for member in segment.members}
    if metadata.state is LedgerState.CLOSED:
        if (
            metadata.last_entry >= 0
            and all(member in answered for member in members)
            and not any(by in members for by in held_by)
        ):
            stock.unheld.append(metadata.ledger_id)
    elif metadata.restored and (others := [by for by in held_by if by not in members]):
        stock.elsewhere[metadata.ledger_id] = sorted(others)
