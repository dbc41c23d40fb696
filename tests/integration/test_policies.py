"""Policies of namespaces and topics, over HTTP and in force: validated, stored, and applied at once
by the owner of the topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pulsarish.broker.topics.topic import Topic
from pulsarish.model.errors import (
    NotAllowedError,
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    PulsarishError,
    ServiceNotReady,
    SubscriptionNotFound,
)
from pulsarish.model.position import Position
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from tests.integration.test_broker_http import Web
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "persistent://public/default/t"
PATH = "/admin/v2/persistent/public/default/t"
QUORUMS = {
    "bookkeeperEnsemble": 2,
    "bookkeeperWriteQuorum": 2,
    "bookkeeperAckQuorum": 1,
    "managedLedgerMaxMarkDeleteRate": 10.0,
}
QUOTA_SECONDS = 2.0
"""Within this time a quota takes effect, and ends, in seconds of virtual time."""


def run(
    scenario: Callable[[BrokerCluster, World, Web], Awaitable[None]],
    *,
    brokers: int = 2,
    seed: int = 3,
    **settings: object,
) -> None:
    sim = Simulation(seed)
    # The clients here send nothing while they wait.
    cluster = BrokerCluster(sim, brokers=brokers, keep_alive_timeout_seconds=10_000.0, **settings)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            await scenario(cluster, world, Web(cluster))

        await sim.node("client").run(client)

    sim.run(main, 3_000.0)


def loaded(cluster: BrokerCluster, name: str = TOPIC) -> Topic:
    (topic,) = [
        broker._topics.loaded[name]
        for broker in cluster.brokers.values()
        if name in broker._topics.loaded
    ]
    return topic


def other(cluster: BrokerCluster, address: str) -> str:
    """Return the address of a broker that is not the owner."""
    return next(name for name in cluster.brokers if not address.startswith(name))


def broker_ms(cluster: BrokerCluster, address: str) -> int:
    """Return the owner's wall clock, which decides about ages: every simulated node has its own."""
    return cluster.brokers[address.split(":")[0]]._world.clock.wall_ms()


async def published(
    cluster: BrokerCluster, world: World, topic: str = TOPIC, count: int = 5, size_bytes: int = 100
) -> tuple[str, PublishClient]:
    address = await find(world, ["broker0"], topic)
    publish = await PublishClient.connect(world, address)
    await publish.open(1, topic)
    now_ms = broker_ms(cluster, address)
    await publish.send(
        [(1, entry("p", number, b"x" * size_bytes, time_ms=now_ms)) for number in range(count)]
    )
    await publish.wait(1, count)
    return address, publish


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("messageTTL", -1, 412, "messageTTL: Expected int >= 0; it is -1"),
        ("messageTTL", "long", 400, "Expected int, got str"),
        (
            "retention",
            {"retentionTimeInMinutes": 5, "retentionSizeInMB": 0},
            412,
            "contradict each other",
        ),
        (
            "retention",
            {"retentionTimeInMinutes": -2, "retentionSizeInMB": 1},
            412,
            "$.retentionTimeInMinutes: Expected int >= -1; it is -2",
        ),
        (
            "retention",
            {"retentionTimeInMinutes": 5},
            400,
            "missing required field retentionSizeInMB",
        ),
        (
            "retention",
            {"retentionTimeInMinutes": 5, "retentionSizeInMB": 1, "keep": 1},
            400,
            "unknown field keep",
        ),
        (
            "persistence",
            {**QUORUMS, "bookkeeperAckQuorum": 3},
            412,
            "bookkeeperWriteQuorum 2 >= bookkeeperAckQuorum 3 must hold",
        ),
        (
            "persistence",
            {**QUORUMS, "bookkeeperEnsemble": 0},
            412,
            "$.bookkeeperEnsemble: Expected int >= 1; it is 0",
        ),
        (
            "backlogQuota",
            {"limitSize": 5, "policy": "shout"},
            400,
            "consumer_backlog_eviction or producer_exception or producer_request_hold",
        ),
        (
            "subscriptionTypesEnabled",
            ["Shared", "Odd"],
            400,
            "Exclusive or Failover or Key_Shared or Shared",
        ),
        (
            "autoTopicCreation",
            {"allowAutoTopicCreation": True, "topicType": "partitioned"},
            412,
            "defaultNumPartitions must be 1 to 10000",
        ),
        ("maxProducersPerTopic", 2.5, 400, "Expected int, got float"),
        ("offloadThreshold", None, 404, ""),
    ],
)
def test_what_is_refused_says_field_value_and_range(
    path: str, body: object, status: int, words: str
) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        if status == 404:
            assert await web("GET", "/admin/v2/namespaces/public/default/offloadThreshold") == (
                200,
                -1,
            )
            assert (await web("GET", "/admin/v2/namespaces/public/none/retention"))[0] == 404
            assert (await web("GET", "/admin/v2/persistent/public/default/none/retention"))[
                0
            ] == 404
            return
        found, answer = await web("POST", f"{NAMESPACE}/{path}", body)
        assert (found, words in answer["reason"]) == (status, True), answer

    run(scenario, brokers=1)


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "v2/resource-quotas", "quotas of resources"),
        ("POST", "v2/clusters/pulsarish/migrate", "geo-replication"),
        ("GET", "v2/persistent/public/default/t/getMessageIdByIndex?index=3", "an index"),
        ("GET", "v2/worker/cluster", "functions"),
        ("GET", "v3/functions/public/default", "functions"),
        ("GET", "v3/sources/builtinsources", "connectors"),
        ("GET", "v3/packages/function/public/default", "packages"),
        ("GET", "v3/transactions/coordinatorStats", "transactions"),
    ],
)
def test_what_is_not_there_yet_is_refused_by_its_name(method: str, path: str, words: str) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        status, answer = await web(method, f"/admin/{path}")
        assert (status, words in answer["reason"]) == (501, True), answer
        assert (await web("GET", "/admin/v3/nothing"))[0] == 404

    run(scenario, brokers=1)


