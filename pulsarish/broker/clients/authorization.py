"""The only place that permits: every gRPC method, every command of a client and every HTTP route
passes the gate with its name.

The table below says which permission a method or command needs; a route declares its own. A policy
decides which role has which permission on which resource. A name that is not in the table is
denied, so a new one stays closed until it is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from pulsarish.model.errors import AuthorizationError, InvalidArgument
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.log import get_logger
from pulsarish.security.identity import Identity

__all__ = [
    "BROKER_ITSELF",
    "CLUSTER",
    "PERMISSIONS",
    "Decision",
    "Gate",
    "Permission",
    "Policy",
    "Resource",
    "Visible",
    "is_visible",
]

_log = get_logger("broker.authorization")


class Permission(Enum):
    """What a role may do. The resource says with what: a topic, a namespace, a tenant, the cluster.

    Reading policies and changing them are told apart from other operations, as in Apache Pulsar.
    """

    NONE = "none"
    """For every client, also without authentication: health, metrics."""
    OPENED = "opened"
    """For the client that opened the producer or consumer that the command names.

    The opening needed a permission, and an open one loses it when it is revoked.
    """
    ANY_ROLE = "any-role"
    """For every authenticated role. A list leaves out what the role may not see."""
    LOOKUP = "lookup"
    PRODUCE = "produce"
    CONSUME = "consume"
    """To receive messages or see their content, of one subscription where one is named."""
    FUNCTIONS = "functions"
    SOURCES = "sources"
    SINKS = "sinks"
    PACKAGES = "packages"
    READ_TOPIC = "read-topic"
    READ_NAMESPACE = "read-namespace"
    READ_TENANT = "read-tenant"
    READ_CLUSTER = "read-cluster"
    READ_POLICIES = "read-policies"
    WRITE_POLICIES = "write-policies"
    ADMIN_TOPIC = "admin-topic"
    ADMIN_NAMESPACE = "admin-namespace"
    ADMIN_TENANT = "admin-tenant"
    """To create namespaces of a tenant."""
    PURGE = "purge"
    """To lose data: messages that are kept or not consumed yet, a topic, a namespace."""
    SUPER_USER = "super-user"
    PEER = "peer"
    """For brokers among themselves."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What a permission is for. Names are parsed ones, never the text that a client sent."""

    tenant: str = ""
    """Empty: the cluster."""
    namespace: str = ""
    """Its local name; empty: the tenant."""
    topic: TopicName | None = None
    subscription: str = ""
    """Of the topic, or without one of all topics of the namespace."""

    @classmethod
    def of_topic(cls, name: TopicName, subscription: str = "") -> Resource:
        return cls(name.tenant, name.namespace, name, subscription)

    @classmethod
    def of_namespace(cls, text: str) -> Resource:
        """Return the namespace that a client names as ``tenant/namespace``.

        Raises ``InvalidArgument``, ``InvalidTopicName``.
        """
        tenant, separator, namespace = text.partition("/")
        if not separator:
            raise InvalidArgument(f"namespace {text!r} must look like tenant/namespace")
        return cls(check_name("tenant", tenant), check_name("namespace", namespace))

    def __str__(self) -> str:
        if self.topic is not None:
            found = f"topic {self.topic.full}"
        elif self.namespace:
            found = f"namespace {self.tenant}/{self.namespace}"
        else:
            found = f"tenant {self.tenant}" if self.tenant else "the cluster"
        return f"{found}, subscription {self.subscription!r}" if self.subscription else found


CLUSTER: Final = Resource()

BROKER_ITSELF: Final = Identity("broker", method="broker")
"""The identity of a request that a broker makes for its own work, such as expiring messages.

It is recognised as this object, so no credential of a client can stand for it.
"""

PERMISSIONS: Final[Mapping[str, Permission]] = {
    # gRPC streams and calls. What a stream may do is checked command by command.
    "broker.publish": Permission.ANY_ROLE,
    "broker.consume": Permission.ANY_ROLE,
    "broker.lookup": Permission.LOOKUP,
    "broker.topics": Permission.READ_NAMESPACE,
    "broker.schema": Permission.LOOKUP,
    "broker.ping": Permission.PEER,
    "broker.admin": Permission.PEER,
    # Commands of a session, through any protocol.
    "OpenProducer": Permission.PRODUCE,
    "Subscribe": Permission.CONSUME,
    "GetSchema": Permission.LOOKUP,
    "GetOrCreateSchema": Permission.PRODUCE,
    "CloseProducer": Permission.OPENED,
    "CloseConsumer": Permission.OPENED,
    "Flow": Permission.OPENED,
    "Acknowledge": Permission.OPENED,
    "Redeliver": Permission.OPENED,
    "Seek": Permission.OPENED,
    "Unsubscribe": Permission.OPENED,
    "GetLastMessageId": Permission.OPENED,
}

