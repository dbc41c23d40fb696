"""The policy of authorization with Apache Pulsar's rules: super users, administrators of tenants,
and grants on namespaces, topics and subscriptions.

* A super user has every permission.
* An administrator of a tenant has every permission on the tenant and what is in it, except those
  of super users: the tenant's own record, the cluster, its brokers and bookies.
* A grant on a namespace or topic permits its action. Any grant permits to look a topic up and to
  read its state.
* A subscription with a list of roles is only for these, and in mode ``Prefix`` its name must begin
  with the role. Both are in addition to ``consume``. A role that may consume from a subscription
  may also skip its messages and delete it, as its acknowledgements could.
* A proxy and the role that it speaks for both need the permission.
* Everything else is denied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from shlex import quote
from typing import Final, get_args

from pulsarish.broker.clients.authorization import (
    BROKER_ITSELF,
    Decision,
    Permission,
    Resource,
    Visible,
)
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.store import Values, grants_of
from pulsarish.model.errors import PulsarishError, ServiceNotReady
from pulsarish.model.policies import SUBSCRIPTION_AUTH_MODE
from pulsarish.model.policy_words import AuthAction
from pulsarish.security.identity import Identity

__all__ = ["GrantPolicy"]

_SUPER_USERS: Final = frozenset({Permission.SUPER_USER, Permission.READ_CLUSTER, Permission.PEER})
_EVERY_ACTION: Final[frozenset[AuthAction]] = frozenset(get_args(AuthAction))
_ACTIONS: Final[Mapping[Permission, frozenset[AuthAction]]] = {
    Permission.PRODUCE: frozenset({"produce"}),
    Permission.CONSUME: frozenset({"consume"}),
    Permission.FUNCTIONS: frozenset({"functions"}),
    Permission.SOURCES: frozenset({"sources"}),
    Permission.SINKS: frozenset({"sinks"}),
    Permission.PACKAGES: frozenset({"packages"}),
    Permission.LOOKUP: _EVERY_ACTION,
    Permission.READ_TOPIC: _EVERY_ACTION,
    Permission.READ_NAMESPACE: _EVERY_ACTION,
    # Of a subscription only.
    Permission.PURGE: frozenset({"consume"}),
}
"""Permissions that grants give, with the actions of which one is enough."""


def _permitted(reason: str) -> Decision:
    return Decision(permitted=True, reason=reason)


def _denied(reason: str, remedy: str) -> Decision:
    return Decision(permitted=False, reason=reason, remedy=remedy)


class GrantPolicy:
    """Decides by the roles of super users and by what the metadata grants.

    Tenants and namespaces are cached, so a check of a used one reads nothing.
    """

    def __init__(self, namespaces: Namespaces, super_user_roles: Collection[str]) -> None:
        self._namespaces = namespaces
        self._super_user_roles = frozenset(super_user_roles)

    @property
    def changes_count(self) -> int:
        """How often grants may have changed, on any broker."""
        return self._namespaces.changes_count

    async def decide(
        self, permission: Permission, identity: Identity, resource: Resource
    ) -> Decision:
        """Return whether the roles of a caller have a permission, and by which rule.

        Raises ``ServiceNotReady`` when the grants cannot be read.
        """
        if identity is BROKER_ITSELF:
            return _permitted("a broker's own work")
        if not identity.role:
            return _denied(
                "the caller was not authenticated", "switch authentication on for this interface"
            )
        decision = await self._of_role(permission, identity.role, resource)
        if not decision.permitted or not identity.proxy_role:
            return decision
        of_proxy = await self._of_role(permission, identity.proxy_role, resource)
        if of_proxy.permitted:
            return decision
        return replace(of_proxy, reason=f"proxy role {identity.proxy_role!r}: {of_proxy.reason}")

    async def _of_role(self, permission: Permission, role: str, resource: Resource) -> Decision:
        if role in self._super_user_roles:
            return _permitted("super user")
        if permission is Permission.ANY_ROLE:
            return _permitted("every authenticated role")
        if permission in _SUPER_USERS or not resource.tenant:
            return _denied(
                f"{permission.value} is for super users", "add the role to super_user_roles"
            )
        if role in await self._admin_roles(resource.tenant):
            return _permitted(f"administrator of tenant {resource.tenant}")
        actions = _ACTIONS.get(permission)
        if actions is None or (permission is Permission.PURGE and not resource.subscription):
            return _denied(
                f"{permission.value} on {resource} is for administrators of tenant "
                f"{resource.tenant}",
                f"add the role to the admin roles of tenant {resource.tenant}, next to those that "
                f"it has: pulsarish tenants update {resource.tenant} --admin-role ...",
            )
        return _by_grants(actions, role, resource, await self._values(resource))

    async def _admin_roles(self, tenant: str) -> tuple[str, ...]:
        try:
            return await self._namespaces.admin_roles(tenant)
        except PulsarishError as error:
            raise _unreadable(f"tenant {tenant}", error) from None

    async def _values(self, resource: Resource) -> Values:
        """Return the policies of a resource's namespace, none if there is no such namespace."""
        if not resource.namespace:
            return {}
        try:
            return await self._namespaces.values(resource.tenant, resource.namespace)
        except PulsarishError as error:
            raise _unreadable(f"namespace {resource.tenant}/{resource.namespace}", error) from None

    # -- lists

    async def visible(self, identity: Identity, resource: Resource) -> Visible:
        """Return the names in a resource that a caller may see; ``None``: all.

        Raises ``ServiceNotReady``.
        """
        if identity is BROKER_ITSELF:
            return None
        if not identity.role:
            return frozenset()
        try:
            found = await self._seen_by(identity.role, resource)
            if not identity.proxy_role:
                return found
            of_proxy = await self._seen_by(identity.proxy_role, resource)
        except ServiceNotReady:
            raise
        except PulsarishError as error:
            raise _unreadable(str(resource), error) from None
        if found is None or of_proxy is None:
            return of_proxy if found is None else found
        return found & of_proxy

    async def _seen_by(self, role: str, resource: Resource) -> Visible:
        if role in self._super_user_roles:
            return None
        if not resource.tenant:
            return frozenset(
                [
                    tenant
                    for tenant, record in (await self._namespaces.all_tenants()).items()
                    if role in record.admin_roles
                    or await self._namespaces_with_grants(role, tenant)
                ]
            )
        if role in await self._admin_roles(resource.tenant):
            return None
        if not resource.namespace:
            return await self._namespaces_with_grants(role, resource.tenant)
        grants = grants_of(await self._values(resource))
        if grants.namespace.get(role):
            return None
        return frozenset(topic for topic, roles in grants.topics.items() if roles.get(role))

    async def _namespaces_with_grants(self, role: str, tenant: str) -> frozenset[str]:
        values = await self._namespaces.all_values(tenant)
        return frozenset(name for name, each in values.items() if grants_of(each).has_grant(role))


