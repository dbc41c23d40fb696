"""Admin requests for partitioned topics, messages, subscriptions and whole namespaces, on either of
two brokers.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from pulsarish.runtime.seams import World
from tests.integration.test_broker_http import BASE, Web, run
from tests.support.brokers import BrokerCluster, PublishClient, entry, find

PARTED = f"{BASE}/parted"
NAMESPACE = "/admin/v2/namespaces/public/default"


async def publish(world: World, topic: str, count: int, *, first: int = 0, batch: int = 0) -> None:
    """Publish messages ``m0`` and on, with publish times of 1000, 1001, ... milliseconds."""
    client = await PublishClient.connect(world, await find(world, ["broker0"], topic))
    await client.open(1, topic)
    sent = [
        (1, entry("p", number, b"m%d" % number, time_ms=1000 + number, batch=batch))
        for number in range(first, first + count)
    ]
    await client.send(sent)
    await client.wait(1, count)
    await client.close(1)


def partition(index: int) -> str:
    return f"persistent://public/default/parted-partition-{index}"


@pytest.mark.parametrize("silent_seconds", [1.5, 60.0])
def test_an_owner_that_is_silent_is_waited_for_until_it_answers_or_is_evicted(
    silent_seconds: float,
) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (await web("PUT", f"{BASE}/t"))[0] == 204
        owner = (await web("GET", "/lookup/v2/topic/persistent/public/default/t"))[1]["brokerId"]
        other = "broker1" if owner == "broker0" else "broker0"
        node = cluster.nodes[owner]
        node.pause()

        async def wake() -> None:
            await world.clock.sleep(silent_seconds)
            node.resume()

        waking = asyncio.create_task(wake())
        await world.clock.sleep(0.5)  # a broker that has just answered counts as alive
        began = world.clock.monotonic()
        status, stats = await web("GET", f"{BASE}/t/stats", broker=other)
        assert (status, "msgInCounter" in stats) == (200, True)
        assert 0.9 < world.clock.monotonic() - began < 6.0
        assert (web.redirected > 0) == (silent_seconds < 3.0), "evicted, or not"
        waking.cancel()

    run(scenario)


def test_a_partitioned_topic_is_worked_on_as_a_whole() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        body = {"partitions": 4, "deleted": False, "properties": {"team": "a"}}
        assert (await web("PUT", f"{PARTED}/partitions?createLocalTopicOnly=false", body))[0] == 204
        assert await web("GET", f"{PARTED}/partitions") == (
            200,
            {"partitions": 4, "properties": {"team": "a"}},
        )
        assert (await web("GET", f"{BASE}/none/partitions"))[0] == 404
        assert await web("GET", f"{BASE}/none/partitions?checkAllowAutoCreation=true") == (
            200,
            {"partitions": 0},
        )
        # The first lookups give everything to one broker. The one with fewer bundles acquires what
        # it releases.
        for index in range(4):
            await publish(world, partition(index), index + 1)
        await world.clock.sleep(2)
        assert (await web("PUT", f"{NAMESPACE}/unload"))[0] == 204
        for index in range(4):
            await web("GET", f"{BASE}/parted-partition-{index}/stats", broker=f"broker{index % 2}")
        owners = {
            (await web("GET", f"/lookup/v2/topic/{partition(index).replace('://', '/')}"))[1][
                "brokerId"
            ]
            for index in range(4)
        }
        assert owners == {"broker0", "broker1"}, "both brokers have a part"

        for broker in ("broker0", "broker1"):
            status, stats = await web("GET", f"{PARTED}/partitioned-stats", broker=broker)
            sizes = [each["storageSize"] for _, each in sorted(stats["partitions"].items())]
            assert (status, stats["storageSize"], stats["metadata"]["partitions"]) == (
                200,
                sum(sizes),
                4,
            )
            assert sizes == [sizes[0] * count for count in (1, 2, 3, 4)]
        assert (await web("GET", f"{PARTED}/partitioned-stats?perPartition=false"))[1][
            "partitions"
        ] == {}
        assert sorted(
            (await web("GET", f"{PARTED}/partitioned-internalStats"))[1]["partitions"]
        ) == [partition(index) for index in range(4)]
        status, refused = await web("GET", f"{PARTED}/stats")
        assert (status, "partitioned-stats" in refused["reason"]) == (404, True)

        sub = f"{PARTED}/subscription/s"
        assert (await web("PUT", sub, "earliest"))[0] == 204
        assert (await web("PUT", sub, "earliest"))[0] == 409
        assert await web("GET", f"{PARTED}/subscriptions") == (200, ["s"])
        assert await backlog(web) == 10
        assert (await web("POST", f"{sub}/skip/1"))[0] == 405
        assert (await web("POST", f"{sub}/skip_all", broker="broker1"))[0] == 204
        assert await backlog(web) == 0
        assert (await web("POST", f"{sub}/resetcursor/1002"))[0] == 204
        assert await backlog(web) == 0 + 0 + 1 + 2
        assert (await web("POST", f"{sub}/resetcursor", {"ledgerId": -1, "entryId": -1}))[0] == 204
        assert await backlog(web) == 10
        assert (await web("POST", f"{PARTED}/all_subscription/expireMessages/0"))[0] == 204
        assert await backlog(web) == 0
        assert (await web("DELETE", sub))[0] == 204
        assert (await web("DELETE", sub))[0] == 404

        assert (await web("PUT", f"{PARTED}/properties", {"since": "1"}))[0] == 204
        assert (await web("DELETE", f"{PARTED}/properties?key=team"))[0] == 204
        assert await web("GET", f"{PARTED}/properties") == (200, {"since": "1"})
        assert (await web("DELETE", f"{PARTED}/properties"))[0] == 400

        assert (await web("PUT", f"{PARTED}/unload"))[0] == 204
        assert (await web("POST", f"{PARTED}/terminate"))[0] == 405
        status, ends = await web("POST", f"{PARTED}/terminate/partitions")
        assert (status, [ends[str(index)]["partitionIndex"] for index in range(4)]) == (
            200,
            [0, 1, 2, 3],
        )
        assert (await web("PUT", f"{PARTED}/subscription/kept"))[0] == 204
        assert (await web("POST", f"{PARTED}/partitions?updateLocalTopicOnly=false", 6))[0] == 204
        assert await web("GET", f"{BASE}/parted-partition-5/subscriptions") == (200, ["kept"])
        assert len((await web("GET", BASE))[1]) == 6
        assert (await web("DELETE", f"{BASE}/parted-partition-5"))[0] == 204
        assert (await web("POST", f"{PARTED}/createMissedPartitions"))[0] == 204
        assert len((await web("GET", BASE))[1]) == 6
        assert (await web("DELETE", f"{PARTED}"))[0] == 404
        assert (await web("DELETE", f"{PARTED}/partitions"))[0] == 204
        assert await web("GET", BASE) == (200, [])

    async def backlog(web: Web) -> int:
        stats: Any = (await web("GET", f"{PARTED}/partitioned-stats"))[1]
        return int(stats["subscriptions"]["s"]["msgBacklog"])

    run(scenario)


def test_messages_are_found_by_place_id_and_time() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        topic, path = "persistent://public/default/t", f"{BASE}/t"
        await publish(world, topic, 10)
        _, last = await web("GET", f"{path}/lastMessageId")
        ledger = last["ledgerId"]
        assert last == {"ledgerId": ledger, "entryId": 9, "partitionIndex": -1}
        for query, payload in [
            ("", b"m9"),
            ("?initialPosition=earliest", b"m0"),
            ("?initialPosition=earliest&messagePosition=4", b"m3"),
        ]:
            assert await web("GET", f"{path}/examinemessage{query}") == (200, payload)
        assert await web(
            "GET", f"{path}/examinemessage?initialPosition=latest&messagePosition=3"
        ) == (200, b"m7")
        assert (await web("GET", f"{path}/examinemessage?messagePosition=11"))[0] == 404
        assert (await web("GET", f"{path}/examinemessage?initialPosition=middle"))[0] == 412
        assert await web("GET", f"{path}/ledger/{ledger}/entry/5") == (200, b"m5")
        assert (await web("GET", f"{path}/ledger/{ledger}/entry/10"))[0] == 404
        assert (await web("GET", f"{path}/ledger/{ledger + 1}/entry/0"))[0] == 404
        assert (await web("GET", f"{path}/messageid/1004"))[1]["entryId"] == 4
        assert (await web("GET", f"{path}/messageid/9999"))[1]["entryId"] == 9
        sizes = [
            (await web("PUT", f"{path}/backlogSize", {"ledgerId": ledger, "entryId": at}))[1]
            for at in (-1, 4, 9)
        ]
        assert sizes[0] > sizes[1] > sizes[2] == 0

        sub = f"{path}/subscription/s"
        start = {"ledgerId": ledger, "entryId": 2, "partitionIndex": -1, "batchIndex": -1}
        assert (await web("PUT", sub, start))[0] == 204
        assert await web("GET", f"{sub}/position/1") == (200, b"m2")
        status, found = await web("POST", f"{sub}/analyzeBacklog")
        assert (status, found["entries"], found["messages"], found["aborted"]) == (200, 8, 8, False)
        assert (found["firstMessageId"], found["lastMessageId"]) == (f"{ledger}:2", f"{ledger}:9")
        assert (await web("POST", f"{sub}/expireMessages", {"ledgerId": ledger, "entryId": 4}))[
            0
        ] == 204
        assert await web("GET", f"{sub}/position/1") == (200, b"m5")
        assert (await web("POST", f"{sub}/expireMessages", {"ledgerId": ledger, "entryId": 99}))[
            0
        ] == 412
        assert (await web("POST", f"{sub}/resetcursor", {**start, "isExcluded": True}))[0] == 204
        assert await web("GET", f"{sub}/position/1") == (200, b"m3")

        _, info = await web("GET", f"{path}/internal-info")
        assert [each["ledgerId"] for each in info["ledgers"]] == [ledger]
        assert info["cursors"]["s"]["markDelete"]["ledgerId"] == ledger
        assert (await web("DELETE", f"{path}/truncate"))[0] == 204
        assert (await web("GET", f"{sub}/position/1"))[0] == 404
        assert (await web("GET", f"{path}/ledger/{ledger}/entry/5"))[0] == 404
        assert (await web("GET", f"{path}/internalStats"))[1]["numberOfEntries"] == 0

    run(scenario)


def test_a_namespace_is_made_with_its_policies_and_worked_on_as_a_whole() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        other = "/admin/v2/namespaces/public/other"
        policies = {
            "replication_clusters": ["pulsarish"],
            "bundles": {"numBundles": 2, "boundaries": ["0x00000000", "0x80000000", "0xffffffff"]},
            "retention_policies": {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1},
            "auth_policies": {"namespace_auth": {}, "destination_auth": {}},
            "deleted": False,
            "schema_compatibility_strategy": "UNDEFINED",
            "properties": {"team": "a"},
        }
        for field, value, status in [
            ("replication_clusters", ["pulsarish", "far"], 501),
            ("retention", {}, 400),
            ("retention_policies", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 7}, 412),
            (
                "bundles",
                {"numBundles": 2, "boundaries": ["0x00000000", "0x10000000", "0xffffffff"]},
                501,
            ),
        ]:
            found, refused = await web("PUT", other, {**policies, field: value})
            assert (found, field.split("_")[0] in refused["reason"]) == (status, True), refused
        assert (await web("PUT", other, policies))[0] == 204
        _, made = await web("GET", other)
        assert (made["retention_policies"], made["properties"]) == (
            policies["retention_policies"],
            policies["properties"],
        )
        assert await web("GET", f"{other}/bundles") == (
            200,
            {"numBundles": 2, "boundaries": policies["bundles"]["boundaries"]},
        )  # type: ignore[index]

        for name in "abcdef":
            await publish(world, f"persistent://public/default/{name}", 2)
            assert (await web("PUT", f"{BASE}/{name}/subscription/s", "earliest"))[0] == 204
        assert (await web("PUT", f"{BASE}/a/subscription/r", "earliest"))[0] == 204
        bundles = (await web("GET", f"{NAMESPACE}/bundles"))[1]["boundaries"]
        listed = [
            name
            for low, high in pairwise(bundles)
            for name in (await web("GET", f"{BASE}?bundle={low}_{high}"))[1]
        ]
        assert sorted(listed) == [f"persistent://public/default/{name}" for name in "abcdef"]
        assert await web("GET", f"{NAMESPACE}/topics?mode=NON_PERSISTENT") == (200, [])
        page = await web("GET", f"{NAMESPACE}/topics?limit=2&after=persistent://public/default/b")
        assert page == (200, ["persistent://public/default/c", "persistent://public/default/d"])

        assert (await web("POST", f"{NAMESPACE}/clearBacklog/s"))[0] == 204
        assert [
            (await web("GET", f"{BASE}/{name}/subscription/s/position/1"))[0] for name in "abcdef"
        ] == [404] * 6
        assert (await web("GET", f"{BASE}/a/subscription/r/position/1"))[0] == 200
        assert (await web("POST", f"{NAMESPACE}/clearBacklog"))[0] == 204
        assert (await web("GET", f"{BASE}/a/subscription/r/position/1"))[0] == 404
        assert (await web("POST", f"{NAMESPACE}/unsubscribe/s", broker="broker1"))[0] == 204
        assert [(await web("GET", f"{BASE}/{name}/subscriptions"))[1] for name in "ab"] == [
            ["r"],
            [],
        ]

        assert (await web("PUT", f"{NAMESPACE}/unload"))[0] == 204
        owned = {}
        for broker in ("broker0", "broker1"):
            owned |= (
                await web("GET", f"/admin/v2/brokers/pulsarish/{broker}:8080/ownedNamespaces")
            )[1]
        assert owned == {}, "nobody has any of it"
        assert (await web("PUT", f"{NAMESPACE}/0x0_0x1/unload"))[0] == 404
        assert (await web("DELETE", NAMESPACE))[0] == 409
        assert (await web("DELETE", f"{NAMESPACE}?force=true"))[0] == 204
        assert (await web("GET", NAMESPACE))[0] == 404

    run(scenario)


def test_tenants_brokers_and_clusters() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        tenant = "/admin/v2/tenants/acme"
        assert (await web("PUT", tenant, {"adminRoles": ["a"], "allowedClusters": ["elsewhere"]}))[
            0
        ] == 412
        assert (await web("PUT", tenant, {"adminRoles": ["a"], "allowedClusters": ["pulsarish"]}))[
            0
        ] == 204
        assert (await web("POST", tenant, {"adminRoles": ["b"]}))[0] == 204
        assert await web("GET", tenant) == (
            200,
            {"adminRoles": ["b"], "allowedClusters": ["pulsarish"]},
        )
        assert (await web("POST", "/admin/v2/tenants/none", {"adminRoles": ["b"]}))[0] == 404
        assert await web("GET", "/admin/v2/tenants?limit=1") == (200, ["acme"])
        assert await web("GET", "/admin/v2/tenants?after=acme") == (200, ["public"])

        assert await web("GET", "/admin/v2/clusters") == (200, ["pulsarish"])
        assert (await web("GET", "/admin/v2/clusters/pulsarish"))[1][
            "serviceUrl"
        ] == "http://broker0:8080"
        for method, path, status in [
            ("GET", "/admin/v2/clusters/none", 404),
            ("PUT", "/admin/v2/clusters/pulsarish", 409),
            ("PUT", "/admin/v2/clusters/other", 501),
            ("GET", "/admin/v2/clusters/pulsarish/failureDomains", 200),
            ("GET", "/admin/v2/brokers/none", 404),
            ("GET", "/admin/v2/brokers/ready", 200),
            ("GET", "/admin/v2/brokers/configuration/values", 200),
            ("POST", "/admin/v2/brokers/configuration/log_level/debug", 204),
            ("POST", "/admin/v2/brokers/configuration/log_level/loud", 412),
            ("POST", "/admin/v2/brokers/configuration/http_address/x:1", 412),
            ("DELETE", "/admin/v2/brokers/configuration/log_level", 204),
            ("DELETE", "/admin/v2/brokers/configuration/http_address", 412),
            ("GET", "/admin/v2/brokers/pulsarish/nobody:1/ownedNamespaces", 404),
            ("GET", "/admin/v2/broker-stats/mbeans", 501),
        ]:
            assert (await web(method, path))[0] == status, path
        assert await web("GET", "/admin/v2/brokers/health") == (200, b"ok")
        assert (await web("GET", "/admin/v2/brokers/configuration/runtime"))[1][
            "managed_ledger.ack_quorum"
        ] == "2"
        assert await web("GET", "/admin/v2/bookies/all") == (
            200,
            {"bookies": [{"bookieId": f"bookie{index}"} for index in range(3)]},
        )
        assert (await web("GET", "/admin/v2/bookies/racks-info"))[1]["default"]["bookie0"][
            "hostname"
        ] == "bookie0"

        await publish(world, "persistent://public/default/t", 3)
        seen = [
            (await web("GET", "/admin/v2/broker-stats/load-report", broker=broker))[1]
            for broker in ("broker0", "broker1")
        ]
        assert sum(each["numTopics"] for each in seen) == 1
        for number, name in enumerate(("broker0", "broker1")):
            for asked in ("broker0", "broker1"):
                path = f"/admin/v2/broker-stats/load-report?brokerId={name}"
                status, report = await web("GET", path, broker=asked)
                assert status == 200
                assert report["webServiceUrl"] == seen[number]["webServiceUrl"]
        for what in ("load-report", "topics", "metrics"):
            status, refused = await web("GET", f"/admin/v2/broker-stats/{what}?brokerId=nobody")
            assert (status, "there are broker0, broker1" in refused["reason"]) == (404, True)
        topics: dict[str, Any] = {}
        for broker in ("broker0", "broker1"):
            topics |= (await web("GET", "/admin/v2/broker-stats/topics", broker=broker))[1]
        (bundle,) = topics["public/default"].values()
        assert bundle["persistent"]["persistent://public/default/t"]["msgInCounter"] == 3
        metrics = (await web("GET", "/admin/v2/broker-stats/metrics"))[1]
        assert {
            "metrics": {"pulsarish_broker_registered": 1.0},
            "dimensions": {"cluster": "pulsarish"},
        } in metrics

    run(scenario)


def test_a_topic_is_deleted_once_however_many_ask_at_once() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        for used in (False, True):
            assert (await web("PUT", f"{BASE}/t"))[0] == 204
            if used:
                await publish(world, "persistent://public/default/t", 3)
            owner = (await web("GET", "/lookup/v2/topic/persistent/public/default/t"))[1][
                "brokerId"
            ]
            await web("PUT", f"{BASE}/t/unload")
            answers = await asyncio.gather(
                *(web("DELETE", f"{BASE}/t", broker=owner) for _ in range(3))
            )
            assert sorted(status for status, _ in answers) == [204, 404, 404]
            assert (await web("GET", f"{BASE}/t/stats"))[0] == 404
        assert await web("GET", "/admin/v2/ledgers") == (200, []), "no ledger is left"

    run(scenario)


def test_subscriptions_have_properties() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await web("PUT", f"{PARTED}/partitions", 2)
        sub = f"{PARTED}/subscription/s"
        made = {"ledgerId": -1, "entryId": -1, "properties": {"team": "a"}}
        assert (await web("PUT", sub, made))[0] == 204
        assert await web("GET", f"{sub}/properties") == (200, {"team": "a"})
        assert (await web("PUT", f"{sub}/properties", {"team": "b", "since": "May"}))[0] == 204
        assert await web("GET", f"{sub}/properties") == (200, {"team": "b", "since": "May"})
        stats = (await web("GET", f"{BASE}/parted-partition-1/stats"))[1]
        assert stats["subscriptions"]["s"]["subscriptionProperties"] == {
            "team": "b",
            "since": "May",
        }
        assert (await web("PUT", f"{NAMESPACE}/unload"))[0] == 204
        assert await web("GET", f"{sub}/properties", broker="broker1") == (
            200,
            {"team": "b", "since": "May"},
        )
        status, refused = await web("PUT", f"{sub}/properties", {"long": "x" * 20_000})
        assert (status, "at most 16384" in refused["reason"]) == (412, True)
        assert (await web("GET", f"{PARTED}/subscription/none/properties"))[0] == 404

    run(scenario)
