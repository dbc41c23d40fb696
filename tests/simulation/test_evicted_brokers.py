"""A broker that takes itself for the owner of a bundle which another one has taken meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.topic import Topic
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.errors import NotOwner, TopicFenced
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
            newest = serving[owner].bundles._ownership.owned.epoch(bundle)
            assert newest is not None
            topics.bundles._ownership.owned.acquired(bundle, newest + 1)  # any other
            with pytest.raises(NotOwner, match="was given to another broker"):
                await topics.topic(TOPIC)

        await brokered.node(stale).run(load)
        _ = await producer.send(b"1")
        assert TOPIC in serving[owner].loaded

    play_with_brokers(scenario, brokers=2)


Change = Callable[[LoadedTopics, Topic], Awaitable[object]]


async def _set_properties(_topics: LoadedTopics, topic: Topic) -> None:
    await topic.log.attributes.set_properties({"by": "the former owner"})


async def _open_cursor(_topics: LoadedTopics, topic: Topic) -> None:
    await topic.log.open_cursor("of the former owner")


async def _delete_cursor(_topics: LoadedTopics, topic: Topic) -> None:
    await topic.log.delete_cursor("s")


async def _delete(topics: LoadedTopics, topic: Topic) -> None:
    await topics.delete(topic.name, force=True)


async def _delete_unused(topics: LoadedTopics, topic: Topic) -> None:
    await topics.delete_unused(topic)


@pytest.mark.parametrize(
    "change", [_set_properties, _open_cursor, _delete_cursor, _delete, _delete_unused]
)
@pytest.mark.parametrize("namespace_too", [False, True])
def test_a_former_owner_changes_nothing_of_what_was_made_anew_although_versions_begin_again(
    change: Change, namespace_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pulsarish.broker.topics.loaded_topics.abandoned_still", lambda _topic, _now_ms: True
    )
    name = TopicName("public", "other", "t")

    async def scenario(brokered: Brokered) -> None:
        serving = {node: broker._topics for node, broker in brokered.cluster.brokers.items()}
        former, owner = serving

        async def make(_world: World) -> Topic:
            await serving[former]._namespaces.create_namespace("public", "other", 1)
            return await _make(serving[former], None)

        async def make_anew(_world: World) -> Topic:
            topics = serving[owner]
            version = serving[former].bundles._ownership.owned.epoch(old_bundle)
            await topics.bundles._ownership.acquire(old_bundle, version)
            await topics.delete(name, force=True)
            if namespace_too:
                await topics.bundles._ownership.release(old_bundle)
                await topics._namespaces.delete_namespace("public", "other")
                await topics._namespaces.create_namespace("public", "other", 1)
                version = None
            topic = await _make(topics, version) if namespace_too else await _filled(topics)
            assert await topics.bundles._ownership.registry.evict(
                serving[former].bundles._ownership.registry.instance_id
            )
            return topic

        async def come_late(_world: World) -> None:
            assert name.full in serving[former].loaded, "it has not heard yet"
            with pytest.raises(
                (TopicFenced, NotOwner),
                match=r"given to another broker|opened or deleted by another broker",
            ):
                await change(serving[former], old)

        async def _make(topics: LoadedTopics, version: int | None) -> Topic:
            _ = await topics.bundles._ownership.acquire(await topics.bundle(name), version)
            return await _filled(topics)

        async def _filled(topics: LoadedTopics) -> Topic:
            topic = await topics.get(name, create=True)
            await topic.log.open_cursor("s")
            while topic.log.version < 3:
                await topic.log.attributes.set_properties({"version": str(topic.log.version)})
            return topic

        old = await brokered.node(former).run(make)
        old_bundle = await serving[former].bundle(name)
        new = await brokered.node(owner).run(make_anew)
        assert new.log.version == old.log.version
        assert (
            serving[owner].bundles._ownership.owned.epoch(old_bundle)
            == serving[former].bundles._ownership.owned.epoch(old_bundle)
        ) is namespace_too
        before = await _stored(brokered, name)
        await brokered.node(former).run(come_late)

        assert await _stored(brokered, name) == before
        record, cursors = before
        assert ([each.ledger_id for each in record.ledgers], cursors) == (
            [each.ledger_id for each in new.log.ledgers],
            ["s"],
        )

    play_with_brokers(scenario, brokers=2)


async def _stored(brokered: Brokered, name: TopicName) -> tuple[TopicRecord, list[str]]:
    records = Records(brokered.world.metadata, brokered.world.clock, brokered.world.random)
    found = await records.get(paths.topic(name), TopicRecord)
    assert found is not None
    return found[0], list(await records.children(paths.cursors(name)))


def test_a_leader_that_was_evicted_while_its_session_lives_on_is_followed_by_another() -> None:
    async def scenario(brokered: Brokered) -> None:
        brokers = brokered.cluster.brokers

        def leaders() -> list[str]:
            return [name for name, each in brokers.items() if each._ownership.leader.is_leader]

        await brokered.until(lambda: len(leaders()) == 1)
        (former,) = leaders()
        (other,) = set(brokers) - {former}
        instance = brokers[former]._ownership.registry.instance_id
        registry = brokers[other]._ownership.registry
        assert await brokered.node(other).run(lambda _: registry.evict(instance))
        again = brokers[former]._ownership.registry
        await brokered.until(lambda: again.instance_id not in ("", instance), seconds=2.0)
        await brokered.until(lambda: len(leaders()) == 1, seconds=2.0)
        (leader,) = leaders()
        # Paused, so that it learns nothing while its session lives on.
        (follower,) = set(brokers) - {leader}
        instance = brokers[leader]._ownership.registry.instance_id
        registry = brokers[follower]._ownership.registry
        brokered.node(leader).pause()
        assert await brokered.node(follower).run(lambda _: registry.evict(instance))
        await brokered.until(lambda: brokers[follower]._ownership.leader.is_leader, seconds=2.0)

    play_with_brokers(scenario, seeds=3, brokers=2)
