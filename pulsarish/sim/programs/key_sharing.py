"""Programs that share the keys of a topic of its own through a key-shared subscription.

They connect and leave during faults.

What must hold at any time: the messages of each key come for the first time in the order of the
log, at any consumer (``key-order``). When everything has healed: a consumer gets no message of a
key while another consumer holds an unacknowledged one of it (``key-shared``). A consumer no longer
holds what it received before it had to subscribe again: the owner gives that to any consumer again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import BatchingType, ConsumerType, InitialPosition
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import Timeout
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.oracle import Oracle, Outcome, Place, Promises
from pulsarish.sim.cluster.stage import LAST_SECONDS, Stage, place_of, text_of
from pulsarish.sim.programs.publishers import Publisher, send_one

__all__ = ["SUBSCRIPTION", "KeySharers"]

SUBSCRIPTION: Final = "keyed"
_TOPIC: Final = "persistent://public/default/keyed"
_LAST_MESSAGES: Final = 60
_LAST_CONSUMERS: Final = 3

Report = Callable[[str, str, str], None]
_Opening = tuple[object, int]


@dataclass(slots=True)
class KeySharers:
    """``rng`` decides what its programs do. ``stage`` gives its counts, its trace and its end."""

    stage: Stage
    rng: random.Random
    report: Report
    watch: Callable[[Place, str], object]
    delivered: set[Place] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    """The values that were delivered."""
    # of each key of a partition, the last first delivery
    _reached: dict[tuple[int, str], Place] = field(default_factory=dict)
    _held: dict[str, dict[str, dict[Place, _Opening]]] = field(default_factory=dict)
    _acknowledged: set[Place] = field(default_factory=set)  # by the last consumers
    """Unacknowledged messages by key and consumer, with the opening of the consumer that received
    them.
    """
    # the consumers of the end, by name
    _last: dict[str, AsyncConsumer] = field(default_factory=dict)
    _own: Stage = field(init=False)
    _publisher: Publisher = field(init=False)
    _options: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        oracle = Oracle(Promises(deduplication=False, trimmed=True))
        oracle.watch = self.watch
        self._own = replace(self.stage, topic=_TOPIC, oracle=oracle)
        batching = {
            "batching_enabled": self.rng.random() < 0.5,
            "batching_type": BatchingType.KeyBased,
        }
        self._publisher = Publisher(
            "k",
            False,
            {**batching, "send_timeout_millis": 3_000, "max_pending_messages": 30},
            0.1,
            6,
        )
        self._options = {
            "consumer_type": ConsumerType.KeyShared,
            "initial_position": InitialPosition.Earliest,
            "receiver_queue_size": self.rng.choice((1, 5, 50)),
            "negative_ack_redelivery_delay_ms": 300,
        }

    async def subscribe_first(self, world: World) -> None:
        async with self.stage.connected(world, LAST_SECONDS) as client:
            await self._subscribe(client, "first")

    async def _subscribe(self, client: AsyncClient, who: str) -> AsyncConsumer:
        return await client.subscribe(_TOPIC, SUBSCRIPTION, consumer_name=who, **self._options)

    # -- during faults

    async def publish(self, world: World) -> None:
        publisher, rng = self._publisher, self.rng
        publisher.session += 1
        async with self.stage.connected(world) as client:
            producer = await client.create_producer(_TOPIC, **publisher.options)
            ends = world.clock.monotonic() + rng.uniform(1.0, 8.0)
            while (
                not self.stage.over
                and world.clock.monotonic() < ends
                and not producer._publishing.is_closed
            ):
                for _ in range(rng.randrange(1, publisher.burst + 1)):
                    if not send_one(self._own, producer, publisher):
                        break
                await world.clock.sleep(publisher.pause * 2 * rng.random())

    async def consume(self, world: World, who: str) -> None:
        """Run one session of a consumer.

        It is slow enough that keys have messages in delivery when other consumers connect.
        """
        rng = self.rng
        async with self.stage.connected(world) as client:
            consumer = await self._subscribe(client, who)
            ends = world.clock.monotonic() + rng.uniform(0.5, 6.0)
            while not self.stage.over and world.clock.monotonic() < ends:
                try:
                    message = await consumer.receive(timeout_millis=400)
                except Timeout:
                    continue
                self._came(message, who)
                await world.clock.sleep(rng.choice((0.0, 0.0, 0.05, 0.3)))
                if rng.random() < 0.05:
                    await consumer.negative_acknowledge(message)
                elif rng.random() < 0.97:
                    await consumer.acknowledge(message)

    def _came(self, message: Message, who: str) -> Place:
        place, value = place_of(message.message_id()), text_of(message)
        assert place is not None
        self.stage.counts.keyed += 1
        self.stage.trace(
            f"delivered {value} of key {message.partition_key()} at {place} to {who} of "
            f"{SUBSCRIPTION}"
        )
        self._own.oracle.saw(place, value, who)
        self.values.add(value)
        key = message.partition_key()
        if place not in self.delivered and key:
            before = self._reached.get((place.partition, key))
            if before is not None and place < before:
                self.report(
                    "key-order",
                    f"{value} of key {key} at {place} came first to {who}, after {before} of the "
                    "same key",
                    value,
                )
            self._reached[place.partition, key] = place if before is None else max(before, place)
        self.delivered.add(place)
        return place

    # -- when everything has healed

    async def conclude(self, world: World) -> None:
        """Let consumers connect and leave while they receive everything that is left and some
        more.
        """
        async with self.stage.connected(world, LAST_SECONDS) as client:
            await self._settle(client)
            publisher = Publisher(
                "l", False, {"send_timeout_millis": int(LAST_SECONDS * 1000)}, 0, 1
            )
            producer = await client.create_producer(_TOPIC, **publisher.options)
            self._last["last0"] = await self._subscribe(client, "last0")
            holding: dict[str, list[Message]] = {"last0": []}
            deadline = world.clock.monotonic() + LAST_SECONDS
            sent = 0
            while (sent < _LAST_MESSAGES or self._missing()) and world.clock.monotonic() < deadline:
                if sent < _LAST_MESSAGES:
                    send_one(self._own, producer, publisher)
                    sent += 1
                if sent % 10 == 5 and len(self._last) < _LAST_CONSUMERS:
                    who = f"last{len(self._last)}"
                    self._last[who] = await self._subscribe(client, who)
                    holding[who] = []
                for who, consumer in self._last.items():
                    await self._hold_a_little(consumer, holding[who], who)
            for attempt in self._missing():
                self.report("skipped", f"{attempt} never came to {SUBSCRIPTION}", attempt)

    async def _settle(self, client: AsyncClient) -> None:
        """Publish once, before keys are held: an owner whose ledger was recovered by another
        process notices, and loads the topic again.
        """
        for number, topic in enumerate(await client.get_topic_partitions(_TOPIC)):
            publisher = Publisher(
                f"settle{number}", False, {"send_timeout_millis": int(LAST_SECONDS * 1000)}, 0, 1
            )
            producer = await client.create_producer(topic, **publisher.options)
            stored = False
            while not stored:  # some messages are too large, and the broker refuses them
                send_one(self._own, producer, publisher)
                await producer.flush()
                stored = self._own.oracle.attempts[-1].outcome is Outcome.OK

    async def _hold_a_little(
        self, consumer: AsyncConsumer, holding: list[Message], who: str
    ) -> None:
        """Receive what is there, and acknowledge some of what was received before."""
        rng = self.rng
        try:
            while True:
                message = await consumer.receive(timeout_millis=20)
                self._holds(message, who, self._came(message, who))
                holding.append(message)
        except Timeout:
            pass
        while holding and rng.random() < 0.7:
            message = holding.pop(rng.randrange(len(holding)))
            place = place_of(message.message_id())
            assert place is not None
            for held in self._held.get(message.partition_key(), {}).values():
                # the owner may have given it to another consumer as well: it is acknowledged
                held.pop(place, None)
            self._acknowledged.add(place)
            await consumer.acknowledge(message)

    def _holds(self, message: Message, who: str, place: Place) -> None:
        key = message.partition_key()
        if not key:
            return
        holders = self._held.setdefault(key, {})
        for other, opened_by in holders.items():
            places = [
                held for held, opening in opened_by.items() if opening == self._opening(other, held)
            ]
            if other != who and places:
                what = (
                    f"{text_of(message)} of key {key} at {place} came to {who} while {other} "
                    f"holds {min(places)} of the same key"
                )
                self.report("key-shared", what, text_of(message))
        if place not in self._acknowledged:
            # One that was came again because its acknowledgement was lost: the client sends that
            # again, too.
            holders.setdefault(who, {})[place] = self._opening(who, place)

    def _opening(self, who: str, place: Place) -> _Opening:
        """Return what changes whenever a consumer subscribes again on the partition of a
        message.
        """
        child = next(
            child
            for child in self._last[who]._consuming.children
            if child.partition == place.partition
        )
        return child.session.stream, child.session.consumer_id

    def _missing(self) -> list[str]:
        return [
            attempt.value
            for attempt in self._own.oracle.attempts
            if attempt.outcome is Outcome.OK and attempt.value not in self.values
        ]