def test_retention_and_backlog_quota_must_not_contradict_each_other_across_levels() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await published(cluster, world)
        quota = {"limitSize": 20 << 20, "policy": "producer_exception"}
        assert (await web("POST", f"{NAMESPACE}/backlogQuota", quota))[0] == 204
        status, answer = await web(
            "POST", f"{NAMESPACE}/retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 20}
        )
        assert status == 412
        assert "retentionSizeInMB 20" in answer["reason"]
        assert "limitSize 20971520" in answer["reason"]
        # The topic's retention against the namespace's quota.
        assert (
            await web(
                "POST", f"{PATH}/retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 10}
            )
        )[0] == 412
        assert (
            await web(
                "POST", f"{PATH}/retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 21}
            )
        )[0] == 204
        assert (
            await web(
                "POST",
                f"{PATH}/backlogQuota?backlogQuotaType=message_age",
                {"limitTime": 300, "policy": "producer_exception"},
            )
        )[0] == 412

    run(scenario)


def test_levels_topic_over_namespace_over_broker() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await published(cluster, world)
        assert await web("GET", f"{PATH}/messageTTL") == (204, None)
        assert await web("GET", f"{PATH}/messageTTL?applied=true") == (200, 77)
        assert (await web("POST", f"{NAMESPACE}/messageTTL", 50))[0] == 204
        assert await web("GET", f"{PATH}/messageTTL?applied=true") == (200, 50)
        assert (await web("POST", f"{PATH}/messageTTL?messageTTL=20"))[0] == 204
        assert await web("GET", f"{PATH}/messageTTL") == (200, 20)
        assert (await web("POST", f"{PATH}/messageTTL?messageTTL=-1"))[0] == 412
        assert await web("GET", f"{PATH}/messageTTL?applied=true") == (200, 20)
        assert await web("GET", f"{NAMESPACE}/messageTTL") == (200, 50)
        assert (await web("DELETE", f"{PATH}/messageTTL"))[0] == 204
        assert (await web("DELETE", f"{NAMESPACE}/messageTTL"))[0] == 204
        assert await web("GET", f"{PATH}/messageTTL?applied=true") == (200, 77)
        # Each type of backlog quota is a policy of its own.
        size, age = (
            {"limitSize": 10, "policy": "producer_exception"},
            {"limitTime": 20, "policy": "producer_request_hold"},
        )
        assert (await web("POST", f"{NAMESPACE}/backlogQuota", size))[0] == 204
        assert (await web("POST", f"{PATH}/backlogQuota?backlogQuotaType=message_age", age))[
            0
        ] == 204
        _, applied = await web("GET", f"{PATH}/backlogQuotaMap?applied=true")
        assert (
            applied["destination_storage"]["limitSize"],
            applied["message_age"]["limitTime"],
        ) == (10, 20)
        assert list((await web("GET", f"{PATH}/backlogQuotaMap"))[1]) == ["message_age"]
        assert (await web("DELETE", f"{NAMESPACE}/backlogQuota"))[0] == 204
        assert await web("GET", f"{NAMESPACE}/backlogQuotaMap") == (200, {})

    run(scenario, ttl_duration_default_in_seconds=77)


