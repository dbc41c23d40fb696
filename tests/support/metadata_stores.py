"""Every ``MetadataStore``, so that one scenario can be run on all of them.

A scenario is ``async def scenario(env: StoreEnv)``. ``STORES`` names the runners. Those with a
session that can end (``CAN_LOSE_SESSIONS``) also run the scenarios about lost connections and
sessions: the simulated store, and kazoo's through a TCP relay that can be cut.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import itertools
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
from kazoo.client import KazooClient

from pulsarish.local_cluster.ports import free_ports
from pulsarish.local_cluster.zookeeper_words import server_mode
from pulsarish.metadata.connect import connect, parse_metadata_url
from pulsarish.metadata.daemon.config import MetadataConfig
from pulsarish.metadata.daemon.daemon import MetadataDaemon
from pulsarish.metadata.daemon.zookeeper_server import (
    ZooKeeperServerConfig,
    ensemble_settings,
    write_configuration,
    zookeeper_command,
)
from pulsarish.metadata.local import open_local
from pulsarish.metadata.tree.local import LocalTree
from pulsarish.metadata.zookeeper.store import ZooKeeperStore
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.seams import MetadataStore, Op, SessionState, Versioned
from pulsarish.runtime.world import Production
from pulsarish.runtime.world import production as make_production
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.world import Simulation
from tests.support.relay import Relay
from tests.support.worlds import run_in_production_loop

__all__ = [
    "CAN_LOSE_SESSIONS",
    "SERVERS",
    "SHORT_SESSION_MS",
    "STORES",
    "Scenario",
    "StoreEnv",
    "free_port",
    "production",
    "real_ensemble",
    "real_zookeeper",
    "require_zookeeper",
    "until_zookeeper_serves",
]

# Longer than a machine may stand still: where no session is to end, none does. The short one is for
# those that wait for its end.
SESSION_TIMEOUT_MS = 20_000
SHORT_SESSION_MS = 8_000
SIMULATED_SEEDS = 10


class StoreEnv(Protocol):
    async def store(
        self, name: str, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> MetadataStore:
        """The store of the node ``name``, with a session of its own.

        The time-out is of real servers; the simulator has its own.
        """
        ...

    async def expire(self, name: str) -> None:
        """The server ends the session of ``name``."""
        ...

    async def drop(self, name: str) -> None:
        """The connection of ``name`` breaks; it may connect again at once."""
        ...

    async def cut(self, name: str) -> None:
        """Nothing passes between ``name`` and the server, in silence, until ``mend``."""
        ...

    async def mend(self, name: str) -> None: ...


Scenario = Callable[[StoreEnv], Coroutine[Any, Any, None]]
ServerWork = Callable[[Production, str], Coroutine[Any, Any, None]]
"""Gets the parts of a node and the address of a server of ZooKeeper's protocol."""


def free_port() -> int:
    return next(free_ports("127.0.0.1"))


def production() -> Production:
    return make_production(outside=OutsideWork())


def why_no_zookeeper() -> str | None:
    """What is missing for the real ZooKeeper, or None."""
    try:
        zookeeper_command(ZooKeeperServerConfig(), Path("zoo.cfg"))
    except ConfigError as error:
        return str(error)
    return None


def require_zookeeper() -> None:
    """Where a part of the real ZooKeeper is missing the test is skipped and says why; under ``CI``
    it fails, so that nothing is left out there unseen.
    """
    reason = why_no_zookeeper()
    if reason is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            f"left out: what needs the real ZooKeeper, because {reason}"
        )


@functools.cache
def real_zookeeper() -> str:
    """Start the real ZooKeeper once for the test process; its address."""
    address = f"127.0.0.1:{free_port()}"
    _start_zookeeper(address)
    until_zookeeper_serves(address)
    return address


@functools.cache
def real_ensemble() -> dict[str, int]:
    """Start an ensemble of three real ZooKeepers once for the test process; the process id of each
    by its address.
    """
    ports = free_ports("127.0.0.1")
    entries = [":".join(["127.0.0.1", *map(str, islice(ports, 3))]) for _ in range(3)]
    ports.close()
    pids = {}
    for number in (1, 2, 3):
        settings, _ = ensemble_settings(entries, number, "")
        options = dict(setting.split("=", 1) for setting in settings)
        address = options["listen_address"]
        servers = tuple(options["servers"].split(","))
        pids[address] = _start_zookeeper(address, servers=servers, server_id=number)
    for address in pids:
        until_zookeeper_serves(address)
    return pids


