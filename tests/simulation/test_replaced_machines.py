"""A machine that comes back without its data is another bookie at the same address: what that means
for the ledgers of its predecessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from pulsarish.bookie.bookie import Bookie
from pulsarish.model.errors import NotEnoughBookies
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.ledgers import bookie_config
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_ledger_scripts import Cluster, entries, play


class Machines(Cluster):
    """Each is a bookie of another id after its disk was wiped."""

    def _main(self, name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
        async def main(world: World) -> None:
            wipes = self.sim.nodes[name].disk.wipes_count
            config = msgspec.structs.replace(
                bookie_config(name), bookie_id=f"{name}-{wipes}" if wipes else name
            )
            self.running[name] = bookie = Bookie(world, config)
            await bookie.run()

        return main

    async def replace(self, machine: str) -> None:
        """An empty machine takes the place of this one; returns once it serves."""
        node = self.sim.nodes[machine]
        node.crash()
        node.disk.wipe()
        node.start()
        await asyncio.sleep(1.0)


def machine_of(member: str) -> str:
    return member.partition("~")[0]


def test_a_machine_takes_no_second_place_of_a_ledger_beside_its_dead_predecessor() -> None:
    """Every other entry would lie on that machine alone, and its next loss take a whole write
    quorum.
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Machines(sim, 3)
        client = await cluster.client()
        writer, listener = await client.create(3, 2, 2)
        _, down, replaced = map(machine_of, writer.metadata.last_segment.members)
        await cluster.replace(replaced)
        sim.nodes[down].crash()
        # The first entry does not lie on the third member: that this one is gone is not noticed by
        # it.
        await client.append(writer, entries(1))
        assert isinstance(listener.error, NotEnoughBookies)
        assert len(writer.metadata.segments) == 1
        sim.nodes[down].start()
        await cluster.replace(replaced)
        rival = await cluster.client("rival")
        assert await rival.read_all(await rival.do(rival.ledgers.open(writer.ledger_id))) in (
            [],
            entries(1),
        )

    play(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_a_machine_follows_its_predecessor_in_its_own_place(seed: int) -> None:
    """Also when another place was known to be open first."""

    async def scenario(sim: Simulation) -> None:
        cluster = Machines(sim, 3)
        client = await cluster.client()
        writer, listener = await client.create(3, 3, 2)
        first, down, replaced = writer.metadata.last_segment.members
        await cluster.replace(machine_of(replaced))
        sim.nodes[machine_of(down)].crash()
        await client.append(writer, entries(5))
        assert listener.last == 4
        members = writer.metadata.last_segment.members
        assert members[:2] == (first, down)
        assert machine_of(members[2]) == f"{machine_of(replaced)}-1"

    play(scenario, seed)
