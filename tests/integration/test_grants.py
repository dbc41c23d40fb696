"""Grants in metadata: over HTTP with Apache Pulsar's shapes, in force on every broker, and what
lists show by them.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from pulsarish.broker.broker import Broker
from pulsarish.broker.clients.authorization import Gate, Permission, Resource
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.admission import LoopShare
from pulsarish.broker.http.listing import Listing
from pulsarish.broker.http.route import Call, Route
from pulsarish.broker.http.routes.authorization_routes import AuthorizationRoutes
from pulsarish.broker.http.routes.grant_routes import GrantRoutes
from pulsarish.broker.http.routes.tenant_routes import TenantRoutes
from pulsarish.broker.policies.grant_policy import GrantPolicy
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import NamespacePolicies
from pulsarish.model.errors import AuthorizationError, InvalidArgument
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpRequest, World
from pulsarish.security.identity import Identity
from tests.integration.test_broker_http import Web
from tests.integration.test_policies import run
from tests.support.brokers import BrokerCluster

SPACE = "/admin/v2/namespaces/public/default"
GRANTS = f"{SPACE}/permissions"
TOPIC = "persistent://public/default/t"
PATH = "/admin/v2/persistent/public/default/t"
NOT_KEPT = "/admin/v2/non-persistent/public/default/t"
ANN = Identity("ann")
SCOPES = (f"{paths.TENANTS}/", "/namespaces/")


def test_permissions_have_apache_pulsars_shapes() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert await web("GET", GRANTS) == (200, {})
        assert (await web("POST", f"{GRANTS}/ann", ["consume", "produce", "produce"]))[0] == 204
        assert (await web("POST", f"{GRANTS}/b%20o%2Fb", ["functions"]))[0] == 204
        assert await web("GET", GRANTS) == (
            200,
            {"ann": ["produce", "consume"], "b o/b": ["functions"]},
        )
        # A grant replaces the one before.
        assert (await web("POST", f"{GRANTS}/ann", ["consume"]))[0] == 204
        assert (await web("DELETE", f"{GRANTS}/b%20o%2Fb"))[0] == 204
        assert (await web("DELETE", f"{GRANTS}/nobody"))[0] == 204
        assert await web("GET", GRANTS) == (200, {"ann": ["consume"]})

        # A topic shows its namespace's grants with its own, and its partitions share them.
        assert (await web("POST", f"{PATH}/permissions/ann", ["produce"]))[0] == 204
        assert (await web("POST", f"{PATH}-partition-3/permissions/carl", ["sinks"]))[0] == 204
        both = {"ann": ["consume", "produce"], "carl": ["sinks"]}
        for path in (PATH, f"{PATH}-partition-0"):
            assert await web("GET", f"{path}/permissions") == (200, both)
        assert await web("GET", f"{NOT_KEPT}/permissions") == (200, {"ann": ["consume"]})
        assert (await web("POST", f"{NOT_KEPT}/permissions/dan", ["produce"]))[0] == 204
        assert (await web("DELETE", f"{PATH}/permissions/carl"))[0] == 204
        status, refused = await web("DELETE", f"{PATH}/permissions/carl")
        assert (status, "'carl' has no permission on topic" in refused["reason"]) == (412, True)

        # A list of roles for a subscription grows, and ends with its last role.
        listed = f"{GRANTS}/subscription"
        assert (await web("POST", f"{listed}/billing", ["ann", "bob"]))[0] == 204
        assert (await web("POST", f"{listed}/billing", ["carl"]))[0] == 204
        assert await web("GET", listed) == (200, {"billing": ["ann", "bob", "carl"]})
        for role in ("ann", "bob", "carl"):
            assert (await web("DELETE", f"{GRANTS}/billing/{role}"))[0] == 204
        assert await web("GET", listed) == (200, {})
        assert (await web("DELETE", f"{GRANTS}/billing/ann"))[0] == 412

        mode = f"{SPACE}/subscriptionAuthMode"
        assert await web("GET", mode) == (200, "None")
        assert (await web("POST", mode, "Prefix"))[0] == 204
        assert await web("GET", mode) == (200, "Prefix")

        shown = (await web("GET", SPACE))[1]
        assert shown["subscription_auth_mode"] == "Prefix"
        assert shown["auth_policies"] == {
            "namespace_auth": {"ann": ["consume"]},
            "destination_auth": {
                TOPIC: {"ann": ["produce"]},
                f"non-{TOPIC}": {"dan": ["produce"]},
            },
            "subscription_auth_roles": {},
        }
        assert (await web("POST", f"{SPACE.replace('default', 'no')}/permissions/a", ["sinks"]))[
            0
        ] == 404

    run(scenario, brokers=1)


def test_several_topics_at_once() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        root = "/admin/v2/namespaces"
        wanted = [
            {"topic": f"public/default/{name}", "role": "ann", "actions": ["consume"]}
            for name in ("t", "u")
        ]
        assert (await web("POST", f"{root}/grantPermissionsOnTopics", wanted))[0] == 204
        assert await web("GET", f"{PATH}/permissions") == (200, {"ann": ["consume"]})
        gone = [{"topic": TOPIC, "role": "ann"}]
        assert (await web("POST", f"{root}/revokePermissionsOnTopics", gone))[0] == 204
        assert await web("GET", f"{PATH}/permissions") == (200, {})
        both = [{"topic": "public/default/u", "role": "ann"}, *gone]
        assert (await web("POST", f"{root}/revokePermissionsOnTopics", both))[0] == 412
        # Nothing of a request that is refused is done.
        assert await web("GET", f"{PATH[:-1]}u/permissions") == (200, {"ann": ["consume"]})

    run(scenario, brokers=1)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", f"{GRANTS}/a%0Ab", ["produce"], 412, "holds a control character; remove it"),
        ("POST", f"{GRANTS}/%20", ["produce"], 412, "is empty; name the role"),
        ("POST", f"{GRANTS}/%20ann", ["produce"], 412, "begins or ends with a space"),
        ("POST", f"{GRANTS}/{'x' * 513}", ["produce"], 412, "has 513 characters; 512 are allowed"),
        ("POST", f"{GRANTS}/ann", [], 412, "actions is empty; name at least one of produce"),
        ("POST", f"{GRANTS}/ann", ["fly"], 400, "it must be consume or functions or packages"),
        ("POST", f"{GRANTS}/ann", None, 400, "needs a body"),
        ("POST", f"{PATH}/permissions/a%09b", ["produce"], 412, "holds a control character"),
        ("POST", f"{GRANTS}/subscription/s", [], 412, "roles is empty"),
        ("POST", f"{GRANTS}/subscription/s", ["a\nb"], 412, "holds a control character"),
        ("POST", f"{GRANTS}/subscription/s%01", ["a"], 412, "holds a control character"),
        ("POST", f"{SPACE}/subscriptionAuthMode", "prefix", 400, "it must be None or Prefix"),
        (
            "POST",
            "/admin/v2/namespaces/grantPermissionsOnTopics",
            [{"topic": "a/b", "role": "r", "actions": ["produce"]}],
            412,
            "topic: topic 'a/b' has 2 of 3 parts",
        ),
        (
            "PUT",
            "/admin/v2/tenants/new",
            {"adminRoles": ["ann", "b\nob"]},
            412,
            "adminRoles[1]: role 'b\\nob' holds a control character",
        ),
        (
            "PUT",
            "/admin/v2/namespaces/public/new",
            {"auth_policies": {"namespace_auth": {"a\nb": ["produce"]}}},
            412,
            "namespace_auth: role 'a\\nb' holds a control character",
        ),
        (
            "PUT",
            "/admin/v2/namespaces/public/new",
            {"auth_policies": {"destination_auth": {f"{TOPIC}-partition-1": {"a": ["produce"]}}}},
            412,
            f"not of a partition; use {TOPIC}",
        ),
    ],
)
def test_bad_input_is_refused_with_the_field_and_the_fix(
    method: str, path: str, body: Any, status: int, words: str
) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        before = await web("GET", SPACE)
        found, answer = await web(method, path, body)
        assert (found, words in answer["reason"]) == (status, True), answer
        assert await web("GET", SPACE) == before

    run(scenario, brokers=1)


def test_grants_that_would_not_fit_the_node_are_refused() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        roles = [f"{'r' * 500}{number}" for number in range(600)]
        status, answer = await web("POST", f"{GRANTS}/subscription/s", roles)
        assert (status, "262144 are allowed" in answer["reason"]) == (412, True)

    run(scenario, brokers=1)


def test_a_namespace_is_made_with_its_grants() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        form = {
            "auth_policies": {
                "namespace_auth": {"ann": ["produce"]},
                "destination_auth": {},
                "subscription_auth_roles": {"s": ["bob"]},
            },
            "subscription_auth_mode": "Prefix",
        }
        path = "/admin/v2/namespaces/public/new"
        assert (await web("PUT", path, form))[0] == 204
        shown = (await web("GET", path))[1]
        assert {name: shown[name] for name in form} == form

    run(scenario, brokers=1)


def gate_of(broker: Broker) -> Gate:
    return Gate(GrantPolicy(broker._namespaces, ["root"]))


async def is_permitted(gate: Gate, permission: Permission, topic: str = TOPIC) -> bool:
    resource = Resource.of_topic(TopicName.parse(topic))
    return (await gate.decide(permission, ANN, resource)).permitted


def test_every_broker_follows_a_change_within_a_second() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        gates = {name: gate_of(broker) for name, broker in cluster.brokers.items()}
        changes = [
            ("POST", f"{GRANTS}/ann", ["consume"], True),
            ("DELETE", f"{GRANTS}/ann", None, False),
            ("POST", f"{PATH}/permissions/ann", ["consume"], True),
            ("DELETE", f"{PATH}/permissions/ann", None, False),
            ("POST", "/admin/v2/tenants/public", {"adminRoles": ["ann"]}, True),
            ("POST", "/admin/v2/tenants/public", {"adminRoles": ["bob"]}, False),
        ]
        for gate in gates.values():
            assert not await is_permitted(gate, Permission.CONSUME)
        for method, path, body, permitted in changes:
            counts = {name: gate.changes_count for name, gate in gates.items()}
            assert (await web(method, path, body, broker="broker0"))[0] == 204
            await world.clock.sleep(1.0)
            for name, gate in gates.items():
                assert gate.changes_count > counts[name], (name, path)
                assert await is_permitted(gate, Permission.CONSUME) is permitted, (name, path)

    run(scenario, brokers=3)


def test_a_check_of_a_used_namespace_reads_nothing() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (await web("POST", f"{GRANTS}/ann", ["consume"]))[0] == 204
        broker = cluster.brokers["broker0"]
        gate, reads = gate_of(broker), 0
        assert await is_permitted(gate, Permission.CONSUME)
        nodes = broker._records.nodes

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            return await nodes(*args, **options)

        broker._records.nodes = counted  # type: ignore[method-assign]
        for _ in range(10):
            assert await is_permitted(gate, Permission.CONSUME)
        assert reads == 0
        # Nor does a change of one namespace read another again.
        assert (await web("POST", f"{GRANTS}/ann", ["produce"]))[0] == 204
        reads = 0
        assert not await is_permitted(gate, Permission.CONSUME)
        assert reads <= 2

    run(scenario, brokers=1)


def test_names_that_do_not_exist_leave_no_watch_behind() -> None:
    """Otherwise a client without any permission could fill the broker's memory with watches."""

    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        broker = cluster.brokers["broker0"]
        gate, nodes, watched = gate_of(broker), broker._records.nodes, set[str]()

        async def noted(names: Any, **options: Any) -> Any:
            if options.get("watch") is not None:
                watched.update(name for name in names if name.startswith(SCOPES))
            return await nodes(names, **options)

        broker._records.nodes = noted  # type: ignore[method-assign]
        for topic in ("nowhere/default/t", "public/nowhere/t"):
            assert not await is_permitted(gate, Permission.CONSUME, topic)
        assert watched == {paths.tenant("public")}
        assert not await is_permitted(gate, Permission.CONSUME)
        assert watched == {paths.tenant("public"), paths.namespace("public", "default")}

    run(scenario, brokers=1)


