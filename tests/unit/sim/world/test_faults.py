"""The plan of faults: drawn by the seed, swarm by swarm, and healed at its end."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest

from pulsarish.runtime.seams import Stream, StreamBroken, World
from pulsarish.sim.world.faults import (
    ALL_KINDS,
    DESTRUCTIVE,
    HARSH_KINDS,
    Fault,
    FaultPlan,
    draw_faults,
    draw_harsh,
)
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.world import Simulation

NODES = ["a", "b", "c"]
PEERS = [*NODES, METADATA]


def draw(seed: int, kinds: tuple[str, ...] = ALL_KINDS) -> list[Fault]:
    return draw_faults(random.Random(seed), NODES, PEERS, 60, kinds)


def test_a_seed_draws_one_plan_and_knows_some_kinds_only() -> None:
    assert draw(1) == draw(1)
    kinds = [frozenset(fault.kind for fault in draw(seed)) for seed in range(200)]
    assert len(set(kinds)) > 100
    assert set().union(*kinds) == set(ALL_KINDS)
    assert max(len(some) for some in kinds) < len(ALL_KINDS)


@pytest.mark.parametrize("seed", range(50))
def test_a_plan_is_in_order_and_within_its_time(seed: int) -> None:
    faults = draw(seed)
    assert faults == sorted(faults, key=lambda fault: fault.at_seconds)
    for fault in faults:
        assert 0 < fault.at_seconds < 60
        assert fault.at_seconds + fault.lasts_seconds <= 60 + 1e-9
        assert fault.node in NODES
        assert fault.peer in PEERS
        assert fault.peer != fault.node
    assert len({fault.node for fault in faults if fault.kind in DESTRUCTIVE}) <= 1


def test_only_the_asked_kinds_come() -> None:
    assert {fault.kind for seed in range(20) for fault in draw(seed, ("crash", "cut"))} == {
        "crash",
        "cut",
    }


def test_harsh_faults_are_added_and_leave_the_others_where_they_were() -> None:
    def plan(seed: int, harsh: tuple[str, ...]) -> list[Fault]:
        async def scenario() -> list[Fault]:
            for name in NODES:
                sim.node(name)
            return FaultPlan(sim, NODES, 60, expendable=["c"], harsh=harsh).faults

        sim = Simulation(seed)
        return sim.run(scenario)

    met = set()
    for seed in range(20):
        both = plan(seed, HARSH_KINDS)
        assert [fault for fault in both if fault.kind in ALL_KINDS] == plan(seed, ())
        assert both == sorted(both, key=lambda fault: fault.at_seconds)
        met |= {fault.kind for fault in both} - set(ALL_KINDS)
    assert met == set(HARSH_KINDS)


def test_writes_fail_on_disks_that_are_used() -> None:
    faults = [fault for seed in range(20) for fault in draw_harsh(seed, NODES, 60, ["c"])]
    assert {fault.node for fault in faults if fault.kind in ("fail_writes", "short_writes")} == {
        "c"
    }
    assert {fault.node for fault in faults if fault.kind == "suspend"} == set(NODES)


def test_all_that_destroys_data_meets_the_same_machine() -> None:
    async def scenario(seed: int) -> list[Fault]:
        for name in NODES:
            sim.node(name)
        return FaultPlan(sim, NODES, 60, expendable=["b", "c"], harsh=HARSH_KINDS).faults

    both = 0
    for seed in range(60):
        sim = Simulation(seed)
        destroyed = {
            fault.kind: fault.node
            for fault in sim.run(partial(scenario, seed))
            if fault.kind in DESTRUCTIVE
        }
        assert len(set(destroyed.values())) <= 1
        both += "rot" in destroyed and "rot_index" in destroyed
    assert both


async def _work(world: World) -> None:
    file = await world.files.open(f"/d/{world.random.random()}", lane="x", create=True)
    offset = 0
    while True:
        await file.write(offset, [bytes(3000)], sync=True)
        offset += 3000
        await world.clock.sleep(0.1)


@pytest.mark.parametrize("kind", [*ALL_KINDS, *HARSH_KINDS])
def test_every_kind_begins_and_is_healed(kind: str) -> None:
    sim = Simulation(7)

    async def scenario() -> None:
        for name in NODES:
            sim.node(name, _work)
        faults = [
            Fault(1 + at, kind, name, METADATA, 3, amount)
            for at, (name, amount) in enumerate(zip(NODES, (0.1, 0.5, 0.9), strict=True))
        ]
        FaultPlan(sim, NODES, 10, faults=faults).start()
        await asyncio.sleep(25)
        for name in NODES:
            node = sim.nodes[name]
            assert node.alive
            assert not node.paused
            assert node.session_id
            before = node.disk.used_bytes()
            await asyncio.sleep(5)
            assert node.disk.used_bytes() > before, "it works again"

    sim.run(scenario, 100)
    assert f"fault {kind} a" in sim.story()


def test_what_destroys_data_meets_one_expendable_machine() -> None:
    for seed in range(100):
        faults = draw_faults(random.Random(seed), NODES, PEERS, 60, ALL_KINDS, "b")
        assert {fault.node for fault in faults if fault.kind in DESTRUCTIVE} <= {"b"}


@pytest.mark.parametrize("amount", [0.3, 0.7])
def test_a_wiped_machine_keeps_nothing_or_what_says_who_it_is(amount: float) -> None:
    sim = Simulation(7)

    async def scenario() -> None:
        node = sim.node("a")
        sim.node("b")

        async def fill(world: World) -> None:
            await world.files.replace("/data/cookie", b"me")
            await world.files.replace("/data/other", b"data")
            await (await world.open_index("/data/index")).write([(b"k", b"v")], sync=True)

        await node.run(fill)
        FaultPlan(sim, ["a"], 10, faults=[Fault(1, "wipe", "a", "b", 1, amount)]).start()
        await asyncio.sleep(5)
        assert node.incarnation == 2
        assert list(node.disk.names) == ([] if amount < 0.5 else ["/data/cookie"])
        assert not node.disk.indexes
        assert node.disk.wipes_count == (1 if amount < 0.5 else 0)

    sim.run(scenario, 100)


def test_links_are_clogged_one_after_the_other_and_all_open_again() -> None:
    sim = Simulation(7)

    async def scenario() -> None:
        for name in NODES:
            sim.node(name)
        FaultPlan(sim, NODES, 20, faults=[Fault(1, "swizzle", "a", "b", 10, 0.9)]).start()
        counts = []
        for _ in range(15):
            await asyncio.sleep(1)
            counts.append(len(sim.network._states))
        assert max(counts) > 2
        assert len(set(counts)) > 3, "one by one"
        assert counts[-1] == 0

    sim.run(scenario, 100)


def test_a_reset_breaks_one_connection_of_the_node_and_no_other() -> None:
    sim = Simulation(7)

    async def scenario() -> None:
        async def hear(stream: Stream) -> None:
            await stream.receive()

        async def serve(world: World) -> None:
            await world.connections.serve("a:1", {"m": hear}, {})

        async def connect(world: World) -> list[Stream]:
            return [await world.connections.open("a:1", "m") for _ in range(3)]

        await sim.node("a").run(serve)
        client = sim.node("b")
        streams = await client.run(connect)
        sim.network.reset("a", 0.5)
        sim.network.reset("c", 0.5)
        await asyncio.sleep(1)

        async def alive(world: World) -> int:
            count = 0
            for stream in streams:
                try:
                    await stream.send([b"x"])
                    count += 1
                except StreamBroken:
                    pass
            return count

        assert await client.run(alive) == 2

    sim.run(scenario, 100)
