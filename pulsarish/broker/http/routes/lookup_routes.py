"""Lookup over HTTP, for clients with an ``http://`` service address.

In the prompt lane: it never waits behind admin requests.
"""

from __future__ import annotations

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import LookupBody, NativeUrlsBody
from pulsarish.broker.http.route import AUTHORITATIVE, Call, Lane, Moved, Parameter, Route, answer
from pulsarish.broker.listeners import Listeners, advertised_at, http_url_at, native_urls
from pulsarish.broker.ownership.bundles import bundle_of
from pulsarish.broker.ownership.lookup import Lookup
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.metadata.records import BrokerRegistration, ListenerAddresses
from pulsarish.model.errors import ServiceNotReady
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpResponse

__all__ = ["LookupRoutes"]

_TOPIC = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
_DOMAIN = Parameter(
    "domain", "Topics that are kept, or that are not.", choices=("persistent", "non-persistent")
)


class LookupRoutes:
    def __init__(self, lookup: Lookup, namespaces: Namespaces, listeners: Listeners) -> None:
        self._lookup = lookup
        self._namespaces = namespaces
        self._listeners = listeners

    def routes(self) -> list[Route]:
        listener = Parameter("listenerName", "The advertised listener whose addresses are wanted.")
        return [
            Route(
                "GET",
                _TOPIC,
                self._find,
                Permission.LOOKUP,
                "Show which broker serves a topic.",
                parameters=(_DOMAIN, listener),
                answers=LookupBody,
                statuses=(501,),
                owner=True,
                lane=Lane.PROMPT,
            ),
            Route(
                "GET",
                _TOPIC + "/bundle",
                self._bundle,
                Permission.LOOKUP,
                "Show the bundle of a topic.",
                parameters=(_DOMAIN, AUTHORITATIVE),
                answers=str,
                answer_type="text/plain",
                statuses=(501,),
                lane=Lane.PROMPT,
            ),
            Route(
                "GET",
                "/lookup/v2/native-urls",
                self._native_urls,
                Permission.ANY_ROLE,
                "List the service URLs of brokers for Pulsarish's own clients.",
                parameters=(listener,),
                answers=NativeUrlsBody,
                lane=Lane.PROMPT,
            ),
        ]

    async def _find(self, call: Call) -> HttpResponse:
        listener = self._listeners.chosen(call.text("listenerName"), call.listener)
        has_tls = call.request.has_tls
        call.waits_for = "the owner of the topic"
        found = await self._lookup.find(_topic(call), authoritative=call.flag("authoritative"))
        if found.redirect:
            raise Moved(http_url_at(found.broker, listener, has_tls=has_tls))
        advertised = advertised_at(found.broker, listener)
        if has_tls:
            advertised = _only_tls(found.broker, listener, advertised)
        return answer(
            LookupBody(
                broker_url=advertised.pulsar_url,
                broker_url_tls=advertised.pulsar_url_tls,
                broker_url_ssl=advertised.pulsar_url_tls,
                http_url=advertised.http_url,
                http_url_tls=advertised.http_url_tls,
                native_url=advertised.native_url or advertised.native_url_tls,
                broker_id=found.broker.broker_id,
                bundle=found.bundle.range,
            )
        )

    async def _native_urls(self, call: Call) -> HttpResponse:
        listener = self._listeners.chosen(call.text("listenerName"), call.listener)
        found = native_urls(self._lookup.brokers(), listener, has_tls=call.request.has_tls)
        return answer(NativeUrlsBody(found))

    async def _bundle(self, call: Call) -> HttpResponse:
        name = _topic(call)
        policies = await self._namespaces.policies(name.tenant, name.namespace)
        return HttpResponse(200, bundle_of(name, policies).range.encode(), "text/plain")


def _only_tls(
    broker: BrokerRegistration, listener: str, advertised: ListenerAddresses
) -> ListenerAddresses:
    """Return the addresses for a client that came by HTTPS: those with TLS.

    Raises ``ServiceNotReady`` when a topic cannot be reached by any of them.
    """
    if not advertised.address_tls and not advertised.pulsar_address_tls:
        raise ServiceNotReady(
            f"broker {broker.broker_id} serves the topic, and has no address with TLS on listener "
            f"{listener!r}: set listen_address_tls or pulsar_address_tls, or ask by http"
        )
    return msgspec.structs.replace(advertised, address="", http_address="", pulsar_address="")


def _topic(call: Call) -> TopicName:
    return TopicName.parse(
        f"{call['domain']}://{call['tenant']}/{call['namespace']}/{call['topic']}"
    )
