"""Rules of placement between simulated brokers: lookups, moves by hand, and the balancer."""

from __future__ import annotations

from typing import Any

from pulsarish.model.errors import ServiceNotReady
from pulsarish.runtime.seams import World
from pulsarish.wire._pb import broker_pb2 as pb
from tests.integration.test_balance import owned
from tests.integration.test_broker_http import Web, run
from tests.support.brokers import BrokerCluster, find

CLUSTER = "/admin/v2/clusters/pulsarish"
POLICY = f"{CLUSTER}/namespaceIsolationPolicies/orders"
BOTH = ["broker0", "broker1"]


def isolation(primary: str, *namespaces: str) -> dict[str, Any]:
    return {
        "namespaces": list(namespaces),
        "primary": [primary],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
    }


async def namespace(web: Web, name: str, bundles: int = 8) -> None:
    path = f"/admin/v2/namespaces/public/{name}"
    assert (await web("PUT", path, {"bundles": {"numBundles": bundles}}))[0] == 204


async def owners(world: World, name: str, count: int = 20) -> set[str]:
    """Look topics of a namespace up at each broker. Return their owners."""
    return {
        await find(world, [broker], f"persistent://public/{name}/t{number}")
        for number in range(count)
        for broker in BOTH
    }


async def replica(world: World, topic: str) -> str:
    """Return the broker for readers that take any."""
    request = pb.LookupsRequest(lookups=[pb.LookupRequest(topic=topic, wanted=pb.REPLICA)])
    data = await world.connections.call(
        "broker0:6660", "broker.lookup", request.SerializeToString(), timeout_seconds=2.0
    )
    (answer,) = pb.LookupsResponse.FromString(data).answers
    assert not answer.redirect
    return answer.address


def test_lookups_go_to_the_brokers_that_isolation_permits() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await namespace(web, "orders")
        assert (await web("POST", POLICY, isolation("broker1", "public/orders")))[0] == 204
        await world.clock.sleep(2.0)
        assert await owners(world, "orders") == {"broker1:6660"}
        assert await owners(world, "default") == {"broker0:6660"}, "the primary one is reserved"
        assert await replica(world, "persistent://public/orders/t1") == "broker1:6660"
        assert await replica(world, "persistent://public/default/t1") == "broker0:6660"
        # Not to another broker by hand either, and the rule is named.
        (bundle, *_) = owned(cluster, "broker1")
        target = f"/admin/v2/namespaces/public/orders/{bundle.range}/unload"
        status, answer = await web("PUT", f"{target}?destinationBroker=broker0")
        assert status == 405
        assert "policy 'orders' does not permit broker broker0" in answer["reason"]
        assert bundle in owned(cluster, "broker1"), "nothing was closed"
        # Without a broker that is permitted, the error names the policy.
        await cluster.stop_broker("broker1")
        cluster.nodes["broker1"].crash()
        await world.clock.sleep(1.0)  # the other one hears that it is gone
        status, answer = await web("GET", "/lookup/v2/topic/persistent/public/orders/t1")
        assert status == 503
        assert "isolation policy 'orders' binds" in answer["reason"]
        assert await find(world, ["broker0"], "persistent://public/default/t1") == "broker0:6660"
        assert (await web("DELETE", POLICY))[0] == 204
        await world.clock.sleep(1.0)
        assert await find(world, ["broker0"], "persistent://public/orders/t1") == "broker0:6660"

    run(scenario)


def test_a_bundle_on_a_wrong_broker_moves_within_a_minute() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await namespace(web, "orders")
        for name in ("orders", "default"):
            _ = await owners(world, name)
        for primary, other in (("broker[1-9]", "broker0"), ("broker0", "broker1")):
            assert (await web("POST", POLICY, isolation(primary, "public/o.*")))[0] == 204
            await world.clock.sleep(60.0)
            (served,) = {*BOTH} - {other}
            assert {each.namespace for each in owned(cluster, other)} == {"default"}
            assert {each.namespace for each in owned(cluster, served)} == {"orders"}
        moves = sum(each._balancer.moves_count for each in cluster.brokers.values())
        assert moves >= 12, "all of them have moved at least once"
        await world.clock.sleep(120.0)
        assert sum(each._balancer.moves_count for each in cluster.brokers.values()) == moves

    run(scenario)


