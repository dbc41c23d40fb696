"""A receipt for an acknowledgement of which the topic's owner knows nothing is found at once."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from pulsarish.client.enums import InitialPosition
from pulsarish.model.position import Position
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.cluster import SimCluster, draw_cluster
from pulsarish.sim.cluster.invariants import Invariants
from pulsarish.sim.cluster.oracle import Oracle, Place, Promises
from pulsarish.sim.cluster.stage import Counts, Stage, place_of
from pulsarish.sim.world.world import Simulation

TOPIC = "persistent://public/default/t"


def test_only_what_the_owner_knows_of_is_acknowledged() -> None:
    sim, found = Simulation(3), list[str]()
    cluster = SimCluster(
        sim,
        replace(
            draw_cluster(random.Random(1)), bookies=3, brokers=1, quorums=(3, 3, 2), partitions=0
        ),
    )
    invariants = Invariants(cluster, lambda name, what: found.append(name))
    stage = Stage(
        random.Random(1),
        cluster.service_url,
        TOPIC,
        Oracle(Promises(False, False)),
        Counts(),
        sim.trace,
    )

    def verdict(place: Place) -> list[str]:
        found.clear()
        invariants.acknowledged(TOPIC, "s", Position(place.ledger, place.entry), place.in_batch)
        return list(found)

    async def consume(world: World) -> None:
        async with stage.connected(world) as client:
            options = {
                "initial_position": InitialPosition.Earliest,
                "ack_receipt_enabled": True,
                "batch_index_ack_enabled": True,
            }
            consumer = await client.subscribe(TOPIC, "s", **options)  # type: ignore[arg-type]
            producer = await client.create_producer(TOPIC, batching_max_publish_delay_ms=50)
            await asyncio.gather(*(producer.send(b"%d" % number) for number in range(3)))
            messages = [await consumer.receive() for _ in range(3)]
            first, second, third = (place_of(message.message_id()) for message in messages)
            assert first is not None
            assert second is not None
            assert third is not None
            assert first.entry == third.entry, "they are one batch"
            await consumer.acknowledge(messages[1])
            assert [verdict(place) for place in (first, second, third)] == [
                ["ack-lost"],
                [],
                ["ack-lost"],
            ]
            await consumer.acknowledge_cumulative(messages[2])
            assert [verdict(place) for place in (first, second, third)] == [[], [], []]
            assert verdict(third._replace(entry=third.entry + 1)) == ["ack-lost"]

    async def scenario() -> None:
        cluster.boot()
        await asyncio.sleep(3)
        await sim.node("app").run(consume)

    sim.run(scenario, 100)
