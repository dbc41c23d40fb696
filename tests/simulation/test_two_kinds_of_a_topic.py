"""A name is a topic's or a partitioned topic's, never both, whatever a broker's view of the
metadata lags behind.
"""

from __future__ import annotations

import pytest

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.managed_ledger.topics_store import create_topic
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import AlreadyExists
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation

NAME = TopicName.parse("persistent://public/default/t")
CONFIG = BrokerConfig(allow_auto_topic_creation_type="partitioned", default_num_partitions=2)


def parts(world: World) -> tuple[Records, Namespaces]:
    records = Records(world.metadata, world.clock, world.random)
    return records, Namespaces(world, records, CONFIG)


def test_a_broker_that_lags_makes_no_partitioned_topic_beside_a_topic() -> None:
    sim = Simulation(1)

    async def begin(world: World) -> None:
        _, namespaces = parts(world)
        await namespaces.start()

    async def make(world: World) -> None:
        records, _ = parts(world)
        await create_topic(records, NAME, created_ms=1)

    async def make_partitioned(world: World) -> None:
        _, namespaces = parts(world)
        assert await namespaces.auto_partitions(NAME) is None
        with pytest.raises(AlreadyExists):
            await namespaces.create_partitioned(NAME, 2)

    async def scenario() -> None:
        one, other = sim.node("broker0"), sim.node("broker1")
        await one.run(begin)
        sim.metadata.lag(other.session_id)
        await one.run(make)
        await other.run(make_partitioned)

    sim.run(scenario, 100)