def test_an_answer_that_is_older_than_a_change_is_not_cached() -> None:
    """A revoke between the read of a node and its answer must not leave the old grants in the
    cache: the watch has fired already.
    """

    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (await web("POST", f"{GRANTS}/ann", ["consume"]))[0] == 204
        broker = cluster.brokers["broker0"]
        gate, nodes = gate_of(broker), broker._records.nodes

        async def late(*args: Any, **options: Any) -> Any:
            found = await nodes(*args, **options)
            if options.get("watch") is None:
                return found
            broker._records.nodes = nodes  # type: ignore[method-assign]
            assert (await web("DELETE", f"{GRANTS}/ann"))[0] == 204
            await world.clock.sleep(1.0)
            return found

        assert await is_permitted(gate, Permission.CONSUME)
        assert (await web("POST", f"{GRANTS}/ann", ["consume", "produce"]))[0] == 204
        broker._records.nodes = late  # type: ignore[method-assign]
        before = gate.changes_count
        assert await is_permitted(gate, Permission.CONSUME)
        assert gate.changes_count > before, "the caller checks again"
        assert not await is_permitted(gate, Permission.CONSUME)

    run(scenario, brokers=1)


def test_grants_go_with_their_topic_and_stay_with_the_last_partition() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        for path in (PATH, NOT_KEPT):
            assert (await web("PUT", path))[0] == 204
            assert (await web("POST", f"{path}/permissions/ann", ["produce"]))[0] == 204
            assert (await web("DELETE", path))[0] == 204
            assert await web("GET", f"{path}/permissions") == (200, {})
        many = PATH + "s"
        assert (await web("PUT", f"{many}/partitions", 2))[0] == 204
        assert (await web("POST", f"{many}/permissions/ann", ["produce"]))[0] == 204
        assert (await web("DELETE", f"{many}-partition-1"))[0] == 204
        assert await web("GET", f"{many}/permissions") == (200, {"ann": ["produce"]})
        assert (await web("DELETE", f"{many}/partitions"))[0] == 204
        assert await web("GET", f"{many}/permissions") == (200, {})

    run(scenario, brokers=2)


