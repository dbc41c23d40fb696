"""The core of placement: which brokers may take a bundle, best first."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from pulsarish.broker.ownership.bundles import Bundle, bundles_of
from pulsarish.broker.ownership.placement import ANYWHERE, Candidate, Placement
from pulsarish.metadata.records import (
    BrokerRegistration,
    ListenerAddresses,
    NamespacePolicies,
    PlacementRecord,
)
from pulsarish.model.placement import AutoFailoverPolicy, FailureDomain, IsolationPolicy

NAMES = ("a1", "a2", "b1", "b2")


def registration(name: str) -> BrokerRegistration:
    return BrokerRegistration(
        name,
        f"{name}~1",
        f"tls:{name}.example.com:6661",
        http_address=f"{name}.example.com:8080",
        listeners={"out": ListenerAddresses("", pulsar_address=f"{name}.example.net:6650")},
    )


def candidates(**changes: Mapping[str, object]) -> list[Candidate]:
    """The brokers of ``NAMES``, with changes by name."""
    return [Candidate(registration(name), **changes.get(name, {})) for name in NAMES]  # type: ignore[arg-type]


def isolated(
    primary: str, secondary: str = "", *, min_limit: int = 1, threshold: int = 80
) -> IsolationPolicy:
    return IsolationPolicy(
        ("acme/.*",),
        (primary,),
        AutoFailoverPolicy(
            "min_available", {"min_limit": min_limit, "usage_threshold": str(threshold)}
        ),
        (secondary,) if secondary else (),
    )


def rules(
    policy: IsolationPolicy | None = None,
    domains: Mapping[str, tuple[str, ...]] | None = None,
    groups: Mapping[str, str] | None = None,
) -> Placement:
    return Placement(
        PlacementRecord(
            {} if policy is None else {"p": policy},
            {name: FailureDomain(brokers) for name, brokers in (domains or {}).items()},
            dict(groups or {}),
        )
    )


def names(found: list[Candidate]) -> list[str]:
    return [each.broker.broker_id for each in found]


def test_without_rules_the_broker_with_the_fewest_bundles_is_best() -> None:
    assert not ANYWHERE
    found = candidates(a1={"bundles": 5}, a2={"bundles": 1}, b1={"bundles": 3}, b2={"bundles": 3})
    assert names(ANYWHERE.choose("acme/x", found)) == ["a2", "b1", "b2", "a1"]
    silent = candidates(a2={"answers": False}, b1={"answers": False})
    assert names(ANYWHERE.choose("acme/x", silent)) == ["a1", "b2"]


@pytest.mark.parametrize(
    "pattern",
    [
        "a[0-9]",
        r"a.\.example\.com:6661",
        r"a.\.example\.com:8080",
        r"a.*example\.net:6650",
    ],
)
def test_an_isolation_policy_binds_its_namespaces_to_primary_brokers(pattern: str) -> None:
    placement = rules(isolated(pattern))
    assert names(placement.choose("acme/x", candidates())) == ["a1", "a2"]
    assert names(placement.choose("other/x", candidates())) == ["b1", "b2"], "theirs are others"
    assert (placement.policy_of("acme/x"), placement.policy_of("other/x")) == ("p", "")


def test_patterns_are_of_whole_names() -> None:
    assert names(rules(isolated("a")).choose("acme/x", candidates())) == []
    assert names(rules(isolated("a1")).choose("acmes", candidates())) == ["a2", "b1", "b2"]


def test_primary_brokers_take_other_namespaces_when_there_is_no_other_broker() -> None:
    placement = rules(isolated("a."))
    assert names(placement.choose("other/x", candidates()[:2])) == ["a1", "a2"]
    # One that is silent for a moment is there: its bundles do not go to primary brokers.
    silent = candidates(b1={"answers": False}, b2={"answers": False})
    assert names(placement.choose("other/x", silent)) == []


@pytest.mark.parametrize(
    ("min_limit", "changes", "expected"),
    [
        (1, {}, ["a1", "a2"]),
        (1, {"a1": {"answers": False}}, ["a2"]),
        (1, {"a1": {"answers": False}, "a2": {"answers": False}}, ["b1", "b2"]),
        (2, {"a1": {"answers": False}}, ["a2", "b1", "b2"]),
        (2, {"a1": {"usage_percent": 79}}, ["a1", "a2"]),
        # a primary broker above the threshold does not count, and comes last
        (2, {"a1": {"usage_percent": 80}}, ["a2", "b1", "b2", "a1"]),
        (1, {"a1": {"usage_percent": 95}, "a2": {"usage_percent": 99}}, ["b1", "b2", "a1", "a2"]),
        (3, {}, ["a1", "a2", "b1", "b2"]),
        (0, {"a1": {"answers": False}, "a2": {"answers": False}}, []),
    ],
)
def test_secondary_brokers_help_while_too_few_primary_ones_are_available(
    min_limit: int, changes: Mapping[str, Mapping[str, object]], expected: list[str]
) -> None:
    placement = rules(isolated("a.", "b.", min_limit=min_limit))
    assert names(placement.choose("acme/x", candidates(**changes))) == expected


def test_a_policy_without_secondary_brokers_has_none() -> None:
    placement = rules(isolated("a.", min_limit=4))
    assert names(placement.choose("acme/x", candidates())) == ["a1", "a2"]
    nowhere = rules(isolated("c."))
    assert nowhere.choose("acme/x", candidates()) == []
    assert "'p' binds namespace acme/x to brokers that match c." in nowhere.missing_broker("acme/x")


def test_the_first_policy_by_name_decides() -> None:
    placement = Placement(PlacementRecord({"q": isolated("b."), "p": isolated("a.")}))
    assert names(placement.choose("acme/x", candidates())) == ["a1", "a2"]


GROUPS = {"acme/x": "g", "acme/y": "g"}
DOMAINS = {"one": ("a1", "a2"), "two": ("b1.example.com:8080", "b2")}


def test_a_group_is_spread_over_domains_first_and_then_over_brokers() -> None:
    placement = rules(domains=DOMAINS, groups=GROUPS)
    found = candidates(a1={"group_bundles": 1})
    assert names(placement.choose("acme/x", found)) == ["b1", "b2"]
    found = candidates(a1={"group_bundles": 1}, b1={"group_bundles": 1})
    assert names(placement.choose("acme/y", found)) == ["a2", "b2"]
    assert names(placement.choose("acme/z", found)) == ["a1", "a2", "b1", "b2"], "of no group"
    without = rules(groups=GROUPS)
    found = candidates(a1={"group_bundles": 1})
    assert names(without.choose("acme/x", found)) == ["a2", "b1", "b2"]


def test_a_group_is_spread_over_the_brokers_that_its_policy_permits() -> None:
    placement = rules(isolated("a."), groups=GROUPS)
    assert names(placement.choose("acme/x", candidates(a1={"group_bundles": 1}))) == ["a2"]


def test_the_broker_that_is_asked_keeps_a_bundle_unless_another_is_clearly_better() -> None:
    placement = rules(isolated("a."))

    def taker(me: str, **changes: Mapping[str, object]) -> str:
        found = placement.taker("acme/x", candidates(**changes), f"{me}~1")
        return "" if found is None else found.broker_id

    assert taker("a2", a2={"bundles": 1}) == "a2"
    assert taker("a2", a2={"bundles": 2}) == "a1"
    assert taker("a2", a2={"usage_percent": 90}) == "a1"
    assert taker("b1", a1={"bundles": 9}) == "a2", "it may not have it"
    assert taker("b1", a1={"answers": False}, a2={"answers": False}) == ""


def test_a_destination_is_refused_with_the_rule() -> None:
    placement = rules(isolated("a."), groups={"other/x": "g"}, domains=DOMAINS)
    found = candidates(b1={"group_bundles": 1})

    def refusal(namespace: str, to: str, source: str = "") -> str:
        return placement.refusal(namespace, registration(to), found, source and f"{source}~1")

    assert refusal("acme/x", "a1") == ""
    assert "'p' does not permit broker b1 for namespace acme/x; it permits a1, a2" in refusal(
        "acme/x", "b1"
    )
    assert "broker a1 is primary for namespace isolation policy 'p'" in refusal("other/x", "a1")
    assert "anti-affinity group 'g'" in refusal("other/x", "b1", "b2")
    assert refusal("other/x", "b2", "b1") == "", "it gets no worse"
    # A broker that is not among those that take bundles is judged, too.
    assert "does not permit broker c1" in refusal("acme/x", "c1")


def owned_by(owner: Mapping[Bundle, str]) -> dict[str, list[Bundle]]:
    return {f"{name}~1": [bundle for bundle, at in owner.items() if at == name] for name in NAMES}


def settle(
    placement: Placement, owner: dict[Bundle, str], found: list[Candidate], rounds: int = 10
) -> int:
    """Carry moves out until there are none. Return how many there were."""
    count = 0
    for _ in range(rounds):
        owned = owned_by(owner)
        now = [replace(each, bundles=len(owned[each.instance_id])) for each in found]
        moves = placement.moves(owned, now, moves_max=7, moves_of_broker_max=5)
        assert len(moves) <= 7
        if not moves:
            return count
        for move in moves:
            assert owner[move.bundle] == move.source.removesuffix("~1")
            owner[move.bundle] = move.destination.removesuffix("~1")
        count += len(moves)
    raise AssertionError(f"{count} moves, and no end")


def test_bundles_on_wrong_brokers_move_and_others_stay() -> None:
    ours, others = (
        bundles_of("acme", "x", NamespacePolicies(bundles=8)),
        bundles_of("other", "x", NamespacePolicies(bundles=8)),
    )
    owner = dict(zip(ours + others, NAMES * 4, strict=True))
    before = dict(owner)
    placement = rules(isolated("a."))
    assert settle(placement, owner, candidates()) == 8
    assert Counter(owner[bundle] for bundle in ours) == {"a1": 4, "a2": 4}
    assert Counter(owner[bundle] for bundle in others) == {"b1": 4, "b2": 4}
    right = {bundle: "a" if bundle in ours else "b" for bundle in owner}
    assert all(owner[bundle] == at for bundle, at in before.items() if at[0] == right[bundle])


def test_a_bundle_stays_where_no_broker_may_have_it_and_at_a_broker_that_drains() -> None:
    owner = dict.fromkeys(bundles_of("acme", "x", NamespacePolicies(bundles=4)), "b1")
    assert settle(rules(isolated("c.")), dict(owner), candidates()) == 0
    drains = [each for each in candidates() if each.broker.broker_id != "b1"]
    assert settle(rules(isolated("a.")), dict(owner), drains) == 0


def test_bundles_leave_secondary_brokers_only_when_primary_ones_are_calm() -> None:
    placement = rules(isolated("a.", "b."))
    owner = dict.fromkeys(bundles_of("acme", "x", NamespacePolicies(bundles=4)), "b1")
    busy = candidates(a1={"usage_percent": 75}, a2={"usage_percent": 75})
    assert settle(placement, dict(owner), busy) == 0, "they are just below the threshold"
    calm = candidates(a1={"usage_percent": 60}, a2={"usage_percent": 75})
    assert settle(placement, owner, calm) == 4
    assert {*owner.values()} == {"a1", "a2"}


@pytest.mark.parametrize("seed", range(30))
def test_moves_of_groups_end_and_leave_them_spread(seed: int) -> None:
    rng = random.Random(seed)
    groups = {f"acme/n{number}": f"g{number % 3}" for number in range(9)}
    placement = rules(domains=DOMAINS if seed % 2 else None, groups=groups)
    owner = {
        bundle: rng.choice(NAMES)
        for name in groups
        for bundle in bundles_of(
            "acme", name.partition("/")[2], NamespacePolicies(bundles=rng.randrange(1, 4))
        )
    }
    _ = settle(placement, owner, candidates(), rounds=100)
    for group in ("g0", "g1", "g2"):
        counts = Counter(dict.fromkeys(NAMES, 0))
        counts.update(
            at
            for bundle, at in owner.items()
            if groups[f"{bundle.tenant}/{bundle.namespace}"] == group
        )
        domains = [counts["a1"] + counts["a2"], counts["b1"] + counts["b2"]]
        for few, many in pairwise(sorted(counts.values())):
            assert many - few <= 1, counts
        if seed % 2:
            assert max(domains) - min(domains) <= 1, counts


def test_load_moves_bundles_among_the_brokers_that_may_have_them() -> None:
    placement = rules(isolated("a."), groups={"acme/y": "g"})
    pools = [
        sorted(placement.pool(Bundle(*each, "0x0_0x1"), candidates()))
        for each in (("acme", "x"), ("other", "x"), ("acme", "y"))
    ]
    assert pools == [["a1~1", "a2~1"], ["b1~1", "b2~1"], []]


def test_bundles_of_each_group_are_counted() -> None:
    placement = rules(groups=GROUPS)
    some = (
        bundles_of("acme", "x", NamespacePolicies(bundles=2))
        + bundles_of("acme", "y", NamespacePolicies(bundles=1))
        + bundles_of("acme", "z", NamespacePolicies(bundles=4))
    )
    assert placement.group_counts(some) == {"g": 3}
    assert ANYWHERE.group_counts(some) == {}
