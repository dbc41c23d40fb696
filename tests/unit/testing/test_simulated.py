"""``pulsarish.testing.simulate``, as the tests of a program use it."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.client.enums import ConsumerType
from pulsarish.model.errors import InvalidArgument
from pulsarish.testing import SimulatedCluster, simulate

TOPIC = "persistent://public/default/orders"


async def publish_and_read(cluster: SimulatedCluster) -> list[bytes]:
    client = cluster.client()
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC, "s")
    for number in range(10):
        await producer.send(b"%d" % number)
    return [(await consumer.receive()).data() for _ in range(10)]


def test_a_program_publishes_and_reads() -> None:
    assert simulate(publish_and_read) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize(("brokers", "bookies"), [(1, 1), (3, 5)])
def test_clusters_have_the_shape_that_is_asked_for(brokers: int, bookies: int) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        assert (len(cluster.brokers), len(cluster.bookies)) == (brokers, bookies)
        assert cluster.service_url.count(":6660") == brokers
        assert len(await publish_and_read(cluster)) == 10

    simulate(scenario, brokers=brokers, bookies=bookies)


def test_time_is_virtual() -> None:
    async def scenario(cluster: SimulatedCluster) -> float:
        began = cluster.now()
        client = cluster.client()
        consumer = await client.subscribe(TOPIC, "s", unacked_messages_timeout_ms=300_000)
        await (await client.create_producer(TOPIC)).send(b"x")
        first = await consumer.receive()
        again = await consumer.receive()
        assert first.message_id() == again.message_id()
        return cluster.now() - began

    assert 300 <= simulate(scenario) < 700


def test_an_owner_that_crashes_loses_nothing() -> None:
    async def scenario(cluster: SimulatedCluster) -> list[bytes]:
        client = cluster.client()
        producer = await client.create_producer(TOPIC)
        consumer = await client.subscribe(TOPIC, "s", consumer_type=ConsumerType.Shared)
        await producer.send(b"before")
        owner = cluster.owner(TOPIC)
        assert owner is not None
        cluster.crash(owner)
        await producer.send(b"after")
        assert cluster.owner(TOPIC) not in (None, owner)
        cluster.start(owner)
        found = set()
        while len(found) < 2:
            message = await consumer.receive()
            found.add(message.data())
            await consumer.acknowledge(message)
        return sorted(found)

    assert simulate(scenario) == [b"after", b"before"]


def test_machines_stand_still_and_networks_break() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        producer = await client.create_producer(TOPIC)
        cluster.pause("bookie0")
        await producer.send(b"one")
        cluster.resume("bookie0")
        owner = cluster.owner(TOPIC)
        assert owner is not None
        cluster.cut("program", owner)
        sending = asyncio.ensure_future(producer.send(b"two"))
        await asyncio.sleep(5)
        cluster.heal()
        await sending
        assert cluster.owner("persistent://public/default/none") is None

    simulate(scenario)


def test_one_seed_is_one_run() -> None:
    async def scenario(cluster: SimulatedCluster) -> tuple[float, float, list[bytes]]:
        values = await publish_and_read(cluster)
        return cluster.now(), cluster.random.random(), values

    assert simulate(scenario, seed=7) == simulate(scenario, seed=7)
    assert simulate(scenario, seed=7) != simulate(scenario, seed=8)


def test_the_error_of_a_scenario_has_its_seed() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        assert cluster.brokers == []

    with pytest.raises(AssertionError) as caught:
        simulate(scenario, seed=5)
    assert "seed 5" in caught.value.__notes__[-1]


def test_what_cannot_be_is_refused() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        with pytest.raises(InvalidArgument, match=r"no machine 'broker9'.*broker0, broker1"):
            cluster.crash("broker9")
        with pytest.raises(InvalidArgument, match="the machine of the test itself"):
            cluster.crash("program")
        with pytest.raises(InvalidArgument, match="no machine 'x'"):
            cluster.cut("program", "x")

    simulate(scenario)
    for shape in ({"brokers": 0}, {"bookies": 0}):
        with pytest.raises(InvalidArgument, match=f"{next(iter(shape))} = 0: at least 1"):
            simulate(scenario, **shape)
