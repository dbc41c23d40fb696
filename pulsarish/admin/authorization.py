"""Authorization: whether permissions are checked, and which rule decides."""

from __future__ import annotations

from pulsarish.admin.transport import Record, Transport

__all__ = ["Authorization"]


class Authorization:
    """``Admin.authorization``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def is_enabled(self) -> bool:
        """Return whether brokers check permissions. Without, every client has every permission."""
        return bool(self._transport.record("GET", "authorization")["enabled"])

    def explain(
        self, role: str, action: str, resource: str, *, subscription: str = "", proxy_role: str = ""
    ) -> Record:
        """Return ``permitted``, the ``reason`` and, for a denial, the ``remedy``.

        Args:
            action: ``produce``, ``consume``, ``lookup``, ``admin-topic`` and others.
            resource: a topic, ``tenant/namespace``, a tenant, or ``cluster``. A topic has its full
                name, or tenant and namespace.
            subscription: of the topic.
            proxy_role: the proxy that speaks for the role.

        Raises ``AuthorizationError`` unless the caller is the role or an administrator of the
        resource's tenant; ``InvalidArgument`` for an unknown action.
        """
        query = {"role": role, "action": action, "resource": resource}
        if subscription:
            query["subscription"] = subscription
        if proxy_role:
            query["proxyRole"] = proxy_role
        return self._transport.record("GET", "authorization", "explain", query=query)
