"""The timer: earliest time first, nothing while nothing is due, and no spinning on a time that is past."""

from __future__ import annotations

from pulsarish.client.alarm import Alarm
from tests.support.client_world import Cast, play


def test_rings_at_the_earliest_time() -> None:
    async def scenario(cast: Cast) -> None:
        clock = cast.world.clock
        rung: list[float] = []
        began = clock.monotonic()
        alarm = Alarm(clock, cast.world.tasks, "test", lambda: rung.append(clock.monotonic() - began), slice_seconds=0.1)
        alarm.set(began + 5)
        await cast.sleep(1)
        alarm.set(began + 2)
        alarm.set(None)
        alarm.set(began + 9)
        await cast.sleep(20)
        assert len(rung) == 1, "one alarm has one time, the earliest that was set"
        assert 2 <= rung[0] < 2.2
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

        alarm = Alarm(cast.world.clock, cast.world.tasks, "test", ring)
        alarm.set(0)
        await cast.sleep(0.1)
        alarm.cancel()
        assert 10 < len(rung) <= 110

    play(scenario)
