"""What a client of a proxy may hold of it, whatever it sends: only its own connection ends, and
others are served.
"""

from __future__ import annotations

import asyncio
import struct

import pytest

from pulsarish.metadata.records import BrokerRegistration, ListenerAddresses
from pulsarish.model.errors import NotAllowedError
from pulsarish.proxy.brokers import KnownBrokers
from pulsarish.proxy.config import ProxyConfig
from pulsarish.runtime.seams import World
from pulsarish.sim.programs.hostile_frames import frame
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import command_frame
from tests.integration.test_proxy import PROXY, TOPICS, Plain, look_up, run, through
from tests.support.binary_client import BinaryClient
from tests.support.brokers import BrokerCluster

CONNECT = "proxy:6655"
MIB = 1 << 20


async def plain(world: World, address: str = PROXY, sent: bytes = b"") -> Plain:
    connection = await world.connections.open_bytes(address, Plain)
    assert isinstance(connection, Plain)
    assert connection.transport is not None
    connection.transport.write(sent)
    return connection


async def serves(world: World) -> BinaryClient:
    """A connection that is relayed, after a lookup."""
    found = await look_up(await BinaryClient.connect(world, PROXY), TOPICS[0])
    client = await through(world, found.broker_service_url)
    assert not client.lost
    return client


def open_questions() -> list[str]:
    """The questions of all clients that the proxy has asked brokers."""
    return [
        task.get_name()
        for task in asyncio.all_tasks()
        if task.get_name().startswith("question client:")
    ]


def incomplete(size_bytes: int, sent_bytes: int) -> bytes:
    """The beginning of a frame."""
    return struct.pack(">II", size_bytes, 10) + bytes(sent_bytes)


@pytest.mark.parametrize(
    ("address", "sent"),
    [(PROXY, b""), (PROXY, b"\0\0"), (CONNECT, b""), (CONNECT, b"CONNECT broker0:66")],
)
def test_a_connection_that_does_not_begin_in_time_is_ended(address: str, sent: bytes) -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        client, silent = await serves(world), await plain(world, address, sent)
        await world.clock.sleep(3.5)
        assert silent.lost
        assert not client.lost

    run(scenario, connect_timeout_seconds=3.0)


@pytest.mark.parametrize(
    "question", [pb.Command(type=23, lookup=pb.LookupTopic(topic=TOPICS[0])), pb.Command(type=34)]
)
def test_a_question_without_a_required_field_is_refused(question: pb.Command) -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, PROXY)
        client.write(frame(question.SerializePartialToString()))
        await world.clock.sleep(0.5)
        assert client.lost
        _ = await serves(world)

    run(scenario)


def test_connections_that_have_not_begun_make_room() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        client = await serves(world)
        silent = [await plain(world, address) for address in (PROXY, CONNECT) * 6]
        await world.clock.sleep(0.5)
        assert sum(each.lost for each in silent) == 6, (
            "client and its lookups have two of eight places"
        )
        _ = await serves(world)
        assert not client.lost

    run(scenario, connections_max=8)


def test_connections_that_ended_leave_no_task_behind() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        for connection in [await plain(world, address) for address in (PROXY, CONNECT) * 20]:
            assert connection.transport is not None
            connection.transport.abort()
        await world.clock.sleep(1)
        left = [task.get_name() for task in asyncio.all_tasks() if "client:" in task.get_name()]
        assert left == []

    run(scenario)


def test_the_first_frame_is_small() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        large = await plain(world, sent=incomplete(5 * MIB, 10))
        await world.clock.sleep(0.5)
        assert large.lost
        _ = await serves(world)

    run(scenario)


def test_incomplete_frames_of_all_clients_are_bounded() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        holders = [await BinaryClient.connect(world, PROXY) for _ in range(6)]
        for each in holders:
            each.write(incomplete(MIB, 400_000))
            await world.clock.sleep(0.5)
        assert [each.lost for each in holders] == [True] * 4 + [False] * 2
        _ = await serves(world)

    run(scenario, max_partial_input_bytes=MIB)


