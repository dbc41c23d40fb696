"""How many topics a broker loads at a time, in which order, and how many may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from pulsarish.broker.topics.load_turns import AT_ONCE_MAX, LATE_SECONDS, LoadLine, LoadTurns
from pulsarish.model.errors import PulsarishError, ServiceNotReady, TooManyRequests
from pulsarish.sim.world.world import Simulation

PLACES = 10_000


class Load:
    def __init__(self, loads: Loads, name: int) -> None:
        self.lines: list[LoadLine] = []
        self.name = name
        self.error: PulsarishError | None = None
        self._loads = loads

    def begin(self, turn: int) -> None:
        assert not self.lines
        self._loads.begun.append(self.name)
        self._loads.turn_of[self.name] = turn

    def give_up(self, error: PulsarishError) -> None:
        assert not self.lines
        self.error = error


class Loads:
    """Loads that end when the test says so."""

    def __init__(self, sim: Simulation) -> None:
        world = sim.nodes["broker"].world
        assert world is not None
        self.turns = LoadTurns(world.clock, world.tasks)
        self.begun: list[int] = []
        self.turn_of: dict[int, int] = {}

    def come(self, line: LoadLine, *names: int, places: int = PLACES) -> list[Load]:
        loads = [Load(self, name) for name in names]
        for load in loads:
            self.turns.wait(load, line, places)
        return loads

    def end(self, *names: int) -> None:
        for name in names:
            self.turns.end(self.turn_of.pop(name))


def play(story: Callable[[Simulation], Coroutine[object, object, None]]) -> None:
    sim = Simulation(1)
    sim.node("broker")
    sim.run(lambda: sim.nodes["broker"].run(lambda _world: story(sim)))


def test_loads_of_a_client_wait_in_the_order_in_which_they_came() -> None:
    async def story(sim: Simulation) -> None:
        loads, line = Loads(sim), LoadLine()
        loads.come(line, *range(AT_ONCE_MAX + 3))
        assert loads.begun == list(range(AT_ONCE_MAX))
        assert loads.turns.waiting_count == line.waiting_count == 3
        assert loads.turns.begun_count == AT_ONCE_MAX
        loads.end(0)
        loads.come(line, AT_ONCE_MAX + 3)  # it does not pass those that wait
        assert loads.begun == list(range(AT_ONCE_MAX + 1))
        loads.end(1, 2, 3)
        assert loads.begun == list(range(AT_ONCE_MAX + 4))
        assert loads.turns.waiting_count == line.waiting_count == 0
        loads.end(*loads.turn_of)
        assert loads.turns.begun_count == 0

    play(story)


def test_clients_take_turns() -> None:
    async def story(sim: Simulation) -> None:
        loads, many, few, other = Loads(sim), LoadLine(), LoadLine(), LoadLine()
        loads.come(many, *range(AT_ONCE_MAX + 100))
        loads.come(few, 1_000, 1_001)
        loads.come(other, 2_000)
        loads.end(*range(6))
        first = AT_ONCE_MAX
        assert loads.begun[first:] == [first, 1_000, 2_000, first + 1, 1_001, first + 2]

    play(story)


def test_a_load_that_two_clients_want_begins_once_at_the_earlier_turn() -> None:
    async def story(sim: Simulation) -> None:
        loads, many, few = Loads(sim), LoadLine(), LoadLine()
        waiting = loads.come(many, *range(AT_ONCE_MAX + 3))
        loads.turns.wait(waiting[-1], few, PLACES)
        loads.turns.wait(waiting[-1], few, PLACES)  # has its place already
        assert loads.turns.waiting_count == 4
        loads.end(0, 1)
        assert loads.begun[AT_ONCE_MAX:] == [AT_ONCE_MAX, AT_ONCE_MAX + 2]
        assert (many.waiting_count, few.waiting_count, loads.turns.waiting_count) == (1, 0, 1)

    play(story)


def test_what_waits_only_for_a_client_that_leaves_is_given_up() -> None:
    async def story(sim: Simulation) -> None:
        loads, leaving, staying = Loads(sim), LoadLine(), LoadLine()
        own = loads.come(leaving, *range(AT_ONCE_MAX + 4))[AT_ONCE_MAX:]
        loads.turns.wait(own[1], staying, PLACES)
        leaving.close()
        assert [isinstance(load.error, ServiceNotReady) for load in own] == [
            True,
            False,
            True,
            True,
        ]
        assert loads.turns.waiting_count == staying.waiting_count == 1
        with pytest.raises(ServiceNotReady, match="has closed its connection"):
            loads.come(leaving, 1_000)
        loads.end(0, 1)
        assert loads.begun[AT_ONCE_MAX:] == [own[1].name]
        LoadLine().close()  # one in which nothing ever waited

    play(story)


def test_above_the_limit_the_client_with_most_places_loses_its_newest() -> None:
    async def story(sim: Simulation) -> None:
        loads, many, few = Loads(sim), LoadLine(), LoadLine()
        limit = AT_ONCE_MAX + 4
        waiting = loads.come(many, *range(limit), places=limit)[AT_ONCE_MAX:]
        with pytest.raises(TooManyRequests, match=f"{limit} topics.*max_concurrent_topic_load"):
            loads.come(many, 1_000, places=limit)
        loads.come(few, 2_000, 2_001, places=limit)
        assert [isinstance(load.error, TooManyRequests) for load in waiting] == [
            False,
            False,
            True,
            True,
        ]
        with pytest.raises(TooManyRequests):  # it would have more than the other then
            loads.come(few, 2_002, places=limit)
        assert (many.waiting_count, few.waiting_count, loads.turns.waiting_count) == (2, 2, 4)

    play(story)


def test_a_place_is_not_taken_from_a_load_that_others_want_too() -> None:
    async def story(sim: Simulation) -> None:
        loads, many, few = Loads(sim), LoadLine(), LoadLine()
        limit = AT_ONCE_MAX + 5
        waiting = loads.come(many, *range(AT_ONCE_MAX + 4), places=limit)
        loads.turns.wait(waiting[-1], few, limit)
        with pytest.raises(TooManyRequests):
            loads.come(few, 2_000, places=limit)
        assert waiting[-1].error is None
        assert loads.turns.waiting_count == 5

    play(story)


def test_loads_that_are_late_let_others_begin() -> None:
    async def story(sim: Simulation) -> None:
        loads, line = Loads(sim), LoadLine()
        loads.come(line, *range(3 * AT_ONCE_MAX))
        assert len(loads.begun) == AT_ONCE_MAX
        for rounds in (2, 3):
            await asyncio.sleep(1.25 * LATE_SECONDS)
            assert loads.begun == list(range(rounds * AT_ONCE_MAX))
        loads.come(line, 1_000)
        assert loads.begun[-1] == 3 * AT_ONCE_MAX - 1
        loads.end(7)  # a late one: it makes no room for another
        assert loads.turns.waiting_count == 1
        loads.end(3 * AT_ONCE_MAX - 1)
        assert loads.begun[-1] == 1_000

    play(story)
