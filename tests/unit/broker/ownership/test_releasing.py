"""While a bundle is being released, no broker answers for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.bundles import bundles_of
from pulsarish.broker.ownership.core import Mine, Unowned
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.metadata.paths import ROOTS
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import ServiceNotReady
from pulsarish.runtime.seams import MetadataStore, Op, World
from pulsarish.sim.world.world import Simulation

BUNDLE = bundles_of("public", "default", 4)[0]


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
        ownership = Ownership(held, config, records, lost=lambda _: None, take_lag_max=lambda: 0.0)
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