def test_other_policies_keep_grants_and_older_records_have_none() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        records = Records(world.metadata, world.clock, world.random)
        path = paths.namespace("public", "default")
        stored = await records.get(path, NamespacePolicies)
        assert stored is not None
        assert "auth_policies" not in stored[0].policies
        assert await web("GET", GRANTS) == (200, {})
        assert (await web("POST", f"{GRANTS}/ann", ["produce"]))[0] == 204
        assert (await web("POST", f"{SPACE}/maxProducersPerTopic", 3))[0] == 204
        assert await web("GET", GRANTS) == (200, {"ann": ["produce"]})
        assert (await web("DELETE", f"{GRANTS}/ann"))[0] == 204
        stored = await records.get(path, NamespacePolicies)
        assert stored is not None
        assert "auth_policies" not in stored[0].policies, "empty grants leave nothing behind"

    run(scenario, brokers=1)


# Lists


async def listed(
    routes: list[Route], name: str, identity: Identity, values: dict[str, Any]
) -> list[str]:
    route = next(route for route in routes if route.name == name)
    segments = tuple(part.format(**values) for part in route.pattern.strip("/").split("/"))
    request = HttpRequest("GET", "/" + "/".join(segments), {}, {}, b"", segments)
    answer = await route.handler(Call(request, "", values, identity=identity))
    found: list[str] = json.loads(answer.body)
    return found


