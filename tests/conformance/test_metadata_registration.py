"""A registration is one ephemeral node, kept over sessions and never taken from another session that lives."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.metadata.registration import Registration, register
from pulsarish.model.errors import AlreadyExists
from pulsarish.runtime.seams import Op, World
from pulsarish.sim.world import Simulation

SEEDS = range(15)
WAIT_SECONDS = 12.0
PATH = "/me"


class Life:
    """What the holder was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.changed = asyncio.Event()
        self.registration: Registration | None = None

    def note(self, what: str) -> None:
        self.told.append(what)
        self.changed.set()

    async def until(self, *told: str) -> None:
        while self.told[-len(told) :] != list(told):
            self.changed.clear()
            await self.changed.wait()

    async def begin(self, world: World) -> None:
        self.registration = await register(
            world.metadata,
            PATH,
            b"here",
            clock=world.clock,
            tasks=world.tasks,
            wait_seconds=WAIT_SECONDS,
            on_registered=lambda: self.note("registered"),
            on_lost=lambda: self.note("lost"),
        )


def owner(sim: Simulation) -> int | None:
    node = sim.metadata.tree.get(PATH)
    return None if node is None else node.session_id


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_made_again_in_each_new_session(seed: int) -> None:
    sim = Simulation(seed)
    life = Life()

    async def scenario() -> None:
        node = sim.node("a")
        await node.run(life.begin)
        for round_number in range(3):
            assert node.world is not None
            assert owner(sim) == node.world.metadata.session_id
            if round_number == 1:
                sim.network.partition(["a"], ["metadata"])
                await life.until("lost")
                sim.network.heal_all()
            else:
                sim.metadata.expire(node.world.metadata.session_id)
            await life.until("lost", "registered")
            life.told.clear()
        assert life.registration is not None
        await node.run(lambda world: life.registration.close())  # type: ignore[union-attr]
        assert owner(sim) is None

    sim.run(scenario, 600)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_waits_for_the_session_of_its_own_past(seed: int) -> None:
    sim = Simulation(seed)
    before, after = Life(), Life()

    async def scenario() -> None:
        node = sim.node("a")
        await node.run(before.begin)
        first = owner(sim)
        node.crash()
        node.start()
        await node.run(after.begin)
        assert after.told == ["registered"]
        assert owner(sim) not in (None, first)

    sim.run(scenario, 600)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_living_twin_is_left_alone(seed: int) -> None:
    sim = Simulation(seed)
    first, second = Life(), Life()

    async def scenario() -> None:
        one, two = sim.node("a"), sim.node("b")
        await one.run(first.begin)
        holder = owner(sim)
        with pytest.raises(AlreadyExists, match="identity"):
            await two.run(second.begin)
        assert second.told == []
        assert owner(sim) == holder

    sim.run(scenario, 600)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_somebody_deleted_is_made_again(seed: int) -> None:
    sim = Simulation(seed)
    life = Life()

    async def scenario() -> None:
        node, operator = sim.node("a"), sim.node("b")
        await node.run(life.begin)
        for _ in range(3):
            await operator.run(lambda world: world.metadata.commit([Op("delete", PATH)]))
            while owner(sim) is None:  # noqa: ASYNC110  # virtual time: polling costs nothing
                await asyncio.sleep(0.01)
        assert life.told == ["registered"]

    sim.run(scenario, 600)


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_answers_do_no_harm(seed: int) -> None:
    sim = Simulation(seed)
    life = Life()

    async def scenario() -> None:
        sim.metadata.lost_answer_chance = 0.5
        node = sim.node("a")
        await node.run(life.begin)
        assert node.world is not None
        assert life.told[-1] == "registered"
        sim.metadata.heal()

    sim.run(scenario, 600)
