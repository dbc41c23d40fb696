"""A placement policy of one's own: how it is loaded, and what of its choices is taken."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate
from pulsarish.ledger.placement_policy import Placement
from pulsarish.model.errors import (
    ConfigError,
    InvalidArgument,
    NotEnoughBookies,
    ServiceNotReady,
)
from pulsarish.model.ledger_metadata import BookieGroups

EXAMPLES = Path(__file__).parents[3] / "examples"
BOOKIES = [Candidate(f"b{number}", f"h{number}", "rrss"[number]) for number in range(4)]


class Fixed:
    """Answers what the test says."""

    members: Sequence[str] = ()
    replacement: str | None = None

    def __init__(self, options: LedgerOptions, rng: random.Random) -> None:
        pass

    def choose_members(self, *_wanted: Any) -> Sequence[str]:
        return self.members

    def choose_replacement(self, *_wanted: Any) -> str | None:
        if self.replacement == "fails":
            raise KeyError("no such bookie")
        return self.replacement


class Half:
    def __init__(self, options: LedgerOptions, rng: random.Random) -> None:
        pass

    def choose_members(self, *_wanted: Any) -> Sequence[str]:
        return ()


def _placement(name: str, **options: Any) -> Placement:
    options = {"placement_policy": f"{__name__}:{name}", **options}
    return Placement(LedgerOptions(**options), random.Random(1))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.such.module:Policy", "placement_policy = no.such.module:Policy cannot be made: Mod"),
        (f"{__name__}:Absent", "cannot be made: AttributeError"),
        (f"{__name__}:Candidate", "cannot be made: TypeError|has no method choose_members"),
        (f"{__name__}:Half", "has no method choose_replacement: see .*:PlacementPolicy"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        _ = Placement(LedgerOptions(placement_policy=name), random.Random(1))


@pytest.mark.parametrize("name", ["Policy", "a:b:c", "a-b:C", ":C", "a:"])
def test_a_name_of_another_form_is_refused_with_the_options(name: str) -> None:
    with pytest.raises(ConfigError, match=r"placement_policy = .* must be module:Class"):
        LedgerOptions(placement_policy=name).validate()
    LedgerOptions(placement_policy="acme.placement:Policy").validate()


def test_its_members_are_taken_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fixed, "members", ["b2", "b0", "b1"])
    found = _placement("Fixed").ensemble(BOOKIES, 3, 2, 2)
    assert (found.members, found.write_quorum, found.below_policy) == (("b2", "b0", "b1"), 2, False)
    few = _placement("Fixed").ensemble(BOOKIES[:3], 5, 3, 2)
    assert few.below_policy
    with pytest.raises(NotEnoughBookies, match="needs 2 writable bookies"):
        _placement("Fixed").ensemble(BOOKIES[:1], 3, 3, 2)
    with pytest.raises(InvalidArgument):
        _placement("Fixed").ensemble(BOOKIES, 2, 3, 2)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (["b0", "b1"], "it chose 2 members, not 3"),
        (["b0", "b1", "b1"], "it chose a bookie twice"),
        (["b0", "b1", "b9"], "'b9' is not one of the candidates"),
        (None, "TypeError"),
    ],
)
def test_members_that_are_not_valid_refuse_the_ledger(
    monkeypatch: pytest.MonkeyPatch, members: Any, text: str
) -> None:
    monkeypatch.setattr(Fixed, "members", members)
    with pytest.raises(ServiceNotReady, match=rf"placement_policy = .*:Fixed failed.*{text}"):
        _placement("Fixed").ensemble(BOOKIES, 3, 3, 2)


def test_enforced_rules_hold_for_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = _placement("Fixed", min_distinct_racks=2, min_distinct_enforced=True)
    monkeypatch.setattr(Fixed, "members", ["b0", "b1"])
    with pytest.raises(ServiceNotReady, match=r"b0, b1 .* in 1 distinct racks; .*racks asks for 2"):
        placement.ensemble(BOOKIES, 2, 2, 2)
    monkeypatch.setattr(Fixed, "replacement", "b1")
    assert placement.replacement(BOOKIES, [BOOKIES[0], BOOKIES[2]], 1, 2) is None
    assert placement.replacement(BOOKIES, [BOOKIES[2], BOOKIES[3]], 1, 2) == BOOKIES[1]


@pytest.mark.parametrize("replacement", ["fails", "b0", "b9", None])
def test_a_replacement_that_is_not_valid_is_none(
    monkeypatch: pytest.MonkeyPatch, replacement: str | None
) -> None:
    monkeypatch.setattr(Fixed, "replacement", replacement)
    assert _placement("Fixed").replacement(BOOKIES, BOOKIES[:2], 1, 2) is None


def test_the_example_keeps_one_copy_in_the_own_rack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    name = "placement_home_rack:HomeRack"
    with pytest.raises(ConfigError, match=r"ledger.local_rack is empty"):
        _ = _placement("", placement_policy=name)
    placement = _placement("", placement_policy=name, local_rack="s")
    seen = set()
    for _ in range(30):
        members = placement.ensemble(BOOKIES, 2, 2, 2).members
        assert members[0] in ("b2", "b3")
        assert members[1] in ("b0", "b1")
        seen.add(members)
    assert len(seen) == 4
    kept = placement.replacement(BOOKIES, [BOOKIES[2], BOOKIES[0]], 0, 2)
    assert kept == BOOKIES[3]
    elsewhere = placement.replacement(BOOKIES, [BOOKIES[2], BOOKIES[0]], 1, 2)
    assert elsewhere == BOOKIES[1]
    sick = [Candidate("x", "x", healthy=False), *BOOKIES[:1]]
    assert set(placement.ensemble(sick, 2, 2, 2).members) == {"x", "b0"}


def _in_groups(groups: str) -> list[Candidate]:
    """One bookie a letter: its group, on a host of its own."""
    return [Candidate(f"{group}{n}", f"h{n}", group=group) for n, group in enumerate(groups)]


def test_only_bookies_of_the_groups_hold_a_ledger() -> None:
    placement = Placement(LedgerOptions(), random.Random(1))
    candidates = _in_groups("ggghhx")
    for _ in range(20):
        found = placement.ensemble(candidates, 3, 3, 2, groups=BookieGroups(("g",), ("h",)))
        assert set(found.members) == {"g0", "g1", "g2"}
        # Too few in the primary group for the ensemble: those of the secondary one count, too.
        found = placement.ensemble(candidates, 5, 3, 2, groups=BookieGroups(("g",), ("h",)))
        assert set(found.members) == {"g0", "g1", "g2", "h3", "h4"}
    found = placement.ensemble(candidates, 5, 3, 2, groups=BookieGroups(("g",)))
    assert (set(found.members), found.below_policy) == ({"g0", "g1", "g2"}, True)
    with pytest.raises(
        NotEnoughBookies, match=r"2 writable bookies .* groups x, y; 1 are there, of 6 in all"
    ):
        placement.ensemble(candidates, 3, 3, 2, groups=BookieGroups(("x",), ("y",)))


def test_a_replacement_is_of_the_groups_the_primary_ones_first() -> None:
    placement = Placement(LedgerOptions(), random.Random(1))
    candidates, groups = _in_groups("ggghhx"), BookieGroups(("g",), ("h",))
    members = candidates[:2]
    for _ in range(20):
        assert placement.replacement(candidates, members, 0, 2, groups=groups) == candidates[2]
        chosen = placement.replacement(candidates, candidates[:3], 0, 3, groups=groups)
        assert chosen in candidates[3:5]
    primary = BookieGroups(("g",))
    assert placement.replacement(candidates, candidates[:3], 0, 3, groups=primary) is None
    assert placement.why_not(candidates, candidates[:3], 0, 3, groups=primary) == (
        "no free bookie is in the groups g of this ledger"
    )
    assert placement.why_not(candidates, members, 0, 2, groups=primary) == ""
