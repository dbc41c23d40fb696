"""The request of a broker to the owner of ``audit_topic``: publish lines of its audit trail."""

from __future__ import annotations

from typing import Final

import msgspec

from pulsarish.broker.audit_topic import AuditLines
from pulsarish.broker.clients.authorization import BROKER_ITSELF, Gate, Permission
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.route import Call, Route, no_content
from pulsarish.broker.http.routes.topic_routes import TOPIC
from pulsarish.broker.publishing.own_messages import OwnMessages
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.topic import Topic
from pulsarish.model.errors import AuthorizationError, ServiceNotReady
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
        clock, timeout_seconds = self._world.clock, self._config.http_request_timeout_seconds
        entries = [
            encode_entry(
                MessageMetadata(
                    producer_name=body.producer,
                    sequence_id=sequence,
                    publish_time=clock.wall_ms(),
                    partition_key=body.broker,
                ),
                line.encode(),
            )
            for sequence, line in body.lines
        ]
        messages = OwnMessages(topic, clock, len(entries))
        await messages.open(body.producer, body.epoch, f"broker {body.broker}")
        try:
            async with clock.timeout(timeout_seconds):
                await messages.publish(entries)
        except TimeoutError:
            raise ServiceNotReady(
                f"{topic.name} has not stored {len(entries)} audit lines within "
                f"{timeout_seconds:g} s"
            ) from None
        finally:
            messages.close()