def _unreadable(what: str, error: PulsarishError) -> ServiceNotReady:
    return ServiceNotReady(f"the grants of {what} cannot be read, so nothing is permitted: {error}")


def _by_grants(
    actions: frozenset[AuthAction], role: str, resource: Resource, values: Values
) -> Decision:
    """Decide by what is granted on a resource's namespace and topic."""
    grants, topic = grants_of(values), resource.topic
    place, decision = f"namespace {resource.tenant}/{resource.namespace}", None
    if found := actions.intersection(grants.namespace.get(role, ())):
        decision = _permitted(f"{_least(found)} granted on {place}")
    elif topic is not None:
        if found := actions.intersection(grants.of_topic(topic).get(role, ())):
            decision = _permitted(f"{_least(found)} granted on topic {topic.partitioned}")
    elif actions == _EVERY_ACTION and grants.has_grant(role):
        decision = _permitted(f"a permission granted on a topic of {place}")
    if decision is None:
        kind, target = (
            ("namespaces", f"{resource.tenant}/{resource.namespace or 'NAMESPACE'}")
            if topic is None
            else ("topics", quote(topic.partitioned.full))
        )
        return _denied(
            f"{_least(actions)} is not granted on {resource}",
            f"pulsarish {kind} grant-permission {target} --role {quote(role)} --action "
            f"{_least(actions)}",
        )
    if resource.subscription and actions == _ACTIONS[Permission.CONSUME]:
        return _of_subscription(role, resource, values) or decision
    return decision


def _least(actions: Collection[AuthAction]) -> AuthAction:
    return next(action for action in get_args(AuthAction) if action in actions)


def _of_subscription(role: str, resource: Resource, values: Values) -> Decision | None:
    """Return the denial of a role that may consume but not from this subscription."""
    space, subscription = f"{resource.tenant}/{resource.namespace}", resource.subscription
    roles = grants_of(values).subscriptions.get(subscription)
    if roles and role not in roles:
        return _denied(
            f"subscription {subscription!r} of namespace {space} is for other roles",
            f"pulsarish namespaces grant-subscription-permission {space} {quote(subscription)} "
            f"--role {quote(role)}",
        )
    if values.get(SUBSCRIPTION_AUTH_MODE) == "Prefix" and not subscription.startswith(role):
        return _denied(
            f"in namespace {space} the name of a subscription must begin with the role",
            f"use a subscription such as {role}-{subscription}, or: pulsarish namespaces "
            f"set-subscription-auth-mode {space} None",
        )
    return None
