"""Ledger ids of two processes that draw blocks in turn."""

from __future__ import annotations

from pulsarish.ledger.id_allocator import LedgerIdAllocator
from pulsarish.metadata.record_store import Records
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation


def test_ids_are_never_given_twice_and_grow_where_asked() -> None:
    sim = Simulation(1)

    async def scenario() -> None:
        worlds: list[World] = []

        async def take(world: World) -> None:
            worlds.append(world)

        for name in ("a", "b"):
            await sim.node(name).run(take)
        first, second = (
            LedgerIdAllocator(Records(world.metadata, world.clock, world.random), 3)
            for world in worlds
        )

        async def draw(which: str, allocator: LedgerIdAllocator, above: int = -1) -> int:
            return await sim.nodes[which].run(lambda world: allocator.next_id(above=above))

        assert [await draw("a", first), await draw("b", second), await draw("a", first)] == [
            0,
            3,
            1,
        ]
        assert await draw("a", first, above=3) == 6, "what is left of the block is too old"
        assert await draw("b", second, above=4) == 5
        assert await draw("b", second, above=6) == 9
        assert await draw("a", first, above=2) == 7

        async def draw_above_limbo(limbo_below: int) -> int:
            return await sim.nodes["a"].run(lambda _: first.next_id(limbo_below=limbo_below))

        assert await draw_above_limbo(8) == 8
        assert await draw_above_limbo(12) == 12, "the rest of the block may be in limbo"
        assert await draw_above_limbo(12) == 13
        assert await draw_above_limbo(1_000_000) == 15, "nothing is skipped that was not drawn"

    sim.run(scenario)
