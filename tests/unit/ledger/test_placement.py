"""Who holds a ledger: hosts first, then racks, quarantine last, and what happens with fewer bookies
than wanted.
"""

import random
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pulsarish.ledger.placement import (
    Candidate,
    PlacementRules,
    _clashes,
    better_member,
    choose_ensemble,
    choose_replacement,
    is_no_worse,
    violations,
    why_not_permitted,
)
from pulsarish.model.errors import InvalidArgument, NotEnoughBookies, NotEnoughDomains

LEVELS = ("host", "region", "zone", "rack")


def _bookies(hosts: str, racks: str = "") -> list[Candidate]:
    """One bookie a letter: its host, and in the same place its rack."""
    return [
        Candidate(f"b{number}", host, racks[number] if racks else "")
        for number, host in enumerate(hosts)
    ]


def _shared_hosts(candidates: list[Candidate], members: tuple[str, ...], write_quorum: int) -> int:
    host = {candidate.member: candidate.host for candidate in candidates}
    size = len(members)
    return sum(
        host[members[start]] == host[members[(start + step) % size]]
        for start in range(size)
        for step in range(1, write_quorum)
    )


@settings(max_examples=150, deadline=None)
@given(
    hosts=st.text("abcd", min_size=3, max_size=6),
    write_quorum=st.integers(1, 3),
    extra=st.integers(0, 2),
    seed=st.integers(0, 2**32),
)
def test_replicas_share_a_host_only_when_every_choice_does(
    hosts: str, write_quorum: int, extra: int, seed: int
) -> None:
    candidates = _bookies(hosts)
    size = min(write_quorum + extra, len(hosts))
    ensemble = choose_ensemble(candidates, size, write_quorum, 1, random.Random(seed))
    names = [candidate.member for candidate in candidates]
    best = min(
        _shared_hosts(candidates, choice, write_quorum) for choice in permutations(names, size)
    )
    assert len(set(ensemble.members)) == size
    assert (_shared_hosts(candidates, ensemble.members, write_quorum) == 0) or best > 0


def test_three_copies_on_two_hosts_use_both() -> None:
    ensemble = choose_ensemble(_bookies("aaab"), 3, 3, 2, random.Random(1))
    assert "b3" in ensemble.members


def test_racks_count_after_hosts() -> None:
    for seed in range(20):
        ensemble = choose_ensemble(_bookies("abcd", "xxxy"), 2, 2, 2, random.Random(seed))
        assert "b3" in ensemble.members


def test_chance_spreads_ledgers_and_a_seed_repeats() -> None:
    candidates = _bookies("abcdef")
    drawn = [
        choose_ensemble(candidates, 3, 3, 2, random.Random(seed)).members for seed in range(60)
    ]
    assert {member for members in drawn for member in members} == {
        candidate.member for candidate in candidates
    }
    assert len(set(drawn)) > 20
    assert (
        drawn[7] == choose_ensemble(list(reversed(candidates)), 3, 3, 2, random.Random(7)).members
    )


def test_a_bookie_in_quarantine_is_taken_only_when_needed() -> None:
    candidates = [*_bookies("abc"), Candidate("bad", "d", healthy=False)]
    for seed in range(20):
        assert "bad" not in choose_ensemble(candidates, 3, 3, 2, random.Random(seed)).members
        assert "bad" in choose_ensemble(candidates, 4, 3, 2, random.Random(seed)).members
        # Another host is no reason to take it either: it is failing now.
        assert (
            "bad"
            not in choose_ensemble(
                [*_bookies("aab"), candidates[-1]], 3, 3, 2, random.Random(seed)
            ).members
        )


