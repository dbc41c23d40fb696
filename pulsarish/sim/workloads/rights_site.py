"""A small locked cluster for the matrices of rights: one bookie, one broker, and a client of the
binary protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.broker.broker import Broker
from pulsarish.broker.config import BrokerConfig
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.runtime.seams import HttpRequest, World
from pulsarish.security.credentials import no_credentials
from pulsarish.sim.cluster.cluster_lock import ClusterLock
from pulsarish.sim.workloads.rights_cases import PROXIES, REVOKED_ID, Case, Cases, Matrix
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import FrameReader, command_frame

__all__ = [
    "BINARY",
    "DENIED",
    "DONE",
    "LOST",
    "OWN",
    "STRANGE",
    "RightsSite",
    "Wire",
    "http_request",
    "in_site",
    "verdict",
]

OWN: Final = "broker0:6660"
BINARY: Final = "broker0:6650"
DONE: Final = "done"
DENIED: Final = "AUTHORIZATION_ERROR"
STRANGE: Final = "AUTHENTICATION_ERROR"
LOST: Final = "the connection ends"
_ANSWER_SECONDS: Final = 20.0
_CHANGE_BY_THEMSELVES: Final = (paths.BOOKIES, paths.BROKERS, paths.LEADER, paths.OWNERS)
_GRANTED: Final = {"writer": ["produce"], "reader": ["consume"], "gateway": ["produce", "consume"]}


class Wire(asyncio.Protocol):
    """A client's connection in Apache Pulsar's binary protocol."""

    def __init__(self) -> None:
        self.lost = False
        self.heard: list[pb.Command] = []
        self._changed = asyncio.Event()
        self._reader = FrameReader(1 << 20)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(bytes(data)):
            self.heard.append(pb.Command.FromString(frame.command))
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._changed.set()

    def eof_received(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def say(self, kind: int, **fields: Any) -> None:
        """Send the command that has this number; without fields, its type alone."""
        name = pb.Command.DESCRIPTOR.fields_by_number[kind].name
        self.write(command_frame(pb.Command(type=kind, **({name: fields} if fields else {}))))

    async def next(self, world: World, *kinds: int) -> pb.Command | None:
        """Return the next command of these kinds; ``None``: the connection ends first.

        Raises ``TimeoutError``.
        """
        async with world.clock.timeout(_ANSWER_SECONDS):
            while True:
                for place, command in enumerate(self.heard):
                    if command.type in kinds:
                        return self.heard.pop(place)
                if self.lost:
                    return None
                self._changed.clear()
                await self._changed.wait()

    async def ask(self, world: World, kind: int, *answers: int, **fields: Any) -> str:
        """Send a command, and return the ``verdict`` of its answer."""
        self.say(kind, **fields)
        return verdict(await self.next(world, 14, *answers))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def verdict(answer: pb.Command | None) -> str:
    """Return ``DONE``, the name of the error in an answer, or ``LOST``."""
    if answer is None:
        return LOST
    body = getattr(answer, pb.Command.DESCRIPTOR.fields_by_number[answer.type].name)
    for name in ("error", "error_code"):
        if name in body.DESCRIPTOR.fields_by_name and body.HasField(name):
            return str(pb.ServerError.Name(getattr(body, name)))
    return DONE


class RightsSite:
    """The cluster. ``cases`` are made by the broker's clock."""

    bookie: Bookie
    broker: Broker
    cases: Cases

    def __init__(self, sim: Simulation, directory: Path) -> None:
        self.sim = sim
        self._lock = lock = ClusterLock(sim, directory, ["broker0"], 60.0)
        lock.show_member("broker0", "broker")
        lock.revoke("banned")
        with (directory / "revoked").open("a") as file:
            file.write(f"{REVOKED_ID}\n")
        sim.credentials_of = lambda world, node: (
            lock.source_of(world, node) if node == "broker0" else no_credentials
        )

    async def start(self) -> None:
        """Start it, with the tenants ``acme`` and ``other`` and the grants of ``GRANTS``."""
        sim, lock = self.sim, self._lock

        async def run_bookie(world: World) -> None:
            config = BookieConfig(
                bookie_id="bookie0",
                listen_address="bookie0:3181",
                http_address="",
                data_directory="/data",
                **lock.bookie_options(),
            )
            self.bookie = Bookie(world, config)
            await self.bookie.start()

        async def run_broker(world: World) -> None:
            config = BrokerConfig(
                broker_id="broker0",
                listen_address=OWN,
                http_address="broker0:8080",
                pulsar_address=BINARY,
                proxy_roles=PROXIES,
                authentication_failures_max=1_000_000,
                default_number_of_namespace_bundles=1,
                managed_ledger=ManagedLedgerOptions(ensemble_size=1, write_quorum=1, ack_quorum=1),
                **{**lock.broker_options(), "super_user_roles": ["root"]},
            )
            self.broker = Broker(world, config, authenticator=lock.authenticator(world, config))
            self.cases = Cases(world)
            await self.broker.start()
            await self._furnish()

        await sim.node("bookie0").run(run_bookie)
        await sim.node("broker0").run(run_broker)

    async def _furnish(self) -> None:
        root = self.cases.token("root")
        namespace = "/admin/v2/namespaces/acme/orders"
        requests: list[tuple[str, str, object]] = [
            ("PUT", f"/admin/v2/tenants/{tenant}", {"adminRoles": [role]})
            for tenant, role in (("acme", "admin"), ("other", "elsewhere"))
        ]
        requests.append(("PUT", namespace, {}))
        for role, actions in _GRANTED.items():
            requests.append(("POST", f"{namespace}/permissions/{role}", actions))
        for method, path, body in requests:
            answer = await self.broker.http.handle(http_request(method, path, Case(root), body))
            assert answer.status == 204, (path, answer)

    def kept(self) -> dict[str, bytes]:
        """Return the metadata, but for what changes by itself."""
        return {
            path: node.data
            for path, node in self.sim.metadata.tree.nodes.items()
            if not path.startswith(_CHANGE_BY_THEMSELVES)
        }

    async def opened(self, world: World, address: str) -> Wire:
        """Return a connection on which nothing was sent."""
        assert isinstance(world.connections, SimConnections)
        return cast("Wire", await world.connections.open_bytes(address, Wire))

    async def connected(self, world: World, case: Case, address: str, **fields: Any) -> Wire | str:
        """Return a connection that a caller has opened, or the verdict of its CONNECT."""
        wire = await self.opened(world, address)
        if case.original.role:
            fields["original_principal"] = case.original.role
        if case.original.credentials.method:
            fields["original_auth_method"] = case.original.credentials.method
            fields["original_auth_data"] = case.original.credentials.data.reveal()
        found = await wire.ask(
            world,
            2,
            3,
            client_version="matrix",
            protocol_version=20,
            auth_method_name=case.shown.method,
            auth_data=case.shown.data.reveal(),
            **fields,
        )
        return wire if found == DONE else found


def http_request(
    method: str,
    path: str,
    case: Case,
    body: object = None,
    query: Mapping[str, str] = MappingProxyType({}),
    peer: str = "10.0.0.1:5",
) -> HttpRequest:
    """Return a request of a caller."""
    headers = {"authorization": f"Bearer {case.shown.data.reveal().decode()}"}
    if not case.shown.data:
        headers = {}
    if case.original.role:
        headers["x-original-principal"] = case.original.role
    return HttpRequest(
        method,
        path,
        dict(query),
        headers,
        b"" if body is None else msgspec.json.encode(body),
        tuple(path.strip("/").split("/")),
        peer=peer,
    )


def in_site(scenario: Callable[[RightsSite, Matrix], Awaitable[None]]) -> Matrix:
    """Run a scenario on a cluster of its own, and return the matrix that it fills."""
    sim, matrix = Simulation(1), Matrix()

    async def main() -> None:
        with TemporaryDirectory() as directory:
            site = RightsSite(sim, Path(directory))
            await site.start()
            await scenario(site, matrix)

    sim.run(main, 3_600.0)
    return matrix
