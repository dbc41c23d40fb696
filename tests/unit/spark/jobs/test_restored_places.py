"""The bookies of a restored ledger, in place of those that are gone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate
from pulsarish.ledger.placement_policy import Placement
from pulsarish.model.errors import NotEnoughBookies
from pulsarish.model.ledger_metadata import (
    BookieGroups,
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.spark.jobs.removal import _place


def bookie(member: str, rack: str = "", group: str = "default") -> Candidate:
    return Candidate(member, f"host-of-{member}", rack=rack, group=group)


class Cluster:
    """What a restore asks of a cluster with these bookies."""

    def __init__(self, seed: int, bookies: Sequence[Candidate]) -> None:
        known = {each.member: each for each in bookies}
        self.stored: list[LedgerMetadata] = []
        self.world = SimpleNamespace(random=random.Random(seed))
        self.pool = SimpleNamespace(placement=Placement(LedgerOptions(), random.Random(seed)))
        self.bookies = SimpleNamespace(
            members=lambda: list(known),
            candidates=lambda: list(bookies),
            describe=lambda members: [known.get(each) or bookie(each) for each in members],
            down_count=lambda: 0,
        )
        self.ledgers = self

    async def read_newest(self, _ledger_id: int) -> None:
        return None

    async def store(self, metadata: LedgerMetadata, version: int | None) -> int:
        assert version is None
        self.stored.append(metadata)
        return 0


def ledger(groups: BookieGroups | None = None) -> LedgerMetadata:
    return LedgerMetadata(
        7,
        2,
        2,
        2,
        LedgerPurpose(PurposeKind.DIAGNOSTIC, "test"),
        (Segment(0, ("here", "gone")),),
        state=LedgerState.CLOSED,
        last_entry=3,
        groups=groups or msgspec.UNSET,
    )


def placed(cluster: Any, metadata: LedgerMetadata) -> tuple[str, ...]:
    found = asyncio.run(_place(cluster, metadata))
    assert isinstance(found, LedgerMetadata)
    assert cluster.stored == [found]
    return found.last_segment.members


@pytest.mark.parametrize("seed", range(20))
def test_a_bookie_in_another_rack_takes_the_place_of_one_that_is_gone(seed: int) -> None:
    bookies = [bookie("here", "a"), *(bookie(f"a{each}", "a") for each in range(5))]
    cluster = Cluster(seed, [*bookies, bookie("far", "b")])
    assert placed(cluster, ledger()) == ("here", "far")


@pytest.mark.parametrize("seed", range(20))
def test_copies_of_a_ledger_with_groups_stay_in_them(seed: int) -> None:
    groups = BookieGroups(("gold",), ("silver",))
    others = [bookie(f"d{each}") for each in range(5)]
    here, silver = bookie("here", group="gold"), bookie("s", group="silver")
    gold = bookie("g", group="gold")
    assert placed(Cluster(seed, [here, *others, silver, gold]), ledger(groups)) == ("here", "g")
    assert placed(Cluster(seed, [here, *others, silver]), ledger(groups)) == ("here", "s")
    cluster = Cluster(seed, [here, *others])
    with pytest.raises(NotEnoughBookies, match="no other bookie of the groups gold, silver"):
        placed(cluster, ledger(groups))
    assert not cluster.stored
