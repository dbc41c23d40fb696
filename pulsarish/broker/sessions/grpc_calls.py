"""The calls of the gRPC protocol: lookup, topics, schemas, ping.

Errors travel in the answer, as numbers of the common error tree.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message

from pulsarish.broker.clients.authorization import Gate, Resource
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.owner_calls import ERROR_CODE_HEADER
from pulsarish.broker.listeners import Listeners, advertised_at
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.ownership.lookup import Found, Lookup
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.ownership.served_bundles import ServedBundles
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.schemas.topic_schemas import TopicSchemas
from pulsarish.broker.sessions.grpc_codec import schema_message, schema_of
from pulsarish.broker.sessions.topic_calls import TopicCalls
from pulsarish.broker.topics.capture_store import CaptureStore
from pulsarish.model.errors import (
    InvalidArgument,
    InvalidSchema,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.model.schema import Schema, version_bytes
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import CallHandler, HttpHandler, HttpRequest
from pulsarish.security.callers import Callers
from pulsarish.security.credentials import Caller
from pulsarish.security.failed_attempts import FailedAttempts
from pulsarish.security.identity import UNCHECKED, Identity, Origin
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["GrpcCalls"]

M = TypeVar("M", bound=Message)

_LOOKUPS_MAX: Final = 1_000
_LOOKUPS_BYTES_MAX: Final = 1 << 20


class GrpcCalls:
    """The handlers of gRPC calls, by method name."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        gate: Gate,
        listeners: Listeners,
        namespaces: Namespaces,
        ownership: Ownership,
        lookup: Lookup,
        bundles: ServedBundles,
        schemas: TopicSchemas,
        topics: TopicCalls,
        captured: CaptureStore,
        forwarded: HttpHandler,
        lag_seconds: Callable[[], float],
        callers: Callers,
        refused_peers: FailedAttempts,
    ) -> None:
        """Create the handlers. ``refused_peers`` counts addresses that call as brokers and are
        none, so that no peer can fill the audit trail.
        """
        self._callers = callers
        self._refused_peers = refused_peers
        self._config = config
        self._gate = gate
        self._listeners = listeners
        self._namespaces = namespaces
        self._ownership = ownership
        self._lookup = lookup
        self._bundles = bundles
        self._schemas = schemas
        self._topics = topics
        self._captured = captured
        self._forwarded = forwarded
        self._lag_seconds = lag_seconds

    def handlers(self, came_in_on: str) -> Mapping[str, CallHandler]:
        """Return the handlers for one listener's port.

        Lookups return addresses that clients of this listener can reach.
        """
        return {
            "broker.lookup": partial(self._look_up, came_in_on),
            "broker.topics": self._topics.list_topics,
            "broker.schema": self._schema,
            "broker.ping": self._ping,
            "broker.admin": self._admin,
            "broker.take": self._take,
            "broker.capture": self._capture,
        }

    async def _look_up(self, came_in_on: str, data: bytes, caller: Caller) -> bytes:
        """Answer a list of lookups, once all are found.

        Lookups that may wait for other owners run concurrently.
        """
        if len(data) > _LOOKUPS_BYTES_MAX:
            raise InvalidArgument(f"lookups of more than {_LOOKUPS_BYTES_MAX} bytes; ask for fewer")
        requests = _parsed(pb.LookupsRequest, data).lookups
        if len(requests) > _LOOKUPS_MAX:
            raise InvalidArgument(f"more than {_LOOKUPS_MAX} lookups at a time; ask for fewer")
        try:
            identity = await self._callers.identify_caller(caller)
        except PulsarishError as error:
            return pb.LookupsResponse(
                answers=[_refused(error) for _ in requests]
            ).SerializeToString()
        names = [await self._named(request, identity) for request in requests]
        counts = await self._partitions(
            [
                name
                for request, name in zip(requests, names, strict=True)
                if request.wanted in (pb.PARTITIONS, pb.EITHER) and isinstance(name, TopicName)
            ],
            identity,
        )
        answers: dict[int, pb.LookupResponse] = {}
        left: list[tuple[int, pb.LookupRequest, TopicName]] = []
        for index, (request, name) in enumerate(zip(requests, names, strict=True)):
            found = name if isinstance(name, PulsarishError) else counts.get(name.full, 0)
            if isinstance(found, PulsarishError):
                answers[index] = _refused(found)
            elif found or request.wanted == pb.PARTITIONS or isinstance(name, PulsarishError):
                answers[index] = pb.LookupResponse(partitions=found)
            elif request.wanted != pb.REPLICA and (here := self._lookup.at_once(name)) is not None:
                answers[index] = self._response(came_in_on, request, here)
            else:
                left.append((index, request, name))
        others = await asyncio.gather(
            *(self._found(came_in_on, request, name) for _, request, name in left)
        )
        answers |= {index: answer for (index, _, _), answer in zip(left, others, strict=True)}
        return pb.LookupsResponse(
            answers=[answers[index] for index in range(len(requests))]
        ).SerializeToString()

    async def _named(
        self, request: pb.LookupRequest, identity: Identity
    ) -> TopicName | PulsarishError:
        try:
            name = TopicName.parse(request.topic)
            await self._gate.check("broker.lookup", identity, Resource.of_topic(name))
        except PulsarishError as error:
            return error
        return name

    async def _found(
        self, came_in_on: str, request: pb.LookupRequest, name: TopicName
    ) -> pb.LookupResponse:
        try:
            found = (
                await self._lookup.find_replica(name)
                if request.wanted == pb.REPLICA
                else await self._lookup.find(name, authoritative=request.authoritative)
            )
        except PulsarishError as error:
            return _refused(error)
        return self._response(came_in_on, request, found)

    def _response(
        self, came_in_on: str, request: pb.LookupRequest, found: Found
    ) -> pb.LookupResponse:
        try:
            advertised = advertised_at(
                found.broker, self._listeners.chosen(request.listener, came_in_on)
            )
        except PulsarishError as error:
            return _refused(error)
        return pb.LookupResponse(
            redirect=found.redirect,
            address=advertised.address,
            broker_id=found.broker.broker_id,
            authoritative=True,
            http_address=advertised.http_address,
            framed_address=advertised.framed_address,
            address_tls=advertised.address_tls,
            framed_address_tls=advertised.framed_address_tls,
        )

    async def _partitions(
        self, names: Sequence[TopicName], identity: Identity
    ) -> dict[str, int | PulsarishError]:
        """Return the number of partitions of each topic by full name, or the error.

        Creates topics that are partitioned on first use.
        """
        found: dict[str, int | PulsarishError] = {}
        names = [name for name in names if not self._lookup.serves_without_metadata(name)]
        try:
            counts = await self._namespaces.partition_counts(names) if names else []
        except PulsarishError as error:
            return dict.fromkeys([name.full for name in names], error)
        for name, count in zip(names, counts, strict=True):
            try:
                if count:
                    found[name.full] = count
                    continue
                on_created = self._gate.on_created("CreatePartitionedTopic", identity, name)
                found[name.full] = await self._namespaces.auto_partitions(name, on_created) or 0
            except PulsarishError as error:
                found[name.full] = error
        return found

    async def _schema(self, data: bytes, caller: Caller) -> bytes:
        try:
            request = _parsed(pb.SchemaRequest, data)
            name = TopicName.parse(request.topic)
            identity = await self._callers.identify_caller(caller)
            resource = Resource.of_topic(name)
            await self._gate.check("broker.schema", identity, resource)
            if request.HasField("create"):
                await self._gate.check("GetOrCreateSchema", identity, resource)
                version = await self._schemas.get_or_create(
                    name,
                    _requested(request.create),
                    self._gate.on_created("CreateSchema", identity, name),
                )
                return pb.SchemaResponse(schema=request.create, version=version).SerializeToString()
            found = await self._schemas.get(name, request.version or None)
        except PulsarishError as error:
            return pb.SchemaResponse(code=error.code, message=str(error)).SerializeToString()
        return pb.SchemaResponse(
            schema=schema_message(found.schema), version=version_bytes(found.version)
        ).SerializeToString()

    async def _admin(self, data: bytes, caller: Caller) -> bytes:
        """Run a request that another broker passes on to the owner of a topic.

        The key says that the caller is a broker. That one has checked the permission for the
        request of which this is a part.

        Clients use the HTTP port for this, with its own limits and checks.
        """
        request = _parsed(pb.AdminRequest, data)
        if not self._is_own_key("broker.admin", request.admin_key, caller):
            error = ServiceNotReady(
                "broker.admin is for brokers, which read the key of this broker's registration; "
                "use the HTTP port"
            )
            body = msgspec.json.encode({"reason": str(error)})
            return pb.AdminResponse(
                status=403, body=body, headers={ERROR_CODE_HEADER: str(error.code)}
            ).SerializeToString()
        segments = tuple(request.segments)
        path = "/" + "/".join(segments)
        answer = await self._forwarded(
            HttpRequest(request.method, path, dict(request.query), {}, request.body, segments)
        )
        return pb.AdminResponse(
            status=answer.status,
            body=answer.body,
            content_type=answer.content_type,
            headers=dict(answer.headers),
        ).SerializeToString(deterministic=True)  # a map otherwise goes by the process's hash seed

    async def _take(self, data: bytes, caller: Caller) -> bytes:
        """Take a bundle whose owner, another broker, gives it to this one, or expect it."""
        request = _parsed(pb.TakeRequest, data)
        try:
            if not self._is_own_key("broker.take", request.admin_key, caller):
                raise ServiceNotReady(
                    "broker.take is for brokers, which read the key of this broker's registration"
                )
            bundle = Bundle(request.tenant, request.namespace, request.range)
            if request.later:
                self._bundles.expect(bundle)
            else:
                await self._bundles.take(bundle, request.owner, request.epoch)
        except PulsarishError as error:
            return pb.TakeResponse(code=error.code, message=str(error)).SerializeToString()
        return pb.TakeResponse().SerializeToString()

    async def _capture(self, data: bytes, caller: Caller) -> bytes:
        """Store entries that another broker captured of its non-persistent topics."""
        request = _parsed(pb.CaptureRequest, data)
        if not self._is_own_key("broker.capture", request.admin_key, caller):
            error = ServiceNotReady(
                "broker.capture is for brokers, which read the key of this broker's registration"
            )
            return pb.CaptureResponse(code=error.code, message=str(error)).SerializeToString()
        return (await self._captured.store(request)).SerializeToString()

    def _is_own_key(self, method: str, key: str, caller: Caller) -> bool:
        """Return whether a caller has read the key of this broker's registration.

        A refusal is recorded, once for an address and window.
        """
        me = self._ownership.registry.me
        if me is not None and hmac.compare_digest(key.encode(), me.admin_key.encode()):
            caller.on_identified()
            return True
        origin = Origin(caller.address, caller.face)
        more = self._refused_peers.busy(origin.host)
        if more is not None:
            reason = "the key is none, or not that of this broker's registration"
            reason += f"; {more} more since the last record of this" if more else ""
            self._gate.note_refused_peer(method, replace(UNCHECKED, origin=origin), reason)
        return False

    async def _ping(self, data: bytes, caller: Caller) -> bytes:
        """Answer whether this broker is there.

        Clients without valid credentials are told nothing else: an empty answer. Brokers may have
        none that clients' providers accept, and one whose pings are refused would evict this
        broker: the key in its registration says that they are brokers. One that has the key of an
        earlier registration gets the empty answer, too: that registration is gone.
        """
        request = _parsed(pb.PingRequest, data)
        key = request.admin_key
        if not key:
            try:
                _ = await self._callers.identify_caller(caller)
            except PulsarishError:
                return pb.PingResponse().SerializeToString()
        elif self._callers.are_checked and not self._is_own_key("broker.ping", key, caller):
            return pb.PingResponse().SerializeToString()
        ownership = self._ownership
        me = ownership.registry.me
        answer = pb.PingResponse(
            broker_id=me.broker_id if me is not None else "",
            instance_id=me.instance_id if me is not None else "",
            serving=ownership.serving,
            loop_lag_ms=self._lag_seconds() * 1000,
            bundles=len(ownership.owned),
            draining=ownership.draining,
            metadata_away=ownership.is_away_for(request.from_instance),
        )
        if key and ownership.placement.current:
            answer.usage_percent = ownership.cpu_percent()
            answer.group_bundles.update(ownership.group_counts())
        return answer.SerializeToString()


def _refused(error: PulsarishError) -> pb.LookupResponse:
    return pb.LookupResponse(code=error.code, message=str(error))


def _requested(message: pb.Schema) -> Schema:
    try:
        return schema_of(message)
    except ValueError as error:
        raise InvalidSchema(f"the type of the schema: {error}") from None


def _parsed(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidArgument(f"not a {kind.__name__}: {error}") from None
