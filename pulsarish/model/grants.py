"""What roles may do in a namespace, in Apache Pulsar's form: its ``auth_policies``.

A grant names a role and its actions, for all topics of the namespace or for one topic. A
subscription with a list of roles is for these roles only; they need ``consume`` too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, get_args

import msgspec

from pulsarish.model.errors import InvalidArgument, InvalidTopicName, LimitReached
from pulsarish.model.policy_words import AuthAction
from pulsarish.model.topic_name import TopicName

__all__ = [
    "ROLE_LENGTH_MAX",
    "AuthPolicies",
    "check_role",
    "grant_on_namespace",
    "grant_on_subscription",
    "grant_on_topic",
    "revoke_on_namespace",
    "revoke_on_subscription",
    "revoke_on_topic",
    "without_topic",
]

ROLE_LENGTH_MAX: Final = 512
_GRANTS_BYTES_MAX: Final = 256 << 10
"""The largest grants of one namespace, as JSON: the node that holds them has at most 1 MiB."""
_SHOWN_MAX: Final = 40
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_UTF8: Final = re.compile("[\ufffd\ud800-\udfff]")

Actions = tuple[AuthAction, ...]


def _role_fault(role: str) -> str:
    """Return what is wrong with the name of a role; empty: nothing."""
    if not role.strip():
        return f"role {role!r} is empty; name the role, such as the subject of its token"
    if len(role) > ROLE_LENGTH_MAX:
        return (
            f"role {role[:_SHOWN_MAX]!r}... has {len(role)} characters; {ROLE_LENGTH_MAX} are "
            "allowed"
        )
    if role != role.strip():
        return f"role {role!r} begins or ends with a space; remove it"
    if _CONTROL.search(role):
        return f"role {role[:_SHOWN_MAX]!r} holds a control character; remove it"
    if _NOT_UTF8.search(role):
        return f"role {role[:_SHOWN_MAX]!r} is not UTF-8; encode it as UTF-8"
    return ""


def check_role(role: str, field: str = "") -> str:
    """Check the name of a role.

    Raises ``InvalidArgument`` that names the ``field`` and the fix.
    """
    if fault := _role_fault(role):
        raise InvalidArgument(f"{field}: {fault}" if field else fault)
    return role


class AuthPolicies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The grants of one namespace: actions by role, by topic and role, and roles by subscription.

    A topic stands for all its partitions.
    """

    namespace: dict[str, Actions] = msgspec.field(name="namespace_auth", default_factory=dict)
    topics: dict[str, dict[str, Actions]] = msgspec.field(
        name="destination_auth", default_factory=dict
    )
    subscriptions: dict[str, tuple[str, ...]] = msgspec.field(
        name="subscription_auth_roles", default_factory=dict
    )

    def __post_init__(self) -> None:
        for where, roles in (
            ("namespace_auth", self.namespace),
            *(("destination_auth", each) for each in self.topics.values()),
            *(("subscription_auth_roles", each) for each in self.subscriptions.values()),
        ):
            for role in roles:
                if fault := _role_fault(role):
                    raise ValueError(f"{where}: {fault}")
        for topic in self.topics:
            try:
                name = TopicName.parse(topic)
            except InvalidTopicName as error:
                raise ValueError(f"destination_auth: {error}") from None
            if name.full != topic or name.partition >= 0:
                raise ValueError(
                    f"destination_auth: {topic} must be the full name of a topic, not of a "
                    f"partition; use {name.partitioned}"
                )

    @property
    def is_empty(self) -> bool:
        return not (self.namespace or self.topics or self.subscriptions)

    def of_topic(self, name: TopicName) -> Mapping[str, Actions]:
        """Return the grants on the topic itself, without those on its namespace."""
        return self.topics.get(name.partitioned.full, {})

    def has_grant(self, role: str) -> bool:
        """Return whether a role has any action on the namespace or on a topic of it."""
        return bool(
            self.namespace.get(role) or any(roles.get(role) for roles in self.topics.values())
        )


def _checked(actions: Iterable[AuthAction]) -> Actions:
    """Return actions in a fixed order. Raises ``InvalidArgument`` when there are none."""
    given = set(actions)
    if not given:
        raise InvalidArgument(
            f"actions is empty; name at least one of {', '.join(get_args(AuthAction))}, or revoke "
            "the permission"
        )
    return tuple(action for action in get_args(AuthAction) if action in given)


