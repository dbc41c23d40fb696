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

    sim.run(scenario)


def test_ids_of_which_a_bookie_is_in_doubt_are_given_up_but_not_for_made_up_ones() -> None:
    sim = Simulation(1)

    async def scenario() -> None:
        async def draw(world: World) -> list[int]:
            ids = LedgerIdAllocator(Records(world.metadata, world.clock, world.random), 10)
            in_doubt = [0, 2, 2, 10, 15, 15, 1 << 40, 1 << 40, 1 << 40]
            return [await ids.next_id(clear_of=clear_of) for clear_of in in_doubt]

        assert await sim.node("a").run(draw) == [0, 2, 3, 10, 15, 16, 20, 21, 22]

    sim.run(scenario)


def test_an_id_that_no_metadata_gave_out_does_not_hide_the_doubt_of_another_bookie() -> None:
    sim = Simulation(1)

    async def scenario() -> None:
        async def draw(world: World) -> list[int]:
            ids = LedgerIdAllocator(Records(world.metadata, world.clock, world.random), 10)
            in_doubt = [1 << 40, 5, 1 << 30, 12, 1 << 40]
            return [await ids.next_id(clear_of=clear_of) for clear_of in in_doubt]

        assert await sim.node("a").run(draw) == [0, 5, 6, 12, 13]

    sim.run(scenario)
