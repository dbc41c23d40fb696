"""Clients of a topic that moves to a broker that is known: they go there without a lookup, and
find it ready.
"""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import ServiceNotReady
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.wire._pb import pulsar_pb2 as pulsar
from tests.support.binary_client import BinaryClient
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import entry, find

TOPIC = "persistent://public/default/t"
NOT_KEPT = "non-persistent://public/default/t"
PAUSE_SECONDS_MAX = 0.3


async def placed(brokered: Brokered, topic: str = TOPIC) -> tuple[Bundle, str, str]:
    """Return the bundle of a topic, its owner and the other broker."""
    owner = (await find(brokered.world, ["broker0", "broker1"], topic)).partition(":")[0]
    bundle = await brokered.cluster.brokers[owner]._topics.bundle(TopicName.parse(topic))
    return bundle, owner, "broker1" if owner == "broker0" else "broker0"


async def move(brokered: Brokered, bundle: Bundle, owner: str, other: str) -> None:
    """Have the owner hand the bundle over."""
    to = brokered.cluster.brokers[other]._ownership.registry.me
    assert to is not None

    async def inside(_: World) -> None:
        await brokered.cluster.brokers[owner]._topics.unload_bundle(bundle, to)

    await brokered.node(owner).run(inside)


def lookups(brokered: Brokered) -> int:
    return sum(each.calls._lookup.lookups_count for each in brokered.cluster.brokers.values())


@pytest.mark.parametrize("topic", [TOPIC, NOT_KEPT])
def test_clients_go_to_the_next_owner_without_a_lookup(topic: str) -> None:
    async def scenario(brokered: Brokered) -> None:
        bundle, owner, other = await placed(brokered, topic)
        client, clock = brokered.client(), brokered.world.clock
        producer = await client.create_producer(topic)
        consumers = [
            await client.subscribe(topic, name, consumer_type=ConsumerType.Shared)
            for name in ("a", "b")
        ]
        before = lookups(brokered)
        pauses: list[float] = []

        async def publish() -> None:
            for number in range(200):
                began = clock.monotonic()
                await producer.send(b"%d" % number)
                pauses.append(clock.monotonic() - began)
                await clock.sleep(0.01)

        publishing = asyncio.create_task(publish())
        await clock.sleep(0.5)
        await move(brokered, bundle, owner, other)
        await clock.sleep(0.5)
        await move(brokered, bundle, other, owner)
        await publishing
        assert lookups(brokered) == before
        assert max(pauses) <= PAUSE_SECONDS_MAX
        assert bundle in brokered.cluster.brokers[owner]._ownership.owned
        for consumer in consumers if topic == TOPIC else ():
            seen = []
            while len(set(seen)) < 200:
                message = await consumer.receive(5_000)
                seen.append(int(message.data()))
                await consumer.acknowledge(message)
            assert sorted(set(seen)) == list(range(200))

    play_with_brokers(scenario, brokers=2)


@pytest.mark.parametrize("topic", [TOPIC, NOT_KEPT])
def test_clients_that_come_too_early_wait_for_the_bundle(topic: str) -> None:
    async def scenario(brokered: Brokered) -> None:
        bundle, owner, other = await placed(brokered, topic)
        client = brokered.client()
        producer = await client.create_producer(topic)
        consumer = await client.subscribe(topic, "s")
        ownership = brokered.cluster.brokers[other]._ownership
        take = ownership.take

        async def slowly(bundle: Bundle, owner: str, epoch: int) -> None:
            await asyncio.sleep(0.5)
            await take(bundle, owner, epoch)

        ownership.take = slowly  # type: ignore[method-assign]
        before = lookups(brokered)
        moving = asyncio.create_task(move(brokered, bundle, owner, other))
        await asyncio.sleep(0.1)
        # They are there already. A lookup, from another client, waits in the same way.
        late = asyncio.create_task(find(brokered.world, [other], topic))
        await moving
        assert await late == f"{other}:6660"
        await asyncio.sleep(0.2)  # what is not kept goes to those that are there
        _ = await producer.send(b"m")
        assert (await consumer.receive(5_000)).data() == b"m"
        assert lookups(brokered) == before + 1

    play_with_brokers(scenario, brokers=2)


