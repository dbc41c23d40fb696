"""Lookup over HTTP, for clients with an ``http://`` service address.

In the prompt lane: it never waits behind admin requests.
"""

from __future__ import annotations

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import LookupBody
from pulsarish.broker.http.route import AUTHORITATIVE, Call, Lane, Moved, Parameter, Route, answer
from pulsarish.broker.listeners import Listeners, advertised_at, http_at
from pulsarish.broker.ownership.bundles import bundle_of
from pulsarish.broker.ownership.lookup import Lookup
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.metadata.records import ListenerAddresses
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.network.addresses import plain_address
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
        ]

    async def _find(self, call: Call) -> HttpResponse:
        listener = self._listeners.chosen(call.text("listenerName"), call.listener)
        call.waits_for = "the owner of the topic"
        found = await self._lookup.find(_topic(call), authoritative=call.flag("authoritative"))
        if found.redirect:
            raise Moved(http_at(found.broker, listener, has_tls=call.request.has_tls))
        advertised = advertised_at(found.broker, listener)
        pulsar_tls = (
            f"pulsar+ssl://{advertised.pulsar_address_tls}" if advertised.pulsar_address_tls else ""
        )
        return answer(
            LookupBody(
                broker_url=f"pulsar://{advertised.pulsar_address}"
                if advertised.pulsar_address
                else "",
                broker_url_tls=pulsar_tls,
                broker_url_ssl=pulsar_tls,
                http_url=f"http://{advertised.http_address}" if advertised.http_address else "",
                http_url_tls=f"https://{advertised.http_address_tls}"
                if advertised.http_address_tls
                else "",
                native_url=_native_url(advertised, has_tls=call.request.has_tls),
                broker_id=found.broker.broker_id,
                bundle=found.bundle.range,
            )
        )

    async def _bundle(self, call: Call) -> HttpResponse:
        name = _topic(call)
        policies = await self._namespaces.policies(name.tenant, name.namespace)
        return HttpResponse(200, bundle_of(name, policies.bundles).range.encode(), "text/plain")


def _native_url(advertised: ListenerAddresses, *, has_tls: bool) -> str:
    """Return the URL of the own protocol: with TLS for a client that came by it, and where there is
    no other.
    """
    if advertised.address_tls and (has_tls or not advertised.address):
        return f"pulsarish+ssl://{plain_address(advertised.address_tls)}"
    return f"pulsarish://{advertised.address}"


def _topic(call: Call) -> TopicName:
    return TopicName.parse(
        f"{call['domain']}://{call['tenant']}/{call['namespace']}/{call['topic']}"
    )
