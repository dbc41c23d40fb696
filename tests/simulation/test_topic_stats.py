"""A topic's statistics say who stands still, why and since when: each state really happens on whole
brokers and bookies, and is read.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pulsarish.broker.dispatchers.multi_consumer import MultiConsumerDispatcher
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.model.position import Position
from pulsarish.runtime.seams import HttpRequest, HttpResponse, World
from pulsarish.runtime.version import program_name
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire._pb import pulsar_pb2 as binary_pb
from tests.simulation.test_broker_metrics import scrape
from tests.support.binary_client import BinaryClient
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find
from tests.support.dispatching import forget

TOPIC = "persistent://public/default/t"
NOT_KEPT = "non-persistent://public/default/t"

Stats = dict[str, Any]
Scenario = Callable[[BrokerCluster, World, str], Awaitable[None]]


def run(scenario: Scenario, **settings: object) -> None:
    sim = Simulation(3)
    cluster = BrokerCluster(sim, **settings)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            await scenario(cluster, world, await find(world, ["broker0"], TOPIC))

        await sim.node("client").run(client)

    sim.run(main, 600.0)


async def ask(
    cluster: BrokerCluster, method: str, what: str, topic: str = TOPIC, **query: str
) -> bytes:
    """An answer of the administration for the topic."""
    answer = await answered(cluster, method, what, topic, **query)
    assert answer.status in (200, 204), answer.body
    return answer.body


async def answered(
    cluster: BrokerCluster, method: str, what: str, topic: str = TOPIC, **query: str
) -> HttpResponse:
    path = ("admin", "v2", *topic.replace("://", "/").split("/"), *what.split("/"))

    async def work(_world: World) -> HttpResponse:
        return await cluster.brokers["broker0"].http.handle(
            HttpRequest(method, "/" + "/".join(path), query, {}, b"", path)
        )

    return await cluster.nodes["broker0"].run(work)


async def stats(cluster: BrokerCluster, topic: str = TOPIC, **query: str) -> Stats:
    found: Stats = json.loads(await ask(cluster, "GET", "stats", topic, **query))
    return found


def loaded_topics(cluster: BrokerCluster) -> list[str]:
    return list(cluster.brokers["broker0"]._topics.loaded)


def now_ms(cluster: BrokerCluster) -> int:
    """By the broker's own wall clock."""
    world = cluster.nodes["broker0"].world
    assert world is not None
    return world.clock.wall_ms()


async def until(world: World, cluster: BrokerCluster, reached: Callable[[Stats], bool]) -> Stats:
    for _ in range(200):
        found = await stats(cluster)
        if reached(found):
            return found
        await world.clock.sleep(0.1)
    raise AssertionError(f"not reached: {json.dumps(found, indent=1)}")


def reason(found: Stats, subscription: str = "s") -> str:
    return str(found["subscriptions"][subscription]["waiting"]["reason"])


async def filled(
    cluster: BrokerCluster, world: World, address: str, count: int = 10
) -> PublishClient:
    publish = await PublishClient.connect(world, address)
    await publish.open(1, TOPIC)
    await publish.send(
        [(1, entry("p", number, time_ms=now_ms(cluster))) for number in range(count)]
    )
    await publish.wait(1, count)
    return publish


