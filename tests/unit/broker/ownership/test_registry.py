"""A broker's registration ends once, whatever the broker was doing when its session was lost (found
by a seed).

Unreadable registrations do not end the registration of any broker.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from pulsarish.broker.ownership.registry import BrokerRegistry
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.runtime.seams import MetadataStore, Op, SessionState, World
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record


async def _nothing() -> None:
    pass


class HeldSync:
    """A store whose next ``sync`` waits until the test releases it."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.hold = False
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def sync(self, path: str) -> None:
        await self._store.sync(path)
        if self.hold:
            self.hold = False
            self.reached.set()
            await self.go_on.wait()


def test_a_session_lost_while_the_registry_looks_for_its_own_node() -> None:
    sim = Simulation(1)
    node = sim.node("broker")
    lost: list[str] = []

    async def work(world: World) -> None:
        await world.metadata.commit([Op("create", paths.BROKERS)])
        store = HeldSync(world.metadata)
        registry = BrokerRegistry(
            world,
            Records(cast("MetadataStore", store), world.clock, world.random),
            lost=lost.append,
            registered=lambda _: None,
            why_end=lambda: "it is alone",
            returned=_nothing,
            listed=lambda: None,
        )
        await registry.start(BrokerRegistration("b", "", "broker:6660"))
        first = registry.instance_id
        store.hold = True
        await registry.evict(first)  # it is not in the list, and reads its own node after a sync
        await store.reached.wait()
        sim.metadata.expire(node.session_id)
        while not lost:
            await world.clock.sleep(0.1)
        store.go_on.set()
        while registry.instance_id in ("", first):
            await world.clock.sleep(0.1)

    async def scenario() -> None:
        await node.run(work)

    sim.run(scenario, 60.0)
    assert lost == ["the metadata session is lost, and it is alone"]


def test_a_registration_that_cannot_be_read_is_there_and_ends_nobody() -> None:
    sim = Simulation(1)
    node = sim.node("broker")

    async def work(world: World) -> None:
        await world.metadata.commit([Op("create", paths.BROKERS)])
        await world.metadata.commit([Op("create", paths.broker("odd~1"), b"{")])
        registry = BrokerRegistry(
            world,
            Records(world.metadata, world.clock, world.random),
            lost=lambda _: None,
            registered=lambda _: None,
            why_end=lambda: "it is alone",
            returned=_nothing,
            listed=lambda: None,
        )
        await registry.start(BrokerRegistration("b", "", "broker:6660"))
        assert await registry.is_registered("odd~1")
        assert registry.others() == []
        other = BrokerRegistration("c", "c~1", "other:6660")
        await world.metadata.commit([Op("create", paths.broker("c~1"), encode_record(other))])
        while registry.others() != [other]:
            await world.clock.sleep(0.1)

    async def scenario() -> None:
        await node.run(work)

    sim.run(scenario, 60.0)


def test_a_broker_that_was_evicted_while_it_was_cut_off_learns_it_when_it_is_connected() -> None:
    """Until then it delivers from where it stopped (seed 980002540)."""
    sim = Simulation(1)
    node, rival = sim.node("broker"), sim.node("rival")
    events: list[tuple[str, float]] = []

    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        registry = BrokerRegistry(
            world,
            records,
            lost=lambda _reason: events.append(("lost", world.clock.monotonic())),
            registered=lambda _: None,
            why_end=lambda: "it is alone",
            returned=_nothing,
            listed=lambda: None,
        )
        await registry.start(BrokerRegistration("b", "", "broker:6660"))
        first = registry.instance_id
        both_ways = (("broker", METADATA), (METADATA, "broker"))

        def heard(state: SessionState) -> None:
            events.append((state.name, world.clock.monotonic()))
            if state is SessionState.SUSPENDED:
                for way in both_ways:
                    sim.network.cut(*way)

        records.listen(heard)
        sim.metadata.break_connection(node.session_id)
        while not events:
            await world.clock.sleep(0.01)
        await rival.run(lambda other: other.metadata.commit([Op("delete", paths.broker(first))]))
        for way in both_ways:
            sim.network.heal(*way)
        while registry.instance_id in ("", first):
            await world.clock.sleep(0.1)

    async def scenario() -> None:
        await rival.run(lambda world: world.metadata.commit([Op("create", paths.BROKERS)]))
        await node.run(work)

    sim.run(scenario, 60.0)
    assert [name for name, _ in events] == ["SUSPENDED", "CONNECTED", "lost"]
    assert events[2][1] - events[1][1] < 0.02
