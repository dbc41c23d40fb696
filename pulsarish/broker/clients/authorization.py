"""The only place that permits: every gRPC method, every session command and every HTTP route passes
the gate with its name.

A policy decides which principal has which permission. The table below says which permission a
method or command needs. A name that is not in the table is denied, so a new one stays closed until
it is added. A route cannot be declared without its permission.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pulsarish.model.errors import AuthorizationError

__all__ = ["ANYBODY", "PERMISSIONS", "Gate", "Permission", "Principal", "everything_allowed"]


class Permission(Enum):
    NONE = "none"  # for every client: health
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
    """The identity of a caller. Without authentication, every caller is ``ANYBODY``."""

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
    "broker.admin": Permission.PEER,  # the broker that passes it on has checked the permission
    # Commands of a session, through any protocol.
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
"""Return whether a principal has a permission on a resource: a topic's full name, a namespace, or
empty.
"""


def everything_allowed(permission: Permission, principal: Principal, resource: str) -> bool:
    """Permit everything: the policy until there is authentication."""
    return True


class Gate:
    """Checks permissions with the policy."""

    def __init__(self, policy: Policy = everything_allowed) -> None:
        self._policy = policy

    def check(self, name: str, principal: Principal, resource: str = "") -> None:
        """Check a method or command by its name.

        Raises ``AuthorizationError`` unless the table knows ``name`` and the policy grants its
        permission.
        """
        permission = PERMISSIONS.get(name)
        if permission is None:
            raise AuthorizationError(f"{name} is not permitted to anybody")
        self.permit(permission, name, principal, resource)

    def permit(
        self, permission: Permission, name: str, principal: Principal, resource: str = ""
    ) -> None:
        """Check a given permission, for callers that declare their own.

        Raises ``AuthorizationError``.
        """
        if permission is not Permission.NONE and not self._policy(permission, principal, resource):
            raise AuthorizationError(
                f"{principal.name or 'an anonymous client'} lacks permission {permission.value} "
                f"for {name} {resource}"
            )
