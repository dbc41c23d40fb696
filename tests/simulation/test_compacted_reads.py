"""Compacted reads through real clients, brokers and bookies in virtual time: for each key what a
full read ends with.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from pulsarish.broker.clients.commands import Acknowledge, Subscribe
from pulsarish.broker.clients.commands import InitialPosition as Initial
from pulsarish.broker.compaction.reads import CompactedReads
from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncReader
from pulsarish.client.enums import CompressionType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.managed_ledger.options import Retention
from pulsarish.metadata import paths
from pulsarish.model.errors import AlreadyExists, ConsumerBusy, InvalidArgument, NotAllowedError
from pulsarish.model.ledger_metadata import LedgerMetadata, PurposeKind
from pulsarish.model.subscription_type import SubscriptionType
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire.json_record import decode_record
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import ConsumeClient, find
from tests.support.dispatching import Outlet

TOPIC = "persistent://public/default/t"


async def table(client: AsyncClient, *, compacted: bool) -> dict[str, bytes]:
    """What a reader of the whole topic ends with; an empty message removes its key."""
    found: dict[str, bytes] = {}
    reader = await client.create_reader(TOPIC, MessageId.earliest, is_read_compacted=compacted)
    while await reader.has_message_available():
        message = await reader.read_next()
        if message.has_partition_key():
            found[message.partition_key()] = message.data()
    await reader.close()
    return {key: value for key, value in found.items() if value}


def test_without_a_view_a_compacted_read_is_a_read_of_the_log() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        for number in range(10):
            await producer.send(b"value %d" % number, partition_key=f"key {number % 3}")
        assert await table(client, compacted=True) == {
            "key 0": b"value 9",
            "key 1": b"value 7",
            "key 2": b"value 8",
        }
        view = await client.create_table_view(TOPIC)
        assert {key: view.get(key) for key in ("key 0", "key 1", "key 2")} == await table(
            client, compacted=False
        )

    play_with_brokers(scenario)


def test_a_compacted_read_is_refused_where_consumers_share_messages() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = await ConsumeClient.connect(
            brokered.world, await find(brokered.world, ["broker0"], TOPIC)
        )
        for kind in (pb.SUB_SHARED, pb.SUB_KEY_SHARED):
            with pytest.raises(NotAllowedError, match="exclusive and failover"):
                await client.subscribe(1, TOPIC, "s", type=kind, read_compacted=True)
        await client.subscribe(1, TOPIC, "s", type=pb.SUB_FAILOVER, read_compacted=True)

    play_with_brokers(scenario, seeds=1)


async def publish(client: AsyncClient, *messages: tuple[str | None, bytes]) -> None:
    producer = await client.create_producer(TOPIC)
    for key, value in messages:
        await producer.send(value, partition_key=key)
    await producer.close()


async def compact(brokered: Brokered) -> None:
    compaction = brokered.topic(TOPIC).compaction
    await compaction.settled()
    compaction.start()
    await brokered.until(lambda: not compaction.running)
    assert compaction.state == "SUCCESS", compaction.last_error


def test_a_view_gives_the_newest_of_each_key_and_then_the_log() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(
            client, ("a", b"1"), ("b", b"1"), (None, b"x"), ("a", b"2"), ("c", b"1"), ("b", b"")
        )
        await compact(brokered)
        await publish(client, ("d", b"1"), ("c", b"2"))
        reader = await client.create_reader(TOPIC, MessageId.earliest, is_read_compacted=True)
        found = []
        while await reader.has_message_available():
            message = await reader.read_next()
            found.append((message.partition_key(), message.data()))
        assert found == [("a", b"2"), ("c", b"1"), ("d", b"1"), ("c", b"2")]
        assert (
            await table(client, compacted=False)
            == await table(client, compacted=True)
            == {"a": b"2", "c": b"2", "d": b"1"}
        )

    play_with_brokers(scenario)


async def trim(brokered: Brokered) -> None:
    """Begin another ledger and take everything off the log that nobody needs."""
    log = brokered.topic(TOPIC).log
    await log.roll()
    await log.trimmer.trim(Retention())


async def read(reader: AsyncReader) -> list[tuple[str, bytes]]:
    found = []
    while await reader.has_message_available():
        message = await reader.read_next()
        found.append((message.partition_key(), message.data()))
    return found


def test_the_view_outlives_the_log() -> None:
    """Nothing but the view holds these messages: readers, seeks and the last message's id go by
    it.
    """

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, ("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b""))
        await compact(brokered)
        await trim(brokered)
        assert brokered.topic(TOPIC).log.entries == 0
        reader = await client.create_reader(TOPIC, MessageId.earliest, is_read_compacted=True)
        assert await read(reader) == [("b", b"1"), ("a", b"2")]
        await publish(client, ("d", b"1"))
        assert await read(reader) == [("d", b"1")]
        await reader.seek(MessageId.earliest)
        assert await read(reader) == [("b", b"1"), ("a", b"2"), ("d", b"1")]
        await reader.seek(1)
        assert await read(reader) == [("b", b"1"), ("a", b"2"), ("d", b"1")]
        await reader.seek(MessageId.latest)
        assert await read(reader) == []
        latest = await client.create_reader(TOPIC, MessageId.latest, is_read_compacted=True)
        assert await read(latest) == []
        await publish(client, ("e", b"1"))
        assert await read(latest) == await read(reader) == [("e", b"1")]

    play_with_brokers(scenario)


def test_a_reader_that_comes_back_is_told_of_what_was_removed_meanwhile() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, ("a", b"1"), ("b", b"1"), ("c", b"1"))
        reader = await client.create_reader(TOPIC, MessageId.earliest, is_read_compacted=True)
        first = [await reader.read_next() for _ in range(2)]
        assert [message.partition_key() for message in first] == ["a", "b"]
        await reader.close()
        await publish(client, ("a", b""), ("b", b"2"))
        await compact(brokered)
        await trim(brokered)
        back = await client.create_reader(TOPIC, first[-1].message_id(), is_read_compacted=True)
        assert await read(back) == [("c", b"1"), ("a", b""), ("b", b"2")]
        anew = await client.create_reader(TOPIC, MessageId.earliest, is_read_compacted=True)
        assert await read(anew) == [("c", b"1"), ("b", b"2")]

    play_with_brokers(scenario)


def test_a_durable_subscription_acknowledges_message_by_message() -> None:
    """What compaction took out leaves no holes, and what is not acknowledged comes again, also from
    what was trimmed.
    """

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, *[(f"k{number % 5}", b"%d" % number) for number in range(50)])
        await compact(brokered)
        await trim(brokered)
        await publish(client, *[(f"k{number % 5}", b"%d" % number) for number in range(50, 100)])
        await compact(brokered)
        options = {"initial_position": InitialPosition.Earliest, "is_read_compacted": True}
        consumer = await client.subscribe(TOPIC, "s", **options)
        got = [await consumer.receive() for _ in range(5)]
        assert [message.data() for message in got] == [b"%d" % number for number in range(95, 100)]
        for message in (got[0], got[1], got[3]):
            await consumer.acknowledge(message)
        await consumer.close()
        subscription = brokered.subscription(TOPIC, "s")
        assert subscription.cursor.hole_count <= 1
        consumer = await client.subscribe(TOPIC, "s", **options)
        again = [await consumer.receive() for _ in range(2)]
        assert [message.data() for message in again] == [b"97", b"99"]
        for message in again:
            await consumer.acknowledge(message)
        await brokered.until(lambda: subscription.cursor.backlog() == 0)
        assert subscription.cursor.hole_count == 0
        with pytest.raises(ConsumerBusy, match="with read_compacted"):
            await brokered.topic(TOPIC).subscribe(
                Subscribe(1, 1, TOPIC, "s", type=SubscriptionType.EXCLUSIVE),
                subscription.consumers[0].outlet,
                "",
            )

    play_with_brokers(scenario)


def test_a_subscription_made_before_the_first_message_is_given_no_tombstones() -> None:
    """It has acknowledged nothing, so it knows no key that could have been removed, whatever it was
    to begin with.
    """

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        for initial in (InitialPosition.Latest, InitialPosition.Earliest):
            await (
                await client.subscribe(
                    TOPIC, initial.name, initial_position=initial, is_read_compacted=True
                )
            ).close()
        await publish(client, ("a", b"1"), ("b", b"1"), ("a", b""), ("c", b"1"))
        await compact(brokered)
        for initial in (InitialPosition.Latest, InitialPosition.Earliest):
            consumer = await client.subscribe(
                TOPIC, initial.name, initial_position=initial, is_read_compacted=True
            )
            assert [(await consumer.receive()).data() for _ in range(2)] == [b"1", b"1"]
            await publish(client, ("d", initial.name.encode()))
            while (message := await consumer.receive()).data() != initial.name.encode():
                assert message.data()
            await consumer.close()

    play_with_brokers(scenario)


def test_a_subscription_that_returns_gets_tombstones_if_all_before_it_was_trimmed() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        options = {"initial_position": InitialPosition.Earliest, "is_read_compacted": True}
        consumer = await client.subscribe(TOPIC, "s", **options)
        await publish(client, ("a", b"1"), ("b", b"1"))
        for _ in range(2):
            await consumer.acknowledge(await consumer.receive())
        await consumer.close()
        subscription = brokered.subscription(TOPIC, "s")
        await subscription.cursor.flush()
        await trim(brokered)
        await publish(client, ("a", b""), ("c", b"1"))
        await compact(brokered)
        assert subscription.cursor.read_from <= brokered.topic(TOPIC).log.first_position
        consumer = await client.subscribe(TOPIC, "s", **options)
        assert [((await consumer.receive()).partition_key()) for _ in range(2)] == ["a", "c"]

    play_with_brokers(scenario)


def test_the_policy_compacts_by_itself() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, *[("k", b"x" * 500) for _ in range(10)])
        compaction = brokered.topic(TOPIC).compaction
        await brokered.world.clock.sleep(5)
        assert compaction.state == "NOT_RUN"
        await publish(client, *[("k", b"x" * 500) for _ in range(20)])
        await brokered.until(lambda: compaction.state == "SUCCESS")
        assert compaction.backlog_bytes() == 0
        assert (compaction.removed_total, compaction.succeeded_count, compaction.failed_count) == (
            29,
            1,
            0,
        )
        assert await table(client, compacted=True) == {"k": b"x" * 500}

    settings = {
        "broker_service_compaction_threshold_in_bytes": 10_000,
        "managed_ledger_maintenance_interval_seconds": 1.0,
    }
    play_with_brokers(scenario, **settings)


def test_with_the_policy_nothing_goes_before_it_was_compacted() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, ("a", b"1"), ("b", b"1"))
        topic = brokered.topic(TOPIC)
        assert topic.topic_limits.retention().until_compacted
        await topic.log.roll()
        await topic.log.trimmer.trim()
        assert topic.log.entries == 2
        # Without a client the topic waits for its compaction too.
        await brokered.world.clock.sleep(300)
        assert await table(client, compacted=True) == {"a": b"1", "b": b"1"}
        await compact(brokered)
        await brokered.topic(TOPIC).log.trimmer.trim()
        assert brokered.topic(TOPIC).log.entries == 0
        assert await table(client, compacted=True) == {"a": b"1", "b": b"1"}

    settings = {
        "broker_service_compaction_threshold_in_bytes": 10_000,
        "broker_delete_inactive_topics_enabled": True,
        "broker_delete_inactive_topics_max_inactive_duration_seconds": 60,
    }
    play_with_brokers(scenario, **settings)


def test_a_topic_with_too_many_keys_says_so() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, *[(f"k{number}", b"x") for number in range(6)])
        compaction = brokered.topic(TOPIC).compaction
        compaction.start()
        with pytest.raises(AlreadyExists, match="in progress"):
            compaction.start()
        await brokered.until(lambda: not compaction.running)
        assert compaction.state == "ERROR"
        assert "more than 5 keys" in compaction.last_error
        assert brokered.topic(TOPIC).log.views.current is None
        assert len(await table(client, compacted=True)) == 6

    play_with_brokers(scenario, topic_compaction_keys_max=5)


def test_emptied_and_given_up_views_go() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, ("a", b"1"))
        await compact(brokered)
        topic = brokered.topic(TOPIC)
        await topic.compaction.forget()
        assert (topic.log.views.current, topic.compaction.state) == (None, "NOT_RUN")
        assert await table(client, compacted=True) == {"a": b"1"}
        await publish(client, ("a", b""))
        await compact(brokered)
        assert await table(client, compacted=True) == {}
        await publish(client, ("b", b"1"))
        await compact(brokered)
        await topic.truncate()
        assert await table(client, compacted=True) == {}
        await publish(client, ("c", b"1"))
        assert await table(client, compacted=True) == {"c": b"1"}

    play_with_brokers(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_compacted_and_trimmed_meanwhile_a_compacted_read_ends_as_the_dictionary(
    seed: int,
) -> None:
    """Readers that begin again, that stay, and that leave and come back, against the last values of
    what was published.
    """

    async def scenario(brokered: Brokered) -> None:
        rng = random.Random(seed)
        client = brokered.client()
        batching = {
            "batching_enabled": True,
            "batching_max_messages": 5,
            "compression_type": rng.choice(list(CompressionType)[:4]),
        }
        producers = [
            await client.create_producer(TOPIC),
            await client.create_producer(TOPIC, **batching),
        ]
        expected: dict[str, bytes] = {}
        tables: dict[int, dict[str, bytes]] = {0: {}, 1: {}}
        readers = {0: await client.create_reader(TOPIC, MessageId.earliest, is_read_compacted=True)}
        last = MessageId.earliest

        async def take(reader: AsyncReader, found: dict[str, bytes], most: int) -> MessageId | None:
            place = None
            while most and await reader.has_message_available():
                message = await reader.read_next()
                found[message.partition_key()] = message.data()
                place = message.message_id()
                most -= 1
            return place

        for _ in range(12):
            for _ in range(rng.randrange(1, 30)):
                key, value = (
                    f"k{rng.randrange(9)}",
                    b"" if rng.random() < 0.3 else b"%d" % rng.getrandbits(20),
                )
                # Of one producer at a time, so that the order is known.
                await rng.choice(producers).send(value, partition_key=key)
                expected[key] = value
            if rng.random() < 0.6:
                await compact(brokered)
            if rng.random() < 0.6:
                await trim(brokered)
            await take(readers[0], tables[0], rng.randrange(12))
            if rng.random() < 0.3:
                await readers[0].seek(MessageId.earliest)
                tables[0].clear()
            back = await client.create_reader(TOPIC, last, is_read_compacted=True)
            last = await take(back, tables[1], rng.randrange(12)) or last
            await back.close()
        values = {key: value for key, value in expected.items() if value}
        await take(readers[0], tables[0], 10_000)
        back = await client.create_reader(TOPIC, last, is_read_compacted=True)
        await take(back, tables[1], 10_000)
        for found in tables.values():
            assert {key: value for key, value in found.items() if value} == values
        assert await table(client, compacted=True) == values

    play_with_brokers(scenario, seeds=1)


@pytest.mark.parametrize("seed", range(4))
def test_owners_that_die_while_they_compact_lose_no_key_and_leave_no_ledger(seed: int) -> None:
    async def scenario(brokered: Brokered) -> None:
        rng = random.Random(seed)
        cluster = brokered.cluster
        client = brokered.client()
        producer = await client.create_producer(
            TOPIC, batching_enabled=True, batching_max_messages=3
        )
        reader = await client.create_reader(TOPIC, MessageId.earliest, is_read_compacted=True)
        expected: dict[str, bytes] = {}
        found: dict[str, bytes] = {}

        def owner() -> str | None:
            alive = [name for name in cluster.brokers if cluster.nodes[name].alive]
            full = [name for name in alive if TOPIC in cluster.brokers[name]._topics.loaded]
            return full[0] if full else None

        for _ in range(8):
            for _ in range(rng.randrange(1, 20)):
                key, value = (
                    f"k{rng.randrange(7)}",
                    b"" if rng.random() < 0.3 else b"%d" % rng.getrandbits(20),
                )
                await producer.send(value, partition_key=key)
                expected[key] = value
            await brokered.until(lambda: owner() is not None)
            name = owner()
            assert name is not None
            topic = brokered.topic(TOPIC)
            if not topic.compaction.running:
                topic.compaction.start()
            await brokered.world.clock.sleep(rng.random() * 0.03)
            if rng.random() < 0.4:
                bookie = f"bookie{rng.randrange(3)}"
                cluster.nodes[bookie].crash()
                await brokered.world.clock.sleep(rng.random())
                await cluster.start_bookie(bookie)
            if rng.random() < 0.6:
                cluster.nodes[name].crash()
                await brokered.world.clock.sleep(rng.random())
                await cluster.start_broker(name)
            elif not topic.compaction.running and topic.closed is None:
                await trim(brokered)
            for _ in range(rng.randrange(10)):
                if not await reader.has_message_available():
                    break
                message = await reader.read_next()
                found[message.partition_key()] = message.data()
        while await reader.has_message_available():
            message = await reader.read_next()
            found[message.partition_key()] = message.data()
        await compact(brokered)
        values = {key: value for key, value in expected.items() if value}
        assert {key: value for key, value in found.items() if value} == values
        assert await table(client, compacted=True) == values
        tree = brokered.sim.metadata.tree
        await brokered.until(
            lambda: brokered.topic(TOPIC).log._topic.record.deleting == (), seconds=200
        )
        record = brokered.topic(TOPIC).log._topic.record
        assert record.compacted is not None
        left = [
            ledger.ledger_id
            for path, node in tree.nodes.items()
            if path.startswith(f"{paths.LEDGERS}/") and path.count("/") == 4
            for ledger in [decode_record(node.data, LedgerMetadata, path)]
            if ledger.purpose.kind is PurposeKind.COMPACTED
        ]
        assert left == [record.compacted.ledger_id]

    play_with_brokers(scenario, brokers=2, seeds=1, topic_compaction_read_rate_bytes=2_000_000)


def test_a_sealed_topic_ends_for_a_compacted_reader_without_its_last_messages() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, ("a", b"1"), ("b", b"1"), ("b", b""))
        await compact(brokered)
        await brokered.topic(TOPIC).terminate()
        await brokered.topic(TOPIC).log.trimmer.trim(Retention())
        consumer = await ConsumeClient.connect(
            brokered.world, await find(brokered.world, ["broker0"], TOPIC)
        )
        await consumer.subscribe(1, TOPIC, "s", read_compacted=True)
        (got,) = await consumer.take(1)
        while 1 not in consumer.ended:
            await consumer.receive()
        await consumer.ack(1, [(got.ledger, got.entry)])
        with pytest.raises(InvalidArgument, match="the broker's own"):
            await consumer.subscribe(2, TOPIC, "__compaction")

    play_with_brokers(scenario)


@pytest.mark.parametrize("cumulative", [False, True])
def test_batches_acknowledged_message_by_message_leave_nothing_behind(*, cumulative: bool) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC, batching_max_messages=2)
        for keys in ("ab", "ab", "cd", "cd", "ef"):
            _ = await asyncio.gather(*[producer.send_soon(b"1", partition_key=key) for key in keys])
        await compact(brokered)
        command = Subscribe(
            1, 1, TOPIC, "s", initial_position=Initial.EARLIEST, read_compacted=True
        )
        outlet = Outlet()
        subscription, consumer = await brokered.topic(TOPIC).subscribe(command, outlet, "")
        subscription.flow(consumer, 100)
        await brokered.until(lambda: len(outlet.got) == 3)
        for delivery in outlet.got:
            for index in range(2):
                subscription.acknowledge(
                    consumer,
                    Acknowledge(
                        1, [delivery.position], cumulative=cumulative, batch_indexes=[index]
                    ),
                )
        await brokered.world.clock.sleep(1)
        assert subscription.backlog == 0

    play_with_brokers(scenario)


@pytest.mark.parametrize("cumulative", [False, True])
def test_batches_that_only_the_view_holds_are_acknowledged_message_by_message(
    *, cumulative: bool
) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC, batching_max_messages=2)

        async def publish(*batches: str) -> None:
            for keys in batches:
                _ = await asyncio.gather(
                    *[producer.send_soon(b"1", partition_key=key) for key in keys]
                )

        await publish("ab", "cd")
        await compact(brokered)
        await trim(brokered)
        await publish("ef", "ef")
        await compact(brokered)
        command = Subscribe(
            1, 1, TOPIC, "s", initial_position=Initial.EARLIEST, read_compacted=True
        )
        outlet = Outlet()
        subscription, consumer = await brokered.topic(TOPIC).subscribe(command, outlet, "")
        subscription.flow(consumer, 100)
        await brokered.until(lambda: len(outlet.got) == 3)
        assert isinstance(subscription.source, CompactedReads)
        assert subscription.source._is_only_in_view(outlet.got[0].position)
        subscription.acknowledge(
            consumer,
            Acknowledge(1, [outlet.got[0].position], cumulative=cumulative, batch_indexes=[0]),
        )
        for delivery in outlet.got[1:]:
            subscription.acknowledge(consumer, Acknowledge(1, [delivery.position]))
        await brokered.world.clock.sleep(1)
        assert subscription.backlog > 0, "one message is left"
        subscription.acknowledge(
            consumer,
            Acknowledge(1, [outlet.got[0].position], cumulative=cumulative, batch_indexes=[1]),
        )
        await brokered.world.clock.sleep(1)
        assert subscription.backlog == 0

    play_with_brokers(scenario)