def test_nobody_connected_then_no_permits_then_unacknowledged_then_idle() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, permits=0)
        await consume.ask("close", consumer_id=1)
        left_ms = now_ms(cluster)
        await filled(cluster, world, address)
        await world.clock.sleep(70)
        found = await stats(cluster, getEarliestTimeInBacklog="true")
        subscription = found["subscriptions"]["s"]
        assert (reason(found), subscription["waiting"]["state"]) == ("no_consumers", "waiting")
        assert abs(subscription["waiting"]["sinceMs"] - left_ms) < 1_000
        assert 69_000 < subscription["oldestUnackedAgeMs"] < 73_000
        assert (
            subscription["msgBacklog"],
            subscription["msgBacklogNoDelayed"],
            subscription["msgInReplay"],
        ) == (10, 10, 0)
        assert found["oldestBacklogMessageSubscriptionName"] == "s"
        assert found["oldestBacklogMessageAgeSeconds"] == subscription["oldestUnackedAgeMs"] // 1000
        assert (
            found["earliestMsgPublishTimeInBacklogs"]
            == subscription["earliestMsgPublishTimeInBacklog"]
            > 0
        )
        assert 69_000 < now_ms(cluster) - found["lastPublishTimeStamp"] < 73_000
        assert any(
            "subscription s: waiting for 1 min " in line and "its oldest message" in line
            for line in found["diagnosis"]
        )

        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, permits=4)
        got = await consume.take(4)
        found = await stats(cluster)
        assert reason(found) == "no_permits"
        consumer = found["subscriptions"]["s"]["consumers"][0]
        assert consumer["availablePermits"] == 0
        assert consumer["lastConsumedTimestamp"] >= consumer["lastConsumedFlowTimestamp"] > 0
        assert (
            found["subscriptions"]["s"]["waiting"]["sinceMs"] == consumer["lastConsumedTimestamp"]
        )

        await consume.flow(1, 100)
        got += await consume.take(6)
        assert reason(await stats(cluster)) == "unacknowledged"
        assert (await stats(cluster))["diagnosis"] == ["nothing stands still"], (
            "a consumer that is just working is no finding"
        )
        await consume.ack(1, [(got[-1].ledger, got[-1].entry)], cumulative=True)
        found = await stats(cluster)
        subscription = found["subscriptions"]["s"]
        assert (subscription["waiting"]["state"], subscription["oldestUnackedPosition"]) == (
            "idle",
            None,
        )
        assert (
            subscription["lastAckedTimestamp"]
            == subscription["lastMarkDeleteAdvancedTimestamp"]
            > 0
        )
        assert (subscription["msgOutCounter"], found["deduplicationStatus"]) == (10, "Disabled")
        assert (
            found["oldestBacklogMessageSubscriptionName"],
            found["oldestBacklogMessageAgeSeconds"],
        ) == (None, -1)
        assert (
            found["earliestMsgPublishTimeInBacklogs"],
            found["backlogQuotaLimitSize"],
            found["backlogQuotaLimitTime"],
        ) == (0, -1, -1)

    run(scenario)


def test_blocked_on_unacknowledged_messages_of_the_consumer_and_of_the_subscription() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await filled(cluster, world, address)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, type=1)
        await consume.take(3)
        found = await stats(cluster)
        assert reason(found) == "blocked_on_unacked_messages"
        assert found["subscriptions"]["s"]["consumers"][0]["blockedConsumerOnUnackedMsgs"]
        assert not found["subscriptions"]["s"]["blockedSubscriptionOnUnackedMsgs"]
        await consume.subscribe(2, TOPIC, type=1)
        await consume.take(2)
        found = await stats(cluster)
        assert reason(found) == "blocked_on_unacked_messages"
        assert found["subscriptions"]["s"]["blockedSubscriptionOnUnackedMsgs"]
        assert "the limit is 5" in found["subscriptions"]["s"]["waiting"]["explanation"]

    run(scenario, max_unacked_messages_per_consumer=3, max_unacked_messages_per_subscription=5)


def test_what_a_consumer_does_not_acknowledge_in_time_goes_to_another_one() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await filled(cluster, world, address)
        stuck = await ConsumeClient.connect(world, address)
        await stuck.subscribe(1, TOPIC, type=1, permits=3)
        kept = await stuck.take(3)
        began = world.clock.monotonic()
        await stuck.ack(1, [(kept[1].ledger, kept[1].entry)])
        other = await ConsumeClient.connect(world, address)
        await other.subscribe(2, TOPIC, type=1, permits=100)
        rest = await other.take(7)
        await other.ack(2, [(each.ledger, each.entry) for each in rest])
        again = await other.take(2)
        assert 8 <= world.clock.monotonic() - began <= 10.5
        assert [each.entry for each in again] == [kept[0].entry, kept[2].entry]
        found = (await stats(cluster))["subscriptions"]["s"]
        assert (found["unackedRedelivered"], found["unackedMessages"]) == (2, 2)
        await other.ack(2, [(each.ledger, each.entry) for each in again])
        assert (await stats(cluster))["subscriptions"]["s"]["msgBacklog"] == 0

    run(scenario, unacked_redelivery_seconds=8)