def _start_zookeeper(address: str, **options: Any) -> int:
    """Start a server that ends with the test process. Return its process id."""
    require_zookeeper()
    directory = tempfile.TemporaryDirectory(prefix="pulsarish-zookeeper-")
    config = ZooKeeperServerConfig(
        listen_address=address,
        data_directory=directory.name,
        tick_ms=100,
        session_timeout_min_ms=500,
        **options,
    )
    log = Path(directory.name, "log").open("wb")  # noqa: SIM115  # open as long as the server runs
    process = subprocess.Popen(
        zookeeper_command(config, write_configuration(config)), stdout=log, stderr=log
    )

    def stop() -> None:
        process.kill()
        process.wait()
        log.close()
        directory.cleanup()

    atexit.register(stop)
    return process.pid


def until_zookeeper_serves(address: str) -> str:
    """Wait until a server takes sessions. Return as what it serves: ``leader``, for example."""
    while not (mode := server_mode(int(address.rpartition(":")[2]))):
        # Not a wait for an amount of time: the server says itself when it is ready.
        subprocess.run(["sleep", "0.1"], check=True)
    return mode


class _LocalEnv:
    def __init__(self, local: LocalTree) -> None:
        self._local = local

    async def store(
        self, name: str, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> MetadataStore:
        return await self._local.new_store()

    async def expire(self, name: str) -> None:
        raise AssertionError("a session in the node's own process does not expire")

    drop = cut = mend = expire


def _run_local(url_of: Callable[[str], str], scenario: Scenario) -> None:
    with tempfile.TemporaryDirectory(prefix="pulsarish-") as directory:

        async def run() -> None:
            node = production()
            local = await open_local(
                parse_metadata_url(url_of(directory)).directory,
                clock=node.clock,
                tasks=node.tasks,
                rng=random.Random(1),
                files=node.files,
                open_index=node.open_index,
            )
            try:
                await scenario(_LocalEnv(local))
                local.engine.tree.check()
            finally:
                await local.close()
                await node.close()

        run_in_production_loop(run)


class _KazooEnv:
    """Stores through kazoo, each behind a relay of its own, under a root of this run.

    ``address``: of one server, or of those of an ensemble, separated by commas. A store may use
    any of them, so that two stores need not see the same at once.
    """

    _roots = itertools.count()

    def __init__(self, node: Production, address: str) -> None:
        self._node = node
        self._address = address
        self._root = f"/conformance/{next(self._roots)}"
        self._relays: dict[str, list[Relay]] = {}
        self._stores: dict[str, ZooKeeperStore] = {}

    async def store(
        self, name: str, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> MetadataStore:
        relays = self._relays[name] = [Relay(each) for each in self._address.split(",")]
        for relay in relays:
            await relay.start()
        node = self._node
        store = await connect(
            f"zk://{','.join(relay.address for relay in relays)}{self._root}",
            clock=node.clock,
            tasks=node.tasks,
            rng=node.random,
            files=node.files,
            open_index=node.open_index,
            session_timeout_ms=session_timeout_ms,
        )
        assert isinstance(store, ZooKeeperStore)
        self._stores[name] = store
        return store

    async def expire(self, name: str) -> None:
        client = self._stores[name]._client
        assert client is not None
        identity = client.client_id

        def close_its_session() -> None:
            # ZooKeeper's own way to test it: come with the session's id and password, and close it.
            other = KazooClient(self._address, client_id=identity)
            other.start()
            other.stop()
            other.close()

        await asyncio.get_running_loop().run_in_executor(None, close_its_session)

    async def drop(self, name: str) -> None:
        for relay in self._relays[name]:
            relay.drop(abort=True)

    async def cut(self, name: str) -> None:
        for relay in self._relays[name]:
            relay.hold()

    async def mend(self, name: str) -> None:
        # What was held belongs to the past: the connections end and the store connects again.
        for relay in self._relays[name]:
            relay.drop(abort=True)
            relay.release()

    async def close(self) -> None:
        for store in self._stores.values():
            await store.close()
        for relays in self._relays.values():
            for relay in relays:
                await relay.close()


def _with_daemon(work: ServerWork) -> None:
    with tempfile.TemporaryDirectory(prefix="pulsarish-") as directory:

        async def run() -> None:
            node = production()
            config = MetadataConfig(
                listen_address="127.0.0.1:0",
                http_address="",
                data_directory=directory,
                tick_ms=50,
                session_timeout_min_ms=500,
            )
            daemon = MetadataDaemon(
                config,
                clock=node.clock,
                rng=node.random,
                tasks=node.tasks,
                files=node.files,
                connections=node.connections,
                open_index=node.open_index,
            )
            address = (await daemon.start()).address
            try:
                await work(node, address)
            finally:
                await daemon.stop()
                await node.close()

        run_in_production_loop(run)


def _with_zookeeper(work: ServerWork) -> None:
    _with_servers(work, real_zookeeper())


def _with_ensemble(work: ServerWork) -> None:
    _with_servers(work, ",".join(real_ensemble()))


def _with_servers(work: ServerWork, address: str) -> None:

    async def run() -> None:
        node = production()
        try:
            await work(node, address)
        finally:
            await node.close()

    run_in_production_loop(run)


SERVERS: dict[str, Callable[[ServerWork], None]] = {
    "daemon": _with_daemon,
    "zookeeper": _with_zookeeper,
}


def _run_kazoo(serve: Callable[[ServerWork], None], scenario: Scenario) -> None:
    async def work(node: Production, address: str) -> None:
        env = _KazooEnv(node, address)
        try:
            await scenario(env)
        finally:
            await env.close()

    serve(work)


class _InNode:
    """A node's store, used from the scenario: each call runs inside the node."""

    def __init__(self, sim: Simulation, name: str) -> None:
        self._node = sim.nodes.get(name) or sim.node(name)

    @property
    def _store(self) -> MetadataStore:
        assert self._node.world is not None
        return self._node.world.metadata

    @property
    def session_id(self) -> int:
        return self._store.session_id

    @property
    def state(self) -> SessionState:
        return self._store.state

    @property
    def zxid(self) -> int:
        return self._store.zxid

    @property
    def answered_at(self) -> float:
        return self._store.answered_at

    def listen(self, changed: Callable[[SessionState], None]) -> None:
        self._store.listen(changed)

    async def get_many(
        self, paths: Sequence[str], *, watch: Callable[[str], None] | None = None
    ) -> list[Versioned | None]:
        return await self._node.run(lambda world: world.metadata.get_many(paths, watch=watch))

    async def children(self, path: str, *, watch: Callable[[str], None] | None = None) -> list[str]:
        return await self._node.run(lambda world: world.metadata.children(path, watch=watch))

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        return await self._node.run(lambda world: world.metadata.commit(ops))

    async def sync(self, path: str) -> None:
        await self._node.run(lambda world: world.metadata.sync(path))

    async def close(self) -> None:
        await self._node.run(lambda world: world.metadata.close())


class _SimulatedEnv:
    def __init__(self, sim: Simulation) -> None:
        self._sim = sim

    async def store(
        self, name: str, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> MetadataStore:
        return cast("MetadataStore", _InNode(self._sim, name))

    async def expire(self, name: str) -> None:
        self._sim.metadata.expire(_InNode(self._sim, name).session_id)

    async def drop(self, name: str) -> None:
        self._sim.metadata.break_connection(_InNode(self._sim, name).session_id)

    async def cut(self, name: str) -> None:
        self._sim.network.partition([name], [METADATA])

    async def mend(self, name: str) -> None:
        self._sim.network.heal_all()


def _run_simulated(scenario: Scenario) -> None:
    for seed in range(SIMULATED_SEEDS):
        sim = Simulation(seed)
        sim.run(functools.partial(scenario, _SimulatedEnv(sim)), 600)
        sim.metadata.tree.check()


STORES: dict[str, Callable[[Scenario], None]] = {
    "memory": functools.partial(_run_local, lambda directory: "memory:"),
    "embedded": functools.partial(_run_local, lambda directory: f"embedded:{directory}/metadata"),
    "simulated": _run_simulated,
    "daemon": functools.partial(_run_kazoo, _with_daemon),
    "zookeeper": functools.partial(_run_kazoo, _with_zookeeper),
    "ensemble": functools.partial(_run_kazoo, _with_ensemble),
}
CAN_LOSE_SESSIONS = ("simulated", "daemon", "zookeeper", "ensemble")
