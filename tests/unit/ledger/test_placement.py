"""Who holds a ledger: hosts first, then racks, quarantine last, and what happens with fewer bookies
than wanted.
"""

import random
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.ledger.placement import Candidate, choose_ensemble, choose_replacement
from pulsarish.model.errors import InvalidArgument, NotEnoughBookies


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
