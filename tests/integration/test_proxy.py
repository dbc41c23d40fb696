"""A proxy in front of brokers that its clients cannot reach: lookups, relaying, what it refuses,
and what it does when brokers go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from pulsarish.proxy.config import ProxyConfig
from pulsarish.proxy.main import Proxy
from pulsarish.runtime.seams import World
from pulsarish.security.authentication import Authenticator
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import command_frame
from tests.support.binary_client import BinaryClient
from tests.support.brokers import BrokerCluster, entry
from tests.support.identities import NamedRoles

TOPICS = [f"persistent://public/default/t{number}" for number in range(8)]
PROXY = "proxy:6650"


def run(
    scenario: Callable[[BrokerCluster, World], Awaitable[None]],
    *,
    brokers: int = 2,
    allowed: tuple[str, ...] = (),
    authenticator: Authenticator | None = None,
    **settings: Any,
) -> None:
    sim = Simulation(1)
    cluster = BrokerCluster(sim, brokers=brokers, authenticator=authenticator)

    async def main() -> None:
        await cluster.start()

        async def proxy(world: World) -> None:
            config = ProxyConfig(
                pulsar_address=PROXY,
                http_address="proxy:8080",
                connect_address="proxy:6655",
                metadata_url="memory:",
                allowed_brokers=allowed,
                **settings,
            )
            await Proxy(world, config).start()

        async def client(world: World) -> None:
            await scenario(cluster, world)

        await sim.node("proxy").run(proxy)
        await sim.node("client").run(client)

    sim.run(main, 600.0)


async def look_up(client: BinaryClient, topic: str) -> pb.LookupTopicResponse:
    while True:
        client.say(
            pb.Command(type=23, lookup=pb.LookupTopic(topic=topic, request_id=client.request()))
        )
        found = (await client.next(24)).command.lookup_response
        if found.response == pb.LookupTopicResponse.CONNECT or found.error != pb.METADATA_ERROR:
            return found
        await client.world.clock.sleep(0.2)


async def through(world: World, broker_url: str) -> BinaryClient:
    """As an official client connects after a lookup that says proxy_through_service_url."""
    client = await BinaryClient.connect(world, PROXY, shake_hands=False)
    connect = pb.Connect(
        client_version="test",
        protocol_version=19,
        proxy_to_broker_url=broker_url.removeprefix("pulsar://"),
    )
    client.say(pb.Command(type=2, connect=connect))
    await client.next(3, 14)
    return client


def test_clients_publish_and_consume_through_one_address() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        questions = await BinaryClient.connect(world, PROXY)
        owners = set()
        for topic in TOPICS:
            found = await look_up(questions, topic)
            assert found.proxy_through_service_url
            owners.add(found.broker_service_url)
            client = await through(world, found.broker_service_url)
            assert (await client.open_producer(1, topic)).command.type == 17
            big = entry("p", 0, b"x" * 400_000)
            client.send(1, 0, big)
            await client.next(7)
            await client.subscribe(1, topic)
            assert (await client.next(9)).payload == big
        assert owners == {"pulsar://broker0:6650", "pulsar://broker1:6650"}
        questions.say(
            pb.Command(
                type=21, partitioned_metadata=pb.PartitionedMetadata(topic=TOPICS[0], request_id=77)
            )
        )
        assert (await questions.next(22)).command.partitioned_metadata_response.request_id == 77
        questions.say(
            pb.Command(
                type=32,
                get_topics_of_namespace=pb.GetTopicsOfNamespace(
                    request_id=78, namespace="public/default"
                ),
            )
        )
        assert (
            list((await questions.next(33)).command.get_topics_of_namespace_response.topics)
            == TOPICS
        )

    run(scenario)


def test_nothing_but_brokers_is_connected_to() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        for address in (
            "bookie0:3181",
            "proxy:8080",
            "nowhere:1",
            "broker1:6650",
            "broker0:6660",
            "broker0:8080",
        ):
            client = await BinaryClient.connect(world, PROXY, shake_hands=False)
            connect = pb.Connect(
                client_version="test", protocol_version=19, proxy_to_broker_url=address
            )
            client.say(pb.Command(type=2, connect=connect))
            assert (await client.next(14)).command.error.error == pb.NOT_ALLOWED_ERROR
            await client.until_lost()
        assert (await through(world, "broker0:6650")).lost is False

    run(scenario, allowed=("broker0:6650",))


def test_a_connection_for_lookups_serves_no_producers() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, PROXY)
        refused = (await client.open_producer(1, TOPICS[0])).command.error
        assert (refused.error, "for lookups" in refused.message) == (pb.NOT_ALLOWED_ERROR, True)
        wrong = await BinaryClient.connect(world, PROXY, shake_hands=False)
        wrong.say(pb.Command(type=18, ping=pb.Ping()))
        await wrong.until_lost()

    run(scenario)


def test_a_broker_that_dies_ends_its_connections_and_the_next_lookup_finds_another() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        questions = await BinaryClient.connect(world, PROXY)
        found = await look_up(questions, TOPICS[0])
        client = await through(world, found.broker_service_url)
        await client.open_producer(1, TOPICS[0])
        owner = found.broker_service_url.removeprefix("pulsar://").partition(":")[0]
        cluster.nodes[owner].crash()
        await client.until_lost()
        while (found := await look_up(questions, TOPICS[0])).broker_service_url.startswith(
            f"pulsar://{owner}"
        ):
            await world.clock.sleep(0.2)
        client = await through(world, found.broker_service_url)
        assert (await client.open_producer(1, TOPICS[0])).command.type == 17
        assert not questions.lost

    run(scenario)


def test_a_slow_client_slows_the_broker_and_not_the_proxy() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        questions = await BinaryClient.connect(world, PROXY)
        owner = (await look_up(questions, TOPICS[0])).broker_service_url
        producer, slow = await through(world, owner), await through(world, owner)
        await producer.open_producer(1, TOPICS[0])
        await slow.subscribe(1, TOPICS[0], permits=10_000)
        assert slow.transport is not None
        slow.transport.pause_reading()
        for number in range(200):
            producer.send(1, number, entry("p", number, b"x" * 100_000))
        for _ in range(200):
            await producer.next(7)
        slow.transport.resume_reading()
        assert len(await slow.take(200)) == 200

    run(scenario)


class Plain(asyncio.Protocol):
    """A connection of which all that came is kept."""

    def __init__(self) -> None:
        self.data = b""
        self.lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"CONNECT broker0:6650 HTTP/1.1", b"200"),
        (b"CONNECT broker0:8080 HTTP/1.1", b"403"),
        (b"CONNECT bookie0:3181 HTTP/1.1", b"403"),
        (b"CONNECT 169.254.169.254:80 HTTP/1.1", b"403"),
        (b"GET http://broker0:8080/ HTTP/1.1", b"405"),
        (b"CONNECT broker0 HTTP/1.1", b"405"),
        (b"x" * 20_000, b"405"),
    ],
)
def test_connect_of_http_reaches_brokers_and_nothing_else(
    request_line: bytes, status: bytes
) -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        await look_up(await BinaryClient.connect(world, PROXY), TOPICS[0])
        plain = await world.connections.open_bytes("proxy:6655", Plain)
        assert isinstance(plain, Plain)
        assert plain.transport is not None
        plain.transport.write(request_line + b"\r\nHost: x\r\n\r\n")
        while b"\r\n\r\n" not in plain.data:
            await world.clock.sleep(0.01)
        assert plain.data.startswith(b"HTTP/1.1 " + status)
        if status == b"200":
            plain.transport.write(
                command_frame(
                    pb.Command(type=2, connect=pb.Connect(client_version="x", protocol_version=19))
                )
            )
            while b"Pulsarish" not in plain.data:
                await world.clock.sleep(0.01)
        else:
            while not plain.lost:
                await world.clock.sleep(0.01)

    run(scenario)


def test_brokers_check_the_clients_of_a_proxy() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        async def client(role: str) -> BinaryClient:
            found = await BinaryClient.connect(world, PROXY, shake_hands=False)
            connect = pb.Connect(
                client_version="test",
                protocol_version=19,
                auth_method_name="token" if role else "none",
                auth_data=role.encode(),
            )
            found.say(pb.Command(type=2, connect=connect))
            await found.next(3)
            return found

        ann = await client("ann")
        found = await look_up(ann, TOPICS[0])
        assert found.response == pb.LookupTopicResponse.CONNECT
        # Others do not use the connection on which ann's questions are asked.
        for role in ("", "wrong"):
            refused = await look_up(await client(role), TOPICS[0])
            assert refused.response == pb.LookupTopicResponse.FAILED
            assert refused.error == pb.AUTHENTICATION_ERROR
        relayed = await through(world, found.broker_service_url)
        assert relayed.heard == []
        assert relayed.lost

    run(scenario, authenticator=NamedRoles())