def test_what_no_consumer_has_and_no_queue_knows_is_delivered_again_in_time() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await filled(cluster, world, address)
        one, other = [await ConsumeClient.connect(world, address) for _ in range(2)]
        await one.subscribe(1, TOPIC, type=1, permits=10)
        got = await one.take(10)
        await one.ack(1, [(each.ledger, each.entry) for each in got[5:]])
        topic = next(iter(cluster.brokers["broker0"]._topics.loaded.values()))
        dispatcher = topic.subscriptions["s"].dispatcher
        assert isinstance(dispatcher, MultiConsumerDispatcher)
        forget(dispatcher.consumers[0], dispatcher, Position(got[2].ledger, got[2].entry))
        began = world.clock.monotonic()
        await one.ack(1, [(each.ledger, each.entry) for each in got[:2]])
        await other.subscribe(2, TOPIC, type=1, permits=100)
        again = await other.take(1)
        assert again[0].entry == 2
        assert 8 <= world.clock.monotonic() - began <= 10.5

    run(scenario, unacked_redelivery_seconds=8)


def test_holes_are_listed_with_who_has_them_and_since_when() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        async def holes(**query: str) -> Stats:
            found: Stats = json.loads(await ask(cluster, "GET", "subscription/s/holes", **query))
            return found

        await filled(cluster, world, address, 40)
        one, other = [await ConsumeClient.connect(world, address) for _ in range(2)]
        await one.subscribe(1, TOPIC, type=1, permits=30, consumer_name="one")
        got = [(each.ledger, each.entry) for each in await one.take(30)]
        ledger = got[0][0]
        found = await holes()
        assert (found["holes"], found["oldest"], found["listed"]) == (0, None, [])
        assert "no hole" in found["explanation"]
        acked = [0, 1, 3, 4, 7, 29]
        await one.ack(1, [got[number] for number in acked])
        back = [got[6], *got[20:25]]
        await one.say(
            redeliver=[
                pb.Redeliver(
                    consumer_id=1,
                    ledgers=[each[0] for each in back],
                    entries=[each[1] for each in back],
                )
            ]
        )
        await world.clock.sleep(5)
        await other.subscribe(2, TOPIC, type=1, permits=11, consumer_name="other")
        assert [each.entry for each in await other.take(11)] == [*range(30, 40), 6]
        await world.clock.sleep(5)
        found = await holes()
        assert (found["holes"], found["entriesInHoles"], found["acknowledgedRanges"]) == (3, 24, 3)
        assert found["memoryBytes"] > 0
        assert found["highestAcknowledgedPosition"] == f"{ledger}:29"
        assert found["markDeletePosition"] == f"{ledger}:1"
        assert [
            (each["first"].split(":")[1], each["last"].split(":")[1], each["entries"])
            for each in found["listed"]
        ] == [("2", "2", 1), ("5", "6", 2), ("8", "28", 21)]
        holders = [
            [(each["state"], each["consumerName"], each["entries"]) for each in hole["holders"]]
            for hole in found["listed"]
        ]
        assert holders == [
            [("consumer", "one", 1)],
            [("consumer", "one", 1), ("consumer", "other", 1)],
            [("consumer", "one", 16), ("waiting", None, 5)],
        ]
        since = found["listed"][1]["holders"]
        assert 0 < since[0]["sinceMs"] <= since[1]["sinceMs"] - 4_000
        oldest = found["oldest"]
        assert (oldest["hole"], oldest["ageMs"] >= 10_000) == (found["listed"][0], True)
        assert oldest["publishedMs"] <= oldest["oldestSinceMs"] <= now_ms(cluster) - 10_000
        assert f"The oldest is {ledger}:2 to {ledger}:2" in found["explanation"]
        assert ". Consumer one has 1, for at least 10 s" in found["explanation"]
        page = await holes(limit="1", **{"from": f"{ledger}:6"})
        assert [each["first"] for each in page["listed"]] == [f"{ledger}:6"]
        assert (page["next"], page["oldest"]["hole"]["first"]) == (f"{ledger}:8", f"{ledger}:2")
        page = await holes(limit="1", **{"from": page["next"]})
        assert (page["listed"], page["next"]) == (found["listed"][2:], None)
        long = (await holes(limit="1000"))["listed"][2]
        assert (long["entries"], long["examined"]) == (21, 20)
        assert sum(each["entries"] for each in long["holders"]) == 20
        in_stats = (await stats(cluster))["subscriptions"]["s"]
        assert (in_stats["holes"], in_stats["oldestHoleAgeMs"] >= 10_000) == (3, True)
        refused = await answered(cluster, "GET", "subscription/s/holes", **{"from": "3"})
        assert (refused.status, b"from '3' is no position" in refused.body) == (412, True)

    run(scenario)


