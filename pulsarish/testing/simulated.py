"""A program against a simulated cluster, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.broker.broker import Broker
from pulsarish.broker.config import BrokerConfig
from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.config import load
from pulsarish.runtime.seams import World
from pulsarish.sim.world.connections import client_connections
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation

__all__ = ["SimulatedCluster", "simulate"]

T = TypeVar("T")

_PROGRAM: Final = "program"
"""The simulated machine on which the tested program runs."""
_COPIES_MAX: Final = 3
_BOOT_SECONDS: Final = 3.0
_MIB: Final = 1 << 20


class SimulatedCluster:
    """The brokers, bookies and network around the tested program. ``simulate`` makes it.

    Machines have names: ``broker0``, ``bookie0``, and so on; ``program`` is the one of the test.
    """

    def __init__(self, sim: Simulation, servers: _Servers, world: World) -> None:
        self._sim = sim
        self._servers = servers
        self._world = world
        self._clients: list[AsyncClient] = []
        self.random = random.Random(f"{sim.seed}:scenario")
        """For draws of the scenario: the seed decides them, too."""

    @property
    def brokers(self) -> list[str]:
        """The names of the brokers."""
        return list(self._servers.brokers)

    @property
    def bookies(self) -> list[str]:
        """The names of the bookies."""
        return list(self._servers.bookies)

    @property
    def service_url(self) -> str:
        """The URL of all brokers, for programs that show it; ``client`` uses it by itself."""
        return "pulsarish://" + ",".join(f"{name}:6660" for name in self._servers.brokers)

    def client(self, **options: Any) -> AsyncClient:
        """Return a client as ``pulsarish.asyncio.Client`` makes it, connected to this cluster.

        Args:
            options: the arguments of ``pulsarish.asyncio.Client`` but for the URL.
        """
        world = self._world
        client = AsyncClient(
            self.service_url,
            clock=world.clock,
            random=world.random,
            tasks=world.tasks,
            connect=partial(client_connections, world.connections),
            **options,
        )
        self._clients.append(client)
        return client

    def now(self) -> float:
        """Return the virtual seconds since the simulation began."""
        return self._sim.loop.time()

    def owner(self, topic: str) -> str | None:
        """Return the name of the broker that serves a topic; ``None`` when none has it loaded.

        Args:
            topic: the whole name, ``persistent://public/default/orders``.
        """
        for name, broker in self._servers.running.items():
            if self._sim.nodes[name].alive and broker.serves_topic(topic):
                return name
        return None

    def crash(self, name: str) -> None:
        """Switch a machine off. What was not synced to its disk is lost. Does nothing if it is
        off.
        """
        self._switched(name).crash()

    def start(self, name: str) -> None:
        """Switch a machine on. Does nothing if it is on."""
        self._switched(name).revive()

    def pause(self, name: str) -> None:
        """Let a machine stand still, as if its process got SIGSTOP."""
        self._switched(name).pause()

    def resume(self, name: str) -> None:
        """Let a machine that stands still go on."""
        self._switched(name).resume()

    def cut(self, first: str, second: str) -> None:
        """Cut the network between two machines, in both directions."""
        self._machine(first)
        self._machine(second)
        self._sim.network.partition([first], [second])

    def heal(self) -> None:
        """Mend the whole network."""
        self._sim.network.heal_all()

    def _machine(self, name: str) -> Node:
        node = self._sim.nodes.get(name)
        if node is None:
            raise InvalidArgument(
                f"no machine {name!r} in this cluster; there are {', '.join(self._sim.nodes)}"
            )
        return node

    def _switched(self, name: str) -> Node:
        if name == _PROGRAM:
            raise InvalidArgument("the machine of the test itself cannot be switched: name another")
        return self._machine(name)

    def _shut_down(self) -> None:
        for client in self._clients:
            client.shutdown()


class _Servers:
    """Boots the brokers and bookies, with the options that they have outside a simulation."""

    def __init__(
        self, sim: Simulation, brokers: int, bookies: int, settings: Sequence[str]
    ) -> None:
        self._sim = sim
        self.brokers = [f"broker{number}" for number in range(brokers)]
        self.bookies = [f"bookie{number}" for number in range(bookies)]
        self.running: dict[str, Broker] = {}
        copies = min(bookies, _COPIES_MAX)
        self._broker_configs = {
            name: load(
                BrokerConfig,
                defaults={
                    "broker_id": name,
                    "listen_address": f"{name}:6660",
                    "http_address": f"{name}:8080",
                    "pulsar_address": "",
                    "managed_ledger.ensemble_size": copies,
                    "managed_ledger.write_quorum": copies,
                    "managed_ledger.ack_quorum": min(copies, 2),
                },
                environ={},
                prefix="PULSARISH_BROKER__",
                overrides=settings,
                flag="settings",
                listing="pulsarish broker --print-config",
            )
            for name in self.brokers
        }

    def boot(self) -> None:
        for name in self.bookies:
            self._sim.node(name, self._bookie(name))
        for name in self.brokers:
            self._sim.node(name, self._broker(name))

    def _bookie(self, name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
        config = BookieConfig(
            bookie_id=name,
            listen_address=f"{name}:3181",
            http_address="",
            host=name,
            data_directory="/data",
            # Files are in memory here.
            journal_file_size_bytes=4 * _MIB,
            write_cache_size_bytes=4 * _MIB,
            entry_log_size_bytes=16 * _MIB,
            reserved_bytes=16 * _MIB,
            read_only_free_bytes=32 * _MIB,
        )

        async def main(world: World) -> None:
            await Bookie(world, config).start()

        return main

    def _broker(self, name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
        async def main(world: World) -> None:
            broker = self.running[name] = Broker(world, self._broker_configs[name])
            await broker.start()

        return main


def simulate(
    scenario: Callable[[SimulatedCluster], Awaitable[T]],
    *,
    seed: int = 1,
    brokers: int = 2,
    bookies: int = 3,
    settings: Sequence[str] = (),
    seconds_max: float = 86_400.0,
) -> T:
    """Run ``scenario(cluster)`` in virtual time and return its result.

    ``asyncio.sleep`` and ``asyncio.timeout`` of the scenario take virtual seconds. A program that
    reads ``time.time`` or starts threads leaves the simulation: give it a clock.

    Args:
        scenario: a coroutine function, which may start tasks.
        seed: decides the order of events, the delays of the network, and what a crash leaves of a
            write. The same seed gives the same run.
        brokers: how many.
        bookies: how many; each message is stored on up to three of them and acknowledged by two.
        settings: options of the brokers as ``NAME=VALUE``; ``pulsarish broker --print-config``
            lists them.
        seconds_max: virtual seconds after which the simulation fails.

    Raises ``InvalidArgument`` for a cluster without brokers or bookies, ``ConfigError`` for an
    option that does not exist or fit, what the scenario raises, ``SimulationFailed`` when a server
    had an error that it did not handle, and ``TimeLimit`` or ``Deadlock``. Errors of a run have the
    seed and the last events as a note.
    """
    for name, count in (("brokers", brokers), ("bookies", bookies)):
        if count < 1:
            raise InvalidArgument(f"{name} = {count}: at least 1 is needed")
    sim = Simulation(seed)
    servers = _Servers(sim, brokers, bookies, settings)

    async def program(world: World) -> T:
        cluster = SimulatedCluster(sim, servers, world)
        try:
            return await scenario(cluster)
        finally:
            cluster._shut_down()

    async def run() -> T:
        servers.boot()
        node = sim.node(_PROGRAM)
        await node.clock.sleep(_BOOT_SECONDS)
        return await node.run(program)

    return sim.run(run, seconds_max + _BOOT_SECONDS)
