"""Apache Pulsar's binary protocol against whole brokers in virtual time: what its clients rely on,
and how they cannot harm others.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable

import pytest

from pulsarish.broker.topics.topic_lists import list_hash
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry, key_hash, split_entry
from pulsarish.wire.pulsar_frames import command_frame
from tests.support.binary_client import BinaryClient
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find

TOPIC = "persistent://public/default/t"
BINARY = "broker0:6650"
GRPC = "broker0:6660"


def run(
    scenario: Callable[[BrokerCluster, World], Awaitable[None]],
    *,
    brokers: int = 1,
    seed: int = 1,
    **settings: object,
) -> None:
    sim = Simulation(seed)
    cluster = BrokerCluster(sim, brokers=brokers, **settings)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            assert await find(world, ["broker0"], TOPIC) == "broker0:6660"
            await scenario(cluster, world)

        await sim.node("client").run(client)

    sim.run(main, 600.0)


@pytest.mark.parametrize(("offered", "agreed"), [(6, 6), (19, 19), (99, 20)])
def test_the_handshake_agrees_on_the_lower_version(offered: int, agreed: int) -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY, shake_hands=False)
        client.say(
            pb.Command(type=2, connect=pb.Connect(client_version="x", protocol_version=offered))
        )
        connected = (await client.next(3)).command.connected
        assert (connected.protocol_version, connected.max_message_size) == (agreed, 5 << 20)
        assert not connected.feature_flags.supports_broker_entry_metadata
        client.say(pb.Command(type=18, ping=pb.Ping()))
        await client.next(19)

    run(scenario)


def test_a_command_that_is_not_known_is_refused_by_its_request_id() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        client.say(pb.Command(type=24, lookup_response=pb.LookupTopicResponse(request_id=17)))
        error = (await client.next(14)).command.error
        assert (error.request_id, error.error) == (17, pb.NOT_ALLOWED_ERROR)
        assert "24" in error.message
        # A command without a request id is ignored.
        client.say(pb.Command(type=99))
        client.say(pb.Command(type=18, ping=pb.Ping()))
        await client.next(19)
        assert not client.lost

    run(scenario)


def test_entries_go_in_on_one_face_and_come_out_on_the_other() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        opened = (await client.open_producer(1, TOPIC)).command.producer_success
        # A client in Java reads the schema version without checking that there is one.
        assert (opened.producer_name, opened.HasField("schema_version"), opened.schema_version) == (
            "p",
            True,
            b"",
        )
        sent = [
            entry("p", number, b"payload %d" % number, batch=number + 1, highest=number + 5)
            for number in range(20)
        ]
        for number, each in enumerate(sent):
            client.send(1, number, each, num_messages=number + 1, highest_sequence_id=number + 5)
        receipts = [(await client.next(7)).command.send_receipt for _ in sent]
        assert [
            (each.sequence_id, each.highest_sequence_id, each.message_id.entry_id)
            for each in receipts
        ] == [(number, number + 5, number) for number in range(20)]
        publish, consume = (
            await PublishClient.connect(world, GRPC),
            await ConsumeClient.connect(world, GRPC),
        )
        await consume.subscribe(7, TOPIC, "grpc")
        assert [each.payload for each in await consume.take(20)] == sent
        await publish.open(1, TOPIC, "other")
        await publish.send([(1, entry("other", 1, b"from the other face"))])
        await client.subscribe(3, TOPIC, subscription="binary")
        got = await client.take(21)
        assert [each.payload for each in got[:20]] == sent
        assert got[20].payload == entry("other", 1, b"from the other face")
        assert [each.command.message.message_id.entry_id for each in got[:20]] == list(range(20))

    run(scenario)


def test_a_message_of_a_client_without_checksums_gets_one() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY, version=5)
        await client.open_producer(1, TOPIC)
        client.send(1, 0, entry("p", 0, b"old")[6:])
        await client.next(7)
        await client.subscribe(1, TOPIC)
        assert (await client.next(9)).payload == entry("p", 0, b"old")

    run(scenario)


def test_a_batch_is_acknowledged_in_parts_and_the_rest_of_it_comes_again() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.open_producer(1, TOPIC)
        client.send(1, 0, entry("p", 0, batch=70), num_messages=70)
        await client.next(7)
        await client.subscribe(1, TOPIC, kind=pb.SUB_SHARED)
        place = (await client.next(9)).command.message.message_id
        left = ((1 << 70) - 1) & ~0b101
        words = [left & (2**64 - 1), left >> 64]
        place.ack_set.extend([word - 2**64 if word >= 2**63 else word for word in words])
        ack = pb.Ack(consumer_id=1, ack_type=pb.Ack.INDIVIDUAL, message_id=[place], request_id=77)
        client.say(pb.Command(type=10, ack=ack))
        answer = (await client.next(38)).command.ack_response
        assert (answer.request_id, answer.consumer_id, answer.HasField("error")) == (77, 1, False)
        client.say(pb.Command(type=20, redeliver=pb.RedeliverUnacknowledgedMessages(consumer_id=1)))
        again = (await client.next(9)).command.message
        assert [word % 2**64 for word in again.ack_set] == words
        assert again.redelivery_count == 1
        # The whole entry, without a set of messages.
        del place.ack_set[:]
        client.say(
            pb.Command(
                type=10,
                ack=pb.Ack(
                    consumer_id=1, ack_type=pb.Ack.INDIVIDUAL, message_id=[place], request_id=78
                ),
            )
        )
        assert not (await client.next(38)).command.ack_response.HasField("error")
        stats = pb.ConsumerStats(request_id=5, consumer_id=1)
        client.say(pb.Command(type=25, consumer_stats=stats))
        told = (await client.next(26)).command.consumer_stats_response
        assert (told.type, told.unacked_messages, told.msg_backlog) == ("Shared", 0, 0)

    run(scenario)


def test_a_consumer_that_asks_for_its_statistics_is_told_its_own() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.open_producer(1, TOPIC)
        for number in range(4):
            client.send(1, number, entry("p", number))
        await client.subscribe(1, TOPIC, kind=pb.SUB_SHARED)
        await client.subscribe(2, TOPIC, kind=pb.SUB_SHARED, permits=0)
        for got in await client.take(4):
            place = got.command.message.message_id
            client.say(
                pb.Command(
                    type=10,
                    ack=pb.Ack(consumer_id=1, ack_type=pb.Ack.INDIVIDUAL, message_id=[place]),
                )
            )
        await world.clock.sleep(11.0)
        told = []
        for consumer_id in (1, 2):
            client.say(
                pb.Command(
                    type=25,
                    consumer_stats=pb.ConsumerStats(
                        request_id=consumer_id, consumer_id=consumer_id
                    ),
                )
            )
            told.append((await client.next(26)).command.consumer_stats_response)
        assert 4 / 12 < told[0].message_ack_rate <= 0.4
        assert (told[1].message_ack_rate, told[1].msg_rate_redeliver, told[1].msg_rate_expired) == (
            0.0,
            0.0,
            0.0,
        )

    run(scenario)


def test_a_duplicate_gets_a_receipt_that_names_no_place() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.open_producer(1, TOPIC)
        receipts = []
        for sequence_ids in ((3, 4), (3, 5)):
            for sequence_id in sequence_ids:
                client.send(1, sequence_id, entry("p", sequence_id))
            receipts += [(await client.next(7)).command.send_receipt for _ in sequence_ids]
        assert [each.sequence_id for each in receipts] == [3, 4, 3, 5]
        assert [each.message_id.entry_id for each in receipts] == [0, 1, 2**64 - 1, 2]
        client.say(
            pb.Command(type=15, close_producer=pb.CloseProducer(producer_id=1, request_id=9))
        )
        assert (await client.next(13)).command.success.request_id == 9
        assert (await client.open_producer(1, TOPIC)).command.producer_success.last_sequence_id == 5

    run(scenario, broker_deduplication_enabled=True)


def test_a_failover_consumer_hears_that_it_is_active_when_it_has_given_permits() -> None:
    """The client in Go knows of its consumer only a moment after the answer that it has
    subscribed.
    """

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.subscribe(1, TOPIC, kind=pb.SUB_FAILOVER, consumer_name="a", permits=0)
        await world.clock.sleep(0.5)
        assert not client.heard
        client.say(pb.Command(type=11, flow=pb.Flow(consumer_id=1, message_permits=1)))
        told = (await client.next()).command.active_consumer_change
        assert (told.consumer_id, told.is_active) == (1, True)
        # A consumer that gives no permits gets the notice too.
        await client.subscribe(2, TOPIC, kind=pb.SUB_FAILOVER, consumer_name="b", permits=0)
        told = (await client.next()).command.active_consumer_change
        assert (told.consumer_id, told.is_active) == (2, False)

    run(scenario)


def test_after_a_seek_the_consumer_comes_anew_and_a_reader_finds_its_place_again() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.open_producer(1, TOPIC)
        for number in range(10):
            client.send(1, number, entry("p", number, time_ms=1_000 + number))
        for _ in range(10):
            await client.next(7)
        for durable in (True, False):
            await client.subscribe(1, TOPIC, subscription=f"s{durable}", durable=durable)
            await client.take(10)
            client.say(
                pb.Command(
                    type=28, seek=pb.Seek(consumer_id=1, request_id=50, message_publish_time=1_006)
                )
            )
            # In this order: clients then drop messages before the place in its batch.
            assert [(await client.next(13, 16)).command.type for _ in range(2)] == [16, 13]
            await client.subscribe(1, TOPIC, subscription=f"s{durable}", durable=durable)
            assert [each.command.message.message_id.entry_id for each in await client.take(4)] == [
                6,
                7,
                8,
                9,
            ]
            client.say(
                pb.Command(type=16, close_consumer=pb.CloseConsumer(consumer_id=1, request_id=51))
            )
            await client.next(13)

    run(scenario)


def test_a_reader_whose_client_does_not_come_back_leaves_nothing() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.subscribe(1, TOPIC, subscription="r", durable=False)
        client.say(
            pb.Command(
                type=28,
                seek=pb.Seek(
                    consumer_id=1,
                    request_id=50,
                    message_id=pb.MessageIdData(ledger_id=2**64 - 1, entry_id=2**64 - 1),
                ),
            )
        )
        await client.next(16)
        await world.clock.sleep(40)
        # durable: refused while the reader is connected
        await client.subscribe(2, TOPIC, subscription="r", kind=pb.SUB_SHARED)

    run(scenario)


def test_the_last_message_id_and_the_end_of_a_topic() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.subscribe(1, TOPIC)
        client.say(
            pb.Command(
                type=29, get_last_message_id=pb.GetLastMessageId(consumer_id=1, request_id=3)
            )
        )
        empty = (await client.next(30)).command.get_last_message_id_response
        assert empty.last_message_id.entry_id == 2**64 - 1
        await client.open_producer(1, TOPIC)
        client.send(1, 0, entry("p", 0, batch=4))
        await client.next(7)
        client.say(
            pb.Command(
                type=29, get_last_message_id=pb.GetLastMessageId(consumer_id=1, request_id=4)
            )
        )
        found = (await client.next(30)).command.get_last_message_id_response.last_message_id
        assert (found.entry_id, found.batch_index) == (0, 3)

    run(scenario)


def test_questions_about_topics() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        client.say(pb.Command(type=23, lookup=pb.LookupTopic(topic="t", request_id=1)))
        found = (await client.next(24)).command.lookup_response
        assert (found.request_id, found.broker_service_url, found.response) == (
            1,
            "pulsar://broker0:6650",
            pb.LookupTopicResponse.CONNECT,
        )
        client.say(
            pb.Command(
                type=23,
                lookup=pb.LookupTopic(topic="t", request_id=2, advertised_listener_name="lan"),
            )
        )
        refused = (await client.next(24)).command.lookup_response
        assert (refused.response, "'lan'" in refused.message) == (
            pb.LookupTopicResponse.FAILED,
            True,
        )
        client.say(
            pb.Command(
                type=21, partitioned_metadata=pb.PartitionedMetadata(topic="t", request_id=3)
            )
        )
        assert (await client.next(22)).command.partitioned_metadata_response.partitions == 0
        absent = pb.PartitionedMetadata(
            topic="absent", request_id=4, metadata_auto_creation_enabled=False
        )
        client.say(pb.Command(type=21, partitioned_metadata=absent))
        assert (
            await client.next(22)
        ).command.partitioned_metadata_response.error == pb.TOPIC_NOT_FOUND
        transactions = pb.PartitionedMetadata(
            topic="persistent://pulsar/system/transaction_coordinator_assign", request_id=7
        )
        client.say(pb.Command(type=21, partitioned_metadata=transactions))
        assert (
            await client.next(22)
        ).command.partitioned_metadata_response.error == pb.NOT_ALLOWED_ERROR
        await client.open_producer(1, TOPIC)
        client.say(
            pb.Command(
                type=32,
                get_topics_of_namespace=pb.GetTopicsOfNamespace(
                    request_id=5, namespace="public/default"
                ),
            )
        )
        assert list((await client.next(33)).command.get_topics_of_namespace_response.topics) == [
            TOPIC
        ]
        client.say(
            pb.Command(
                type=32,
                get_topics_of_namespace=pb.GetTopicsOfNamespace(request_id=6, namespace="no/where"),
            )
        )
        nowhere = (await client.next(33)).command.get_topics_of_namespace_response
        assert (list(nowhere.topics), nowhere.changed, nowhere.topics_hash) == (
            [],
            True,
            list_hash([]),
        )

    run(scenario)


def test_who_watches_a_pattern_hears_of_new_topics_and_of_deleted_ones() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client, other = (
            await BinaryClient.connect(world, BINARY),
            await BinaryClient.connect(world, BINARY),
        )
        watch = pb.WatchTopicList(
            request_id=1,
            watcher_id=7,
            namespace="public/default",
            topics_pattern="persistent://public/default/a.*",
        )
        client.say(pb.Command(type=64, watch_topic_list=watch))
        begun = (await client.next(65)).command.watch_topic_list_success
        assert (begun.watcher_id, list(begun.topic), begun.topics_hash) == (7, [], list_hash([]))
        for name in ("a1", "b1", "a2"):
            assert await find(world, ["broker0"], name)
            await other.open_producer(1, f"persistent://public/default/{name}")
        heard: set[str] = set()
        while len(heard) < 2:
            update = (await client.next(66)).command.watch_topic_update
            heard |= set(update.new_topics)
            assert update.topics_hash == list_hash(heard)
        assert heard == {"persistent://public/default/a1", "persistent://public/default/a2"}
        # After a reconnection the client sends the hash it knows; only a difference needs an
        # answer.
        watch.topics_hash = list_hash(heard)
        other.say(pb.Command(type=64, watch_topic_list=watch))
        assert list((await other.next(65)).command.watch_topic_list_success.topic) == []
        client.say(
            pb.Command(
                type=67, watch_topic_list_close=pb.WatchTopicListClose(request_id=2, watcher_id=7)
            )
        )
        await client.next(13)
        assert await find(world, ["broker0"], "a3")
        await other.open_producer(1, "persistent://public/default/a3")
        assert list((await other.next(66)).command.watch_topic_update.new_topics) == [
            "persistent://public/default/a3"
        ]
        assert not [each for each in client.heard if each.command.type == 66]
        watch.topics_pattern = "("
        client.say(pb.Command(type=64, watch_topic_list=watch))
        assert "no regular expression" in (await client.next(14)).command.error.message

    run(scenario)


def test_a_list_is_filtered_by_the_pattern_and_not_sent_when_it_is_known() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        for name in ("a1", "b1"):
            assert await find(world, ["broker0"], name)
            await client.open_producer(1, f"persistent://public/default/{name}")
        asked = pb.GetTopicsOfNamespace(
            request_id=5, namespace="public/default", topics_pattern="public/default/a.*"
        )
        client.say(pb.Command(type=32, get_topics_of_namespace=asked))
        found = (await client.next(33)).command.get_topics_of_namespace_response
        assert (list(found.topics), found.filtered, found.changed) == (
            ["persistent://public/default/a1"],
            True,
            True,
        )
        asked.topics_hash = found.topics_hash
        client.say(pb.Command(type=32, get_topics_of_namespace=asked))
        again = (await client.next(33)).command.get_topics_of_namespace_response
        assert (list(again.topics), again.changed) == ([], False)

    run(scenario)


@pytest.mark.parametrize("kind", [50, 52, 54, 56, 58, 60, 62])
def test_transactions_are_refused_by_name(kind: int) -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        command = pb.Command(type=kind)
        field = next(
            name
            for name, each in pb.Command.DESCRIPTOR.fields_by_name.items()
            if each.number == kind
        )
        getattr(command, field).request_id = 8
        client.say(command)
        answer = (await client.next(kind + 1)).command
        body = getattr(
            answer,
            next(
                name
                for name, each in pb.Command.DESCRIPTOR.fields_by_name.items()
                if each.number == kind + 1
            ),
        )
        assert (body.request_id, body.error, "transactions" in body.message) == (
            8,
            pb.NOT_ALLOWED_ERROR,
            True,
        )

    run(scenario)


BAD = {
    "before CONNECT": (False, command_frame(pb.Command(type=18, ping=pb.Ping()))),
    "too long": (True, struct.pack(">II", 2**31, 5)),
    "command beyond the frame": (True, struct.pack(">II", 10, 50) + b"x" * 20),
    "no protobuf": (True, struct.pack(">II", 9, 5) + b"\xff" * 5),
    "without the required fields": (True, struct.pack(">II", 6, 2) + b"\x2a\x00"),
    "unknown producer": (
        True,
        struct.pack(">II", 12, 8)
        + pb.Command(type=6, send=pb.Send(producer_id=9, sequence_id=1)).SerializeToString(),
    ),
    "no entry": (
        True,
        struct.pack(">II", 13, 8)
        + pb.Command(type=6, send=pb.Send(producer_id=1, sequence_id=1)).SerializeToString()
        + b"x",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_connection_that_breaks_the_rules_ends_alone(case: str) -> None:
    shake_hands, data = BAD[case]

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        good = await BinaryClient.connect(world, BINARY)
        await good.open_producer(1, TOPIC, "good")
        bad = await BinaryClient.connect(world, BINARY, shake_hands=shake_hands)
        if shake_hands:
            await bad.open_producer(1, TOPIC, "bad")
        bad.write(data)
        await bad.until_lost()
        good.send(1, 1, entry("good", 1))
        await good.next(7)
        # The name of its producer is free again.
        assert (await good.open_producer(2, TOPIC, "bad")).command.type == 17

    run(scenario)


def test_a_damaged_message_closes_its_producer_so_that_nothing_passes_it() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.open_producer(1, TOPIC)
        flipped = bytearray(entry("p", 1, b"payload"))
        flipped[-1] ^= 1
        client.send(1, 1, bytes(flipped))
        client.send(1, 2, entry("p", 2))
        assert (await client.next(7, 15)).command.close_producer.producer_id == 1
        await client.open_producer(2, TOPIC)
        for sequence_id in (1, 2):
            client.send(2, sequence_id, entry("p", sequence_id))
            receipt = (await client.next(7, 8, 15)).command.send_receipt
            assert (receipt.sequence_id, receipt.message_id.entry_id) == (
                sequence_id,
                sequence_id - 1,
            )

    run(scenario)


def test_a_client_that_never_reads_is_let_go_and_holds_bounded_memory() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client, other = (
            await BinaryClient.connect(world, BINARY),
            await BinaryClient.connect(world, BINARY),
        )
        await other.open_producer(1, TOPIC)
        assert client.transport is not None
        await client.subscribe(1, TOPIC, permits=100_000)
        client.transport.pause_reading()
        for number in range(300):
            other.send(1, number, entry("p", number, b"x" * 100_000))
        for _ in range(300):
            await other.next(7)
        for _ in range(2_000):
            client.say(
                pb.Command(type=23, lookup=pb.LookupTopic(topic="t", request_id=client.request()))
            )
        await world.clock.sleep(5)
        assert not client.lost
        await other.subscribe(2, TOPIC, subscription="o", permits=400)
        assert len(await other.take(300)) == 300
        await world.clock.sleep(90)
        client.transport.resume_reading()
        await client.until_lost()
        assert not other.lost

    run(scenario, max_delivery_bytes_per_connection=1 << 20)


def test_who_says_nothing_is_pinged_and_then_let_go() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        silent = await BinaryClient.connect(world, BINARY)
        before_connect = await BinaryClient.connect(world, BINARY, shake_hands=False)
        silent.answers_pings = False
        await world.clock.sleep(15)
        assert before_connect.lost
        assert not before_connect.heard
        assert [each.command.type for each in silent.heard] == [18]
        await silent.until_lost()

    run(scenario)


def test_key_shared_consumers_have_their_hash_ranges() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.open_producer(1, TOPIC)
        lower, upper = pb.IntRange(start=0, end=29_999), pb.IntRange(start=30_000, end=65_535)
        sticky = [
            pb.KeySharedMeta(key_shared_mode=pb.STICKY, hash_ranges=[each])
            for each in (lower, upper)
        ]
        assert (
            await client.subscribe(1, TOPIC, kind=pb.SUB_KEY_SHARED, key_shared_meta=sticky[0])
        ).command.type == 13
        refused = (
            await client.subscribe(2, TOPIC, kind=pb.SUB_KEY_SHARED, key_shared_meta=sticky[0])
        ).command.error
        assert refused.error == pb.CONSUMER_ASSIGN_ERROR
        assert "[0, 29999] overlaps [0, 29999]" in refused.message
        assert (
            await client.subscribe(3, TOPIC, kind=pb.SUB_KEY_SHARED, key_shared_meta=sticky[1])
        ).command.type == 13
        keys = [f"k{number}" for number in range(20)]
        for number, key in enumerate(keys):
            metadata = MessageMetadata(
                producer_name="p", sequence_id=number, publish_time=1, partition_key=key
            )
            client.send(1, number, encode_entry(metadata, key.encode()))
        got: dict[int, set[str]] = {1: set(), 3: set()}
        for each in await client.take(20):
            metadata, payload = split_entry(each.payload)
            assert bytes(payload).decode() == metadata.partition_key
            got[each.command.message.consumer_id].add(metadata.partition_key)
        low = {key for key in keys if key_hash(key.encode()) < 30_000}
        assert got == {1: low, 3: set(keys) - low}

    run(scenario)


def test_a_producer_that_waits_to_be_alone_is_answered_twice() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.open_producer(1, TOPIC, "first")
        queued = (
            await client.open_producer(
                2, TOPIC, "second", producer_access_mode=pb.WAIT_FOR_EXCLUSIVE
            )
        ).command.producer_success
        assert (queued.producer_ready, queued.producer_name, queued.HasField("topic_epoch")) == (
            False,
            "second",
            False,
        )
        client.say(
            pb.Command(
                type=15, close_producer=pb.CloseProducer(producer_id=1, request_id=client.request())
            )
        )
        ready = (await client.next(17)).command.producer_success
        assert (ready.producer_ready, ready.request_id, ready.topic_epoch) == (
            True,
            queued.request_id,
            0,
        )
        refused = (
            await client.open_producer(3, TOPIC, "third", producer_access_mode=pb.EXCLUSIVE)
        ).command.error
        assert refused.error == pb.PRODUCER_FENCED
        busy = (await client.open_producer(3, TOPIC, "third")).command.error
        assert busy.error == pb.PRODUCER_BUSY

    run(scenario)


def test_what_was_sent_before_everything_was_asked_for_again_carries_the_old_epoch() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.open_producer(1, TOPIC)
        for number in range(3):
            client.send(1, number, entry("p", number))
        for kind, epoch in ((pb.SUB_EXCLUSIVE, 2), (pb.SUB_SHARED, -1)):
            await client.subscribe(1, TOPIC, kind=kind, subscription=f"s{kind}", consumer_epoch=1)
            first = [each.command.message for each in await client.take(3)]
            again = pb.RedeliverUnacknowledgedMessages(consumer_id=1, consumer_epoch=2)
            client.say(pb.Command(type=20, redeliver=again))
            second = [each.command.message for each in await client.take(3)]
            told = [
                [each.consumer_epoch if each.HasField("consumer_epoch") else -1 for each in some]
                for some in (first, second)
            ]
            assert told == [[min(epoch, 1)] * 3, [epoch] * 3]
            assert [each.redelivery_count for each in second] == [1] * 3
            client.say(
                pb.Command(
                    type=16,
                    close_consumer=pb.CloseConsumer(consumer_id=1, request_id=client.request()),
                )
            )
            await client.next(13)

    run(scenario)


def test_a_subscription_may_begin_some_time_ago_and_have_properties() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.open_producer(1, TOPIC)
        broker = cluster.nodes["broker0"].world  # the owner's wall clock counts
        assert broker is not None
        for number in range(4):
            client.send(1, number, entry("p", number, time_ms=broker.clock.wall_ms()))
            await client.next(7)
            await world.clock.sleep(10)
        fields = {"start_message_rollback_duration_sec": 25, "initial_position": pb.LATEST}
        await client.subscribe(1, TOPIC, subscription="reader", durable=False, **fields)
        assert [each.command.message.message_id.entry_id for each in await client.take(2)] == [2, 3]
        noted = [pb.KeyValue(key="team", value="a")]
        await client.subscribe(
            2, TOPIC, subscription="noted", subscription_properties=noted, **fields
        )
        assert [each.command.message.message_id.entry_id for each in await client.take(2)] == [2, 3]
        topic = cluster.brokers["broker0"]._topics.loaded[TOPIC]
        assert topic.subscription("noted").cursor.subscription_properties == {"team": "a"}

    run(scenario)


@pytest.mark.parametrize("kind", [pb.SUB_SHARED, pb.SUB_FAILOVER, pb.SUB_KEY_SHARED])
def test_a_subscription_that_is_not_durable_may_be_of_any_type(kind: int) -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.open_producer(1, TOPIC)
        for number in range(6):
            client.send(1, number, entry("p", number))
        for consumer_id in (1, 2):
            answer = await client.subscribe(
                consumer_id, TOPIC, kind=kind, durable=False, permits=10
            )
            assert answer.command.type == 13, answer.command.error.message
        got = {each.command.message.message_id.entry_id for each in await client.take(6)}
        assert got == set(range(6))
        topic = cluster.brokers["broker0"]._topics.loaded[TOPIC]
        for consumer_id in (1, 2):
            client.say(
                pb.Command(
                    type=16,
                    close_consumer=pb.CloseConsumer(
                        consumer_id=consumer_id, request_id=client.request()
                    ),
                )
            )
        while "s" in topic.subscriptions:
            await world.clock.sleep(0.1)
        assert "s" not in topic.log.cursor_names()

    run(scenario)


def test_keys_and_properties_that_are_no_text_hold_nobody_up() -> None:
    """Clients in C++ may write any bytes where a text should be.

    Every later owner reads an entry that is in the log.
    """

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.open_producer(1, TOPIC)
        metadata = MessageMetadata(
            producer_name="p", sequence_id=1, publish_time=1, partition_key="KEY!"
        )
        metadata.properties.add(key="KEY!", value="KEY!")
        body = encode_entry(metadata, b"x")[6:].replace(b"KEY!", b"\xff\xfe\xfd\xfc")
        client.send(1, 1, body)
        await client.next(7)
        await client.subscribe(1, TOPIC, kind=pb.SUB_KEY_SHARED)
        assert b"\xff\xfe\xfd\xfc" in (await client.next(9)).payload
        unsigned = MessageMetadata(producer_name="KEY!", sequence_id=2, publish_time=1)
        client.send(1, 2, encode_entry(unsigned, b"x")[6:].replace(b"KEY!", b"\xff\xfe\xfd\xfc"))
        assert "no UTF-8" in (await client.next(8)).command.send_error.message

    run(scenario)


def test_a_cumulative_acknowledgement_says_which_messages_of_its_batch_are_left() -> None:
    """The set of a client also leaves out later messages that were acknowledged one by one.

    The messages in between are still to be delivered.
    """

    async def scenario(cluster: BrokerCluster, world: World) -> None:
        client = await BinaryClient.connect(world, BINARY)
        await client.open_producer(1, TOPIC)
        client.send(1, 0, entry("p", 0, batch=8), num_messages=8)
        await client.next(7)
        await client.subscribe(1, TOPIC)
        place = (await client.next(9)).command.message.message_id
        place.ack_set.append(0b1101_1000)  # 0 to 2, and 5 from before
        client.say(
            pb.Command(
                type=10,
                ack=pb.Ack(
                    consumer_id=1, ack_type=pb.Ack.CUMULATIVE, message_id=[place], request_id=7
                ),
            )
        )
        assert not (await client.next(38)).command.ack_response.HasField("error")
        client.say(pb.Command(type=20, redeliver=pb.RedeliverUnacknowledgedMessages(consumer_id=1)))
        assert list((await client.next(9)).command.message.ack_set) == [0b1101_1000]

    run(scenario)
