"""What living processes hold on to when all is well is found in each process by itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.cluster import SimCluster, draw_cluster
from pulsarish.sim.cluster.liveness import PATIENCE_SECONDS, check_let_go, left_over
from pulsarish.sim.world.world import Simulation


class Quiet:
    """A cluster that nobody uses."""

    def __init__(self) -> None:
        self.sim = Simulation(1)
        self.cluster = SimCluster(
            self.sim, replace(draw_cluster(random.Random(1)), bookies=3, brokers=1, repair=True)
        )

    def after(
        self, spoil: Callable[[], object], seconds: float = PATIENCE_SECONDS + 1
    ) -> list[str]:
        """What is found so long after something was spoilt, and all was said to be well."""

        async def scenario() -> list[str]:
            self.cluster.boot()
            await asyncio.sleep(5.0)
            spoil()
            since = self.sim.loop.time()
            await asyncio.sleep(seconds)
            return list(left_over(self.cluster, since))

        return self.sim.run(scenario)

    def spawn(self, node: str, name: str) -> None:
        world = self.sim.nodes[node].world
        assert world is not None
        _ = world.tasks.spawn(_hang(world), name=name)


async def _hang(_world: World) -> None:
    await asyncio.Event().wait()


def test_a_cluster_that_nobody_uses_holds_on_to_nothing() -> None:
    assert Quiet().after(lambda: None) == []


def test_a_task_that_hangs_is_named_with_its_process_and_its_place() -> None:
    quiet = Quiet()
    (found,) = quiet.after(lambda: quiet.spawn("broker0", "recovery-7"))
    assert "broker0#1" in found
    assert "recovery-7" in found
    assert "_hang" in found


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("recovery-7", PATIENCE_SECONDS - 1), ("election of somebody", PATIENCE_SECONDS + 1)],
)
def test_a_task_may_take_its_time_or_last_as_long_as_its_process(name: str, seconds: float) -> None:
    quiet = Quiet()
    assert quiet.after(lambda: quiet.spawn("broker0", name), seconds) == []


def test_a_handler_outlives_its_connection_for_a_moment_only() -> None:
    quiet = Quiet()
    (found,) = quiet.after(lambda: quiet.spawn("bookie1", "stream-1000000"))
    assert "stream-1000000" in found


def test_bytes_that_were_never_given_back_are_found() -> None:
    quiet = Quiet()

    def spoil() -> None:
        (_, bookie), *_ = quiet.cluster.bookies_up()
        bookie.service._all_adds.use(100)

    assert quiet.after(spoil) == ["bookie0 owes answers to 100 bytes of adds"]


def test_a_node_that_is_down_and_a_recovery_under_way_are_found() -> None:
    quiet = Quiet()

    def spoil() -> None:
        quiet.sim.nodes["bookie2"].crash()
        (_, broker), *_ = quiet.cluster.brokers_up()
        broker._ledgers._recoveries[7] = quiet.sim.loop.create_future()

    assert quiet.after(spoil) == ["bookie2 is down", "broker0 still recovers ledgers 7"]


def test_what_is_let_go_in_time_is_not_reported() -> None:
    quiet = Quiet()
    reported: list[str] = []

    async def scenario() -> None:
        quiet.cluster.boot()
        await asyncio.sleep(5.0)
        (_, bookie), *_ = quiet.cluster.bookies_up()
        bookie.service._all_adds.use(100)
        quiet.sim.at(3.0, lambda: bookie.service._all_adds.release(100))
        await check_let_go(
            quiet.cluster, quiet.sim.loop.time(), lambda _name, what: reported.append(what)
        )

    quiet.sim.run(scenario)
    assert reported == []
