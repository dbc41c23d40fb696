"""A broker that owns bundles and opens no topics, for workloads of many brokers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.bundles import Bundle, bundle_of
from pulsarish.broker.ownership.core import Unowned
from pulsarish.broker.ownership.ownership import BundleSplit, Ownership
from pulsarish.broker.ownership.splits import BY_RANGE, divided, inner_edges
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.topics.drain import Drain
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration, NamespacePolicies
from pulsarish.model.errors import NotFound, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Op, World
from pulsarish.security.credentials import Caller
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["SPACE", "OwnershipSite"]

SPACE: Final = ("public", "default")
"""The tenant and the namespace of the bundles."""


class OwnershipSite:
    """A broker that opens no topics: its ownership of bundles, and its list of them."""

    def __init__(self, world: World, name: str) -> None:
        self.records = Records(world.metadata, world.clock, world.random)
        config = BrokerConfig(broker_id=name, listen_address="", metadata_url="memory:")
        ledgers = LedgerClient(world, config.ledger)
        self._world = world
        self.namespaces = Namespaces(world, self.records, config)
        self.ownership = Ownership(
            world,
            config,
            self.records,
            ledgers=ledgers,
            lost=lambda _: None,
            taken=lambda _: None,
            take_lag_max=lambda: 0.0,
        )
        self.topics = LoadedTopics(
            world, config, self.records, ledgers, self.namespaces, self.ownership
        )
        self.bundles = self.topics.bundles
        self.drain = Drain(world, self.ownership, self.topics)
        self.known = NamespacePolicies()

    async def start(self, name: str) -> None:
        address = f"{name}:6660"
        _ = await self._world.connections.serve(
            address, {}, {"broker.ping": self._ping, "broker.take": self._take}
        )
        await self.namespaces.start()
        await self.ownership.start(BrokerRegistration(name, "", address, knows_splits=True))
        await self.refresh()

    async def _ping(self, data: bytes, _caller: Caller) -> bytes:
        ownership, asking = self.ownership, pb.PingRequest.FromString(data).from_instance
        return pb.PingResponse(
            instance_id=ownership.registry.instance_id,
            serving=ownership.serving,
            bundles=len(ownership.owned),
            draining=ownership.draining,
            metadata_away=ownership.is_away_for(asking),
        ).SerializeToString()

    async def _take(self, data: bytes, _caller: Caller) -> bytes:
        request = pb.TakeRequest.FromString(data)
        bundle = Bundle(request.tenant, request.namespace, request.range)
        try:
            if request.later:
                self.bundles.expect(bundle)
            else:
                await self.bundles.take(bundle, request.owner, request.epoch)
        except PulsarishError as error:
            return pb.TakeResponse(code=error.code, message=str(error)).SerializeToString()
        return pb.TakeResponse().SerializeToString()

    async def refresh(self) -> None:
        self.namespaces.forget(*SPACE)
        self.known = await self.namespaces.policies(*SPACE)

    async def use(self, name: TopicName) -> None:
        """Have a topic served, by the list of bundles as it was when it was read last."""
        bundle = bundle_of(name, self.known)
        try:
            owner = await self.ownership.owner(bundle)
            if isinstance(owner, Unowned):
                _ = await self.ownership.acquire(bundle, owner.version)
        except BundleSplit:
            await self.refresh()

    async def split(self, bundle: Bundle) -> None:
        low, high = bundle.edges
        edges = inner_edges(bundle, BY_RANGE, (), ())
        parts = [bundle.part(low, edges[0]), bundle.part(edges[0], high)]

        async def commit(ops: Sequence[Op]) -> None:
            await self.namespaces.divide(*SPACE, lambda now: divided(now, bundle, edges), ops)

        with suppress(NotFound):
            await self.bundles.split(bundle, parts, commit, lambda: None)
