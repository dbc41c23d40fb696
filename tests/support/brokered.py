"""Real clients of a small cluster of real brokers and bookies, in a simulation."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.broker.topics.topic import Topic
from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.connections import client_connections
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as pb
from tests.support.brokers import BrokerCluster, find

__all__ = ["Brokered", "play_with_brokers"]


class Brokered:
    """What a scenario plays with.

    Its clients live on nodes of their own, so that each can be killed.
    """

    def __init__(self, sim: Simulation, cluster: BrokerCluster, world: World) -> None:
        self.sim = sim
        self.cluster = cluster
        self.world = world
        self._clients: list[AsyncClient] = []

    def client(self, *, first: str = "", **options: Any) -> AsyncClient:
        """Return a client of all brokers. It asks the broker ``first`` before the others."""
        world = self.world
        names = sorted(self.cluster.brokers, key=lambda name: name != first)
        url = "pulsarish://" + ",".join(f"{name}:6660" for name in names)
        client = AsyncClient(
            url,
            clock=world.clock,
            random=world.random,
            tasks=world.tasks,
            connect=partial(client_connections, world.connections),
            **options,
        )
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    def topic(self, name: str) -> Topic:
        """As its owner has it now."""
        full = TopicName.parse(name).full
        for node, broker in self.cluster.brokers.items():
            if self.cluster.nodes[node].alive and full in broker._topics.loaded:
                return broker._topics.loaded[full]
        raise AssertionError(f"no broker has loaded {name}")

    def subscription(self, topic: str, name: str) -> Subscription:
        return self.topic(topic).subscription(name)

    async def until(self, condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
        """Wait for a state, in virtual time."""
        deadline = self.world.clock.monotonic() + seconds
        while not condition():
            assert self.world.clock.monotonic() < deadline, "it did not come about in time"
            await self.world.clock.sleep(0.01)

    async def stats(self, topic: str) -> dict[str, Any]:
        """The topic's statistics, as its owner tells them."""
        name = TopicName.parse(topic)
        found: dict[str, Any] = await self.administer(
            "GET", f"persistent/{name.tenant}/{name.namespace}/{name.local}/stats", owner=name
        )
        return found

    async def administer(
        self,
        method: str,
        words: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        owner: TopicName | None = None,
    ) -> Any:
        """A request of the administration, as one broker passes it on to another."""
        address = next(
            f"{name}:6660" for name in self.cluster.brokers if self.cluster.nodes[name].alive
        )
        if owner is not None:
            address = await find(self.world, list(self.cluster.brokers), owner.full)
        encoded = b"" if body is None else json.dumps(body).encode()
        segments = ["admin", "v2", *words.split("/")]
        request = pb.AdminRequest(
            method=method,
            segments=segments,
            query=query,
            body=encoded,
            admin_key=self.admin_key(address),
        )
        data = await self.world.connections.call(
            address, "broker.admin", request.SerializeToString(), timeout_seconds=5.0
        )
        answer = pb.AdminResponse.FromString(data)
        assert answer.status < 300, answer.body
        return json.loads(answer.body) if answer.body else None

    def admin_key(self, address: str) -> str:
        """What a broker's registration has for other brokers."""
        me = self.cluster.brokers[address.partition(":")[0]]._ownership.registry.me
        assert me is not None
        return me.admin_key

    def node(self, name: str) -> Node:
        return self.cluster.nodes[name]


def play_with_brokers(
    scenario: Callable[[Brokered], Awaitable[None]],
    *,
    brokers: int = 1,
    seeds: int = 2,
    max_virtual_seconds: float = 600.0,
    **settings: object,
) -> None:
    """Run ``scenario(brokered)`` once for each of a few seeds; ``settings`` are options of the
    brokers.
    """
    for seed in range(seeds):
        sim = Simulation(seed)
        cluster = BrokerCluster(sim, brokers=brokers, **settings)

        async def main(sim: Simulation = sim, cluster: BrokerCluster = cluster) -> None:
            await cluster.start()

            async def inside(world: World) -> None:
                brokered = Brokered(sim, cluster, world)
                await scenario(brokered)
                await brokered.close()

            await sim.node("client").run(inside)

        sim.run(main, max_virtual_seconds)