@pytest.mark.parametrize(
    ("count", "wanted", "members", "write_quorum", "below"),
    [
        (3, (3, 3, 2), 3, 3, False),
        (2, (3, 3, 2), 2, 2, True),
        (4, (5, 3, 2), 4, 3, True),
        (2, (5, 3, 2), 2, 2, True),
        (1, (3, 3, 1), 1, 1, True),
    ],
)
def test_a_new_ledger_takes_what_there_is(
    count: int, wanted: tuple[int, int, int], members: int, write_quorum: int, below: bool
) -> None:
    ensemble = choose_ensemble(_bookies("abcdef"[:count]), *wanted, random.Random(0))
    assert (len(ensemble.members), ensemble.write_quorum, ensemble.below_policy) == (
        members,
        write_quorum,
        below,
    )


def test_fewer_than_the_acknowledgement_quorum_is_an_error_that_counts() -> None:
    with pytest.raises(
        NotEnoughBookies,
        match=(
            r"needs 2 writable bookies .* 1 are there, 2 more are known and down or "
            r"read-only; b: full"
        ),
    ):
        choose_ensemble(
            _bookies("a"), 3, 3, 2, random.Random(0), down_count=2, read_only_reasons=["b: full"]
        )


def test_broken_quorums_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        choose_ensemble(_bookies("abc"), 3, 2, 3, random.Random(0))


def test_a_replacement_avoids_the_hosts_of_those_that_stay() -> None:
    members = _bookies("abc")
    spare = [Candidate("x", "a"), Candidate("y", "b"), Candidate("z", "d")]
    for seed in range(20):
        chosen = choose_replacement([*members, *spare], members, 0, 3, random.Random(seed))
        # The host of the failed member itself is free again.
        assert chosen is not None
        assert chosen.member in ("x", "z")


def test_a_replacement_is_never_a_member_nor_in_quarantine() -> None:
    members = _bookies("abc")
    assert (
        choose_replacement(
            [*members, Candidate("x", "d", healthy=False)], members, 1, 3, random.Random(0)
        )
        is None
    )


def _in_racks(racks: str, **more: str) -> list[Candidate]:
    """One bookie a letter, each on a host of its own; ``-`` is a bookie without rack."""
    return [
        Candidate(
            f"b{number}",
            f"h{number}",
            rack.strip("-"),
            **{level: names[number].strip("-") for level, names in more.items()},
        )
        for number, rack in enumerate(racks)
    ]


def _places(candidates: list[Candidate], members: tuple[str, ...]) -> list[Candidate]:
    by_name = {candidate.member: candidate for candidate in candidates}
    return [by_name[member] for member in members]


TWO_RACKS = PlacementRules(min_distinct_racks=2, enforced=True)


def test_the_widest_domain_is_spread_first() -> None:
    # b1 and b2 are in other racks than b0, only b3 is in another region.
    candidates = _in_racks("rstr", zone="xxyx", region="eeew")
    for seed in range(20):
        ensemble = choose_ensemble(candidates, 2, 2, 2, random.Random(seed))
        assert "b3" in ensemble.members
        chosen = choose_replacement(
            candidates, [candidates[0], Candidate("gone", "g")], 1, 2, random.Random(seed)
        )
        assert chosen is not None
        assert chosen.member == "b3"


@settings(max_examples=150, deadline=None)
@given(
    racks=st.text("rst-", min_size=2, max_size=6),
    write_quorum=st.integers(1, 3),
    extra=st.integers(0, 2),
    count=st.integers(2, 3),
    sick=st.sets(st.integers(0, 5)),
    seed=st.integers(0, 2**32),
)
def test_an_enforced_rule_holds_in_each_write_quorum_or_is_refused_because_it_cannot(
    racks: str, write_quorum: int, extra: int, count: int, sick: set[int], seed: int
) -> None:
    candidates = [
        replace(each, healthy=number not in sick) for number, each in enumerate(_in_racks(racks))
    ]
    rules = PlacementRules(min_distinct_racks=count, enforced=True)
    size = min(write_quorum + extra, len(racks))
    write_quorum = min(write_quorum, size)
    is_possible = any(
        not violations(list(choice), write_quorum, rules)
        for choice in permutations(candidates, size)
    )
    try:
        ensemble = choose_ensemble(
            candidates, size, write_quorum, 1, random.Random(seed), rules=rules
        )
    except NotEnoughDomains:
        assert not is_possible
    else:
        assert violations(_places(candidates, ensemble.members), write_quorum, rules) == []


