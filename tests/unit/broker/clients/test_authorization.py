"""Everything that a client can reach has a row in the table of permissions, and each row is checked
for every kind of caller.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Iterator
from functools import cache
from typing import Final, get_args

import pytest

from pulsarish.broker.binary import connection, questions
from pulsarish.broker.binary.codec import refused_transaction, session_command
from pulsarish.broker.broker import Broker
from pulsarish.broker.clients.authorization import (
    CLUSTER,
    LIMITABLE,
    PERMISSIONS,
    Decision,
    Gate,
    Permission,
    Resource,
    Visible,
)
from pulsarish.broker.clients.commands import Command
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.route import Route, resource_of
from pulsarish.model.errors import AuthorizationError, InvalidTopicName
from pulsarish.model.grants import AuthPolicies
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpRequest, World
from pulsarish.security.audit import AuditEvent, Disposition
from pulsarish.security.identity import UNCHECKED, Identity
from pulsarish.security.limits import read_limits
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import pulsar_pb2 as pb
from tests.support.grants import KnownGrants

# Commands of Apache Pulsar's protocol that are not commands of a session: the row of each, or None
# for those that need no permission.
QUESTIONS: Final = {
    "connect": None,
    "auth_response": None,
    "ping": None,
    "pong": None,
    # By the id of an open producer, consumer or watch, which a permission opened.
    "send": None,
    "consumer_stats": None,
    "watch_topic_list_close": None,
    "partitioned_metadata": "broker.lookup",
    "lookup": "broker.lookup",
    "get_topics_of_namespace": "broker.topics",
    "watch_topic_list": "broker.topics",
}
# Commands that a broker sends.
SENT: Final = {
    "connected",
    "send_receipt",
    "send_error",
    "message",
    "success",
    "error",
    "producer_success",
    "reached_end_of_topic",
    "active_consumer_change",
    "watch_topic_list_success",
    "watch_topic_update",
    "auth_challenge",
}


def build() -> Broker:
    made: list[Broker] = []

    async def make(world: World) -> None:
        made.append(Broker(world, BrokerConfig()))

    sim = Simulation(1)

    async def main() -> None:
        await sim.node("b").run(make)

    sim.run(main)
    return made[0]


@cache
def broker() -> Broker:
    return build()


# What there is, from the code itself


def test_every_method_and_command_is_in_the_table_and_nothing_else() -> None:
    node = broker()
    commands = [command.__name__ for command in get_args(Command)]
    reachable = [*node.streams("internal"), *node.calls.handlers("internal"), *commands]
    assert len(set(reachable)) == len(reachable)
    assert set(reachable) == set(PERMISSIONS)


def test_every_command_of_apache_pulsars_protocol_has_a_row() -> None:
    for field in pb.Command.DESCRIPTOR.fields:
        answers = field.name.endswith("_response") and field.name not in QUESTIONS
        if field.name == "type" or answers:
            continue
        command = pb.Command(type=field.number)
        asked = session_command(command)
        if asked is not None:
            assert type(asked).__name__ in PERMISSIONS
        elif field.name in QUESTIONS:
            row = QUESTIONS[field.name]
            assert row is None or row in PERMISSIONS
        else:
            assert field.name in SENT or refused_transaction(command) is not None, field.name


def test_every_command_that_the_binary_protocol_looks_at_is_one_of_those() -> None:
    """A command whose number stands in the code but not in the protocol would escape the test
    above.
    """
    known = {field.number for field in pb.Command.DESCRIPTOR.fields}
    numbers = {
        number
        for module in (connection, questions)
        for number in type_numbers(ast.parse(inspect.getsource(module)))
    }
    assert {21, 23, 32, 2, 6, 64} <= numbers <= known


def type_numbers(tree: ast.Module) -> Iterator[int]:
    """Yield the numbers that ``command.type`` is compared with."""
    named = {
        node.target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.match_case) and isinstance(node.pattern, ast.MatchValue):
            if isinstance(node.pattern.value, ast.Constant):
                yield int(node.pattern.value.value)
        elif isinstance(node, ast.Compare) and ast.unparse(node.left) in ("command.type", "kind"):
            for other in node.comparators:
                value = (
                    other.value
                    if isinstance(other, ast.Constant)
                    else named.get(ast.unparse(other))
                )
                if isinstance(value, int):
                    yield value


ROUTES: Final = [route.name for route in broker().http.routes]
LOSES: Final = (
    "clearBacklog",
    "unsubscribe",
    "skip",
    "skip_all",
    "skipLost",
    "resetcursor",
    "expireMessages",
    "truncate",
    "compaction",
)
OPEN: Final = {
    "GET /status.html",
    "GET /health",
    "GET /metrics",
    "GET /admin/v2/brokers/health",
    "GET /admin/v2/brokers/ready",
    "GET /admin/v2/brokers/version",
    "GET /admin/v2/openapi.json",
}


def route_of(name: str) -> Route:
    return next(route for route in broker().http.routes if route.name == name)


@pytest.mark.parametrize("name", ROUTES)
def test_the_permission_of_a_route_fits_its_path_and_its_method(name: str) -> None:
    """Rules by which a wrong row shows: the scope of the path, and what the route can change."""
    route = route_of(name)
    may, words = route.permission, route.pattern.strip("/").split("/")
    assert (may is Permission.NONE) == (name in OPEN)
    assert may not in (Permission.OPENED, Permission.PEER)
    if may is Permission.NONE:
        return
    if "tenant" not in route.path_names:
        assert may in (Permission.SUPER_USER, Permission.READ_CLUSTER, Permission.ANY_ROLE)
    if may is Permission.ANY_ROLE:
        assert route.method == "GET" or name.endswith("PermissionsOnTopics")
    if words[2] == "tenants" and route.method != "GET":
        assert may is Permission.SUPER_USER
    reads = may.value.startswith("read-") or may in (Permission.LOOKUP, Permission.ANY_ROLE)
    if route.method != "GET":
        assert (
            not reads
            or words[-1] in ("compatibility", "version")
            or (name.endswith("PermissionsOnTopics"))
        ), may
    if route.answers is bytes:
        assert may is Permission.CONSUME
    loses = [word for word in words if word in LOSES]
    deleted = words[-1] in ("{topic}", "{subscription}", "partitions", "schema", "{namespace}")
    whole = route.method == "DELETE" and "tenant" in route.path_names and deleted
    if ((loses and route.method != "GET") or whole) and "permissions" not in words:
        assert may is Permission.PURGE, may
    for scope in ("topic", "namespace", "tenant"):
        if may in (Permission[f"READ_{scope.upper()}"], Permission[f"ADMIN_{scope.upper()}"]):
            assert scope in route.path_names, may


# The matrix: every row x every kind of caller

SPACE: Final = Resource("acme", "orders")
TOPIC: Final = TopicName.parse("persistent://acme/orders/new-partition-1")
GRANTS: Final = AuthPolicies(
    namespace={"writer": ("produce",), "reader": ("consume",)},
    subscriptions={"billing": ("other",)},
)
CALLERS: Final = {
    "nobody": UNCHECKED,
    "stranger": Identity("stranger"),
    "writer": Identity("writer"),
    "reader": Identity("reader"),
    "through a proxy": Identity("writer", proxy_role="stranger"),
    "admin": Identity("admin"),
    "admin elsewhere": Identity("elsewhere"),
    "root": Identity("root"),
}
EVERYBODY: Final = frozenset(CALLERS)
ROLES: Final = EVERYBODY - {"nobody"}
ADMINS: Final = frozenset({"admin", "root"})
GRANTED: Final = ADMINS | {"writer", "reader"}
MAY: Final = {
    Permission.NONE: EVERYBODY,
    Permission.OPENED: EVERYBODY,
    Permission.ANY_ROLE: ROLES,
    Permission.LOOKUP: GRANTED,
    Permission.READ_TOPIC: GRANTED,
    Permission.READ_NAMESPACE: GRANTED,
    Permission.PRODUCE: ADMINS | {"writer"},
    Permission.CONSUME: ADMINS | {"reader"},
    Permission.FUNCTIONS: ADMINS,
    Permission.SOURCES: ADMINS,
    Permission.SINKS: ADMINS,
    Permission.PACKAGES: ADMINS,
    Permission.READ_TENANT: ADMINS,
    Permission.READ_POLICIES: ADMINS,
    Permission.WRITE_POLICIES: ADMINS,
    Permission.ADMIN_TOPIC: ADMINS,
    Permission.ADMIN_NAMESPACE: ADMINS,
    Permission.ADMIN_TENANT: ADMINS,
    Permission.PURGE: ADMINS,
    Permission.READ_CLUSTER: frozenset({"root"}),
    Permission.SUPER_USER: frozenset({"root"}),
    Permission.PEER: frozenset({"root"}),
}
TEXTS: Final = {
    "tenant": "acme",
    "namespace": "orders",
    "topic": "new-partition-1",
    "domain": "persistent",
    "subscription": "mine",
}


def expected(permission: Permission, resource: Resource) -> frozenset[str]:
    found = MAY[permission]
    if permission is Permission.PURGE and resource.subscription:
        return found | MAY[Permission.CONSUME]
    return found


async def passed(
    gate: Gate, row: str, permission: Permission | None, resource: Resource
) -> set[str]:
    through: set[str] = set()
    for caller, identity in CALLERS.items():
        try:
            if permission is None:
                await gate.check(row, identity, resource)
            else:
                await gate.permit(permission, row, identity, resource)
        except AuthorizationError:
            continue
        through.add(caller)
    return through


def gate_of(*, admin: str = "admin") -> Gate:
    return Gate(KnownGrants({"orders": GRANTS}, admin=admin).policy())


@pytest.mark.parametrize("name", ROUTES)
def test_every_route_for_every_caller(name: str) -> None:
    route = route_of(name)
    texts = {key: TEXTS.get(key, "x") for key in route.path_names}
    resource = resource_of(route, texts)
    through = asyncio.run(passed(gate_of(), name, route.permission, resource))
    assert through == expected(route.permission, resource)


@pytest.mark.parametrize("row", PERMISSIONS)
def test_every_method_and_command_for_every_caller(row: str) -> None:
    resource = Resource.of_topic(TOPIC, "mine" if row == "Subscribe" else "")
    through = asyncio.run(passed(gate_of(), row, None, resource))
    assert through == expected(PERMISSIONS[row], resource)


def test_what_is_not_in_the_table_is_denied_to_every_role() -> None:
    for gate in (Gate(), gate_of()):
        with pytest.raises(AuthorizationError, match="broker\\.shutdown"):
            asyncio.run(gate.check("broker.shutdown", Identity("root"), CLUSTER))


def test_without_a_policy_everything_in_the_table_is_permitted() -> None:
    gate = Gate()
    assert gate.is_open
    assert not gate_of().is_open
    for row in PERMISSIONS:
        asyncio.run(gate.check(row, UNCHECKED, CLUSTER))
    assert asyncio.run(gate.visible("x", UNCHECKED, SPACE)) is None
    assert gate.changes_count == 0


def test_the_policy_gets_permission_identity_and_resource() -> None:
    asked: list[tuple[Permission, Identity, Resource]] = []

    class Recording:
        changes_count = 7

        async def decide(
            self, permission: Permission, identity: Identity, resource: Resource
        ) -> Decision:
            asked.append((permission, identity, resource))
            return Decision(permission is Permission.CONSUME, "by the test")

        async def visible(self, identity: Identity, resource: Resource) -> Visible:
            return frozenset()

    gate, ann, resource = Gate(Recording()), Identity("ann"), Resource.of_topic(TOPIC)
    asyncio.run(gate.check("Subscribe", ann, resource))
    with pytest.raises(AuthorizationError, match="'ann' lacks permission produce for OpenProducer"):
        asyncio.run(gate.check("OpenProducer", ann, resource))
    asyncio.run(gate.permit(Permission.NONE, "GET /health", UNCHECKED, CLUSTER))
    assert asked == [(Permission.CONSUME, ann, resource), (Permission.PRODUCE, ann, resource)]
    assert gate.changes_count == 7
    assert asyncio.run(gate.visible("lists", ann, CLUSTER)) == frozenset()
    with pytest.raises(AuthorizationError, match="to see anything for lists on namespace"):
        asyncio.run(gate.visible("lists", ann, SPACE))


def test_denials_that_are_only_reported_refuse_nothing_and_are_counted() -> None:
    noted: list[AuditEvent] = []

    class Noting:
        def note(self, event: AuditEvent) -> None:
            noted.append(event)

    policy = KnownGrants({"orders": GRANTS}, admin="admin").policy()
    gate = Gate(policy, audit=Noting(), report_only=True)
    eve, resource = Identity("eve"), Resource.of_topic(TOPIC)
    asyncio.run(gate.check("OpenProducer", eve, resource))
    asyncio.run(gate.permit(Permission.SUPER_USER, "PUT /x", UNCHECKED, CLUSTER))
    assert asyncio.run(gate.visible("lists", eve, SPACE)) is None
    assert not asyncio.run(gate.decide(Permission.PRODUCE, eve, resource)).permitted
    assert [(event.action, event.disposition) for event in noted] == [
        ("OpenProducer", Disposition.OBSERVED),
        ("PUT /x", Disposition.OBSERVED),
        ("lists", Disposition.OBSERVED),
    ]
    # What no grant could permit stays refused.
    with pytest.raises(AuthorizationError):
        asyncio.run(gate.check("broker.shutdown", eve, CLUSTER))
    assert {key: count for key, count in gate.denials.items() if count} == {
        ("produce", "not_granted"): 1,
        ("super-user", "not_authenticated"): 1,
        ("to see anything", "not_granted"): 1,
        ("none", "not_granted"): 1,
    }


# The resource of a request


@pytest.mark.parametrize(
    ("pattern", "texts", "resource"),
    [
        ("/admin/v2/brokers/{cluster}", {"cluster": "c"}, CLUSTER),
        ("/admin/v2/tenants/{tenant}", {"tenant": "t"}, Resource("t")),
        (
            "/admin/v2/namespaces/{tenant}/{namespace}/unsubscribe/{subscription}",
            {"tenant": "t", "namespace": "n", "subscription": "s"},
            Resource("t", "n", None, "s"),
        ),
        (
            "/admin/v2/persistent/{tenant}/{namespace}/{topic}/stats",
            {"tenant": "t", "namespace": "n", "topic": "non-persistent"},
            Resource.of_topic(TopicName("t", "n", "non-persistent")),
        ),
        (
            "/admin/v2/non-persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}",
            {"tenant": "t", "namespace": "n", "topic": "a/b", "subscription": "s"},
            Resource.of_topic(TopicName("t", "n", "a/b", persistent=False), "s"),
        ),
        (
            "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
            {"domain": "non-persistent", "tenant": "t", "namespace": "n", "topic": "x"},
            Resource.of_topic(TopicName("t", "n", "x", persistent=False)),
        ),
    ],
)
def test_the_resource_of_a_request(pattern: str, texts: dict[str, str], resource: Resource) -> None:
    assert resource_of(a_route(pattern), texts) == resource


@pytest.mark.parametrize(
    "texts",
    [
        {"tenant": "acme/orders", "namespace": "n", "topic": "x"},
        {"tenant": "t", "namespace": "n/m", "topic": "x"},
        {"tenant": "", "namespace": "n", "topic": "x"},
        {"tenant": "t", "namespace": "n", "topic": "x\n"},
    ],
)
def test_names_that_could_stand_for_another_resource_are_refused(texts: dict[str, str]) -> None:
    with pytest.raises(InvalidTopicName):
        resource_of(a_route("/admin/v2/persistent/{tenant}/{namespace}/{topic}"), texts)


def a_route(pattern: str) -> Route:
    async def handler(call: object) -> None: ...

    return Route("GET", pattern, handler, Permission.READ_TOPIC, "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/health", 405),
        ("GET", "/health", 503),
        ("GET", "/metrics", 200),
        ("PUT", "/admin/v2/persistent/public/default/t/partitions", 400),
        ("GET", "/admin/v2/ledgers/x", 400),
        ("GET", "/admin/v2/ledgers/-1", 412),
        ("GET", "/admin/v2/persistent/pub lic/default/t/stats", 412),
        ("POST", "/admin/v2/persistent/public/default/t/subscription/s/skip/no", 400),
        ("GET", "/admin/v2/brokers/leaderBroker", 404),
        ("GET", "/lookup/v2/topic/persistent/public/default/t", 404),
        ("GET", "/lookup/v2/topic/non-persistent/public/default/t", 404),
    ],
)
def test_status_codes_without_a_cluster(method: str, path: str, status: int) -> None:
    """A broker that has not started answers what needs no metadata, and every refusal has a
    reason.
    """
    sim = Simulation(1)
    found: list[tuple[int, bytes]] = []

    async def ask(world: World) -> None:
        node = Broker(world, BrokerConfig())
        segments = tuple(path.strip("/").split("/"))
        answer = await node.http.handle(HttpRequest(method, path, {}, {}, b"", segments))
        found.append((answer.status, answer.body))

    async def main() -> None:
        await sim.node("b").run(ask)

    sim.run(main)
    assert found[0][0] == status
    assert status == 200 or b'"reason"' in found[0][1]


# Tokens that limit themselves


def limited(role: str = "root", **parts: list[str]) -> Identity:
    return Identity(role, "token", limits=(read_limits(parts),))


def permits(gate: Gate, row: str, identity: Identity, resource: Resource) -> bool:
    try:
        asyncio.run(gate.check(row, identity, resource))
    except AuthorizationError:
        return False
    return True


@pytest.mark.parametrize("gate", [Gate(), gate_of()], ids=["without policy", "with policy"])
def test_a_limited_token_permits_less_than_its_role(gate: Gate) -> None:
    on_topic = Resource.of_topic(TOPIC)
    whole = limited(topics=["persistent://acme/orders/new"])
    other = limited(topics=["persistent://acme/orders/old", "persistent://acme/other/*"])
    consumes = limited(actions=["consume"])
    for row in PERMISSIONS:
        opened = PERMISSIONS[row] in (Permission.OPENED, Permission.ANY_ROLE)
        assert permits(gate, row, whole, on_topic), row
        assert permits(gate, row, other, on_topic) == opened, row
        assert permits(gate, row, whole, SPACE) == opened, row
        assert permits(gate, row, whole, CLUSTER) == opened, row
        used = row == "Subscribe" or PERMISSIONS[row] is Permission.LOOKUP
        assert permits(gate, row, consumes, on_topic) == (opened or used), row
    assert not permits(
        gate,
        "Subscribe",
        Identity("root", limits=(*consumes.limits, *limited(actions=["produce"]).limits)),
        on_topic,
    )


def test_limits_give_no_right_that_the_role_does_not_have() -> None:
    identity = limited("reader", actions=["produce", "consume"])
    assert permits(gate_of(), "Subscribe", identity, Resource.of_topic(TOPIC))
    assert not permits(gate_of(), "OpenProducer", identity, Resource.of_topic(TOPIC))


@pytest.mark.parametrize("gate", [Gate(), gate_of()], ids=["without policy", "with policy"])
def test_lists_show_nothing_to_a_limited_token(gate: Gate) -> None:
    identity = limited(topics=["persistent://acme/orders/new"])
    assert asyncio.run(gate.visible("lists of tenants", identity, CLUSTER)) == frozenset()
    with pytest.raises(AuthorizationError):
        asyncio.run(gate.visible("lists of topics", identity, SPACE))
    # Where the client is does not change what it sees.
    there = limited(networks=["10.0.0.0/8"])
    assert asyncio.run(gate.visible("lists of topics", there, SPACE)) is None


def test_only_an_open_gate_checks_nothing_and_not_for_limited_tokens() -> None:
    assert not Gate().checks(Identity("root"))
    assert Gate().checks(limited(actions=["consume"]))
    assert gate_of().checks(Identity("root"))


def test_every_permission_of_a_route_can_be_an_action() -> None:
    used = {route_of(name).permission.value for name in ROUTES} | {
        permission.value for permission in PERMISSIONS.values()
    }
    assert used - LIMITABLE <= {"none", "opened", "any-role", "peer"}


def test_limits_of_a_token_hold_while_denials_are_only_reported() -> None:
    gate = Gate(KnownGrants({"orders": GRANTS}, admin="admin").policy(), report_only=True)
    on_topic = Resource.of_topic(TOPIC)
    assert permits(gate, "OpenProducer", Identity("stranger"), on_topic)
    assert not permits(gate, "OpenProducer", limited("stranger", actions=["consume"]), on_topic)
    seen = gate.visible("lists of tenants", limited(actions=["consume"]), CLUSTER)
    assert asyncio.run(seen) == frozenset()
