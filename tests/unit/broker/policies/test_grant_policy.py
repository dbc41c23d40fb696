"""Who has which permission: super users, administrators of tenants, and grants on namespaces,
topics and subscriptions.
"""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.broker.clients.authorization import (
    BROKER_ITSELF,
    CLUSTER,
    Decision,
    Gate,
    Permission,
    Resource,
)
from pulsarish.model.errors import (
    AuthorizationError,
    CorruptData,
    MetadataUnavailable,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.model.grants import AuthPolicies
from pulsarish.model.topic_name import TopicName
from pulsarish.security.identity import UNCHECKED, Identity
from tests.support.grants import KnownGrants

TOPIC = TopicName.parse("persistent://acme/orders/new")
OTHER = TopicName.parse("persistent://acme/orders/old")
NOT_KEPT = TopicName.parse("non-persistent://acme/orders/new")
SPACE = Resource("acme", "orders")
GRANTS = AuthPolicies(
    namespace={"writer": ("produce",), "reader": ("consume",), "runner": ("functions",)},
    topics={TOPIC.full: {"guest": ("produce", "consume")}},
    subscriptions={"billing": ("accountant", "reader")},
)


def decided(
    permission: Permission,
    identity: Identity | str,
    resource: Resource,
    *,
    grants: AuthPolicies = GRANTS,
    mode: str = "None",
) -> Decision:
    known = KnownGrants({"orders": grants, "empty": AuthPolicies()}, mode=mode)
    who = Identity(identity) if isinstance(identity, str) else identity
    return asyncio.run(known.policy().decide(permission, who, resource))


@pytest.mark.parametrize(
    ("permission", "role", "resource", "permitted"),
    [
        # A grant on a namespace is for all its topics, and for its action only.
        (Permission.PRODUCE, "writer", Resource.of_topic(TOPIC), True),
        (Permission.PRODUCE, "writer", Resource.of_topic(NOT_KEPT), True),
        (Permission.CONSUME, "writer", Resource.of_topic(TOPIC), False),
        (Permission.CONSUME, "reader", Resource.of_topic(TOPIC, "s"), True),
        (Permission.PRODUCE, "reader", Resource.of_topic(TOPIC), False),
        (Permission.FUNCTIONS, "runner", SPACE, True),
        (Permission.SINKS, "runner", SPACE, False),
        # A grant on a topic is for that topic, its domain and its partitions.
        (Permission.PRODUCE, "guest", Resource.of_topic(TOPIC), True),
        (Permission.PRODUCE, "guest", Resource.of_topic(TOPIC.with_partition(3)), True),
        (Permission.PRODUCE, "guest", Resource.of_topic(OTHER), False),
        (Permission.PRODUCE, "guest", Resource.of_topic(NOT_KEPT), False),
        (Permission.PRODUCE, "guest", SPACE, False),
        # Any grant permits to look up and to read the state.
        (Permission.LOOKUP, "runner", Resource.of_topic(OTHER), True),
        (Permission.READ_TOPIC, "writer", Resource.of_topic(OTHER), True),
        (Permission.LOOKUP, "guest", Resource.of_topic(OTHER), False),
        (Permission.READ_NAMESPACE, "guest", SPACE, True),
        (Permission.READ_NAMESPACE, "stranger", SPACE, False),
        # No grant is for administration, and none reaches other namespaces.
        (Permission.READ_POLICIES, "writer", SPACE, False),
        (Permission.ADMIN_TOPIC, "guest", Resource.of_topic(TOPIC), False),
        (Permission.PRODUCE, "writer", Resource("acme", "empty"), False),
        (Permission.PRODUCE, "writer", Resource("other", "orders"), False),
        # A consumer may lose the messages of its subscription, and no others.
        (Permission.PURGE, "reader", Resource.of_topic(TOPIC, "s"), True),
        (Permission.PURGE, "writer", Resource.of_topic(TOPIC, "s"), False),
        (Permission.PURGE, "reader", Resource.of_topic(TOPIC), False),
        (Permission.PURGE, "reader", SPACE, False),
        (Permission.PURGE, "reader", Resource("acme", "orders", None, "s"), True),
        (Permission.PURGE, "guest", Resource("acme", "orders", None, "s"), False),
        # The administrator of a tenant: everything in it, and nothing of the cluster.
        (Permission.PURGE, "admin", SPACE, True),
        (Permission.WRITE_POLICIES, "admin", SPACE, True),
        (Permission.ADMIN_TENANT, "admin", Resource("acme"), True),
        (Permission.CONSUME, "admin", Resource.of_topic(TOPIC, "billing"), True),
        (Permission.PRODUCE, "admin", Resource("acme", "nowhere"), True),
        (Permission.PRODUCE, "admin", Resource("other", "orders"), False),
        (Permission.SUPER_USER, "admin", Resource("acme"), False),
        (Permission.READ_CLUSTER, "admin", CLUSTER, False),
        (Permission.PEER, "admin", CLUSTER, False),
        (Permission.READ_TENANT, "admin", CLUSTER, False),
        # Super users.
        (Permission.SUPER_USER, "root", CLUSTER, True),
        (Permission.PEER, "root", CLUSTER, True),
        (Permission.CONSUME, "root", Resource.of_topic(TOPIC, "billing"), True),
        (Permission.ANY_ROLE, "stranger", CLUSTER, True),
    ],
)
def test_who_has_which_permission(
    permission: Permission, role: str, resource: Resource, permitted: bool
) -> None:
    decision = decided(permission, role, resource)
    assert decision.permitted is permitted, decision
    assert decision.reason
    assert permitted or decision.remedy


@pytest.mark.parametrize("permission", list(Permission))
def test_a_caller_without_a_role_has_no_permission(permission: Permission) -> None:
    grants = AuthPolicies(namespace={"stranger": ("produce", "consume")})
    for resource in (CLUSTER, SPACE, Resource.of_topic(TOPIC, "s")):
        assert not decided(permission, UNCHECKED, resource, grants=grants).permitted


@pytest.mark.parametrize(
    ("role", "subscription", "mode", "permitted"),
    [
        ("reader", "billing", "None", True),
        ("reader", "free", "None", True),
        ("second", "billing", "None", False),
        ("second", "free", "None", True),
        # The list of a subscription restricts, and does not grant.
        ("accountant", "billing", "None", False),
        ("second", "free", "Prefix", False),
        ("second", "second-free", "Prefix", True),
        ("second", "Second-free", "Prefix", False),
        ("reader", "billing", "Prefix", False),
        # Without a name of a subscription there is nothing to restrict.
        ("second", "", "Prefix", True),
    ],
)
@pytest.mark.parametrize("permission", [Permission.CONSUME, Permission.PURGE])
def test_subscriptions_of_other_roles(
    permission: Permission, role: str, subscription: str, mode: str, permitted: bool
) -> None:
    grants = AuthPolicies(
        namespace={"reader": ("consume",), "second": ("consume",)},
        subscriptions={"billing": ("accountant", "reader")},
    )
    resource = Resource.of_topic(TOPIC, subscription)
    decision = decided(permission, role, resource, grants=grants, mode=mode)
    assert decision.permitted is (
        permitted and (permission is Permission.CONSUME or subscription != "")
    )


@pytest.mark.parametrize(
    ("role", "proxy_role", "permitted", "words"),
    [
        ("writer", "root", True, "produce granted"),
        ("writer", "guest", True, "produce granted"),
        ("writer", "stranger", False, "proxy role 'stranger'"),
        ("stranger", "root", False, "is not granted"),
        ("", "root", False, "not authenticated"),
    ],
)
def test_a_proxy_and_its_client_both_need_the_permission(
    role: str, proxy_role: str, permitted: bool, words: str
) -> None:
    identity = Identity(role, proxy_role=proxy_role)
    decision = decided(Permission.PRODUCE, identity, Resource.of_topic(TOPIC))
    assert decision.permitted is permitted
    assert words in decision.reason


def test_the_broker_itself_is_recognised_by_its_object_only() -> None:
    assert decided(Permission.SUPER_USER, BROKER_ITSELF, CLUSTER).permitted
    forged = Identity(BROKER_ITSELF.role, method=BROKER_ITSELF.method)
    assert forged == BROKER_ITSELF
    assert not decided(Permission.SUPER_USER, forged, CLUSTER).permitted


@pytest.mark.parametrize("error", [MetadataUnavailable("no session"), CorruptData("node x")])
def test_grants_that_cannot_be_read_permit_nothing(error: PulsarishError) -> None:
    known = KnownGrants({"orders": GRANTS})
    known.fails_with = error
    gate = Gate(known.policy())
    with pytest.raises(ServiceNotReady, match="cannot be read, so nothing is permitted"):
        asyncio.run(
            gate.permit(Permission.PRODUCE, "x", Identity("writer"), Resource.of_topic(TOPIC))
        )
    for resource in (CLUSTER, Resource("acme"), SPACE):
        with pytest.raises(ServiceNotReady):
            asyncio.run(gate.visible("x", Identity("writer"), resource))
    # A super user repairs it.
    asyncio.run(gate.permit(Permission.SUPER_USER, "x", Identity("root"), CLUSTER))


def test_a_denial_does_not_tell_whether_the_resource_exists() -> None:
    gate = Gate(KnownGrants({"orders": GRANTS}).policy())
    texts = []
    for name in ("acme/orders/new", "acme/nowhere/new", "nobody/orders/new"):
        resource = Resource.of_topic(TopicName.parse(name))
        with pytest.raises(AuthorizationError) as raised:
            asyncio.run(gate.check("OpenProducer", Identity("stranger"), resource))
        texts.append(str(raised.value).replace(name, ""))
        with pytest.raises(AuthorizationError) as listed:
            space = Resource(resource.tenant, resource.namespace)
            asyncio.run(gate.visible("lists of topics", Identity("stranger"), space))
        assert "to see anything for lists of topics" in str(listed.value)
    assert len(set(texts)) == 1


@pytest.mark.parametrize(
    ("identity", "tenants", "namespaces", "topics"),
    [
        (Identity("root"), None, None, None),
        (BROKER_ITSELF, None, None, None),
        (Identity("admin"), {"acme"}, None, None),
        (Identity("writer"), {"acme"}, {"orders"}, None),
        (Identity("guest"), {"acme"}, {"orders"}, {TOPIC.full}),
        (Identity("stranger"), set(), set(), set()),
        (UNCHECKED, set(), set(), set()),
        (Identity("guest", proxy_role="root"), {"acme"}, {"orders"}, {TOPIC.full}),
        (Identity("root", proxy_role="guest"), {"acme"}, {"orders"}, {TOPIC.full}),
        (Identity("guest", proxy_role="stranger"), set(), set(), set()),
    ],
)
def test_what_lists_show(
    identity: Identity,
    tenants: set[str] | None,
    namespaces: set[str] | None,
    topics: set[str] | None,
) -> None:
    policy = KnownGrants({"orders": GRANTS, "empty": AuthPolicies()}).policy()
    for resource, expected in ((CLUSTER, tenants), (Resource("acme"), namespaces), (SPACE, topics)):
        assert asyncio.run(policy.visible(identity, resource)) == expected


def test_a_remedy_quotes_the_role() -> None:
    decision = decided(Permission.PRODUCE, "a b; rm -rf", Resource.of_topic(TOPIC))
    assert decision.remedy == (
        f"pulsarish topics grant-permission {TOPIC} --role 'a b; rm -rf' --action produce"
    )
