"""A client that continues while one of its requests runs: it uses an id again, or sends commands to
a consumer that seeks.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from pulsarish.broker.clients.authorization import Gate
from pulsarish.broker.clients.commands import (
    Acknowledge,
    CloseConsumer,
    ConsumerClosed,
    Outcome,
    Seek,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.outbox import Outbox
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.sessions.session import Session
from pulsarish.model.position import EARLIEST
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.containment import Critical, Scope, ScopeKind
from pulsarish.security.identity import UNCHECKED


class SlowTopic:
    """A topic with one subscription, which takes its time to delete it."""

    def __init__(self) -> None:
        self.connected: list[Consumer] = []
        self.acknowledged: list[Consumer] = []
        self.may_delete = asyncio.Event()
        self.name = TopicName.parse("t")
        self.subscriptions: dict[str, object] = {}

    async def subscribe(
        self, command: Subscribe, outlet: Outbox, _address: str
    ) -> tuple[Any, Consumer]:
        consumer = Consumer(command.consumer_id, "c", outlet)
        self.connected.append(consumer)
        return SimpleNamespace(
            name=command.subscription, seek=self._seek, acknowledge=self._acknowledge
        ), consumer

    async def _seek(self, _position: object, _publish_time_ms: int, *, by: Consumer) -> None:
        assert by in self.connected

    def _acknowledge(self, consumer: Consumer, _command: Acknowledge) -> None:
        self.acknowledged.append(consumer)

    async def unsubscribe(self, _name: str, *, force: bool, by: Consumer) -> None:
        await self.may_delete.wait()

    def remove_consumer(
        self, _subscription: object, consumer: Consumer, *, comes_back: bool = False
    ) -> None:
        self.connected.remove(consumer)


class Topics:
    def __init__(self, topic: SlowTopic) -> None:
        self._topic = topic
        self.schemas = self

    async def topic(
        self, _name: str, *, create: bool = True, on_created: object = None, line: object = None
    ) -> SlowTopic:
        return self._topic

    async def of_consumer(self, _topic: object, _schema: object, _on_created: object) -> None:
        pass


class Tasks:
    def __init__(self) -> None:
        self.contained_failures = dict.fromkeys(ScopeKind, 0)

    def spawn(
        self, work: Any, *, name: str, critical: Critical | None = None, scope: Scope | None = None
    ) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work, name=name)

    def contain(self, task: str, error: BaseException, scope: Scope) -> None:
        raise AssertionError(f"{task} failed with {error!r}")


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_consumer_that_came_while_its_id_was_unsubscribed_ends_with_the_session() -> None:
    async def scenario() -> None:
        topic = SlowTopic()
        topics: Any = Topics(topic)
        outbox = Outbox(delivery_bytes_max=1_000, changed=lambda: None)
        session = Session(
            topics=topics,
            gate=Gate(),
            identity=UNCHECKED,
            peer="x",
            tasks=Tasks(),
            config=BrokerConfig(),
            outbox=outbox,
        )
        session.handle(Subscribe(1, 7, "t", "s"))
        await turns()
        session.handle(Unsubscribe(2, 7))
        await turns()
        session.handle(CloseConsumer(3, 7))
        session.handle(Subscribe(4, 7, "t", "other"))
        await turns()
        assert len(topic.connected) == 1
        topic.may_delete.set()
        await turns()
        session.close()
        assert topic.connected == []

    asyncio.run(scenario())


def test_a_consumer_that_ends_with_its_seek_says_nothing_more() -> None:
    async def scenario() -> None:
        topic = SlowTopic()
        topics: Any = Topics(topic)
        outbox = Outbox(delivery_bytes_max=1_000, changed=lambda: None)
        session = Session(
            topics=topics,
            gate=Gate(),
            identity=UNCHECKED,
            peer="x",
            tasks=Tasks(),
            config=BrokerConfig(),
            outbox=outbox,
            ends_with_seek=True,
        )
        session.handle(Subscribe(1, 7, "t", "s"))
        await turns()
        session.handle(Seek(2, 7, EARLIEST, 0))
        await turns()
        session.handle(Acknowledge(7, [EARLIEST]))
        assert topic.connected == []
        assert topic.acknowledged == []
        assert [type(answer) for answer in outbox.answers] == [Subscribed, ConsumerClosed, Outcome]

    asyncio.run(scenario())


def test_what_topics_have_closed_does_not_count_any_more() -> None:
    async def scenario() -> None:
        topic = SlowTopic()
        topics: Any = Topics(topic)
        outbox = Outbox(delivery_bytes_max=1_000, changed=lambda: None)
        session = Session(
            topics=topics,
            gate=Gate(),
            identity=UNCHECKED,
            peer="x",
            tasks=Tasks(),
            config=BrokerConfig(max_consumers_per_connection=3),
            outbox=outbox,
        )

        async def subscribe(consumer_id: int) -> bool:
            outbox.answers.clear()
            session.handle(Subscribe(consumer_id, consumer_id, "t", "s"))
            await turns()
            (answer,) = outbox.answers
            assert isinstance(answer, Subscribed)
            return answer.error is None

        for consumer_id in range(1, 8):
            assert await subscribe(consumer_id)
            topic.connected[-1].closed = True  # as by an unload
        assert await subscribe(8)
        assert await subscribe(9)
        assert await subscribe(10)
        assert not await subscribe(11)
        assert len(session._consumers) == 3

    asyncio.run(scenario())
