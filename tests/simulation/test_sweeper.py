"""Time passes for topics that nobody has opened since a restart: the leader's sweeper, over whole
brokers and bookies in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

import pulsarish.broker.topics.loaded_topics as topics_module
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CursorRecord, TopicRecord
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from tests.integration.test_broker_http import Web
from tests.integration.test_policies import NAMESPACE, PATH, TOPIC, broker_ms, run
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find

NAME = TopicName.parse(TOPIC)
Scenario = Callable[[BrokerCluster, World, Web], Awaitable[None]]
SETTINGS = {
    "sweeper_interval_seconds": 100.0,
    "managed_ledger": ManagedLedgerOptions(cursor_idle_seconds=5),
}


async def topic_record(world: World) -> TopicRecord | None:
    found = await Records(world.metadata, world.clock, world.random).get(
        paths.topic(NAME), TopicRecord
    )
    return None if found is None else found[0]


async def backlog(world: World) -> bool:
    """Whether the subscription still needs anything, as metadata says."""
    record = await topic_record(world)
    found = await Records(world.metadata, world.clock, world.random).get(
        paths.cursor(NAME, "s"), CursorRecord
    )
    assert record is not None
    assert found is not None
    return any(
        link.entries
        and (link.ledger_id, link.entries - 1) > (found[0].mark_ledger, found[0].mark_entry)
        for link in record.ledgers
    )


async def used_and_left(
    cluster: BrokerCluster, world: World, *, crash: bool, acknowledge: bool = False
) -> None:
    """A topic with some data and a subscription, whose owner has gone and come back; nobody opens
    it again.
    """
    address = await find(world, ["broker0"], TOPIC)
    publish, consume = (
        await PublishClient.connect(world, address),
        await ConsumeClient.connect(world, address),
    )
    await consume.subscribe(7, TOPIC)
    await publish.open(1, TOPIC)
    await publish.send(
        [(1, entry("p", number, time_ms=broker_ms(cluster, address))) for number in range(10)]
    )
    await publish.wait(1, 10)
    if acknowledge:
        got = await consume.take(10)
        await consume.ack(7, [(got[-1].ledger, got[-1].entry)], cumulative=True)
    owner = address.split(":")[0]
    if crash:
        cluster.nodes[owner].crash()
    else:
        await cluster.stop_broker(owner)
        cluster.nodes[owner].crash()
    await world.clock.sleep(20.0)
    await cluster.start_broker(owner)
    assert not any(broker._topics.loaded for broker in cluster.brokers.values())


async def nothing_loaded(cluster: BrokerCluster) -> None:
    assert not any(broker._topics.loaded for broker in cluster.brokers.values()), (
        "what was opened for a look is closed again"
    )


@pytest.mark.parametrize("crash", [False, True])
def test_ttl_and_then_retention_free_a_topic_that_nobody_opens(crash: bool) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (
            await web(
                "POST",
                f"{NAMESPACE}/retention",
                {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
            )
        )[0] == 204
        assert (await web("POST", f"{NAMESPACE}/messageTTL", 300))[0] == 204
        await used_and_left(cluster, world, crash=crash)
        # After a crash metadata does not know what is in the last ledger.
        assert await backlog(world) is not crash
        await world.clock.sleep(700.0)
        assert not await backlog(world), "message TTL"
        await nothing_loaded(cluster)
        await world.clock.sleep(1_000.0)
        record = await topic_record(world)
        assert record is not None
        assert not [link for link in record.ledgers if link.entries], "retention"
        assert not record.deleting
        await nothing_loaded(cluster)

    run(scenario, **SETTINGS)


def test_what_is_not_due_is_not_opened() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (
            await web(
                "POST",
                f"{NAMESPACE}/retention",
                {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
            )
        )[0] == 204
        await used_and_left(cluster, world, crash=False)
        loads = sum(broker._topics.loader.count for broker in cluster.brokers.values())
        await world.clock.sleep(1_000.0)
        assert sum(broker._topics.loader.count for broker in cluster.brokers.values()) == loads
        assert sum(broker._sweeper.walks_count for broker in cluster.brokers.values()) >= 5
        assert (
            len([broker for broker in cluster.brokers.values() if broker._sweeper.walks_count]) <= 2
        ), "only the leader walks"

    run(scenario, **SETTINGS)


def test_a_deletion_that_stopped_half_way_is_finished() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await used_and_left(cluster, world, crash=True)
        records = Records(world.metadata, world.clock, world.random)
        found = await records.get(paths.topic(NAME), TopicRecord)
        assert found is not None
        await records.compare_and_set(
            paths.topic(NAME), msgspec.structs.replace(found[0], deleted=True), found[1]
        )
        await world.clock.sleep(300.0)
        assert await topic_record(world) is None

    run(scenario, **SETTINGS)


def test_unused_subscriptions_expire_and_used_ones_do_not() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (await web("POST", f"{NAMESPACE}/subscriptionExpirationTime", 10))[0] == 204
        await used_and_left(cluster, world, crash=True)
        address = await find(world, ["broker0"], TOPIC)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC)
        await consume.subscribe(8, TOPIC, "other")
        await consume.ask("close", consumer_id=8)
        await world.clock.sleep(1_000.0)
        _, names = await web("GET", f"{PATH}/subscriptions")
        assert names == ["s"], "the one that nobody uses is gone"
        owner = address.split(":")[0]
        cluster.nodes[owner].crash()
        await world.clock.sleep(20.0)
        await cluster.start_broker(owner)
        await world.clock.sleep(400.0)
        _, names = await web("GET", f"{PATH}/subscriptions")
        assert names == ["s"], "its time counts from its last use, not from the crash of its broker"
        await world.clock.sleep(1_000.0)
        _, names = await web("GET", f"{PATH}/subscriptions")
        assert names == []

    run(scenario, brokers=1, **SETTINGS)


@pytest.mark.parametrize("opened", [False, True])
def test_a_topic_that_nobody_uses_is_deleted(opened: bool) -> None:
    policy = {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 300,
        "deleteWhileInactive": True,
    }

    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await used_and_left(cluster, world, crash=False, acknowledge=True)
        assert (await web("POST", f"{PATH}/inactiveTopicPolicies", policy))[0] == 204
        if opened:
            address = await find(world, ["broker0"], TOPIC)
            publish = await PublishClient.connect(world, address)
            await publish.open(1, TOPIC)
            await world.clock.sleep(900.0)
            assert await topic_record(world) is not None, "it has a producer"
            await publish.close(1)
            await world.clock.sleep(200.0)
            assert await topic_record(world) is not None
        await world.clock.sleep(700.0)
        assert await topic_record(world) is None

    run(scenario, **SETTINGS)


async def publish_one(world: World, brokers: list[str], name: str) -> tuple[int, int]:
    """Publish one entry, acknowledged, and leave."""
    publish = await PublishClient.connect(world, await find(world, brokers, TOPIC))
    await publish.open(1, TOPIC, name)
    await publish.send([(1, entry(name, 1))])
    (receipt,) = await publish.wait(1, 1)
    await publish.close(1)
    assert not isinstance(receipt, PulsarishError)
    return receipt


@pytest.mark.parametrize("moment", ["_settled", "delete_topic"])
def test_what_is_published_while_a_topic_is_being_deleted_for_disuse_is_kept(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First by somebody who comes before the deletion has begun, then at another owner, to which
    its bundle went just then.
    """
    policy = {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 300,
        "deleteWhileInactive": True,
    }
    reached, go_on = asyncio.Event(), asyncio.Event()
    place: Any = LoadedTopics if moment == "_settled" else topics_module
    real = getattr(place, moment)

    async def held(*arguments: Any, **options: Any) -> Any:
        reached.set()
        await go_on.wait()
        return await real(*arguments, **options)

    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await used_and_left(cluster, world, crash=False, acknowledge=True)
        assert (await web("POST", f"{PATH}/inactiveTopicPolicies", policy))[0] == 204
        monkeypatch.setattr(place, moment, held)
        await reached.wait()
        monkeypatch.undo()
        brokers = list(cluster.brokers)
        if moment == "delete_topic":
            owner = (await find(world, brokers, TOPIC)).split(":")[0]
            cluster.sim.metadata.expire(cluster.nodes[owner].session_id)
            brokers.remove(owner)
            await world.clock.sleep(1.0)
        receipt = await publish_one(world, brokers, "late")
        go_on.set()
        await world.clock.sleep(30.0)
        record = await topic_record(world)
        assert record is not None
        assert not record.deleted
        consume = await ConsumeClient.connect(world, await find(world, brokers, TOPIC))
        await consume.subscribe(7, TOPIC)
        (got,) = await consume.take(1)
        assert (got.ledger, got.entry) == receipt

    run(scenario, **SETTINGS)


