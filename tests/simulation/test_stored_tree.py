"""A metadata tree on a simulated disk that loses power and whose log rots: everything acknowledged
is there, or it is refused.
"""

from __future__ import annotations

import random

import pytest

from pulsarish.metadata.connect import connect
from pulsarish.model.errors import CorruptData
from pulsarish.runtime.seams import MetadataStore, Op, World
from pulsarish.sim.world.nodes import NodeDied
from pulsarish.sim.world.world import Simulation

URL = "embedded:/a/metadata"


async def opened(world: World) -> MetadataStore:
    return await connect(
        URL,
        clock=world.clock,
        tasks=world.tasks,
        rng=world.random,
        files=world.files,
        open_index=world.open_index,
    )


async def play(sim: Simulation, *, rot: bool) -> str:
    """One seed: "whole" or "refused". Fails when a node that was acknowledged is silently gone."""
    rng = random.Random(sim.seed)
    node = sim.node("a")
    acknowledged: list[str] = []

    async def work(world: World) -> None:
        store = await opened(world)
        while True:
            paths = [f"/{rng.getrandbits(40):010x}" for _ in range(rng.randrange(1, 4))]
            await store.commit([Op("create", path, b"x") for path in paths])
            acknowledged.extend(paths)

    async def look(world: World) -> None:
        store = await opened(world)
        missing = [
            path
            for path, node in zip(acknowledged, await store.get_many(acknowledged), strict=True)
            if node is None
        ]
        assert not missing, f"{len(missing)} of {len(acknowledged)} acknowledged nodes are gone"
        await store.close()

    for _ in range(3):
        sim.at(rng.uniform(0.05, 1.0), node.crash)
        with pytest.raises(NodeDied):
            await node.run(work)
        if rot:
            node.disk.rot_index(log=True)
        node.start()
        try:
            await node.run(look)
        except CorruptData as error:
            return "refused" if "pulsarish metadata cut /a/metadata" in str(error) else str(error)
        node.crash()
        node.start()
    assert len(acknowledged) > 10
    return "whole"


def outcomes(*, rot: bool) -> list[str]:
    found: list[str] = []

    for seed in range(20):
        sim = Simulation(seed)

        async def scenario(sim: Simulation = sim) -> None:
            found.append(await play(sim, rot=rot))

        sim.run(scenario, 60)
    return found


def test_a_power_cut_loses_nothing_and_is_no_damage() -> None:
    assert set(outcomes(rot=False)) == {"whole"}


def test_a_rotten_log_is_refused_or_had_nothing_that_was_acknowledged() -> None:
    found = outcomes(rot=True)
    assert set(found) <= {"refused", "whole"}
    assert found.count("refused") > 10
