"""Mutants of the rebuild of lost metadata from what bookies know of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pulsarish.bookie.ledger_records import LedgerRecords
from pulsarish.metadata.backup import ledger_copies, tree_plan
from pulsarish.metadata.backup.ledger_copies import HeldRecord
from pulsarish.metadata.backup.rebuild import Rebuild
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.sim.workloads.lost_metadata import run_lost_metadata
from pulsarish.sim.workloads.safeguard import Mutant, replacing

__all__ = ["LOST_METADATA_MUTANTS"]

Copy = tuple[HeldRecord, str, LedgerMetadata]


def _check(seed: int) -> None:
    _ = run_lost_metadata(seed)


def _oldest(copies: Sequence[Copy]) -> list[Copy]:
    lowest = min((held.epoch, held.version) for held, _, _ in copies)
    return [each for each in copies if (each[0].epoch, each[0].version) == lowest]


def _believed(metadata: LedgerMetadata) -> LedgerMetadata:
    return metadata


async def _at_the_next_round(_copies: LedgerRecords) -> None:
    return


async def _unmarked(_rebuild: Rebuild, *, is_finished: bool) -> None:
    _ = is_finished


LOST_METADATA_MUTANTS: Final = (
    Mutant(
        "new_ledgers_copied_late",
        "a bookie copies the record of a ledger soon after the ledger came",
        (),
        replacing(LedgerRecords, "follow", lambda _was: _at_the_next_round),
        _check,
        20,
    ),
    Mutant(
        "older_copy_counts",
        "of the copies of a ledger's record the one of the highest version counts",
        (6,),
        replacing(ledger_copies, "_newest", lambda _was: _oldest),
        _check,
        40,
        2,
    ),
    Mutant(
        "rebuilt_ledger_believed",
        "a ledger that was open by an old copy is not closed before all bookies were asked",
        (6, 12),
        replacing(tree_plan, "_doubted", lambda _was: _believed),
        _check,
        40,
        4,
    ),
    Mutant(
        "rebuilt_topics_trimmed",
        "topics whose subscriptions are not known any more keep their messages",
        (17,),
        replacing(tree_plan, "_KEEP_ALL", lambda _was: {}),
        _check,
        10,
        2,
    ),
    Mutant(
        "rebuilt_tree_not_marked",
        "a tree that was rebuilt is marked, until an operator confirms it",
        (12,),
        replacing(Rebuild, "_mark", lambda _was: _unmarked),
        _check,
        10,
    ),
)
