"""A client and two fake brokers in one simulation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.connection.broker_stream import StreamLimits
from pulsarish.runtime.seams import World
from pulsarish.sim.world.connections import client_connections
from pulsarish.sim.world.world import Simulation
from tests.support.fake_broker import FakeBroker, FakeCluster

__all__ = ["Cast", "play"]


class Cast:
    """What a scenario plays with: ``brokers[0]`` owns all topics until the scenario says
    otherwise.
    """

    def __init__(self, sim: Simulation, cluster: FakeCluster, world: World) -> None:
        self.sim = sim
        self.cluster = cluster
        self.world = world
        self.brokers: list[FakeBroker] = []
        self.clients: list[AsyncClient] = []

    async def start_broker(self, name: str, port: int = 6660) -> FakeBroker:
        node = self.sim.nodes.get(name) or self.sim.node(name)
        if not node.alive:
            node.start()

        async def start(world: World) -> FakeBroker:
            broker = FakeBroker(self.cluster, world.connections, world.tasks)
            await broker.start(f"{name}:{port}")
            return broker

        return await node.run(start)

    @property
    def broker(self) -> FakeBroker:
        return self.brokers[0]

    def client(
        self,
        *,
        addresses: str = "",
        service: Any = None,
        stream_limits: StreamLimits | None = None,
        **options: Any,
    ) -> AsyncClient:
        """``service``: what the client is made with in place of the URL of all brokers."""
        world = self.world
        url = "pulsarish://" + (addresses or ",".join(broker.address for broker in self.brokers))
        client = AsyncClient(
            service or url,
            clock=world.clock,
            random=world.random,
            tasks=world.tasks,
            connect=partial(client_connections, world.connections),
            stream_limits=stream_limits,
            **options,
        )
        self.clients.append(client)
        return client

    async def sleep(self, seconds: float) -> None:
        await self.world.clock.sleep(seconds)


def play(
    scenario: Callable[[Cast], Awaitable[None]],
    *,
    seeds: int = 3,
    deduplication: bool = False,
    max_virtual_seconds: float = 300.0,
) -> None:
    """Run ``scenario(cast)`` inside a node "app", once for each of a few seeds."""
    for seed in range(seeds):
        sim = Simulation(seed)

        async def main(sim: Simulation = sim) -> None:
            app = sim.node("app")
            assert app.world is not None
            cast = Cast(sim, FakeCluster(deduplication=deduplication), app.world)
            cast.brokers = [await cast.start_broker("broker1"), await cast.start_broker("broker2")]

            async def play_in_node(_world: World) -> None:
                await scenario(cast)
                for client in cast.clients:
                    await client.close()

            await app.run(play_in_node)

        sim.run(main, max_virtual_seconds)
