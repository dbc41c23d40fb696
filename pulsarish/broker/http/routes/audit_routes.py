"""The request of a broker to the owner of ``audit_topic``: publish lines of its audit trail."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from pulsarish.broker.audit_topic import AuditLines
from pulsarish.broker.clients.authorization import BROKER_ITSELF, Gate, Permission
from pulsarish.broker.clients.commands import (
    Answer,
    OpenProducer,
    ProducerClosed,
    Receipts,
    SendFailed,
)
from pulsarish.broker.clients.producer import PublishRequest
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.route import Call, Route, no_content
from pulsarish.broker.http.routes.topic_routes import TOPIC
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.topic import Topic
from pulsarish.model.errors import AuthorizationError, PulsarishError, ServiceNotReady
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpResponse, World
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry

__all__ = ["AuditRoutes"]

_WORD: Final = "auditLines"


class _Lines(msgspec.Struct, forbid_unknown_fields=True):
    """``broker`` is the key of each message, so that one broker's lines stay in order."""

    broker: str
    producer: str
    epoch: int
    lines: AuditLines


class _Outcomes:
    """What a producer's session would send to its client: here it is only counted."""

    has_room = True

    def __init__(self, count: int) -> None:
        self._left_count = count
        self.error: PulsarishError | None = None
        self.done = asyncio.Event()

    def put(self, answer: Answer) -> None:
        match answer:
            case Receipts():
                self._left_count -= answer.count
            case SendFailed():
                self._left_count -= 1
                self.error = self.error or answer.error
            case ProducerClosed():
                self._left_count = 0
                self.error = self.error or answer.error
            case _:
                pass
        if self._left_count <= 0:
            self.done.set()

    def deliver(self, consumer_id: int, deliveries: object) -> None:
        raise AssertionError("a producer gets no messages")

    def withdraw(self, consumer_id: int) -> int:
        return 0


class AuditRoutes:
    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        topics: LoadedTopics,
        owners: OwnerCalls,
        gate: Gate,
    ) -> None:
        self._world = world
        self._config = config
        self._topics = topics
        self._owners = owners
        self._gate = gate

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST",
                f"{TOPIC}/{_WORD}",
                self._publish,
                Permission.SUPER_USER,
                "Publish lines of a broker's audit trail; brokers ask each other for it.",
                body=_Lines,
                body_required=True,
                owner=True,
                described=False,
            )
        ]

    async def publish(self, broker: str, producer: str, epoch: int, lines: AuditLines) -> None:
        """Have the owner of ``audit_topic`` store lines, whichever broker it is.

        Raises its error, and then some of them may be stored.
        """
        body = _Lines(broker, producer, epoch, lines)
        name = TopicName.parse(self._config.audit_topic)
        await self._owners.send(name, OwnerCall("POST", (_WORD,), body=body))

    async def _publish(self, call: Call) -> HttpResponse:
        if call.identity is not BROKER_ITSELF:
            raise AuthorizationError(
                "only brokers publish lines of their audit trails here, to the owner of audit_topic"
            )
        name = call.topic()
        await self._owners.require(call, name)
        on_created = self._gate.on_created("CreateTopic", BROKER_ITSELF, name)
        topic = await self._topics.get(name, create=True, on_created=on_created)
        await self._store(topic, call.body)
        return no_content()

    async def _store(self, topic: Topic, body: _Lines) -> None:
        outcomes = _Outcomes(len(body.lines))
        opening = OpenProducer(0, 0, topic.name.full, body.producer, body.epoch)
        producer, _ = await topic.open_producer(
            opening, outcomes, f"broker {body.broker}", lambda _turn, _name: None
        )
        clock, timeout_seconds = self._world.clock, self._config.http_request_timeout_seconds
        entries = [
            memoryview(
                encode_entry(
                    MessageMetadata(
                        producer_name=producer.name,
                        sequence_id=sequence,
                        publish_time=clock.wall_ms(),
                        partition_key=body.broker,
                    ),
                    line.encode(),
                )
            )
            for sequence, line in body.lines
        ]
        size_bytes = sum(map(len, entries))
        try:
            async with clock.timeout(timeout_seconds):
                await topic.wait_for_room()
                request = PublishRequest(
                    len(entries), size_bytes, lambda _request, _bytes: None, clock.monotonic()
                )
                topic.publish(producer, entries, request)
                await outcomes.done.wait()
        except TimeoutError:
            raise ServiceNotReady(
                f"{topic.name} has not stored {len(entries)} audit lines within "
                f"{timeout_seconds:g} s"
            ) from None
        finally:
            topic.remove_producer(producer)
        if outcomes.error is not None:
            raise outcomes.error
