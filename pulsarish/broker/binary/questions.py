"""Requests of the binary protocol that do not concern an open producer or consumer: lookups and
lists of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pulsarish.broker.binary.codec import error_command, failure
from pulsarish.broker.clients.authorization import Gate, Resource, Visible, is_visible
from pulsarish.broker.listeners import Listeners, native_urls, pulsar_at
from pulsarish.broker.ownership.lookup import Lookup
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.topics.topic_lists import TopicLists, TopicWatch, list_hash
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import (
    AuthorizationError,
    NotAllowedError,
    PulsarishError,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.model.topic_pattern import compile_pattern, plain_name
from pulsarish.security.identity import Identity
from pulsarish.wire._pb import pulsar_pb2 as pb

__all__ = ["BrokerQuestions"]

# first request of a client with transactions
_TRANSACTIONS: Final = "persistent://pulsar/system/transaction_coordinator_assign"


class BrokerQuestions:
    """The ``Questions`` of a broker's connections."""

    def __init__(
        self,
        *,
        gate: Gate,
        listeners: Listeners,
        namespaces: Namespaces,
        lookup: Lookup,
        lists: TopicLists,
    ) -> None:
        self._gate = gate
        self._listeners = listeners
        self._namespaces = namespaces
        self._lookup = lookup
        self._lists = lists

    async def answer(
        self, question: pb.Command, came_in_on: str, identity: Identity, *, has_tls: bool
    ) -> pb.Command | None:
        match question.type:
            case 21:
                return pb.Command(
                    type=22,
                    partitioned_metadata_response=await self._partitions(
                        question.partitioned_metadata, identity
                    ),
                )
            case 23:
                return pb.Command(
                    type=24,
                    lookup_response=await self._look_up(
                        question.lookup, came_in_on, identity, has_tls=has_tls
                    ),
                )
            case 32:
                return await self._topics(question.get_topics_of_namespace, identity)
            case _:
                return None

    def urls_of(
        self, broker: BrokerRegistration, came_in_on: str, *, has_tls: bool
    ) -> tuple[str, str]:
        return self._listeners.pulsar_of_next(broker, came_in_on, has_tls=has_tls)

    def native_urls(self, named: str, came_in_on: str, *, has_tls: bool) -> list[str]:
        listener = self._listeners.chosen(named, came_in_on)
        return native_urls(self._lookup.brokers(), listener, has_tls=has_tls)

    async def _partitions(
        self, asked: pb.PartitionedMetadata, identity: Identity
    ) -> pb.PartitionedMetadataResponse:
        try:
            name = TopicName.parse(asked.topic)
            await self._gate.check("broker.lookup", identity, Resource.of_topic(name))
            if name.full == _TRANSACTIONS:
                raise NotAllowedError(
                    "transactions are not supported; make the client without enableTransaction"
                )
            if self._lookup.serves_without_metadata(name):
                count: int | None = 0
            else:
                count = await self._namespaces.partitions(name)
            if count is None and asked.metadata_auto_creation_enabled:
                on_created = self._gate.on_created("CreatePartitionedTopic", identity, name)
                count = await self._namespaces.auto_partitions(name, on_created)
            elif count is None:
                await self._namespaces.check_known(name)
        except PulsarishError as error:
            number, text = failure(error)
            refused = pb.PartitionedMetadataResponse.FAILED
            return pb.PartitionedMetadataResponse(
                request_id=asked.request_id, response=refused, error=number, message=text
            )
        found = pb.PartitionedMetadataResponse.SUCCESS
        return pb.PartitionedMetadataResponse(
            request_id=asked.request_id, response=found, partitions=count or 0
        )

    async def _look_up(
        self, asked: pb.LookupTopic, came_in_on: str, identity: Identity, *, has_tls: bool
    ) -> pb.LookupTopicResponse:
        answer = pb.LookupTopicResponse(request_id=asked.request_id, authoritative=True)
        try:
            name = TopicName.parse(asked.topic)
            await self._gate.check("broker.lookup", identity, Resource.of_topic(name))
            listener = self._listeners.chosen(asked.advertised_listener_name, came_in_on)
            found = self._lookup.at_once(name) or await self._lookup.find(
                name, authoritative=asked.authoritative
            )
            plain, tls = pulsar_at(found.broker, listener, has_tls=has_tls)
            # A field that is set counts as an address, however empty it is.
            if plain:
                answer.broker_service_url = plain
            if tls:
                answer.broker_service_url_tls = tls
        except PulsarishError as error:
            answer.response = pb.LookupTopicResponse.FAILED
            answer.error, answer.message = failure(error)
        else:
            answer.response = (
                pb.LookupTopicResponse.REDIRECT
                if found.redirect
                else pb.LookupTopicResponse.CONNECT
            )
        return answer

    async def _topics(self, asked: pb.GetTopicsOfNamespace, identity: Identity) -> pb.Command:
        try:
            tenant, namespace, visible = await self._namespace(asked.namespace, identity)
            names: list[str] = []
            if asked.mode != pb.GetTopicsOfNamespace.NON_PERSISTENT:
                names += await self._lists.names(tenant, namespace)
            if asked.mode != pb.GetTopicsOfNamespace.PERSISTENT:
                names += await self._lists.not_kept(tenant, namespace)
            if visible is not None:
                names = [name for name in names if is_visible(visible, TopicName.parse(name))]
            answer = pb.GetTopicsOfNamespaceResponse(request_id=asked.request_id)
            if asked.topics_pattern:
                matches = compile_pattern(asked.topics_pattern)
                names = [name for name in names if matches(plain_name(name))]
                answer.filtered = True
        except PulsarishError as error:
            return error_command(asked.request_id, error)
        answer.topics_hash = list_hash(names)
        answer.changed = answer.topics_hash != asked.topics_hash
        if answer.changed:
            answer.topics.extend(names)
        return pb.Command(type=33, get_topics_of_namespace_response=answer)

    async def _namespace(self, name: str, identity: Identity) -> tuple[str, str, Visible]:
        """Return tenant and namespace of a name, and the topics that the caller may see."""
        resource = Resource.of_namespace(name)
        visible = await self._gate.visible("broker.topics", identity, resource)
        return resource.tenant, resource.namespace, visible

    async def watch(
        self, asked: pb.WatchTopicList, say: Callable[[pb.Command], None], identity: Identity
    ) -> tuple[TopicWatch | None, pb.Command]:
        def tell(new: Sequence[str], gone: Sequence[str], topics_hash: str) -> None:
            update = pb.WatchTopicUpdate(
                watcher_id=asked.watcher_id,
                new_topics=new,
                deleted_topics=gone,
                topics_hash=topics_hash,
            )
            say(pb.Command(type=66, watch_topic_update=update))

        try:
            tenant, namespace, visible = await self._namespace(asked.namespace, identity)
            # Topics come and go in a watch, and so do grants. The client asks for lists.
            refused = AuthorizationError(
                f"role {identity.role!r} may see some topics of {tenant}/{namespace} only, so it "
                "cannot watch them all"
            )
            if visible is not None:
                raise refused
            watch = await self._lists.watch(tenant, namespace, asked.topics_pattern, tell)
            # A grant that was revoked meanwhile was looked for in the open watches only.
            if not await self.may_watch(watch, identity):
                self._lists.end(watch)
                raise refused
        except PulsarishError as error:
            return None, error_command(asked.request_id, error)
        topics_hash = list_hash(watch.names)
        answer = pb.WatchTopicListSuccess(
            request_id=asked.request_id, watcher_id=asked.watcher_id, topics_hash=topics_hash
        )
        if topics_hash != asked.topics_hash:
            answer.topic.extend(sorted(watch.names))
        return watch, pb.Command(type=65, watch_topic_list_success=answer)

    async def may_watch(self, watch: TopicWatch, identity: Identity) -> bool:
        resource = Resource(*watch.namespace)
        try:
            return await self._gate.visible("broker.topics", identity, resource) is None
        except AuthorizationError:
            return False

    def unwatch(self, watch: TopicWatch) -> None:
        self._lists.end(watch)
