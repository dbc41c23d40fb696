"""Apache Pulsar's official Python client, by its own words only: python_client.py SCENARIO
SERVICE_URL ADMIN_URL NAME.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pulsar
import pulsar.asyncio
import pulsar.schema

RECEIVE_MS = 20_000
SCENARIOS: dict[str, Callable[[World], None]] = {}


class World:
    def __init__(self, service_url: str, admin_url: str, name: str) -> None:
        self.service_url = service_url
        self.admin_url = admin_url
        self.topic = f"persistent://public/default/{name}"
        self.client = pulsar.Client(service_url, operation_timeout_seconds=60)

    def admin(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.admin_url}{path}"
        while True:
            request = urllib.request.Request(
                url, data, {"Content-Type": "application/json"}, method=method
            )
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    text = response.read()
            except urllib.error.HTTPError as error:
                if error.code != 307:
                    raise
                url = error.headers["Location"]  # urllib itself follows only what reads
                continue
            return json.loads(text) if text else None

    def subscribe(self, topic: Any = None, name: str = "s", **options: Any) -> Any:
        options.setdefault("initial_position", pulsar.InitialPosition.Earliest)
        return self.client.subscribe(topic or self.topic, name, **options)


def scenario(work: Callable[[World], None]) -> Callable[[World], None]:
    SCENARIOS[work.__name__] = work
    return work


def take(consumer: Any, count: int, *, ack: bool = True) -> list[Any]:
    messages = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS)
        messages.append(message)
        if ack:
            consumer.acknowledge(message)
    return messages


def take_from(consumers: Sequence[Any], count: int) -> Iterator[tuple[int, Any]]:
    """So many messages, whichever consumer gets them, and no more; each with the index of its
    consumer.
    """
    came = 0
    deadline = time.monotonic() + 90
    while came < count:
        assert time.monotonic() < deadline, f"{came} of {count} came"
        for index, consumer in enumerate(consumers):
            try:
                message = consumer.receive(20)
            except pulsar.Timeout:
                continue
            came += 1
            consumer.acknowledge(message)
            yield index, message
    same(came, count)
    for consumer in consumers:
        nothing_more(consumer)


def nothing_more(consumer: Any, wait_ms: int = 300) -> None:
    try:
        message = consumer.receive(wait_ms)
    except pulsar.Timeout:
        return
    raise AssertionError(f"one more message: {message.data()!r} at {message.message_id()}")


def refused(work: Callable[[], object], *kinds: type[Exception]) -> None:
    try:
        work()
    except kinds:
        return
    raise AssertionError(f"it was not refused with any of {kinds}")


def same(found: object, wanted: object) -> None:
    assert found == wanted, f"found {found!r}, wanted {wanted!r}"


@scenario
def produce_consume(world: World) -> None:
    producer = world.client.create_producer(
        world.topic, batching_enabled=False, properties={"of": "producer"}
    )
    ids = [
        producer.send(
            b"m%d" % number,
            properties={"n": str(number)},
            partition_key=f"k{number}",
            event_timestamp=number + 1,
        )
        for number in range(100)
    ]
    same(len({str(each) for each in ids}), 100)
    consumer = world.subscribe()
    messages = take(consumer, 100)
    same([message.data() for message in messages], [b"m%d" % number for number in range(100)])
    same(
        [message.properties()["n"] for message in messages], [str(number) for number in range(100)]
    )
    same([message.partition_key() for message in messages], [f"k{number}" for number in range(100)])
    same([message.event_timestamp() for message in messages], [number + 1 for number in range(100)])
    same([str(message.message_id()) for message in messages], [str(each) for each in ids])
    nothing_more(consumer)
    same(consumer.get_last_message_id(), messages[-1].message_id())
    consumer.close()
    # What was acknowledged does not come again.
    nothing_more(world.subscribe())


@scenario
def batches(world: World) -> None:
    producer = world.client.create_producer(
        world.topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=10,
        batching_max_messages=50,
        block_if_queue_full=True,
    )
    done = threading.Event()
    results: Counter[object] = Counter()

    def sent(result: object, _message_id: object) -> None:
        results[result] += 1
        if results.total() == 2_000:
            done.set()

    for number in range(2_000):
        producer.send_async(b"%d" % number, sent)
    producer.flush()
    assert done.wait(30)
    same(dict(results), {pulsar.Result.Ok: 2_000})
    consumer = world.subscribe(batch_index_ack_enabled=True)
    same([int(message.data()) for message in take(consumer, 2_000, ack=False)], list(range(2_000)))
    consumer.close()
    consumer = world.subscribe(batch_index_ack_enabled=True)
    messages = take(consumer, 2_000, ack=False)
    for message in messages[:125]:  # two batches and a half, if they were full
        consumer.acknowledge(message)
    consumer.close()
    consumer = world.subscribe(batch_index_ack_enabled=True)
    same(
        [int(message.data()) for message in take(consumer, 1_875, ack=False)],
        list(range(125, 2_000)),
    )
    consumer.acknowledge_cumulative(messages[-1])
    consumer.close()
    nothing_more(world.subscribe())


@scenario
def compression(world: World) -> None:
    kinds = [
        pulsar.CompressionType.NONE,
        pulsar.CompressionType.LZ4,
        pulsar.CompressionType.ZLib,
        pulsar.CompressionType.ZSTD,
        pulsar.CompressionType.SNAPPY,
    ]
    consumer = world.subscribe()
    for kind in kinds:
        for batching in (False, True):
            producer = world.client.create_producer(
                world.topic, compression_type=kind, batching_enabled=batching
            )
            for _ in range(5):
                producer.send_async(b"abc" * 5_000, None)
            producer.flush()
            producer.close()
            same([message.data() for message in take(consumer, 5)], [b"abc" * 5_000] * 5)


@scenario
def partitioned(world: World) -> None:
    path = world.topic.replace("://", "/")
    world.admin("PUT", f"/admin/v2/{path}/partitions", 4)
    same(len(world.client.get_topic_partitions(world.topic)), 4)
    producer = (
        world.client.create_producer(
            world.topic, hashing_scheme=pulsar.ProducerHashingScheme.Murmur3_32Hash
        )
        if hasattr(pulsar, "ProducerHashingScheme")
        else world.client.create_producer(world.topic)
    )
    for number in range(200):
        producer.send_async(b"%d" % number, None, partition_key=f"key-{number % 10}")
    producer.flush()
    consumer = world.subscribe()
    messages = take(consumer, 200)
    by_key: dict[str, list[int]] = {}
    partitions: dict[str, set[str]] = {}
    for message in messages:
        by_key.setdefault(message.partition_key(), []).append(int(message.data()))
        partitions.setdefault(message.partition_key(), set()).add(message.topic_name())
    for numbers in by_key.values():
        same(numbers, sorted(numbers))
    same({len(each) for each in partitions.values()}, {1})
    assert len(set.union(*partitions.values())) > 1, "all keys went to one partition"
    nothing_more(consumer)


@scenario
def shared(world: World) -> None:
    options = {"consumer_type": pulsar.ConsumerType.Shared, "receiver_queue_size": 10}
    first, second = world.subscribe(**options), world.subscribe(**options)
    producer = world.client.create_producer(world.topic, batching_enabled=False)
    for number in range(100):
        producer.send(b"%d" % number)
    got: dict[int, list[int]] = {0: [], 1: []}
    for index, message in take_from([first, second], 100):
        got[index].append(int(message.data()))
    same(sorted(got[0] + got[1]), list(range(100)))
    assert min(map(len, got.values())), "one consumer got everything"


@scenario
def failover(world: World) -> None:
    options = {"consumer_type": pulsar.ConsumerType.Failover}
    first = world.subscribe(consumer_name="a", **options)
    producer = world.client.create_producer(world.topic, batching_enabled=False)
    for number in range(20):
        producer.send(b"%d" % number)
    same([int(message.data()) for message in take(first, 10)], list(range(10)))
    second = world.subscribe(consumer_name="b", **options)
    nothing_more(second)
    first.close()
    same([int(message.data()) for message in take(second, 10)], list(range(10, 20)))
    nothing_more(second)


@scenario
def negative_ack(world: World) -> None:
    consumer = world.subscribe(
        consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=300
    )
    producer = world.client.create_producer(world.topic, batching_enabled=False)
    for number in range(10):
        producer.send(b"%d" % number)
    for number, message in enumerate(take(consumer, 10, ack=False)):
        (consumer.negative_acknowledge if number % 2 else consumer.acknowledge)(message)
    again = take(consumer, 5)
    same(sorted(int(message.data()) for message in again), [1, 3, 5, 7, 9])
    same({message.redelivery_count() for message in again}, {1})
    nothing_more(consumer, 600)


@scenario
def ack_timeout(world: World) -> None:
    consumer = world.subscribe(
        consumer_type=pulsar.ConsumerType.Shared, unacked_messages_timeout_ms=10_000
    )
    producer = world.client.create_producer(world.topic, batching_enabled=False)
    for number in range(3):
        producer.send(b"%d" % number)
    take(consumer, 3, ack=False)
    same(sorted(int(message.data()) for message in take(consumer, 3)), [0, 1, 2])


@scenario
def dead_letters(world: World) -> None:
    policy = pulsar.ConsumerDeadLetterPolicy(2, world.topic + "-dead", "initial")
    consumer = world.subscribe(
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=policy,
        name="work",
    )
    producer = world.client.create_producer(world.topic, batching_enabled=False)
    producer.send(b"poison", properties={"why": "bad"})
    producer.send(b"good")
    attempts = 0
    deadline = time.monotonic() + 60
    dead = None
    graves = world.client.subscribe(
        world.topic + "-dead", "graves", initial_position=pulsar.InitialPosition.Earliest
    )
    while dead is None and time.monotonic() < deadline:
        try:
            message = consumer.receive(300)
            if message.data() == b"poison":
                attempts += 1
                consumer.negative_acknowledge(message)
            else:
                consumer.acknowledge(message)
        except pulsar.Timeout:
            try:
                dead = graves.receive(300)
            except pulsar.Timeout:
                continue
    assert dead is not None, f"nothing in the dead letter topic after {attempts} attempts"
    same((dead.data(), dead.properties()["why"], attempts), (b"poison", "bad", 3))
    # The policy's initial subscription was made with the topic, so that nothing dead is lost.
    initial = world.client.subscribe(world.topic + "-dead", "initial")
    same(initial.receive(RECEIVE_MS).data(), b"poison")


@scenario
def reader(world: World) -> None:
    producer = world.client.create_producer(
        world.topic,
        batching_enabled=True,
        batching_max_messages=10,
        batching_max_publish_delay_ms=50,
    )
    ids: list[Any] = []
    for number in range(100):
        producer.send_async(b"%d" % number, lambda _, message_id: ids.append(message_id))
    producer.flush()
    whole = world.client.create_reader(world.topic, pulsar.MessageId.earliest)
    read = []
    while whole.has_message_available():
        read.append(int(whole.read_next(RECEIVE_MS).data()))
    same(read, list(range(100)))
    middle = world.client.create_reader(world.topic, ids[41])
    same(int(middle.read_next(RECEIVE_MS).data()), 42)
    latest = world.client.create_reader(world.topic, pulsar.MessageId.latest)
    same(latest.has_message_available(), False)
    producer.send(b"new")
    same(latest.read_next(RECEIVE_MS).data(), b"new")
    whole.seek(ids[9])
    same(int(whole.read_next(RECEIVE_MS).data()), 10)
    whole.seek(pulsar.MessageId.earliest)
    same(int(whole.read_next(RECEIVE_MS).data()), 0)


@scenario
def seek(world: World) -> None:
    producer = world.client.create_producer(world.topic, batching_enabled=False)
    ids = []
    times = []
    for number in range(50):
        times.append(int(time.time() * 1000))
        ids.append(producer.send(b"%d" % number))
        time.sleep(0.002)
    consumer = world.subscribe(start_message_id_inclusive=True)
    take(consumer, 50)
    consumer.seek(ids[20])
    same([int(message.data()) for message in take(consumer, 30)], list(range(20, 50)))
    consumer.seek(times[30])
    same([int(message.data()) for message in take(consumer, 20)], list(range(30, 50)))
    consumer.seek(pulsar.MessageId.earliest)
    same(int(consumer.receive(RECEIVE_MS).data()), 0)
    consumer.seek(pulsar.MessageId.latest)
    nothing_more(consumer)
    producer.send(b"after")
    same(consumer.receive(RECEIVE_MS).data(), b"after")


@scenario
def non_persistent(world: World) -> None:
    topic = world.topic.replace("persistent://", "non-persistent://")
    kinds = [
        pulsar.ConsumerType.Exclusive,
        pulsar.ConsumerType.Failover,
        pulsar.ConsumerType.Shared,
        pulsar.ConsumerType.KeyShared,
    ]
    consumers = [
        world.subscribe(topic, f"s{number}", consumer_type=kind)
        for number, kind in enumerate(kinds)
    ]
    producer = world.client.create_producer(topic, batching_enabled=False)
    batching = world.client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=20
    )
    for number in range(100):
        producer.send(b"%d" % number, partition_key=f"k{number % 7}")
    for number in range(100, 200):
        batching.send_async(
            b"%d" % number, lambda result, _message_id: same(result, pulsar.Result.Ok)
        )
    batching.flush()
    for consumer in consumers:
        same([int(message.data()) for message in take(consumer, 200)], list(range(200)))
        nothing_more(consumer)
    # Nothing is kept for who comes later, or asks for what was.
    nothing_more(world.subscribe(topic, "late"))
    refused(lambda: consumers[0].seek(pulsar.MessageId.earliest), pulsar.PulsarException)
    reader = world.client.create_reader(topic, pulsar.MessageId.earliest)
    producer.send(b"last")
    same(reader.read_next(RECEIVE_MS).data(), b"last")
    same([consumer.receive(RECEIVE_MS).data() for consumer in consumers], [b"last"] * 4)
    # Who has no room loses what comes.
    slow = world.subscribe(topic, "slow", receiver_queue_size=1)
    for _ in range(50):
        producer.send(b"x")
    path = topic.replace("://", "/")
    found = world.admin("GET", f"/admin/v2/{path}/stats")["subscriptions"]["slow"]
    assert found["msgDropCounter"] > 0, found
    same(found["msgDropCounter"] + found["msgOutCounter"], 50)
    slow.close()
    assert topic in world.admin("GET", "/admin/v2/non-persistent/public/default")
    # Partitions, and their names.
    world.admin("PUT", f"/admin/v2/{path}-parts/partitions", 3)
    same(len(world.client.get_topic_partitions(f"{topic}-parts")), 3)
    parts = world.subscribe(f"{topic}-parts")
    spread = world.client.create_producer(f"{topic}-parts", batching_enabled=False)
    for number in range(30):
        spread.send(b"%d" % number)
    same(sorted(int(message.data()) for message in take(parts, 30)), list(range(30)))


@scenario
def pattern(world: World) -> None:
    producers = {
        name: world.client.create_producer(f"{world.topic}-{name}") for name in ("a", "b", "other")
    }
    # What appears later is found after a minute, which this client does not let its users change:
    # the others test that.
    consumer = world.subscribe(re.compile(world.topic + "-[a-c]"))
    for name, producer in producers.items():
        producer.send(name.encode())
    same({message.data() for message in take(consumer, 2)}, {b"a", b"b"})
    nothing_more(consumer)


@scenario
def table_view(world: World) -> None:
    producer = world.client.create_producer(world.topic)
    for number in range(20):
        producer.send(b"%d" % number, partition_key=f"k{number % 5}")
    view = world.client.create_table_view(world.topic)
    same({key: view.get(key) for key in ("k0", "k4")}, {"k0": b"15", "k4": b"19"})
    same(len(view), 5)
    producer.send(b"new", partition_key="k0")
    deadline = time.monotonic() + 60
    while view.get("k0") != b"new" and time.monotonic() < deadline:
        time.sleep(0.05)
    same(view.get("k0"), b"new")
    view.close()


@scenario
def compacted(world: World) -> None:
    path = f"/admin/v2/{world.topic.replace('://', '/')}"

    def compact() -> None:
        world.admin("PUT", f"{path}/compaction")
        deadline = time.monotonic() + 60
        while (status := world.admin("GET", f"{path}/compaction"))[
            "status"
        ] == "RUNNING" and time.monotonic() < deadline:
            time.sleep(0.05)
        same(status, {"status": "SUCCESS", "lastError": ""})

    def read(reader: Any) -> list[tuple[str, bytes]]:
        found = []
        while reader.has_message_available():
            message = reader.read_next(RECEIVE_MS)
            found.append((message.partition_key(), message.data()))
        return found

    batched = world.client.create_producer(
        # One batch, which the flush ends.
        world.topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=60_000,
        compression_type=pulsar.CompressionType.ZLib,
    )
    for number in range(20):
        batched.send_async(b"%d" % number, None, partition_key=f"k{number % 5}")
    batched.flush()
    single = world.client.create_producer(world.topic, batching_enabled=False)
    single.send(b"", partition_key="k1")
    single.send(b"new", partition_key="k2")
    compact()
    # The log is emptied: only the view has them.
    world.admin("PUT", f"{path}/unload")
    world.admin("POST", f"{path}/trim")
    same(world.admin("GET", f"{path}/internalStats")["numberOfEntries"], 0)
    values = [("k0", b"15"), ("k3", b"18"), ("k4", b"19"), ("k2", b"new")]
    reader = world.client.create_reader(
        world.topic, pulsar.MessageId.earliest, is_read_compacted=True
    )
    same(read(reader), values)
    single.send(b"late", partition_key="k0")
    same(read(reader), [("k0", b"late")])
    reader.seek(pulsar.MessageId.earliest)
    same(read(reader), [*values, ("k0", b"late")])
    reader.close()
    consumer = world.subscribe(is_read_compacted=True)
    # Of a batch this client hands out also what was taken out of it, empty and without a key, as it
    # does with Apache Pulsar's brokers.
    found = [(message.partition_key(), message.data()) for message in take(consumer, 22)]
    same([each for each in found if each[0]], [*values, ("k0", b"late")])
    nothing_more(consumer)
    consumer.close()
    view = world.client.create_table_view(world.topic)
    same(
        {key: view.get(key) for key in ("k0", "k1", "k2", "k3", "k4")},
        {**dict(values), "k0": b"late", "k1": None},
    )
    view.close()


class _Keys:
    """A key pair that only this program knows."""

    def __init__(self, directory: str) -> None:
        self._private, self._public = f"{directory}/private.pem", f"{directory}/public.pem"
        subprocess.run(
            ["openssl", "genrsa", "-out", self._private, "2048"], check=True, capture_output=True
        )
        subprocess.run(
            ["openssl", "rsa", "-in", self._private, "-pubout", "-out", self._public],
            check=True,
            capture_output=True,
        )

    def reader(self) -> pulsar.CryptoKeyReader:
        return pulsar.CryptoKeyReader(self._public, self._private)


@scenario
def encrypted(world: World) -> None:
    with tempfile.TemporaryDirectory() as own, tempfile.TemporaryDirectory() as foreign:
        keys, others = _Keys(own), _Keys(foreign)
        for way in ("single", "batched"):
            topic = f"{world.topic}-{way}"
            producer = world.client.create_producer(
                topic,
                batching_enabled=way == "batched",
                batching_max_publish_delay_ms=60_000,  # one batch, which the flush ends
                compression_type=pulsar.CompressionType.LZ4
                if way == "batched"
                else pulsar.CompressionType.NONE,
                encryption_key="own",
                crypto_key_reader=keys.reader(),
            )
            for number in range(20):
                producer.send_async(b"%d" % number, None, partition_key=f"k{number}")
            producer.flush()
            consumer = world.subscribe(topic, crypto_key_reader=keys.reader())
            messages = take(consumer, 20)
            same([message.data() for message in messages], [b"%d" % number for number in range(20)])
            same(messages[7].partition_key(), "k7")
            nothing_more(consumer)
            consumer.close()
        # Who has no key gets what the brokers had, which is not the content.
        action = pulsar.ConsumerCryptoFailureAction.CONSUME
        blind = world.subscribe(
            f"{world.topic}-single",
            "blind",
            crypto_key_reader=others.reader(),
            crypto_failure_action=action,
        )
        for number, message in enumerate(take(blind, 20)):
            assert message.data() != b"%d" % number, "the content is readable"


@scenario
def chunked(world: World) -> None:
    producer = world.client.create_producer(
        world.topic, chunking_enabled=True, batching_enabled=False
    )
    big = os.urandom(1 << 20) * 20
    message_id = producer.send(big)
    producer.send(b"small")
    consumer = world.subscribe()
    first, second = take(consumer, 2)
    same((len(first.data()), first.data() == big, second.data()), (len(big), True, b"small"))
    same(str(first.message_id()), str(message_id))


@scenario
def chunked_and_shared(world: World) -> None:
    options = {"consumer_type": pulsar.ConsumerType.Shared, "receiver_queue_size": 20}
    consumers = [world.subscribe(**options), world.subscribe(**options)]
    producers = [
        world.client.create_producer(world.topic, chunking_enabled=True, batching_enabled=False)
        for _ in range(3)
    ]
    wanted = {}
    for number in range(15):
        # Between the chunks of one producer come those of the others.
        for which, producer in enumerate(producers):
            content = b"%d-%d-" % (which, number) + os.urandom(7 << 20)
            wanted[content[:8]] = content
            producer.send_async(content, lambda result, _message_id: same(result, pulsar.Result.Ok))
    got: list[dict[bytes, bytes]] = [{}, {}]
    deadline = time.monotonic() + 90
    while sum(map(len, got)) < len(wanted):
        assert time.monotonic() < deadline, f"{[len(each) for each in got]} of {len(wanted)} came"
        for consumer, mine in zip(consumers, got, strict=True):
            try:
                message = consumer.receive(200)
            except pulsar.Timeout:
                continue
            mine[message.data()[:8]] = message.data()
            consumer.acknowledge(message)
    same({**got[0], **got[1]} == wanted, True)
    assert min(map(len, got)), "one consumer got everything"


@scenario
def deduplication(world: World) -> None:
    path = world.topic.replace("://", "/")
    world.client.create_producer(world.topic).close()
    world.admin("POST", f"/admin/v2/{path}/deduplicationEnabled", True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if world.admin("GET", f"/admin/v2/{path}/stats").get("deduplicationStatus") == "Enabled":
            break
        time.sleep(0.1)
    producer = world.client.create_producer(
        world.topic, producer_name="exact", batching_enabled=False, initial_sequence_id=-1
    )
    for number in (0, 1, 2, 1, 2, 3):
        producer.send(b"%d" % number, sequence_id=number)
    same(producer.last_sequence_id(), 3)
    producer.close()
    producer = world.client.create_producer(
        world.topic, producer_name="exact", batching_enabled=False
    )
    same(producer.last_sequence_id(), 3)
    consumer = world.subscribe()
    same([int(message.data()) for message in take(consumer, 4)], [0, 1, 2, 3])
    nothing_more(consumer)


@scenario
def owner_killed(world: World) -> None:
    producer = world.client.create_producer(
        world.topic,
        batching_enabled=True,
        batching_max_messages=10,
        block_if_queue_full=True,
        send_timeout_millis=0,
    )
    consumer = world.subscribe()
    failed: list[object] = []
    acked = [0]

    def sent(result: object, _message_id: object) -> None:
        acked[0] += 1
        if result != pulsar.Result.Ok:
            failed.append(result)

    for number in range(10_000):
        producer.send_async(b"%d" % number, sent)
        if number == 3_000:
            print("KILL", flush=True)
        time.sleep(0.0005)
    producer.flush()
    same((failed, acked[0]), ([], 10_000))
    seen: list[int] = []
    while len(set(seen)) < 10_000:
        message = consumer.receive(RECEIVE_MS)
        seen.append(int(message.data()))
        consumer.acknowledge(message)
    first_seen = list(dict.fromkeys(seen))
    same(first_seen, list(range(10_000)))


@scenario
def key_shared(world: World) -> None:
    options = {"consumer_type": pulsar.ConsumerType.KeyShared, "receiver_queue_size": 10}
    first = world.subscribe(consumer_name="first", **options)
    producer = world.client.create_producer(
        world.topic,
        batching_enabled=True,
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_publish_delay_ms=5,
    )
    keys = [f"key-{index}" for index in range(20)]
    for number in range(100):
        producer.send_async(b"%d" % number, None, partition_key=keys[number % 20])
    producer.flush()
    held = take(first, 10, ack=False)
    consumers = [
        first,
        world.subscribe(consumer_name="second", **options),
        world.subscribe(consumer_name="third", **options),
    ]
    for number in range(100, 200):
        producer.send_async(
            b"%d" % number,
            None,
            partition_key=keys[number % 20],
            ordering_key="o" if number % 40 == 5 else None,
        )
    producer.flush()
    for message in held:
        first.acknowledge(message)
    got: dict[str, list[int]] = {key: [] for key in keys}
    for message in held:
        got[message.partition_key()].append(int(message.data()))
    takers: set[int] = set()
    for index, message in take_from(consumers, 190):
        takers.add(index)
        got[message.partition_key()].append(int(message.data()))
    for index, key in enumerate(keys):
        # Those with an ordering key go their own way.
        plain = [number for number in got[key] if number < 100 or number % 40 != 5]
        same(plain, sorted(plain))
        same(sorted(got[key]), list(range(index, 200, 20)))
    same(takers, {0, 1, 2})


@scenario
def sticky_ranges(world: World) -> None:
    def consumer(*ranges: tuple[int, int]) -> Any:
        policy = pulsar.ConsumerKeySharedPolicy(
            pulsar.KeySharedMode.Sticky, sticky_ranges=list(ranges)
        )
        return world.subscribe(
            consumer_type=pulsar.ConsumerType.KeyShared, key_shared_policy=policy
        )

    low = consumer((0, 20_000), (40_000, 50_000))
    refused(lambda: consumer((20_000, 30_000)), pulsar.ConsumerAssignError)
    high = consumer((20_001, 39_999), (50_001, 65_535))
    producer = world.client.create_producer(world.topic, batching_enabled=False)
    for number in range(100):
        producer.send(b"%d" % number, partition_key=str(number))
    got: list[list[int]] = [[], []]
    for index, message in take_from([low, high], 100):
        got[index].append(int(message.data()))
    same(sorted(got[0] + got[1]), list(range(100)))
    assert min(map(len, got)) > 10, got


@scenario
def access_modes(world: World) -> None:
    modes = pulsar.ProducerAccessMode
    alone = world.client.create_producer(world.topic, access_mode=modes.Exclusive)
    for mode, kind in (
        (modes.Exclusive, pulsar.ProducerFenced),
        (modes.Shared, pulsar.ProducerBusy),
    ):
        refused(partial(world.client.create_producer, world.topic, access_mode=mode), kind)
    waiting: list[Any] = []
    waiter = threading.Thread(
        target=lambda: waiting.append(
            world.client.create_producer(world.topic, access_mode=modes.WaitForExclusive)
        )
    )
    waiter.start()
    alone.send(b"alone")
    assert not waiting
    alone.close()
    waiter.join(30)
    waiting[0].send(b"waited")
    fencing = world.client.create_producer(world.topic, access_mode=modes.ExclusiveWithFencing)
    fencing.send(b"fencing")
    refused(lambda: waiting[0].send(b"late"), pulsar.ProducerFenced, pulsar.AlreadyClosed)
    same(
        [message.data() for message in take(world.subscribe(), 3)],
        [b"alone", b"waited", b"fencing"],
    )


@scenario
def delayed(world: World) -> None:
    consumer = world.subscribe(consumer_type=pulsar.ConsumerType.Shared)
    ordered = world.subscribe(name="ordered")
    producer = world.client.create_producer(world.topic)
    began = time.time()
    # The first one is not due before all are there.
    producer.send(b"late", deliver_after=timedelta(seconds=9))
    producer.send(b"at", deliver_at=int((began + 8) * 1000))
    producer.send(b"now")
    same(consumer.receive(RECEIVE_MS).data(), b"now")
    same([message.data() for message in take(ordered, 3)], [b"late", b"at", b"now"])
    for content, seconds in ((b"at", 8), (b"late", 9)):
        message = consumer.receive(RECEIVE_MS)
        same(message.data(), content)
        # In whole milliseconds, as clients say when it is due.
        assert int(time.time() * 1000) - int(began * 1000) >= seconds * 1000, (
            f"{content!r} came early"
        )


class First:
    class Person(pulsar.schema.Record):  # type: ignore[misc]
        age = pulsar.schema.Integer(required=True)
        name = pulsar.schema.String()


class WithMail:
    class Person(pulsar.schema.Record):  # type: ignore[misc]
        age = pulsar.schema.Integer(required=True)
        name = pulsar.schema.String()
        mail = pulsar.schema.String(required_default=True)  # its default is null


class NameIsNumber:
    class Person(pulsar.schema.Record):  # type: ignore[misc]
        age = pulsar.schema.Integer(required=True)
        name = pulsar.schema.Long()


def structs(world: World, schema: Callable[[type], Any]) -> None:
    producer = world.client.create_producer(world.topic, schema=schema(First.Person))
    consumer = world.subscribe(schema=schema(First.Person))
    producer.send(First.Person(age=36, name="Ada"))
    found = take(consumer, 1)[0].value()
    same((found.age, found.name), (36, "Ada"))
    # A field that may be absent is evolution; the consumer of before reads what is written with it.
    newer = world.client.create_producer(world.topic, schema=schema(WithMail.Person))
    newer.send(WithMail.Person(age=1, name="Bea", mail="bea@example.org"))
    same(take(consumer, 1)[0].value().name, "Bea")
    # Another type of a field is not.
    refused(
        lambda: world.client.create_producer(world.topic, schema=schema(NameIsNumber.Person)),
        pulsar.IncompatibleSchema,
    )
    refused(
        lambda: world.subscribe(name="other", schema=schema(NameIsNumber.Person)),
        pulsar.IncompatibleSchema,
    )


@scenario
def json_schema(world: World) -> None:
    structs(world, pulsar.schema.JsonSchema)


@scenario
def avro_schema(world: World) -> None:
    structs(world, pulsar.schema.AvroSchema)


@scenario
def awaitable(world: World) -> None:
    async def main() -> None:
        client = pulsar.asyncio.Client(world.service_url)
        producer = await client.create_producer(world.topic)
        for number in range(20):
            await producer.send(b"%d" % number)
        if hasattr(client, "subscribe"):
            consumer = await client.subscribe(
                world.topic, "s", initial_position=pulsar.InitialPosition.Earliest
            )
            for number in range(20):
                message = await consumer.receive()
                same(int(message.data()), number)
                await consumer.acknowledge(message)
        await client.close()

    asyncio.run(main())
    same(len(take(world.subscribe(name="blocking"), 20)), 20)


def main() -> None:
    name, service_url, admin_url, prefix = sys.argv[1:]
    world = World(service_url, admin_url, prefix)
    SCENARIOS[name](world)
    world.client.close()
    # Threads of the client outlive it by a moment, and may crash what Python tears down.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
