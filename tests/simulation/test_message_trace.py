"""The trace of a message says where it is: in the log, on bookies, and for each subscription."""

from __future__ import annotations

import json
import struct
from typing import Any

from pulsarish.metadata.records import LostRange
from pulsarish.model.position import Position
from pulsarish.runtime.seams import World
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire._pb.message_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata
from pulsarish.wire.entry import encode_entry
from tests.simulation.test_topic_stats import TOPIC, answered, ask, filled, now_ms, run
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient

Trace = dict[str, Any]


async def trace(cluster: BrokerCluster, at: tuple[int, int], **query: str) -> Trace:
    what = f"ledger/{at[0]}/entry/{at[1]}/trace"
    found: Trace = json.loads(await ask(cluster, "GET", what, **query))
    return found


async def refusal(cluster: BrokerCluster, at: tuple[int, int], **query: str) -> tuple[int, str]:
    what = f"ledger/{at[0]}/entry/{at[1]}/trace"
    answer = await answered(cluster, "GET", what, **query)
    return answer.status, json.loads(answer.body)["reason"]


def batch(*messages: tuple[str, dict[str, str]], time_ms: int) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=time_ms)
    metadata.num_messages_in_batch = len(messages)
    payload = b""
    for number, (key, properties) in enumerate(messages):
        single = SingleMessageMetadata(payload_size=2, partition_key=key, sequence_id=number + 5)
        single.properties.extend(KeyValue(key=k, value=v) for k, v in properties.items())
        head = single.SerializeToString()
        payload += struct.pack(">I", len(head)) + head + b"ab"
    return encode_entry(metadata, payload)


async def published(world: World, address: str, *entries: bytes) -> list[tuple[int, int]]:
    publish = await PublishClient.connect(world, address)
    await publish.open(1, TOPIC, "another")
    await publish.send([(1, each) for each in entries])
    found = await publish.wait(1, len(entries))
    return [each for each in found if isinstance(each, tuple)]


def test_each_subscription_says_where_the_message_is() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await filled(cluster, world, address, 10)
        one, other = [await ConsumeClient.connect(world, address) for _ in range(2)]
        await one.subscribe(1, TOPIC, type=1, permits=6, consumer_name="one")
        await other.subscribe(1, TOPIC, "first", permits=2, consumer_name="only")
        got = [(each.ledger, each.entry) for each in await one.take(6)]
        await other.take(2)
        ledger = got[0][0]
        await one.ack(1, [got[0], got[3]])
        await world.clock.sleep(7)
        found = await trace(cluster, got[0])
        assert (found["state"], found["messageId"]) == ("stored", f"{ledger}:0")
        assert found["subscriptions"]["s"]["state"] == "acknowledged"
        assert found["subscriptions"]["first"] == {
            "type": "exclusive",
            "state": "consumer",
            "consumerName": "only",
            "sinceMs": found["subscriptions"]["first"]["sinceMs"],
            "dueMs": 0,
            "redeliveryCount": 0,
            "remainingMessages": None,
            "isHole": False,
            "matchesFilter": None,
        }
        assert 0 < found["subscriptions"]["first"]["sinceMs"] <= now_ms(cluster) - 7_000
        assert "1 of 2 subscriptions have acknowledged it" in found["explanation"]
        assert "published 7 s ago by producer p" in found["explanation"]
        message = found["message"]
        assert (message["producerName"], message["sequenceId"]) == ("p", 0)
        assert (message["payloadBytes"], message["messagesInBatch"]) == (1, 1)
        assert len(found["ledger"]["copies"]) == found["ledger"]["writeQuorum"]
        assert [each["state"] for each in found["ledger"]["copies"]] == ["", "", ""]

        held = (await trace(cluster, got[1], subscription="s"))["subscriptions"]
        assert list(held) == ["s"]
        assert (held["s"]["state"], held["s"]["consumerName"]) == ("consumer", "one")
        assert held["s"]["isHole"]
        states = (await trace(cluster, (ledger, 9)))["subscriptions"]
        assert [states[name]["isHole"] for name in ("s", "first")] == [False, False]
        assert {each["state"] for each in states.values()} <= {"unread", "waiting"}

        await one.say(redeliver=[pb.Redeliver(consumer_id=1, ledgers=[ledger], entries=[2])])
        await world.clock.sleep(0.1)
        again = (await trace(cluster, got[2]))["subscriptions"]["s"]
        assert (again["state"], again["redeliveryCount"]) == ("waiting", 1)
        await one.flow(1, 5)
        await one.take(5)
        again = (await trace(cluster, got[2]))["subscriptions"]["s"]
        assert (again["state"], again["consumerName"]) == ("consumer", "one")

    run(scenario)


