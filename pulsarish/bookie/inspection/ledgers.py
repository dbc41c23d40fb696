"""What the index of a bookie knows of its ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pulsarish.bookie.inspection.directories import Inspected
from pulsarish.bookie.ledger_index import ROWS_MAX, LedgerIndex, LedgerRow
from pulsarish.bookie.limbo import Limbo

__all__ = ["LedgerFacts", "facts_of", "ledgers_here"]


@dataclass(slots=True)
class LedgerFacts:
    """A ledger that has a row, in the trash or not."""

    ledger_id: int
    is_trashed: bool
    fenced: bool
    limbo: bool
    lac: int
    last_entry: int
    log_bytes: int = 0
    dropped_bytes: int = 0
    """Of copies that were deleted because the metadata name other bookies for them."""

    @property
    def is_whole(self) -> bool:
        """Whether the index should have all entries up to the LAC that logs have of it."""
        return not self.is_trashed and not self.limbo and not self.dropped_bytes

    def row(self) -> dict[str, object]:
        """Return the fields as commands print them."""
        return {
            "ledger": self.ledger_id,
            "state": "trash" if self.is_trashed else "here",
            "fenced": self.fenced,
            "limbo": self.limbo,
            "lac": self.lac,
            "last_entry": self.last_entry,
            "log_bytes": self.log_bytes,
        }


def _facts(ledger_id: int, row: LedgerRow, *, is_trashed: bool, limbo: bool) -> LedgerFacts:
    lac = max(row.lac, row.explicit_lac)
    return LedgerFacts(ledger_id, is_trashed, row.fenced, row.limbo or limbo, lac, row.last_entry)


async def ledgers_here(inspected: Inspected, indexes: Sequence[LedgerIndex]) -> list[LedgerFacts]:
    """Return all ledgers with a row, by id.

    Raises ``BookieIOError`` for rows that cannot be read.
    """
    limbo = await _limbo(inspected)
    found: dict[int, LedgerFacts] = {}
    for index in indexes:
        after = -1
        while page := await index.ledgers(after, ROWS_MAX):
            covered = [each for each, _ in page if limbo.covers(each, is_absent=False)]
            cleared = dict(zip(covered, await index.limbos_cleared(covered), strict=True))
            for ledger_id, row in page:
                doubted = ledger_id in cleared and cleared[ledger_id] != limbo.times
                found[ledger_id] = _facts(ledger_id, row, is_trashed=False, limbo=doubted)
            after = page[-1][0]
        after = -1
        while trashed := await index.trashed(after, ROWS_MAX):
            for each in trashed:
                _ = found.setdefault(
                    each.ledger_id, _facts(each.ledger_id, each.row, is_trashed=True, limbo=False)
                )
            after = trashed[-1].ledger_id
        for log_id in await index.logs_begun():
            for ledger_id, size_bytes in (await index.log_ledgers(log_id)).items():
                if ledger_id in found:
                    found[ledger_id].log_bytes += size_bytes
            for ledger_id, size_bytes in (await index.log_dropped(log_id)).items():
                if ledger_id in found:
                    found[ledger_id].dropped_bytes += size_bytes
    return [found[ledger_id] for ledger_id in sorted(found)]


async def facts_of(
    inspected: Inspected, indexes: Sequence[LedgerIndex], ledger_id: int
) -> LedgerFacts | None:
    """Return what the rows of one ledger say, without its bytes; ``None`` without a row."""
    limbo = await _limbo(inspected)
    for index in indexes:
        (row,) = await index.ledger_rows([ledger_id])
        if row is not None:
            doubted = limbo.covers(ledger_id, is_absent=False)
            if doubted:
                doubted = await index.limbos_cleared([ledger_id]) != [limbo.times]
            return _facts(ledger_id, row, is_trashed=False, limbo=doubted)
        (trashed,) = await index.trashed_rows([ledger_id])
        if trashed is not None:
            return _facts(ledger_id, trashed.row, is_trashed=True, limbo=False)
    return None


async def _limbo(inspected: Inspected) -> Limbo:
    limbo = Limbo(inspected.files, inspected.ledgers[0])
    await limbo.load()
    return limbo
