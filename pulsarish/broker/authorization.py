"""The one place that permits: every gRPC method, every session command and every HTTP route passes ``Gate.check`` with its name.

What is permitted to whom is a policy; what permission each thing needs is the table below. A name that is not in the table is denied, so
that something new is closed until somebody has thought about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pulsarish.model.errors import AuthorizationError

__all__ = ["ANYBODY", "PERMISSIONS", "Gate", "Permission", "Principal", "everything_allowed"]


class Permission(Enum):
    NONE = "none"  # for anybody: health
    LOOKUP = "lookup"
    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN_READ = "admin-read"
    ADMIN_TOPIC = "admin-topic"
    ADMIN_NAMESPACE = "admin-namespace"
    ADMIN_TENANT = "admin-tenant"
    PEER = "peer"  # brokers among themselves


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. Until there is authentication, everybody is ``ANYBODY``."""

    name: str


ANYBODY: Final = Principal("")

_TOPIC: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION: Final = _TOPIC + "/subscription/{subscription}"
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"

PERMISSIONS: Final[Mapping[str, Permission]] = {
    # gRPC streams and calls.
    "broker.publish": Permission.PRODUCE,
    "broker.consume": Permission.CONSUME,
    "broker.lookup": Permission.LOOKUP,
    "broker.partitions": Permission.LOOKUP,
    "broker.topics": Permission.LOOKUP,
    "broker.ping": Permission.PEER,
    "broker.delete_topic": Permission.ADMIN_TOPIC,
    # Commands of a session, whatever face they come through.
    "OpenProducer": Permission.PRODUCE,
    "CloseProducer": Permission.PRODUCE,
    "Subscribe": Permission.CONSUME,
    "CloseConsumer": Permission.CONSUME,
    "Unsubscribe": Permission.CONSUME,
    "Seek": Permission.CONSUME,
    "GetLastMessageId": Permission.CONSUME,
    "Flow": Permission.CONSUME,
    "Acknowledge": Permission.CONSUME,
    "Redeliver": Permission.CONSUME,
    # HTTP.
    "GET /health": Permission.NONE,
    "GET /metrics": Permission.NONE,
    "GET /lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}": Permission.LOOKUP,
    "GET /admin/v2/tenants": Permission.ADMIN_READ,
    "GET /admin/v2/tenants/{tenant}": Permission.ADMIN_READ,
    "PUT /admin/v2/tenants/{tenant}": Permission.ADMIN_TENANT,
    "DELETE /admin/v2/tenants/{tenant}": Permission.ADMIN_TENANT,
    "GET /admin/v2/namespaces/{tenant}": Permission.ADMIN_READ,
    f"GET {_NAMESPACE}": Permission.ADMIN_READ,
    f"PUT {_NAMESPACE}": Permission.ADMIN_NAMESPACE,
    f"DELETE {_NAMESPACE}": Permission.ADMIN_NAMESPACE,
    f"GET {_NAMESPACE}/topics": Permission.ADMIN_READ,
    f"POST {_NAMESPACE}/deduplication": Permission.ADMIN_NAMESPACE,
    f"GET {_NAMESPACE}/retention": Permission.ADMIN_READ,
    f"POST {_NAMESPACE}/retention": Permission.ADMIN_NAMESPACE,
    f"DELETE {_NAMESPACE}/retention": Permission.ADMIN_NAMESPACE,
    f"PUT {_NAMESPACE}/{{bundle}}/unload": Permission.ADMIN_NAMESPACE,
    "GET /admin/v2/persistent/{tenant}/{namespace}": Permission.ADMIN_READ,
    "GET /admin/v2/persistent/{tenant}/{namespace}/partitioned": Permission.ADMIN_READ,
    f"PUT {_TOPIC}": Permission.ADMIN_TOPIC,
    f"DELETE {_TOPIC}": Permission.ADMIN_TOPIC,
    f"GET {_TOPIC}/partitions": Permission.ADMIN_READ,
    f"PUT {_TOPIC}/partitions": Permission.ADMIN_TOPIC,
    f"POST {_TOPIC}/partitions": Permission.ADMIN_TOPIC,
    f"DELETE {_TOPIC}/partitions": Permission.ADMIN_TOPIC,
    f"GET {_TOPIC}/stats": Permission.ADMIN_READ,
    f"GET {_TOPIC}/internalStats": Permission.ADMIN_READ,
    f"GET {_TOPIC}/lastMessageId": Permission.ADMIN_READ,
    f"PUT {_TOPIC}/unload": Permission.ADMIN_TOPIC,
    f"POST {_TOPIC}/terminate": Permission.ADMIN_TOPIC,
    f"GET {_TOPIC}/subscriptions": Permission.ADMIN_READ,
    f"PUT {_SUBSCRIPTION}": Permission.ADMIN_TOPIC,
    f"DELETE {_SUBSCRIPTION}": Permission.ADMIN_TOPIC,
    f"GET {_SUBSCRIPTION}/position/{{number}}": Permission.CONSUME,
    f"POST {_SUBSCRIPTION}/skip/{{count}}": Permission.ADMIN_TOPIC,
    f"POST {_SUBSCRIPTION}/skip_all": Permission.ADMIN_TOPIC,
    f"POST {_SUBSCRIPTION}/resetcursor": Permission.ADMIN_TOPIC,
    f"POST {_SUBSCRIPTION}/resetcursor/{{timestamp}}": Permission.ADMIN_TOPIC,
    f"POST {_SUBSCRIPTION}/expireMessages/{{seconds}}": Permission.ADMIN_TOPIC,
    "GET /admin/v2/brokers": Permission.ADMIN_READ,
    "GET /admin/v2/brokers/leaderBroker": Permission.ADMIN_READ,
    "GET /admin/v2/brokers/health": Permission.ADMIN_READ,
    "GET /admin/v2/bookies": Permission.ADMIN_READ,
    "GET /admin/v2/ledgers": Permission.ADMIN_READ,
    "GET /admin/v2/ledgers/{ledger}": Permission.ADMIN_READ,
}

Policy = Callable[[Permission, Principal, str], bool]
"""Whether a principal has a permission on a resource: a topic's full name, a namespace, or nothing."""


def everything_allowed(permission: Permission, principal: Principal, resource: str) -> bool:
    """The policy until there is authentication."""
    return True


class Gate:
    """Asks the policy."""

    def __init__(self, policy: Policy = everything_allowed) -> None:
        self._policy = policy

    def check(self, name: str, principal: Principal, resource: str = "") -> None:
        """Raises ``AuthorizationError`` unless the table knows ``name`` and the policy grants what it needs."""
        permission = PERMISSIONS.get(name)
        if permission is None:
            raise AuthorizationError(f"{name} is not permitted to anybody")
        if permission is not Permission.NONE and not self._policy(permission, principal, resource):
            raise AuthorizationError(f"{principal.name or 'an anonymous client'} lacks permission {permission.value} for {name} {resource}")
