"""Non-persistent topics on whole brokers in virtual time: over both protocols, with our own client,
and through admin requests.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import NotAllowedError, PulsarishError, TopicFenced, TopicNotFound
from pulsarish.model.schema import SchemaType
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.schema import JsonSchema, Record, String
from pulsarish.wire._pb import pulsar_pb2 as pb
from tests.support.binary_client import BinaryClient
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import ConsumeClient, PublishClient, entry, find

TOPIC = "non-persistent://public/default/t"
PATH = "non-persistent/public/default"


async def stats(brokered: Brokered, topic: str = TOPIC) -> dict[str, Any]:
    name = TopicName.parse(topic)
    found: dict[str, Any] = await brokered.administer(
        "GET", f"{PATH}/{name.local}/stats", owner=name
    )
    return found


async def is_gone(brokered: Brokered, topic: str = TOPIC) -> bool:
    name = TopicName.parse(topic)
    open_now: list[str] = await brokered.administer("GET", PATH)
    return name.full not in open_now


def test_what_comes_goes_to_who_is_there_on_every_face_and_nothing_is_stored() -> None:
    async def scenario(brokered: Brokered) -> None:
        world = brokered.world
        address = await find(world, ["broker0"], TOPIC)
        before = set(brokered.sim.metadata.tree.nodes)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send([(1, entry("p", 0, b"nobody is there"))])
        await publish.wait(1, 1)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC, "grpc")
        binary = await BinaryClient.connect(world, "broker0:6650")
        assert (await binary.subscribe(3, TOPIC, subscription="binary")).command.type == 13
        await binary.open_producer(4, TOPIC, "q")
        await world.clock.sleep(0.1)
        sent = [entry("p", number, b"payload %d" % number) for number in range(1, 20)]
        await publish.send([(1, each) for each in sent])
        assert await publish.wait(1, 20) == [(0, number) for number in range(20)]
        assert [each.payload for each in await consume.take(19)] == sent
        assert [each.payload for each in await binary.take(19)] == sent
        binary.send(4, 0, entry("q", 0, b"back"))
        receipt = (await binary.next(7)).command.send_receipt
        assert (receipt.message_id.ledger_id, receipt.message_id.entry_id) == (0, 20)
        assert (await consume.take(1))[0].payload == entry("q", 0, b"back")
        await consume.ack(7, [(0, 3)])
        assert set(brokered.sim.metadata.tree.nodes) == before

    play_with_brokers(scenario)


def test_what_nobody_has_permits_for_is_dropped_and_counted() -> None:
    async def scenario(brokered: Brokered) -> None:
        world = brokered.world
        address = await find(world, ["broker0"], TOPIC)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC, "slow", permits=3)
        await consume.subscribe(8, TOPIC, "quick", permits=1000)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await world.clock.sleep(0.1)
        await publish.send([(1, entry("p", number)) for number in range(10)])
        await publish.wait(1, 10)
        assert len(await consume.take(13)) == 13
        found = await stats(brokered)
        slow, quick = found["subscriptions"]["slow"], found["subscriptions"]["quick"]
        assert (slow["msgDropCounter"], quick["msgDropCounter"], found["msgDropCounter"]) == (
            7,
            0,
            0,
        )
        assert (slow["msgOutCounter"], quick["msgOutCounter"], found["msgInCounter"]) == (3, 10, 10)
        await world.clock.sleep(2.0)
        assert (await stats(brokered))["subscriptions"]["slow"]["msgDropRate"] > 0
        await consume.flow(7, 1)
        await world.clock.sleep(0.1)
        await publish.send([(1, entry("p", 10))])
        assert {(each.consumer_id, each.sequence_id) for each in await consume.take(2)} == {
            (7, 10),
            (8, 10),
        }

    play_with_brokers(scenario)


def test_more_than_a_connection_may_have_under_way_is_dropped_with_a_receipt_that_says_so() -> None:
    async def scenario(brokered: Brokered) -> None:
        world = brokered.world
        address = await find(world, ["broker0"], TOPIC)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await world.clock.sleep(0.1)
        await publish.send([(1, entry("p", number)) for number in range(8)])
        assert await publish.wait(1, 8) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), *[(-1, -1)] * 3]
        await publish.send([(1, entry("p", 8))])
        assert (await publish.wait(1, 9))[-1] == (0, 5)
        assert [each.sequence_id for each in await consume.take(6)] == [0, 1, 2, 3, 4, 8]
        found = await stats(brokered)
        assert (found["msgDropCounter"], found["publishers"][0]["msgDropCounter"]) == (3, 3)

    play_with_brokers(scenario, max_concurrent_non_persistent_message_per_connection=5)


@pytest.mark.parametrize("kind", list(ConsumerType))
def test_our_own_client_uses_it_with_every_type_of_subscription(kind: ConsumerType) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(
            TOPIC, "s", consumer_type=kind, initial_position=InitialPosition.Earliest
        )
        producer = await client.create_producer(
            TOPIC, batching_enabled=True, batching_max_messages=10
        )
        got: list[bytes] = []
        for number in range(50):
            await producer.send(b"m%d" % number, partition_key=f"k{number % 5}")
            message = await consumer.receive(timeout_millis=5_000)
            got.append(message.data())
            await consumer.acknowledge(message)
        assert got == [b"m%d" % number for number in range(50)]
        await asyncio.gather(*(producer.send(b"b%d" % number) for number in range(30)))
        assert sorted(
            [(await consumer.receive(timeout_millis=5_000)).data() for _ in range(30)]
        ) == sorted(b"b%d" % n for n in range(30))

    play_with_brokers(scenario)


def test_a_reader_sees_what_comes_and_what_needs_stored_messages_is_refused_by_name() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        await producer.send(b"before")
        reader = await client.create_reader(TOPIC, MessageId.earliest)
        await producer.send(b"after")
        assert (await reader.read_next(timeout_millis=5_000)).data() == b"after"
        consumer = await client.subscribe(TOPIC, "s")
        for refused in (consumer.seek(MessageId.earliest), consumer.get_last_message_id()):
            with pytest.raises(
                NotAllowedError, match="non-persistent://public/default/t keeps no messages"
            ):
                await refused
        with pytest.raises(NotAllowedError, match="read compacted"):
            await client.subscribe(TOPIC, "c", is_read_compacted=True)
        await reader.close()
        assert list((await stats(brokered))["subscriptions"]) == ["s"]
        newest = await client.create_reader(TOPIC, MessageId.latest)
        await producer.send(b"newest")
        assert (await newest.read_next(timeout_millis=5_000)).data() == b"newest"
        await newest.close()
        await consumer.unsubscribe()
        assert (await stats(brokered))["subscriptions"] == {}

    play_with_brokers(scenario)


def test_partitioned_ones_have_their_partitions_in_metadata_and_are_made_by_their_users() -> None:
    async def scenario(brokered: Brokered) -> None:
        await brokered.administer("PUT", f"{PATH}/many/partitions", 3)
        assert await brokered.administer("GET", f"{PATH}/partitioned") == [
            "non-persistent://public/default/many"
        ]
        assert (await brokered.administer("GET", f"{PATH}/many/partitions"))["partitions"] == 3
        assert await brokered.administer("GET", "persistent/public/default/partitioned") == []
        assert await brokered.administer("GET", PATH) == []
        client = brokered.client()
        topic = "non-persistent://public/default/many"
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic)
        for number in range(9):
            await producer.send(b"%d" % number)
        assert sorted(
            [(await consumer.receive(timeout_millis=5_000)).data() for _ in range(9)]
        ) == [b"%d" % n for n in range(9)]
        assert await brokered.administer("GET", PATH) == [
            f"{topic}-partition-{index}" for index in range(3)
        ]
        total = await brokered.administer("GET", f"{PATH}/many/partitioned-stats")
        assert (
            total["msgInCounter"],
            total["subscriptions"]["s"]["msgOutCounter"],
            len(total["partitions"]),
        ) == (9, 9, 3)
        await brokered.administer("POST", f"{PATH}/many/partitions", 4)
        assert (await brokered.administer("GET", f"{PATH}/many/partitions"))["partitions"] == 4
        await consumer.close()
        await producer.close()
        await brokered.administer("DELETE", f"{PATH}/many/partitions")
        assert await brokered.administer("GET", PATH) == []
        assert await brokered.administer("GET", f"{PATH}/partitioned") == []

    play_with_brokers(scenario, brokers=2)


def test_they_are_listed_beside_persistent_ones_by_every_broker() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        names = [f"non-persistent://public/default/t{number}" for number in range(20)]
        owners = {
            await find(brokered.world, [f"broker{number % 2}"], name)
            for number, name in enumerate(names)
        }
        for name in names:
            await client.create_producer(name)
        await client.create_producer("kept")
        assert len(owners) == 2, "both brokers should have some"
        binary = await BinaryClient.connect(brokered.world, "broker1:6650")
        expected = {
            pb.GetTopicsOfNamespace.PERSISTENT: ["persistent://public/default/kept"],
            pb.GetTopicsOfNamespace.NON_PERSISTENT: names,
            pb.GetTopicsOfNamespace.ALL: ["persistent://public/default/kept", *names],
        }
        for mode, wanted in expected.items():
            asked = pb.GetTopicsOfNamespace(
                request_id=binary.request(), namespace="public/default", mode=mode
            )
            binary.say(pb.Command(type=32, get_topics_of_namespace=asked))
            answer = (await binary.next(33)).command.get_topics_of_namespace_response
            assert sorted(answer.topics) == sorted(wanted)
        assert await brokered.administer("GET", PATH) == sorted(names)

    play_with_brokers(scenario, brokers=2)


def test_a_topic_moves_with_its_bundle_and_its_clients_follow() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.create_producer(TOPIC)

        async def one_more(data: bytes) -> None:
            # A message sent while no consumer is connected is lost, as it should be.
            for _ in range(100):
                await producer.send(data)
                try:
                    assert (await consumer.receive(timeout_millis=200)).data() == data
                except PulsarishError:
                    continue
                return
            raise AssertionError("nothing comes any more")

        await one_more(b"first")
        owner = (await find(brokered.world, ["broker0"], TOPIC)).partition(":")[0]
        await brokered.administer("PUT", "namespaces/public/default/unload")
        await one_more(b"after an unload")
        owner = (await find(brokered.world, ["broker0", "broker1"], TOPIC)).partition(":")[0]
        brokered.node(owner).crash()
        await one_more(b"after its owner died")

    play_with_brokers(scenario, brokers=2)


def test_what_a_lost_connection_left_without_a_receipt_is_sent_again_as_another_message() -> None:
    async def scenario(brokered: Brokered) -> None:
        consumer = await brokered.client().subscribe(TOPIC, "s")
        network = brokered.sim.network
        ids: list[MessageId] = []

        async def publish(world: World) -> None:
            there = Brokered(brokered.sim, brokered.cluster, world)
            producer = await there.client().create_producer(TOPIC)
            network.clog("broker0", "app")
            receipt = producer.send_soon(b"m")
            ids.append((await consumer.receive(timeout_millis=5_000)).message_id())
            while producer.is_connected():
                network.reset("app", 0.5)
                await world.clock.sleep(0.01)
            network.heal("broker0", "app")
            ids.append((await consumer.receive(timeout_millis=5_000)).message_id())
            ids.append(await receipt)
            await there.close()

        await brokered.sim.node("app").run(publish)
        assert [(each.ledger_id(), each.entry_id()) for each in ids] == [(0, 0), (0, 1), (0, 1)]

    play_with_brokers(scenario)


def test_consumers_join_a_subscription_whether_they_call_it_durable_or_not() -> None:
    """Clients in Java call every subscription of such a topic not durable, others do not."""

    async def scenario(brokered: Brokered) -> None:
        world = brokered.world
        await find(world, ["broker0"], TOPIC)
        client = await BinaryClient.connect(world, "broker0:6650")
        for number, durable in enumerate((True, False, True)):
            assert (
                await client.subscribe(number, TOPIC, kind=1, durable=durable)
            ).command.type == 13
        await client.open_producer(4, TOPIC, "q")
        for number in range(70):
            client.send(4, number, entry("q", number))
        got = await client.take(70)
        assert {each.command.message.consumer_id for each in got} == {0, 1, 2}

    play_with_brokers(scenario)


def test_a_reader_goes_on_where_the_topic_is_next_although_positions_begin_anew() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        reader = await client.create_reader(TOPIC, MessageId.earliest)
        producer = await client.create_producer(TOPIC)
        for number in range(5):
            await producer.send(b"%d" % number)
        assert [(await reader.read_next(timeout_millis=5_000)).data() for _ in range(5)] == [
            b"%d" % number for number in range(5)
        ]
        await brokered.administer("PUT", f"{PATH}/t/unload", owner=TopicName.parse(TOPIC))
        await brokered.world.clock.sleep(1.0)  # until they know
        await brokered.until(lambda: producer.is_connected() and reader.is_connected())
        message_id = await producer.send(b"after")
        assert message_id.entry_id() == 0
        assert (await reader.read_next(timeout_millis=5_000)).data() == b"after"

    play_with_brokers(scenario)


def test_nobody_uses_it_and_it_is_gone() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        topic = brokered.cluster.brokers["broker0"]._topics.not_kept.open[TOPIC]
        await brokered.world.clock.sleep(200.0)
        assert not await is_gone(brokered)
        await producer.close()
        deadline = brokered.world.clock.monotonic() + 200.0
        while not await is_gone(brokered):
            assert brokered.world.clock.monotonic() < deadline
            await brokered.world.clock.sleep(5.0)
        # A client that was about to use it must look it up again, and does not get "not found".
        with pytest.raises(TopicFenced):
            topic.check_publishable()

    play_with_brokers(scenario)


def test_the_administration_makes_and_deletes_them_and_refuses_what_needs_a_log() -> None:
    async def scenario(brokered: Brokered) -> None:
        name = TopicName.parse(TOPIC)
        await brokered.administer("PUT", f"{PATH}/t", owner=name)
        with pytest.raises(AssertionError, match="exists already"):
            await brokered.administer("PUT", f"{PATH}/t", owner=name)
        await brokered.administer("PUT", f"{PATH}/t/subscription/s", owner=name)
        assert await brokered.administer("GET", f"{PATH}/t/subscriptions", owner=name) == ["s"]
        for method, words in [
            ("POST", "subscription/s/skip_all"),
            ("POST", "terminate"),
            ("PUT", "compaction"),
            ("GET", "retention"),
            ("GET", "internal-info"),
        ]:
            with pytest.raises(AssertionError, match=f"topic {TOPIC} keeps no messages"):
                await brokered.administer(method, f"{PATH}/t/{words}", owner=name)
        with pytest.raises(AssertionError, match="has non-persistent topics"):
            await brokered.administer("DELETE", "namespaces/public/default")
        await brokered.administer("DELETE", f"{PATH}/t", owner=name)
        assert await is_gone(brokered)
        assert await brokered.administer("GET", PATH) == []

    play_with_brokers(scenario)


def test_a_schema_is_known_at_every_broker_and_goes_with_the_topic() -> None:
    class Order(Record):  # type: ignore[misc]
        note = String()

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(TOPIC, "s", schema=JsonSchema(Order))
        producer = await client.create_producer(TOPIC, schema=JsonSchema(Order))
        await producer.send(Order(note="x"))
        message = await consumer.receive(timeout_millis=5_000)
        assert message.value().note == "x"
        for broker in ("broker0:6650", "broker1:6650"):
            binary = await BinaryClient.connect(brokered.world, broker)
            binary.say(pb.Command(type=34, get_schema=pb.GetSchema(request_id=1, topic=TOPIC)))
            assert (
                await binary.next(35)
            ).command.get_schema_response.schema.type == SchemaType.JSON
        await client.close()
        await brokered.administer("DELETE", f"{PATH}/t", owner=TopicName.parse(TOPIC))
        await brokered.administer("DELETE", "namespaces/public/default")

    play_with_brokers(scenario, brokers=2)


def test_switched_off_they_are_refused_and_not_made_where_nothing_is_made_by_use() -> None:
    async def off(brokered: Brokered) -> None:
        with pytest.raises(NotAllowedError, match="enable_non_persistent_topics"):
            await brokered.client().create_producer(TOPIC)

    async def by_hand(brokered: Brokered) -> None:
        client = brokered.client()
        with pytest.raises(TopicNotFound, match="autoTopicCreation"):
            await client.create_producer(TOPIC)
        await brokered.administer("PUT", f"{PATH}/t", owner=TopicName.parse(TOPIC))
        await client.create_producer(TOPIC)

    play_with_brokers(off, enable_non_persistent_topics=False)
    play_with_brokers(by_hand, allow_auto_topic_creation=False)