def test_entries_in_flight_get_their_receipts_before_the_producer_is_sent_on() -> None:
    async def scenario(brokered: Brokered) -> None:
        bundle, owner, other = await placed(brokered)
        client = brokered.client()
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        reader = await client.create_reader(TOPIC, MessageId.earliest)
        sent = [producer.send_soon(b"%d" % number) for number in range(100)]
        await asyncio.gather(move(brokered, bundle, owner, other), *sent)
        # Deduplication is off: what was sent twice would be here twice.
        assert [int((await reader.read_next(5_000)).data()) for _ in sent] == list(range(100))
        assert not await reader.has_message_available()

    play_with_brokers(scenario, brokers=2, seeds=6)


def test_clients_look_up_when_the_next_owner_does_not_take_the_bundle() -> None:
    async def scenario(brokered: Brokered) -> None:
        bundle, owner, other = await placed(brokered)
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        consumer = await client.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)

        async def refuse(bundle: Bundle, owner: str, epoch: int) -> None:
            raise ServiceNotReady("not today")

        brokered.cluster.brokers[other]._ownership.take = refuse  # type: ignore[method-assign]
        before = lookups(brokered)
        await move(brokered, bundle, owner, other)
        _ = await producer.send(b"m")
        assert (await consumer.receive(5_000)).data() == b"m"
        assert lookups(brokered) > before

    play_with_brokers(scenario, brokers=2)


def test_clients_look_up_when_the_owner_dies_while_it_hands_over() -> None:
    async def scenario(brokered: Brokered) -> None:
        bundle, owner, other = await placed(brokered)
        producer = await brokered.client().create_producer(TOPIC)
        to = brokered.cluster.brokers[other]
        assert to._ownership.registry.me is not None
        await brokered.cluster.brokers[owner]._ownership.announce(bundle, to._ownership.registry.me)
        assert bundle in to._topics.bundles._arriving
        brokered.node(owner).crash()
        _ = await producer.send(b"m")
        assert bundle in to._ownership.owned

    play_with_brokers(scenario, brokers=2)


def test_close_commands_of_the_binary_protocol_name_the_next_owner() -> None:
    async def scenario(brokered: Brokered) -> None:
        bundle, owner, other = await placed(brokered)
        clients = []
        for number, proxy in enumerate(("", "3.0")):
            client = await BinaryClient.connect(brokered.world, f"{owner}:6650", shake_hands=False)
            connect = pulsar.Connect(client_version="x", protocol_version=19, proxy_version=proxy)
            client.say(pulsar.Command(type=2, connect=connect))
            _ = await client.next(3)
            assert (await client.open_producer(1, TOPIC, f"p{number}")).command.type == 17
            answer = await client.subscribe(2, TOPIC, subscription=f"s{number}")
            assert answer.command.type == 13
            clients.append(client)
        await move(brokered, bundle, owner, other)
        for client, wanted in zip(clients, (f"pulsar://{other}:6650", ""), strict=True):
            producer = (await client.next(15)).command.close_producer
            consumer = (await client.next(16)).command.close_consumer
            for closed in (producer, consumer):
                assert closed.assigned_broker_service_url == wanted
                assert closed.HasField("assigned_broker_service_url") == bool(wanted)
                assert not closed.HasField("assigned_broker_service_url_tls")
        there = await BinaryClient.connect(brokered.world, f"{other}:6650")
        assert (await there.open_producer(1, TOPIC)).command.type == 17
        there.send(1, 0, entry("p", 0, b"m"))
        _ = await there.next(7)

    play_with_brokers(scenario, brokers=2)
