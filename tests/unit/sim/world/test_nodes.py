"""Life and death of nodes: what a crash, a pause and a restart do to the code that runs there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pulsarish.model.errors import MetadataUnavailable
from pulsarish.runtime.containment import Critical
from pulsarish.runtime.seams import World
from pulsarish.sim.world.disk import DiskFault
from pulsarish.sim.world.nodes import NodeDied
from pulsarish.sim.world.world import Simulation, SimulationFailed


def simulate(scenario: Callable[[Simulation], Coroutine[Any, Any, Any]], seed: int = 0) -> Any:
    sim = Simulation(seed)
    return sim.run(lambda: scenario(sim), 10_000)


def test_a_crash_runs_no_cleanup() -> None:
    seen: list[str] = []

    async def main(world: World) -> None:
        try:
            while True:
                seen.append("step")
                await world.clock.sleep(1)
        except BaseException:
            seen.append("except")
            raise
        finally:
            seen.append("finally")

    async def scenario(sim: Simulation) -> None:
        node = sim.node("a", main)
        await asyncio.sleep(2.5)
        node.crash()
        await asyncio.sleep(10)
        assert seen == ["step"] * 3

    simulate(scenario)


def test_a_restart_runs_main_again_as_another_process() -> None:
    seen: list[float] = []

    async def main(world: World) -> None:
        seen.append(world.random.random())
        await world.clock.sleep(1_000)

    async def scenario(sim: Simulation) -> None:
        node = sim.node("a", main)
        await asyncio.sleep(1)
        old = node.process
        node.restart()
        await asyncio.sleep(1)
        assert node.incarnation == 2
        assert node.process is not old

    simulate(scenario)
    assert len(set(seen)) == 2


def test_a_paused_node_stands_still_and_goes_on() -> None:
    async def main(world: World) -> None:
        while True:
            seen.append(world.clock.monotonic())
            await world.clock.sleep(1)

    seen: list[float] = []

    async def scenario(sim: Simulation) -> None:
        node = sim.node("a", main)
        await asyncio.sleep(2.5)
        node.pause()
        await asyncio.sleep(100)
        assert len(seen) == 3
        node.resume()
        await asyncio.sleep(2.5)
        assert len(seen) == 6
        # The timer that fell into the pause fires at its end; time itself did not stop.
        assert seen[3] - seen[2] > 90

    simulate(scenario)


def test_the_clock_of_a_suspended_machine_stands_still_and_its_calendar_does_not() -> None:
    async def main(world: World) -> None:
        while True:
            seen.append((world.clock.monotonic(), world.clock.wall_ms()))
            await world.clock.sleep(1)

    seen: list[tuple[float, int]] = []

    async def scenario(sim: Simulation) -> None:
        node = sim.node("a", main)
        await asyncio.sleep(2.5)
        node.suspend()
        await asyncio.sleep(100)
        node.resume()
        await asyncio.sleep(0.4)
        assert len(seen) == 3, "the timer has as long to go as it had"
        await asyncio.sleep(2.2)
        assert len(seen) == 6
        assert seen[3][0] - seen[2][0] == pytest.approx(1.0, abs=0.01)
        assert seen[3][1] - seen[2][1] > 100_000

    simulate(scenario)


def test_a_suspended_machine_that_loses_power_has_a_clock_that_runs() -> None:
    async def scenario(sim: Simulation) -> None:
        node = sim.node("a")
        node.suspend()
        await asyncio.sleep(10)
        node.crash()
        before = node.clock.monotonic()
        await asyncio.sleep(1)
        assert node.clock.monotonic() - before == pytest.approx(1.0, abs=0.01)

    simulate(scenario)


def test_a_paused_node_can_be_killed() -> None:
    async def main(world: World) -> None:
        await world.clock.sleep(1)
        raise AssertionError("must not be reached")

    async def scenario(sim: Simulation) -> None:
        node = sim.node("a", main)
        await asyncio.sleep(0.5)
        node.pause()
        await asyncio.sleep(5)
        node.crash()
        node.resume()
        await asyncio.sleep(5)

    simulate(scenario)


async def _ends_itself(world: World) -> None:
    await world.clock.sleep(1)
    raise OSError("the disk is gone")


def test_a_critical_task_that_dies_ends_the_node_and_the_seed() -> None:
    async def scenario(sim: Simulation) -> None:
        node = sim.node("a", _ends_itself)
        await asyncio.sleep(2)
        assert not node.alive

    with pytest.raises(SimulationFailed, match="critical task a-main died"):
        simulate(scenario)


def test_an_expected_end_is_no_failure_and_the_supervisor_restarts() -> None:
    async def scenario(sim: Simulation) -> None:
        node = sim.node("a", _ends_itself)
        node.expect(OSError)
        node.restart_after_seconds = 2
        await asyncio.sleep(5)
        assert node.incarnation == 2
        assert len(node.ends) == 2

    simulate(scenario)


@pytest.mark.parametrize("error", [ConnectionResetError("the world"), KeyError("a mistake")])
def test_a_task_that_is_not_critical_leaves_the_node_up_and_fails_the_seed(
    error: Exception,
) -> None:
    async def dies() -> None:
        raise error

    async def main(world: World) -> None:
        _ = world.tasks.spawn(dies(), name="lesser")
        await world.clock.sleep(1_000)

    async def scenario(sim: Simulation) -> None:
        node = sim.node("a", main)
        await asyncio.sleep(1)
        assert node.alive

    with pytest.raises(SimulationFailed, match="lesser"):
        simulate(scenario)


_FAULT = DiskFault(5, "a: cannot sync /data", "/data")


@pytest.mark.parametrize(
    ("task", "error", "excused"),
    [
        ("a-main", MetadataUnavailable("it is away"), True),
        ("a-main", _FAULT, True),
        ("a-main", OSError("not injected"), False),
        ("a-main", KeyError("a mistake"), False),
        ("journal", _FAULT, True),
        ("journal", OSError("not injected"), False),
        ("journal", MetadataUnavailable("it is away"), False),
        ("judge", MetadataUnavailable("it is away"), False),
        ("judge", _FAULT, False),
    ],
)
def test_an_end_is_excused_by_the_name_of_the_task_and_by_its_cause(
    task: str, error: Exception, excused: bool
) -> None:
    async def dies() -> None:
        raise error

    async def main(world: World) -> None:
        if task == "a-main":
            raise error
        _ = world.tasks.spawn(dies(), name=task, critical=Critical.JOURNAL)
        await world.clock.sleep(1_000)

    async def scenario(sim: Simulation) -> None:
        node = sim.node("a", main)
        node.expect_at_start(MetadataUnavailable)
        node.disk_tasks = ("journal",)
        await asyncio.sleep(1)
        assert not node.alive

    if excused:
        simulate(scenario)
    else:
        with pytest.raises(SimulationFailed, match=task):
            simulate(scenario)


def test_run_answers_from_inside_the_node_and_fails_when_it_dies() -> None:
    async def work(world: World) -> int:
        await world.clock.sleep(1)
        return 7

    async def scenario(sim: Simulation) -> None:
        node = sim.node("a")
        assert await node.run(work) == 7
        sim.at(0.5, node.crash)
        with pytest.raises(NodeDied):
            await node.run(work)
        with pytest.raises(NodeDied):
            await node.run(work)

    simulate(scenario)


def test_clocks_differ_and_wall_clocks_jump() -> None:
    async def scenario(sim: Simulation) -> None:
        a, b = sim.node("a"), sim.node("b")
        a.clock.rate, b.clock.rate = 1.1, 0.9
        started = a.clock.monotonic(), b.clock.monotonic()
        await asyncio.sleep(100)
        assert a.clock.monotonic() - started[0] == pytest.approx(110, abs=0.1)
        assert b.clock.monotonic() - started[1] == pytest.approx(90, abs=0.1)
        before = a.clock.wall_ms(), a.clock.monotonic()
        a.clock.wall_offset_ms -= 3_600_000
        assert a.clock.wall_ms() < before[0]
        assert a.clock.monotonic() == before[1]

    simulate(scenario)


def test_a_sleep_lasts_by_the_node_s_own_clock() -> None:
    async def work(world: World) -> float:
        started = world.clock.monotonic()
        await world.clock.sleep(100)
        return world.clock.monotonic() - started

    async def scenario(sim: Simulation) -> None:
        node = sim.node("a")
        node.clock.rate = 1.25
        assert await node.run(work) == pytest.approx(100, abs=0.01)
        assert sim.loop.time() == pytest.approx(80, abs=0.1)

    simulate(scenario)


def test_cleanup_at_the_end_of_a_run_touches_nothing() -> None:
    tried: list[str] = []

    async def main(world: World) -> None:
        try:
            await world.clock.sleep(1_000)
        finally:
            tried.append("spawn")
            with pytest.raises(NodeDied):
                _ = world.tasks.spawn(main(world), name="late")
            tried.append("write")
            await world.files.replace("/d/f", b"late")
            tried.append("written")

    async def scenario(sim: Simulation) -> Simulation:
        sim.node("a", main)
        await asyncio.sleep(1)
        return sim

    sim = simulate(scenario)
    assert tried == ["spawn", "write"]
    assert "/d/f" not in sim.nodes["a"].disk.names
