"""An owner says that it serves an open topic also while it reaches no metadata service."""

from __future__ import annotations

import pytest

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.lookup import Lookup
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.ownership.served_bundles import ServedBundles
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata.paths import ROOTS
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import MetadataUnavailable
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.world import Simulation


def test_the_owner_is_found_without_metadata_when_the_topic_is_open() -> None:
    sim = Simulation(1)
    node = sim.node("broker")
    name, other = (TopicName.parse(f"public/default/{each}") for each in "tu")

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
        lookup = Lookup(
            namespaces,
            ownership,
            ServedBundles(world.clock, ownership),
            world.random,
            is_open=lambda each: each == name,
        )
        found = await lookup.find(name, authoritative=True)
        sim.network.cut("broker", METADATA)
        while not ownership.registry.away:
            await world.clock.sleep(0.1)
        namespaces.forget("public", "default")
        assert await lookup.find(name, authoritative=False) == found
        with pytest.raises(MetadataUnavailable):
            _ = await lookup.find(other, authoritative=False)

    async def scenario() -> None:
        await node.run(work)

    sim.run(scenario, 120.0)
