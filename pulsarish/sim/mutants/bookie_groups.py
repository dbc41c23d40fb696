"""Mutants of placement groups: copies of a ledger with groups are on bookies of these only."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from pulsarish.ledger import placement_policy
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate
from pulsarish.ledger.placement_policy import Placement
from pulsarish.model.errors import NotEnoughBookies
from pulsarish.model.ledger_metadata import BookieGroups
from pulsarish.sim.workloads.safeguard import Mutant, replacing

__all__ = ["GROUP_MUTANTS"]

_NAMES: Final = ("gold", "silver", "default")
_GROUPS: Final = BookieGroups(("gold",), ("silver",))
_ROUNDS: Final = 20


def _check_groups(seed: int) -> None:
    """Make ledgers of three members and replace some, with any bookies in each group.

    Members are of the primary group, or of the secondary one where that has too few.
    """
    rng = random.Random(f"{seed}:bookie groups")
    placement = Placement(LedgerOptions(), rng)
    for _ in range(_ROUNDS):
        bookies = [
            Candidate(f"{group}-{number}", f"host-{group}-{number}", group=group)
            for group in _NAMES
            for number in range(rng.randint(0, 5))
        ]
        by_group = {
            name: [each.member for each in bookies if each.group == name] for name in _NAMES
        }
        gold, both = by_group["gold"], [*by_group["gold"], *by_group["silver"]]
        try:
            members = placement.ensemble(bookies, 3, 3, 2, groups=_GROUPS).members
        except NotEnoughBookies:
            assert len(both) < 2, f"{both} were enough"
            continue
        permitted = gold if len(gold) >= 3 else both
        assert set(members) <= set(permitted), f"{members} of {permitted}"
        place = rng.randrange(len(members))
        chosen = placement.replacement(
            bookies,
            [each for member in members for each in bookies if each.member == member],
            place,
            len(members),
            groups=_GROUPS,
        )
        free = [each for each in gold if each not in members]
        free = free or [each for each in both if each not in members]
        member = None if chosen is None else chosen.member
        assert (member in free) if free else (member is None), f"{member} of {free}"


def _any_group(_was: Any) -> object:
    def of_groups(candidates: Sequence[Candidate], _groups: Sequence[str]) -> list[Candidate]:
        return list(candidates)

    return of_groups


def _replaced_from_anywhere(was: Any) -> object:
    def replacement(
        placement: Placement,
        candidates: Sequence[Candidate],
        members: Sequence[Candidate],
        index: int,
        write_quorum: int,
        *,
        groups: BookieGroups | None = None,
    ) -> Candidate | None:
        assert groups is not None
        chosen: Candidate | None = was(placement, candidates, members, index, write_quorum)
        return chosen

    return replacement


GROUP_MUTANTS: Final = (
    Mutant(
        "ledger_made_outside_its_groups",
        "a ledger with groups is made on bookies of these only",
        (1,),
        replacing(placement_policy, "_of_groups", _any_group),
        _check_groups,
        seeds=10,
    ),
    Mutant(
        "member_replaced_from_outside_its_groups",
        "a member of a ledger with groups is replaced by a bookie of these only",
        (1,),
        replacing(Placement, "replacement", _replaced_from_anywhere),
        _check_groups,
        seeds=10,
    ),
)
