"""Consumers whose tokens live for a few seconds, on subscriptions that give keys or all messages to
one of several: nothing moves while the tokens are refreshed, and without new ones what the consumer
had goes to the others, in order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import pytest

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import AuthenticationError, PulsarishError, Timeout
from pulsarish.runtime.seams import World
from pulsarish.security.credentials import Certificate, Credentials
from pulsarish.security.identity import Identity
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.world import Simulation
from tests.support.brokers import BrokerCluster
from tests.support.identities import NamedRoles, shown

TOPIC = "persistent://public/default/t"
SHORT, LONG = "a", "b"
"""The consumer with short tokens is the first by name, so it is the active one of a failover."""
KEYS = [f"k{number}" for number in range(8)]
MESSAGES_COUNT = 200
PAUSE_SECONDS = 0.1
LIFE_MS = 4_500
QUIET_SECONDS = 15.0


class Delivery(NamedTuple):
    consumer: str
    key: str
    number: int
    is_again: bool


class TimedRoles(NamedRoles):
    """Refuses credentials that have ended by the broker's clock."""

    cluster: BrokerCluster

    def wall_ms(self) -> int:
        return self.cluster.brokers["broker0"]._world.clock.wall_ms()

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        found = await super().authenticate(credentials, certificate)
        if found.expires_at_ms and self.wall_ms() >= found.expires_at_ms:
            raise AuthenticationError("the token has expired")
        return found


async def _next(consumer: AsyncConsumer) -> Message | None:
    try:
        return await consumer.receive(timeout_millis=1_000)
    except Timeout:
        return None


@dataclass
class Scene:
    kind: ConsumerType
    is_refreshed: bool
    sim: Simulation = field(default_factory=lambda: Simulation(1))
    deliveries: list[Delivery] = field(default_factory=list)
    streams: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How many streams for deliveries each client has opened."""

    def run(self) -> None:
        roles = TimedRoles()
        roles.cluster = cluster = BrokerCluster(self.sim, authenticator=roles)

        async def main() -> None:
            await cluster.start()
            start_ms = roles.wall_ms()

            def short() -> Credentials:
                # As a file that is rewritten every four seconds, half a second before the token in
                # it ends; or that is not written again.
                now_ms = roles.wall_ms() - start_ms if self.is_refreshed else 0
                return shown("ann", start_ms + now_ms // 4_000 * 4_000 + LIFE_MS)

            nodes = {name: self.sim.node(name) for name in (SHORT, LONG, "publisher")}
            credentials = {SHORT: short, LONG: lambda: shown("ann")}
            for name, shows in credentials.items():
                await nodes[name].run(lambda world, n=name, c=shows: self._subscribe(world, n, c))
            await nodes["publisher"].run(self._publish)
            await nodes[LONG].run(lambda world: world.clock.sleep(QUIET_SECONDS))

        self.sim.run(main, 600.0)

    def _client(self, world: World, credentials: object) -> AsyncClient:
        assert isinstance(world.connections, SimConnections)
        world.connections.credentials = credentials  # type: ignore[assignment]
        return AsyncClient(
            "pulsarish://broker0:6660",
            clock=world.clock,
            random=world.random,
            tasks=world.tasks,
            connect=lambda _: world.connections,
        )

    async def _subscribe(self, world: World, name: str, credentials: object) -> None:
        sdk = self._client(world, credentials)
        opened = world.connections.open

        async def counted(address: str, method: str, *, lane: str = "") -> object:
            self.streams[name] += method == "broker.consume"
            return await opened(address, method, lane=lane)

        world.connections.open = counted  # type: ignore[method-assign, assignment]
        consumer = await sdk.subscribe(
            TOPIC,
            "s",
            consumer_type=self.kind,
            consumer_name=name,
            initial_position=InitialPosition.Earliest,
        )
        _ = world.tasks.spawn(self._consume(world, name, consumer), name=f"consumer {name}")

    async def _consume(self, world: World, name: str, consumer: AsyncConsumer) -> None:
        # It works on each until the next one comes, so one is not acknowledged when a token ends.
        held: Message | None = None
        while True:
            try:
                before, held = held, await _next(consumer)
                if held is not None:
                    key, number = held.partition_key(), int(held.data())
                    self.deliveries.append(
                        Delivery(name, key, number, bool(held.redelivery_count()))
                    )
                if before is not None:
                    await consumer.acknowledge(before)
            except PulsarishError:
                held = None
                await world.clock.sleep(PAUSE_SECONDS)

    async def _publish(self, world: World) -> None:
        producer = await self._client(world, lambda: shown("root")).create_producer(TOPIC)
        for number in range(MESSAGES_COUNT):
            key = KEYS[number % len(KEYS)]
            await producer.send(str(number).encode(), partition_key=key)
            await world.clock.sleep(PAUSE_SECONDS)

    def numbers(self, consumer: str, key: str) -> list[int]:
        return [
            each.number for each in self.deliveries if (each.consumer, each.key) == (consumer, key)
        ]

    def check_order(self) -> None:
        """Check that each consumer got each key in order, what was delivered again included, and
        that no message is missing.
        """
        for name in (SHORT, LONG):
            for key in KEYS:
                numbers = self.numbers(name, key)
                assert all(one < after for one, after in pairwise(numbers)), (name, key, numbers)
        assert {each.number for each in self.deliveries} == set(range(MESSAGES_COUNT))


@pytest.mark.parametrize("kind", [ConsumerType.KeyShared, ConsumerType.Failover])
def test_nothing_moves_while_tokens_are_refreshed(kind: ConsumerType) -> None:
    scene = Scene(kind, is_refreshed=True)
    scene.run()
    scene.check_order()
    assert not any(each.is_again for each in scene.deliveries)
    assert len(scene.deliveries) == MESSAGES_COUNT
    consumers = {
        key: {each.consumer for each in scene.deliveries if each.key == key} for key in KEYS
    }
    assert all(len(names) == 1 for names in consumers.values()), consumers
    served = set.union(*consumers.values())
    assert served == ({SHORT, LONG} if kind is ConsumerType.KeyShared else {SHORT})
    assert scene.streams == {SHORT: 1, LONG: 1}


@pytest.mark.parametrize("kind", [ConsumerType.KeyShared, ConsumerType.Failover])
def test_what_a_consumer_without_new_tokens_had_goes_to_the_other(kind: ConsumerType) -> None:
    scene = Scene(kind, is_refreshed=False)
    scene.run()
    scene.check_order()
    moved = [key for key in KEYS if scene.numbers(SHORT, key)]
    kept = [key for key in KEYS if key not in moved]
    assert moved
    assert bool(kept) is (kind is ConsumerType.KeyShared)
    last = max(each.number for each in scene.deliveries if each.consumer == SHORT)
    assert last < MESSAGES_COUNT / 2, "the consumer was not closed"
    # What it had received and not acknowledged comes again, before what is newer.
    again = [each for each in scene.deliveries if each.is_again]
    assert again
    assert {each.consumer for each in again} == {LONG}
    assert {each.key for each in again} <= set(moved)
    assert {each.consumer for each in scene.deliveries if each.number > last} == {LONG}
