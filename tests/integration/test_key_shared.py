"""Key-shared subscriptions through the client, over whole brokers and bookies in virtual time."""

from __future__ import annotations

from collections import defaultdict

import pytest

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
)
from pulsarish.client.messages.consumer_policies import (
    ConsumerKeySharedPolicy,
)
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import ConsumerAssignError, ConsumerBusy, NotAllowedError, Timeout
from pulsarish.wire.entry import key_hash
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"


async def subscribe(
    client: AsyncClient,
    name: str,
    *,
    policy: ConsumerKeySharedPolicy | None = None,
    queue: int = 1_000,
    receipts: bool = False,
) -> AsyncConsumer:
    return await client.subscribe(
        TOPIC,
        "s",
        consumer_type=ConsumerType.KeyShared,
        consumer_name=name,
        initial_position=InitialPosition.Earliest,
        key_shared_policy=policy,
        receiver_queue_size=queue,
        negative_ack_redelivery_delay_ms=100,
        ack_receipt_enabled=receipts,
    )


async def take_all(consumer: AsyncConsumer, *, acknowledge: bool = True) -> list[Message]:
    taken: list[Message] = []
    while True:
        try:
            message = await consumer.receive(timeout_millis=500)
        except Timeout:
            return taken
        taken.append(message)
        if acknowledge:
            await consumer.acknowledge(message)


def sticky(*ranges: tuple[int, int]) -> ConsumerKeySharedPolicy:
    return ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=list(ranges))


def shown(messages: list[Message]) -> list[str]:
    return [message.data().decode() for message in messages]


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZSTD])
@pytest.mark.parametrize("batching", [None, BatchingType.KeyBased])
def test_each_key_goes_to_one_consumer_in_order(
    batching: BatchingType | None, compression: CompressionType
) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumers = [await subscribe(client, f"c{index}") for index in range(3)]
        producer = await client.create_producer(
            TOPIC,
            batching_enabled=batching is not None,
            batching_type=batching or BatchingType.Default,
            batching_max_publish_delay_ms=5,
            compression_type=compression,
        )
        for number in range(300):
            ordering = "o" if number % 10 == 9 else None
            _ = producer.send_soon(
                f"{number % 10}-{number}".encode(),
                partition_key=str(number % 10),
                ordering_key=ordering,
            )
        await producer.flush()
        keys: dict[str, set[str]] = defaultdict(set)
        for consumer in consumers:
            numbers: dict[str, list[int]] = defaultdict(list)
            for message in await take_all(consumer):
                key, number = message.data().decode().split("-")
                assert message.partition_key() == key
                keys[key].add(consumer.consumer_name())
                numbers[key].append(int(number))
            for key, found in numbers.items():
                assert found == list(range(int(key), 300, 10))
        assert all(len(who) == 1 for who in keys.values())
        assert len(keys) == 10
        assert len({next(iter(who)) for who in keys.values()}) > 1, "the keys are shared out"

    play_with_brokers(scenario)


def test_a_new_consumer_waits_for_what_the_old_one_holds() -> None:
    async def scenario(brokered: Brokered) -> None:
        client, keys = brokered.client(), [f"k{index}" for index in range(30)]
        old = await subscribe(client, "old")
        producer = await client.create_producer(TOPIC)
        for key in keys:
            await producer.send(b"1", partition_key=key)
        held = await take_all(old, acknowledge=False)
        assert len(held) == len(keys)
        new = await subscribe(client, "new")
        for key in keys:
            await producer.send(b"2", partition_key=key)
        assert await take_all(new) == []
        kept = await take_all(old, acknowledge=False)
        moved = set(keys) - {message.partition_key() for message in kept}
        assert 5 < len(moved) < 25
        stats = (await brokered.stats(TOPIC))["subscriptions"]["s"]
        assert (stats["type"], stats["keySharedMode"], stats["drainingHashesCount"]) == (
            "Key_Shared",
            "AUTO_SPLIT",
            len(moved),
        )
        assert stats["waiting"]["reason"] == "keys_draining"
        (mine,) = [each for each in stats["consumers"] if each["consumerName"] == "old"]
        assert {each["hash"] for each in mine["drainingHashes"]} == {
            key_hash(key.encode()) for key in moved
        }
        assert all(
            each["unackMsgs"] == 1 and each["blockedAttempts"] for each in mine["drainingHashes"]
        )
        assert mine["keyHashRanges"]
        first, last = mine["keyHashRangeArrays"][0]
        assert mine["keyHashRanges"][0] == f"[{first}, {last}]"
        for message in held:
            await old.acknowledge(message)
        assert {message.partition_key() for message in await take_all(new)} == moved
        stats = (await brokered.stats(TOPIC))["subscriptions"]["s"]
        assert (stats["drainingHashesCount"], stats["drainingHashesClearedTotal"]) == (
            0,
            len(moved),
        )

    play_with_brokers(scenario)


