"""Act at the owner of a topic: on this broker, by a redirect of the client, or by passing requests
on to the owners of many topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.json_bodies import ErrorBody
from pulsarish.broker.http.route import Call, Moved
from pulsarish.broker.listeners import broker_named, http_url_at
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.ownership.lookup import Found, Lookup
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.ownership.peer_pings import OwnerSilent
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.topic import Topic
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import (
    NotOwner,
    PulsarishError,
    ServiceNotReady,
    UnknownError,
    error_from_code,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import (
    CallFailed,
    HttpHandler,
    HttpRequest,
    HttpResponse,
    StreamBroken,
    World,
)
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["ERROR_CODE_HEADER", "OwnerCall", "OwnerCalls"]

ERROR_CODE_HEADER: Final = "X-Pulsarish-Error-Code"
"""Header with the number in the error tree, in addition to Apache Pulsar's error body."""

_ATTEMPTS_MAX: Final = 3
_PAUSE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class OwnerCall:
    """A request to the owner of a topic, at the topic's own path followed by ``words``."""

    method: str
    words: tuple[str, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


class OwnerCalls:
    """Calls to owners, for the handlers of one broker.

    ``here`` runs a request on this broker. The HTTP port sets it, because the port is built from
    the routes.
    """

    here: HttpHandler

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        lookup: Lookup,
        ownership: Ownership,
        topics: LoadedTopics,
    ) -> None:
        self._world = world
        self._lookup = lookup
        self._ownership = ownership
        self._topics = topics
        self._timeout_seconds = config.http_request_timeout_seconds
        # Time to evict a silent owner, with enough left for the request itself.
        evicted = (
            config.broker_silence_before_eviction_ms + 2 * config.broker_ping_timeout_ms
        ) / 1000
        self._patience_seconds = min(evicted, config.http_request_timeout_seconds / 2)
        self._at_once_max = config.admin_fan_out_max

    def is_me(self, broker: BrokerRegistration) -> bool:
        return broker.instance_id == self._ownership.registry.instance_id

    def broker(self, call: Call, name: str) -> BrokerRegistration:
        """Return the live broker with this id or HTTP address. Raises ``NotFound``."""
        return broker_named(self._ownership.registry.alive.values(), name, call.listener)

    def require_broker(self, call: Call) -> None:
        """Return only if this is the broker of the query's ``brokerId``, or it names none.

        Raises ``NotFound``, ``Moved``.
        """
        if name := call.text("brokerId"):
            self._require_me(call, self.broker(call, name))

    def check_destination(self, bundle: Bundle, to: BrokerRegistration) -> None:
        """Raise ``NotAllowedError``, which names the rule of placement by which a broker may not
        have a bundle of this one.
        """
        self._ownership.check_destination(bundle, to)

    def serves_without_metadata(self, name: TopicName) -> bool:
        """Return whether this broker serves the topic while metadata cannot be read.

        Such a topic has no partitions.
        """
        return self._lookup.serves_without_metadata(name)

    async def require(self, call: Call, name: TopicName) -> None:
        """Return only if this broker owns the topic.

        Raises ``Moved``, and the errors of a lookup.
        """
        call.waits_for = f"the owner of {name}"
        found = await self._found(
            lambda: self._lookup.find(name, authoritative=call.flag("authoritative")),
            self._patient_until(),
        )
        self._require_me(call, found.broker)
        call.waits_for = f"{name}"

    async def require_bundle(self, call: Call, bundle: Bundle) -> None:
        call.waits_for = f"the owner of {bundle}"
        found = await self._found(
            lambda: self._lookup.find_bundle(bundle, authoritative=call.flag("authoritative")),
            self._patient_until(),
        )
        self._require_me(call, found.broker)
        call.waits_for = f"{bundle}"

    def _patient_until(self) -> float:
        return self._world.clock.monotonic() + self._patience_seconds

    async def _found(self, find: Callable[[], Awaitable[Found]], until: float) -> Found:
        """Look up the owner, and retry while it is silent.

        A silent owner answers again or is evicted within a moment. Callers of the admin interface
        do not retry as producers and consumers do.
        """
        while True:
            try:
                return await find()
            except OwnerSilent:
                if self._world.clock.monotonic() >= until:
                    raise
            await self._world.clock.sleep(_PAUSE_SECONDS)

    def _require_me(self, call: Call, broker: BrokerRegistration) -> None:
        if not self.is_me(broker):
            raise Moved(http_url_at(broker, call.listener, has_tls=call.request.has_tls))

    async def topic(self, call: Call, name: TopicName) -> Topic:
        """Return the topic, loaded; it must exist.

        Raises ``Moved``, ``TopicNotFound``, and the errors of a load.
        """
        await self.require(call, name)
        call.waits_for = f"{name} to be loaded"
        topic = await self._topics.get(name, create=False)
        call.waits_for = f"{name}"
        return topic

    # -- calls to other owners

    async def send(
        self, name: TopicName, errand: OwnerCall, *, patient_until: float | None = None
    ) -> Any:
        """Have the owner of a topic run a request, on whichever broker it is.

        Return its decoded answer, or raise its error.

        ``patient_until``: how long to wait for a silent owner, shared by the calls of one request.
        """
        until = self._patient_until() if patient_until is None else patient_until
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            found = await self._found(lambda: self._lookup.find(name, authoritative=True), until)
            response = await self._pass_on(
                found.broker, (name.domain, name.tenant, name.namespace, name.local), errand
            )
            if response.status != 307:
                return _opened(response)
            if attempt == _ATTEMPTS_MAX:
                break
        raise ServiceNotReady(f"{name} is changing hands; try again")

    async def non_persistent_topics(self, tenant: str, namespace: str) -> list[str]:
        """Return the full names of a namespace's non-persistent topics, sorted, each partition on
        its own.

        Asks all brokers.

        Raises ``ServiceNotReady`` when a broker does not answer, and the errors that brokers
        answer.
        """
        registry = self._ownership.registry
        if registry.me is None:
            raise ServiceNotReady(
                "this broker is not registered at the moment; ask another one or try again"
            )
        errand, path = (
            OwnerCall("GET", query={"here": "true"}),
            ("non-persistent", tenant, namespace),
        )
        answers = await asyncio.gather(
            *(self._pass_on(broker, path, errand) for broker in (registry.me, *registry.others()))
        )
        return sorted({name for each in answers for name in _opened(each)})

    async def send_bundle(self, bundle: Bundle, errand: OwnerCall) -> Any:
        """Have the owner of a bundle run a request, as ``send`` does, at the bundle's path below
        its namespace.
        """
        until = self._patient_until()
        for _ in range(_ATTEMPTS_MAX):
            found = await self._found(
                lambda: self._lookup.find_bundle(bundle, authoritative=True), until
            )
            response = await self._pass_on(
                found.broker, ("namespaces", bundle.tenant, bundle.namespace, bundle.range), errand
            )
            if response.status != 307:
                return _opened(response)
        raise ServiceNotReady(f"{bundle} is changing hands; try again")

    async def send_to(
        self, broker: BrokerRegistration, path: Sequence[str], errand: OwnerCall
    ) -> Any:
        """Have this broker run a request, and no other one. Return its decoded answer.

        Raises its error, and ``NotOwner`` if it names another broker instead.
        """
        response = await self._pass_on(broker, path, errand)
        if response.status == 307:
            raise NotOwner(f"broker {broker.broker_id} does not own {'/'.join(path)} any more")
        return _opened(response)

    async def _pass_on(
        self, broker: BrokerRegistration, path: Sequence[str], errand: OwnerCall
    ) -> HttpResponse:
        segments = ("admin", "v2", *path, *errand.words)
        body = b"" if errand.body is None else msgspec.json.encode(errand.body)
        query = {**errand.query}
        if self.is_me(broker):
            return await self.here(
                HttpRequest(errand.method, "/" + "/".join(segments), query, {}, body, segments)
            )
        request = pb.AdminRequest(
            method=errand.method,
            segments=segments,
            query=query,
            body=body,
            admin_key=broker.admin_key,
        )
        try:
            data = await self._world.connections.call(
                broker.address,
                "broker.admin",
                request.SerializeToString(deterministic=True),
                timeout_seconds=self._timeout_seconds,
            )
        except (StreamBroken, TimeoutError, CallFailed) as error:
            raise ServiceNotReady(
                f"broker {broker.broker_id} did not answer for {'/'.join(path)}: {error}; try again"
            ) from None
        answer = pb.AdminResponse.FromString(data)
        return HttpResponse(answer.status, answer.body, answer.content_type, dict(answer.headers))

    async def send_all(
        self, call: Call, names: Sequence[TopicName], errand: OwnerCall
    ) -> list[Any | PulsarishError]:
        """Have the owners of many topics run a request, several at a time.

        Return for each topic its answer or its error.
        """
        return await self.send_each(call, [(name, errand) for name in names])

    async def send_each(
        self, call: Call, errands: Sequence[tuple[TopicName, OwnerCall]]
    ) -> list[Any | PulsarishError]:
        """Have the owners of topics each run a request of its own; see ``send_all``."""
        answers: list[Any | PulsarishError] = []
        until = self._patient_until()
        for start in range(0, len(errands), self._at_once_max):
            some = errands[start : start + self._at_once_max]
            call.waits_for = (
                f"the owner of {some[0][0]}, and then for {len(errands) - start - 1} more of "
                "such requests"
            )
            answers += await asyncio.gather(
                *(self._sent(name, errand, until) for name, errand in some)
            )
        return answers

    async def _sent(
        self, name: TopicName, errand: OwnerCall, patient_until: float
    ) -> Any | PulsarishError:
        try:
            return await self.send(name, errand, patient_until=patient_until)
        except PulsarishError as error:
            return error


def _opened(response: HttpResponse) -> Any:
    if response.status < 300:
        return msgspec.json.decode(response.body) if response.body else None
    reason = msgspec.json.decode(response.body, type=ErrorBody).reason
    code = response.headers.get(ERROR_CODE_HEADER, "")
    raise error_from_code(int(code), reason) if code.isdecimal() else UnknownError(reason)
