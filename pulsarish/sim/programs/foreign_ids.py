"""A program that acknowledges and seeks by ids of other topics, in addition to what it does
correctly (rule 18).

It names ledgers of other topics, of cursors, and ledgers that never existed. Whatever the broker
answers, its subscription must be where its own acknowledgements have left it, like any other
subscription. A seek to an existing ledger that is not the topic's must not succeed, nor an
acknowledgement of a later one (``foreign-id``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import ConsumerType
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import InvalidPosition, PulsarishError, Timeout
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.invariants import Invariants
from pulsarish.sim.cluster.oracle import Place
from pulsarish.sim.cluster.stage import Stage
from pulsarish.sim.programs.consumers import Reading, acknowledge, draw_reading, got

__all__ = ["SUBSCRIPTION", "Stranger"]

SUBSCRIPTION: Final = "stranger"
_FOREIGN_CHANCE: Final = 0.2
_NEVER_WAS: Final = 1_000_000


@dataclass(slots=True)
class Stranger:
    """The consumer of one durable subscription of the whole topic."""

    stage: Stage
    invariants: Invariants
    rng: random.Random
    reading: Reading

    @classmethod
    def draw(cls, stage: Stage, invariants: Invariants, rng: random.Random) -> Stranger:
        # The broker reports a refusal only to clients that ask for a receipt.
        reading = replace(
            draw_reading(rng, stage.oracle, SUBSCRIPTION),
            receipts=True,
            cumulative=False,
            refuses=0.0,
        )
        return cls(stage, invariants, rng, reading)

    async def session(self, world: World) -> None:
        rng, subscription = self.rng, self.reading.subscription
        async with self.stage.connected(world) as client:
            consumer = await client.subscribe(
                self.stage.topic, SUBSCRIPTION, **self.reading.options()
            )
            session: list[Place] = []
            subscription.sessions.append(session)
            ends = rng.uniform(1.0, 8.0) + world.clock.monotonic()
            while not self.stage.over and world.clock.monotonic() < ends:
                try:
                    message = await consumer.receive(timeout_millis=500)
                except Timeout:
                    continue
                place = got(self.stage, subscription, session, message)
                if rng.random() < _FOREIGN_CHANCE and await self._try_foreign(consumer, place):
                    session = []
                    subscription.sessions.append(session)
                if rng.random() >= self.reading.forgets:
                    await acknowledge(self.stage, consumer, self.reading, message, place)

    async def _try_foreign(self, consumer: AsyncConsumer, given: Place) -> bool:
        """Use a foreign id.

        Return whether it may have moved the subscription. ``given``: the place of the message that
        came last.
        """
        partition = given.partition
        ledger_id = self._foreign_ledger(partition)
        index, size = self.rng.choice(((-1, 0), (0, 2)))
        message_id = MessageId(partition, ledger_id, self.rng.choice((0, 1, 5, 1_000)), index, size)
        deeds = {"acknowledge": consumer.acknowledge, "seek to": consumer.seek}
        if self.reading.kind is not ConsumerType.Shared:
            deeds["acknowledge up to"] = consumer.acknowledge_cumulative
        what = self.rng.choice(list(deeds))
        self.stage.counts.foreign += 1
        done = False
        try:
            await deeds[what](message_id)
            done = True
            self.stage.trace(f"{what} the foreign {message_id}: done")
        except PulsarishError as error:
            self.stage.trace(
                f"{what} the foreign {message_id} refused: {type(error).__name__}: {error}"
            )
            if isinstance(error, InvalidPosition):
                return False
        if what != "seek to":
            # What is below the mark-delete position is acknowledged already. That position is below
            # what the consumer got and has not acknowledged. One message of a batch may wait in the
            # client for the others.
            surely_above = (
                ledger_id > given.ledger
                and not self.reading.subscription.may_be_acknowledged(given)
            )
            if done and index < 0 and surely_above:
                self.stage.oracle.report(
                    "foreign-id",
                    f"to {what} {message_id}, whose ledger is not the topic's, was done",
                )
            return False
        if not self.invariants.is_there(ledger_id):
            # Once a ledger is deleted, its topic is not known: the seek has moved the subscription,
            # to some place.
            self.reading.subscription.moved(partition)
            return True
        if done:
            self.stage.oracle.report(
                "foreign-id", f"a seek to {message_id}, whose ledger is not the topic's, was done"
            )
        return False

    def _foreign_ledger(self, partition: int) -> int:
        name = f"{self.stage.topic}-partition-{partition}" if partition >= 0 else self.stage.topic
        ids = [
            number
            for number, record in self.invariants.ledgers.items()
            if record.purpose.owner != name and self.invariants.is_there(number)
        ]
        return self.rng.choice([*ids, _NEVER_WAS])
