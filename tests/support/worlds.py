"""Running one scenario in each world that implements the seams.

A conformance scenario is ``async def scenario(env: Env)``. It does everything inside named nodes
(``env.on``), touches only their ``World``, and so runs unchanged wherever the seams are
implemented. ``WORLDS`` names the runners; each conformance test runs in all.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import gc
import os
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import uvloop

from pulsarish.runtime.connections import NodeConnections
from pulsarish.runtime.grpc.grpclib_connections import GrpclibConnections
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.network.dialing import Dialer
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.seams import FRAMED, TLS, KeyValueIndex, MetadataStore, Tasks, World
from pulsarish.runtime.tasks import Supervisor
from pulsarish.runtime.world import Production, production
from pulsarish.security.tls import TlsClientConfig
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation
from tests.support.certificates import certificates

__all__ = ["STREAM_WORLDS", "WORLDS", "Env", "Scenario", "run_production", "run_simulated"]

T = TypeVar("T")

SCENARIO_SECONDS_MAX = 60.0
SIMULATED_SEEDS = 10


class Env(Protocol):
    """What a scenario may use besides the worlds of its nodes."""

    async def on(self, name: str, work: Callable[[World], Coroutine[Any, Any, T]]) -> T:
        """Run ``work(world)`` inside the node ``name``, which is started when it is not up.

        ``World.metadata`` is not to be used.
        """
        ...

    async def crash(self, name: str) -> None:
        """End the node as ``kill -9`` does. The next ``on`` starts it again on the same disk."""
        ...

    def listen_on(self, name: str) -> str:
        """An address with port 0 at which the node may listen."""
        ...

    async def unused_address(self) -> str:
        """An address of a living machine at which nobody listens."""
        ...

    def path(self, name: str, rest: str) -> str:
        """An absolute path on the node's disk."""
        ...

    async def crash_and_rot(
        self, name: str, path: str, held: list[KeyValueIndex], *, log: bool
    ) -> None:
        """End the node, and spoil one record in the log, or one block in the tables, of the index
        at this path. ``held`` has what the node had open; it is emptied.
        """
        ...

    def expect(self, name: str, *errors: type[BaseException]) -> None:
        """The node's handlers are going to raise these, and that is not the scenario's failure."""
        ...


