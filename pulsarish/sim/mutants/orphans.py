"""Mutants of the search for orphans, noticed by ``workloads/orphans.py``."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final

from pulsarish.broker.topics.orphan_plan import LedgersWithoutReference
from pulsarish.broker.topics.orphan_search import OrphanSearch
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.sim.workloads.orphans import run_orphans
from pulsarish.sim.workloads.safeguard import Mutant, replaced, replacing

__all__ = ["ORPHAN_MUTANTS"]


class _Names(LedgersWithoutReference):
    """Remembers the names for ledgers that are listed later."""

    def __init__(self) -> None:
        super().__init__()
        self.named: list[int] = []

    def name(self, ledger_ids: Iterable[int]) -> None:
        self.named += ledger_ids


@contextmanager
def _references_before_ledgers() -> Generator[None]:
    list_ledgers: Any = vars(OrphanSearch)["_list_ledgers"]

    async def later(_search: OrphanSearch, _unnamed: LedgersWithoutReference) -> None:
        return

    def references_first(was: Any) -> object:
        async def read(search: Any, unnamed: Any, found: Any, rate: Any) -> None:
            names = _Names()
            await was(search, names, found, rate)
            await list_ledgers(search, unnamed)
            unnamed.name(names.named)

        return read

    with (
        replaced(OrphanSearch, "_list_ledgers", lambda _was: later),
        replaced(OrphanSearch, "_read_references", references_first),
    ):
        yield


async def _named_nowhere(_search: OrphanSearch, _metadata: LedgerMetadata) -> bool:
    return False


async def _unchanged(
    _search: OrphanSearch, metadata: LedgerMetadata, version: int
) -> tuple[LedgerMetadata, int]:
    return metadata, version


def _check(seed: int) -> None:
    _ = run_orphans(seed)


ORPHAN_MUTANTS: Final = (
    Mutant(
        "references_before_ledgers",
        "a search for orphans lists ledgers before it reads references, so that it sees the "
        "reference of each ledger that was named before it was listed",
        (12,),
        _references_before_ledgers,
        _check,
        seeds=10,
    ),
    Mutant(
        "orphan_not_looked_at_again",
        "the records of its owner are read again just before an orphan is deleted",
        (12,),
        replacing(OrphanSearch, "_is_named", lambda _was: _named_nowhere),
        _check,
        seeds=10,
    ),
    Mutant(
        "orphan_named_while_it_goes",
        "an orphan is changed before its owner is read the last time, so that no commit that was "
        "prepared before can name it",
        (12,),
        replacing(OrphanSearch, "_refuse_naming", lambda _was: _unchanged),
        _check,
        seeds=40,
    ),
)
