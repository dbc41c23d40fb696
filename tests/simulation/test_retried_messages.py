"""Messages that are consumed again later, while workers and brokers die."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from functools import partial

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.messages.consumer_options import ConsumerDeadLetterPolicy
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.seams import World
from pulsarish.sim.world.connections import client_connections
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/jobs"
RETRY = f"{TOPIC}-s-RETRY"
DEAD = f"{TOPIC}-s-DLQ"
JOBS = 15


class Jobs:
    """Jobs by number: those that divide by 3 are done at once, the next ones at the second attempt,
    and the others never.
    """

    def __init__(self) -> None:
        self.done: Counter[int] = Counter()
        self.dead: Counter[int] = Counter()
        self.retrying = False

    @property
    def are_over(self) -> bool:
        return {*self.done, *self.dead} == {*range(JOBS)}

    async def work(self, world: World) -> None:
        client = AsyncClient(
            "pulsarish://broker0:6660,broker1:6660",
            clock=world.clock,
            random=world.random,
            tasks=world.tasks,
            connect=partial(client_connections, world.connections),
        )
        consumer = await client.subscribe(
            TOPIC,
            "s",
            consumer_type=ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=500,
            dead_letter_policy=ConsumerDeadLetterPolicy(4),
            retry_enabled=True,
            receiver_queue_size=1,
            ack_receipt_enabled=True,
        )
        while True:
            await self.attempt(consumer, await consumer.receive())

    async def attempt(self, consumer: AsyncConsumer, message: Message) -> None:
        attempt = int(message.properties().get("RECONSUMETIMES", "0"))
        number = int(message.data())
        if number % 3 <= attempt and number % 3 < 2:
            self.done[number] += 1
            await consumer.acknowledge(message)
            return
        self.retrying = True
        try:
            await consumer.reconsume_later(message, timedelta(seconds=1))
        except PulsarishError:
            return  # it is delivered again

    async def bury(self, consumer: AsyncConsumer) -> None:
        while True:
            letter = await consumer.receive()
            assert letter.properties()["REAL_TOPIC"] == TOPIC
            self.dead[int(letter.data())] += 1
            await consumer.acknowledge(letter)


def backlog(brokered: Brokered, topic: str) -> int | None:
    """Of the subscription; ``None`` while no broker has the topic."""
    with suppress(AssertionError):
        return brokered.subscription(topic, "s").cursor.backlog()
    return None


def test_every_job_is_done_or_buried() -> None:
    async def scenario(brokered: Brokered) -> None:
        jobs, client, world = Jobs(), brokered.client(), brokered.world
        letters = await client.subscribe(DEAD, "look", initial_position=InitialPosition.Earliest)
        for topic in (TOPIC, RETRY):
            first = await client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
            await first.close()
        producer = await client.create_producer(TOPIC, batching_max_messages=4)
        await asyncio.gather(*(producer.send_soon(b"%d" % number) for number in range(JOBS)))
        burying = world.tasks.spawn(jobs.bury(letters), name="bury")
        node = brokered.sim.node("worker")
        # A delay ends by the owner's calendar.
        for each in brokered.sim.nodes.values():
            each.clock.wall_offset_ms += world.clock.wall_ms() - each.clock.wall_ms()
        for turn in range(8):
            if not node.alive:
                node.start()
            assert node.world is not None
            node.world.tasks.spawn(jobs.work(node.world), name="work")
            jobs.retrying = False
            await brokered.until(lambda: jobs.retrying or jobs.are_over, seconds=120.0)
            await world.clock.sleep(world.random.uniform(0.0, 0.2))
            node.crash()
            if turn % 4 == 3:
                name = f"broker{world.random.randrange(2)}"
                brokered.node(name).crash()
                await world.clock.sleep(1.0)
                await brokered.cluster.start_broker(name)
        node.start()
        assert node.world is not None
        node.world.tasks.spawn(jobs.work(node.world), name="work")
        await brokered.until(lambda: jobs.are_over, seconds=240.0)
        # Workers that died with a message had it redelivered: more may be dead than were refused.
        assert {*jobs.dead} >= {number for number in range(JOBS) if number % 3 == 2}
        await brokered.until(lambda: all(backlog(brokered, topic) == 0 for topic in (TOPIC, RETRY)))
        burying.cancel()
        node.crash()

    play_with_brokers(scenario, brokers=2)
