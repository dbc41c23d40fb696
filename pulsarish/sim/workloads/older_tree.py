"""A node that reads and writes while the metadata come back older, again and again: each answer
that it got must be true of the newer tree.

    check_answers(17)

raises ``AssertionError`` when the node gets the answer that a stored path is gone, or that a lost
path is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from functools import partial
from typing import Final

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import AgeRecord, RestoredTree
from pulsarish.metadata.tree_age import TreeAge
from pulsarish.model.errors import MetadataUnavailable
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.seams import SessionState, World
from pulsarish.sim.world.metadata_service import copy_of
from pulsarish.sim.world.world import Simulation

__all__ = ["check_answers"]

_SECONDS: Final = 20.0
_PAUSE_SECONDS: Final = 0.02
_LOOK_SECONDS: Final = 1.0
_TIME_LIMIT_SECONDS: Final = 600.0
_ACCEPTED_CHANCE: Final = 0.5


def check_answers(seed: int) -> None:
    """Run one seed. Raises ``AssertionError``."""
    sim = Simulation(seed)
    sim.metadata.lost_answer_chance = 0.02
    faults = _Faults(sim, random.Random(f"{seed}:older-tree"))

    async def work(world: World) -> None:
        if random.Random(f"{seed}:accepted-tree").random() < _ACCEPTED_CHANCE:
            await _accept(world)
        faults.begin(world)
        await _read_and_write(world)

    sim.run(lambda: sim.node("a").run(work), _TIME_LIMIT_SECONDS)


async def _accept(world: World) -> None:
    """Write what an operator leaves who accepted an older tree: it is accepted, and not confirmed
    yet.
    """
    records = Records(world.metadata, world.clock, world.random)
    _ = await records.update(paths.AGE, AgeRecord, lambda _found: AgeRecord(1))
    _ = await records.update(
        paths.RESTORED,
        RestoredTree,
        lambda _found: RestoredTree("", 0, 0, found_by="an earlier node"),
    )


async def _read_and_write(world: World) -> None:
    records = Records(world.metadata, world.clock, world.random)
    age = TreeAge(records, world.clock)
    guarded = Records(world.metadata, world.clock, world.random, guard=age)
    _ = run_in_background(
        world.tasks, world.clock, "metadata-age", partial(age.watch, _LOOK_SECONDS)
    )
    stored: list[str] = []
    await asyncio.gather(_write(world, guarded, stored), _read(world, guarded, stored))
    age.stop()


async def _write(world: World, records: Records, stored: list[str]) -> None:
    ends = world.clock.monotonic() + _SECONDS
    while world.clock.monotonic() < ends:
        await world.clock.sleep(_PAUSE_SECONDS * world.random.random())
        path = f"/{len(stored)}"
        with contextlib.suppress(MetadataUnavailable):
            await records.ensure(path)
            stored.append(path)


async def _read(world: World, records: Records, stored: list[str]) -> None:
    ends = world.clock.monotonic() + _SECONDS
    while world.clock.monotonic() < ends:
        await world.clock.sleep(_PAUSE_SECONDS * world.random.random())
        asked = world.random.sample(stored, min(len(stored), 2))
        with contextlib.suppress(MetadataUnavailable):
            found = await records.nodes(asked) if asked else []
            for path, node in zip(asked, found, strict=True):
                assert node is not None, (
                    f"{path} was stored, and then the metadata answered that it is not there"
                )


class _Faults:
    """Breaks the connection, and makes the service older than the node has seen it, until an
    operator puts the newer tree back.
    """

    def __init__(self, sim: Simulation, rng: random.Random) -> None:
        self._sim = sim
        self._random = rng

    def begin(self, world: World) -> None:
        at = 0.0
        while at < _SECONDS:
            at += self._random.uniform(0.3, 3.0)
            self._sim.at(
                at, self._break if self._random.random() < 0.5 else lambda: self._remember(world)
            )
        self._sim.at(_SECONDS, self._sim.metadata.heal)

    def _break(self) -> None:
        for session_id in list(self._sim.metadata.tree.sessions):
            self._sim.metadata.break_connection(session_id)

    def _remember(self, world: World) -> None:
        service = self._sim.metadata
        if service.newer is not None:
            return
        older = copy_of(service.tree)

        def go_back() -> None:
            # A node that has seen no newer tree cannot know that this one is older.
            if (
                service.newer is None
                and world.metadata.state is SessionState.CONNECTED
                and world.metadata.zxid > older.zxid
            ):
                service.go_back(older)
                self._sim.at(self._random.uniform(0.01, 2.0), service.bring_back)

        self._sim.at(self._random.uniform(0.05, 1.0), go_back)
