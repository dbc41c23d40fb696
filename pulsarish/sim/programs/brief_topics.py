"""A program that makes topics, uses them for a short while, terminates and deletes them during
faults. Each topic has an oracle.

Every step is repeated until it is known to be done, by the next session if this one ends. Checks in
addition to those of the oracle: ``deleted`` (a deleted topic or a ledger of its list still exists)
and ``terminated`` (a terminated topic accepted a message, or does not end where its answer said).

A program that renews makes a topic of the same name when one is deleted: no data of the former
topic may appear in it. It takes a new name when a request had no answer, because such a request may
be carried out at any later time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from pulsarish.client.enums import InitialPosition
from pulsarish.model.errors import TopicTerminated
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpResponse, StreamBroken, World
from pulsarish.sim.cluster.cluster import SimCluster
from pulsarish.sim.cluster.invariants import Invariants
from pulsarish.sim.cluster.operator import TOPICS, administer
from pulsarish.sim.cluster.oracle import Oracle, Outcome, Place, Promises
from pulsarish.sim.cluster.stage import Stage
from pulsarish.sim.programs.publishers import Publisher, send_one
from pulsarish.sim.programs.readers import read_everything

__all__ = ["SUBSCRIPTION", "BriefTopic", "Founder"]

SUBSCRIPTION: Final = "keeper"
"""Acknowledges nothing, so that nothing is trimmed."""
_REST_SECONDS: Final = 0.4
_RENEWER_REST_SECONDS: Final = 0.15
_STEPS: Final = (
    "create",
    "subscribe",
    "publish",
    "unload",
    "publish",
    "terminate",
    "publish",
    "delete",
)


@dataclass(slots=True)
class BriefTopic:
    name: TopicName
    steps: list[str]
    """The steps that remain."""
    oracle: Oracle
    publisher: Publisher
    created: bool = False
    terminated: bool = False
    last: Place | None = None
    """Where the topic ends, as the answer to its termination said.

    ``None`` while that is not known.
    """
    sent_before_end: int = 0
    deleted: bool = False
    uncertain: bool = False
    """A request had no answer. The broker that owns the topic may still carry it out."""
    followed: bool = False
    """A later topic has the same name."""


@dataclass(slots=True)
class Founder:
    """Uses ``stage`` for its counts, its trace and its end."""

    stage: Stage
    cluster: SimCluster
    rng: random.Random
    watch: Callable[[Place, str], object]
    topics: list[BriefTopic] = field(default_factory=list)
    renews: bool = False

    async def session(self, world: World) -> None:
        while not self.stage.over:
            if not self.topics or not self.topics[-1].steps:
                self._found()
            topic = self.topics[-1]
            try:
                if await self._step(world, topic, topic.steps[0]):
                    del topic.steps[0]
            except (StreamBroken, TimeoutError) as error:
                self.stage.trace(
                    f"{topic.steps[0]} of {topic.name.local} has no outcome: {error!r}"
                )
            await world.clock.sleep(
                self.rng.expovariate(1 / (_RENEWER_REST_SECONDS if self.renews else _REST_SECONDS))
            )

    def _found(self) -> None:
        number = len(self.topics)
        prefix = "anew" if self.renews else "brief"
        name = TopicName.parse(f"persistent://public/default/{prefix}{number}")
        always = ("create", "subscribe", "publish", *(("delete",) if self.renews else ()))
        steps = [step for step in _STEPS if step in always or self.rng.random() < 0.6]
        options = {"batching_enabled": self.rng.random() < 0.5, "send_timeout_millis": 3_000}
        publisher = Publisher(f"{prefix[0]}{number}", False, options, 0.0, 0)
        oracle = Oracle(Promises(deduplication=False, trimmed=False))
        oracle.watch = self.watch
        if (
            self.renews
            and self.topics
            and self.topics[-1].deleted
            and not self.topics[-1].uncertain
        ):
            self.topics[-1].followed = True
            self.stage.counts.topics_renewed += 1
            name = self.topics[-1].name
        self.topics.append(BriefTopic(name, steps, oracle, publisher))

    def _stage_of(self, topic: BriefTopic) -> Stage:
        return replace(self.stage, topic=topic.name.full, oracle=topic.oracle)

    async def _step(self, world: World, topic: BriefTopic, step: str) -> bool:
        """Do a step. Return whether it is done."""
        if step == "subscribe":
            async with self.stage.connected(world) as client:
                await client.subscribe(
                    topic.name.full, SUBSCRIPTION, initial_position=InitialPosition.Earliest
                )
            return True
        if step == "publish":
            await self._publish(world, topic)
            return True
        if step == "create":
            topic.created = await self._ask(world, topic, "PUT", "", (409,))
            return topic.created
        if step == "unload":
            return await self._ask(world, topic, "PUT", "/unload")
        if step == "delete":
            topic.deleted = await self._ask(world, topic, "DELETE", "?force=true", (404,))
            self.stage.counts.topics_deleted += topic.deleted
            return topic.deleted
        return await self._terminate(world, topic)

    async def _ask(
        self, world: World, topic: BriefTopic, method: str, what: str, also: tuple[int, ...] = ()
    ) -> bool:
        response = await self._administer(world, topic, method, what)
        return response.status < 300 or response.status in also

    async def _administer(
        self, world: World, topic: BriefTopic, method: str, what: str
    ) -> HttpResponse:
        uncertain, topic.uncertain = topic.uncertain, True
        broker = self.rng.choice(self.cluster.brokers)
        response = await administer(
            self.stage, world, broker, method, f"{TOPICS}/{topic.name.local}{what}"
        )
        topic.uncertain = uncertain
        return response

    async def _terminate(self, world: World, topic: BriefTopic) -> bool:
        response = await self._administer(world, topic, "POST", "/terminate")
        if response.status >= 300:
            return False
        answer = msgspec.json.decode(response.body)
        topic.last = Place(-1, answer["ledgerId"], answer["entryId"], 0)
        topic.terminated = True
        topic.sent_before_end = len(topic.oracle.attempts)
        return True

    async def _publish(self, world: World, topic: BriefTopic) -> None:
        stage = self._stage_of(topic)
        topic.publisher.session += 1
        async with stage.connected(world) as client:
            try:
                producer = await client.create_producer(topic.name.full, **topic.publisher.options)
                for _ in range(self.rng.randrange(1, 12)):
                    send_one(stage, producer, topic.publisher)
                await producer.flush()
            except TopicTerminated:
                if "terminate" in topic.steps and not topic.terminated:
                    # by a request without an answer
                    stage.trace(f"{topic.name.local} is terminated already")

    # -- when everything has healed

    async def conclude(self, world: World) -> None:
        """Finish what was begun, and read what is left of each topic.

        Raises ``TimeoutError`` when a step is never done.
        """
        for topic in self.topics:
            if topic.created and topic.steps and topic.steps[0] in ("terminate", "delete"):
                while not await self._step(world, topic, topic.steps[0]):
                    await world.clock.sleep(1.0)
            if topic.created and not topic.deleted:
                topic.oracle.finals = [
                    await read_everything(self._stage_of(topic), world) for _ in range(2)
                ]

    def judge(self, invariants: Invariants, report: Callable[[str, str, str], None]) -> None:
        for topic in self.topics:
            if topic.oracle.finals:
                topic.oracle.judge()
            for anomaly in topic.oracle.anomalies:
                report(anomaly.name, f"{topic.name.local}: {anomaly.what}", anomaly.value)
            if topic.terminated:
                self._judge_end(topic, report)
            if topic.deleted and not topic.followed:
                for what in invariants.left_of(topic.name):
                    report(
                        "deleted", f"{topic.name.local} is deleted, and {what} is still there", ""
                    )
            elif self.renews:
                for ledger_id in invariants.forgotten(topic.name):
                    report(
                        "deleted",
                        f"ledger {ledger_id} of a former {topic.name.local} is still there",
                        "",
                    )

    def _judge_end(self, topic: BriefTopic, report: Callable[[str, str, str], None]) -> None:
        for attempt in topic.oracle.attempts[topic.sent_before_end :]:
            if attempt.outcome is Outcome.OK:
                report(
                    "terminated",
                    f"{topic.name.local} took {attempt.value} after its termination was answered",
                    attempt.value,
                )
        if not topic.oracle.finals or topic.last is None:
            return
        log = topic.oracle.log
        end = log[-1][1:3] if log else (topic.last.ledger, -1)
        if (log or topic.last.entry >= 0) and end != topic.last[1:3]:
            report(
                "terminated",
                f"{topic.name.local} said that it ends at {topic.last}, and ends at {end}",
                "",
            )
