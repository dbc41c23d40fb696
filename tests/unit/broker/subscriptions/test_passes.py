"""Passes over the subscriptions of a topic: when the next one begins."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsarish.broker.subscriptions.subscriptions import TopicSubscriptions


class Clock:
    """A clock, the tasks of a process and a subscription that takes its time."""

    def __init__(self, pass_seconds: float) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self.wakes = 0
        self._pass_seconds = pass_seconds
        self.dispatch_loop = self

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def spawn(self, work: Any, **_named: object) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)

    def waits_at(self, _position: object) -> bool:
        self.now += self._pass_seconds
        return False

    def wake(self) -> None:
        self.wakes += 1


@pytest.mark.parametrize(
    ("pass_seconds", "pauses"), [(0.0, []), (0.1, [pytest.approx(0.2)]), (60.0, [1.0])]
)
def test_a_pause_is_in_proportion_to_the_pass_and_never_long(
    pass_seconds: float, pauses: list[float]
) -> None:
    # Also when the process was stopped in the middle of a pass, and that took a minute.
    clock = Clock(pass_seconds)
    world = SimpleNamespace(clock=clock, tasks=clock)
    topic = SimpleNamespace(name="t", scope=None, log=None)
    passes = TopicSubscriptions(
        cast("Any", topic), cast("Any", world), cast("Any", None), cast("Any", None)
    )
    passes.by_name["s"] = cast("Any", clock)

    async def append_twice() -> None:
        for entry in range(2):
            passes.appended(1, entry)
            for _ in range(5):
                await asyncio.sleep(0)
            assert clock.wakes == entry + 1

    asyncio.run(append_twice())
    assert clock.slept == pauses


def test_a_topic_without_subscriptions_has_no_passes() -> None:
    clock = Clock(0.0)
    world = SimpleNamespace(clock=clock, tasks=clock)
    passes = TopicSubscriptions(
        cast("Any", None), cast("Any", world), cast("Any", None), cast("Any", None)
    )
    passes.appended(1, 0)  # outside of an event loop, so it could schedule nothing
    passes.by_name["s"] = cast("Any", clock)
    with pytest.raises(RuntimeError, match="no running event loop"):
        passes.appended(1, 1)
