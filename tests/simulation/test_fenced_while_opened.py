"""A topic whose log is fenced while it is still being opened ends quietly: not all of it is there
yet that is stopped otherwise.
"""

from __future__ import annotations

from pulsarish.broker.compaction.compaction import CompactionGate
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.store import Effective, broker_defaults
from pulsarish.broker.topics.topic import Topic
from pulsarish.model.errors import TopicFenced
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation


def test_fencing_does_not_wait_for_the_topic() -> None:
    sim, died, config = Simulation(1), list[Topic](), BrokerConfig()

    async def fence(world: World) -> Topic:
        policies = Effective(broker_defaults(config), {}, {})
        topic = Topic(
            TopicName.parse("persistent://public/default/t"),
            world,
            config,
            policies,
            died.append,
            CompactionGate(world, config),
        )
        topic.fenced(TopicFenced("another owner has recovered its ledger"))
        return topic

    topic = sim.run(lambda: sim.node("broker").run(fence), 10)
    assert isinstance(topic.closed, TopicFenced)
    assert died == [topic]
