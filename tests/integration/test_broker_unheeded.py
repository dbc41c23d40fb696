"""The log and statistics report unsupported requests, and no topic is created against a client's
request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pulsarish.runtime.seams import HttpRequest, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry
from tests.integration.test_broker_http import Web
from tests.support.binary_client import BinaryClient
from tests.support.brokers import BrokerCluster, find

TOPIC = "persistent://public/default/t"
BINARY = "broker0:6650"
Scenario = Callable[[BrokerCluster, World, Web], Awaitable[None]]


def run(scenario: Scenario) -> None:
    sim = Simulation(1)
    cluster = BrokerCluster(sim, brokers=1)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            await find(world, ["broker0"], TOPIC)
            await scenario(cluster, world, Web(cluster))

        await sim.node("client").run(client)

    sim.run(main, 600.0)


def told(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(words in line.getMessage() for line in caplog.records if line.levelname == "WARNING")


def test_a_consumer_that_is_not_to_make_its_topic_does_not_revive_a_deleted_one() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        client = await BinaryClient.connect(world, BINARY)
        refused = (await client.subscribe(1, TOPIC, force_topic_creation=False)).command.error
        assert (refused.error, "does not exist" in refused.message) == (pb.TOPIC_NOT_FOUND, True)
        assert await web("GET", "/admin/v2/persistent/public/default") == (200, [])
        assert (await client.subscribe(1, TOPIC)).command.type == 13
        assert (
            await client.subscribe(2, TOPIC, subscription="other", force_topic_creation=False)
        ).command.type == 13

    run(scenario)


def test_partitions_are_there_for_a_consumer_that_is_not_to_make_its_topic() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (await web("PUT", "/admin/v2/persistent/public/default/parts/partitions", 2))[
            0
        ] == 204
        client = await BinaryClient.connect(world, BINARY)
        for index, kind in ((1, 13), (2, 14)):
            name = f"persistent://public/default/parts-partition-{index}"
            await find(world, ["broker0"], name)
            assert (
                await client.subscribe(index, name, force_topic_creation=False)
            ).command.type == kind

    run(scenario)


def test_credentials_that_nobody_checks_are_in_the_log_once_for_each_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        for connect in (
            pb.Connect(client_version="x"),
            pb.Connect(client_version="x", auth_method_name="token", auth_data=b"secret"),
        ):
            client = await BinaryClient.connect(world, BINARY, shake_hands=False)
            client.say(pb.Command(type=2, connect=connect))
            await client.next(3)
        assert told(caplog, "its credentials are not checked") == 1
        request = HttpRequest(
            "GET",
            "/admin/v2/clusters",
            {},
            {"authorization": "Bearer secret"},
            b"",
            ("admin", "v2", "clusters"),
        )
        for _ in range(2):
            assert (await cluster.brokers["broker0"].http.handle(request)).status == 200
        assert told(caplog, "carry an Authorization header") == 1
        assert "secret" not in caplog.text

    run(scenario)


def test_admin_roles_that_nobody_checks_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (await web("PUT", "/admin/v2/tenants/plain", {}))[0] == 204
        assert told(caplog, "authorization_enabled is false") == 0
        assert (await web("PUT", "/admin/v2/tenants/guarded", {"adminRoles": ["alice"]}))[0] == 204
        assert told(caplog, "authorization_enabled is false") == 1

    run(scenario)


def test_replication_that_is_asked_for_is_said_to_be_without_an_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.subscribe(1, TOPIC, replicate_subscription_state=True)
        assert told(caplog, "a replicated subscription, which is not replicated") == 1
        for producer_id, clusters in ((1, ["__local__"]), (2, ["far", "pulsarish"])):
            name = f"p{producer_id}"
            await client.open_producer(producer_id, TOPIC, name=name)
            for number in range(2):
                metadata = MessageMetadata(
                    producer_name=name, sequence_id=number, publish_time=1, replicate_to=clusters
                )
                client.send(producer_id, number, encode_entry(metadata, b"x"))
                await client.next(7)
        assert told(caplog, "name other clusters and are not replicated") == 1
        _, stats = await web("GET", "/admin/v2/persistent/public/default/t/stats")
        assert {
            each["producerName"]: each["replicationIgnored"] for each in stats["publishers"]
        } == {"p1": False, "p2": True}
        assert [
            each["replicationIgnored"] for each in stats["subscriptions"]["s"]["consumers"]
        ] == [True]

    run(scenario)
