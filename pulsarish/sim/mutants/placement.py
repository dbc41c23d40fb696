"""Mutants of the rules of placement: bundles are where they may be, and stay there."""

from __future__ import annotations

import random
from typing import Any, Final

from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.ownership.placement import Candidate, Placement
from pulsarish.metadata.records import BrokerRegistration, PlacementRecord
from pulsarish.model.placement import AutoFailoverPolicy, IsolationPolicy
from pulsarish.sim.workloads.safeguard import Mutant, replacing

__all__ = ["PLACEMENT_MUTANTS"]

_BROKERS: Final = ("p0", "p1", "s0", "s1", "x0", "x1")
_ROUNDS: Final = 30
_THRESHOLD: Final = 80


def _check_placement(seed: int) -> None:
    """Run the core while primary brokers are about as busy as their threshold.

    Whatever is drawn, bundles are where the rules permit them, spread by group, and none is thrown
    back and forth.
    """
    rng = random.Random(f"{seed}:placement")
    policy = IsolationPolicy(
        ("own/.*",),
        ("p[0-9]",),
        AutoFailoverPolicy("min_available", {"min_limit": 1, "usage_threshold": _THRESHOLD}),
        ("s[0-9]",),
    )
    groups = {"free/g1": "g", "free/g2": "g"}
    rules = Placement(PlacementRecord({"own": policy}, {}, groups))
    names = ["own/a", "own/b", "free/a", "free/b", *groups]
    owner = {
        Bundle(tenant, namespace, f"{number}"): rng.choice(_BROKERS)
        for tenant, _, namespace in (name.partition("/") for name in names)
        for number in range(rng.randint(1, 6))
    }
    moved = dict.fromkeys(owner, 0)
    for _ in range(_ROUNDS):
        usage = rng.randint(_THRESHOLD - 5, _THRESHOLD + 5)
        owned: dict[str, list[Bundle]] = {name: [] for name in _BROKERS}
        for bundle, at in owner.items():
            owned[at].append(bundle)
        brokers = [
            Candidate(
                BrokerRegistration(name, name, name),
                len(owned[name]),
                usage if name[0] == "p" else 0,
            )
            for name in _BROKERS
        ]
        for move in rules.moves(owned, brokers, moves_max=100, moves_of_broker_max=50):
            assert owner[move.bundle] == move.source
            owner[move.bundle] = move.destination
            moved[move.bundle] += 1
    for bundle, at in owner.items():
        permitted = "ps" if bundle.tenant == "own" else "sx"
        assert at[0] in permitted, f"{bundle} is at {at}"
    counts = [
        sum(at == name for bundle, at in owner.items() if bundle.namespace[0] == "g")
        for name in ("s0", "s1", "x0", "x1")
    ]
    assert max(counts) - min(counts) <= 1, f"bundles of the group: {counts}"
    for bundle, count in moved.items():
        assert count <= 1 or bundle.namespace[0] == "g", f"{bundle} moved {count} times"


def _leaves_secondary_at_once(was: Any) -> object:
    def permitted(
        rules: Placement, namespace: str, candidates: Any, *, calm_percent: int = 0
    ) -> Any:
        return was(rules, namespace, candidates)

    return permitted


def _reserves_no_broker(was: Any) -> object:
    def permitted(
        rules: Placement, namespace: str, candidates: Any, *, calm_percent: int = 0
    ) -> Any:
        if not rules.policy_of(namespace):
            return list(candidates)
        return was(rules, namespace, candidates, calm_percent=calm_percent)

    return permitted


def _spreads_nothing(was: Any) -> object:
    def spread(rules: Placement, candidates: Any) -> Any:
        return lambda candidate: (0, 0)

    return spread


PLACEMENT_MUTANTS: Final = (
    Mutant(
        "secondary_broker_left_at_once",
        "a bundle leaves a secondary broker only when primary ones are well below the threshold",
        (),
        replacing(Placement, "permitted", _leaves_secondary_at_once),
        _check_placement,
        seeds=20,
    ),
    Mutant(
        "primary_brokers_not_reserved",
        "brokers that are primary for an isolation policy have no bundles of other namespaces",
        (),
        replacing(Placement, "permitted", _reserves_no_broker),
        _check_placement,
        seeds=20,
    ),
    Mutant(
        "group_not_spread",
        "the bundles of an anti-affinity group are spread over brokers",
        (),
        replacing(Placement, "_spread", _spreads_nothing),
        _check_placement,
        seeds=20,
    ),
)