def test_a_broker_takes_no_bundle_that_it_may_not_have() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await namespace(web, "orders")
        assert (await web("POST", POLICY, isolation("broker1", "public/orders")))[0] == 204
        await world.clock.sleep(2.0)
        _ = await owners(world, "orders")
        (bundle, *_) = owned(cluster, "broker1")
        giver = cluster.brokers["broker1"]._ownership
        epoch = giver.owned.epoch(bundle)
        assert epoch is not None

        async def inside(world: World) -> str:
            try:
                await cluster.brokers["broker0"]._ownership.take(
                    bundle, giver.registry.instance_id, epoch
                )
            except ServiceNotReady as error:
                return str(error)
            return ""

        reason = await cluster.nodes["broker0"].run(inside)
        assert "'orders' does not permit broker broker0" in reason
        # A drain leaves what no other broker may have.
        assert (await web("PUT", "/admin/v2/brokers/broker1/drain"))[0] == 200
        await world.clock.sleep(3.0)
        assert bundle in owned(cluster, "broker1")
        assert await owners(world, "orders") == {"broker1:6660"}

    run(scenario)


def test_a_stopping_broker_hands_over_by_the_rules() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await namespace(web, "orders")
        assert (await web("POST", POLICY, isolation("broker[12]", "public/orders")))[0] == 204
        await world.clock.sleep(2.0)
        topics = [f"persistent://public/orders/t{number}" for number in range(20)]
        for topic in topics:
            _ = await find(world, ["broker0"], topic)
        bundles = owned(cluster, "broker1")
        assert bundles
        assert not owned(cluster, "broker0"), "the least loaded broker, which may have none"
        stopping = cluster.brokers["broker1"]._ownership

        async def inside(world: World) -> set[str]:
            stopping.stop_serving()
            heirs = [stopping.heir(bundle) for bundle in bundles]
            return {heir.broker_id if heir is not None else "" for heir in heirs}

        assert await cluster.nodes["broker1"].run(inside) == {"broker2"}
        await cluster.stop_broker("broker1")
        await world.clock.sleep(2.0)
        for topic in topics:
            assert await find(world, ["broker0"], topic) == "broker2:6660"
        assert not owned(cluster, "broker0")

    run(scenario, brokers=3)


def test_a_drain_to_a_named_broker() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await namespace(web, "orders")
        await world.clock.sleep(2.0)
        for number in range(20):
            _ = await find(world, ["broker0"], f"persistent://public/orders/t{number}")
        bundles = owned(cluster, "broker0")
        others = owned(cluster, "broker1")
        assert len(bundles) > 1
        drain = "/admin/v2/brokers/broker0/drain"
        for name, status, reason in (
            (
                "broker9",
                404,
                "there is no broker 'broker9'; there are broker0, broker1, broker2",
            ),
            ("broker0", 412, "broker broker0 cannot be drained to itself"),
        ):
            answered, body = await web("PUT", f"{drain}?destinationBroker={name}")
            assert answered == status, body
            assert reason in body["reason"]
        # A rule forbids it: it is named, and nothing begins.
        assert (await web("POST", POLICY, isolation("broker[01]", "public/orders")))[0] == 204
        await world.clock.sleep(0.5)
        answered, body = await web("PUT", f"{drain}?destinationBroker=broker2")
        assert answered == 405
        assert "policy 'orders' does not permit broker broker2" in body["reason"]
        assert (await web("GET", drain))[1]["draining"] is False
        assert (await web("DELETE", POLICY))[0] == 204
        await world.clock.sleep(0.5)
        bundles = owned(cluster, "broker0")
        answered, state = await web("PUT", f"{drain}?destinationBroker=broker2")
        assert answered == 200
        assert state["destinationBroker"] == "broker2"
        await world.clock.sleep(3.0)
        state = {"draining": True, "bundlesLeft": 0, "destinationBroker": "broker2"}
        assert await web("GET", drain) == (200, state)
        assert {*bundles} <= {*owned(cluster, "broker2")}
        assert {*others} <= {*owned(cluster, "broker1")}
        # One that takes no bundles is refused.
        answered, body = await web(
            "PUT", "/admin/v2/brokers/broker1/drain?destinationBroker=broker0"
        )
        assert answered == 405
        assert "broker broker0 takes no bundles: it drains" in body["reason"]
        assert (await web("DELETE", drain))[1]["destinationBroker"] == ""

    run(scenario, brokers=3)