def test_backlog_of_a_topic_that_nobody_opens_is_evicted() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        quota = {"limitSize": 0, "policy": "consumer_backlog_eviction"}
        await used_and_left(cluster, world, crash=False)
        assert (await web("POST", f"{PATH}/backlogQuota", quota))[0] == 204
        await world.clock.sleep(300.0)
        assert not await backlog(world)

    run(scenario, **SETTINGS)


def test_the_leader_finds_an_orphan_and_deletes_it_beside_a_topic_in_use() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        records = Records(world.metadata, world.clock, world.random)
        purpose = LedgerPurpose(PurposeKind.TOPIC, TOPIC)
        lost = LedgerMetadata(900, 1, 1, 1, purpose, (Segment(0, ("bookie0~1",)),))
        await LedgerStore(records, world.clock).store(lost, None)
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send([(1, entry("p", number)) for number in range(10)])
        await publish.wait(1, 10)
        await world.clock.sleep(30.0)
        for broker in cluster.brokers:
            status, found = await web("GET", "/admin/v2/ledgers/orphans", broker=broker)
            assert status == 200
            (orphan,) = found["orphans"]
            assert (orphan["kind"], orphan["ledgerId"]) == ("ledger", 900)
            assert orphan["deletable"]
            assert found["deletionEnabled"]
        assert web.redirected == 1, "only the leader knows"
        status, found = await web("GET", f"/admin/v2/ledgers/orphans?after={orphan['path']}")
        assert found["orphans"] == []
        await world.clock.sleep(60.0)
        assert (await records.nodes([paths.ledger(900)]))[0] is None
        assert (await web("GET", "/admin/v2/ledgers/orphans"))[1]["orphans"] == []
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC)
        await publish.send([(1, entry("p", 10))])
        assert len(await consume.take(11)) == 11

    run(
        scenario,
        orphan_check_interval_seconds=10.0,
        orphan_min_age_seconds=10.0,
        orphan_grace_seconds=40.0,
        orphan_deletion_enabled=True,
        **SETTINGS,
    )
