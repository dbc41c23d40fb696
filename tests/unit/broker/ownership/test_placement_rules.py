"""A broker follows the node with the rules of placement."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from pulsarish.broker.ownership.placement import ANYWHERE
from pulsarish.broker.ownership.placement_rules import PlacementRules
from pulsarish.broker.policies.placement_store import PlacementStore, without_group
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import PlacementRecord
from pulsarish.model.errors import CorruptData, LimitReached
from pulsarish.runtime.seams import Op, World
from pulsarish.sim.world.world import Simulation


def run(work: Callable[[World, Records], Awaitable[None]]) -> None:
    sim = Simulation(1)
    node = sim.node("broker")

    async def inside(world: World) -> None:
        await work(world, Records(world.metadata, world.clock, world.random))

    async def scenario() -> None:
        await node.run(inside)

    sim.run(scenario, 60.0)


def grouped(namespace: str, group: str) -> Callable[[PlacementRecord], PlacementRecord]:
    return lambda record: msgspec.structs.replace(
        record, groups={**record.groups, namespace: group}
    )


def test_changes_are_followed_and_an_unreadable_node_changes_nothing() -> None:
    async def work(world: World, records: Records) -> None:
        rules, store = PlacementRules(world, records), PlacementStore(records)
        await rules.start()
        assert not rules.current
        await store.change(grouped("a/b", "one"))
        await world.clock.sleep(1.0)
        assert rules.current.group_of("a/b") == "one"
        (node,) = await records.nodes([paths.PLACEMENT])
        assert node is not None
        await records.commit([Op("put", paths.PLACEMENT, b"{", node.version)])
        await world.clock.sleep(1.0)
        assert rules.current.group_of("a/b") == "one", "the former rules stay in force"
        with pytest.raises(CorruptData, match=paths.PLACEMENT):
            await PlacementRules(world, records).start()
        await records.commit([Op("delete", paths.PLACEMENT)])
        await world.clock.sleep(1.0)
        assert not rules.current
        await store.change(grouped("a/b", "two"))
        await world.clock.sleep(1.0)
        assert rules.current.group_of("a/b") == "two"
        rules.stop()

    run(work)


def test_without_a_change_nothing_is_written_and_the_node_has_a_limit() -> None:
    async def work(world: World, records: Records) -> None:
        store = PlacementStore(records)
        await store.remove_namespace("a/b")
        assert await records.nodes([paths.PLACEMENT]) == [None]
        await store.change(grouped("a/b", "g"))
        (before,) = await records.nodes([paths.PLACEMENT])
        await store.change(grouped("a/b", "g"))
        await store.remove_namespace("a/c")
        assert await records.nodes([paths.PLACEMENT]) == [before]
        many = {f"tenant-{number:04d}/{'n' * 100}": "group" for number in range(5_000)}
        with pytest.raises(LimitReached, match="at most 524288"):
            await store.change(lambda record: msgspec.structs.replace(record, groups=many))
        await store.change(lambda record: without_group(record, "a/b"))
        assert (await store.read()).groups == {}
        assert ANYWHERE.group_of("a/b") == ""

    run(work)
