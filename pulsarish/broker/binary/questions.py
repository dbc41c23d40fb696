"""What clients of the binary protocol ask a broker that is no matter of an open producer or consumer: where topics are, and which."""

from __future__ import annotations

from pulsarish.broker.authorization import ANYBODY, Gate
from pulsarish.broker.binary.codec import failure
from pulsarish.broker.listeners import Listeners, pulsar_at
from pulsarish.broker.lookup import Lookup
from pulsarish.broker.namespaces import Namespaces
from pulsarish.model.errors import InvalidArgument, PulsarishError, TopicNotFound
from pulsarish.model.topic_name import TopicName
from pulsarish.wire._pb import pulsar_pb2 as pb

__all__ = ["BrokerQuestions"]


class BrokerQuestions:
    """The ``Questions`` of a broker's connections."""

    def __init__(self, *, gate: Gate, listeners: Listeners, namespaces: Namespaces, lookup: Lookup) -> None:
        self._gate = gate
        self._listeners = listeners
        self._namespaces = namespaces
        self._lookup = lookup

    async def answer(self, question: pb.Command, came_in_on: str) -> pb.Command | None:
        match question.type:
            case 21:
                return pb.Command(type=22, partitioned_metadata_response=await self._partitions(question.partitioned_metadata))
            case 23:
                return pb.Command(type=24, lookup_response=await self._look_up(question.lookup, came_in_on))
            case 32:
                return await self._topics(question.get_topics_of_namespace)
            case _:
                return None

    async def _partitions(self, asked: pb.PartitionedMetadata) -> pb.PartitionedMetadataResponse:
        try:
            name = TopicName.parse(asked.topic)
            self._gate.check("broker.lookup", ANYBODY, name.full)
            count = await self._namespaces.partitions(name)
            if count is None and asked.metadata_auto_creation_enabled:
                count = await self._namespaces.auto_partitions(name)
            elif count is None and not await self._namespaces.topic_exists(name):
                raise TopicNotFound(f"topic {name} does not exist")
        except PulsarishError as error:
            number, text = failure(error)
            refused = pb.PartitionedMetadataResponse.FAILED
            return pb.PartitionedMetadataResponse(request_id=asked.request_id, response=refused, error=number, message=text)
        found = pb.PartitionedMetadataResponse.SUCCESS
        return pb.PartitionedMetadataResponse(request_id=asked.request_id, response=found, partitions=count or 0)

    async def _look_up(self, asked: pb.LookupTopic, came_in_on: str) -> pb.LookupTopicResponse:
        answer = pb.LookupTopicResponse(request_id=asked.request_id, authoritative=True)
        try:
            name = TopicName.parse(asked.topic)
            self._gate.check("broker.lookup", ANYBODY, name.full)
            listener = self._listeners.chosen(asked.advertised_listener_name, came_in_on)
            found = self._lookup.at_once(name) or await self._lookup.find(name, authoritative=asked.authoritative)
            answer.broker_service_url = f"pulsar://{pulsar_at(found.broker, listener)}"
        except PulsarishError as error:
            answer.response = pb.LookupTopicResponse.FAILED
            answer.error, answer.message = failure(error)
        else:
            answer.response = pb.LookupTopicResponse.REDIRECT if found.redirect else pb.LookupTopicResponse.CONNECT
        return answer

    async def _topics(self, asked: pb.GetTopicsOfNamespace) -> pb.Command:
        try:
            tenant, separator, namespace = asked.namespace.partition("/")
            if not separator:
                raise InvalidArgument(f"namespace {asked.namespace!r} must look like tenant/namespace")
            self._gate.check("broker.topics", ANYBODY, asked.namespace)
            await self._namespaces.policies(tenant, namespace)
            names = [] if asked.mode == pb.GetTopicsOfNamespace.NON_PERSISTENT else await self._all_topics(tenant, namespace)
        except PulsarishError as error:
            number, text = failure(error)
            return pb.Command(type=14, error=pb.Error(request_id=asked.request_id, error=number, message=text))
        return pb.Command(
            type=33, get_topics_of_namespace_response=pb.GetTopicsOfNamespaceResponse(request_id=asked.request_id, topics=names)
        )

    async def _all_topics(self, tenant: str, namespace: str) -> list[str]:
        """Partitions one by one, those too that nobody has used yet."""
        names = set(await self._namespaces.topics(tenant, namespace))
        partitioned = [TopicName.parse(each) for each in await self._namespaces.partitioned_topics(tenant, namespace)]
        for name, count in zip(partitioned, await self._namespaces.partition_counts(partitioned), strict=True):
            names.update(name.with_partition(index).full for index in range(count or 0))
        return sorted(names)
