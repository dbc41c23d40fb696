"""Compaction over HTTP, on any broker, and for topics that are not open."""

from __future__ import annotations

from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry
from tests.integration.test_broker_http import BASE, Web, run
from tests.integration.test_policies import run as run_with
from tests.support.brokers import BrokerCluster, PublishClient, find

NAMESPACE = "/admin/v2/namespaces/public/default"


async def publish(world: World, topic: str, count: int, *, size: int = 10) -> None:
    client = await PublishClient.connect(world, await find(world, ["broker0"], topic))
    await client.open(1, topic)
    for number in range(count):
        metadata = MessageMetadata(
            producer_name="p",
            sequence_id=number,
            publish_time=10**15,
            partition_key=f"k{number % 3}",
        )
        await client.send([(1, encode_entry(metadata, b"x" * size))])
    await client.wait(1, count)
    await client.close(1)


async def settled(world: World, web: Web, path: str) -> dict[str, str]:
    while True:
        status, found = await web("GET", f"{path}/compaction", broker="broker1")
        assert status == 200, found
        if found["status"] != "RUNNING":
            return found  # type: ignore[no-any-return]
        await world.clock.sleep(0.05)


def test_a_topic_is_compacted_on_demand_and_says_what_came_of_it() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        topic, path = "persistent://public/default/t", f"{BASE}/t"
        await publish(world, topic, 10)
        assert await web("GET", f"{path}/compaction") == (
            200,
            {"status": "NOT_RUN", "lastError": ""},
        )
        assert (await web("GET", f"{BASE}/none/compaction"))[0] == 404
        assert (await web("PUT", f"{path}/compaction", broker="broker1"))[0] == 204
        status, refused = await web("PUT", f"{path}/compaction")
        assert (status, "in progress" in refused["reason"]) == (409, True)
        assert await settled(world, web, path) == {"status": "SUCCESS", "lastError": ""}
        stats = (await web("GET", f"{path}/stats"))[1]["compaction"]
        assert stats["lastCompactionRemovedEventCount"] == 7
        assert stats["lastCompactionSucceedTimestamp"] > 0
        internal = (await web("GET", f"{path}/internalStats"))[1]
        assert internal["compactedLedger"]["entries"] == 3
        assert internal["compactionHorizon"] == internal["lastConfirmedEntry"]
        assert (await web("DELETE", f"{path}/subscription/__compaction"))[0] == 204
        assert (await web("GET", f"{path}/internalStats"))[1]["compactedLedger"]["ledgerId"] == -1
        assert (await web("PUT", f"{path}/compaction"))[0] == 204
        await settled(world, web, path)
        assert (await web("DELETE", path, broker="broker1"))[0] == 204
        left = [
            name
            for name in cluster.sim.metadata.tree.nodes
            if name.startswith(f"{paths.LEDGERS}/") and name.count("/") == 4
        ]
        assert left == [], "the topic takes its view with it"

    run(scenario, brokers=2)


def test_each_partition_is_compacted() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        path = f"{BASE}/parted"
        assert (await web("PUT", f"{path}/partitions", 2))[0] == 204
        await publish(world, "persistent://public/default/parted-partition-0", 4)
        assert (await web("GET", f"{path}/compaction"))[1]["status"] == "NOT_RUN"
        assert (await web("PUT", f"{path}/compaction"))[0] == 204
        assert (await settled(world, web, path))["status"] == "SUCCESS"
        assert (await web("GET", f"{path}-partition-0/internalStats"))[1]["compactedLedger"][
            "entries"
        ] == 3

    run(scenario, brokers=2)


def test_the_threshold_is_a_policy_of_namespaces_and_topics() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await publish(world, "persistent://public/default/t", 1)
        assert (await web("GET", f"{NAMESPACE}/compactionThreshold"))[0] == 204
        assert (await web("PUT", f"{NAMESPACE}/compactionThreshold", 5000))[0] == 204
        assert await web("GET", f"{NAMESPACE}/compactionThreshold") == (200, 5000)
        assert (await web("GET", NAMESPACE))[1]["compaction_threshold"] == 5000
        assert (await web("GET", f"{BASE}/t/compactionThreshold"))[0] == 204
        assert await web("GET", f"{BASE}/t/compactionThreshold?applied=true") == (200, 5000)
        assert (await web("POST", f"{BASE}/t/compactionThreshold", 7000))[0] == 204
        assert await web("GET", f"{BASE}/t/compactionThreshold") == (200, 7000)
        assert (await web("POST", f"{BASE}/t/compactionThreshold", -1))[0] == 412
        assert (await web("DELETE", f"{BASE}/t/compactionThreshold"))[0] == 204
        assert (await web("DELETE", f"{NAMESPACE}/compactionThreshold"))[0] == 204
        assert await web("GET", f"{BASE}/t/compactionThreshold?applied=true") == (200, 0)

    run(scenario)


def test_a_topic_that_nobody_opens_is_compacted_and_closed_again() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        name = TopicName.parse("persistent://public/default/t")
        await publish(world, name.full, 20, size=1000)
        assert (await web("PUT", f"{BASE}/t/unload"))[0] == 204
        assert (await web("PUT", f"{NAMESPACE}/compactionThreshold", 10_000))[0] == 204
        records = Records(world.metadata, world.clock, world.random)

        async def is_compacted() -> bool:
            found = await records.get(paths.topic(name), TopicRecord)
            assert found is not None
            return found[0].compacted is not None and not any(
                broker._topics.loaded for broker in cluster.brokers.values()
            )

        for _ in range(100):
            if await is_compacted():
                return
            await world.clock.sleep(10.0)
        raise AssertionError("the sweeper did not come to it")

    run_with(
        scenario,
        sweeper_interval_seconds=100.0,
        managed_ledger=ManagedLedgerOptions(cursor_idle_seconds=5),
    )
