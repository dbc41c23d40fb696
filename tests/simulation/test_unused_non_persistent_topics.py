"""Non-persistent topics that nobody uses are let go, whatever happens while the metadata are asked
to forget one of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pulsarish.broker.clients.commands import OpenProducer, Subscribe
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.nonpersistent.topics import NonPersistentTopics
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.metadata.record_store import Records
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from tests.support.dispatching import Outlet

NAMES = [TopicName.parse(f"non-persistent://public/default/{name}") for name in ("t", "u")]
CONFIG = BrokerConfig(
    broker_delete_inactive_topics_enabled=True,
    broker_delete_inactive_topics_max_inactive_duration_seconds=10,
)


async def parts(world: World) -> tuple[Namespaces, NonPersistentTopics]:
    namespaces = Namespaces(world, Records(world.metadata, world.clock, world.random), CONFIG)
    await namespaces.start()
    return namespaces, NonPersistentTopics(
        world, CONFIG, namespaces, epoch=lambda _bundle: 0, opened=lambda _name, _space: None
    )


def test_a_partitioned_topic_that_was_made_beside_it_stays() -> None:
    async def let_go(world: World) -> None:
        namespaces, topics = await parts(world)
        _ = await topics.get(NAMES[0], create=True)
        await namespaces.create_partitioned(NAMES[0], 3)
        await world.clock.sleep(20)
        await topics.let_go_of_unused()
        assert topics.open == {}
        assert await namespaces.partitions(NAMES[0]) == 3

    play(let_go)


def test_one_that_is_used_again_while_another_goes_stays() -> None:
    async def let_go(world: World) -> None:
        _, topics = await parts(world)
        first, second = [await topics.get(name, create=True) for name in NAMES]
        await world.clock.sleep(20)
        going = world.tasks.spawn(topics.let_go_of_unused(), name="let go")
        await world.clock.sleep(0.0001)
        assert first.closed is None
        assert not going.done()
        _ = await second.open_producer(
            OpenProducer(1, 1, NAMES[1].full), Outlet(), "", lambda _turn, _name: None
        )
        await going
        assert first.closed is not None
        assert list(topics.open.values()) == [second]

    play(let_go)


@pytest.mark.parametrize("connects", ["producer", "consumer"])
def test_the_time_without_users_counts_from_the_last_one_s_leaving(connects: str) -> None:
    async def let_go(world: World) -> None:
        _, topics = await parts(world)
        topic = await topics.get(NAMES[0], create=True)
        await world.clock.sleep(15)
        if connects == "producer":
            producer, _ = await topic.open_producer(
                OpenProducer(1, 1, NAMES[0].full), Outlet(), "", lambda _turn, _name: None
            )
            topic.remove_producer(producer)
        else:
            subscription, consumer = await topic.subscribe(
                Subscribe(1, 1, NAMES[0].full, "s"), Outlet(), ""
            )
            topic.remove_consumer(subscription, consumer)
        await world.clock.sleep(5)
        await topics.let_go_of_unused()
        assert topic.closed is None, "it was used five seconds ago"
        await world.clock.sleep(5)
        await topics.let_go_of_unused()
        assert topic.closed is not None

    play(let_go)


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    sim = Simulation(1)

    async def on_a_node() -> None:
        await sim.node("broker0").run(scenario)

    sim.run(on_a_node, 100)
