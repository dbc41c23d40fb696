"""Compacted reads through real clients, brokers and bookies in virtual time: for each key what a full read ends with."""

from __future__ import annotations

import pytest

from pulsarish.client.aio import AsyncClient
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import NotAllowed
from pulsarish.wire._pb import broker_pb2 as pb
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import ConsumeClient, find

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
        assert await table(client, compacted=True) == {"key 0": b"value 9", "key 1": b"value 7", "key 2": b"value 8"}
        view = await client.create_table_view(TOPIC)
        assert {key: view.get(key) for key in ("key 0", "key 1", "key 2")} == await table(client, compacted=False)

    play_with_brokers(scenario)


def test_a_compacted_read_is_refused_where_consumers_share_messages() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = await ConsumeClient.connect(brokered.world, await find(brokered.world, ["broker0"], TOPIC))
        for kind in (pb.SUB_SHARED, pb.SUB_KEY_SHARED):
            with pytest.raises(NotAllowed, match="exclusive and failover"):
                await client.subscribe(1, TOPIC, "s", type=kind, read_compacted=True)
        await client.subscribe(1, TOPIC, "s", type=pb.SUB_FAILOVER, read_compacted=True)

    play_with_brokers(scenario, seeds=1)
