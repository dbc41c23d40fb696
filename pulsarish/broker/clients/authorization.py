"""The only place that permits: every gRPC method, every command of a client and every HTTP route
passes the gate with its name.

The table below says which permission a method or command needs; a route declares its own. A policy
decides which role has which permission on which resource. A name that is not in the table is
denied, so a new one stays closed until it is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from pulsarish.model.errors import AuthorizationError, InvalidArgument, PulsarishError, Timeout
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.log import get_logger
from pulsarish.security.audit import NO_AUDIT, AuditClass, AuditEvent, Auditor, Disposition
from pulsarish.security.identity import Identity
from pulsarish.security.limits import Limits

__all__ = [
    "BROKER_ITSELF",
    "CLUSTER",
    "LIMITABLE",
    "PERMISSIONS",
    "Decision",
    "Gate",
    "OnCreated",
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
    "broker.ping": Permission.ANY_ROLE,  # and for brokers, which show a key instead
    "broker.admin": Permission.PEER,
    "broker.take": Permission.PEER,
    "broker.capture": Permission.PEER,
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
    "ExtendAck": Permission.OPENED,
    "Seek": Permission.OPENED,
    "Unsubscribe": Permission.OPENED,
    "GetLastMessageId": Permission.OPENED,
}

LIMITABLE: Final = frozenset(
    each.value
    for each in Permission
    if each not in (Permission.NONE, Permission.OPENED, Permission.ANY_ROLE, Permission.PEER)
)
"""The actions to which a token can be limited."""
_USES: Final = frozenset((Permission.PRODUCE.value, Permission.CONSUME.value))
_ASKED: Final = tuple(
    each for each in Permission if each not in (Permission.NONE, Permission.OPENED)
)
_TO_SEE: Final = "to see anything"
_NOT_GRANTED: Final = "not_granted"
_NOT_AUTHENTICATED: Final = "not_authenticated"

OnCreated = Callable[[str], None]
"""Called once something was created, with a detail for the record of it; empty: none."""

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
        audit: gets a record of each denial, and of each change by a command or call.
        report_only: whether denials are logged, recorded and counted, and nothing is refused.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        audit: Auditor = NO_AUDIT,
        report_only: bool = False,
    ) -> None:
        self._policy = policy
        self._audit = audit
        self.report_only = report_only
        self.denials = dict.fromkeys([(each.value, _NOT_GRANTED) for each in _ASKED], 0)
        """Denials by permission and reason, those that were only reported included."""

    @property
    def is_open(self) -> bool:
        """Whether everything is permitted to everyone but to bearers of limited tokens."""
        return self._policy is None

    def checks(self, identity: Identity) -> bool:
        """Return whether anything needs to be checked for a caller."""
        return self._policy is not None or bool(identity.limits)

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
            # No grant could change it, so it is refused with ``report_only``, too.
            reason = "it has no permission in the table"
            self._note_denial("none", name, identity, resource, reason, Disposition.DENIED)
            raise AuthorizationError(f"{name} is not permitted to any role")
        await self.permit(permission, name, identity, resource)

    async def permit(
        self, permission: Permission, name: str, identity: Identity, resource: Resource
    ) -> None:
        """Check a given permission, for callers that declare their own.

        Raises ``AuthorizationError``, whose text is the same whether the resource exists or not,
        unless denials are only reported, and ``ServiceNotReady``.
        """
        decision = await self.decide(permission, identity, resource)
        if not decision.permitted:
            # Limits of a token are those of who made it, not a policy that is still on trial.
            reports = self.report_only and _are_within(identity, permission, resource)
            self._deny(permission.value, name, identity, resource, decision.reason, reports=reports)

    def _deny(
        self,
        permission: str,
        name: str,
        identity: Identity,
        resource: Resource,
        reason: str,
        *,
        reports: bool,
    ) -> None:
        """Note a denial. Raises ``AuthorizationError``, unless it is only reported."""
        _log.warning(
            "permission would be denied" if reports else "permission denied",
            role=identity.role,
            proxy_role=identity.proxy_role,
            permission=permission,
            action=name,
            resource=resource,
            reason=reason,
        )
        disposition = Disposition.OBSERVED if reports else Disposition.DENIED
        self._note_denial(permission, name, identity, resource, reason, disposition)
        if not reports:
            raise _denied(permission, name, identity, resource)

    def note_refused_peer(self, name: str, identity: Identity, reason: str) -> None:
        """Record a call between brokers whose caller did not show that it is one."""
        peer = Permission.PEER.value
        self._note_denial(peer, name, identity, CLUSTER, reason, Disposition.DENIED)

    def _note_denial(
        self,
        permission: str,
        name: str,
        identity: Identity,
        resource: Resource,
        reason: str,
        disposition: Disposition,
    ) -> None:
        key = permission, _NOT_GRANTED if identity.role else _NOT_AUTHENTICATED
        self.denials[key] = self.denials.get(key, 0) + 1
        self._audit.note(
            AuditEvent(
                kind=AuditClass.AUTHORIZATION,
                activity="Deny",
                identity=identity,
                disposition=disposition,
                action=name,
                resource=str(resource),
                reason=reason,
            )
        )

    def note_change(
        self,
        name: str,
        identity: Identity,
        resource: Resource,
        error: PulsarishError | None = None,
        *,
        detail: str = "",
    ) -> None:
        """Record a change that a client made, or failed to make, by a command or call.

        ``detail``: what was changed beyond the resource, such as the version of a new schema.
        """
        disposition = Disposition.ALLOWED if error is None else Disposition.FAILED
        self._audit.note(
            AuditEvent(
                kind=AuditClass.CHANGE,
                activity="Change",
                identity=identity,
                disposition=Disposition.UNKNOWN if isinstance(error, Timeout) else disposition,
                action=name,
                resource=str(resource),
                reason="" if error is None else str(error),
                detail=detail,
            )
        )

    def on_created(self, what: str, identity: Identity, name: TopicName) -> OnCreated:
        """Return what records that a caller's use of a topic has created something.

        ``what``: ``CreateTopic``, ``CreatePartitionedTopic`` or ``CreateSchema``.
        """
        resource = Resource.of_topic(name)
        return lambda detail: self.note_change(what, identity, resource, detail=detail)

    async def decide(
        self, permission: Permission, identity: Identity, resource: Resource
    ) -> Decision:
        """Return whether a permission is granted, and by which rule. Raises ``ServiceNotReady``."""
        if permission in (Permission.NONE, Permission.OPENED):
            return Decision(permitted=True, reason=f"{permission.value} needs no grant")
        if not _are_within(identity, permission, resource):
            return Decision(
                permitted=False,
                reason="the token is limited to other topics or actions",
                remedy="use a token with wider limits: pulsarish tokens show prints those of one",
            )
        if self._policy is None:
            return Decision(permitted=True, reason="authorization is off on this broker")
        return await self._policy.decide(permission, identity, resource)

    async def visible(self, name: str, identity: Identity, resource: Resource) -> Visible:
        """Return what a list of what is in a resource may show to a caller.

        Raises ``AuthorizationError`` when the caller may see nothing of a tenant or namespace,
        whether it exists or not, and ``ServiceNotReady``. While denials are only reported, lists
        are whole.
        """
        is_limited = any(limits.topics or limits.actions for limits in identity.limits)
        if is_limited:
            # Which names are within a limit cannot be listed, so none is shown.
            found: Visible = frozenset()
        elif self._policy is None:
            return None
        else:
            found = await self._policy.visible(identity, resource)
        if found is not None and not found and resource.tenant:
            reason = "nothing there is granted to the role, or the token is limited"
            reports = self.report_only and not is_limited
            self._deny(_TO_SEE, name, identity, resource, reason, reports=reports)
        return None if self.report_only and not is_limited else found


def _are_within(identity: Identity, permission: Permission, resource: Resource) -> bool:
    return all(_is_within(limits, permission, resource) for limits in identity.limits)


def _is_within(limits: Limits, permission: Permission, resource: Resource) -> bool:
    """Return whether a token's limits leave it a permission, before the rights of its role."""
    if permission is Permission.ANY_ROLE:
        return True
    if limits.topics and (
        resource.topic is None or not limits.permit_topic(resource.topic.partitioned.full)
    ):
        return False
    if not limits.actions or permission.value in limits.actions:
        return True
    # Clients look up a topic before they use it.
    return permission is Permission.LOOKUP and not _USES.isdisjoint(limits.actions)


def _denied(
    permission: str, name: str, identity: Identity, resource: Resource
) -> AuthorizationError:
    who = f"role {identity.role!r}" if identity.role else "a caller without authentication"
    if identity.proxy_role:
        who += f" through proxy role {identity.proxy_role!r}"
    return AuthorizationError(f"{who} lacks permission {permission} for {name} on {resource}")