def test_a_topic_gives_all_its_policies_back_at_once() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        address, _ = await published(cluster, world)
        quota = {"limitSize": 10, "policy": "producer_exception"}
        assert (await web("POST", f"{NAMESPACE}/messageTTL", 50))[0] == 204
        assert (await web("POST", f"{PATH}/messageTTL?messageTTL=20"))[0] == 204
        assert (await web("POST", f"{PATH}/maxProducers", 1))[0] == 204
        assert (await web("POST", f"{PATH}/backlogQuota", quota))[0] == 204
        for _ in range(2):
            assert (await web("DELETE", f"{PATH}/policies", broker=other(cluster, address)))[
                0
            ] == 204
            assert await web("GET", f"{PATH}/messageTTL?applied=true") == (200, 50)
            assert await web("GET", f"{PATH}/maxProducers") == (204, None)
            assert await web("GET", f"{PATH}/backlogQuotaMap") == (200, {})
        await world.clock.sleep(1.0)
        second = await PublishClient.connect(world, address)
        await second.open(1, TOPIC, "q")
        assert (await web("DELETE", "/admin/v2/persistent/public/default/none/policies"))[0] == 404
        assert (await web("DELETE", f"{PATH}/policies?isGlobal=true"))[0] == 501

    run(scenario)


def test_a_namespace_is_shown_in_the_form_of_pulsars_policies() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        rate = {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}
        for word, value in (
            ("persistence", QUORUMS),
            ("publishRate", rate),
            ("deduplication", True),
        ):
            assert (await web("POST", f"{NAMESPACE}/{word}", value))[0] == 204
        assert (await web("PUT", f"{NAMESPACE}/property/team/billing"))[0] == 204
        _, found = await web("GET", NAMESPACE)
        assert found["persistence"]["bookkeeperEnsemble"] == 2
        assert found["publishMaxMessageRate"] == {"pulsarish": rate}
        assert (
            found["deduplicationEnabled"],
            found["properties"],
            found["bundles"]["numBundles"],
        ) == (True, {"team": "billing"}, 4)
        assert "retention_policies" not in found
        assert await web("DELETE", f"{NAMESPACE}/property/team") == (200, b"billing")
        assert (await web("GET", f"{NAMESPACE}/property/team"))[0] == 404

    run(scenario, brokers=1)


def test_persistence_holds_from_the_next_ledger_on_wherever_the_topic_is() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        address, _ = await published(cluster, world)
        topic = loaded(cluster)
        assert (
            await web("POST", f"{NAMESPACE}/persistence", QUORUMS, broker=other(cluster, address))
        )[0] == 204
        await world.clock.sleep(1.0)
        before = topic.log.ledgers[-1].ledger_id

        async def roll(_world: World) -> None:
            await topic.log.roll()

        await cluster.nodes[address.split(":")[0]].run(roll)
        after = topic.log.ledgers[-1].ledger_id
        _, old = await web("GET", f"/admin/v2/ledgers/{before}")
        _, new = await web("GET", f"/admin/v2/ledgers/{after}")
        assert (old["ensemble_size"], old["write_quorum"], old["ack_quorum"]) == (3, 3, 2)
        assert (new["ensemble_size"], new["write_quorum"], new["ack_quorum"]) == (2, 2, 1)

    run(scenario)


