"""Programs that read a topic of the simulated cluster without a subscription."""

from __future__ import annotations

import random

from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import Timeout
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.oracle import Place
from pulsarish.sim.cluster.stage import LAST_SECONDS, Stage, place_of, text_of

__all__ = ["read_everything", "read_first", "read_replica", "read_tail"]


async def read_tail(stage: Stage, world: World) -> None:
    """Run one session of a reader: from the earliest message, or from the end of the log on."""
    await _read(stage, world, stage.rng, "a reader", replica=False)


async def read_replica(stage: Stage, world: World, rng: random.Random) -> None:
    """Run one session of a reader that any broker serves."""
    await _read(stage, world, rng, "a reader of a replica", replica=True)


async def _read(stage: Stage, world: World, rng: random.Random, who: str, *, replica: bool) -> None:
    async with stage.connected(world) as client:
        start = rng.choice((MessageId.earliest, MessageId.latest))
        topic = rng.choice(await client.get_topic_partitions(stage.topic))
        reader = await client.create_reader(
            topic, start, receiver_queue_size=rng.choice((1, 10)), replica=replica
        )
        seen: list[Place] = []
        stage.oracle.tails.append(seen)
        ends = rng.uniform(2.0, 12.0) + world.clock.monotonic()
        while not stage.over and world.clock.monotonic() < ends:
            try:
                message = await reader.read_next(timeout_millis=500)
            except Timeout:
                continue
            _saw(stage, seen, message, who)


async def read_everything(stage: Stage, world: World) -> list[Place]:
    """Read from the earliest message to the end. Return the places."""
    async with stage.connected(world, LAST_SECONDS) as client:
        seen: list[Place] = []
        async with world.clock.timeout(LAST_SECONDS):
            for topic in await client.get_topic_partitions(stage.topic):
                reader = await client.create_reader(
                    topic, MessageId.earliest, receiver_queue_size=50
                )
                while await reader.has_message_available():
                    _saw(stage, seen, await reader.read_next(), "a final reader")
        return seen


async def read_first(stage: Stage, world: World) -> dict[int, Place]:
    """Return the first place that is left of each partition. An empty partition has none."""
    async with stage.connected(world, LAST_SECONDS) as client:
        first: dict[int, Place] = {}
        async with world.clock.timeout(LAST_SECONDS):
            for topic in await client.get_topic_partitions(stage.topic):
                reader = await client.create_reader(
                    topic, MessageId.earliest, receiver_queue_size=1
                )
                if await reader.has_message_available():
                    seen: list[Place] = []
                    _saw(stage, seen, await reader.read_next(), "a final reader")
                    first[seen[0].partition] = seen[0]
        return first


def _saw(stage: Stage, seen: list[Place], message: Message, who: str) -> None:
    place = place_of(message.message_id())
    assert place is not None
    stage.counts.read += 1
    stage.oracle.saw(place, text_of(message), who)
    seen.append(place)
