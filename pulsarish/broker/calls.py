"""The calls of the gRPC face: lookup, partitions, topics, ping. Errors travel in the answer, by the numbers of the one tree."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from pulsarish.broker.authorization import ANYBODY, Gate
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.lookup import Lookup
from pulsarish.broker.namespaces import Namespaces
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.topics import Topics
from pulsarish.model.errors import AlreadyExists, InvalidArgument, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import CallHandler
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["GrpcCalls"]

M = TypeVar("M", bound=Message)

_TOPICS_MAX: Final = 10_000


class GrpcCalls:
    """Handlers by method name."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        gate: Gate,
        namespaces: Namespaces,
        ownership: Ownership,
        lookup: Lookup,
        topics: Topics,
        lag_seconds: Callable[[], float],
    ) -> None:
        self._config = config
        self._gate = gate
        self._namespaces = namespaces
        self._ownership = ownership
        self._lookup = lookup
        self._topics = topics
        self._lag_seconds = lag_seconds

    def handlers(self) -> Mapping[str, CallHandler]:
        return {
            "broker.lookup": self._find,
            "broker.partitions": self._partitions,
            "broker.topics": self._list_topics,
            "broker.ping": self._ping,
            "broker.delete_topic": self._delete_topic,
        }

    async def _find(self, data: bytes) -> bytes:
        try:
            request = _parsed(pb.LookupRequest, data)
            name = TopicName.parse(request.topic)
            self._gate.check("broker.lookup", ANYBODY, name.full)
            if request.listener:
                raise InvalidArgument(f"this broker has no advertised listener {request.listener!r}")
            found = await self._lookup.find(name, authoritative=request.authoritative)
        except PulsarishError as error:
            return pb.LookupResponse(code=error.code, message=str(error)).SerializeToString()
        return pb.LookupResponse(
            redirect=found.redirect,
            address=found.broker.address,
            broker_id=found.broker.broker_id,
            authoritative=True,
            http_address=found.broker.http_address,
        ).SerializeToString()

    async def _partitions(self, data: bytes) -> bytes:
        try:
            request = _parsed(pb.PartitionsRequest, data)
            name = TopicName.parse(request.topic)
            self._gate.check("broker.partitions", ANYBODY, name.full)
            await self._namespaces.policies(name.tenant, name.namespace)
            partitions = await self._namespaces.partitions(name)
            if partitions is None and request.create and name.partition < 0:
                partitions = await self._auto_create(name)
        except PulsarishError as error:
            return pb.PartitionsResponse(code=error.code, message=str(error)).SerializeToString()
        return pb.PartitionsResponse(partitions=partitions or 0).SerializeToString()

    async def _auto_create(self, name: TopicName) -> int | None:
        """Make a partitioned topic on first use, if that is what is made; a plain one is made by its owner when it is opened."""
        if self._config.allow_auto_topic_creation_type != "partitioned" or await self._namespaces.topic_exists(name):
            return None
        self._namespaces.check_auto_creation(name)
        try:
            await self._namespaces.create_partitioned(name, self._config.default_num_partitions)
        except AlreadyExists:
            return await self._namespaces.partitions(name)
        return self._config.default_num_partitions

    async def _list_topics(self, data: bytes) -> bytes:
        try:
            request = _parsed(pb.TopicsRequest, data)
            tenant, separator, namespace = request.namespace.partition("/")
            if not separator:
                raise InvalidArgument(f"namespace {request.namespace!r} must look like tenant/namespace")
            self._gate.check("broker.topics", ANYBODY, request.namespace)
            await self._namespaces.policies(tenant, namespace)
            names = await self._namespaces.topics(tenant, namespace)
        except PulsarishError as error:
            return pb.TopicsResponse(code=error.code, message=str(error)).SerializeToString()
        start = bisect_right(names, request.after) if request.after else 0
        end = start + min(request.limit or _TOPICS_MAX, _TOPICS_MAX)
        return pb.TopicsResponse(topics=names[start:end], more=end < len(names)).SerializeToString()

    async def _delete_topic(self, data: bytes) -> bytes:
        """Another broker was asked to delete a topic that is served here."""
        try:
            request = _parsed(pb.DeleteTopicRequest, data)
            name = TopicName.parse(request.topic)
            self._gate.check("broker.delete_topic", ANYBODY, name.full)
            await self._topics.delete(name, force=request.force)
        except PulsarishError as error:
            return pb.Outcome(code=error.code, message=str(error)).SerializeToString()
        return pb.Outcome().SerializeToString()

    async def _ping(self, data: bytes) -> bytes:
        self._gate.check("broker.ping", ANYBODY)
        me = self._ownership.registry.me
        return pb.PingResponse(
            broker_id=me.broker_id if me is not None else "",
            instance_id=me.instance_id if me is not None else "",
            serving=self._ownership.serving,
            loop_lag_ms=self._lag_seconds() * 1000,
            bundles=len(self._ownership.owned),
        ).SerializeToString()


def _parsed(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidArgument(f"not a {kind.__name__}: {error}") from None
