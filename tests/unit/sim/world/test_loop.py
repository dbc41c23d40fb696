"""Virtual time, drawn order, and what the loop refuses or reports."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pulsarish.sim.world.loop import Deadlock, SimLoop, TimeLimit
from pulsarish.sim.world.world import Simulation, SimulationFailed


def run(
    scenario: Callable[[], Coroutine[Any, Any, Any]],
    seed: int = 0,
    max_virtual_seconds: float = 1e6,
) -> Any:
    return Simulation(seed).run(scenario, max_virtual_seconds)


def test_time_jumps_to_the_next_timer() -> None:
    async def scenario() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert run(scenario) == pytest.approx(86_400, abs=0.01)


def test_a_busy_loop_meets_its_time_out() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(0.001):
            for _ in itertools.count():
                await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        run(scenario)


def test_the_order_of_ready_callbacks_is_the_seed_s() -> None:
    def order(seed: int) -> list[int]:
        seen: list[int] = []

        async def note(number: int) -> None:
            seen.append(number)

        async def scenario() -> None:
            await asyncio.gather(*[note(number) for number in range(8)])

        run(scenario, seed)
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) > 5


def test_cancelled_timers_do_not_move_time() -> None:
    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(1000, print).cancel()
        await asyncio.sleep(1)
        return loop.time()

    assert run(scenario) < 2


def test_nothing_left_to_do_is_a_deadlock_that_names_the_waiting() -> None:
    async def scenario() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="scenario: scenario waits in"):
        run(scenario)


def test_the_time_limit_ends_the_run() -> None:
    async def scenario() -> None:
        for _ in itertools.count():
            await asyncio.sleep(1)

    with pytest.raises(TimeLimit):
        run(scenario, max_virtual_seconds=10)


@pytest.mark.parametrize(
    "call",
    [
        lambda loop: loop.run_in_executor(None, print),
        lambda loop: loop.getaddrinfo("localhost", 1),
        lambda loop: loop.create_connection(asyncio.Protocol, "localhost", 1),
        lambda loop: loop.create_server(asyncio.Protocol, "localhost", 1),
        lambda loop: loop.add_signal_handler(2, print),
        lambda loop: loop.subprocess_shell(asyncio.SubprocessProtocol, "true"),
        lambda loop: loop.add_reader(0, print),
    ],
)
def test_the_real_world_is_refused(call: Callable[[SimLoop], object]) -> None:
    loop = SimLoop(random.Random(0))
    with pytest.raises(RuntimeError, match="real world"):
        call(loop)
    loop.close()


def test_a_task_that_dies_unseen_fails_the_seed() -> None:
    async def dies() -> None:
        raise ValueError("unseen")

    async def scenario() -> None:
        task = asyncio.get_running_loop().create_task(dies())
        await asyncio.sleep(1)
        assert task.done()

    with pytest.raises(SimulationFailed, match="unseen"):
        run(scenario)


def test_a_task_s_exception_that_was_taken_does_not() -> None:
    async def dies() -> None:
        raise ValueError("seen")

    async def scenario() -> None:
        task = asyncio.get_running_loop().create_task(dies())
        with contextlib.suppress(ValueError):
            await task

    run(scenario)


def test_a_callback_that_raises_fails_the_seed() -> None:
    def raises() -> None:
        raise ValueError("from a callback")

    async def scenario() -> None:
        asyncio.get_running_loop().call_soon(raises)
        await asyncio.sleep(1)

    with pytest.raises(SimulationFailed, match="from a callback"):
        run(scenario)


def test_an_error_carries_seed_and_story() -> None:
    async def scenario() -> None:
        raise ValueError("the scenario's own")

    with pytest.raises(ValueError, match="the scenario's own") as caught:
        run(scenario, seed=1234)
    assert any("seed 1234" in note for note in caught.value.__notes__)


def test_left_coroutines_are_closed_in_creation_order_before_the_loop() -> None:
    closed: list[int] = []

    async def waits(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(number)

    async def scenario() -> None:
        for number in range(20):
            _ = asyncio.get_running_loop().create_task(waits(number))
        await asyncio.sleep(1)
        assert closed == []

    run(scenario)
    assert closed == list(range(20))


@pytest.mark.filterwarnings("error")
def test_what_a_dropped_task_awaits_is_dropped_with_it() -> None:
    loops: list[object] = []

    async def close() -> None:
        raise AssertionError("nothing runs after the end")

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                loops.append(asyncio.get_running_loop())
                await asyncio.gather(close())
            finally:
                loops.append(asyncio.get_running_loop())
                await asyncio.gather(close())

    sim = Simulation(0)

    async def scenario() -> None:
        _ = sim.loop.create_task(work())
        await asyncio.sleep(1)

    sim.run(scenario)
    gc.collect()
    assert loops == [sim.loop, sim.loop]
