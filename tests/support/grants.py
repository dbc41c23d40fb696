"""Tenants and grants in memory, in the place of ``Namespaces``, for the policy of authorization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsarish.broker.policies.grant_policy import GrantPolicy
from pulsarish.metadata.records import TenantRecord
from pulsarish.model.errors import PulsarishError
from pulsarish.model.grants import AuthPolicies
from pulsarish.model.policies import AUTH_POLICIES, SUBSCRIPTION_AUTH_MODE

__all__ = ["KnownGrants"]


class KnownGrants:
    """One tenant, ``acme`` with the administrator ``admin``, and the namespaces that it is given.

    ``fails_with`` is raised by each read.
    """

    def __init__(
        self, namespaces: Mapping[str, AuthPolicies], *, mode: str = "None", admin: str = "admin"
    ) -> None:
        self.changes_count = 0
        self.reads_count = 0
        self.fails_with: PulsarishError | None = None
        self._admin = admin
        self._values: dict[str, dict[Any, Any]] = {
            name: {AUTH_POLICIES: grants, SUBSCRIPTION_AUTH_MODE: mode}
            for name, grants in namespaces.items()
        }

    def policy(self) -> GrantPolicy:
        namespaces: Any = self
        return GrantPolicy(namespaces, ["root"])

    def _read(self) -> None:
        self.reads_count += 1
        if self.fails_with is not None:
            raise self.fails_with

    async def admin_roles(self, tenant: str) -> tuple[str, ...]:
        self._read()
        return (self._admin,) if tenant == "acme" else ()

    async def values(self, tenant: str, namespace: str) -> dict[Any, Any]:
        self._read()
        return self._values.get(namespace, {}) if tenant == "acme" else {}

    async def all_tenants(self) -> dict[str, TenantRecord]:
        self._read()
        return {"acme": TenantRecord((self._admin,)), "other": TenantRecord()}

    async def all_values(self, tenant: str) -> dict[str, dict[Any, Any]]:
        self._read()
        return self._values if tenant == "acme" else {}
