"""How many producers and consumers of a client are being opened at a time."""

from __future__ import annotations

import asyncio

from pulsarish.client.connection.opening_turns import OpeningTurns
from pulsarish.client.connection.timers import Timers
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation

AT_ONCE = 256
UNANSWERED = 1_000


def test_a_turn_is_free_again_after_an_answer_or_after_a_second() -> None:
    async def inside(world: World) -> None:
        turns = OpeningTurns(world.clock, Timers(world.clock, world.tasks))
        taken = [await turns.take() for _ in range(AT_ONCE)]
        second = asyncio.ensure_future(turns.take())
        await world.clock.sleep(0.5)
        assert not second.done()
        taken[0].end()
        taken[0].end()  # counts once
        await world.clock.sleep(0.01)
        assert second.done()
        third = asyncio.ensure_future(turns.take())
        await world.clock.sleep(0.4)
        assert not third.done()
        await world.clock.sleep(0.2)  # the first ones have waited for more than a second
        assert third.done()
        for turn in [*taken, second.result(), third.result()]:
            turn.end()
        assert turns.free._value == AT_ONCE
        assert turns.answers._value == UNANSWERED

    sim = Simulation(1)
    sim.run(lambda: sim.node("client").run(inside), 1_000)


def test_many_without_an_answer_let_only_those_begin_that_may_wait_for_hours() -> None:
    async def inside(world: World) -> None:
        turns = OpeningTurns(world.clock, Timers(world.clock, world.tasks))
        waiting = [await turns.take(waits=True) for _ in range(AT_ONCE)]
        taken = [await turns.take() for _ in range(UNANSWERED)]
        await world.clock.sleep(10.0)
        last = asyncio.ensure_future(turns.take())
        waiting += [await turns.take(waits=True) for _ in range(AT_ONCE)]
        await world.clock.sleep(10.0)
        assert not last.done()
        taken.pop().end()
        await world.clock.sleep(0.01)
        assert last.done()
        cancelled = asyncio.ensure_future(turns.take())
        await world.clock.sleep(0.01)
        cancelled.cancel()
        for turn in [*taken, *waiting, last.result()]:
            turn.end()
        await world.clock.sleep(0.01)
        assert (turns.free._value, turns.answers._value) == (AT_ONCE, UNANSWERED)

    sim = Simulation(1)
    sim.run(lambda: sim.node("client").run(inside), 1_000)
