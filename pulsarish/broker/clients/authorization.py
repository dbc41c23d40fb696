"""The one place that permits: every gRPC method, every session command and every HTTP route passes the gate with its name.

What is permitted to whom is a policy. What permission a method or command needs is the table below; a name that is not in the table is
denied, so that something new is closed until somebody has thought about it. A route cannot be declared without its permission.
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

PERMISSIONS: Final[Mapping[str, Permission]] = {
    # gRPC streams and calls.
    "broker.publish": Permission.PRODUCE,
    "broker.consume": Permission.CONSUME,
    "broker.lookup": Permission.LOOKUP,
    "broker.topics": Permission.LOOKUP,
    "broker.schema": Permission.LOOKUP,
    "broker.ping": Permission.PEER,
    "broker.admin": Permission.PEER,  # who asked for it was permitted where it came in
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
    "GetSchema": Permission.LOOKUP,
    "GetOrCreateSchema": Permission.PRODUCE,
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
        self.permit(permission, name, principal, resource)

    def permit(self, permission: Permission, name: str, principal: Principal, resource: str = "") -> None:
        """The same for what says itself which permission it needs."""
        if permission is not Permission.NONE and not self._policy(permission, principal, resource):
            raise AuthorizationError(f"{principal.name or 'an anonymous client'} lacks permission {permission.value} for {name} {resource}")
