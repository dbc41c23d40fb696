"""The awaitable face against the fake broker, in virtual time: what a program does on a good
day.
"""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.client.enums import CompressionType, ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.schemas.schema import StringSchema
from pulsarish.model.errors import (
    AlreadyClosed,
    ConsumerBusy,
    NotAllowedError,
    Timeout,
    TopicNotFound,
)
from tests.support.client_world import Cast, play


def test_send_and_receive() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe("greetings", "me")
        producer = await client.create_producer("greetings")
        sent = await producer.send(
            b"hello", properties={"a": "b"}, partition_key="k", event_timestamp=5
        )
        message = await consumer.receive(timeout_millis=5_000)
        assert message.data() == b"hello"
        assert message.message_id() == sent
        assert message.properties() == {"a": "b"}
        assert message.partition_key() == "k"
        assert message.event_timestamp() == 5
        assert message.publish_timestamp() > 1_700_000_000_000
        assert message.topic_name() == "persistent://public/default/greetings"
        assert message.redelivery_count() == 0
        await consumer.acknowledge(message)
        await cast.sleep(1)
        topic = cast.cluster.topic("persistent://public/default/greetings")
        assert topic.subscriptions["me"].acked == {0}

    play(scenario)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_batches_of_many(kind: CompressionType) -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe("many", "me", initial_position=InitialPosition.Earliest)
        producer = await client.create_producer(
            "many", compression_type=kind, max_pending_messages=10_000
        )
        ids = await asyncio.gather(*(producer.send_soon(b"%d" % number) for number in range(2_500)))
        assert ids == sorted(set(ids)), "ids are in the order of sending"
        received = [await consumer.receive(timeout_millis=5_000) for _ in range(2_500)]
        assert [int(message.data()) for message in received] == list(range(2_500))
        assert [message.message_id() for message in received] == ids
        assert len(cast.cluster.topic("persistent://public/default/many").entries) <= 4
        with pytest.raises(Timeout):
            await consumer.receive(timeout_millis=100)

    play(scenario, seeds=1)


def test_unbatched_messages_share_grpc_messages() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer(
            "single", batching_enabled=False, max_pending_messages=5_000
        )
        await asyncio.gather(*(producer.send_soon(b"x" * 100) for _ in range(3_000)))
        assert len(cast.cluster.topic("persistent://public/default/single").entries) == 3_000
        assert cast.broker.publish_messages < 30

    play(scenario)


def test_reader_from_anywhere() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("log", batching_max_messages=4)
        ids = await asyncio.gather(*(producer.send_soon(b"%d" % number) for number in range(12)))
        reader = await client.create_reader("log", MessageId.earliest)
        seen = []
        while await reader.has_message_available():
            seen.append(int((await reader.read_next(timeout_millis=5_000)).data()))
        assert seen == list(range(12))
        middle = await client.create_reader("log", ids[5])
        assert (await middle.read_next(timeout_millis=5_000)).data() == b"6"
        inclusive = await client.create_reader("log", ids[5], start_message_id_inclusive=True)
        assert (await inclusive.read_next(timeout_millis=5_000)).data() == b"5"
        latest = await client.create_reader("log", MessageId.latest)
        assert not await latest.has_message_available()
        with pytest.raises(Timeout):
            await latest.read_next(timeout_millis=100)
        await producer.send(b"12")
        assert await latest.has_message_available()
        assert (await latest.read_next(timeout_millis=5_000)).data() == b"12"
        await latest.seek(ids[3])
        assert (await latest.read_next(timeout_millis=5_000)).data() == b"4"
        await latest.seek(MessageId.earliest)
        assert (await latest.read_next(timeout_millis=5_000)).data() == b"0"

    play(scenario)