def test_lists_leave_out_what_a_role_may_not_see() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        for tenant, space in (("acme", "a"), ("acme", "b"), ("other", "c")):
            await web("PUT", f"/admin/v2/tenants/{tenant}", {"adminRoles": [f"{tenant}-admin"]})
            assert (await web("PUT", f"/admin/v2/namespaces/{tenant}/{space}"))[0] == 204
        for topic in ("x", "y"):
            assert (await web("PUT", f"/admin/v2/persistent/acme/a/{topic}"))[0] == 204
        assert (await web("PUT", "/admin/v2/persistent/acme/a/p/partitions", 2))[0] == 204
        grants = "/admin/v2/persistent/acme/a/{}/permissions/guest"
        for topic in ("x", "p"):
            assert (await web("POST", grants.format(topic), ["consume"]))[0] == 204
        writes = "/admin/v2/namespaces/acme/b/permissions/writer"
        assert (await web("POST", writes, ["produce"]))[0] == 204

        broker = cluster.brokers["broker0"]
        gate = gate_of(broker)

        async def check(node: World) -> None:
            listing = Listing(
                node,
                broker._records,
                broker._namespaces,
                LoopShare(node.clock, 1.0, lambda: False),
                gate,
            )
            tenants = TenantRoutes(BrokerConfig(), broker._namespaces, listing, gate).routes()
            every = {
                "root": ["acme", "other", "public"],
                "acme-admin": ["acme"],
                "guest": ["acme"],
                "writer": ["acme"],
                "stranger": [],
            }
            for role, names in every.items():
                found = await listed(tenants, "GET /admin/v2/tenants", Identity(role), {})
                assert found == names, role
            of_tenant = "GET /admin/v2/namespaces/{tenant}"
            for role, names in {
                "root": ["acme/a", "acme/b"],
                "acme-admin": ["acme/a", "acme/b"],
                "guest": ["acme/a"],
                "writer": ["acme/b"],
            }.items():
                found = await listed(tenants, of_tenant, Identity(role), {"tenant": "acme"})
                assert found == names, role
            for tenant in ("acme", "other", "nowhere"):
                with pytest.raises(AuthorizationError, match=f"on tenant {tenant}$"):
                    await listed(tenants, of_tenant, Identity("stranger"), {"tenant": tenant})
            values = {"tenant": "acme", "namespace": "a"}
            request = HttpRequest(
                "GET", "/", {}, {}, b"", ("admin", "v2", "persistent", "acme", "a")
            )
            for role, names in {
                "root": ["p-partition-0", "p-partition-1", "x", "y"],
                "acme-admin": ["p-partition-0", "p-partition-1", "x", "y"],
                "guest": ["p-partition-0", "p-partition-1", "x"],
            }.items():
                call = Call(request, "", values, identity=Identity(role))
                answer = await listing.topics(call)
                assert json.loads(answer.body) == [f"persistent://acme/a/{name}" for name in names]
            with pytest.raises(AuthorizationError):
                await listing.topics(Call(request, "", values, identity=Identity("writer")))

        await cluster.nodes["broker0"].run(check)

    run(scenario, brokers=1)


