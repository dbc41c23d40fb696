"""A broker that takes itself for the owner of a bundle which another one has taken meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pulsarish.broker.topic import Topic
from pulsarish.broker.topics import Topics
from pulsarish.metadata import paths
from pulsarish.metadata.records import TopicRecord
from pulsarish.metadata.update import Records
from pulsarish.model.errors import NotOwner, ServiceNotReady
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"


def test_a_broker_that_has_not_heard_of_its_eviction_takes_no_topic_from_its_owner() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        _ = await producer.send(b"0")
        serving = {name: broker._topics for name, broker in brokered.cluster.brokers.items()}
        stale = next(name for name, topics in serving.items() if TOPIC not in topics.loaded)
        owner = next(name for name in serving if name != stale)

        async def load(_world: World) -> None:
            topics = serving[stale]
            bundle = await topics.bundle(TopicName.parse(TOPIC))
            newest = serving[owner]._ownership.owned.epoch(bundle)
            assert newest is not None
            topics._ownership.owned.acquired(bundle, newest + 1)  # any other
            with pytest.raises(NotOwner, match="was given to another broker"):
                await topics.topic(TOPIC)

        await brokered.node(stale).run(load)
        _ = await producer.send(b"1")
        assert TOPIC in serving[owner].loaded

    play_with_brokers(scenario, brokers=2)


Change = Callable[[Topics, Topic], Awaitable[object]]


async def _roll(_topics: Topics, topic: Topic) -> None:
    await topic.log.roll()


async def _set_properties(_topics: Topics, topic: Topic) -> None:
    await topic.log.set_properties({"by": "the former owner"})


async def _open_cursor(_topics: Topics, topic: Topic) -> None:
    await topic.log.open_cursor("of the former owner")


async def _delete_cursor(_topics: Topics, topic: Topic) -> None:
    await topic.log.delete_cursor("s")


async def _delete_unused(topics: Topics, topic: Topic) -> None:
    await topics._delete(topic.name, topic, force=True, version=topic.log.version, lease=topic.log.lease)


@pytest.mark.parametrize("change", [_roll, _set_properties, _open_cursor, _delete_cursor, _delete_unused])
def test_a_former_owner_changes_nothing_of_a_topic_that_was_made_anew_although_its_versions_begin_again(change: Change) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        _ = await producer.send(b"0")
        consumer = await client.subscribe(TOPIC, "s")
        await consumer.close()
        name = TopicName.parse(TOPIC)
        serving = {node: broker._topics for node, broker in brokered.cluster.brokers.items()}
        former = next(node for node, topics in serving.items() if TOPIC in topics.loaded)
        owner = next(node for node in serving if node != former)
        old = serving[former].loaded[TOPIC]

        async def make_anew(_world: World) -> Topic:
            topics = serving[owner]
            bundle = await topics.bundle(name)
            _ = await topics._ownership.acquire(bundle, serving[former]._ownership.owned.epoch(bundle))
            await topics.delete(name, force=True)
            topic = await topics.get(name, create=True)
            await topic.log.open_cursor("s")
            while topic.log.version < old.log.version:
                await topic.log.set_properties({"version": str(topic.log.version)})
            return topic

        async def come_late(_world: World) -> None:
            with pytest.raises(ServiceNotReady):
                await change(serving[former], old)

        for _ in range(3):  # so that the new one's version can reach it
            await old.log.set_properties({"changes": str(old.log.version)})
        new = await brokered.node(owner).run(make_anew)
        assert new.log.version == old.log.version
        ledgers, properties = new.log.ledgers, new.log.properties
        await brokered.node(former).run(come_late)

        record, _version = await _stored(brokered, name)
        assert [each.ledger_id for each in record.ledgers] == [each.ledger_id for each in ledgers]
        assert (record.properties, record.deleted) == (properties, False)
        await brokered.node(owner).run(lambda _world: new.log.roll())
        assert new.log.cursor_names() == ["s"]

    play_with_brokers(scenario, brokers=2)


async def _stored(brokered: Brokered, name: TopicName) -> tuple[TopicRecord, int]:
    found = await Records(brokered.world.metadata, brokered.world.clock, brokered.world.random).get(paths.topic(name), TopicRecord)
    assert found is not None
    return found