def test_metrics_have_the_holes_and_the_age_of_the_oldest_once_it_lasts() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await filled(cluster, world, address, 5)
        one = await ConsumeClient.connect(world, address)
        await one.subscribe(1, TOPIC, type=1)
        got = [(each.ledger, each.entry) for each in await one.take(5)]

        async def shown() -> tuple[float, float]:
            page = await scrape(cluster)
            holes, seconds = [
                next(iter(page[f"pulsarish_subscription_{name}"].values()))
                for name in ("holes", "oldest_hole_age_seconds")
            ]
            return holes, seconds

        assert await shown() == (0, 0)
        await one.ack(1, [got[1], got[3]])
        await world.clock.sleep(0.1)
        assert await shown() == (2, -1)
        await world.clock.sleep(20)
        holes, seconds = await shown()
        assert holes == 2
        assert 20 <= seconds <= 22
        await one.ack(1, got)
        await world.clock.sleep(0.1)
        assert await shown() == (0, 0)

    run(scenario, managed_ledger_maintenance_interval_seconds=4.0)


def test_explain_says_the_same_for_scripts_and_names_the_command_that_helps() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, permits=4)
        await filled(cluster, world, address)
        await consume.take(4)
        found = json.loads(await ask(cluster, "GET", "subscription/s/explain"))
        assert (found["topic"], found["subscription"], found["msgBacklog"]) == (TOPIC, "s", 10)
        assert (found["state"], found["reason"]) == ("waiting", "no_permits")
        assert "holds 4 unacknowledged" in found["explanation"]
        assert found["data"]["consumers"][0]["unackedMessages"] == 4
        assert found["help"] == f"pulsarish subscriptions get {TOPIC} s"
        assert found["sinceMs"] > 0
        await consume.flow(1, 100)
        got = await consume.take(6)
        await consume.ack(1, [(got[-1].ledger, got[-1].entry)], cumulative=True)
        found = json.loads(await ask(cluster, "GET", "subscription/s/explain"))
        assert (found["state"], found["explanation"]) == (
            "idle",
            "There is no backlog: every message is delivered and acknowledged.",
        )
        topic = json.loads(await ask(cluster, "GET", "explain"))
        assert (topic["state"], topic["publishers"][0]["producerName"]) == ("idle", "p")
        assert topic["subscriptions"]["s"] == {
            key: found[key] for key in topic["subscriptions"]["s"]
        }
        missing = await answered(cluster, "GET", "subscription/x/explain")
        assert (missing.status, b"it has: s" in missing.body) == (404, True)

    run(scenario)


def test_explain_says_what_applies_to_a_topic_that_keeps_no_messages() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, await find(world, ["broker0"], NOT_KEPT))
        await consume.subscribe(1, NOT_KEPT, permits=0)
        found = json.loads(await ask(cluster, "GET", "subscription/s/explain", NOT_KEPT))
        assert (found["reason"], "is dropped" in found["explanation"]) == (
            "dropped_no_permits",
            True,
        )
        await consume.flow(1, 10)
        await world.clock.sleep(0.1)
        found = json.loads(await ask(cluster, "GET", "explain", NOT_KEPT))
        assert found["subscriptions"]["s"]["state"] == "active"

    run(scenario)