def test_each_topic_of_a_body_is_checked() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await web("PUT", "/admin/v2/tenants/acme", {"adminRoles": ["ann"]})
        await web("PUT", "/admin/v2/namespaces/acme/a")
        broker = cluster.brokers["broker0"]
        routes = GrantRoutes(broker._namespaces, gate_of(broker))
        request = HttpRequest("POST", "/", {}, {}, b"", ())
        handlers = {route.name.rpartition("/")[2]: route for route in routes.routes()}

        async def check(node: World) -> None:
            for words in ("grantPermissionsOnTopics", "revokePermissionsOnTopics"):
                route = handlers[words]
                more = {"actions": ["produce"]} if words.startswith("grant") else {}
                body = msgspec.convert(
                    [
                        {"topic": topic, "role": "eve", **more}
                        for topic in ("acme/a/t", "public/default/t")
                    ],
                    route.body,
                )
                with pytest.raises(AuthorizationError, match="public/default/t"):
                    await route.handler(Call(request, "", {}, body, ANN))

        await cluster.nodes["broker0"].run(check)
        assert await web("GET", "/admin/v2/persistent/acme/a/t/permissions") == (200, {})

    run(scenario, brokers=1)


def test_an_explanation_names_the_rule_and_the_fix() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        path = "/admin/v2/authorization"
        assert await web("GET", path) == (200, {"enabled": False})
        query = f"role=ann&action=produce&resource={TOPIC}"
        status, answer = await web("GET", f"{path}/explain?{query}")
        assert (status, answer["permitted"]) == (200, True)
        assert answer["reason"] == "authorization is off on this broker"
        assert (await web("POST", f"{GRANTS}/ann", ["consume"]))[0] == 204

        broker = cluster.brokers["broker0"]
        routes = AuthorizationRoutes(gate_of(broker)).routes()
        explain = next(route for route in routes if route.pattern.endswith("explain")).handler
        enabled = next(route for route in routes if not route.parameters).handler

        async def ask(caller: str, **values: Any) -> dict[str, Any]:
            request = HttpRequest("GET", "/", {}, {}, b"", ())
            answer = await explain(Call(request, "", values, identity=Identity(caller)))
            found: dict[str, Any] = json.loads(answer.body)
            return found

        async def check(node: World) -> None:
            request = HttpRequest("GET", "/", {}, {}, b"", ())
            assert json.loads((await enabled(Call(request, ""))).body) == {"enabled": True}
            ann = {"role": "ann", "resource": TOPIC}
            for caller in ("root", "ann"):
                assert await ask(caller, **ann, action="consume") == {
                    "permitted": True,
                    "reason": "consume granted on namespace public/default",
                    "remedy": "",
                }
                assert await ask(caller, **ann, action="produce") == {
                    "permitted": False,
                    "reason": f"produce is not granted on topic {TOPIC}",
                    "remedy": (
                        f"pulsarish topics grant-permission {TOPIC} --role ann --action produce"
                    ),
                }
            for resource, words in {
                "cluster": "super-user is for super users",
                "public": "super-user is for super users",
            }.items():
                found = await ask("root", role="ann", action="super-user", resource=resource)
                assert words in found["reason"]
            # What other roles may do is for administrators.
            for resource in (TOPIC, "public/default", "public", "nowhere", "cluster"):
                with pytest.raises(AuthorizationError, match="lacks permission read-"):
                    await ask("eve", role="ann", action="consume", resource=resource)
            for values, words in (
                ({"role": "a\nb", "resource": TOPIC}, "control character"),
                ({"role": "a", "resource": "pub lic"}, "may hold only"),
                ({"role": "a", "resource": "public/a b"}, "may hold only"),
                ({"role": "a", "resource": TOPIC, "subscription": "s\n"}, "control character"),
            ):
                with pytest.raises(InvalidArgument, match=words):
                    await ask("root", action="consume", **values)

        await cluster.nodes["broker0"].run(check)

    run(scenario, brokers=1)
