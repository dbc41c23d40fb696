"""How topics handle the schemas of their producers and consumers, by the policies in force."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pulsarish.broker.clients.authorization import OnCreated
from pulsarish.broker.policies.store import Effective
from pulsarish.broker.schemas.registry import SchemaRegistry
from pulsarish.model.errors import IncompatibleSchema
from pulsarish.model.policies import (
    ALLOW_AUTO_UPDATE_SCHEMA,
    SCHEMA_COMPATIBILITY_STRATEGY,
    SCHEMA_VALIDATION_ENFORCED,
)
from pulsarish.model.schema import Schema, VersionedSchema, meant, version_bytes, version_number
from pulsarish.model.topic_name import TopicName

if TYPE_CHECKING:
    from pulsarish.broker.clients.interfaces import ServedTopic

__all__ = ["TopicSchemas"]


class TopicSchemas:
    """The schemas of topics, for the sessions of one broker.

    ``policies`` reads what is in force for a topic that is not loaded.
    """

    def __init__(
        self, registry: SchemaRegistry, policies: Callable[[TopicName], Awaitable[Effective]]
    ) -> None:
        self.registry = registry
        self._policies = policies

    async def of_producer(
        self, topic: ServedTopic, schema: Schema | None, on_created: OnCreated | None = None
    ) -> bytes:
        """Return the version of a producer's schema, which is added to the topic if it is new;
        empty without a schema. ``on_created`` is called if it was new.

        Raises ``IncompatibleSchema``, ``InvalidSchema``, ``LimitReached``, ``TopicNotFound``,
        ``MetadataUnavailable``.
        """
        return await self._version(topic.name, schema, topic.topic_limits.policies, on_created)

    async def of_consumer(
        self, topic: ServedTopic, schema: Schema | None, on_created: OnCreated | None = None
    ) -> None:
        """Check that a consumer may read with its schema.

        An unused topic without a schema takes it as its own, and ``on_created`` is called.

        Raises the errors of ``of_producer``.
        """
        schema = meant(schema)
        if schema is None:
            return
        policies = topic.topic_limits.policies
        strategy = policies[SCHEMA_COMPATIBILITY_STRATEGY]
        if await self.registry.check_consumer(topic.name, schema, strategy):
            return
        if _is_used(topic):
            raise IncompatibleSchema(
                f"{topic.name} is in use without a schema: a consumer cannot bring one of type "
                f"{schema.type.name}; let a producer, or"
                " pulsarish schemas upload, do so"
            )
        _ = await self._get_or_create(topic.name, schema, policies, on_created)

    async def get(self, name: TopicName, version: bytes | None) -> VersionedSchema:
        """Return a version of the topic's schema; without a version, or with an empty one, the
        newest.

        Raises ``TopicNotFound``, ``SchemaNotFound``, ``InvalidSchema`` for bytes that are not a
        version.
        """
        return await self.registry.get(name, version_number(version) if version else None)

    async def get_or_create(
        self, name: TopicName, schema: Schema, on_created: OnCreated | None = None
    ) -> bytes:
        """Return a version as ``of_producer`` does, for a topic that need not be loaded.

        Clients also ask this for bytes, which have no schema.
        """
        await self.registry.home(name)
        return await self._version(name, schema, await self._policies(name), on_created)

    async def _version(
        self,
        name: TopicName,
        brought: Schema | None,
        policies: Effective,
        on_created: OnCreated | None,
    ) -> bytes:
        schema = meant(brought)
        if schema is not None:
            return version_bytes(await self._get_or_create(name, schema, policies, on_created))
        if policies[SCHEMA_VALIDATION_ENFORCED] and not await self.registry.is_empty(name):
            raise IncompatibleSchema(
                f"{name} has a schema and schemaValidationEnforced is on: a producer without a "
                "schema cannot publish to it"
            )
        return b""

    async def _get_or_create(
        self, name: TopicName, schema: Schema, policies: Effective, on_created: OnCreated | None
    ) -> int:
        return await self.registry.get_or_create(
            name,
            schema,
            policies[SCHEMA_COMPATIBILITY_STRATEGY],
            may_create=policies[ALLOW_AUTO_UPDATE_SCHEMA],
            on_created=on_created,
        )


def _is_used(topic: ServedTopic) -> bool:
    """Return whether the topic has content or clients without a schema: stored messages, producers,
    or consumers that need a schema.
    """
    consumers = [
        consumer
        for subscription in topic.subscriptions.values()
        for consumer in subscription.consumers
    ]
    return (
        bool(topic.producers)
        or topic.kept_bytes > 0
        or not all(consumer.takes_any_schema for consumer in consumers)
    )
