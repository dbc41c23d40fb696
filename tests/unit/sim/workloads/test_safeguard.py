"""The judge of mutants, tried on a toy: a file that must be synced before the answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.safeguard import Mutant, replaced, replacing, run_mutant
from pulsarish.sim.world.world import Simulation


class Toy:
    sync = True

    @staticmethod
    def helper(text: str) -> str:
        return text

    async def save(self, world: World) -> None:
        file = await world.files.open("/d/f", lane="x", create=True)
        await file.write(0, [self.helper("x").encode()], sync=self.sync)


async def _load(world: World) -> bytes:
    file = await world.files.open("/d/f", lane="x")
    return (await file.read([(0, 1)]))[0]


def check(seed: int) -> None:
    """What was saved before a crash is there after it."""
    sim = Simulation(seed)

    async def scenario() -> None:
        node = sim.node("a")
        await node.run(Toy().save)
        node.restart()
        assert await node.run(_load) == b"x"

    sim.run(scenario, 100)


def mutant(
    name: str, make: Callable[[object], object], check: Callable[[int], None] = check
) -> Mutant:
    return Mutant(name, "sync before the answer", (9,), replacing(Toy, name, make), check, seeds=20)


def test_a_missing_safeguard_is_killed_and_put_back() -> None:
    verdict = run_mutant(mutant("sync", lambda was: False))
    assert verdict.killed_at is not None
    assert isinstance(verdict.error, AssertionError)
    assert Toy.sync is True


def test_a_harmless_change_survives() -> None:
    assert run_mutant(mutant("sync", lambda was: True), range(5)).killed_at is None


def test_a_broken_patch_is_no_kill() -> None:
    with pytest.raises(AssertionError, match="patch of helper is broken"):
        run_mutant(mutant("helper", lambda was: None), range(5))


def test_a_broken_patch_is_no_kill_where_several_tasks_fail() -> None:
    def grouped(seed: int) -> None:
        try:
            check(seed)
        except (TypeError, AssertionError) as error:
            raise ExceptionGroup("tasks", [AssertionError("lost"), error]) from None

    with pytest.raises(AssertionError, match="patch of helper is broken"):
        run_mutant(mutant("helper", lambda was: None, grouped), range(5))
    assert str(run_mutant(mutant("sync", lambda was: False, grouped)).error) == "lost"


def test_a_scenario_that_fails_without_the_mutant_proves_nothing() -> None:
    def always(seed: int) -> None:
        raise ValueError("fails anyway")

    with pytest.raises(ValueError, match="fails anyway"):
        run_mutant(mutant("sync", lambda was: False, always), range(5))


def test_a_patch_names_something_of_the_owner_itself() -> None:
    with pytest.raises(KeyError), replaced(Toy, "no_such_thing", lambda was: was):
        pass
