"""The answer for a tenant whose record is older than the name of the cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from pulsarish.broker.clients.authorization import Gate
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.route import Call
from pulsarish.broker.http.routes.tenant_routes import TenantRoutes
from pulsarish.metadata.records import TenantRecord
from pulsarish.runtime.seams import HttpRequest


class Namespaces:
    def __init__(self, record: TenantRecord) -> None:
        self._record = record

    async def tenant(self, _name: str) -> TenantRecord:
        return self._record


@pytest.mark.parametrize(
    ("allowed", "answered"), [((), []), (("former",), ["here"]), (("here",), ["here"])]
)
def test_a_tenant_is_allowed_in_the_only_cluster_whatever_it_was_called(
    allowed: tuple[str, ...], answered: list[str]
) -> None:
    namespaces: Any = Namespaces(TenantRecord((), allowed))
    listing: Any = None
    routes = TenantRoutes(BrokerConfig(cluster_name="here"), namespaces, listing, Gate()).routes()
    get = next(route for route in routes if route.name == "GET /admin/v2/tenants/{tenant}")
    request = HttpRequest(
        "GET", "/admin/v2/tenants/t", {}, {}, b"", ("admin", "v2", "tenants", "t")
    )
    found = asyncio.run(get.handler(Call(request, "", {"tenant": "t"}, None)))
    assert msgspec.json.decode(found.body)["allowedClusters"] == answered
