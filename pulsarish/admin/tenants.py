"""Tenants: the first part of a topic's name."""

from __future__ import annotations

from collections.abc import Sequence

from pulsarish.admin.transport import Names, Record, Transport

__all__ = ["Tenants"]


class Tenants:
    """``Admin.tenants``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, after: str = "", limit: int | None = None) -> Names:
        """Return sorted names.

        ``after``: the last name of the previous page; ``limit``: names in a page, all without it.
        """
        return self._transport.pages("tenants", after=after, limit=limit)

    def get(self, tenant: str) -> Record:
        """Return ``adminRoles`` and ``allowedClusters``. Raises ``NotFound``."""
        return self._transport.record("GET", "tenants", tenant)

    def create(
        self, tenant: str, *, admin_roles: Sequence[str] = (), allowed_clusters: Sequence[str] = ()
    ) -> None:
        """Create a tenant. Raises ``AlreadyExists``."""
        self._transport.request(
            "PUT", ["tenants", tenant], body=_body(admin_roles, allowed_clusters)
        )

    def update(
        self, tenant: str, *, admin_roles: Sequence[str], allowed_clusters: Sequence[str]
    ) -> None:
        """Replace both lists. Raises ``NotFound``."""
        self._transport.request(
            "POST", ["tenants", tenant], body=_body(admin_roles, allowed_clusters)
        )

    def delete(self, tenant: str) -> None:
        """Delete a tenant. Raises ``NotEmpty`` if it has namespaces."""
        self._transport.request("DELETE", ["tenants", tenant])


def _body(admin_roles: Sequence[str], allowed_clusters: Sequence[str]) -> Record:
    return {"adminRoles": [*admin_roles], "allowedClusters": [*allowed_clusters]}