def test_seek_to_a_message_and_to_a_time() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe("log", "me", receiver_queue_size=7)
        producer = await client.create_producer("log", batching_enabled=False)
        ids, times = [], []
        for number in range(30):
            ids.append(await producer.send(b"%d" % number))
            times.append((await consumer.receive(timeout_millis=5_000)).publish_timestamp())
            await cast.sleep(0.01)
        await consumer.seek(ids[20])
        assert (await consumer.receive(timeout_millis=5_000)).data() == b"21"
        await consumer.seek(times[12])
        assert (await consumer.receive(timeout_millis=5_000)).data() == b"12"
        await consumer.seek(MessageId.earliest)
        assert [(await consumer.receive(timeout_millis=5_000)).data() for _ in range(30)] == [
            b"%d" % number for number in range(30)
        ]
        assert (await consumer.get_last_message_id()).entry_id() == 29

    play(scenario)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_seek_behind_a_message_leaves_nothing_unacknowledged(batch: int) -> None:
    """The message itself does not come, so nobody could acknowledge it: it must not count as
    backlog forever.
    """

    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer(
            "t", batching_max_messages=batch, batching_max_publish_delay_ms=1_000
        )
        consumer = await client.subscribe(
            "t", "s", consumer_type=ConsumerType.Shared, initial_position=InitialPosition.Earliest
        )
        ids = await asyncio.gather(*(producer.send_soon(b"%d" % number) for number in range(12)))
        for place in range(12):
            # With and without what tells the last message of a batch.
            for start in (ids[place], MessageId.deserialize(ids[place].serialize())):
                await consumer.seek(start)
                rest = [await consumer.receive(5_000) for _ in range(11 - place)]
                assert [message.data() for message in rest] == [
                    b"%d" % number for number in range(place + 1, 12)
                ]
                for message in rest:
                    await consumer.acknowledge(message)
                await cast.sleep(0.5)
                subscription = cast.cluster.topic("persistent://public/default/t").subscriptions[
                    "s"
                ]
                assert subscription.mark_delete == 12 // batch - 1, f"behind {start}"

    play(scenario, seeds=1)


def test_a_seek_beyond_the_end_delivers_what_comes_next() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        sent = await producer.send(b"old")
        beyond = MessageId(-1, sent.ledger_id(), 1_000, 3, 5)
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
        await consumer.seek(beyond)
        reader = await client.create_reader("t", beyond)
        await producer.send(b"new")
        assert (
            (await consumer.receive(5_000)).data()
            == (await reader.read_next(5_000)).data()
            == b"new"
        )
        assert not await reader.has_message_available()

    play(scenario)


def test_partitions_by_key_and_in_turn() -> None:
    async def scenario(cast: Cast) -> None:
        cast.cluster.partitions["persistent://public/default/wide"] = 4
        client = cast.client()
        assert len(await client.get_topic_partitions("wide")) == 4
        consumer = await client.subscribe("wide", "me", consumer_type=ConsumerType.Shared)
        producer = await client.create_producer("wide", batching_enabled=False)
        ids = await asyncio.gather(
            *(
                producer.send_soon(b"%d" % number, partition_key=f"key-{number % 10}")
                for number in range(100)
            )
        )
        by_key: dict[int, set[int]] = {}
        for number, message_id in enumerate(ids):
            by_key.setdefault(number % 10, set()).add(message_id.partition())
        assert all(len(partitions) == 1 for partitions in by_key.values())
        assert len(set.union(*by_key.values())) > 1
        others = await asyncio.gather(*(producer.send_soon(b"x") for _ in range(40)))
        assert [sum(one.partition() == partition for one in others) for partition in range(4)] == [
            10
        ] * 4
        for _ in range(140):
            await consumer.acknowledge(await consumer.receive(timeout_millis=5_000))
        await cast.sleep(1)
        for partition in range(4):
            topic = cast.cluster.topic(f"persistent://public/default/wide-partition-{partition}")
            assert len(topic.subscriptions["me"].acked) == len(topic.entries) > 0

    play(scenario)


def test_acknowledgements_of_all_kinds() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe(
            "acks", "me", ack_receipt_enabled=True, batch_index_ack_enabled=False
        )
        producer = await client.create_producer("acks", batching_max_messages=5)
        await asyncio.gather(*(producer.send_soon(b"%d" % number) for number in range(20)))
        messages = [await consumer.receive(timeout_millis=5_000) for _ in range(20)]
        subscription = cast.cluster.topic("persistent://public/default/acks").subscriptions["me"]
        for message in messages[:4]:
            await consumer.acknowledge(message)
        assert subscription.acked == set(), "a batch is acknowledged when all of it is"
        await consumer.acknowledge(messages[4].message_id())
        assert subscription.acked == {0}
        await consumer.acknowledge(messages[5:10])
        assert subscription.acked == {0, 1}
        await consumer.acknowledge_cumulative(messages[17])
        assert subscription.acked == {0, 1, 2}
        await consumer.acknowledge_cumulative(messages[19])
        assert subscription.acked == {0, 1, 2, 3}
        shared = await client.subscribe("acks", "shared", consumer_type=ConsumerType.Shared)
        with pytest.raises(NotAllowedError, match="acknowledge each message"):
            await shared.acknowledge_cumulative(messages[0])

    play(scenario)