@pytest.mark.parametrize("kind", [0, 1], ids=["exclusive", "shared"])
def test_too_many_holes(kind: int) -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        publish = await filled(cluster, world, address, count=8)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, type=kind, permits=8)
        got = await consume.take(8)
        await consume.ack(1, [(got[number].ledger, got[number].entry) for number in (1, 3, 5)])
        await consume.flow(1, 100)
        blocked_ms = now_ms(cluster)
        await publish.send([(1, entry("p", number)) for number in (8, 9)])
        await world.clock.sleep(30)
        found = await stats(cluster)
        assert reason(found) == "too_many_holes"
        assert abs(found["subscriptions"]["s"]["waiting"]["sinceMs"] - blocked_ms) < 1_000
        await consume.ack(1, [(got[0].ledger, got[0].entry)])
        await consume.take(2)
        assert reason(await stats(cluster)) == "unacknowledged"
        assert not cluster.brokers["broker0"]._watchdog.stalls_count

    run(scenario, managed_ledger=ManagedLedgerOptions(max_unacked_ranges_to_persist=3))


def test_a_read_that_fails_says_why_and_when_it_is_tried_again() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await filled(cluster, world, address)
        for name in ("bookie0", "bookie1", "bookie2"):
            cluster.nodes[name].crash()
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC)
        found = await until(world, cluster, lambda found: reason(found) == "read_failed")
        waiting = found["subscriptions"]["s"]["waiting"]
        assert waiting["retryAtMs"] > waiting["sinceMs"] > 0
        assert waiting["explanation"]
        assert found["subscriptions"]["s"]["oldestUnackedAgeMs"] is None, (
            "what cannot be read is not made up"
        )
        for name in ("bookie0", "bookie1", "bookie2"):
            await cluster.start_bookie(name)
        await consume.take(10)
        found = await stats(cluster)
        assert (reason(found), found["subscriptions"]["s"]["oldestUnackedAgeMs"] is None) == (
            "unacknowledged",
            False,
        )

    run(scenario, managed_ledger_cache_size_bytes=0)


def test_a_client_that_does_not_take_what_was_sent() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send([(1, entry("p", number, b"x" * 400_000)) for number in range(10)])
        await publish.wait(1, 10)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC)
        await until(world, cluster, lambda found: reason(found) == "connection_full")
        await consume.take(10)
        assert reason(await stats(cluster)) == "unacknowledged"

    run(scenario, max_delivery_bytes_per_connection=1 << 20)


def test_slow_bookies_then_too_few_of_them_and_the_numbers() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        publish = await filled(cluster, world, address)
        for name in ("bookie0", "bookie1"):
            cluster.nodes[name].pause()
        sent_ms = now_ms(cluster)
        await publish.send([(1, entry("p", 10))])
        await world.clock.sleep(1.0)
        found = await stats(cluster)
        assert found["waiting"]["reason"] == "slow_bookies"
        assert abs(found["waiting"]["sinceMs"] - sent_ms) < 200
        assert found["publishers"][0]["waiting"]["reason"] == "slow_bookies"
        assert (found["pendingEntries"], found["publishers"][0]["pendingEntries"]) == (1, 1)
        assert 800 < found["oldestPendingAgeMs"] < 1_500
        assert {each["bookie"]: each["silent"] for each in found["ledger"]["ensemble"]} == {
            "bookie0": True,
            "bookie1": True,
            "bookie2": False,
        }
        for name in ("bookie0", "bookie1"):
            cluster.nodes[name].crash()
        found = await until(
            world, cluster, lambda found: found["waiting"]["reason"] == "too_few_bookies"
        )
        assert found["waiting"]["retryAtMs"] > 0
        assert found["ledger"]["state"] in ("closing", "recovering")
        assert found["bookies"]["needed"] == 2
        found = await until(world, cluster, lambda found: found["bookies"]["down"] == 2)
        assert found["bookies"]["writable"] == 1
        assert any(
            line.startswith("topic: waiting for") and "too few bookies" in line
            for line in found["diagnosis"]
        )
        assert "producer p: waiting for" in found["diagnosis"][-1]
        assert found["diagnosis"][-1].endswith("as the topic"), (
            "what is said already is not said again"
        )
        await world.clock.sleep(3.0)
        await publish.send([(1, entry("p", 11))])
        found = await until(world, cluster, lambda found: found["lastAddFailure"] is not None)
        assert "NotEnoughBookies" in found["lastAddFailure"]["error"]

    run(scenario, managed_ledger=ManagedLedgerOptions(append_hold_ms=3_000))


