"""What a client of the binary protocol may hold of a broker, whatever it sends: only its own
connection ends, and others are served.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from pulsarish.runtime.seams import World
from pulsarish.security.identity import Identity
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import command_frame
from tests.support.binary_client import BinaryClient
from tests.support.brokers import BrokerCluster, find

TOPIC = "persistent://public/default/t"
BINARY = "broker0:6650"
MIB = 1 << 20


def run(scenario: Callable[[BrokerCluster, World], Awaitable[None]], **settings: object) -> None:
    sim = Simulation(1)
    cluster = BrokerCluster(sim, brokers=1, **settings)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            assert await find(world, ["broker0"], TOPIC) == "broker0:6660"
            await scenario(cluster, world)

        await sim.node("client").run(client)

    sim.run(main, 600.0)


def incomplete_frame(size_bytes: int, sent_bytes: int) -> bytes:
    """The beginning of a frame with a command of 10 bytes."""
    return struct.pack(">II", size_bytes, 10) + bytes(sent_bytes)


def producer_frame(number: int) -> bytes:
    return command_frame(
        pb.Command(type=5, producer=pb.Producer(topic=TOPIC, producer_id=number, request_id=number))
    )


def test_a_connection_without_connect_is_ended() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        silent = await BinaryClient.connect(world, BINARY, shake_hands=False)
        usual = await BinaryClient.connect(world, BINARY)
        await world.clock.sleep(3.5)
        assert silent.lost
        assert not usual.lost

    run(scenario, connect_timeout_seconds=3.0)


def test_lookups_of_one_piece_are_taken_some_at_a_time_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All at once, those of 50 clients took 900 MB and stopped the broker's loop for 15 s."""

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        (connection,) = cluster.brokers["broker0"]._binary._connections
        answer = connection._questions.answer

        async def answer_later(
            question: pb.Command, came_in_on: str, identity: Identity, *, has_tls: bool
        ) -> pb.Command | None:
            await world.clock.sleep(0.01)
            return await answer(question, came_in_on, identity, has_tls=has_tls)

        monkeypatch.setattr(connection._questions, "answer", answer_later)
        asked = [
            command_frame(
                pb.Command(
                    type=23,
                    lookup=pb.LookupTopic(topic=TOPIC, request_id=number, authoritative=True),
                )
            )
            for number in range(2_000)
        ]
        client.write(b"".join(asked) + producer_frame(7))
        open_max = 0
        while len(client.heard) < 2_001:
            open_max = max(open_max, connection._questions_open)
            await world.clock.sleep(0.0005)
        assert 0 < open_max <= 100
        assert sorted(
            each.command.lookup_response.request_id
            for each in client.heard
            if each.command.type == 24
        ) == list(range(2_000))
        assert client.heard[-1].command.type == 17, "what came last is handled last"
        assert connection._behind == []

    run(scenario)


def test_connections_that_ended_leave_no_task_behind() -> None:
    """A task that sleeps keeps its connection: those of 15,000 connections in 18 s took 164 MB."""

    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        for shake_hands in (False, True):
            clients = [
                await BinaryClient.connect(world, BINARY, shake_hands=shake_hands)
                for _ in range(20)
            ]
            for client in clients:
                assert client.transport is not None
                client.transport.abort()
        await world.clock.sleep(1)
        assert [
            task.get_name() for task in asyncio.all_tasks() if "client:" in task.get_name()
        ] == []

    run(scenario)


def test_the_first_frame_is_small() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY, shake_hands=False)
        client.write(incomplete_frame(5 * MIB, 100))
        await world.clock.sleep(1)
        assert client.lost
        usual = await BinaryClient.connect(world, BINARY)
        usual.write(incomplete_frame(5 * MIB, 100))
        await world.clock.sleep(1)
        assert not usual.lost

    run(scenario)


def test_incomplete_frames_have_one_budget() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        clients = [await BinaryClient.connect(world, BINARY) for _ in range(4)]
        for client in clients[:3]:
            client.write(incomplete_frame(MIB, 400_000))
            await world.clock.sleep(1)
        assert [client.lost for client in clients] == [True, False, False, False]
        clients[3].say(pb.Command(type=18, ping=pb.Ping()))
        await clients[3].next(19)

    run(scenario, max_partial_input_bytes=MIB)


def test_a_frame_in_many_small_pieces_is_read() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        for byte in producer_frame(1):
            client.write(bytes([byte]))
            await world.clock.sleep(0.001)
        await client.next(17)

    run(scenario)


def test_producers_of_one_connection_are_limited() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        client.write(b"".join(producer_frame(number) for number in range(1, 6)))
        refused = (await client.next(14)).command.error
        assert refused.error == pb.PRODUCER_BUSY
        assert "max_producers_per_connection" in refused.message
        opened = {(await client.next(17)).command.producer_success.request_id for _ in range(3)}
        assert opened == {1, 2, 3}
        client.say(
            pb.Command(type=15, close_producer=pb.CloseProducer(producer_id=1, request_id=9))
        )
        client.write(producer_frame(6))
        assert (await client.next(17)).command.producer_success.request_id == 6

    run(scenario, max_producers_per_connection=3)


def test_consumers_of_one_connection_are_limited() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        for number in (1, 2):
            subscribe = pb.Subscribe(
                topic=TOPIC, subscription="s", sub_type=1, consumer_id=number, request_id=number
            )
            client.say(pb.Command(type=4, subscribe=subscribe))
        refused = (await client.next(14)).command.error
        assert (refused.request_id, refused.error) == (2, pb.CONSUMER_BUSY)

    run(scenario, max_consumers_per_connection=1)


def test_many_openings_at_once_are_all_answered() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        client.write(b"".join(producer_frame(number) for number in range(1, 2_501)))
        opened = {(await client.next(17)).command.producer_success.request_id for _ in range(2_500)}
        assert len(opened) == 2_500

    run(scenario)


def test_a_new_connection_takes_the_place_of_the_oldest_silent_one() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        silent = [await BinaryClient.connect(world, BINARY, shake_hands=False) for _ in range(3)]
        first = await BinaryClient.connect(world, BINARY)
        second = await BinaryClient.connect(world, BINARY)
        await world.clock.sleep(0.5)
        assert [client.lost for client in silent] == [True, True, False]
        third = await BinaryClient.connect(world, BINARY)
        refused = await BinaryClient.connect(world, BINARY, shake_hands=False)
        await world.clock.sleep(0.5)
        assert refused.lost
        assert not (first.lost)
        assert not (second.lost)
        assert not (third.lost)

    run(scenario, broker_max_connections=3)


def test_one_address_has_a_share_of_the_connections() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        for _ in range(2):
            await BinaryClient.connect(world, BINARY)
        refused = await BinaryClient.connect(world, BINARY, shake_hands=False)
        error = (await refused.next(14)).command.error
        assert error.error == pb.NOT_ALLOWED_ERROR
        assert "has 2 connections open, the limit for one address; close others" in error.message
        await refused.until_lost()

    run(scenario, broker_max_connections_per_ip=2)