def test_answers_that_are_not_read_are_bounded() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        lookups = await BinaryClient.connect(world, PROXY)
        for number in range(10):
            topic = f"persistent://public/default/{'x' * 200}{number}"
            owner = await through(world, (await look_up(lookups, topic)).broker_service_url)
            await owner.open_producer(1, topic)
        clients = [await BinaryClient.connect(world, PROXY) for _ in range(8)]
        ask = pb.GetTopicsOfNamespace(request_id=1, namespace="public/default")
        for client in clients:
            assert client.transport is not None
            client.transport.pause_reading()
            client.write(command_frame(pb.Command(type=32, get_topics_of_namespace=ask)) * 400)
        await world.clock.sleep(20)
        for client in clients:
            assert client.transport is not None
            client.transport.resume_reading()
        await world.clock.sleep(1)
        assert any(client.lost for client in clients)
        _ = await serves(world)

    run(scenario, max_unsent_bytes=100_000)


def test_questions_are_small() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        large = await BinaryClient.connect(world, PROXY)
        large.write(incomplete(5 * MIB, 10))
        await world.clock.sleep(0.5)
        assert large.lost
        _ = await serves(world)

    run(scenario)


def test_unanswered_questions_are_bounded_and_end_with_their_connections() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, PROXY)
        topics = {(await look_up(client, topic)).broker_service_url: topic for topic in TOPICS}
        assert topics.keys() == {"pulsar://broker0:6650", "pulsar://broker1:6650"}
        for node in cluster.nodes.values():
            node.pause()
        question = command_frame(
            pb.Command(type=23, lookup=pb.LookupTopic(topic=TOPICS[0], request_id=1))
        )
        askers = [await BinaryClient.connect(world, PROXY) for _ in range(4)]
        for asker in askers:
            asker.write(question * 3_000)
            await world.clock.sleep(0.5)
        assert len(open_questions()) == 40, (
            "20 of each connection, and the two oldest connections are ended"
        )
        assert [asker.lost for asker in askers] == [True, True, False, False]
        brief = await BinaryClient.connect(world, PROXY)
        brief.write(question * 5)
        await world.clock.sleep(0.5)
        assert len(open_questions()) == 45
        assert brief.transport is not None
        brief.transport.abort()
        await world.clock.sleep(0.5)
        assert len(open_questions()) == 40
        for node in cluster.nodes.values():
            node.resume()
        _ = await serves(world)

    run(scenario, max_partial_input_bytes=300_000)


def test_all_questions_of_a_client_are_answered() -> None:
    async def scenario(_cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, PROXY)
        asked = [
            pb.PartitionedMetadata(topic=TOPICS[0], request_id=number) for number in range(1_000)
        ]
        client.write(
            b"".join(
                command_frame(pb.Command(type=21, partitioned_metadata=each)) for each in asked
            )
        )
        answers = [
            (await client.next(22)).command.partitioned_metadata_response.request_id for _ in asked
        ]
        assert sorted(answers) == list(range(1_000))

    run(scenario)


def test_what_a_broker_does_not_receive_is_bounded() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        found = await look_up(await BinaryClient.connect(world, PROXY), TOPICS[0])
        clients = [await through(world, found.broker_service_url) for _ in range(8)]
        for node in cluster.nodes.values():
            node.pause()
        for client in clients:
            client.write(bytes(8 * MIB))
        await world.clock.sleep(5)
        assert sum(client.lost for client in clients) > 1
        for node in cluster.nodes.values():
            node.resume()
        _ = await serves(world)

    run(scenario, max_partial_input_bytes=100_000)


def test_ports_for_administration_are_relayed_only_with_the_option() -> None:
    sim = Simulation(1)
    told = {"external": ListenerAddresses("lb:6660", "lb:8080", "")}
    broker = BrokerRegistration("b", "b~1", "b:6660", "b:8080", "b:6650", listeners=told)

    async def main() -> None:
        async def node(world: World) -> None:
            for option in (False, True):
                brokers = KnownBrokers(world, ProxyConfig(relay_administration=option))
                brokers._use([broker])
                for address in ("b:6660", "b:6650", "lb:6660"):
                    brokers.check(address)
                for address in ("b:8080", "lb:8080"):
                    if option:
                        brokers.check(address)
                    else:
                        with pytest.raises(NotAllowedError, match="relay_administration"):
                            brokers.check(address)
                assert brokers.binary("b:6650") == "b:6650"
                for address in ("", "b:6660", "b:8080", "c:6650"):
                    with pytest.raises(NotAllowedError):
                        brokers.binary(address)
                with pytest.raises(NotAllowedError, match="not an address for clients"):
                    brokers.check("")

        await sim.node("n").run(node)

    sim.run(main, 10.0)
