"""Bundles move between simulated brokers: by the balancer, by hand, and by a drain."""

from __future__ import annotations

import asyncio

from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.metadata.records import BundleOwner
from pulsarish.model.errors import ServiceNotReady
from pulsarish.runtime.seams import World
from tests.integration.test_broker_http import BASE, Web, run
from tests.support.brokers import BrokerCluster, PublishClient, entry, find

TOPIC = "persistent://public/default/t"
NAMESPACE = "/admin/v2/namespaces/public/default"


def owned(cluster: BrokerCluster, name: str) -> list[Bundle]:
    return cluster.brokers[name]._ownership.owned.bundles()


async def owner_of(cluster: BrokerCluster, web: Web) -> tuple[str, str, Bundle]:
    """Have the topic served. Return its owner, the other broker and its bundle."""
    _ = await web("PUT", f"{BASE}/t")
    owner = (await web("GET", "/lookup/v2/topic/persistent/public/default/t"))[1]["brokerId"]
    (bundle,) = owned(cluster, owner)
    return owner, "broker1" if owner == "broker0" else "broker0", bundle


def test_a_broker_that_comes_back_has_its_share_within_a_minute() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        path = "/admin/v2/namespaces/public/many"
        assert (await web("PUT", path, {"bundles": {"numBundles": 16}}))[0] == 204
        topics = [f"persistent://public/many/t{number}" for number in range(80)]
        for topic in topics:
            _ = await find(world, ["broker0", "broker1"], topic)
        await cluster.stop_broker("broker1")
        cluster.nodes["broker1"].crash()
        for topic in topics:
            assert await find(world, ["broker0"], topic) == "broker0:6660"
        assert len(owned(cluster, "broker0")) == 16
        _ = await cluster.start_broker("broker1")
        await world.clock.sleep(60.0)
        assert sorted(len(owned(cluster, name)) for name in cluster.brokers) in ([7, 9], [8, 8])
        moved = await find(world, ["broker0"], topics[0])
        assert moved == await find(world, ["broker1"], topics[0])

    run(scenario)


def test_a_bundle_moves_to_the_broker_that_is_named_in_one_step() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        owner, other, bundle = await owner_of(cluster, web)
        client = await PublishClient.connect(world, f"{owner}:6660")
        await client.open(1, TOPIC)
        await client.send([(1, entry("p", 0, b"m"))])
        await client.wait(1, 1)
        records = cluster.brokers[owner]._records
        before = await records.get(bundle.path, BundleOwner)
        target = f"{NAMESPACE}/{bundle.range}/unload"
        for name in ("broker7", "broker7:8080"):
            assert (await web("PUT", f"{target}?destinationBroker={name}"))[0] == 404
        assert owned(cluster, owner) == [bundle]
        assert (await web("PUT", f"{target}?destinationBroker={other}"))[0] == 204
        after = await records.get(bundle.path, BundleOwner)
        assert before is not None
        assert after is not None
        assert (after[0].broker_id, after[1]) == (other, before[1] + 1)
        assert (owned(cluster, owner), owned(cluster, other)) == ([], [bundle])
        for name in (owner, other):
            assert await find(world, [name], TOPIC) == f"{other}:6660"
        # To where it is already: nothing happens.
        there = f"{target}?destinationBroker={other}:8080"
        assert (await web("PUT", there, broker=other))[0] == 204
        assert await records.get(bundle.path, BundleOwner) == after
        assert (await web("PUT", f"{NAMESPACE}/unload?destinationBroker={owner}"))[0] == 204
        assert (owned(cluster, owner), owned(cluster, other)) == ([bundle], [])

    run(scenario)


def test_a_bundle_that_its_destination_does_not_take_is_free() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        owner, other, bundle = await owner_of(cluster, web)

        async def refuse(bundle: Bundle, owner: str, epoch: int) -> None:
            raise ServiceNotReady("not today")

        cluster.brokers[other]._ownership.take = refuse  # type: ignore[method-assign]
        target = f"{NAMESPACE}/{bundle.range}/unload?destinationBroker={other}"
        assert (await web("PUT", target))[0] == 204
        assert owned(cluster, owner) == owned(cluster, other) == []
        assert await find(world, [owner], TOPIC) in ("broker0:6660", "broker1:6660")

    run(scenario)


def test_a_bundle_is_taken_from_its_owner_at_its_epoch_only() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        owner, other, bundle = await owner_of(cluster, web)
        me = cluster.brokers[owner]._ownership.registry.instance_id
        epoch = cluster.brokers[owner]._ownership.owned.epoch(bundle)
        assert epoch is not None

        async def take(instance: str, at: int) -> str:
            async def inside(world: World) -> str:
                try:
                    await cluster.brokers[other]._ownership.take(bundle, instance, at)
                except ServiceNotReady as error:
                    return str(error)
                return ""

            return await cluster.nodes[other].run(inside)

        assert "is not owned by" in await take("broker9~00000000", epoch)
        assert "is not owned by" in await take(me, epoch + 1)
        assert owned(cluster, other) == []
        assert await take(me, epoch) == ""
        assert owned(cluster, other) == [bundle]

    run(scenario)