def test_one_message_of_a_batch_has_its_own_state_and_properties() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        eu, us = ("k", {"region": "eu"}), ("l", {"region": "us"})
        [at] = await published(world, address, batch(eu, us, eu, time_ms=now_ms(cluster)))
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, type=1)
        await consume.subscribe(
            2,
            TOPIC,
            "filtered",
            type=1,
            subscription_properties={"pulsarish.filter": "region = 'eu'"},
        )
        await consume.take(2)
        await consume.ack(1, [at], batch_indexes=[2])
        whole = await trace(cluster, at)
        assert whole["message"]["key"] is None
        assert whole["message"]["messagesInBatch"] == 3
        assert whole["subscriptions"]["s"]["remainingMessages"] == 2
        assert whole["subscriptions"]["filtered"]["matchesFilter"]
        second = await trace(cluster, at, batchIndex="1")
        assert second["messageId"] == f"{at[0]}:{at[1]}:1"
        message = second["message"]
        assert (message["key"], message["properties"]) == ("l", {"region": "us"})
        assert (message["sequenceId"], message["payloadBytes"]) == (6, 2)
        assert second["subscriptions"]["s"]["state"] == "consumer"
        filtered = second["subscriptions"]["filtered"]
        assert (filtered["state"], filtered["matchesFilter"]) == ("acknowledged", False)
        third = (await trace(cluster, at, batchIndex="2"))["subscriptions"]
        assert (third["s"]["state"], third["filtered"]["state"]) == ("acknowledged", "consumer")
        assert third["filtered"]["matchesFilter"]
        status, reason = await refusal(cluster, at, batchIndex="3")
        assert (status, "3 messages, from 0" in reason) == (404, True)

    run(scenario)


def test_each_copy_is_read_when_asked_and_a_bookie_that_is_away_is_silent() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await filled(cluster, world, address, 1)
        at = await last(cluster)
        found = await trace(cluster, at, copies="true")
        copies = found["ledger"]["copies"]
        assert [each["state"] for each in copies] == ["held"] * len(copies)
        assert len({each["checksum"] for each in copies}) == 1
        assert "3 of 3 copies are there and good." in found["explanation"]
        assert "not say" not in found["explanation"]
        cluster.nodes[copies[0]["bookie"]].crash()
        await world.clock.sleep(30)
        found = await trace(cluster, at, copies="true")
        assert [each["state"] for each in found["ledger"]["copies"]] == ["silent", "held", "held"]
        assert [each["isRegistered"] for each in found["ledger"]["copies"]] == [False, True, True]
        assert (
            "2 of 3 copies are there and good. 1 bookie does not say whether the entry is there."
        ) in found["explanation"]
        assert found["message"]["producerName"] == "p"

    run(scenario)


async def last(cluster: BrokerCluster) -> tuple[int, int]:
    found = json.loads(await ask(cluster, "GET", "lastMessageId"))
    return found["ledgerId"], found["entryId"]


def test_what_is_not_in_the_log_says_why() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await filled(cluster, world, address, 3)
        ledger, entry = await last(cluster)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, permits=0)
        ahead = await trace(cluster, (ledger, entry + 1))
        assert (ahead["state"], ahead["message"], ahead["subscriptions"]) == ("unwritten", None, {})
        assert f"the last confirmed entry is {ledger}:2" in ahead["explanation"]
        status, reason = await refusal(cluster, (ledger + 1_000_000, 0))
        assert (status, "no ledger of topic" in reason) == (412, True)
        assert (await refusal(cluster, (ledger, 0), subscription="none"))[0] == 404
        topic = next(iter(cluster.brokers["broker0"]._topics.loaded.values()))

        async def roll(_world: World) -> None:
            await topic.log.roll()

        await cluster.nodes["broker0"].run(roll)
        await world.clock.sleep(1)
        await published(world, address, batch(("k", {}), time_ms=now_ms(cluster)))
        found = await trace(cluster, (ledger, entry))
        assert (found["state"], found["ledger"]["state"]) == ("stored", "closed")
        assert found["ledger"]["closedMs"] > 0
        absent = await trace(cluster, (ledger, entry + 1))
        assert (absent["state"], absent["ledger"]) == ("absent", None)
        assert "ended with 3 entries" in absent["explanation"]
        # As an operator's skip-lost leaves it when the topic is loaded again.
        topic.log._chain._lost.append(LostRange(ledger, 1, 1))
        lost = await trace(cluster, (ledger, 1))
        assert (lost["state"], lost["message"], lost["subscriptions"]) == ("lost", None, {})
        assert lost["ledger"]["ledgerId"] == ledger
        assert f"entries 1 to 1 of ledger {ledger}" in lost["explanation"]
        await ask(cluster, "POST", "subscription/s/skip_all")
        await ask(cluster, "POST", "trim")
        await world.clock.sleep(1)
        trimmed = await trace(cluster, (ledger, entry))
        assert trimmed["state"] == "trimmed"
        assert f"begins at {topic.log.first_position}" in trimmed["explanation"]
        assert topic.log.first_position > Position(ledger, entry)

    run(scenario)


def test_a_message_beyond_its_time_to_live_is_expired() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await filled(cluster, world, address, 1)
        at = await last(cluster)
        found = await trace(cluster, at)
        assert (found["expireTimestamp"] - found["message"]["publishTimestamp"]) == 100_000
        assert not found["isExpired"]
        await world.clock.sleep(101)
        found = await trace(cluster, at)
        assert found["isExpired"]
        assert "Its time is over" in found["explanation"]

    run(scenario, ttl_duration_default_in_seconds=100)
