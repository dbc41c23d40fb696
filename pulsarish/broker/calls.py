"""The calls of the gRPC face: lookup, partitions, topics, ping. Errors travel in the answer, by the numbers of the one tree."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from pulsarish.broker.authorization import ANYBODY, Gate
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.listeners import Listeners, advertised_at
from pulsarish.broker.lookup import Lookup
from pulsarish.broker.namespaces import Namespaces
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.model.errors import InvalidArgument, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import CallHandler, HttpHandler, HttpRequest
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
        listeners: Listeners,
        namespaces: Namespaces,
        ownership: Ownership,
        lookup: Lookup,
        forwarded: HttpHandler,
        lag_seconds: Callable[[], float],
    ) -> None:
        self._config = config
        self._gate = gate
        self._listeners = listeners
        self._namespaces = namespaces
        self._ownership = ownership
        self._lookup = lookup
        self._forwarded = forwarded
        self._lag_seconds = lag_seconds

    def handlers(self, came_in_on: str) -> Mapping[str, CallHandler]:
        """For the port of one listener: lookups are answered with addresses that its clients can reach."""
        return {
            "broker.lookup": partial(self._find, came_in_on),
            "broker.partitions": self._partitions,
            "broker.topics": self._list_topics,
            "broker.ping": self._ping,
            "broker.admin": self._admin,
        }

    async def _find(self, came_in_on: str, data: bytes) -> bytes:
        try:
            request = _parsed(pb.LookupRequest, data)
            name = TopicName.parse(request.topic)
            self._gate.check("broker.lookup", ANYBODY, name.full)
            listener = self._listeners.chosen(request.listener, came_in_on)
            found = await self._lookup.find(name, authoritative=request.authoritative)
            told = advertised_at(found.broker, listener)
        except PulsarishError as error:
            return pb.LookupResponse(code=error.code, message=str(error)).SerializeToString()
        return pb.LookupResponse(
            redirect=found.redirect,
            address=told.address,
            broker_id=found.broker.broker_id,
            authoritative=True,
            http_address=told.http_address,
        ).SerializeToString()

    async def _partitions(self, data: bytes) -> bytes:
        try:
            request = _parsed(pb.PartitionsRequest, data)
            name = TopicName.parse(request.topic)
            self._gate.check("broker.partitions", ANYBODY, name.full)
            await self._namespaces.policies(name.tenant, name.namespace)
            partitions = await self._namespaces.partitions(name)
            if partitions is None and request.create and name.partition < 0:
                partitions = await self._namespaces.auto_partitions(name)
        except PulsarishError as error:
            return pb.PartitionsResponse(code=error.code, message=str(error)).SerializeToString()
        return pb.PartitionsResponse(partitions=partitions or 0).SerializeToString()

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

    async def _admin(self, data: bytes) -> bytes:
        """Another broker passes on what the owner of a topic has to do."""
        request = _parsed(pb.AdminRequest, data)
        self._gate.check("broker.admin", ANYBODY)
        segments = tuple(request.segments)
        path = "/" + "/".join(segments)
        answer = await self._forwarded(HttpRequest(request.method, path, dict(request.query), {}, request.body, segments))
        return pb.AdminResponse(
            status=answer.status, body=answer.body, content_type=answer.content_type, headers=dict(answer.headers)
        ).SerializeToString()

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
