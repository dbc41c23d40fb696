"""Readers of brokers that do not own the topic: nothing above what is confirmed, nothing skipped,
whatever happens to the owner.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from pulsarish.broker.clients.commands import Subscribe
from pulsarish.broker.dispatchers import factory
from pulsarish.broker.dispatchers.factory import shared_ready
from pulsarish.broker.dispatchers.reads import Ready
from pulsarish.broker.replicas.topic import ReplicaTopic
from pulsarish.broker.subscriptions import new_entries
from pulsarish.broker.topics.topic import Topic
from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncReader
from pulsarish.client.enums import InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.managed_ledger.log_reader import LogEntry
from pulsarish.model.errors import (
    ConsumerBusy,
    InvalidArgument,
    NotAllowedError,
    Timeout,
    TopicNotFound,
)
from pulsarish.model.position import Position
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"
KEPT = {"default_retention_time_minutes": -1, "default_retention_size_mb": -1}


def owner_of(brokered: Brokered) -> str:
    return next(
        name
        for name, broker in brokered.cluster.brokers.items()
        if brokered.node(name).alive and TOPIC in broker._topics.loaded
    )


async def read_on(brokered: Brokered, start: MessageId = MessageId.earliest) -> AsyncReader:
    """A reader at the broker that does not own the topic."""
    (other,) = set(brokered.cluster.brokers) - {owner_of(brokered)}
    reader = await brokered.client().create_reader(TOPIC, start, replica=True)
    assert TOPIC in brokered.cluster.brokers[other]._topics.replicas.open
    return reader


def replicas_of(brokered: Brokered) -> list[ReplicaTopic]:
    return [
        topic
        for broker in brokered.cluster.brokers.values()
        for topic in broker._topics.replicas.open.values()
    ]


async def publish(client: AsyncClient, first: int, count: int) -> None:
    producer = await client.create_producer(TOPIC)
    for sent in [producer.send_soon(b"%d" % number) for number in range(first, first + count)]:
        await sent
    await producer.close()


async def take(reader: AsyncReader, count: int) -> list[int]:
    return [int((await reader.read_next(20_000)).data()) for _ in range(count)]


def test_a_replica_reads_what_there_was_and_what_comes() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, 0, 20)
        reader = await read_on(brokered)
        assert await take(reader, 20) == list(range(20))
        began = brokered.world.clock.monotonic()
        await publish(client, 20, 1)
        assert await take(reader, 1) == [20]
        assert brokered.world.clock.monotonic() - began < 3
        await reader.seek(MessageId.earliest)
        assert await take(reader, 21) == list(range(21))
        latest = await read_on(brokered, MessageId.latest)
        with pytest.raises(Timeout):
            await latest.read_next(2_000)
        await publish(client, 21, 3)
        assert await take(latest, 3) == await take(reader, 3) == [21, 22, 23]
        await reader.close()
        await latest.close()
        assert not any(
            broker._topics.replicas.open for broker in brokered.cluster.brokers.values()
        ), "without readers nothing is followed"

    play_with_brokers(scenario, brokers=2, **KEPT)


@pytest.mark.parametrize("how", ["crash", "unload", "roll"])
def test_readers_do_not_notice_that_ledgers_and_owners_change(how: str) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, 0, 10)
        reader = await read_on(brokered)
        owner = owner_of(brokered)
        numbers: list[int] = []

        async def follow() -> None:
            while len(numbers) < 60:
                numbers.append(int((await reader.read_next(60_000)).data()))

        following = asyncio.ensure_future(follow())
        for first in range(10, 60, 10):
            topic = brokered.topic(TOPIC)
            if how == "crash" and first == 30:
                brokered.node(owner).crash()
            elif how == "unload":
                await brokered.cluster.brokers[owner_of(brokered)]._topics.unload(topic.name)
            elif how == "roll":
                await topic.log.roll()
            await publish(client, first, 10)
        await following
        assert numbers == list(range(60))

    play_with_brokers(scenario, brokers=2, **KEPT)


def test_nothing_is_read_before_it_is_confirmed() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, 0, 5)
        reader = await read_on(brokered)
        assert await take(reader, 5) == list(range(5))
        # One copy is stored, and two are needed.
        for name in ("bookie1", "bookie2"):
            brokered.node(name).crash()
        producer = await client.create_producer(TOPIC, send_timeout_millis=60_000)
        sent = producer.send_soon(b"5")
        with pytest.raises(Timeout):
            await reader.read_next(5_000)
        assert not sent.done()
        (other,) = set(brokered.cluster.brokers) - {owner_of(brokered)}
        replicas = brokered.cluster.brokers[other]._topics.replicas
        assert replicas.lag_seconds > 3
        for name in ("bookie1", "bookie2"):
            await brokered.cluster.start_bookie(name)
        await sent
        assert await take(reader, 1) == [5]
        await brokered.until(lambda: replicas.lag_seconds < 1)
        await reader.close()
        assert replicas.lag_seconds == 0

    play_with_brokers(scenario, brokers=2, **KEPT)


def test_a_broker_decodes_an_entry_once_for_all_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[Position] = []

    def counting(entry: LogEntry, *, hashes_keys: bool) -> Ready:
        decoded.append(entry.position)
        return shared_ready(entry, hashes_keys=hashes_keys)

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, 0, 5)
        readers = [await read_on(brokered) for _ in range(10)]
        for reader in readers:
            assert await take(reader, 5) == list(range(5))
        monkeypatch.setattr(new_entries, "shared_ready", counting)
        monkeypatch.setattr(factory, "shared_ready", counting)
        producer = await client.create_producer(TOPIC)
        for number in range(5, 25):
            await producer.send(b"%d" % number)
        for reader in readers:
            assert await take(reader, 20) == list(range(5, 25))
        # Readers are divided between the replica and the owner, and each of them decodes.
        assert max(Counter(decoded).values()) <= 2

    play_with_brokers(scenario, brokers=2)


def test_a_replica_fences_nothing_and_keeps_nothing() -> None:
    """The owner goes on with its ledger, and trims it when its own subscriptions are done."""

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
        await publish(client, 0, 10)
        topic: Topic = brokered.topic(TOPIC)
        before = topic.log.ledgers[-1].ledger_id
        reader = await read_on(brokered)
        assert await take(reader, 3) == [0, 1, 2]
        await publish(client, 10, 10)
        assert brokered.topic(TOPIC) is topic
        assert topic.log.ledgers[-1].ledger_id == before
        for _ in range(20):
            await consumer.acknowledge(await consumer.receive(5_000))
        await brokered.world.clock.sleep(5)
        await topic.log.roll()
        await brokered.until(lambda: topic.log.entries == 0)
        await brokered.world.clock.sleep(5)
        # What the reader has in its queue it reads; what it had not it skips, as on the owner.
        await publish(client, 20, 1)
        found = await take(reader, 18)
        assert found[-1] == 20
        await reader.close()

    play_with_brokers(scenario, brokers=2, seeds=1)


def test_a_replica_ends_with_its_topic() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, 0, 3)
        reader = await read_on(brokered)
        assert await take(reader, 3) == [0, 1, 2]
        await brokered.topic(TOPIC).terminate()
        with pytest.raises(Timeout):
            await reader.read_next(3_000)
        name = brokered.topic(TOPIC).name
        await brokered.cluster.brokers[owner_of(brokered)]._topics.delete(name, force=True)
        with pytest.raises(TopicNotFound):
            await reader.read_next(10_000)

    play_with_brokers(scenario, brokers=2, seeds=1, **KEPT)


def test_policies_hold_on_a_replica_and_follow_their_changes() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, 0, 1)
        reader = await read_on(brokered)
        await brokered.administer("POST", "namespaces/public/default/maxConsumersPerTopic", 1)
        await brokered.world.clock.sleep(5)
        with pytest.raises(ConsumerBusy):
            await read_on(brokered)
        await brokered.administer("POST", "namespaces/public/default/maxConsumersPerTopic", 2)
        await brokered.world.clock.sleep(5)
        await (await read_on(brokered)).close()
        assert await take(reader, 1) == [0]

    play_with_brokers(scenario, brokers=2, seeds=1, **KEPT)


def test_what_is_refused() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await publish(client, 0, 1)
        for topic, options, error, said in (
            (
                TOPIC,
                {"is_read_compacted": True},
                InvalidArgument,
                "leave out replica, and the owner serves.* or is_read_compacted, and any broker",
            ),
            (f"{TOPIC}-partition-7", {}, TopicNotFound, "does not exist"),
            ("non-persistent://public/default/n", {}, NotAllowedError, "stores nothing"),
            (TOPIC, {"replica": 1}, InvalidArgument, "replica is 1"),
        ):
            with pytest.raises(error, match=said):
                await client.create_reader(topic, MessageId.earliest, **{"replica": True} | options)

        # A client that does not check this itself.
        reader = await read_on(brokered)
        (other,) = set(brokered.cluster.brokers) - {owner_of(brokered)}
        replica = brokered.cluster.brokers[other]._topics.replicas.open[TOPIC]
        for command, said in (
            (Subscribe(1, 1, TOPIC, "s", durable=True), "no durable subscriptions: leave replica"),
            (
                Subscribe(1, 1, TOPIC, "s", durable=False, read_compacted=True),
                "no compacted view: leave replica out, and the owner .* or read_compacted",
            ),
        ):
            with pytest.raises(NotAllowedError, match=said):
                await replica.subscribe(command, None, "client")  # type: ignore[arg-type]
        await reader.close()

    play_with_brokers(scenario, brokers=2, seeds=1)


def test_a_replica_reads_on_while_the_metadata_service_is_away() -> None:
    async def scenario(brokered: Brokered) -> None:
        producer = await brokered.client().create_producer(TOPIC)
        await producer.send(b"0")
        reader = await read_on(brokered)
        assert await take(reader, 1) == [0]
        brokered.sim.metadata.stop()
        for number in range(1, 41):
            await producer.send(b"%d" % number)
            assert await take(reader, 1) == [number]
            await brokered.world.clock.sleep(1.0)
        (topic,) = replicas_of(brokered)
        assert "MetadataUnavailable" in topic.log.failure, "the next ledger cannot be found"
        assert topic.log.lag_seconds > 20.0
        brokered.sim.metadata.start()
        for number in range(41, 61):
            await producer.send(b"%d" % number)
            await brokered.world.clock.sleep(1.0)
        assert await take(reader, 20) == list(range(41, 61))
        assert not topic.log.failure

    play_with_brokers(scenario, seeds=1, brokers=2)
