"""Tenants: any broker answers from metadata."""

from __future__ import annotations

from typing import Final

from pulsarish.broker.clients.authorization import Gate, Permission
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.json_bodies import TenantBody
from pulsarish.broker.http.listing import Listing
from pulsarish.broker.http.route import AFTER, LIMIT, Call, Parameter, Route, answer, no_content
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.metadata import paths
from pulsarish.metadata.records import TenantRecord
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.grants import check_role
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import HttpResponse

__all__ = ["TenantRoutes"]

_log = get_logger("broker.tenants")

_TENANT: Final = "/admin/v2/tenants/{tenant}"


class TenantRoutes:
    def __init__(
        self, config: BrokerConfig, namespaces: Namespaces, listing: Listing, gate: Gate
    ) -> None:
        self._gate = gate
        self._cluster = config.cluster_name
        self._namespaces = namespaces
        self._listing = listing

    def routes(self) -> list[Route]:
        admin, page = Permission.SUPER_USER, (AFTER, LIMIT)
        force = Parameter(
            "force",
            "A tenant that has namespaces is not deleted with it either.",
            bool,
            default=False,
        )
        return [
            Route(
                "GET",
                "/admin/v2/tenants",
                self._list,
                Permission.ANY_ROLE,
                "List all tenants.",
                parameters=page,
                answers=list[str],
            ),
            Route(
                "GET",
                _TENANT,
                self._get,
                Permission.READ_TENANT,
                "Show a tenant.",
                answers=TenantBody,
            ),
            Route(
                "PUT",
                _TENANT,
                self._create,
                admin,
                "Create a tenant.",
                body=TenantBody,
                statuses=(409,),
            ),
            Route(
                "POST",
                _TENANT,
                self._update,
                admin,
                "Change the administrators and clusters of a tenant.",
                body=TenantBody,
                body_required=True,
            ),
            Route(
                "DELETE",
                _TENANT,
                self._delete,
                admin,
                "Delete a tenant without namespaces.",
                parameters=(force,),
                statuses=(409,),
            ),
            Route(
                "GET",
                "/admin/v2/namespaces/{tenant}",
                self._namespace_names,
                Permission.ANY_ROLE,
                "List the namespaces of a tenant.",
                parameters=page,
                answers=list[str],
            ),
        ]

    async def _list(self, call: Call) -> HttpResponse:
        return answer(
            await self._listing.page(call, paths.TENANTS, await self._listing.visible_tenants(call))
        )

    async def _get(self, call: Call) -> HttpResponse:
        record = await self._namespaces.tenant(call["tenant"])
        # There is one cluster, which may have had another name when the tenant was created.
        return answer(
            TenantBody(record.admin_roles, (self._cluster,) if record.allowed_clusters else ())
        )

    async def _create(self, call: Call) -> HttpResponse:
        body: TenantBody = call.body or TenantBody()
        record = TenantRecord(self._admin_roles(call, body) or (), self._clusters(body))
        await self._namespaces.create_tenant(call["tenant"], record)
        return no_content()

    async def _update(self, call: Call) -> HttpResponse:
        body: TenantBody = call.body
        await self._namespaces.update_tenant(
            call["tenant"],
            admin_roles=self._admin_roles(call, body),
            allowed_clusters=None if body.allowed_clusters is None else self._clusters(body),
        )
        return no_content()

    def _admin_roles(self, call: Call, body: TenantBody) -> tuple[str, ...] | None:
        """Return the roles that administer the tenant. Raises ``InvalidArgument``."""
        for index, role in enumerate(body.admin_roles or ()):
            check_role(role, f"adminRoles[{index}]")
        if body.admin_roles and self._gate.is_open:
            _log.warning(
                "admin roles are stored, and every client may administer the tenant: "
                "authorization_enabled is false",
                tenant=call["tenant"],
                roles=",".join(body.admin_roles),
            )
        return body.admin_roles

    def _clusters(self, body: TenantBody) -> tuple[str, ...]:
        unknown = [name for name in body.allowed_clusters or () if name != self._cluster]
        if unknown:
            raise InvalidArgument(
                f"allowedClusters names {unknown[0]!r}, which does not exist; there is one "
                f"cluster, {self._cluster!r}"
            )
        return tuple(body.allowed_clusters or ())

    async def _delete(self, call: Call) -> HttpResponse:
        await self._namespaces.delete_tenant(call["tenant"])
        return no_content()

    async def _namespace_names(self, call: Call) -> HttpResponse:
        tenant = call["tenant"]
        visible = await self._listing.visible_namespaces(call)
        await self._namespaces.tenant(tenant)
        if call.text("after").startswith(f"{tenant}/"):
            call.values = {**call.values, "after": call.text("after").removeprefix(f"{tenant}/")}
        return answer(
            [
                f"{tenant}/{name}"
                for name in await self._listing.page(call, paths.namespaces(tenant), visible)
            ]
        )
