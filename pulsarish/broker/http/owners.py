"""Acting where the owner is: here, or by sending the client there."""

from __future__ import annotations

from pulsarish.broker.http.face import Call, Moved
from pulsarish.broker.lookup import Lookup
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.topic import Topic
from pulsarish.broker.topics import Topics
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import ServiceNotReady, error_from_code
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import CallFailed, StreamBroken, World
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["Owners"]

_DELETE_TIMEOUT_SECONDS = 30.0


class Owners:
    """For the handlers of one broker."""

    def __init__(self, world: World, lookup: Lookup, ownership: Ownership, topics: Topics) -> None:
        self._world = world
        self._lookup = lookup
        self._ownership = ownership
        self._topics = topics

    def _is_me(self, broker: BrokerRegistration) -> bool:
        return broker.instance_id == self._ownership.registry.instance_id

    async def require(self, call: Call, name: TopicName) -> None:
        """Go on only if this broker owns the topic. Raises ``Moved``, and what a lookup raises."""
        found = await self._lookup.find(name, authoritative=call.flag("authoritative"))
        if not self._is_me(found.broker):
            raise Moved(found.broker.http_address)

    async def require_bundle(self, call: Call, bundle: Bundle) -> None:
        found = await self._lookup.find_bundle(bundle, authoritative=call.flag("authoritative"))
        if not self._is_me(found.broker):
            raise Moved(found.broker.http_address)

    async def topic(self, call: Call, name: TopicName) -> Topic:
        """The loaded topic, which must exist. Raises ``Moved``, ``TopicNotFound``, and what a load raises."""
        await self.require(call, name)
        return await self._topics.get(name, create=False)

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Delete a topic wherever its owner is, which is asked to do it. Raises what the owner's deletion raises."""
        found = await self._lookup.find(name, authoritative=True)
        if self._is_me(found.broker):
            await self._topics.delete(name, force=force)
            return
        request = pb.DeleteTopicRequest(topic=name.full, force=force).SerializeToString()
        try:
            data = await self._world.connections.call(
                found.broker.address, "broker.delete_topic", request, timeout_seconds=_DELETE_TIMEOUT_SECONDS
            )
        except (StreamBroken, TimeoutError, CallFailed) as error:
            raise ServiceNotReady(f"the owner of {name}, {found.broker.broker_id}, did not answer: {error}; try again") from None
        outcome = pb.Outcome.FromString(data)
        if outcome.code:
            raise error_from_code(outcome.code, outcome.message)