def test_a_lacking_copy_and_a_ledger_below_policy_are_told() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        publish = await filled(cluster, world, address)
        cluster.nodes["bookie2"].crash()
        await publish.send([(1, entry("p", 10))])
        await publish.wait(1, 11)
        found = await until(world, cluster, lambda found: bool(found["underReplicated"]))
        assert [each["bookie"] for each in found["ledger"]["ensemble"] if each["missing"]] == [
            "bookie2"
        ]
        assert found["underReplicated"][0]["sinceMs"] > 0
        assert any("copies of 1 of its ledgers are missing" in line for line in found["diagnosis"])

    run(scenario)


def test_metadata_away_is_told_while_the_topic_goes_on() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await filled(cluster, world, address)
        assert (await stats(cluster))["metadata"]["state"] == "connected"
        for source, target in (("broker0", METADATA), (METADATA, "broker0")):
            cluster.sim.network.cut(source, target)
        found = await until(world, cluster, lambda found: found["metadata"]["state"] == "suspended")
        assert found["underReplicated"] is None, "not known is not none"

    run(scenario)


def test_a_topic_that_cannot_be_opened_says_why_without_being_waited_for() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        publish = await filled(cluster, world, address)
        await publish.stream.finish()
        for name in ("bookie0", "bookie1", "bookie2"):
            cluster.nodes[name].crash()
        cluster.nodes["broker0"].crash()
        await cluster.start_broker("broker0")
        began_ms = now_ms(cluster)
        await find(world, ["broker0"], TOPIC)
        found = await stats(cluster)
        assert found["waiting"]["reason"] == "too_few_bookies"
        assert found["waiting"]["sinceMs"] >= began_ms
        assert found["diagnosis"][0].startswith("topic: waiting for")
        await world.clock.sleep(5.0)
        assert (await stats(cluster))["waiting"]["sinceMs"] == found["waiting"]["sinceMs"], (
            "since it was first tried, not last"
        )
        for name in ("bookie0", "bookie1", "bookie2"):
            await cluster.start_bookie(name)
        found = await until(
            world, cluster, lambda found: found["waiting"]["reason"] != "too_few_bookies"
        )
        assert found["diagnosis"] == ["nothing stands still"]

    run(scenario)


def test_a_topic_that_nobody_uses_is_not_loaded_for_its_statistics() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC)
        publish = await filled(cluster, world, address)
        got = await consume.take(10)
        await consume.ack(1, [(each.ledger, each.entry) for each in got])
        loaded = await until(
            world, cluster, lambda found: not found["subscriptions"]["s"]["msgBacklog"]
        )
        await publish.stream.finish()
        await consume.stream.finish()
        await ask(cluster, "PUT", "unload")
        found = await stats(cluster)
        assert loaded_topics(cluster) == []
        assert found.keys() == loaded.keys()
        assert found["subscriptions"]["s"].keys() == loaded["subscriptions"]["s"].keys()
        for name in (
            "storageSize",
            "backlogSize",
            "ownerBroker",
            "underReplicated",
            "bookies",
            "diagnosis",
            "topicCreationTimeStamp",
        ):
            assert found[name] == loaded[name], name
        assert (
            found["subscriptions"]["s"]["markDeletePosition"]
            == loaded["subscriptions"]["s"]["markDeletePosition"]
        )
        assert found["owner"]["loadedSince"] is None

    run(scenario)


