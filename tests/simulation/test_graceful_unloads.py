"""A topic that is let go in order: what is under way is receipted before its producers are sent on,
so nothing is stored twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pulsarish.client.message_id import MessageId
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.wire._pb import broker_pb2 as pb
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import find

TOPIC = "persistent://public/default/t"
MESSAGES = 400


async def unload_topic(brokered: Brokered) -> None:
    name = TopicName.parse(TOPIC)
    owner = await find(brokered.world, list(brokered.cluster.brokers), TOPIC)
    segments = ["admin", "v2", "persistent", name.tenant, name.namespace, name.local, "unload"]
    request = pb.AdminRequest(method="PUT", segments=segments, admin_key=brokered.admin_key(owner))
    data = await brokered.world.connections.call(
        owner, "broker.admin", request.SerializeToString(), timeout_seconds=10.0
    )
    answer = pb.AdminResponse.FromString(data)
    assert answer.status == 204, answer.body


async def move_bundle(brokered: Brokered) -> None:
    """From whoever owns it; another lookup decides who is next."""
    name = (await find(brokered.world, list(brokered.cluster.brokers), TOPIC)).partition(":")[0]

    async def work(_world: World) -> None:
        topics = brokered.cluster.brokers[name]._topics
        await topics.unload_bundle(await topics.bundle(TopicName.parse(TOPIC)))

    await brokered.node(name).run(work)


def place(message_id: MessageId) -> tuple[int, int]:
    return message_id.ledger_id(), message_id.entry_id()


@pytest.mark.parametrize("leave", [unload_topic, move_bundle])
@pytest.mark.parametrize("deduplication", [False, True])
def test_a_graceful_unload_stores_nothing_twice(
    leave: Callable[[Brokered], Awaitable[None]], deduplication: bool
) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        sent: list[asyncio.Future[MessageId]] = []

        async def publish() -> None:
            for number in range(MESSAGES):
                sent.append(producer.send_soon(b"%d" % number))
                await brokered.world.clock.sleep(0.001)

        publishing = asyncio.get_running_loop().create_task(publish())
        for part in range(1, 5):
            await brokered.until(lambda part=part: len(sent) >= part * MESSAGES // 5)  # type: ignore[misc]
            await leave(brokered)
        await publishing
        ids = [await each for each in sent]
        reader = await client.create_reader(TOPIC, MessageId.earliest)
        found: list[tuple[bytes, MessageId]] = []
        while await reader.has_message_available():
            message = await reader.read_next()
            found.append((message.data(), message.message_id()))
        assert [data for data, _ in found] == [b"%d" % number for number in range(MESSAGES)]
        assert [place(each) for _, each in found] == [place(each) for each in ids]

    play_with_brokers(scenario, brokers=2, seeds=4, broker_deduplication_enabled=deduplication)


def test_a_topic_whose_bookies_are_lacking_is_let_go_all_the_same() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        await producer.send(b"first")
        for name in ("bookie0", "bookie1"):
            brokered.node(name).crash()
        sent = producer.send_soon(b"second")
        await brokered.world.clock.sleep(0.5)
        began = brokered.world.clock.monotonic()
        unloading = asyncio.get_running_loop().create_task(unload_topic(brokered))
        await brokered.until(lambda: not producer.is_connected())
        assert brokered.world.clock.monotonic() - began < 5.0
        for name in ("bookie0", "bookie1"):
            await brokered.cluster.start_bookie(name)
        await unloading
        await sent

    play_with_brokers(
        scenario,
        seeds=2,
        managed_ledger=ManagedLedgerOptions(ensemble_size=3, write_quorum=3, ack_quorum=2),
    )