def test_many_acknowledgements_are_few_requests() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        # No permit is due meanwhile, which would wake the client too.
        consumer = await client.subscribe(
            "acks", "me", consumer_type=ConsumerType.Shared, receiver_queue_size=10_000
        )
        producer = await client.create_producer(
            "acks", batching_enabled=False, max_pending_messages=5_000
        )
        await asyncio.gather(*(producer.send_soon(b"x") for number in range(3_000)))
        for _ in range(3_000):
            await consumer.acknowledge(await consumer.receive(timeout_millis=5_000))
        await cast.sleep(1)
        assert (
            len(cast.cluster.topic("persistent://public/default/acks").subscriptions["me"].acked)
            == 3_000
        )
        assert 3 <= len(cast.broker.acks) < 20, "1,000 or a few more are sent at once"

    play(scenario)


def test_negative_acknowledgement_comes_again_later() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        consumer = await client.subscribe(
            "again", "me", consumer_type=ConsumerType.Shared, negative_ack_redelivery_delay_ms=2_000
        )
        producer = await client.create_producer("again", batching_enabled=False)
        await producer.send(b"a")
        await producer.send(b"b")
        first = await consumer.receive(timeout_millis=5_000)
        await consumer.acknowledge(await consumer.receive(timeout_millis=5_000))
        await consumer.negative_acknowledge(first)
        with pytest.raises(Timeout):
            await consumer.receive(timeout_millis=1_500)
        again = await consumer.receive(timeout_millis=2_000)
        assert (again.data(), again.redelivery_count()) == (first.data(), 1)

    play(scenario)


def test_refusals_are_typed() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client(operation_timeout_seconds=3)
        await client.subscribe("busy", "me")
        with pytest.raises(ConsumerBusy, match="exclusive"):
            await client.subscribe("busy", "me")
        with pytest.raises(TopicNotFound):
            await client.create_producer("missing")

    play(scenario)


def test_what_they_show_of_themselves() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", "writer")
        consumer = await client.subscribe("t", "s", consumer_name="worker")
        reader = await client.create_reader("t", MessageId.earliest, subscription_role_prefix="r")
        view = await client.create_table_view("t", "v")
        topic = "persistent://public/default/t"
        assert repr(client) == f"Client({client._source.current.service_url}, open)"
        assert repr(producer) == f"Producer({topic}, writer, connected)"
        assert repr(consumer) == f"Consumer({topic}, s, worker, connected)"
        assert repr(reader).startswith(f"Reader({topic}, r-reader-")
        assert repr(view) == "TableView(topic=t, subscription=v)"
        await client.close()
        assert repr(client) == f"Client({client._source.current.service_url}, closed)"
        assert repr(producer) == f"Producer({topic}, writer, closed)"
        assert repr(consumer) == f"Consumer({topic}, s, worker, closed)"

    play(scenario)


def test_table_view() -> None:
    async def scenario(cast: Cast) -> None:
        cast.cluster.partitions["persistent://public/default/table"] = 3
        client = cast.client()
        producer = await client.create_producer("table", schema=StringSchema())
        for number in range(20):
            await producer.send(f"value {number}", partition_key=f"key {number % 5}")
        await producer.send("keyless")
        view = await client.create_table_view("table", schema=StringSchema())
        assert {f"key {number}": view.get(f"key {number}") for number in range(5)} == {
            f"key {n}": f"value {15 + n}" for n in range(5)
        }
        assert (len(view), view.get("absent")) == (5, None)
        assert sorted(view) == [key for key, _ in sorted(view.items())]
        assert dict(view.items()) == {key: view[key] for key in view}
        assert ("key 1" in view, "absent" in view) == (True, False)
        with pytest.raises(KeyError):
            view["absent"]
        assert repr(view) == "TableView(topic=table)"
        changes: list[tuple[str, str | None]] = []
        view.for_each_and_listen(lambda key, value: changes.append((key, value)))
        assert len(changes) == 5
        await producer.send("newer", partition_key="key 1")
        await producer.send("", partition_key="key 2")
        await cast.sleep(1)
        assert changes[5:] == [("key 1", "newer"), ("key 2", None)]
        assert (view.get("key 1"), view.get("key 2"), len(view)) == ("newer", None, 4)
        await view.close()
        await cast.sleep(1)
        with pytest.raises(AlreadyClosed):
            view.get("key 1")

    play(scenario)
