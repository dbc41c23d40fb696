"""A program whose subscription an operator moves between its sessions, by position, by time and to
either end; and what it must receive.

It is judged as ``seekers.py`` judges a seeker. A request without an answer may be carried out at
any later time. So it stays among those that may have decided where a session begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import Timeout
from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.cluster.operator import TOPICS, administer
from pulsarish.sim.cluster.oracle import Place
from pulsarish.sim.cluster.stage import LAST_SECONDS, Stage
from pulsarish.sim.programs.seekers import Seek, Seeker, subscribe

__all__ = ["SUBSCRIPTION", "Mover"]

SUBSCRIPTION: Final = "mover"
_SESSION_SECONDS: Final = 5.0
_REST_SECONDS: Final = 0.3
_END: Final = (1 << 63) - 1


@dataclass(slots=True)
class Mover:
    """One subscription of the first partition. Its consumer acknowledges nothing."""

    stage: Stage
    brokers: Sequence[str]
    seeker: Seeker
    unanswered: list[Seek] = field(default_factory=list)

    async def subscribe_first(self, world: World) -> None:
        async with self.stage.connected(world, LAST_SECONDS) as client:
            topic = (await client.get_topic_partitions(self.stage.topic))[0]
            await subscribe(client, topic, self.seeker)

    async def session(self, world: World) -> None:
        """Read a little and leave; then the operator moves the subscription.

        A session that failed has moved nothing.
        """
        async with self.stage.connected(world, _SESSION_SECONDS) as client:
            topic = (await client.get_topic_partitions(self.stage.topic))[0]
            consumer = await subscribe(client, topic, self.seeker)
            self.seeker.begin()
            for _ in range(self.seeker.rng.randrange(1, 12)):
                try:
                    self.seeker.came(self.stage, await consumer.receive(400))
                except Timeout:
                    break
            await consumer.close()
        await self._move(world, topic.rpartition("/")[2])
        await world.clock.sleep(self.seeker.rng.expovariate(1 / _REST_SECONDS))

    async def _move(self, world: World, topic: str) -> None:
        seeker, stage = self.seeker, self.stage
        seek, what, body = self._draw(seeker.known[0].partition() if seeker.known else -1)
        seeker.possible.append(seek)
        self.unanswered.append(seek)
        target = f"{TOPICS}/{topic}/subscription/{SUBSCRIPTION}/{what}"
        try:
            response = await administer(
                stage, world, seeker.rng.choice(list(self.brokers)), "POST", target, body
            )
        except (StreamBroken, TimeoutError) as error:
            stage.trace(f"{what} without an answer: {error!r}")
            return
        if response.status >= 300:
            if 400 <= response.status < 500 and response.status not in (401, 403, 429):
                stage.oracle.report(
                    "defect",
                    f"{target} {body} was refused with {response.status}: {response.body.decode()}",
                )
            return
        stage.counts.resets += 1
        seek.attempts_before_end = len(stage.oracle.attempts)
        self.unanswered.pop()
        seeker.moved([*self.unanswered, seek])

    def _draw(self, partition: int) -> tuple[Seek, str, object]:
        """Return a move, the end of its path, and its body."""
        seek, target = self.seeker.draw(self.stage, partition)
        if seek.kind == "time":
            return seek, f"resetcursor/{target}", None
        if seek.kind == "earliest":
            return seek, "resetcursor", {"ledgerId": -1, "entryId": -1}
        if seek.kind == "latest":
            if self.seeker.rng.random() < 0.5:
                return seek, "skip_all", None
            return seek, "resetcursor", {"ledgerId": _END, "entryId": _END}
        assert isinstance(target, MessageId)
        ledger, entry, excluded = (
            target.ledger_id(),
            target.entry_id(),
            self.seeker.rng.random() < 0.5,
        )
        # Whole entries count here: after the last message of the entry, or from its first one on.
        seek.place = Place(target.partition(), ledger, entry, _END if excluded else 0)
        seek.inclusive, seek.batch_size = not excluded, 0
        return seek, "resetcursor", {"ledgerId": ledger, "entryId": entry, "isExcluded": excluded}
