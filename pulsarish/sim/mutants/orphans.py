"""Mutants of the search for orphans, noticed by ``workloads/orphans.py``."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final

from pulsarish.broker.topics.orphan_plan import (
    LedgersWithoutReference,
    Orphan,
    OrphanKind,
    OrphanNotes,
)
from pulsarish.broker.topics.orphan_search import OrphanSearch
from pulsarish.model.errors import MetadataUnavailable
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.sim.workloads.orphans import run_orphans
from pulsarish.sim.workloads.safeguard import Mutant, replaced, replacing

__all__ = ["ORPHAN_MUTANTS"]

_SEARCHES: Final = 60
_SEARCH_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 35.0


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


def _what_can_be_read(was: Any) -> object:
    async def read_topic(search: Any, path: str, node: Any) -> Any:
        try:
            return await was(search, path, node)
        except MetadataUnavailable:
            return (), ()

    return read_topic


def _due_at_once(was: Any) -> object:
    def due(notes: OrphanNotes, *, now: float, grace_seconds: float) -> list[Orphan]:
        found: list[Orphan] = was(notes, now=math.inf, grace_seconds=grace_seconds)
        return found

    return due


def _check_notes(seed: int) -> None:
    """Let searches find orphans that come, go and change. What is due was found by each of them,
    as it is, for the grace time.
    """
    rng = random.Random(f"{seed}:orphan notes")
    notes = OrphanNotes()
    since: dict[tuple[str, int], float] = {}
    for number in range(_SEARCHES):
        now = number * _SEARCH_SECONDS
        found = [
            Orphan(OrphanKind.LEDGER, f"/ledgers/{each}", "", rng.choice((1, 1, 1, 2)), 0, True)
            for each in range(8)
            if rng.random() < 0.9
        ]
        since = {(one.path, one.version): since.get((one.path, one.version), now) for one in found}
        _ = notes.note(found, now=now, now_ms=0)
        for one in notes.due(now=now, grace_seconds=_GRACE_SECONDS):
            known_seconds = now - since[one.path, one.version]
            assert known_seconds >= _GRACE_SECONDS, f"{one.path} is due after {known_seconds} s"


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
        "orphan_of_a_partial_view",
        "a search for orphans that could not read a topic's records concludes nothing",
        (12,),
        replacing(OrphanSearch, "_read_topic", _what_can_be_read),
        _check,
        seeds=10,
    ),
    Mutant(
        "orphan_due_at_once",
        "an orphan is deleted only when searches have found it, unchanged, for the grace time",
        (12,),
        replacing(OrphanNotes, "due", _due_at_once),
        _check_notes,
        seeds=5,
    ),
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