Scenario = Callable[[Env], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class _Network:
    """How the nodes of a production world are connected."""

    is_framed: bool = False
    """Servers are on the framed transport. Clients go by the address."""
    is_forked: bool = False
    """Clients are as in a forked child."""
    has_tls: bool = False
    """Every listener has TLS and requires a certificate."""

    @property
    def transport(self) -> str:
        """What addresses begin with."""
        return (FRAMED if self.is_framed else "") + (TLS if self.has_tls else "")

    @property
    def client_tls(self) -> TlsClientConfig | None:
        return certificates().client_config() if self.has_tls else None


_PLAIN = _Network()


class _Connections:
    """The connections of one node."""

    def __init__(self, network: _Network, node: NodeConnections, tasks: Tasks) -> None:
        serve = node.serve_framed if network.is_framed else node.serve
        tls = certificates().server_config() if network.has_tls else None
        self.serve = partial(serve, tls=tls)
        self.serve_framed = partial(node.serve_framed, tls=tls)
        self.serve_bytes = partial(node.serve_bytes, tls=tls)
        self.serve_http = partial(node.serve_http, tls=tls)
        self.open, self.call, self.open_bytes = node.open, node.call, node.open_bytes
        self.credentials_now = node.credentials_now
        self._opened: GrpclibConnections | None = None
        if network.is_forked:
            dialer = Dialer(network.client_tls, ConnectionLimits())
            self._opened = GrpclibConnections(tasks=tasks, dialer=dialer)
            self.open, self.call = self._opened.open, self._opened.call

    async def close(self) -> None:
        """Close what the world does not close."""
        if self._opened is not None:
            await self._opened.close()


class _ProductionEnv:
    """Nodes in one process and one event loop, apart in everything that they touch: sockets,
    directories, tasks, lanes.
    """

    def __init__(
        self,
        directory: str,
        network: _Network,
    ) -> None:
        self._directory = directory
        self._network = network
        self._connections: dict[str, _Connections] = {}
        self._nodes: dict[str, Production] = {}
        self._held: list[socket.socket] = []
        self.deaths: list[tuple[str, BaseException]] = []

    async def on(self, name: str, work: Callable[[World], Coroutine[Any, Any, T]]) -> T:
        if name not in self._nodes:
            supervisor = Supervisor(
                died=lambda task, error: self.deaths.append((f"{name}: {task}", error))
            )
            node = production(
                outside=OutsideWork(), supervisor=supervisor, tls=self._network.client_tls
            )
            self._nodes[name] = node
            self._connections[name] = _Connections(self._network, node.connections, supervisor)
        # No scenario of the runtime's seams uses metadata, which is a layer above.
        world = self._nodes[name].world(cast("MetadataStore", None))
        return await work(replace(world, connections=self._connections[name]))

    async def crash(self, name: str) -> None:
        # The nearest thing to a death inside one process: sockets closed without a word, tasks
        # gone. tests/integration kills processes.
        await self._connections.pop(name).close()
        await self._nodes.pop(name).close()

    def listen_on(self, name: str) -> str:
        return "127.0.0.1:0"

    async def unused_address(self) -> str:
        # Bound as long as the scenario runs, so that nobody else comes to listen there.
        self._held.append(socket.socket())
        self._held[-1].bind(("127.0.0.1", 0))
        return f"{self._network.transport}127.0.0.1:{self._held[-1].getsockname()[1]}"

    def path(self, name: str, rest: str) -> str:
        return os.path.join(self._directory, name, rest)

    async def crash_and_rot(
        self, name: str, path: str, held: list[KeyValueIndex], *, log: bool
    ) -> None:
        # RocksDB cannot be left open in this process, and what closes it empties its log: a copy
        # has what SIGKILL would have left.
        _copy_index(path, path + ".killed")
        await self.crash(name)
        held.clear()
        gc.collect()
        _copy_index(path + ".killed", path)
        _flip_bit(path, "*.log" if log else "*.sst")

    def expect(self, name: str, *errors: type[BaseException]) -> None:
        pass

    async def close(self) -> None:
        for name in list(self._nodes):
            await self.crash(name)
        for held in self._held:
            held.close()


def _copy_index(source: str, target: str) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    shutil.copy(source + ".synced", target + ".synced")


def _flip_bit(directory: str, pattern: str) -> None:
    file = max(Path(directory).glob(pattern))
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 4
    file.write_bytes(data)


@functools.cache
def _production_runner() -> asyncio.Runner:
    """One event loop for the whole test process: gRPC works in one only."""
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    atexit.register(runner.close)
    return runner


def run_in_production_loop(work: Callable[[], Awaitable[T]]) -> T:
    """Run ``work()`` in the one production loop of this test process."""

    async def run() -> T:
        async with asyncio.timeout(SCENARIO_SECONDS_MAX):
            return await work()

    return _production_runner().run(run())


def in_world(tls: TlsClientConfig | None, work: Callable[[World], Awaitable[None]]) -> None:
    """Run ``work`` with the connections of a process that has these files, and no metadata."""

    async def run() -> None:
        parts = production(outside=OutsideWork(), tls=tls)
        try:
            await work(parts.world(cast("MetadataStore", None)))
        finally:
            await parts.close()

    run_in_production_loop(run)


def run_production(scenario: Scenario, *, network: _Network = _PLAIN) -> None:
    """Run ``scenario`` on sockets, files and RocksDB.

    Raises what it raises, or that a critical task died.

    Args:
        network: how the nodes are connected, in place of gRPC without TLS.
    """
    with tempfile.TemporaryDirectory(prefix="pulsarish-") as directory:
        env = _ProductionEnv(directory, network)

        async def run() -> None:
            try:
                await scenario(env)
            finally:
                await env.close()

        run_in_production_loop(run)
        if env.deaths:
            raise AssertionError(f"critical tasks died: {env.deaths}")


class _SimulatedEnv:
    """Nodes of one simulation."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim

    def _node(self, name: str) -> Node:
        return self._sim.nodes.get(name) or self._sim.node(name)

    async def on(self, name: str, work: Callable[[World], Coroutine[Any, Any, T]]) -> T:
        node = self._node(name)
        if not node.alive:
            node.start()
        return await node.run(work)

    async def crash(self, name: str) -> None:
        self._node(name).crash()

    def listen_on(self, name: str) -> str:
        return f"{name}:0"

    async def unused_address(self) -> str:
        return "idle:1"

    def path(self, name: str, rest: str) -> str:
        return f"/{name}/{rest}"

    async def crash_and_rot(
        self, name: str, path: str, held: list[KeyValueIndex], *, log: bool
    ) -> None:
        await self.crash(name)
        assert self._node(name).disk.rot_index(path, log=log)

    def expect(self, name: str, *errors: type[BaseException]) -> None:
        self._node(name).expect(*errors)


def run_simulated(scenario: Scenario) -> None:
    """Run ``scenario`` under virtual time, once for each of a few seeds.

    Raises what it raises, with the seed as a note.
    """
    for seed in range(SIMULATED_SEEDS):
        sim = Simulation(seed)
        sim.run(partial(scenario, _SimulatedEnv(sim)), SCENARIO_SECONDS_MAX)


WORLDS: dict[str, Callable[[Scenario], None]] = {
    "production": run_production,
    "simulated": run_simulated,
}
"""Every world that the conformance suites hold to the seams."""

STREAM_WORLDS = {
    **WORLDS,
    "forked-child": partial(run_production, network=_Network(is_forked=True)),
    "framed": partial(run_production, network=_Network(is_framed=True)),
    "tls": partial(run_production, network=_Network(has_tls=True)),
    "forked-child-tls": partial(run_production, network=_Network(is_forked=True, has_tls=True)),
    "framed-tls": partial(run_production, network=_Network(is_framed=True, has_tls=True)),
}
"""The same with every network."""
