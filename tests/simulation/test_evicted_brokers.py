"""A broker that takes itself for the owner of a bundle which another one has taken meanwhile."""

from __future__ import annotations

import pytest

from pulsarish.model.errors import NotOwner
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
