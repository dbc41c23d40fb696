"""Bookies with a cluster key serve members only."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from pulsarish.bookie.access import PERMISSIONS
from pulsarish.bookie.bookie import Bookie
from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.model.errors import AuthenticationError, AuthorizationError
from pulsarish.runtime.cluster_members import read_cluster_key
from pulsarish.runtime.seams import CallFailed, StreamBroken, World
from pulsarish.security.cluster_key import CLUSTER_METHOD
from pulsarish.security.credentials import Credentials
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import bookie_pb2 as pb
from pulsarish.wire.bookie import ReadItem, encode_read
from tests.support.bookies import small_config
from tests.support.brokers import BrokerCluster

CALLS: dict[str, tuple[Any, Any]] = {
    "bookie.fence": (pb.FenceRequest(ledger=1), pb.FenceResponse),
    "bookie.read_lac": (pb.ReadLacRequest(ledger=1), pb.ReadLacResponse),
    "bookie.recovery_read": (pb.RecoveryReadRequest(ledger=1), pb.RecoveryReadResponse),
    "bookie.list_ledgers": (pb.ListLedgersRequest(), pb.ListLedgersResponse),
    "bookie.list_entries": (pb.ListEntriesRequest(ledger=1), pb.ListEntriesResponse),
    "bookie.clear_limbo": (pb.ClearLimboRequest(), pb.ClearLimboResponse),
    "bookie.list_trash": (pb.ListTrashRequest(), pb.ListTrashResponse),
    "bookie.change_trash": (pb.ChangeTrashRequest(), pb.ChangeTrashResponse),
    "bookie.collect_garbage": (pb.CollectGarbageRequest(), pb.CollectGarbageResponse),
    "bookie.add_volume": (pb.AddVolumeRequest(add=True), pb.AddVolumeResponse),
    "bookie.volume": (pb.VolumeRequest(), pb.VolumeResponse),
    "bookie.write_lacs": (pb.WriteLacsRequest(), None),
    "bookie.status": (pb.StatusRequest(), None),
}
"""Each call of a bookie, and its answer when that can carry a refusal."""
REFUSALS = (AuthenticationError, AuthorizationError)


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "key"
    path.write_bytes(b64encode(b"k" * 32))
    path.chmod(0o600)
    return str(path)


def play(key_file: str, role: str | None, refused: dict[str, int]) -> None:
    sim = Simulation(1)

    async def serve(world: World) -> Bookie:
        bookie = Bookie(world, small_config("b", cluster_key_file=key_file))
        await bookie.start()
        assert set(CALLS) == set(bookie.service.calls())
        assert set(bookie.service.streams()) == {"bookie.add", "bookie.read"}
        assert set(PERMISSIONS) == {*bookie.service.calls(), *bookie.service.streams()}
        return bookie

    async def call(world: World, address: str) -> None:
        assert isinstance(world.connections, SimConnections)
        if role is not None:
            key = read_cluster_key(key_file, world.clock.wall_ms)
            if role in ("auditor", "reader"):
                token = key.reader_token(60_000, [1] if role == "reader" else None)
                shown = Credentials(CLUSTER_METHOD, token)
                world.connections.credentials = lambda: shown
            else:
                world.connections.credentials = key.credentials_of(role)
        codes: dict[str, int] = {}
        for method, (request, kind) in CALLS.items():
            try:
                data = await world.connections.call(
                    address, method, request.SerializeToString(), timeout_seconds=5.0
                )
            except CallFailed as failed:
                text = str(failed)
                codes[method] = (
                    AuthenticationError.code
                    if "only members" in text
                    else AuthorizationError.code
                    if "of the cluster may not use" in text
                    else 0
                )
                continue
            codes[method] = 0 if kind is None else kind.FromString(data).code
        for method in ("bookie.add", "bookie.read"):
            stream = await world.connections.open(address, method)
            await world.clock.sleep(0.1)
            try:
                await stream.send([b""])
                codes[method] = 0
            except StreamBroken as broken:
                (found,) = (error for error in REFUSALS if error.__name__ in str(broken))
                codes[method] = found.code
            stream.abort("done")
        codes = {m: c for m, c in codes.items() if c in {each.code for each in REFUSALS}}
        assert codes == refused

    async def main() -> None:
        node = sim.node("b")
        node.expected_errors = REFUSALS  # of calls whose answer carries no error
        bookie = await node.run(serve)
        await sim.node("c").run(lambda world: call(world, bookie.address))

    sim.run(main, 600.0)


def test_a_stranger_may_call_nothing(key_file: str) -> None:
    everything = [*CALLS, "bookie.add", "bookie.read"]
    play(key_file, None, dict.fromkeys(everything, AuthenticationError.code))


OWNERS_ALONE = {
    "bookie.write_lacs",
    "bookie.change_trash",
    "bookie.collect_garbage",
    "bookie.volume",
    "bookie.add_volume",
}
CHANGES = {"bookie.add", "bookie.fence", "bookie.recovery_read", "bookie.clear_limbo"}
LISTS = {"bookie.list_ledgers", "bookie.list_entries", "bookie.status"}


@pytest.mark.parametrize(
    ("role", "refused"),
    [
        ("broker", set()),
        ("operator", set()),
        ("autorecovery", OWNERS_ALONE | {"bookie.list_trash"}),
        ("bookie", OWNERS_ALONE | {"bookie.list_trash"}),
        ("auditor", OWNERS_ALONE | CHANGES),
        ("reader", OWNERS_ALONE | CHANGES | LISTS | {"bookie.list_trash"}),
    ],
)
def test_a_member_may_call_what_its_role_needs(key_file: str, role: str, refused: set[str]) -> None:
    play(key_file, role, dict.fromkeys(refused, AuthorizationError.code))


def test_another_role_may_call_nothing(key_file: str) -> None:
    everything = [*CALLS, "bookie.add", "bookie.read"]
    play(key_file, "ann", dict.fromkeys(everything, AuthorizationError.code))


def test_brokers_show_what_bookies_want(key_file: str) -> None:
    sim = Simulation(1)
    cluster = BrokerCluster(sim, brokers=2, cluster_key_file=key_file)

    async def publish(world: World) -> None:
        client = AsyncClient(
            "pulsarish://broker0:6660,broker1:6660",
            clock=world.clock,
            random=world.random,
            tasks=world.tasks,
            connect=lambda _: world.connections,
        )
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s")
        for number in range(10):
            await producer.send(str(number).encode())
        for number in range(10):
            message = await consumer.receive()
            assert message.data() == str(number).encode()
            await consumer.acknowledge(message)
        # Past the end of the first tokens, and with another owner, which recovers the ledger.
        await world.clock.sleep(900.0)
        for broker in cluster.brokers.values():
            await broker._topics.hand_over_all()
        await producer.send(b"last")
        assert (await consumer.receive()).data() == b"last"
        await client.close()

    async def main() -> None:
        await cluster.start()
        await sim.node("client").run(publish)

    sim.run(main, 3_000.0)


def replace_key(key_file: str) -> None:
    Path(key_file).write_bytes(b64encode(b"n" * 32) + b"\n")


def test_a_reader_reads_only_the_ledgers_of_its_token_and_loses_its_stream_with_the_key(
    key_file: str,
) -> None:
    sim = Simulation(1)

    async def serve(world: World) -> Bookie:
        bookie = Bookie(world, small_config("b", cluster_key_file=key_file))
        await bookie.start()
        return bookie

    async def read(world: World, bookie: Bookie) -> None:
        assert isinstance(world.connections, SimConnections)
        key = read_cluster_key(key_file, world.clock.wall_ms)
        shown = Credentials(CLUSTER_METHOD, key.reader_token(60_000, [1]))
        world.connections.credentials = lambda: shown
        for ledger, refused in ((1, False), (2, True)):
            stream = await world.connections.open(bookie.address, "bookie.read")
            item = ReadItem(1, ledger, [(0, 0)], 1_000)
            await stream.send([encode_read(bookie.instance_id, [item])])
            if refused:
                with pytest.raises(StreamBroken, match="does not name ledger 2"):
                    await stream.receive()
            else:
                assert await stream.receive()
                kept = stream
            request = pb.ReadLacRequest(instance_id=bookie.instance_id, ledger=ledger)
            data = await world.connections.call(
                bookie.address,
                "bookie.read_lac",
                request.SerializeToString(),
                timeout_seconds=5.0,
            )
            code = pb.ReadLacResponse.FromString(data).code
            assert (code == AuthorizationError.code) is refused
        replace_key(key_file)
        async with world.clock.timeout(3.0):
            with pytest.raises(StreamBroken, match="removed from cluster_key_file"):
                await kept.receive()

    async def main() -> None:
        bookie = await sim.node("b").run(serve)
        await sim.node("c").run(lambda world: read(world, bookie))

    sim.run(main, 600.0)