Visible = frozenset[str] | None
"""The names that a role may see in a list; ``None``: all."""


def is_visible(visible: Visible, name: TopicName) -> bool:
    """Return whether a topic or partition is among those that a role may see."""
    return visible is None or name.partitioned.full in visible


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a role has a permission, and by which rule."""

    permitted: bool
    reason: str
    """The rule that decided: ``super user``, ``administrator of tenant acme``."""
    remedy: str = ""
    """What an administrator can do about a denial."""


class Policy(Protocol):
    """Decides which role has which permission."""

    @property
    def changes_count(self) -> int:
        """How often grants may have changed. While it stays the same, decisions stay in force."""
        ...

    async def decide(
        self, permission: Permission, identity: Identity, resource: Resource
    ) -> Decision:
        """Return whether the roles of ``identity`` have the permission, and why.

        Raises ``ServiceNotReady`` when the grants cannot be read: that is not a permission.
        """
        ...

    async def visible(self, identity: Identity, resource: Resource) -> Visible:
        """Return what the roles may see of the next level below a resource.

        Tenants of the cluster, namespaces of a tenant by their local names, topics of a namespace
        by the full names of the partitioned ones. Raises ``ServiceNotReady``.
        """
        ...


class Gate:
    """Checks permissions with the policy.

    Args:
        policy: ``None`` permits everything: the broker has no authorization.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy

    @property
    def is_open(self) -> bool:
        """Whether everything is permitted, so that nothing needs to be checked."""
        return self._policy is None

    @property
    def changes_count(self) -> int:
        """How often grants may have changed.

        Read it before a check, and keep it with what the check permitted. When it has grown, check
        again: then a grant that was revoked while the check ran is noticed too.
        """
        return 0 if self._policy is None else self._policy.changes_count

    async def check(self, name: str, identity: Identity, resource: Resource) -> None:
        """Check a method or command by its name.

        Raises ``AuthorizationError`` unless the table knows ``name`` and the policy grants its
        permission; ``ServiceNotReady``.
        """
        permission = PERMISSIONS.get(name)
        if permission is None:
            raise AuthorizationError(f"{name} is not permitted to any role")
        await self.permit(permission, name, identity, resource)

    async def permit(
        self, permission: Permission, name: str, identity: Identity, resource: Resource
    ) -> None:
        """Check a given permission, for callers that declare their own.

        Raises ``AuthorizationError``, whose text is the same whether the resource exists or not,
        and ``ServiceNotReady``.
        """
        decision = await self.decide(permission, identity, resource)
        if not decision.permitted:
            _log.warning(
                "permission denied",
                role=identity.role,
                proxy_role=identity.proxy_role,
                permission=permission.value,
                action=name,
                resource=resource,
                reason=decision.reason,
            )
            raise _denied(permission.value, name, identity, resource)

    async def decide(
        self, permission: Permission, identity: Identity, resource: Resource
    ) -> Decision:
        """Return whether a permission is granted, and by which rule. Raises ``ServiceNotReady``."""
        if self._policy is None:
            return Decision(permitted=True, reason="authorization is off on this broker")
        if permission in (Permission.NONE, Permission.OPENED):
            return Decision(permitted=True, reason=f"{permission.value} needs no grant")
        return await self._policy.decide(permission, identity, resource)

    async def visible(self, name: str, identity: Identity, resource: Resource) -> Visible:
        """Return what a list of what is in a resource may show to a caller.

        Raises ``AuthorizationError`` when the caller may see nothing of a tenant or namespace,
        whether it exists or not, and ``ServiceNotReady``.
        """
        if self._policy is None:
            return None
        found = await self._policy.visible(identity, resource)
        if found is not None and not found and resource.tenant:
            raise _denied("to see anything", name, identity, resource)
        return found


def _denied(
    permission: str, name: str, identity: Identity, resource: Resource
) -> AuthorizationError:
    who = f"role {identity.role!r}" if identity.role else "a caller without authentication"
    if identity.proxy_role:
        who += f" through proxy role {identity.proxy_role!r}"
    return AuthorizationError(f"{who} lacks permission {permission} for {name} on {resource}")
