"""Filters of subscriptions, over whole brokers and bookies in virtual time."""

from __future__ import annotations

from typing import Any, Final

import pytest

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import CompressionType, ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import InvalidArgument, NotAllowedError, Timeout
from pulsarish.model.topic_name import TopicName
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire._pb.message_pb2 import MessageMetadata, SingleMessageMetadata
from pulsarish.wire.entry import encode_entry
from tests.support.binary_client import BinaryClient
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import find

TOPIC: Final = "persistent://public/default/t"
EU: Final = "region = 'eu'"
FILTER: Final = "persistent/public/default/t/subscription/s/filter"


async def publish(client: AsyncClient, numbers: range, **options: Any) -> None:
    """Publish messages with these numbers; every third one is of the region eu."""
    producer = await client.create_producer(TOPIC, **{"batching_enabled": False, **options})
    for number in numbers:
        producer.send_soon(
            b"%d" % number,
            properties={"region": "us" if number % 3 else "eu"},
            partition_key=str(number % 2),
        )
    await producer.flush()
    await producer.close()


async def received(consumer: AsyncConsumer, count: int, *, acknowledge: bool = True) -> list[int]:
    """Receive ``count`` messages, and see that no other one comes."""
    numbers = []
    for _ in range(count):
        message = await consumer.receive(timeout_millis=20_000)
        numbers.append(int(message.data()))
        if acknowledge:
            await consumer.acknowledge(message)
    with pytest.raises(Timeout):
        await consumer.receive(timeout_millis=500)
    return numbers


def wanted(numbers: range) -> list[int]:
    return [number for number in numbers if not number % 3]


@pytest.mark.parametrize("kind", list(ConsumerType))
@pytest.mark.parametrize("batched", [False, True])
def test_only_what_matches_comes_and_the_rest_is_acknowledged(
    kind: ConsumerType, batched: bool
) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(
            TOPIC, "s", consumer_type=kind, filter=EU, ack_receipt_enabled=True
        )
        await publish(client, range(20), batching_enabled=batched, batching_max_messages=7)
        assert await received(consumer, 7) == wanted(range(20))
        subscription = brokered.subscription(TOPIC, "s")
        assert subscription.backlog == 0
        assert subscription.mark_delete == subscription.log.last_confirmed
        row = (await brokered.stats(TOPIC))["subscriptions"]["s"]
        assert row["filterProcessedMsgCount"] == 20
        assert row["filterAcceptedMsgCount"] == 7
        assert row["filterRejectedMsgCount"] == 13
        assert row["unackedMessages"] == 0

    play_with_brokers(scenario, seeds=1)


@pytest.mark.parametrize("batch_index", [False, True])
def test_parts_of_batches_are_redelivered_and_kept_by_the_next_owner(batch_index: bool) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        options: dict[str, Any] = {
            "filter": EU,
            "batch_index_ack_enabled": batch_index,
            "ack_receipt_enabled": True,
        }
        consumer = await client.subscribe(TOPIC, "s", **options)
        await publish(
            client,
            range(10),
            batching_enabled=True,
            batching_max_messages=5,
            compression_type=CompressionType.LZ4,
        )
        assert await received(consumer, 4, acknowledge=False) == [0, 3, 6, 9]
        consumer.redeliver_unacknowledged_messages()
        assert await received(consumer, 4, acknowledge=False) == [0, 3, 6, 9]
        await brokered.administer(
            "PUT", "persistent/public/default/t/unload", owner=TopicName.parse(TOPIC)
        )
        assert await received(consumer, 4) == [0, 3, 6, 9]
        assert brokered.subscription(TOPIC, "s").backlog == 0
        assert (await brokered.administer("GET", FILTER)) == {"filter": EU}

    play_with_brokers(scenario, seeds=1)


def test_a_seek_brings_what_matches_again() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await client.subscribe(TOPIC, "keeps")
        consumer = await client.subscribe(TOPIC, "s", filter=EU)
        await publish(client, range(9))
        assert await received(consumer, 3) == [0, 3, 6]
        await consumer.seek(MessageId.earliest)
        assert await received(consumer, 3) == [0, 3, 6]

    play_with_brokers(scenario, seeds=1)


def test_a_changed_filter_holds_for_all_that_is_not_acknowledged() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(TOPIC, "s", consumer_type=ConsumerType.Shared)
        await publish(client, range(9))
        assert await received(consumer, 9, acknowledge=False) == list(range(9))
        owner = TopicName.parse(TOPIC)
        await brokered.administer("PUT", FILTER, {"filter": "region = 'us'"}, owner=owner)
        assert await received(consumer, 6, acknowledge=False) == [1, 2, 4, 5, 7, 8]
        assert brokered.subscription(TOPIC, "s").backlog == 6
        await brokered.administer("PUT", FILTER, {"filter": "__key = 1"}, owner=owner)
        assert await received(consumer, 3, acknowledge=False) == [1, 5, 7]
        await brokered.administer("DELETE", FILTER, owner=owner)
        assert await received(consumer, 3) == [1, 5, 7]
        assert (await brokered.administer("GET", FILTER, owner=owner)) == {"filter": None}
        await brokered.until(lambda: brokered.subscription(TOPIC, "s").backlog == 0)

    play_with_brokers(scenario, seeds=1)