@pytest.mark.parametrize("level", ["namespace", "topic"])
def test_messages_older_than_the_ttl_count_as_acknowledged(level: str) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        address, publish = await published(cluster, world)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC, permits=0)
        await world.clock.sleep(30.0)
        await publish.send([(1, entry("p", 5, time_ms=broker_ms(cluster, address)))])
        await publish.wait(1, 6)
        cursor = loaded(cluster).subscriptions["s"].cursor
        assert cursor.backlog() == 6
        target = (
            f"{NAMESPACE}/messageTTL"
            if level == "namespace"
            else f"{PATH}/messageTTL?messageTTL=20"
        )
        assert (
            await web(
                "POST", target, 20 if level == "namespace" else None, broker=other(cluster, address)
            )
        )[0] == 204
        await world.clock.sleep(1.0)
        assert cursor.backlog() == 1, "the policy holds at once, not at the next look"
        await world.clock.sleep(100.0)
        assert cursor.backlog() == 0, "and goes on"

    run(scenario)


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("producer_request_hold", ProducerBlockedQuotaExceededError),
        ("producer_exception", ProducerBlockedQuotaExceededException),
    ],
)
def test_producers_are_held_while_the_backlog_is_beyond_its_quota(
    policy: str, error: type[PulsarishError]
) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        address, publish = await published(cluster, world, size_bytes=1_000)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC)
        got = await consume.take(5)
        assert (await web("POST", f"{PATH}/backlogQuota", {"limitSize": 2_000, "policy": policy}))[
            0
        ] == 204
        while 1 not in publish.closed:
            await publish.receive()
        assert type(publish.closed[1]) is error
        with pytest.raises(error, match="limitSize 2000"):
            await publish.open(1, TOPIC, epoch=1)
        await consume.ack(7, [(got[3].ledger, got[3].entry)], cumulative=True)
        await world.clock.sleep(QUOTA_SECONDS)
        await publish.open(1, TOPIC, epoch=2)

    run(scenario)


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("producer_request_hold", ProducerBlockedQuotaExceededError),
        ("producer_exception", ProducerBlockedQuotaExceededException),
    ],
)
@pytest.mark.parametrize(
    ("kind", "limit"),
    [("destination_storage", {"limitSize": 8_000}), ("message_age", {"limitTime": 100})],
)
def test_a_quota_holds_producers_within_two_seconds_of_the_excess(
    policy: str, error: type[PulsarishError], kind: str, limit: dict[str, int]
) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        path = f"{NAMESPACE}/backlogQuota?backlogQuotaType={kind}"
        assert (await web("POST", path, {"policy": policy, **limit}))[0] == 204
        address, publish = await published(cluster, world, size_bytes=1_000)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC)
        got = await consume.take(5)
        await world.clock.sleep(98.0)
        topic = loaded(cluster)
        assert topic.topic_limits.quota_error is None
        if kind == "destination_storage":
            now_ms = broker_ms(cluster, address)
            await publish.send(
                [(1, entry("p", each, b"x" * 1_000, time_ms=now_ms)) for each in range(5, 10)]
            )
            await publish.wait(1, 10)
        else:
            await world.clock.sleep(2.0)
        await world.clock.sleep(QUOTA_SECONDS)
        assert type(topic.topic_limits.quota_error) is error
        while 1 not in publish.closed:
            await publish.receive()
        assert type(publish.closed[1]) is error
        await consume.ack(7, [(got[4].ledger, got[4].entry)], cumulative=True)
        await world.clock.sleep(QUOTA_SECONDS)
        await publish.open(1, TOPIC, epoch=1)
        # A quota that is taken away holds no producer either.
        topic.topic_limits.hold(error("held"))
        assert (await web("DELETE", path))[0] == 204
        await world.clock.sleep(QUOTA_SECONDS)
        await publish.open(2, TOPIC, "another")

    run(scenario)


@pytest.mark.parametrize(
    ("kind", "limit"),
    [("destination_storage", {"limitSize": 8_000}), ("message_age", {"limitTime": 100})],
)
def test_a_quota_evicts_within_two_seconds_of_the_excess(kind: str, limit: dict[str, int]) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        path = f"{NAMESPACE}/backlogQuota?backlogQuotaType={kind}"
        quota = {"policy": "consumer_backlog_eviction", **limit}
        assert (await web("POST", path, quota))[0] == 204
        address, publish = await published(cluster, world, size_bytes=1_000)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC, permits=0)
        await world.clock.sleep(98.0)
        cursor = loaded(cluster).subscriptions["s"].cursor
        assert cursor.backlog() == 5
        now_ms = broker_ms(cluster, address)
        await publish.send(
            [(1, entry("p", each, b"x" * 1_000, time_ms=now_ms)) for each in range(5, 10)]
        )
        await publish.wait(1, 10)
        await world.clock.sleep(2.0 + QUOTA_SECONDS)
        assert cursor.backlog() == (7 if kind == "destination_storage" else 5)
        assert 1 not in publish.closed

    run(scenario)


def test_backlog_is_evicted_from_the_subscriptions_that_lag() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        address, _ = await published(cluster, world, count=20, size_bytes=1_000)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC, "slow", permits=0)
        await consume.subscribe(8, TOPIC, "fast")
        got = await consume.take(20)
        await consume.ack(8, [(got[17].ledger, got[17].entry)], cumulative=True)
        quota = {"limitSize": 10_500, "policy": "consumer_backlog_eviction"}
        assert (await web("POST", f"{NAMESPACE}/backlogQuota", quota))[0] == 204
        await world.clock.sleep(1.0)
        subscriptions = loaded(cluster).subscriptions
        assert subscriptions["slow"].cursor.backlog() == 9, "nine tenths of the quota are left"
        assert subscriptions["fast"].cursor.mark_delete == Position(got[17].ledger, got[17].entry)

    run(scenario)


