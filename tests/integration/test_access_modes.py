"""Access modes of producers through the client, over whole brokers and bookies in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.client.enums import InitialPosition, ProducerAccessMode
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import ProducerBusy, ProducerFenced, PulsarishError
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"
SHARED, EXCLUSIVE = ProducerAccessMode.Shared, ProducerAccessMode.Exclusive
WAITING, FENCING = ProducerAccessMode.WaitForExclusive, ProducerAccessMode.ExclusiveWithFencing


def test_exclusive_is_alone_and_refuses_others() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        alone = await client.create_producer(TOPIC, access_mode=EXCLUSIVE)
        with pytest.raises(ProducerFenced, match="producers already"):
            await client.create_producer(TOPIC, access_mode=EXCLUSIVE)
        with pytest.raises(ProducerBusy, match="exclusive producer"):
            await client.create_producer(TOPIC)
        await alone.send(b"1")
        stats = await brokered.stats(TOPIC)
        assert (stats["topicEpoch"], stats["publishers"][0]["accessMode"]) == (0, "Exclusive")
        await alone.close()
        shared = await client.create_producer(TOPIC)
        with pytest.raises(ProducerFenced, match=shared.producer_name()):
            await client.create_producer(TOPIC, access_mode=EXCLUSIVE)

    play_with_brokers(scenario)


def test_who_waits_comes_in_turn() -> None:
    async def scenario(brokered: Brokered) -> None:
        client, other = brokered.client(), brokered.client()
        first = await client.create_producer(TOPIC)
        second = asyncio.ensure_future(
            other.create_producer(TOPIC, access_mode=WAITING, producer_name="second")
        )
        await brokered.until(lambda: len(brokered.topic(TOPIC).publishing.waiting_producers) == 1)
        third = asyncio.ensure_future(
            client.create_producer(TOPIC, access_mode=WAITING, producer_name="third")
        )
        await brokered.until(lambda: len(brokered.topic(TOPIC).publishing.waiting_producers) == 2)
        with pytest.raises(ProducerBusy, match="'second' waits"):
            await client.create_producer(TOPIC)
        assert (await brokered.stats(TOPIC))["waitingPublishers"] == 2
        await first.send(b"1")
        assert not second.done()
        await first.close()
        await (await second).send(b"2")
        assert not third.done()
        other.shutdown()
        await (await third).send(b"3")
        assert brokered.topic(TOPIC).log.attributes.producer_epoch == 1

    play_with_brokers(scenario)


def test_a_waiting_producer_whose_client_goes_leaves_the_queue() -> None:
    async def scenario(brokered: Brokered) -> None:
        client, gone = brokered.client(), brokered.client()
        first = await client.create_producer(TOPIC)
        leaving = asyncio.ensure_future(gone.create_producer(TOPIC, access_mode=WAITING))
        await brokered.until(lambda: len(brokered.topic(TOPIC).publishing.waiting_producers) == 1)
        gone.shutdown()
        with pytest.raises(PulsarishError):
            await leaving
        await brokered.until(lambda: len(brokered.topic(TOPIC).publishing.waiting_producers) == 0)
        await client.create_producer(TOPIC)
        await first.send(b"1")

    play_with_brokers(scenario)


def test_fencing_ends_all_others_and_they_do_not_come_back() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        old = await client.create_producer(TOPIC, access_mode=FENCING, producer_name="old")
        await old.send(b"old")
        waiting = asyncio.ensure_future(client.create_producer(TOPIC, access_mode=WAITING))
        await brokered.until(lambda: len(brokered.topic(TOPIC).publishing.waiting_producers) == 1)
        new = await client.create_producer(TOPIC, access_mode=FENCING, producer_name="new")
        with pytest.raises(ProducerFenced, match="'new' has fenced"):
            await waiting
        with pytest.raises(ProducerFenced):
            await old.send(b"late")
        await new.send(b"new")
        reader = await client.create_reader(TOPIC, MessageId.earliest)
        assert [(await reader.read_next()).data() for _ in range(2)] == [b"old", b"new"]

    play_with_brokers(scenario)


def test_an_exclusive_producer_returns_after_its_owner_died_unless_it_was_replaced() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
        producer = await client.create_producer(TOPIC, access_mode=EXCLUSIVE, producer_name="one")
        await producer.send(b"1")
        owner = next(
            name
            for name, broker in brokered.cluster.brokers.items()
            if TOPIC in broker._topics.loaded
        )
        brokered.node(owner).crash()
        await producer.send(b"2")
        assert brokered.topic(TOPIC).log.attributes.producer_epoch == 0, (
            "the same producer has the same epoch"
        )
        assert [(await consumer.receive()).data() for _ in range(2)] == [b"1", b"2"]
        # Another producer is connected while this one is away.
        await brokered.topic(TOPIC).log.attributes.set_producer_epoch(5)
        brokered.topic(TOPIC).publishing.close_producers(ProducerBusy("looks for it again"))
        with pytest.raises(ProducerFenced, match="epoch 5, this producer at 0"):
            await producer.send(b"3")

    play_with_brokers(scenario, brokers=2)


def test_a_program_that_is_started_again_fences_its_former_self() -> None:
    async def scenario(brokered: Brokered) -> None:
        before, after = brokered.client(), brokered.client()
        old = await before.create_producer(TOPIC, access_mode=FENCING, producer_name="same")
        await old.send(b"1")
        new = await after.create_producer(TOPIC, access_mode=FENCING, producer_name="same")
        await new.send(b"2")
        with pytest.raises(ProducerFenced):
            await old.send(b"late")
        assert brokered.topic(TOPIC).log.attributes.producer_epoch == 1

    play_with_brokers(scenario)


def test_a_connection_that_breaks_takes_nobody_out_of_turn() -> None:
    async def scenario(brokered: Brokered) -> None:
        client, other = brokered.client(), brokered.client()
        first = await client.create_producer(TOPIC, access_mode=EXCLUSIVE, producer_name="first")
        second = asyncio.ensure_future(
            other.create_producer(TOPIC, access_mode=WAITING, producer_name="second")
        )
        await brokered.until(lambda: len(brokered.topic(TOPIC).publishing.waiting_producers) == 1)
        # The client returns with a newer epoch before the broker has noticed that its former
        # connection is gone.
        child = first._publishing.children[0]
        child._lose()
        await first.send(b"again")
        assert not second.done()
        assert brokered.topic(TOPIC).log.attributes.producer_epoch == 0
        await first.close()
        await (await second).send(b"in turn")

    play_with_brokers(scenario)