def test_another_filter_than_the_stored_one_is_refused() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        options: dict[str, Any] = {"consumer_type": ConsumerType.Shared}
        await client.subscribe(TOPIC, "s", filter=EU, **options)
        await client.subscribe(TOPIC, "s", filter=EU, **options)
        await client.subscribe(TOPIC, "s", **options)
        with pytest.raises(
            NotAllowedError, match=r"has the filter \"region = 'eu'\", .*set-filter"
        ):
            await client.subscribe(TOPIC, "s", filter="a = 1", **options)
        with pytest.raises(InvalidArgument, match="column 4: expected a name or a value"):
            await client.subscribe(TOPIC, "other", filter="a =", **options)
        with pytest.raises(InvalidArgument, match="no argument 'filter'"):
            await client.create_reader(TOPIC, MessageId.earliest, filter=EU)  # type: ignore[call-arg]
        with pytest.raises(NotAllowedError, match="have no filters"):
            await client.subscribe("non-persistent://public/default/n", "s", filter=EU)
        with pytest.raises(AssertionError, match="column 1: expected a name"):
            await brokered.administer("PUT", FILTER, {"filter": ""}, owner=TopicName.parse(TOPIC))

    play_with_brokers(scenario, seeds=1)


def test_a_refused_message_may_match_no_longer() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(
            TOPIC,
            "s",
            consumer_type=ConsumerType.KeyShared,
            filter="__deliveryCount <= 2",
            negative_ack_redelivery_delay_ms=100,
        )
        await publish(client, range(2))
        for _ in range(2):
            for _ in range(2):
                await consumer.negative_acknowledge(await consumer.receive(timeout_millis=20_000))
        assert await received(consumer, 0) == []
        assert brokered.subscription(TOPIC, "s").backlog == 0

    play_with_brokers(scenario, seeds=1)


def test_chunks_stay_together() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(
            TOPIC, "s", consumer_type=ConsumerType.Shared, filter="region = 'eu'"
        )
        producer = await client.create_producer(
            TOPIC, batching_enabled=False, chunking_enabled=True
        )
        for region in ("us", "eu"):
            await producer.send(region.encode() * 3_000, properties={"region": region})
        message = await consumer.receive(timeout_millis=20_000)
        assert message.data() == b"eu" * 3_000
        await consumer.acknowledge(message)
        assert await received(consumer, 0) == []
        assert brokered.subscription(TOPIC, "s").backlog == 0

    play_with_brokers(scenario, seeds=1, max_message_size_bytes=2_000)


def test_partitions_have_the_filter_each() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await brokered.administer("PUT", "persistent/public/default/t/partitions", 2)
        consumer = await client.subscribe(
            TOPIC, "s", filter=EU, initial_position=InitialPosition.Earliest
        )
        await publish(client, range(9))
        assert sorted(await received(consumer, 3)) == [0, 3, 6]
        await brokered.administer("PUT", FILTER, {"filter": "region = 'us'"})
        await publish(client, range(9))
        with pytest.raises(NotAllowedError, match="asks for"):
            await consumer.receive(timeout_millis=60_000)

    play_with_brokers(scenario, seeds=1)


def batch(*regions: str) -> bytes:
    """Return the entry of a batch that Apache Pulsar's client would send."""
    content = b""
    for region in regions:
        single = SingleMessageMetadata(payload_size=1)
        single.properties.add(key="region", value=region)
        encoded = single.SerializeToString()
        content += len(encoded).to_bytes(4, "big") + encoded + b"x"
    metadata = MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=len(regions)
    )
    return encode_entry(metadata, content)


@pytest.mark.parametrize("index_ack", [False, True])
def test_apache_pulsars_clients_get_parts_of_batches_only_if_they_acknowledge_them(
    index_ack: bool,
) -> None:
    async def scenario(brokered: Brokered) -> None:
        await find(brokered.world, ["broker0"], TOPIC)
        client = await BinaryClient.connect(brokered.world, "broker0:6650")
        await client.open_producer(1, TOPIC)
        properties = [pb.KeyValue(key="pulsarish.filter", value=EU)]
        metadata = [pb.KeyValue(key="pulsarish.batch-index-ack", value="true")] if index_ack else []
        await client.subscribe(
            1, TOPIC, kind=pb.SUB_SHARED, subscription_properties=properties, metadata=metadata
        )
        for number, regions in enumerate((("us", "us"), ("us", "eu"), ("us",), ("eu",))):
            client.send(1, number, batch(*regions))
        part, whole = [each.command.message for each in await client.take(2)]
        assert (part.message_id.entry_id, list(part.ack_set)) == (1, [2] if index_ack else [])
        assert (whole.message_id.entry_id, list(whole.ack_set)) == (3, [])
        for each in (part, whole):
            place = pb.MessageIdData(
                ledger_id=each.message_id.ledger_id, entry_id=each.message_id.entry_id
            )
            ack = pb.Ack(consumer_id=1, ack_type=pb.Ack.INDIVIDUAL, message_id=[place])
            client.say(pb.Command(type=10, ack=ack))
        await brokered.until(lambda: brokered.subscription(TOPIC, "s").backlog == 0)
        wrong = [pb.KeyValue(key="pulsarish.filter", value="region =")]
        refused = await client.subscribe(
            2, TOPIC, subscription="other", subscription_properties=wrong
        )
        assert "column 9: expected a name or a value" in refused.command.error.message

    play_with_brokers(scenario, seeds=1)