def test_the_refusal_names_the_domain_and_both_numbers() -> None:
    rules = PlacementRules(min_distinct_zones=2, min_distinct_racks=3, enforced=True)
    with pytest.raises(
        NotEnoughDomains, match=r"3 distinct racks \(min_distinct_racks, .* are in 2: r, s, and 1"
    ):
        choose_ensemble(_in_racks("rrs-", zone="xyxy"), 3, 3, 2, random.Random(0), rules=rules)
    with pytest.raises(NotEnoughDomains, match=r"2 distinct zones .* the 3 .* are in 0: none, and"):
        choose_ensemble(_in_racks("rst", zone="---"), 3, 3, 2, random.Random(0), rules=rules)
    # Enough racks, but too few bookies in one of them for all write quorums.
    with pytest.raises(NotEnoughDomains, match=r"no ensemble of 5 of them keeps this in every"):
        choose_ensemble(_in_racks("rrrrs"), 5, 2, 2, random.Random(0), rules=TWO_RACKS)


def test_fewer_bookies_than_copies_do_not_weaken_an_enforced_rule() -> None:
    with pytest.raises(NotEnoughDomains):
        choose_ensemble(_in_racks("r"), 3, 3, 1, random.Random(0), rules=TWO_RACKS)
    assert choose_ensemble(_in_racks("r"), 1, 1, 1, random.Random(0), rules=TWO_RACKS).members == (
        "b0",
    )


def test_a_rule_that_is_not_enforced_is_broken_only_where_it_must_be() -> None:
    wish = PlacementRules(min_distinct_racks=2)
    for seed in range(20):
        rng = random.Random(seed)
        assert "b4" in choose_ensemble(_in_racks("rrrrs"), 3, 3, 2, rng, rules=wish).members
        assert len(choose_ensemble(_in_racks("rrr"), 3, 3, 2, rng, rules=wish).members) == 3
    found = violations(_in_racks("rrr"), 3, wish)
    assert [(each.level, each.found, each.wanted) for each in found] == [("rack", 1, 2)]


def test_a_bookie_in_quarantine_is_taken_where_an_enforced_rule_needs_it() -> None:
    candidates = [*_in_racks("rrr"), Candidate("bad", "h9", "s", healthy=False)]
    for seed in range(20):
        rng = random.Random(seed)
        assert "bad" in choose_ensemble(candidates, 3, 3, 2, rng, rules=TWO_RACKS).members
        assert (
            "bad"
            not in choose_ensemble(
                candidates, 3, 3, 2, rng, rules=PlacementRules(min_distinct_racks=2)
            ).members
        )


def test_violations_are_those_of_consecutive_members() -> None:
    places = _in_racks("rrss")
    assert violations(places, 4, TWO_RACKS) == []
    assert [each.members for each in violations(places, 2, TWO_RACKS)] == [
        ("b0", "b1"),
        ("b2", "b3"),
    ]
    assert violations(_in_racks("rsrs"), 2, TWO_RACKS) == []
    assert violations(_in_racks("r"), 1, TWO_RACKS) == []
    # It was made with one copy, but three were asked for.
    assert len(violations(_in_racks("r"), 1, TWO_RACKS, requested_write_quorum=3)) == 1