def test_a_topic_says_when_it_was_made() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        before_ms = now_ms(cluster)
        await world.clock.sleep(3.0)
        for topic in (TOPIC, NOT_KEPT):
            publish = await PublishClient.connect(world, await find(world, ["broker0"], topic))
            await publish.open(1, topic)
            made_ms = (await stats(cluster, topic))["topicCreationTimeStamp"]
            assert before_ms + 2_000 < made_ms <= now_ms(cluster)
            await publish.stream.finish()
        await world.clock.sleep(3.0)
        made_ms = (await stats(cluster))["topicCreationTimeStamp"]
        await ask(cluster, "PUT", "unload")
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        assert (await stats(cluster))["topicCreationTimeStamp"] == made_ms, (
            "that it was opened again changes nothing"
        )

    run(scenario)


def test_how_fast_each_consumer_acknowledges_and_gets_messages_again_is_told() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send(
            [(1, entry("p", 4 * number, batch=4, time_ms=now_ms(cluster))) for number in range(10)]
        )
        await publish.wait(1, 10)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, type=1)
        got = await consume.take(10)
        await consume.subscribe(2, TOPIC, type=1, permits=0)
        await consume.ack(1, [(each.ledger, each.entry) for each in got[:6]])
        await consume.say(redeliver=[pb.Redeliver(consumer_id=1)])
        await consume.take(4)
        await world.clock.sleep(12.0)
        subscription = (await stats(cluster))["subscriptions"]["s"]
        busy, idle = sorted(
            subscription["consumers"], key=lambda each: each["availablePermits"], reverse=True
        )
        for name, least in (("msgRateRedeliver", 16 / 14), ("messageAckRate", 6 / 14)):
            assert least <= busy[name] <= least * 14 / 10, name
            assert abs(busy[name] - subscription[name]) < 0.01, f"{name}: nobody else did"
            assert idle[name] == 0.0
        assert (
            busy["messagesRedelivered"],
            busy["avgMessagesPerEntry"],
            idle["avgMessagesPerEntry"],
        ) == (16, 4, 0)

    run(scenario)


def test_how_fast_messages_expire_is_told() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, permits=0)
        await filled(cluster, world, address)
        await world.clock.sleep(5.0)
        assert (await stats(cluster))["subscriptions"]["s"]["msgRateExpired"] == 0.0
        await ask(cluster, "POST", "subscription/s/expireMessages/1")
        await world.clock.sleep(11.0)
        subscription = (await stats(cluster))["subscriptions"]["s"]
        assert subscription["totalMsgExpired"] == 10
        assert 10 / 18 < subscription["msgRateExpired"] <= 1.0
        assert not subscription["isReplicated"]

    run(scenario)


def test_a_topic_that_keeps_nothing_tells_the_same_of_its_consumers() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        _ = await find(world, ["broker0"], NOT_KEPT)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, NOT_KEPT)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, NOT_KEPT)
        await world.clock.sleep(0.1)  # until the permits are there: without them it gets nothing
        await publish.send([(1, entry("p", 3 * number, batch=3)) for number in range(10)])
        got = await consume.take(10)
        await consume.ack(1, [(each.ledger, each.entry) for each in got])
        await world.clock.sleep(11.0)
        subscription = (await stats(cluster, NOT_KEPT))["subscriptions"]["s"]
        consumer = subscription["consumers"][0]
        assert 10 / 12 < consumer["messageAckRate"] <= 1.0
        assert (consumer["avgMessagesPerEntry"], consumer["msgRateRedeliver"]) == (3, 0.0)
        assert (subscription["msgRateExpired"], subscription["isReplicated"]) == (0.0, False)

    run(scenario)


def test_producers_and_consumers_say_which_client_they_are_of() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        async def binary(name: str, said: str) -> None:
            client = await BinaryClient.connect(world, "broker0:6650", shake_hands=False)
            client.say(
                binary_pb.Command(
                    type=2, connect=binary_pb.Connect(client_version=said, protocol_version=19)
                )
            )
            await client.next(3)
            await client.open_producer(1, TOPIC, name)
            await client.subscribe(1, TOPIC, subscription=name)

        publish, consume = (
            await PublishClient.connect(world, address),
            await ConsumeClient.connect(world, address),
        )
        await publish.open(1, TOPIC, "ours")
        await consume.subscribe(1, TOPIC, "ours")
        await binary("java", "Pulsar-Java-v4.0.0")
        # what Apache Pulsar's clients say that do not know their version
        await binary("nameless", "Pulsar Client")
        await binary("long", "v" * 60_000)
        found = await stats(cluster)
        versions = {each["producerName"]: each["clientVersion"] for each in found["publishers"]}
        assert versions == {
            "ours": program_name(),
            "java": "Pulsar-Java-v4.0.0",
            "nameless": "",
            "long": "v" * 128,
        }
        assert {
            name: each["consumers"][0]["clientVersion"]
            for name, each in found["subscriptions"].items()
        } == versions

    run(scenario)