def test_groups_are_spread_at_lookup_and_by_the_balancer() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        names = [f"n{number}" for number in range(6)]
        topics = [f"persistent://public/{name}/t" for name in names]
        for name in names:
            await namespace(web, name, bundles=1)
            path = f"/admin/v2/namespaces/public/{name}/antiAffinity"
            assert (await web("POST", path, "group"))[0] == 204
        await world.clock.sleep(2.0)
        for topic in topics:
            # All are looked up at one broker, without a ping in between.
            _ = await find(world, ["broker0"], topic)
        assert [len(owned(cluster, broker)) for broker in BOTH] == [3, 3]
        group = "/admin/v2/namespaces/pulsarish/antiAffinity/group"
        assert await web("GET", group) == (200, [f"public/{name}" for name in names])
        assert await web("GET", f"{group}?tenant=acme") == (200, [])
        # To the broker that has more of the group without it: no.
        (bundle, *_) = owned(cluster, "broker0")
        target = f"/admin/v2/namespaces/public/{bundle.namespace}/{bundle.range}/unload"
        await world.clock.sleep(2.0)
        status, answer = await web("PUT", f"{target}?destinationBroker=broker1")
        assert status == 405
        assert "anti-affinity group 'group'" in answer["reason"]
        await cluster.stop_broker("broker1")
        cluster.nodes["broker1"].crash()
        for topic in topics:
            assert await find(world, ["broker0"], topic) == "broker0:6660"
        _ = await cluster.start_broker("broker1")
        await world.clock.sleep(60.0)
        assert [len(owned(cluster, broker)) for broker in BOTH] == [3, 3]

    run(scenario)


def test_rules_over_http() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        policies, domains = f"{CLUSTER}/namespaceIsolationPolicies", f"{CLUSTER}/failureDomains"
        assert await web("GET", policies) == (200, {})
        assert (await web("GET", POLICY))[0] == 404
        body = isolation("broker1", "public/orders")
        assert (await web("POST", POLICY, body))[0] == 204
        assert (await web("GET", POLICY))[1] == body | {"unload_scope": None}
        assert list((await web("GET", policies))[1]) == ["orders"]
        seen = {
            "brokerName": "broker1",
            "policyName": "orders",
            "primary": True,
            "namespaceRegex": ["public/orders"],
        }
        assert await web("GET", f"{policies}/brokers") == (200, [seen])
        assert await web("GET", f"{policies}/brokers/broker1:8080") == (200, seen)
        assert (await web("GET", f"{policies}/brokers/broker0"))[0] == 404
        for path, given, status, reason in [
            ("brokers", body, 412, "cannot be called 'brokers'"),
            ("other", isolation("broker0", "public/.*"), 409, "conflicts with 'orders'"),
            ("other", isolation("broker0", "(a{1,1000}){1,1000}"), 412, "'(a{1,1000}){1,1000}'"),
            ("other", body | {"namespaces": []}, 412, "namespaces"),
        ]:
            found = await web("POST", f"{policies}/{path}", given)
            assert (found[0], reason in found[1]["reason"]) == (status, True), found
        assert (await web("POST", f"{CLUSTER}2/failureDomains/one", {"brokers": []}))[0] == 404
        assert (await web("POST", f"{domains}/one", {"brokers": ["broker0"]}))[0] == 204
        assert await web("GET", f"{domains}/one") == (200, {"brokers": ["broker0"]})
        assert (await web("POST", f"{domains}/two", {"brokers": ["broker0"]}))[0] == 409
        assert await web("GET", domains) == (200, {"one": {"brokers": ["broker0"]}})
        for path in (f"{domains}/one", POLICY):
            assert (await web("DELETE", path))[0] == 204
            assert (await web("DELETE", path))[0] == 404
        # A namespace that is created again is in no group.
        path = "/admin/v2/namespaces/public/n"
        assert (await web("POST", f"{path}/antiAffinity", "g"))[0] == 404
        for _ in range(2):
            await namespace(web, "n")
            assert (await web("GET", f"{path}/antiAffinity"))[0] == 204
            assert (await web("POST", f"{path}/antiAffinity", "g"))[0] == 204
            assert await web("GET", f"{path}/antiAffinity") == (200, b"g")
            assert (await web("DELETE", path))[0] == 204
        assert await web("GET", "/admin/v2/namespaces/pulsarish/antiAffinity/g") == (200, [])

    run(scenario)
