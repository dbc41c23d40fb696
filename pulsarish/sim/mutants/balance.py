"""Mutants of the balancer's core: what keeps bundles from being thrown back and forth. And of
splits: what keeps a topic at one broker.
"""

from __future__ import annotations

import math
import random
from functools import partial
from itertools import pairwise
from typing import Any, Final

import msgspec

from pulsarish.broker.ownership import ownership as ownership_module
from pulsarish.broker.ownership.balance import (
    Balance,
    BalanceLimits,
    BrokerLoad,
    BundleLoad,
    Move,
)
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Op, World
from pulsarish.sim.workloads.ownership_site import SPACE, OwnershipSite
from pulsarish.sim.workloads.safeguard import Mutant, replaced, replacing
from pulsarish.sim.world.world import Simulation

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


_SPLITTERS: Final = ("broker0", "broker1")
_SPLIT_STEPS: Final = 60


def _check_splits(seed: int) -> None:
    """Let brokers whose lists of bundles are old serve topics while bundles are split. No hash may
    be in two bundles that are owned.
    """
    sim = Simulation(seed)
    rng = random.Random(f"{seed}:splits")
    sites: dict[str, OwnershipSite] = {}

    async def step(_: World, site: OwnershipSite) -> None:
        owned = site.ownership.owned.bundles()
        way = rng.random()
        if way < 0.25 and owned:
            await site.split(rng.choice(owned))
        elif way < 0.4 and owned:
            await site.ownership.release(rng.choice(owned))
        elif way < 0.5:
            await site.refresh()
        else:
            await site.use(TopicName(*SPACE, f"t{rng.randrange(50)}"))

    async def scenario() -> None:
        nodes = {name: sim.node(name) for name in _SPLITTERS}
        for name, node in nodes.items():

            async def start(world: World, name: str = name) -> None:
                sites[name] = OwnershipSite(world, name)
                await sites[name].start(name)

            await node.run(start)
        for _ in range(_SPLIT_STEPS):
            name = rng.choice(_SPLITTERS)
            await nodes[name].run(partial(step, site=sites[name]))
            edges = sorted(
                each.edges for site in sites.values() for each in site.ownership.owned.bundles()
            )
            for before, after in pairwise(edges):
                assert before[1] <= after[0], f"two owned bundles have the same hashes: {edges}"

    sim.run(scenario, 600.0)


def _split_counts_as_free(was: Any) -> object:
    def judge(record: Any, *rest: Any) -> object:
        if record is not None:
            record = msgspec.structs.replace(record[0], is_split=False), record[1]
        return was(record, *rest)

    return judge


def _split_leaves_no_record(was: Any) -> object:
    def split_ops(ownership: Ownership, bundle: Bundle, parts: Any) -> list[Op]:
        return [
            Op("delete", op.path, version=op.version) if op.path == bundle.path else op
            for op in was(ownership, bundle, parts)
        ]

    return split_ops


BALANCE_MUTANTS: Final = (
    Mutant(
        "split_bundle_is_free",
        "a bundle that was split is owned by no broker, however old its list of bundles is",
        (),
        partial(replaced, ownership_module, "judge", _split_counts_as_free),
        _check_splits,
        seeds=20,
    ),
    Mutant(
        "split_leaves_no_record",
        "the record of a bundle that was split stays and says so",
        (),
        partial(replaced, Ownership, "split_ops", _split_leaves_no_record),
        _check_splits,
        seeds=20,
    ),
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