def test_what_a_consumer_held_goes_to_the_others_in_order_when_it_leaves() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        one, two = await subscribe(client, "one"), await subscribe(client, "two")
        producer = await client.create_producer(TOPIC)
        for number in range(60):
            await producer.send(str(number).encode(), partition_key=str(number % 6))
        first = await take_all(one, acknowledge=False)
        assert first
        await one.close()
        got = [int(each) for each in shown(await take_all(two))]
        assert sorted(got) == list(range(60))
        for key in range(6):
            assert [number for number in got if number % 6 == key] == list(range(key, 60, 6))

    play_with_brokers(scenario)


def test_sticky_ranges() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        low = await subscribe(client, "low", policy=sticky((0, 29_999)))
        with pytest.raises(
            ConsumerAssignError,
            match=r"\[29999, 40000\] overlaps \[0, 29999\] of the connected consumer 'low'",
        ):
            await subscribe(client, "other", policy=sticky((29_999, 40_000)))
        with pytest.raises(ConsumerBusy, match="sticky, in order"):
            await subscribe(client, "other")
        producer = await client.create_producer(TOPIC)
        keys = [f"k{index}" for index in range(40)]
        for key in keys:
            await producer.send(key.encode(), partition_key=key)
        lower = [key for key in keys if key_hash(key.encode()) < 30_000]
        assert shown(await take_all(low)) == lower
        stats = (await brokered.stats(TOPIC))["subscriptions"]["s"]
        assert (stats["keySharedMode"], stats["entriesOfUnassignedHashes"]) == (
            "STICKY",
            40 - len(lower),
        )
        assert stats["waiting"]["reason"] == "keys_unassigned"
        high = await subscribe(client, "high", policy=sticky((30_000, 65_535)))
        assert shown(await take_all(high)) == [key for key in keys if key not in lower]

    play_with_brokers(scenario)


def test_it_is_acknowledged_one_by_one_and_refused_messages_come_again() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await subscribe(client, "one")
        producer = await client.create_producer(TOPIC)
        for number in range(4):
            await producer.send(str(number).encode(), partition_key="k")
        messages = await take_all(consumer, acknowledge=False)
        with pytest.raises(NotAllowedError, match="cumulative"):
            await consumer.acknowledge_cumulative(messages[1])
        await consumer.acknowledge(messages[0])
        for message in messages[1:]:
            await consumer.negative_acknowledge(message)
        again = await take_all(consumer)
        assert (shown(again), [message.redelivery_count() for message in again]) == (
            ["1", "2", "3"],
            [1, 1, 1],
        )

    play_with_brokers(scenario)


def test_order_is_kept_over_the_death_of_the_owner() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        # With receipts: acknowledgements that the owner has not stored are lost with it, and their
        # messages are redelivered after later ones.
        consumers = [
            await subscribe(client, f"c{index}", queue=5, receipts=True) for index in range(2)
        ]
        producer = await client.create_producer(TOPIC, producer_name="p")
        for number in range(100):
            await producer.send(str(number).encode(), partition_key=str(number % 8))
        taken: list[int] = []
        for consumer in consumers:
            for _ in range(10):
                message = await consumer.receive()
                taken.append(int(message.data()))
                await consumer.acknowledge(message)
        owner = next(
            name
            for name, broker in brokered.cluster.brokers.items()
            if TOPIC in broker._topics.loaded
        )
        brokered.node(owner).crash()
        for consumer in consumers:
            numbers = [int(each) for each in shown(await take_all(consumer))]
            for key in range(8):
                mine = [number for number in numbers if number % 8 == key]
                assert mine == sorted(mine)
            taken += numbers
        assert set(taken) == set(range(100))

    play_with_brokers(scenario, brokers=2)
