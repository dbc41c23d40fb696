"""While a bundle is being released, no broker answers for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.bundles import Bundle, bundles_of
from pulsarish.broker.ownership.core import Mine, Unowned
from pulsarish.broker.ownership.lookup import Lookup
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.ownership.served_bundles import ServedBundles
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata import paths
from pulsarish.metadata.paths import ROOTS
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration, BundleOwner, NamespacePolicies
from pulsarish.model.errors import MetadataUnavailable, ServiceNotReady
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import MetadataStore, Op, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record

BUNDLE = bundles_of("public", "default", NamespacePolicies(4))[0]


class HeldCommit:
    """A store whose next commit waits, before it is sent, until the test releases it."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.hold = False
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        if self.hold:
            self.hold = False
            self.reached.set()
            await self.go_on.wait()
        return await self._store.commit(ops)


def test_a_lookup_during_a_release_does_not_bring_the_bundle_back() -> None:
    sim = Simulation(1)
    node = sim.node("broker")

    async def work(world: World) -> None:
        store = HeldCommit(world.metadata)
        held = replace(world, metadata=cast("MetadataStore", store))
        records = Records(held.metadata, world.clock, world.random)
        for path in ROOTS:
            await records.ensure(path)
        config = BrokerConfig(
            broker_id="b", listen_address="broker:6660", http_address="", metadata_url="memory:"
        )
        ownership = Ownership(
            held,
            config,
            records,
            ledgers=LedgerClient(world, config.ledger),
            lost=lambda _: None,
            taken=lambda _: None,
            take_lag_max=lambda: 0.0,
        )
        await ownership.start(BrokerRegistration("b", "", "broker:6660"))
        taken = await ownership.acquire(BUNDLE, None)
        assert isinstance(taken, Mine)
        store.hold = True
        release = asyncio.create_task(ownership.release(BUNDLE))
        await store.reached.wait()
        with pytest.raises(ServiceNotReady, match="released"):
            await ownership.owner(BUNDLE)
        store.go_on.set()
        await release
        assert BUNDLE not in ownership.owned, (
            "another broker may own it now, and this one would never ask again"
        )
        assert await ownership.owner(BUNDLE) == Unowned(taken.epoch + 1)

    async def scenario() -> None:
        await node.run(work)

    sim.run(scenario, 60.0)


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_former_owner_that_returned_while_its_bundle_was_taken_is_evicted(
    is_answered: bool,
) -> None:
    """It has looked for what was taken before the commit, and would look no more."""
    sim = Simulation(1)
    node = sim.node("broker")

    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        for path in ROOTS:
            await records.ensure(path)
        config = BrokerConfig(
            broker_id="b", listen_address="broker:6660", http_address="", metadata_url="memory:"
        )
        ownership = Ownership(
            world,
            config,
            records,
            ledgers=LedgerClient(world, config.ledger),
            lost=lambda _: None,
            taken=lambda _: None,
            take_lag_max=lambda: 0.0,
        )
        await ownership.start(BrokerRegistration("b", "", "broker:6660"))
        await records.compare_and_set(BUNDLE.path, BundleOwner("c", "c~1"), None)
        owner = await ownership.owner(BUNDLE)
        assert owner == Unowned(0, "c~1")
        back = BrokerRegistration("c", "c~1", "other:6660")
        await records.commit([Op("create", paths.broker("c~1"), encode_record(back))])
        is_registered = ownership.registry.is_registered

        async def unanswered(_: str) -> bool:
            ownership.registry.is_registered = is_registered  # type: ignore[method-assign]
            raise MetadataUnavailable("no answer")

        if is_answered:
            assert await ownership.acquire(BUNDLE, 0, "c~1") == Mine(1)
        else:
            ownership.registry.is_registered = unanswered  # type: ignore[method-assign]
            with pytest.raises(MetadataUnavailable):
                _ = await ownership.acquire(BUNDLE, 0, "c~1")
            assert await ownership.owner(BUNDLE) == Mine(1)
        assert (await records.nodes([paths.broker("c~1")]))[0] is None

    async def scenario() -> None:
        await node.run(work)

    sim.run(scenario, 60.0)


def test_a_lookup_waits_for_a_bundle_that_is_leaving() -> None:
    """Clients that were closed ask at once. They must not be sent back to the broker that lets the
    bundle go.
    """
    sim = Simulation(1)
    node = sim.node("broker")
    name = TopicName.parse("public/default/t")

    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        for path in ROOTS:
            await records.ensure(path)
        config = BrokerConfig(
            broker_id="b", listen_address="broker:6660", http_address="", metadata_url="memory:"
        )
        ownership = Ownership(
            world,
            config,
            records,
            ledgers=LedgerClient(world, config.ledger),
            lost=lambda _: None,
            taken=lambda _: None,
            take_lag_max=lambda: 0.0,
        )
        await ownership.start(BrokerRegistration("b", "", "broker:6660"))
        namespaces = Namespaces(world, records, config)
        await namespaces.start()
        bundles = ServedBundles(world.clock, ownership)
        lookup = Lookup(namespaces, ownership, bundles, world.random, is_open=lambda _name: True)
        found = await lookup.find(name, authoritative=True)
        assert lookup.at_once(name) == found
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def close(_: Bundle) -> None:
            reached.set()
            await go_on.wait()

        unload = asyncio.create_task(bundles.unload(found.bundle, close))
        await reached.wait()
        assert lookup.at_once(name) is None
        asked = asyncio.create_task(lookup.find(name, authoritative=True))
        await world.clock.sleep(1.0)
        assert not asked.done()
        go_on.set()
        await unload
        assert await asked == found, "no other broker is there, so this one takes it again"

        go_on.clear()
        unload = asyncio.create_task(bundles.unload(found.bundle, close))
        await world.clock.sleep(1.0)
        with pytest.raises(ServiceNotReady, match="still being unloaded"):
            _ = await lookup.find(name, authoritative=True)
        go_on.set()
        await unload

    async def scenario() -> None:
        await node.run(work)

    sim.run(scenario, 60.0)