def test_old_backlog_is_evicted_by_age() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        address, publish = await published(cluster, world)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC, permits=0)
        await world.clock.sleep(100.0)
        await publish.send([(1, entry("p", 5, time_ms=broker_ms(cluster, address)))])
        await publish.wait(1, 6)
        quota = {"limitTime": 50, "policy": "consumer_backlog_eviction"}
        assert (await web("POST", f"{NAMESPACE}/backlogQuota?backlogQuotaType=message_age", quota))[
            0
        ] == 204
        await world.clock.sleep(1.0)
        assert loaded(cluster).subscriptions["s"].cursor.backlog() == 1

    run(scenario)


def test_policies_of_a_partitioned_topic_hold_for_its_partitions_and_go_with_it() -> None:
    parts = "/admin/v2/persistent/public/default/parts"

    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (await web("PUT", f"{parts}/partitions", 2))[0] == 204
        partition = "persistent://public/default/parts-partition-1"
        await published(cluster, world, partition)
        assert (await web("POST", f"{parts}/messageTTL?messageTTL=9"))[0] == 204
        await world.clock.sleep(1.0)
        assert await web("GET", f"{parts}-partition-1/messageTTL") == (200, 9)
        assert dict(loaded(cluster, partition).topic_limits.policies.topic).popitem()[1] == 9
        assert (await web("DELETE", f"{parts}/partitions?force=true"))[0] == 204
        assert (await web("GET", f"{parts}/messageTTL"))[0] == 404
        assert (await web("PUT", f"{parts}/partitions", 2))[0] == 204
        assert await web("GET", f"{parts}/messageTTL") == (204, None), (
            "nothing of the old one is left"
        )

    run(scenario)


def test_who_may_come_changes_live() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        address, publish = await published(cluster, world)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC)
        for word, value in (
            ("maxProducers", 1),
            ("maxConsumers", 1),
            ("subscriptionTypesEnabled", ["Shared"]),
            ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}),
        ):
            assert (await web("POST", f"{PATH}/{word}", value))[0] == 204
        await world.clock.sleep(1.0)
        with pytest.raises(
            PulsarishError, match=r"max_producers_per_topic \(1\): close a producer"
        ):
            await publish.open(2, TOPIC, "q")
        with pytest.raises(SubscriptionNotFound):
            await consume.subscribe(8, TOPIC, "new")
        with pytest.raises(
            PulsarishError, match=r"max_consumers_per_topic \(1\): close a consumer"
        ):
            await consume.subscribe(8, TOPIC, "s")
        assert (await web("POST", f"{PATH}/maxConsumers", 0))[0] == 204
        await world.clock.sleep(1.0)
        with pytest.raises(NotAllowedError, match="Exclusive"):
            await consume.subscribe(8, TOPIC, "s")

    run(scenario)


def test_deduplication_is_switched_on_and_off_while_producers_publish() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        address, publish = await published(cluster, world, count=5)
        # In flight when deduplication is switched on: entries sent before are in the marks too.
        await publish.send([(1, entry("p", number)) for number in range(5, 10)])
        assert (
            await web("POST", f"{PATH}/deduplicationEnabled", True, broker=other(cluster, address))
        )[0] == 204
        while 1 not in publish.closed:
            await publish.receive()
        assert publish.closed[1].retryable
        while True:
            try:
                opened = await publish.open(1, TOPIC, epoch=1)
                break
            except ServiceNotReady:
                await world.clock.sleep(0.05)
        assert (opened.deduplication, opened.last_sequence_id) == (True, 9)
        publish.receipts[1].clear()
        await publish.send([(1, entry("p", number)) for number in (3, 9, 10)])
        receipts = await publish.wait(1, 3)
        assert [receipt[0] for receipt in receipts[:2]] == [-1, -1]  # type: ignore[index]
        assert receipts[2][1] == 10  # type: ignore[index]
        topic = loaded(cluster)
        assert topic.log.cursor_names() == ["pulsar.dedup"]
        assert (await web("DELETE", f"{PATH}/deduplicationEnabled"))[0] == 204
        await world.clock.sleep(1.0)
        assert (topic.deduplication, topic.log.cursor_names()) == (False, [])
        await publish.send([(1, entry("p", 3))])
        assert (await publish.wait(1, 4))[3][1] == 11, "written again"  # type: ignore[index]

    for seed in range(4):
        run(scenario, seed=seed)