def _bounded(found: AuthPolicies) -> AuthPolicies:
    """Return the grants. Raises ``LimitReached`` when they are too large to store."""
    if (size := len(msgspec.json.encode(found))) > _GRANTS_BYTES_MAX:
        raise LimitReached(
            f"the grants of one namespace would take {size} bytes; {_GRANTS_BYTES_MAX} are "
            "allowed; grant on the namespace rather than on each topic, or to fewer roles"
        )
    return found


def _without(roles: Mapping[str, Actions], role: str) -> dict[str, Actions]:
    return {name: actions for name, actions in roles.items() if name != role}


def grant_on_namespace(
    found: AuthPolicies, role: str, actions: Iterable[AuthAction]
) -> AuthPolicies:
    """Return the grants where a role has exactly these actions on the namespace.

    Raises ``InvalidArgument``, ``LimitReached``.
    """
    wanted = {**found.namespace, check_role(role): _checked(actions)}
    return _bounded(msgspec.structs.replace(found, namespace=wanted))


def revoke_on_namespace(found: AuthPolicies, role: str) -> AuthPolicies:
    """Return the grants where a role has none on the namespace itself."""
    return msgspec.structs.replace(found, namespace=_without(found.namespace, check_role(role)))


def grant_on_topic(
    found: AuthPolicies, name: TopicName, role: str, actions: Iterable[AuthAction]
) -> AuthPolicies:
    """Return the grants where a role has exactly these actions on a topic and its partitions.

    Raises ``InvalidArgument``, ``LimitReached``.
    """
    roles = {**found.of_topic(name), check_role(role): _checked(actions)}
    topics = {**found.topics, name.partitioned.full: roles}
    return _bounded(msgspec.structs.replace(found, topics=topics))


def revoke_on_topic(found: AuthPolicies, name: TopicName, role: str) -> AuthPolicies:
    """Return the grants where a role has none on a topic.

    Raises ``InvalidArgument`` when it has none there now, as in Apache Pulsar.
    """
    roles = found.of_topic(name)
    if check_role(role) not in roles:
        raise InvalidArgument(
            f"role {role!r} has no permission on topic {name.partitioned} itself; revoke the one "
            f"on namespace {name.namespace_name} if it has that"
        )
    rest = _without(roles, role)
    others = without_topic(found, name).topics
    return msgspec.structs.replace(
        found, topics={**others, name.partitioned.full: rest} if rest else others
    )


def without_topic(found: AuthPolicies, name: TopicName) -> AuthPolicies:
    """Return the grants without those on a topic."""
    gone = name.partitioned.full
    return msgspec.structs.replace(
        found, topics={topic: roles for topic, roles in found.topics.items() if topic != gone}
    )


def grant_on_subscription(
    found: AuthPolicies, subscription: str, roles: Iterable[str]
) -> AuthPolicies:
    """Return the grants where these roles may use a subscription, besides those that already may.

    Raises ``InvalidArgument``, ``LimitReached``.
    """
    given = [check_role(role) for role in roles]
    if not given:
        raise InvalidArgument(
            f"roles is empty; name at least one role for subscription {subscription!r}"
        )
    there = found.subscriptions.get(subscription, ())
    wanted = {**found.subscriptions, subscription: tuple(sorted({*there, *given}))}
    return _bounded(msgspec.structs.replace(found, subscriptions=wanted))


def revoke_on_subscription(found: AuthPolicies, subscription: str, role: str) -> AuthPolicies:
    """Return the grants where a role is not in the list of a subscription.

    A list that becomes empty is removed. Then every role with ``consume`` may use the subscription,
    as in Apache Pulsar.

    Raises ``InvalidArgument`` when the role is not in the list.
    """
    there = found.subscriptions.get(subscription, ())
    if check_role(role) not in there:
        raise InvalidArgument(
            f"role {role!r} has no permission on subscription {subscription!r}; those that have: "
            f"{', '.join(there) or 'none'}"
        )
    rest = tuple(each for each in there if each != role)
    others = {name: roles for name, roles in found.subscriptions.items() if name != subscription}
    return msgspec.structs.replace(
        found, subscriptions={**others, subscription: rest} if rest else others
    )