def test_a_topic_with_a_backlog_is_loaded_to_say_how_old_it_is() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, permits=0)
        publish = await filled(cluster, world, address)
        await publish.stream.finish()
        await consume.stream.finish()
        await ask(cluster, "PUT", "unload")
        found = await stats(cluster)
        assert found["subscriptions"]["s"]["msgBacklog"] == 10
        assert loaded_topics(cluster) == [TOPIC]

    run(scenario)


def test_a_backlog_beyond_its_quota_holds_producers_and_says_so() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, permits=0)
        await filled(cluster, world, address)
        found = await until(
            world, cluster, lambda found: found["waiting"]["reason"] == "backlog_quota"
        )
        assert abs(found["waiting"]["sinceMs"] - now_ms(cluster)) < 2_000
        assert "above limitSize 50" in found["diagnosis"][0]
        assert found["backlogQuotaLimitSize"] == 50

    run(
        scenario,
        backlog_quota_default_limit_bytes=50,
        managed_ledger_maintenance_interval_seconds=1.0,
    )


def test_a_dispatch_rate_that_is_reached_is_told() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await filled(cluster, world, address)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC)
        await consume.take(1)
        found = await until(world, cluster, lambda found: reason(found) == "rate_limited")
        assert found["subscriptions"]["s"]["waiting"]["sinceMs"] > 0
        await consume.take(9)

    run(scenario, dispatch_throttling_rate_per_subscription_in_msg=1)


def test_the_log_and_its_cursors_are_shown_as_the_tools_of_apache_pulsar_expect() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        publish, consume = (
            await PublishClient.connect(world, address),
            await ConsumeClient.connect(world, address),
        )
        await publish.open(1, TOPIC)
        await publish.send([(1, entry("p", number)) for number in range(10)])
        await publish.wait(1, 10)
        await consume.subscribe(7, TOPIC, permits=6)
        got = await consume.take(6)
        ledger = got[0].ledger
        await consume.ack(7, [(ledger, number) for number in (0, 1, 3, 5)])
        log = json.loads(await ask(cluster, "GET", "internalStats"))
        assert (
            log["entriesAddedCounter"],
            log["numberOfEntries"],
            log["pendingAddEntriesCount"],
        ) == (10, 10, 0)
        cursor = log["cursors"]["s"]
        assert (cursor["markDeletePosition"], cursor["readPosition"]) == (
            f"{ledger}:1",
            f"{ledger}:10",
        )
        assert (
            cursor["individuallyDeletedMessages"]
            == f"[({ledger}:2..{ledger}:3],({ledger}:4..{ledger}:5]]"
        )
        assert (cursor["messagesConsumedCounter"], cursor["numberOfEntriesInBacklog"]) == (4, 6)
        assert (
            cursor["numberOfEntriesSinceFirstNotAckedMessage"],
            cursor["totalNonContiguousDeletedMessagesRange"],
        ) == (8, 2)
        assert (
            cursor["cursorLedger"],
            cursor["state"],
            cursor["active"],
            cursor["waitingReadOp"],
        ) == (-1, "NoLedger", True, False)
        assert log["waitingCursorsCount"] == 0
        await consume.flow(7, 100)
        await consume.take(4)
        await consume.ack(7, [(ledger, 9)], cumulative=True)
        log = json.loads(await ask(cluster, "GET", "internalStats"))
        assert (log["waitingCursorsCount"], log["cursors"]["s"]["messagesConsumedCounter"]) == (
            1,
            10,
        )
        assert log["cursors"]["s"]["individuallyDeletedMessages"] == "[]"

    run(scenario)