def test_a_drained_broker_gives_all_and_takes_nothing() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        for number in range(40):
            _ = await find(world, ["broker0", "broker1"], f"{TOPIC}{number}")
        assert len(owned(cluster, "broker0")) == 2
        drain = "/admin/v2/brokers/{}/drain"
        assert (await web("PUT", drain.format("broker7")))[0] == 404
        status, state = await web("PUT", drain.format("broker0"), broker="broker1")
        assert (status, state["draining"]) == (200, True)
        await world.clock.sleep(3.0)
        state = (await web("GET", drain.format("broker0:8080")))[1]
        assert state == {"draining": True, "bundlesLeft": 0, "destinationBroker": ""}
        assert len(owned(cluster, "broker1")) == 4
        # Neither a move nor a lookup gives it one.
        (bundle, *_) = owned(cluster, "broker1")
        target = f"{NAMESPACE}/{bundle.range}/unload"
        assert (await web("PUT", f"{target}?destinationBroker=broker0"))[0] == 503
        assert bundle in owned(cluster, "broker1"), "nothing was closed"
        assert (await web("PUT", target))[0] == 204
        for number in range(40):
            assert await find(world, ["broker0"], f"{TOPIC}{number}") == "broker1:6660"
        # One broker must remain.
        assert (await web("PUT", drain.format("broker1")))[0] == 405
        assert (await web("DELETE", drain.format("broker0")))[1]["draining"] is False
        await world.clock.sleep(2.0)
        assert (await web("PUT", f"{target}?destinationBroker=broker0"))[0] == 204
        assert owned(cluster, "broker0") == [bundle]

    run(scenario)


def test_a_draining_broker_serves_when_it_is_the_only_one() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        owner, other, _ = await owner_of(cluster, web)
        assert (await web("PUT", f"/admin/v2/brokers/{owner}/drain"))[0] == 200
        await world.clock.sleep(2.0)
        assert await find(world, [owner], TOPIC) == f"{other}:6660"
        cluster.nodes[other].crash()
        await world.clock.sleep(2.0)  # nothing that it answered before counts any more
        assert await find(world, [owner], TOPIC) == f"{owner}:6660"
        _ = await cluster.start_broker(other)
        await world.clock.sleep(5.0)
        assert await find(world, [owner], TOPIC) == f"{other}:6660"

    run(scenario)


def test_a_second_request_for_a_bundle_that_leaves_says_so() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        owner, other, bundle = await owner_of(cluster, web)
        target = f"{NAMESPACE}/{bundle.range}/unload"
        plain, named = await asyncio.gather(
            web("PUT", target, broker=owner),
            web("PUT", f"{target}?destinationBroker={other}", broker=owner),
        )
        assert plain[0] == 204
        assert named[0] in (204, 503)
        if named[0] == 204:
            assert owned(cluster, other) == [bundle]

    run(scenario)


def test_a_bundle_is_split_as_it_is_asked_for() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        owner, other, bundle = await owner_of(cluster, web)
        low, high = bundle.edges
        target = f"{NAMESPACE}/{bundle.range}/split"
        by_hand = f"{target}?splitAlgorithmName=specified_positions_divide"
        for refused, body, status in (
            (f"{NAMESPACE}/0x00000000_0x00000005/split", None, 404),
            (f"{target}?splitAlgorithmName=by_luck", None, 412),
            (f"{target}?splitAlgorithmName=topic_count_equally_divide", None, 412),
            (by_hand, None, 412),
            (by_hand, [low], 412),
            (target, [low + 1], 412),
        ):
            assert (await web("PUT", refused, body))[0] == status, refused
        assert owned(cluster, owner) == [bundle]
        # Asked of the other broker, too.
        edges = [low + 0x1000, low + 0x2000]
        assert (await web("PUT", by_hand, edges, broker=other))[0] == 204
        parts = [
            bundle.part(low, edges[0]),
            bundle.part(edges[0], edges[1]),
            bundle.part(edges[1], high),
        ]
        assert owned(cluster, owner) == parts
        status, found = await web("GET", f"{NAMESPACE}/bundles", broker=other)
        assert (status, found["numBundles"]) == (200, 6)
        assert (await web("PUT", by_hand, edges))[0] == 404, "it is none any more"
        last = f"{NAMESPACE}/{parts[2].range}/split"
        assert (await web("PUT", f"{last}?unload=true"))[0] == 204
        assert owned(cluster, owner) == parts[:2]
        policies = (await web("GET", NAMESPACE))[1]
        assert policies["bundles"]["numBundles"] == 7
        assert len(policies["bundles"]["boundaries"]) == 8

    run(scenario)