@settings(max_examples=150, deadline=None)
@given(
    racks=st.text("rst-", min_size=2, max_size=5),
    write_quorum=st.integers(1, 3),
    index=st.integers(0, 4),
    spare=st.text("rst-", max_size=3),
    count=st.integers(2, 3),
    seed=st.integers(0, 2**32),
)
def test_an_enforced_replacement_never_breaks_what_held(
    racks: str, write_quorum: int, index: int, spare: str, count: int, seed: int
) -> None:
    members = _in_racks(racks)
    index %= len(members)
    write_quorum = min(write_quorum, len(members))
    rules = PlacementRules(min_distinct_racks=count, enforced=True)
    free = [replace(each, member=f"s{n}") for n, each in enumerate(_in_racks(spare))]
    chosen = choose_replacement(
        free, members, index, write_quorum, random.Random(seed), rules=rules
    )
    refused = why_not_permitted(free, members, index, write_quorum, rules)
    assert (chosen is None) == (refused != "" or not free)
    if chosen is not None and not violations(members, write_quorum, rules):
        after = [*members[:index], chosen, *members[index + 1 :]]
        assert violations(after, write_quorum, rules) == []


def test_a_replacement_that_brings_a_domain_repairs_an_ensemble_step_by_step() -> None:
    three = PlacementRules(min_distinct_racks=3, enforced=True)
    members = _in_racks("rrr")
    spare = [Candidate("x", "x", "r"), Candidate("y", "y", "s"), Candidate("z", "z", "t")]
    for index in (1, 2):
        chosen = choose_replacement(spare, members, index, 3, random.Random(0), rules=three)
        assert chosen is not None
        members[index] = chosen
    assert violations(members, 3, three) == []
    assert "rack" in why_not_permitted(spare[:1], _in_racks("rs"), 1, 2, TWO_RACKS)


def test_a_refused_replacement_names_the_domain_and_both_numbers() -> None:
    spare = [Candidate("x", "x", "r"), Candidate("y", "y", "r")]
    assert (
        choose_replacement(spare, _in_racks("rs"), 1, 2, random.Random(0), rules=TWO_RACKS) is None
    )
    assert why_not_permitted(spare, _in_racks("rs"), 1, 2, TWO_RACKS) == (
        "the copies of each entry must lie in 2 distinct racks (min_distinct_racks, enforced); the "
        "other members are in 1, and the 2 free bookies only in: r"
    )


def test_free_space_decides_among_equals_when_it_is_switched_on() -> None:
    gib = 1 << 30
    space = {"a": 100, "b": 100, "c": 200, "d": 50, "e": 3_000, "f": 0}
    candidates = [Candidate(name, name, free_bytes=free * gib) for name, free in space.items()]
    rng, drawn = random.Random(7), Counter[str]()
    for _ in range(8_000):
        drawn.update(
            choose_ensemble(candidates, 1, 1, 1, rng, rules=PlacementRules(weighted=True)).members
        )
    # The median of what is known is 100 GiB: e counts as three times that, f as the median.
    weights = {"a": 1, "b": 1, "c": 2, "d": 0.5, "e": 3, "f": 1}
    for name, weight in weights.items():
        assert drawn[name] == pytest.approx(8_000 * weight / 8.5, rel=0.1)
    drawn.clear()
    for _ in range(6_000):
        drawn.update(choose_ensemble(candidates, 1, 1, 1, rng).members)
    for name in space:
        assert drawn[name] == pytest.approx(1_000, rel=0.15)


def test_free_space_never_outweighs_a_domain_nor_health() -> None:
    empty = Candidate("empty", "h0", "r", free_bytes=1 << 50)
    members = [Candidate("gone", "x", "q"), Candidate("stays", "h0", "r", free_bytes=1)]
    spare = [empty, Candidate("full", "h2", "s", free_bytes=1)]
    weighted = PlacementRules(weighted=True)
    for seed in range(20):
        rng = random.Random(seed)
        chosen = choose_replacement(spare, members, 0, 2, rng, rules=weighted)
        assert chosen is not None
        assert chosen.member == "full"
        sick = [replace(empty, host="h9", healthy=False), *spare[1:], members[1]]
        found = choose_ensemble(sick, 2, 2, 2, rng, rules=weighted)
        assert set(found.members) == {"full", "stays"}


