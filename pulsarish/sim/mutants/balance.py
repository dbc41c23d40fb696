"""Mutants of the balancer's core: what keeps bundles from being thrown back and forth."""

from __future__ import annotations

import math
import random
from typing import Any, Final

from pulsarish.broker.ownership.balance import (
    Balance,
    BalanceLimits,
    BrokerLoad,
    BundleLoad,
    Move,
)
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.sim.workloads.safeguard import Mutant, replacing

__all__ = ["BALANCE_MUTANTS"]

_BROKERS: Final = ("a", "b", "c")
_BUNDLES: Final = 30
_ROUND_SECONDS: Final = 10.0
_ROUNDS: Final = 60
_UNMEASURED_SECONDS: Final = 40.0
"""How long a bundle's new owner has opened no topic of it."""


def _check_moves(seed: int) -> None:
    """Run the core while the load wanders about. A bundle may move once within its rest, and what
    was just moved must not look light.
    """
    rng = random.Random(f"{seed}:balance")
    limits = BalanceLimits()
    balance = Balance(limits)
    bundles = [Bundle("t", "n", f"{number:02d}") for number in range(_BUNDLES)]
    owner = dict.fromkeys(bundles, "a")
    topics = {bundle: rng.randint(5, 15) for bundle in bundles}
    rate = dict.fromkeys(bundles, 0.0)
    moved_at: dict[Bundle, float] = {}
    for number in range(_ROUNDS):
        now = number * _ROUND_SECONDS
        if number and not number % 10:
            busy = rng.choice(_BROKERS)
            for bundle in bundles:
                rate[bundle] = rng.uniform(2_000.0, 4_000.0) * (3 if owner[bundle] == busy else 1)
        balance.set_members(_BROKERS, now)
        for name in _BROKERS:
            loads = {
                bundle: BundleLoad()
                if now - moved_at.get(bundle, -math.inf) < _UNMEASURED_SECONDS
                else BundleLoad(topics[bundle], 0, rate[bundle])
                for bundle in bundles
                if owner[bundle] == name
            }
            balance.note(BrokerLoad(name, 0.0, True, loads), now)
        moves = balance.decide(now)
        for move in moves:
            last = moved_at.get(move.bundle)
            assert last is None or now - last >= limits.rest_seconds, (
                f"bundle {move.bundle} moves again {now - last:.0f} s after it moved"
            )
            owner[move.bundle] = move.destination
            moved_at[move.bundle] = now
            balance.moved(move, now, done=True)
        balance.check()
        if number == 9:
            sums = [
                sum(topics[bundle] for bundle in bundles if owner[bundle] == name)
                for name in _BROKERS
            ]
            assert max(sums) <= sum(sums) / 3 * 1.2, f"topics of the brokers: {sums}"


def _moves_again_at_once(was: Any) -> object:
    def moved(balance: Balance, move: Move, now: float, *, done: bool) -> None:
        was(balance, move, now, done=done)
        balance._bundles[move.bundle].rests_until = now

    return moved


def _believes_new_meters(was: Any) -> object:
    def owner_changed(balance: Balance, bundle: Any, owner: str, now: float) -> None:
        was(balance, bundle, owner, now)
        bundle.settled_at = now

    return owner_changed


BALANCE_MUTANTS: Final = (
    Mutant(
        "moved_bundle_does_not_rest",
        "a bundle that the balancer moved stays for a while",
        (),
        replacing(Balance, "moved", _moves_again_at_once),
        _check_moves,
        seeds=20,
    ),
    Mutant(
        "new_meters_believed",
        "a bundle that moved counts as before until its new owner has measured it",
        (),
        replacing(Balance, "_owner_changed", _believes_new_meters),
        _check_moves,
        seeds=20,
    ),
)
