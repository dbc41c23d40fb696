"""Requests of binary clients that come a second time, or exceed a limit: the answers are those of
Apache Pulsar.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pulsarish.model.schema import SchemaType
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry, parse_metadata
from pulsarish.wire.pulsar_frames import command_frame
from tests.support.binary_client import BinaryClient, send_frame
from tests.support.brokers import BrokerCluster, entry, find

TOPIC = "persistent://public/default/t"
BINARY = "broker0:6650"
Scenario = Callable[[BrokerCluster, World, BinaryClient], Awaitable[None]]


def run(scenario: Scenario, **settings: object) -> None:
    sim = Simulation(1)
    cluster = BrokerCluster(sim, brokers=1, **settings)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            await find(world, ["broker0"], TOPIC)
            await scenario(cluster, world, await BinaryClient.connect(world, BINARY))

        await sim.node("client").run(client)

    sim.run(main, 600.0)


def test_a_producer_that_is_open_is_opened_again_with_the_same_answer() -> None:
    """A client whose request timed out asks again with the same id, often before it knows its
    name.
    """

    async def scenario(cluster: BrokerCluster, world: World, client: BinaryClient) -> None:
        for access in (0, 1):  # Shared, Exclusive
            topic = f"{TOPIC}-{access}"
            await find(world, ["broker0"], topic)
            first = (
                await client.open_producer(1 + access, topic, name="", producer_access_mode=access)
            ).command.producer_success
            again = (
                await client.open_producer(1 + access, topic, name="", producer_access_mode=access)
            ).command.producer_success
            assert again.producer_name == first.producer_name != "", (first, again)
            assert again.request_id == first.request_id + 1
            client.send(1 + access, 0, entry(first.producer_name, 0))
            assert (await client.next(7)).command.send_receipt.producer_id == 1 + access

    run(scenario)


def test_a_consumer_that_is_open_is_subscribed_again_with_success() -> None:
    async def scenario(cluster: BrokerCluster, world: World, client: BinaryClient) -> None:
        assert (await client.subscribe(1, TOPIC)).command.type == 13
        assert (await client.subscribe(1, TOPIC)).command.type == 13
        assert (
            len(cluster.brokers["broker0"]._topics.loaded[TOPIC].subscriptions["s"].consumers) == 1
        )
        for topic, subscription in ((TOPIC, "other"), (f"{TOPIC}-other", "s")):
            refused = (await client.subscribe(1, topic, subscription=subscription)).command.error
            assert (refused.error, "consumer id 1 is in use" in refused.message) == (
                pb.NOT_ALLOWED_ERROR,
                True,
            )

    run(scenario)


def test_who_asks_again_while_the_first_request_is_under_way_may_try_later() -> None:
    async def scenario(cluster: BrokerCluster, world: World, client: BinaryClient) -> None:
        for request_id in (101, 102):
            client.say(
                pb.Command(
                    type=4,
                    subscribe=pb.Subscribe(
                        topic=TOPIC,
                        subscription="s",
                        sub_type=0,
                        consumer_id=1,
                        request_id=request_id,
                    ),
                )
            )
            client.say(
                pb.Command(
                    type=5,
                    producer=pb.Producer(topic=TOPIC, producer_id=1, request_id=100 + request_id),
                )
            )
        for refused in [(await client.next(14)).command.error for _ in range(2)]:
            # Clients look only the one topic up again, and close no connection.
            assert (refused.request_id in (102, 202), refused.error) == (True, pb.METADATA_ERROR)
        assert {
            (await client.next(13)).command.success.request_id,
            (await client.next(17)).command.producer_success.request_id,
        } == {
            101,
            201,
        }

    run(scenario)


@pytest.mark.parametrize("kind", [SchemaType.NONE, SchemaType.AUTO_CONSUME])
def test_bytes_are_no_schema_also_where_a_client_asks_for_its_version(kind: SchemaType) -> None:
    async def scenario(cluster: BrokerCluster, world: World, client: BinaryClient) -> None:
        schema = pb.Schema(name="bytes", type=int(kind), schema_data=b"")
        opened = (await client.open_producer(1, TOPIC, schema=schema)).command.producer_success
        assert opened.schema_version == b""
        client.say(
            pb.Command(
                type=39,
                get_or_create_schema=pb.GetOrCreateSchema(request_id=9, topic=TOPIC, schema=schema),
            )
        )
        found = (await client.next(40)).command.get_or_create_schema_response
        assert (found.request_id, found.HasField("error_code"), found.schema_version) == (
            9,
            False,
            b"",
        )

    run(scenario)


def test_limits_have_the_codes_that_clients_take_for_final() -> None:
    limits = {
        "max_producers_per_topic": 1,
        "max_consumers_per_topic": 2,
        "max_consumers_per_subscription": 1,
        "max_subscriptions_per_topic": 2,
    }

    async def scenario(cluster: BrokerCluster, world: World, client: BinaryClient) -> None:
        await client.open_producer(1, TOPIC)
        assert (
            await client.open_producer(2, TOPIC, name="q")
        ).command.error.error == pb.PRODUCER_BUSY
        await client.subscribe(1, TOPIC, kind=pb.SUB_SHARED)
        assert (
            await client.subscribe(2, TOPIC, kind=pb.SUB_SHARED)
        ).command.error.error == pb.CONSUMER_BUSY
        await client.subscribe(2, TOPIC, subscription="s2")
        assert (
            await client.subscribe(3, TOPIC, subscription="s2")
        ).command.error.error == pb.CONSUMER_BUSY
        assert (
            await client.subscribe(3, TOPIC, subscription="s3")
        ).command.error.error == pb.NOT_ALLOWED_ERROR

    run(scenario, **limits)


def _producer(producer_id: int, request_id: int, name: str) -> pb.Command:
    return pb.Command(
        type=5,
        producer=pb.Producer(
            topic=TOPIC, producer_id=producer_id, request_id=request_id, producer_name=name
        ),
    )


def test_refused_sends_have_their_own_ids_if_the_producer_is_closed_in_the_same_write() -> None:
    async def scenario(cluster: BrokerCluster, world: World, client: BinaryClient) -> None:
        await client.open_producer(1, TOPIC)
        bad = encode_entry(
            MessageMetadata(
                producer_name="p", sequence_id=5, publish_time=1, num_messages_in_batch=-1
            ),
            b"x",
        )
        close = pb.Command(type=15, close_producer=pb.CloseProducer(producer_id=1, request_id=77))
        client.write(
            send_frame(1, 5, bad)
            + send_frame(1, 6, bad)
            + command_frame(close)
            + send_frame(1, 7, bad)
        )
        refused = [(await client.next(8)).command.send_error.sequence_id for _ in range(2)]
        assert refused == [5, 6]
        assert (await client.next(13)).command.success.request_id == 77
        await _still_serves(client)

    run(scenario)


@pytest.mark.parametrize("name", ["first", "second"])
def test_a_producer_opened_again_with_sends_under_way_gets_each_receipt_for_its_own_send(
    name: str,
) -> None:
    async def scenario(cluster: BrokerCluster, world: World, client: BinaryClient) -> None:
        await client.open_producer(1, TOPIC, name="first")
        for node in cluster.nodes.values():
            node.disk.slowness = 500.0  # the first receipts come after the second answer
        client.write(
            b"".join(send_frame(1, number, entry("first", number)) for number in range(10, 20))
        )
        client.say(_producer(1, 70, name))
        assert (await client.next(17)).command.producer_success.producer_name == name
        client.write(
            b"".join(send_frame(1, number, entry(name, number)) for number in range(100, 110))
        )
        said = {}
        while 109 not in said:
            receipt = (await client.next(7)).command.send_receipt
            said[receipt.sequence_id] = receipt.message_id.entry_id
        await client.subscribe(1, TOPIC)
        stored = {}
        while len(stored) < 20:
            message = await client.next(9)
            stored[parse_metadata(message.payload).sequence_id] = (
                message.command.message.message_id.entry_id
            )
        assert said == {number: stored[number] for number in said}
        assert set(range(100, 110)) <= set(said)
        await _still_serves(client)

    run(scenario)


async def _still_serves(client: BinaryClient) -> None:
    client.say(pb.Command(type=18, ping=pb.Ping()))
    await client.next(19)
    assert not client.lost


def test_no_client_makes_up_the_epoch_of_a_topic() -> None:
    async def scenario(cluster: BrokerCluster, world: World, client: BinaryClient) -> None:
        exclusive: dict[str, object] = {"producer_access_mode": 1}
        for producer_id, named, epoch in ((1, 2**64 - 1, 0), (2, None, 1), (3, 1, 1)):
            fields = exclusive if named is None else {**exclusive, "topic_epoch": named}
            opened = await client.open_producer(producer_id, TOPIC, **fields)
            assert opened.command.producer_success.topic_epoch == epoch
            client.say(
                pb.Command(
                    type=15,
                    close_producer=pb.CloseProducer(producer_id=producer_id, request_id=900),
                )
            )
            await client.next(13)
        refused = (
            await client.open_producer(4, TOPIC, topic_epoch=2**64 - 1, **exclusive)
        ).command.error
        assert (refused.error, "never gave out epoch" in refused.message) == (
            pb.PRODUCER_FENCED,
            True,
        )
        await _still_serves(client)

    run(scenario)


def test_a_name_that_is_in_use_is_refused_until_its_client_is_gone() -> None:
    """A client that reconnects does not throw out another one, but what is dead leaves soon."""

    async def scenario(cluster: BrokerCluster, world: World, client: BinaryClient) -> None:
        other = await BinaryClient.connect(world, BINARY)

        async def refused(**fields: object) -> None:
            answer = await other.open_producer(1, TOPIC, name="n", **fields)
            assert answer.command.error.error == pb.PRODUCER_BUSY

        await client.open_producer(1, TOPIC, name="n")
        for epoch in (0, 1, 1_000):
            await refused(epoch=epoch)
        await world.clock.sleep(6.0)
        assert not client.lost, "it answers"
        client.send(1, 0, entry("n", 0))
        await client.next(7)
        # The same client's own, by its id.
        assert (await client.open_producer(1, TOPIC, name="n", epoch=1)).command.type == 17
        client.answers_pings = False
        await refused(epoch=2)
        await world.clock.sleep(6.0)
        assert client.lost
        assert (await other.open_producer(1, TOPIC, name="n", epoch=2)).command.type == 17
        # A name that a broker chose belongs to one client.
        third = await BinaryClient.connect(world, BINARY)
        chosen = {"user_provided_producer_name": False}
        made = await other.open_producer(2, TOPIC, name="", **chosen)
        name = made.command.producer_success.producer_name
        back = await third.open_producer(2, TOPIC, name=name, epoch=1, **chosen)
        assert back.command.type == 17
        assert (await other.next(15)).command.close_producer.producer_id == 2

    run(scenario)