def test_a_topic_that_was_not_open_when_deduplication_was_switched_on_knows_its_whole_log() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await published(cluster, world, count=5)
        assert (await web("PUT", f"{PATH}/unload"))[0] == 204
        assert (await web("POST", f"{NAMESPACE}/deduplication", True))[0] == 204
        publish = await PublishClient.connect(world, await find(world, ["broker0"], TOPIC))
        assert (await publish.open(1, TOPIC)).last_sequence_id == 4

    # Without a subscription the log keeps only what retention says.
    run(scenario, default_retention_time_minutes=-1, default_retention_size_mb=-1)


@pytest.mark.parametrize("by", ["publishThrottlingRateInMsg", "publishThrottlingRateInByte"])
def test_publishing_beyond_its_rate_is_held_and_never_failed(by: str) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        _, publish = await published(cluster, world, count=1)
        each = len(entry("p", 1, b"x" * 100))
        assert (
            await web("POST", f"{PATH}/publishRate", {by: 10 if by.endswith("Msg") else 10 * each})
        )[0] == 204
        await world.clock.sleep(1.0)
        began = world.clock.monotonic()
        for number in range(1, 101):
            await publish.send([(1, entry("p", number, b"x" * 100))])
        receipts = await publish.wait(1, 101)
        took = world.clock.monotonic() - began
        assert [receipt[1] for receipt in receipts] == list(range(101))  # type: ignore[index]
        # Virtual time: tokens of one second may be saved up.
        assert 8.5 <= took <= 10.5

    run(scenario)


def test_topics_share_the_rates_of_their_broker_which_change_while_it_runs() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        address, publish = await published(cluster, world, count=1)
        option = "/admin/v2/brokers/configuration/{}"
        publish_rate = option.format("broker_publisher_throttling_max_message_rate")
        dispatch_rate = option.format("dispatch_throttling_rate_in_msg")
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, TOPIC, "a")
        await consume.subscribe(8, TOPIC, "b")
        await consume.take(2)
        other = f"{TOPIC}-other"
        await find(world, ["broker0"], other)
        await publish.open(2, other, "q")
        for path in (publish_rate, dispatch_rate):
            assert (await web("POST", f"{path}/10"))[0] == 204
        await world.clock.sleep(1.0)
        began = world.clock.monotonic()
        for number in range(1, 51):
            await publish.send([(1, entry("p", number)), (2, entry("q", number))])
        await publish.wait(1, 51)
        await publish.wait(2, 50)
        # Virtual time: tokens of one second may be saved up.
        assert 8.5 <= world.clock.monotonic() - began <= 10.5
        await consume.take(100)  # two subscriptions of one of the topics
        assert 8.5 <= world.clock.monotonic() - began <= 10.5
        for path in (publish_rate, dispatch_rate):
            assert (await web("DELETE", path))[0] == 204
        await world.clock.sleep(1.0)
        began = world.clock.monotonic()
        for number in range(51, 101):
            await publish.send([(1, entry("p", number))])
        await consume.take(100)
        assert world.clock.monotonic() - began < 1.0

    run(scenario, brokers=1)


@pytest.mark.parametrize("word", ["dispatchRate", "subscriptionDispatchRate"])
def test_deliveries_keep_to_their_rate(word: str) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        address, _ = await published(cluster, world, count=100)
        assert (
            await web(
                "POST",
                f"{NAMESPACE}/{word}",
                {"dispatchThrottlingRateInMsg": 20, "ratePeriodInSecond": 2},
            )
        )[0] == 204
        await world.clock.sleep(1.0)
        consume, began = await ConsumeClient.connect(world, address), world.clock.monotonic()
        await consume.subscribe(7, TOPIC, "a")
        await consume.subscribe(8, TOPIC, "b")
        got = await consume.take(200)
        took = world.clock.monotonic() - began
        for consumer_id in (7, 8):
            assert [each.entry for each in got if each.consumer_id == consumer_id] == list(
                range(100)
            )
        # Both subscriptions share the topic's rate of 10 per second; otherwise each has its own
        # rate.
        assert 17.0 <= took <= 20.5 if word == "dispatchRate" else 7.0 <= took <= 10.5

    run(scenario)