def test_a_slow_bookie_is_taken_only_where_others_are_not_as_good() -> None:
    slow = Candidate("slow", "h9", is_slow=True)
    for seed in range(20):
        rng = random.Random(seed)
        candidates = [*_bookies("abc"), slow]
        assert "slow" not in choose_ensemble(candidates, 3, 3, 2, rng).members
        assert "slow" in choose_ensemble(candidates, 4, 3, 2, rng).members
        # A slow copy on another host is better than two on one.
        assert "slow" in choose_ensemble([*_bookies("aab"), slow], 3, 3, 2, rng).members
        members = _bookies("xyz")
        chosen = choose_replacement([Candidate("c", "h"), slow], members, 0, 3, rng)
        assert chosen is not None
        assert chosen.member == "c"
        assert choose_replacement([slow], members, 0, 3, rng) == slow


def test_the_place_that_shares_the_most_gets_the_first_bookie_that_shares_the_least() -> None:
    members = [Candidate("a", "1", "x"), Candidate("b", "1", "x"), Candidate("c", "2", "x")]
    same_rack = [Candidate("d", "3", "x"), Candidate("e", "3", "x")]
    assert better_member([*members, *same_rack], members, 3) == (0, same_rack[0])
    other_rack = Candidate("f", "4", "y")
    assert better_member([*same_rack, other_rack], members, 3) == (0, other_rack)
    assert better_member([Candidate("g", "1", "x")], members, 3) is None
    assert better_member([*members, Candidate("h", "5", "y", healthy=False)], members, 3) is None
    apart = [Candidate("a", "1", "x"), Candidate("b", "2", "y"), Candidate("c", "3", "z")]
    assert better_member([Candidate("h", "5", "w")], apart, 3) is None


@given(st.integers(0, 10_000))
def test_a_better_member_is_found_whenever_one_swap_helps(seed: int) -> None:
    rng = random.Random(seed)
    all_bookies = [
        Candidate(f"b{number}", f"h{rng.randrange(5)}", f"r{rng.randrange(3)}")
        for number in range(9)
    ]
    members, quorum = all_bookies[: rng.randint(2, 5)], 2
    spare = all_bookies[len(members) :]

    def swapped(place: int, candidate: Candidate) -> tuple[int, ...]:
        return _clashes([*members[:place], candidate, *members[place + 1 :]], quorum, LEVELS)

    costs = [swapped(place, each) for place in range(len(members)) for each in spare]
    found = better_member(all_bookies, members, quorum)
    if found is None:
        assert min(costs) >= _clashes(members, quorum, LEVELS)
    else:
        assert swapped(*found) == min(costs) < _clashes(members, quorum, LEVELS)


def test_a_bookie_is_no_worse_when_no_level_is_shared_more() -> None:
    members = [Candidate("a", "1", "x"), Candidate("b", "1", "y"), Candidate("c", "2", "z")]
    assert is_no_worse(members, 0, Candidate("d", "3", "x"), 3)
    assert is_no_worse(members, 0, Candidate("d", "2", "x"), 3)
    # One host less does not make up for a rack more.
    assert not is_no_worse(members, 0, Candidate("d", "3", "z"), 3)


def test_a_broken_rule_counts_before_shared_domains() -> None:
    members = _in_racks("xxy")
    same, other = Candidate("n", "h8", "y"), Candidate("o", "h9", "z")
    assert better_member([same], members, 3, PlacementRules(min_distinct_racks=3)) is None
    found = better_member([same, other], members, 3, PlacementRules(min_distinct_racks=3))
    assert found == (0, other)
    assert not is_no_worse(members, 2, Candidate("p", "h7", "x"), 3, TWO_RACKS)
    assert is_no_worse(members, 0, same, 3, TWO_RACKS)
