"""What a restore of a backup would find: the restored tree compared with what bookies hold and with
the live tree. Nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pulsarish.ledger.bookie_control import BookieControl
from pulsarish.ledger.repair.inventory import take_inventory
from pulsarish.metadata import paths
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie

__all__ = ["Rehearsal", "instances", "rehearse_stock"]


@dataclass(slots=True)
class Rehearsal:
    """What would be after the restore. Bookies are instance ids."""

    ledgers: int = 0
    """Ledgers that the backup names."""
    newer: list[int] = field(default_factory=list)
    """Ledgers that the live tree names and the backup does not: their messages would be unknown."""
    deleted: list[int] = field(default_factory=list)
    """Ledgers with entries that were deleted since: topics would name them, and cannot read
    them.
    """
    elsewhere: dict[int, list[str]] = field(default_factory=dict)
    """Ledgers that were open in the backup and went on with bookies that it does not name."""
    gone_bookies: list[str] = field(default_factory=list)
    """Bookies of the backup that are decommissioned since."""
    lost: list[int] = field(default_factory=list)
    """Ledgers with entries that both trees name and that none of their members holds."""
    silent: dict[str, str] = field(default_factory=dict)
    """Bookies of the live tree that did not answer, and why."""

    @property
    def is_well(self) -> bool:
        """Whether every ledger that the live tree still has could be read after the restore, as far
        as the backup knows it.
        """
        return not (self.lost or self.silent)


async def instances(records: Records) -> list[str]:
    """Return the instance ids of all bookies of a tree that are not decommissioned.

    Raises ``MetadataUnavailable``, ``CorruptData``.
    """
    names = [f"{paths.COOKIES}/{name}" for name in await records.children(paths.COOKIES)]
    found = await records.get_many(names, Cookie) if names else []
    return [row[0].instance_id for row in found if row is not None]


async def rehearse_stock(restored: Records, live: Records, control: BookieControl) -> Rehearsal:
    """Compare a restored tree with the bookies of the live one.

    Raises ``MetadataUnavailable``, ``CorruptData`` for a record that cannot be read.
    """
    bookies = await instances(live)
    stock = await take_inventory(restored, control, bookies)
    named = await _named(restored)
    alive = await _named(live)
    return Rehearsal(
        ledgers=len(named),
        newer=sorted(alive.keys() - named.keys()),
        deleted=[each for each in stock.unheld if each not in alive],
        elsewhere={each: by for each, by in stock.elsewhere.items() if each in alive},
        gone_bookies=[each for each in await instances(restored) if each not in bookies],
        lost=[each for each in stock.unheld if each in alive],
        silent=stock.silent,
    )


async def _named(records: Records) -> dict[int, None]:
    found: dict[int, None] = {}
    async for branch in ledger_ids(records):
        found.update(dict.fromkeys(branch))
    return found
