"""Namespaces and their policies: answered from metadata, by any broker."""

from __future__ import annotations

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.json_bodies import Json
from pulsarish.broker.http.namespace_form import new_namespace
from pulsarish.broker.http.route import Call, Route, answer, no_content
from pulsarish.broker.http.routes.policy_routes import namespace_body
from pulsarish.broker.ownership.bundles import boundaries_of
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.runtime.seams import HttpResponse

__all__ = ["NamespaceRoutes"]

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"


class NamespaceRoutes:
    def __init__(self, config: BrokerConfig, namespaces: Namespaces) -> None:
        self._cluster = config.cluster_name
        self._namespaces = namespaces

    def routes(self) -> list[Route]:
        read, create = Permission.READ_POLICIES, Permission.ADMIN_TENANT
        return [
            Route(
                "GET",
                _NAMESPACE,
                self._get,
                read,
                "Show a namespace and its policies.",
                answers=Json,
            ),
            Route(
                "PUT",
                _NAMESPACE,
                self._create,
                create,
                "Create a namespace.",
                body=Json,
                statuses=(409,),
            ),
        ]

    async def _get(self, call: Call) -> HttpResponse:
        policies = await self._namespaces.policies(call["tenant"], call["namespace"])
        boundaries = [f"0x{edge:08x}" for edge in boundaries_of(policies)]
        return answer(
            {
                "bundles": {"numBundles": len(boundaries) - 1, "boundaries": boundaries},
                **namespace_body(policies, self._cluster),
            }
        )

    async def _create(self, call: Call) -> HttpResponse:
        wanted = new_namespace(call.body or {}, self._cluster)
        await self._namespaces.create_namespace(
            call["tenant"],
            call["namespace"],
            wanted.bundles,
            policies=wanted.policies,
            properties=wanted.properties,
        )
        return no_content()
