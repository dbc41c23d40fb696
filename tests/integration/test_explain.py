"""Why a subscription or producer does not move, on a real cluster: each reason is caused and read
on the command line.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pulsarish
from pulsarish import ConsumerKeySharedPolicy, ConsumerType, KeySharedMode
from pulsarish.wire.entry import key_hash
from tests.support.commands import run_command
from tests.support.explained import Asked, running


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with running(tmp_path_factory.mktemp("explain") / "cluster") as cluster:
        found = Asked(cluster)
        yield found
        found.client.shutdown()


def test_no_consumers(asked: Asked) -> None:
    asked.run("topics", "create", "nobody")
    asked.run("subscriptions", "create", "nobody", "s", "--from", "earliest")
    asked.publish("nobody", 3)
    found = asked.subscription("nobody", "no_consumers", "the backlog of 3 entries")
    assert found["sinceMs"] > 0


def test_no_permits_names_who_holds_how_many_for_how_long(asked: Asked) -> None:
    consumer = asked.subscribe("idle", queue=2, consumer_name="lazy")
    asked.publish("idle", 10)
    asked.subscription(
        "idle",
        "no_permits",
        "consumer lazy has asked for nothing more for",
        "Consumer lazy holds 2 unacknowledged",
    )
    taken = [consumer.receive(timeout_millis=30_000) for _ in range(10)]
    asked.subscription(
        "idle",
        "unacknowledged",
        "The whole backlog of 10 entries is delivered",
        "Consumer lazy holds 10 unacknowledged",
    )
    consumer.acknowledge_cumulative(taken[-1])
    assert "idle" in asked.run("subscriptions", "explain", "idle", "s").splitlines()[0]
    consumer.close()


def test_too_much_is_unacknowledged_by_one_or_by_all(asked: Asked) -> None:
    asked.run("topics", "create", "unacked")
    asked.run("topics", "set-max-unacked-messages-per-consumer", "unacked", "3")
    one = asked.subscribe("unacked", kind=ConsumerType.Shared, consumer_name="one")
    asked.publish("unacked", 10)
    found = asked.subscription(
        "unacked",
        "blocked_on_unacked_messages",
        "Consumer one holds 3",
        "the limit of each consumer is 3",
    )
    assert "get-max-unacked-messages-per-consumer" in found["help"]
    asked.run("topics", "set-max-unacked-messages-per-subscription", "unacked", "4")
    two = asked.subscribe("unacked", kind=ConsumerType.Shared, consumer_name="two")
    asked.subscription(
        "unacked", "blocked_on_unacked_messages", "the limit is 4 for all consumers together"
    )
    one.close()
    two.close()


def test_too_many_acknowledged_ranges(asked: Asked) -> None:
    consumer = asked.subscribe("holes", kind=ConsumerType.Shared, queue=8)
    asked.publish("holes", 20)
    taken = [consumer.receive(timeout_millis=30_000) for _ in range(7)]
    for number in (1, 3, 5):
        consumer.acknowledge(taken[number])
    asked.subscription("holes", "too_many_holes", "3 acknowledged ranges lie behind")
    consumer.close()


def test_a_dispatch_rate(asked: Asked) -> None:
    asked.run("topics", "create", "slow")
    asked.run(
        "topics", "set-subscription-dispatch-rate", "slow", "--messages", "1", "--period", "20s"
    )
    consumer = asked.subscribe("slow")
    asked.publish("slow", 10)
    asked.subscription("slow", "rate_limited", "subscription-dispatch-rate (1 message in 20 s)")
    consumer.close()


def test_the_dispatch_rate_of_the_broker(asked: Asked) -> None:
    consumer = asked.subscribe("limited")
    option = "dispatch_throttling_rate_in_byte"
    asked.run("brokers", "update-dynamic-config", option, "1")
    while asked.run("brokers", "config", "--name", option).split()[1] != "1":
        continue
    asked.publish("limited", 10)
    found = asked.subscription(
        "limited", "broker_rate_limited", "the dispatch rate of the broker (1 byte a second)"
    )
    assert "throttling" in found["help"]
    asked.run("brokers", "delete-dynamic-config", option)
    for _ in range(10):
        consumer.receive(timeout_millis=30_000)
    consumer.close()


def test_delays(asked: Asked) -> None:
    consumer = asked.subscribe("later", kind=ConsumerType.Shared)
    in_a_minute = int(time.time() * 1000) + 60_000
    asked.publish("later", 2, deliver_at=in_a_minute)
    found = asked.subscription(
        "later", "delayed", "2 entries are to be delivered later; the first of them is due in "
    )
    assert found["retryAtMs"] >= in_a_minute
    # Those that are due soon stay in memory.
    asked.publish("later", 30, deliver_at=int(time.time() * 1000) + 9_000)
    asked.subscription(
        "later", "too_many_delayed", "as many as delayed_delivery_max_entries_per_subscription"
    )
    consumer.close()


def keys_in(first: int, last: int) -> list[str]:
    return [
        key for number in range(2_000) if first <= key_hash((key := f"k{number}").encode()) <= last
    ]


def sticky(first: int, last: int) -> ConsumerKeySharedPolicy:
    return ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(first, last)])


def test_keys_of_nobody_and_of_a_consumer_that_takes_nothing(asked: Asked) -> None:
    kind = ConsumerType.KeyShared
    low = asked.subscribe(
        "keys", kind=kind, queue=1, consumer_name="low", key_shared_policy=sticky(0, 20_000)
    )
    asked.publish("keys", 1, partition_key=keys_in(40_000, 65_535)[0])
    asked.subscription(
        "keys", "keys_unassigned", "1 entry has a key in the hash ranges of no connected consumer"
    )
    high = asked.subscribe(
        "keys", kind=kind, consumer_name="high", key_shared_policy=sticky(40_000, 65_535)
    )
    asked.publish("keys", 30, partition_key=keys_in(0, 20_000)[0])
    asked.subscription(
        "keys", "keys_held", "for consumer low (no permits)", "No more is read ahead of them"
    )
    low.close()
    high.close()


def test_keys_that_have_moved(asked: Asked) -> None:
    kind, name = ConsumerType.KeyShared, "draining"
    first = asked.subscribe(name, kind=kind, consumer_name="first")
    keys = [f"k{number}" for number in range(40)]
    for key in keys:
        asked.publish(name, 1, partition_key=key)
    for _ in keys:
        first.receive(timeout_millis=30_000)
    second = asked.subscribe(name, kind=kind, consumer_name="second")
    for key in keys[:10]:
        asked.publish(name, 1, partition_key=key)
    found = asked.subscription(name, "keys_draining", "held by consumer first")
    assert {each["consumer"] for each in found["data"]["keys"]} == {"first"}
    first.close()
    second.close()


def test_chunks_of_a_consumer_that_takes_nothing(asked: Asked) -> None:
    asked.run("topics", "create", "chunks")
    asked.run("topics", "set-max-message-size", "chunks", "100KB")
    asked.run("topics", "set-max-unacked-messages-per-consumer", "chunks", "2")
    one = asked.subscribe("chunks", kind=ConsumerType.Shared, consumer_name="one")
    producer = asked.client.create_producer("chunks", batching_enabled=False, chunking_enabled=True)
    producer.send_async(b"x" * 450_000, lambda *_: None)
    producer.flush()
    asked.subscription("chunks", "blocked_on_unacked_messages", "Consumer one holds 2")
    two = asked.subscribe("chunks", kind=ConsumerType.Shared, consumer_name="two")
    asked.subscription("chunks", "chunks_held", "for consumer one, which has the first chunks")
    for each in (producer, one, two):
        each.close()


def test_a_new_active_consumer_waits_for_the_former(asked: Asked) -> None:
    old = asked.subscribe("failover", kind=ConsumerType.Failover, consumer_name="b", queue=2)
    asked.publish("failover", 10)
    asked.subscription("failover", "no_permits", "Consumer b holds 2")
    new = asked.subscribe("failover", kind=ConsumerType.Failover, consumer_name="a")
    found = asked.subscription(
        "failover", "handing_over", "Consumer a has become the active one and begins in "
    )
    assert found["retryAtMs"] > 0
    asked.subscription("failover", "unacknowledged", "Consumer a holds 10")
    old.close()
    new.close()


def test_a_client_that_reads_nothing(asked: Asked, tmp_path: Path) -> None:
    asked.run("topics", "create", "full")
    url = asked.cluster.service_urls()["pulsarish"]
    words = [
        sys.executable,
        "-m",
        "pulsarish",
        "consume",
        "full",
        "-s",
        "s",
        "--from",
        "earliest",
        "--follow",
        "--url",
        url,
    ]
    with (tmp_path / "out").open("wb") as out:
        program = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        asked.until_subscribed("full")
        program.send_signal(signal.SIGSTOP)
        asked.publish("full", 100, size=500_000)
        asked.subscription(
            "full", "connection_full", "is not read from the connection by its client"
        )
    finally:
        program.kill()
        program.wait()


def test_messages_that_a_topic_keeps_for_nobody_are_dropped(asked: Asked) -> None:
    topic = "non-persistent://public/default/dropping"
    asked.run("topics", "create", topic)
    asked.run("subscriptions", "create", topic, "s")
    asked.publish(topic, 3)
    asked.subscription(
        topic,
        "dropped_no_consumers",
        "each message that is published is dropped",
        "3 were dropped so far",
    )
    consumer = asked.subscribe(topic, queue=1)
    asked.publish(topic, 5)
    asked.subscription(topic, "dropped_no_permits", "because no consumer has permits")
    consumer.close()


def test_messages_are_dropped_for_a_client_that_reads_nothing(asked: Asked, tmp_path: Path) -> None:
    topic = "non-persistent://public/default/dropping-full"
    asked.run("topics", "create", topic)
    url = asked.cluster.service_urls()["pulsarish"]
    words = [
        sys.executable,
        "-m",
        "pulsarish",
        "consume",
        topic,
        "-s",
        "s",
        "--follow",
        "--url",
        url,
    ]
    with (tmp_path / "out").open("wb") as out:
        program = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        asked.until_subscribed(topic)
        program.send_signal(signal.SIGSTOP)
        asked.publish(topic, 100, size=500_000)
        asked.subscription(
            topic, "dropped_no_permits", "because the consumers' connections are full"
        )
    finally:
        program.kill()
        program.wait()


def test_a_producer_that_is_held_by_quota_rate_turn_or_end(asked: Asked) -> None:
    asked.run("topics", "create", "quota")
    asked.run("subscriptions", "create", "quota", "s", "--from", "earliest")
    asked.publish("quota", 5, size=1_000)
    asked.run(
        "topics",
        "set-backlog-quota",
        "quota",
        "--limit",
        "1KB",
        "--policy",
        "producer_request_hold",
    )
    assert "limitSize 1024" in asked.publishing("quota", "backlog_quota")["explanation"]

    asked.run("topics", "create", "rate")
    asked.run("topics", "set-publish-rate", "rate", "--messages", "1")
    producer = asked.client.create_producer("rate", batching_enabled=False)
    for _ in range(30):
        producer.send_async(b"x", lambda *_: None)
    found = asked.publishing("rate", "rate_limited")
    assert (
        found["explanation"]
        == "Publishing has reached the policy publish-rate (1 message a second)."
    )
    asked.run("topics", "remove-publish-rate", "rate")
    producer.close()

    alone = asked.client.create_producer(
        "alone", producer_name="first", access_mode=pulsarish.ProducerAccessMode.Exclusive
    )
    turn = threading.Thread(target=_wait_for_turn, args=(asked.client, "alone"), daemon=True)
    turn.start()
    waiting = asked.until(
        lambda: next(
            iter(asked.publishing("alone", "")["publishers"][1:]),
            {"state": "", "reason": None, "explanation": ""},
        ),
        "exclusive_producer",
    )
    assert (
        waiting["producerName"],
        "producer 'first' comes before it" in waiting["explanation"],
    ) == ("second", True)
    alone.close()
    turn.join(30)

    asked.publish("sealed", 1)
    asked.run("topics", "terminate", "sealed", "--yes")
    found = asked.publishing("sealed", "terminated")
    assert "nothing can be published to it any more" in found["explanation"]


def _wait_for_turn(client: pulsarish.Client, topic: str) -> None:
    client.create_producer(
        topic, producer_name="second", access_mode=pulsarish.ProducerAccessMode.WaitForExclusive
    ).close()


def test_partitions_topics_that_keep_nothing_and_what_there_is_not(asked: Asked) -> None:
    asked.run("topics", "create", "parts", "--partitions", "3")
    consumer = asked.subscribe("parts", queue=1)
    asked.publish("parts-partition-1", 5)
    asked.until(
        lambda: asked.admin.subscriptions.explain("parts", "s")["partitions"][
            "persistent://public/default/parts-partition-1"
        ],
        "no_permits",
    )
    shown = asked.run("subscriptions", "explain", "parts", "s").splitlines()
    assert shown[0] == "persistent://public/default/parts: 1 of 3 partitions wait."
    assert "parts-partition-1, subscription s: waiting for" in "\n".join(shown)
    assert "1 of 3 partitions" not in asked.run("topics", "explain", "parts").splitlines()[0]
    consumer.close()

    volatile = "non-persistent://public/default/volatile"
    consumer = asked.subscribe(volatile)
    assert "active" in asked.run("subscriptions", "explain", volatile, "s").splitlines()[0]
    asked.until(lambda: asked.admin.subscriptions.explain(volatile, "s"), "")
    asked.admin.topics.explain(volatile)

    asked.run("topics", "create", "here")
    for words, text in (
        (("subscriptions", "explain", "here", "s"), "SubscriptionNotFound"),
        (("subscriptions", "explain", "nowhere", "s"), "TopicNotFound"),
        (("topics", "explain", "nowhere"), "TopicNotFound"),
    ):
        done = run_command(asked.environment, *words)
        assert (done.exit_code, text in done.stderr) == (1, True), done.stderr
    assert "idle" in asked.run("topics", "explain", "here").splitlines()[0], "nobody has opened it"
