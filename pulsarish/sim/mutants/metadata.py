"""Mutants of how nodes handle metadata that came back older, noticed by one node that reads and
writes.
"""

from __future__ import annotations

from typing import Final

from pulsarish.metadata import tree_age
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import RestoredTree
from pulsarish.metadata.tree_state import TreeState
from pulsarish.sim.workloads.older_tree import check_answers
from pulsarish.sim.workloads.safeguard import Mutant, replacing

__all__ = ["METADATA_MUTANTS"]


async def _any_answer_passed_on(_records: Records, _path: str) -> None:
    return


def _without_a_mark(mark: RestoredTree | None, _found: TreeState) -> bool:
    return mark is None


METADATA_MUTANTS: Final = (
    Mutant(
        "accepted_tree_not_compared",
        "a tree that an operator has accepted is compared with what nodes have seen of it since",
        (12,),
        replacing(tree_age, "_is_remembered", lambda _was: _without_a_mark),
        check_answers,
        10,
    ),
    Mutant(
        "older_answers_passed_on",
        "what is read in metadata that came back older is not passed on: nothing is gone because "
        "they lack it",
        (12,),
        replacing(Records, "_check_read", lambda _was: _any_answer_passed_on),
        check_answers,
        10,
    ),
)
