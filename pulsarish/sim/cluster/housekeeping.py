"""Waits for the background work of bookies at the end of a run.

In bounded time they collect garbage and repair under-replicated ledgers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from pulsarish.bookie.bookie import Bookie
from pulsarish.model.ledger_metadata import LedgerState
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.cluster import SimCluster
from pulsarish.sim.cluster.invariants import Invariants
from pulsarish.sim.cluster.operator import Operator
from pulsarish.sim.world.world import Simulation

__all__ = [
    "wait_until_collected",
    "wait_until_copied",
    "wait_until_no_orphans",
    "wait_until_repaired",
]

_GARBAGE_SECONDS: Final = 18.0
"""Within this time a bookie has collected its garbage three times: two looks, after a round that
had begun before.
"""
_PATIENCE_SECONDS: Final = 60.0
_AUDIT_SECONDS: Final = 5.0


async def wait_until_collected(cluster: SimCluster, report: Callable[[str, str], None]) -> None:
    """Wait until every bookie has ended a garbage collection that began now.

    Work that its disk began while slow may delay it.
    """
    loop = cluster.sim.loop
    wanted = {name: bookie.garbage.rounds + 3 for name, bookie in cluster.bookies_up()}
    deadline = loop.time() + _PATIENCE_SECONDS
    await asyncio.sleep(_GARBAGE_SECONDS)
    while late := [
        name for name, bookie in cluster.bookies_up() if bookie.garbage.rounds < wanted.get(name, 0)
    ]:
        if loop.time() > deadline:
            report("not-live", f"{', '.join(late)} collect no garbage although all is well")
            return
        await asyncio.sleep(1.0)


async def wait_until_repaired(
    cluster: SimCluster, operator: Operator, invariants: Invariants
) -> None:
    """Wait until auto-recovery has repaired every under-replicated ledger."""
    loop = cluster.sim.loop
    # Where most of all bookies that ever existed are gone, an operator must say so.
    gone = cluster.gone_for_good()
    await operator.give_up(gone)
    deadline = loop.time() + _PATIENCE_SECONDS
    while missing := invariants.missing_copies(gone):
        if loop.time() > deadline:
            operator.stage.oracle.report(
                "not-live", f"{', '.join(missing)} still miss copies although all bookies are well"
            )
            return
        await asyncio.sleep(1.0)
    while doubtful := await _in_limbo(cluster, invariants):
        if loop.time() > deadline:
            operator.stage.oracle.report(
                "not-live", f"{', '.join(doubtful)} although all bookies are well"
            )
            return
        await asyncio.sleep(1.0)


async def wait_until_no_orphans(
    sim: Simulation, invariants: Invariants, report: Callable[[str, str], None]
) -> None:
    """Wait until the leader has deleted every ledger that nothing refers to."""
    deadline = sim.loop.time() + _PATIENCE_SECONDS
    while left := [record.ledger_id for record in invariants.orphans()]:
        if sim.loop.time() > deadline:
            report("not-live", f"ledgers {left} stay, and nothing refers to them")
            return
        await asyncio.sleep(1.0)


async def wait_until_copied(
    look: Callable[[Callable[[str, str], None]], Awaitable[int]], sim: Simulation
) -> int:
    """Wait until closed ledgers have all their copies.

    The auditor asks all members what they hold, so it finds losses that no node knew of. Return how
    many entries missed a copy before. A copy that is still missing at the end of the time is left
    to the last check.
    """
    deadline = sim.loop.time() + _PATIENCE_SECONDS
    missing: list[str] = []
    most = 0

    def report(name: str, what: str) -> None:
        if name == "missing-copies":
            missing.append(what)

    while True:
        missing.clear()
        await look(report)
        most = max(most, len(missing))
        if not missing or sim.loop.time() > deadline:
            return most
        sim.trace(f"lacking copies: {'; '.join(missing)}")
        await asyncio.sleep(_AUDIT_SECONDS)


async def _in_limbo(cluster: SimCluster, invariants: Invariants) -> list[str]:
    """Return the closed ledgers for which a member still answers that it does not know."""
    found: list[str] = []
    closed = [record for record in invariants.known() if record.state is LedgerState.CLOSED]
    for name, bookie in cluster.bookies_up():
        if not bookie.store.limbo.ledgers_below:
            continue
        mine = [
            each.ledger_id
            for each in closed
            if any(bookie.instance_id in segment.members for segment in each.segments)
        ]

        async def inside(
            _world: World, bookie: Bookie = bookie, mine: list[int] = mine
        ) -> list[int]:
            return [
                ledger_id for ledger_id in mine if (await bookie.store.states.get(ledger_id)).limbo
            ]

        found += [
            f"ledger {ledger_id} is in limbo on {name}"
            for ledger_id in await cluster.sim.nodes[name].run(inside)
        ]
    return found
