"""What may end a process is one closed list, and each of it is used where it says.

Other tasks for life start again.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsarish.runtime.containment import (
    RESTART_SECONDS_MAX,
    Critical,
    ScopeKind,
    run_in_background,
)
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.liveness import STANDING
from pulsarish.sim.world.world import Simulation

PACKAGE = Path(__file__).resolve().parents[3] / "pulsarish"

USERS = {
    Critical.MAIN: {"sim/world/nodes.py", "sim/mutants/containment.py"},
    Critical.JOURNAL: {"bookie/journal/journal.py"},
    Critical.CHECKPOINT: {
        "bookie/bookie.py",
        "bookie/volume_addition.py",
        "bookie/volume_homes.py",
        "bookie/volume_removal.py",
    },
    Critical.GARBAGE: {"bookie/bookie.py"},
    Critical.SPACE: {"bookie/bookie.py"},
    Critical.REGISTRATION: {"bookie/bookie.py", "broker/ownership/registry.py"},
    Critical.METADATA_SESSION: {"metadata/zookeeper/store.py"},
    Critical.METADATA_COMMIT: {"metadata/tree/engine.py"},
    Critical.METADATA_EXPIRY: {"metadata/daemon/daemon.py"},
    Critical.LEDGER_TIMEOUTS: {"ledger/bookie_pool.py"},
    Critical.OWNERSHIP: {"broker/ownership/peer_pings.py"},
    Critical.MAINTENANCE: {"broker/topics/maintenance.py"},
}
"""Whoever adds to this makes one more thing end a process: the reason stands beside the member."""
PASS_ON = {"bookie/volume.py"}
"""Pass on what their callers name."""


def _spawns() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="spawn")):
                    yield str(path.relative_to(PACKAGE)), node


def test_only_the_named_places_end_a_process() -> None:
    found: dict[Critical, set[str]] = {member: set() for member in Critical}
    for name, call in _spawns():
        for keyword in call.keywords:
            match keyword:
                case ast.keyword(
                    arg="critical", value=ast.Attribute(value=ast.Name(id="Critical"), attr=member)
                ):
                    found[Critical[member]].add(name)
    assert found == USERS


def test_nobody_computes_what_is_critical() -> None:
    """A member stands where the task is spawned; a scope passes on what it was given, which is
    nothing.
    """
    for name, call in _spawns():
        for keyword in call.keywords:
            if keyword.arg == "critical":
                is_passed_on = name in PASS_ON and ast.unparse(keyword.value) == "critical"
                is_named = isinstance(keyword.value, ast.Attribute)
                assert is_named or is_passed_on, f"{name}, line {call.lineno}"


def test_each_has_its_reason() -> None:
    assert len({member.value for member in Critical}) == len(Critical)
    assert all(len(member.value.split()) > 2 for member in Critical)


class Defect(Exception):
    """What nobody has thought of."""


class Loop:
    """Raises after each of these seconds, and then returns; remembers when it was started."""

    def __init__(self, world: World, *seconds: float) -> None:
        self.starts: list[float] = []
        self._world = world
        self._seconds = list(seconds)

    async def run(self) -> None:
        self.starts.append(self._world.clock.monotonic())
        if self._seconds:
            await self._world.clock.sleep(self._seconds.pop(0))
            raise Defect

    def waits(self, *seconds: float) -> list[float]:
        """Between each failure and the start after it."""
        return [
            round(self.starts[number + 1] - start - ran)
            for number, (start, ran) in enumerate(zip(self.starts, seconds, strict=False))
        ]


@pytest.mark.parametrize(
    ("seconds", "waits"),
    [
        ((0.0,), [1]),
        ((0.0,) * 11, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
        ((5.0, 5.0, 2 * RESTART_SECONDS_MAX, 5.0), [1, 2, 1, 2]),
    ],
    ids=["one failure", "many failures", "a failure long after the others"],
)
def test_a_background_task_that_fails_starts_again_after_a_wait(
    seconds: tuple[float, ...], waits: list[int]
) -> None:
    sim = Simulation(1)
    node = sim.node("n")
    node.expect(Defect)

    async def work(world: World) -> None:
        loop = Loop(world, *seconds)
        await run_in_background(world.tasks, world.clock, "loop", loop.run)
        assert loop.waits(*seconds) == waits
        assert world.tasks.contained_failures[ScopeKind.BACKGROUND] == len(seconds)

    sim.run(lambda: node.run(work), 10_000)


def test_a_background_task_that_is_cancelled_does_not_start_again() -> None:
    sim = Simulation(1)
    node = sim.node("n")

    async def work(world: World) -> None:
        loop = Loop(world, 60.0)
        task = run_in_background(world.tasks, world.clock, "loop", loop.run)
        await world.clock.sleep(1.0)
        task.cancel()
        await asyncio.wait([task])
        await world.clock.sleep(10.0)
        assert len(loop.starts) == 1

    sim.run(lambda: node.run(work), 100)


def test_every_task_for_life_is_critical_or_starts_again() -> None:
    for name, call in _spawns():
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        task = keywords.get("name")
        if (
            not name.startswith("sim/")
            and isinstance(task, ast.Constant)
            and str(task.value).startswith(STANDING)
        ):
            assert "critical" in keywords, f"{name}, line {call.lineno}: use run_in_background"
