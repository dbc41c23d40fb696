"""Mutants of the rates of resource groups: brokers together take no more than a group's limit."""

from __future__ import annotations

import math
import random
from typing import Final

from pulsarish.broker.ownership import group_division
from pulsarish.broker.ownership.group_division import (
    ASK_SECONDS,
    SHARE_SECONDS,
    GroupDivision,
    equal_share,
    least_share,
)
from pulsarish.broker.policies.group_rates import KINDS, Wish
from pulsarish.sim.workloads.safeguard import Mutant, replacing

__all__ = ["RATE_MUTANTS"]

_BROKERS: Final = ("a", "b", "c", "d")
_ROUNDS: Final = 40
_BEGAN: Final = -10.0
_SHARES_MAX: Final = 1.1


def _check_shares(seed: int) -> None:
    """Let brokers begin and cease to use a group. Some answers of the leader are lost. Once each
    broker that uses it has asked again, the shares that are in force together are at most 1.1.
    """
    rng = random.Random(f"{seed}:shares")
    division = GroupDivision(_BEGAN)
    shares = {name: (least_share(len(_BROKERS)), math.inf) for name in _BROKERS}
    demands: dict[str, float] = {}
    for number in range(_ROUNDS):
        if not number % 5:
            some = rng.sample(_BROKERS, rng.randint(1, len(_BROKERS)))
            demands = {name: rng.choice((0.1, 0.5, 9.0)) for name in some}
        for name, demand in demands.items():
            now = number * ASK_SECONDS + rng.random() / 2
            share, until = shares[name]
            if now >= until:
                share = min(share, equal_share(len(_BROKERS)))
            wish = Wish(min(demand, share), demand >= share * 0.9, share)
            (given, *_) = division.ask(name, {"g": [wish] * len(KINDS)}, _BROKERS, now)["g"]
            if rng.random() < 0.9:
                shares[name] = given, now + SHARE_SECONDS
        if number % 5 < 2:
            continue  # a broker that has just begun has the least share beyond what is left
        together = sum(shares[name][0] for name in demands)
        assert together <= _SHARES_MAX + 1e-9, f"shares at {number}: {shares}"


def _nothing_in_force(_was: object) -> object:
    def in_force(_user: object, _brokers_count: int, _now: float) -> float:
        return 0.0

    return in_force


RATE_MUTANTS: Final = (
    Mutant(
        "shares_of_others_forgotten",
        "a broker gets no more of a resource group's limit than the shares of the others leave",
        (),
        replacing(group_division._User, "in_force", _nothing_in_force),
        _check_shares,
        seeds=10,
    ),
)
