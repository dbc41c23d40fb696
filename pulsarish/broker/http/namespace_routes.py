"""Tenants and namespaces: all answered from metadata, by any broker."""

from __future__ import annotations

from typing import Any

import msgspec

from pulsarish.broker.http.face import Call, Route, answer, no_content
from pulsarish.broker.http.owners import Owners
from pulsarish.broker.namespaces import Namespaces
from pulsarish.broker.ownership.bundles import Bundle, bundles_of
from pulsarish.broker.topics import Topics
from pulsarish.managed_ledger.options import Retention
from pulsarish.metadata.records import TenantRecord
from pulsarish.model.errors import InvalidArgument, NotFound
from pulsarish.runtime.seams import HttpResponse

__all__ = ["NamespaceRoutes"]

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"


class NamespaceRoutes:
    def __init__(self, namespaces: Namespaces, topics: Topics, owners: Owners) -> None:
        self._namespaces = namespaces
        self._topics = topics
        self._owners = owners

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/admin/v2/tenants", self._tenants),
            Route("GET", "/admin/v2/tenants/{tenant}", self._tenant),
            Route("PUT", "/admin/v2/tenants/{tenant}", self._create_tenant),
            Route("DELETE", "/admin/v2/tenants/{tenant}", self._delete_tenant),
            Route("GET", "/admin/v2/namespaces/{tenant}", self._list),
            Route("GET", _NAMESPACE, self._get),
            Route("PUT", _NAMESPACE, self._create),
            Route("DELETE", _NAMESPACE, self._delete),
            Route("GET", _NAMESPACE + "/topics", self._topic_names),
            Route("POST", _NAMESPACE + "/deduplication", self._set_deduplication),
            Route("GET", _NAMESPACE + "/retention", self._retention),
            Route("POST", _NAMESPACE + "/retention", self._set_retention),
            Route("DELETE", _NAMESPACE + "/retention", self._drop_retention),
            Route("PUT", _NAMESPACE + "/{bundle}/unload", self._unload_bundle),
        ]

    async def _tenants(self, call: Call) -> HttpResponse:
        return answer(await self._namespaces.tenants())

    async def _tenant(self, call: Call) -> HttpResponse:
        record = await self._namespaces.tenant(call["tenant"])
        return answer({"adminRoles": list(record.admin_roles), "allowedClusters": list(record.allowed_clusters)})

    async def _create_tenant(self, call: Call) -> HttpResponse:
        body = call.body() or {}
        if not isinstance(body, dict):
            raise InvalidArgument("the body must be an object with adminRoles and allowedClusters")
        record = TenantRecord(_names(body, "adminRoles"), _names(body, "allowedClusters"))
        await self._namespaces.create_tenant(call["tenant"], record)
        return no_content()

    async def _delete_tenant(self, call: Call) -> HttpResponse:
        await self._namespaces.delete_tenant(call["tenant"])
        return no_content()

    async def _list(self, call: Call) -> HttpResponse:
        await self._namespaces.tenant(call["tenant"])
        return answer(await self._namespaces.namespaces(call["tenant"]))

    async def _get(self, call: Call) -> HttpResponse:
        policies = await self._namespaces.policies(call["tenant"], call["namespace"])
        bundles = bundles_of(call["tenant"], call["namespace"], policies.bundles)
        boundaries = [bundle.range.split("_")[0] for bundle in bundles] + [bundles[-1].range.split("_")[1]]
        record = msgspec.to_builtins(policies)
        for internal in ("token", "bundles"):
            del record[internal]
        return answer({"bundles": {"numBundles": policies.bundles, "boundaries": boundaries}, **record})

    async def _create(self, call: Call) -> HttpResponse:
        body = call.body() or {}
        try:
            bundles = int(body["bundles"]["numBundles"]) if body.get("bundles") else None
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidArgument('the body must look like {"bundles": {"numBundles": 4}} or be empty') from None
        await self._namespaces.create_namespace(call["tenant"], call["namespace"], bundles)
        return no_content()

    async def _delete(self, call: Call) -> HttpResponse:
        await self._namespaces.delete_namespace(call["tenant"], call["namespace"])
        return no_content()

    async def _topic_names(self, call: Call) -> HttpResponse:
        await self._namespaces.policies(call["tenant"], call["namespace"])
        return answer(await self._namespaces.topics(call["tenant"], call["namespace"]))

    async def _set_deduplication(self, call: Call) -> HttpResponse:
        """Takes effect on a topic when it is next loaded."""
        enabled = call.body()
        if not isinstance(enabled, bool):
            raise InvalidArgument("the body must be true or false")
        await self._namespaces.set_policies(call["tenant"], call["namespace"], deduplication=enabled)
        return no_content()

    async def _retention(self, call: Call) -> HttpResponse:
        policies = await self._namespaces.policies(call["tenant"], call["namespace"])
        if policies.retention_minutes is None:
            return answer(None)
        return answer({"retentionTimeInMinutes": policies.retention_minutes, "retentionSizeInMB": policies.retention_mb})

    async def _set_retention(self, call: Call) -> HttpResponse:
        """Takes effect on a topic when it is next loaded."""
        match call.body():
            case {"retentionTimeInMinutes": int(minutes), "retentionSizeInMB": int(mb)}:
                Retention(minutes, mb).check()
            case _:
                raise InvalidArgument('the body must look like {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100}')
        await self._namespaces.set_policies(call["tenant"], call["namespace"], retention_minutes=minutes, retention_mb=mb)
        return no_content()

    async def _drop_retention(self, call: Call) -> HttpResponse:
        await self._namespaces.set_policies(call["tenant"], call["namespace"], retention_minutes=None, retention_mb=None)
        return no_content()

    async def _unload_bundle(self, call: Call) -> HttpResponse:
        policies = await self._namespaces.policies(call["tenant"], call["namespace"])
        bundle = Bundle(call["tenant"], call["namespace"], call["bundle"])
        if bundle not in bundles_of(bundle.tenant, bundle.namespace, policies.bundles):
            raise NotFound(f"namespace {bundle.tenant}/{bundle.namespace} has no bundle {bundle.range}")
        await self._owners.require_bundle(call, bundle)
        await self._topics.unload_bundle(bundle)
        return no_content()


def _names(body: dict[str, Any], field: str) -> tuple[str, ...]:
    """A list of names in a body; nothing there is an empty one. Raises ``InvalidArgument``."""
    names = body.get(field) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f"{field} must be a list of names, not {names!r}")
    return tuple(names)
