"""Several brokers add and delete schemas of one topic at once, while answers of the metadata
service are lost.
"""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.schemas.registry import SchemaRegistry
from pulsarish.managed_ledger.topics_store import create_topic
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import MetadataUnavailable, SchemaNotFound
from pulsarish.model.schema import Schema, SchemaType, fingerprint
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation

NAME = TopicName("public", "default", "t")
CONFIG = BrokerConfig(metadata_url="memory:")


def schema(number: int) -> Schema:
    return Schema(
        SchemaType.AVRO, json.dumps({"type": "record", "name": f"R{number}", "fields": []}).encode()
    )


@pytest.mark.parametrize("seed", range(15))
def test_a_number_stands_for_one_schema(seed: int) -> None:
    sim = Simulation(seed)
    answers: list[tuple[int, int]] = []  # which schema, and the version that was answered
    deletions: list[int] = []

    async def work(world: World, rng: random.Random) -> None:
        registry = SchemaRegistry(
            Records(world.metadata, world.clock, world.random), world.clock, CONFIG
        )
        for _ in range(12):
            await world.clock.sleep(rng.random())
            number = rng.randrange(6)
            try:
                if rng.random() < 0.1:
                    deletions.append(await registry.delete(NAME))
                else:
                    answers.append(
                        (
                            number,
                            await registry.get_or_create(
                                NAME, schema(number), "ALWAYS_COMPATIBLE", may_create=True
                            ),
                        )
                    )
            except (SchemaNotFound, MetadataUnavailable):
                continue

    async def main() -> None:
        nodes = [sim.node(f"broker{index}") for index in range(3)]

        async def prepare(world: World) -> None:
            records = Records(world.metadata, world.clock, world.random)
            await records.make_parents(paths.topic(NAME))
            await create_topic(records, NAME, created_ms=1)

        await nodes[0].run(prepare)
        sim.metadata.lost_answer_chance = 0.2
        rng = random.Random(seed)
        seeds = [random.Random(rng.random()) for _ in nodes]
        await asyncio.gather(
            *(
                node.run(lambda world, chance=chance: work(world, chance))
                for node, chance in zip(nodes, seeds, strict=True)
            )
        )
        sim.metadata.lost_answer_chance = 0.0

        async def look(world: World) -> list[str]:
            return await world.metadata.children(paths.schemas(paths.topic(NAME)))

        names = await nodes[0].run(look)
        stored = {int(name[:10]): name[11:] for name in names}
        assert sorted(stored) == list(range(len(names))), (
            "numbers follow each other, and none is there twice"
        )
        for number, version in answers:
            assert stored[version] == fingerprint(schema(number)), "an answer is what is stored"
        assert all(stored[version] == "deleted" for version in deletions)
        in_use: set[str] = set()
        for version in sorted(stored):
            if stored[version] == "deleted":
                in_use.clear()
            else:
                assert stored[version] not in in_use, (
                    "a schema that is in use gets no second number"
                )
                in_use.add(stored[version])

    sim.run(main, 2_000.0)
