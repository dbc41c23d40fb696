"""The timer: earliest time first, nothing while nothing is due, and no spinning on a time that is
past.
"""

from __future__ import annotations

import asyncio

from pulsarish.client.connection.timers import Timers
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.tasks import Supervisor
from tests.support.client_world import Cast, play


def test_rings_at_the_earliest_time() -> None:
    async def scenario(cast: Cast) -> None:
        clock = cast.world.clock
        rung: list[float] = []
        began = clock.monotonic()
        alarm = Timers(clock, cast.world.tasks).alarm(
            lambda: rung.append(clock.monotonic() - began)
        )
        alarm.set(began + 5)
        await cast.sleep(1)
        alarm.set(began + 2)
        alarm.set(None)
        alarm.set(began + 9)
        await cast.sleep(20)
        assert len(rung) == 1, "one alarm has one time, the earliest that was set"
        assert 2 <= rung[0] < 2.01
        alarm.set(clock.monotonic() + 1)
        alarm.cancel()
        await cast.sleep(5)
        assert len(rung) == 1

    play(scenario)


def test_does_not_spin_on_a_time_that_is_past() -> None:
    async def scenario(cast: Cast) -> None:
        rung: list[int] = []

        def ring() -> None:
            rung.append(1)
            alarm.set(0)

        alarm = Timers(cast.world.clock, cast.world.tasks).alarm(ring)
        alarm.set(0)
        await cast.sleep(0.1)
        alarm.cancel()
        assert 10 < len(rung) <= 110

    play(scenario)


def test_many_alarms_ring_in_the_order_of_their_times_however_they_are_set() -> None:
    async def scenario(cast: Cast) -> None:
        clock = cast.world.clock
        alarms = Timers(clock, cast.world.tasks)
        began = clock.monotonic()
        rung: list[tuple[int, float]] = []
        made = [
            alarms.alarm(lambda number=number: rung.append((number, clock.monotonic() - began)))
            for number in range(300)
        ]  # type: ignore[misc]
        for number, alarm in enumerate(made):
            alarm.set(began + 500 + number)
        await cast.sleep(1)
        for number, alarm in enumerate(made):
            alarm.set(began + 2 + (number * 7 % 300) / 100)
            if number % 3 == 0:
                alarm.cancel()
        await cast.sleep(1000)
        assert [number for number, _ in rung] == sorted(
            [n for n in range(300) if n % 3], key=lambda n: n * 7 % 300
        )
        assert all(abs(at - 2 - (number * 7 % 300) / 100) < 0.01 for number, at in rung)

    play(scenario, max_virtual_seconds=2000)


def test_one_that_raises_does_not_silence_the_others() -> None:
    async def scenario() -> None:
        clock, tasks = SystemClock(), Supervisor()
        alarms = Timers(clock, tasks)
        rung = asyncio.Event()

        def raises() -> None:
            raise ValueError("the test's own")

        alarms.alarm(raises).set(clock.monotonic() + 0.001)
        alarms.alarm(rung.set).set(clock.monotonic() + 0.002)
        async with asyncio.timeout(30):
            await rung.wait()

    asyncio.run(scenario())


def test_whoever_stops_the_tasks_is_not_kept_by_what_is_due_later() -> None:
    async def scenario() -> None:
        clock, tasks = SystemClock(), Supervisor()
        alarm = Timers(clock, tasks).alarm(lambda: None)
        alarm.set(clock.monotonic() + 1_000)
        await asyncio.sleep(0)
        async with asyncio.timeout(30):  # it went on forever
            await tasks.stop()
        assert tasks.running_count == 0

    asyncio.run(scenario())
