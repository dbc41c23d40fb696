"""How many topics a broker loads at a time, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from pulsarish.broker.topics.load_turns import AT_ONCE_MAX, LATE_SECONDS, LoadTurns
from pulsarish.sim.world.world import Simulation


class Loads:
    """Loads that end when the test says so."""

    def __init__(self, sim: Simulation) -> None:
        world = sim.nodes["broker"].world
        assert world is not None
        self.turns = LoadTurns(world.clock, world.tasks)
        self.begun: list[int] = []
        self._turn_of: dict[int, int] = {}
        self._tasks = world.tasks

    async def come(self, *names: int) -> None:
        for name in names:
            _ = self._tasks.spawn(self._load(name), name=f"load {name}")
            await asyncio.sleep(0.001)  # so that they come in this order

    async def _load(self, name: int) -> None:
        self._turn_of[name] = await self.turns.take()
        self.begun = sorted([*self.begun, name])  # those of one turn of the loop come in any order

    async def end(self, name: int) -> None:
        self.turns.end(self._turn_of.pop(name))
        await asyncio.sleep(0.001)


def play(story: Callable[[Simulation], Coroutine[object, object, None]]) -> None:
    sim = Simulation(1)
    sim.node("broker")
    sim.run(lambda: sim.nodes["broker"].run(lambda _world: story(sim)))


def test_loads_wait_in_the_order_in_which_they_came() -> None:
    async def story(sim: Simulation) -> None:
        loads = Loads(sim)
        await loads.come(*range(AT_ONCE_MAX + 3))
        assert loads.begun == list(range(AT_ONCE_MAX))
        assert loads.turns.waiting_count == 3
        await loads.end(0)
        await loads.come(AT_ONCE_MAX + 3)  # it does not pass those that wait
        assert loads.begun == list(range(AT_ONCE_MAX + 1))
        for name in (1, 2, 3):
            await loads.end(name)
        assert loads.begun == list(range(AT_ONCE_MAX + 4))
        assert loads.turns.waiting_count == 0

    play(story)


def test_a_load_that_is_cancelled_while_it_waits_is_passed_over() -> None:
    async def story(sim: Simulation) -> None:
        loads = Loads(sim)
        await loads.come(*range(AT_ONCE_MAX))
        waiting = asyncio.get_running_loop().create_task(loads.turns.take())
        await asyncio.sleep(0.001)
        await loads.come(AT_ONCE_MAX)
        _ = waiting.cancel()
        await asyncio.sleep(0.001)
        await loads.end(0)
        assert loads.begun == list(range(AT_ONCE_MAX + 1))

    play(story)


def test_loads_that_are_late_let_others_begin() -> None:
    async def story(sim: Simulation) -> None:
        loads = Loads(sim)
        await loads.come(*range(3 * AT_ONCE_MAX))
        assert len(loads.begun) == AT_ONCE_MAX
        for rounds in (2, 3):
            await asyncio.sleep(1.25 * LATE_SECONDS)
            assert loads.begun == list(range(rounds * AT_ONCE_MAX))
        await loads.come(1_000)
        assert loads.begun[-1] == 3 * AT_ONCE_MAX - 1
        await loads.end(7)  # a late one: it makes no room for another
        assert loads.turns.waiting_count == 1
        await loads.end(3 * AT_ONCE_MAX - 1)
        assert loads.begun[-1] == 1_000

    play(story)
