"""Non-persistent topics that are captured into persistent ones, on a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pulsarish.broker.nonpersistent.captured_entry import CAPTURED_FROM, captured_producer
from pulsarish.broker.nonpersistent.captures import Captures
from pulsarish.client.enums import CompressionType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.model.captures import CAPTURES_MAX
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.captured import run_captured
from tests.integration.test_broker_http import Web
from tests.integration.test_policies import run as over_http
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import BrokerCluster, find

INTO = "persistent://public/default/stored"
SOURCE = "non-persistent://public/default/sensors.1.temperature"
OTHER = "non-persistent://public/default/sensors.1.pressure"
NEIGHBOUR = "non-persistent://public/default/sensors.0.temperature"
"""A topic of the bundle of ``INTO``."""
RULE = "namespaces/public/default/captures/r"
MESSAGES = 200


async def capture(run: Brokered, **more: Any) -> None:
    body = {"pattern": "sensors.*.temperature", "into": INTO, **more}
    await run.administer("POST", RULE, body)


async def owner(run: Brokered, topic: str) -> str:
    alive = [name for name in run.cluster.brokers if run.node(name).alive]
    return (await find(run.world, alive, topic)).partition(":")[0]


def captures(run: Brokered, name: str) -> Captures:
    return run.cluster.brokers[name]._topics.not_kept.captures


async def stored(run: Brokered) -> list[Any]:
    """Everything in the persistent topic."""
    reader = await run.client().create_reader(INTO, MessageId.earliest)
    found = []
    while await reader.has_message_available():
        found.append(await reader.read_next())
    return found


async def leave(run: Brokered, topic: str) -> None:
    name = await owner(run, topic)

    async def work(_world: World) -> None:
        topics = run.cluster.brokers[name]._topics
        await topics.unload_bundle(await topics.bundle(TopicName.parse(topic)))

    await run.node(name).run(work)


async def split(run: Brokered, topic: str) -> None:
    name = await owner(run, topic)

    async def work(_world: World) -> None:
        topics = run.cluster.brokers[name]._topics
        _ = await topics.split_bundle(await topics.bundle(TopicName.parse(topic)))

    await run.node(name).run(work)


async def kill(run: Brokered, topic: str) -> None:
    name = await owner(run, topic)
    run.node(name).crash()
    await run.world.clock.sleep(1)
    _ = await run.cluster.start_broker(name)


def test_both_owners_keep_what_they_acknowledge_and_its_order() -> None:
    for seed in range(60):
        run_captured(seed)


def test_rules_over_http() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        space = "/admin/v2/namespaces/public/default"
        path = f"{space}/captures"
        assert await web("GET", path) == (200, {})
        assert (await web("POST", f"{path}/r", {"pattern": "a.*", "into": INTO}))[0] == 204
        rule = {
            "pattern": "a.*",
            "into": INTO,
            "syntax": "wildcard",
            "acknowledged": "received",
            "whenFull": "pause",
            "pendingMaxBytes": 8 << 20,
        }
        assert await web("GET", path) == (200, {"r": rule})
        assert await web("GET", f"{path}/r") == (200, rule)
        assert (await web("GET", space))[1]["captures"] == {"r": rule}
        parted = "persistent://public/default/parted"
        assert (await web("PUT", "/admin/v2/persistent/public/default/parted/partitions", 2))[
            0
        ] == 204
        for name, body, status, reason in (
            ("r", {"pattern": "a..b", "into": INTO}, 412, "empty"),
            ("r", {"pattern": "*"}, 400, "into"),
            ("r", {"pattern": "*", "into": "persistent://public/none/t"}, 404, "public/none"),
            ("r", {"pattern": "*", "into": parted}, 412, "parted-partition-0"),
            ("a%2Fb", {"pattern": "*", "into": INTO}, 412, "slash"),
        ):
            found = await web("POST", f"{path}/{name}", body)
            assert (found[0], reason in found[1]["reason"]) == (status, True), found
        one = {"pattern": "*", "into": f"{parted}-partition-0"}
        for number in range(CAPTURES_MAX - 1):
            assert (await web("POST", f"{path}/r{number}", one))[0] == 204
        assert "most that are allowed" in (await web("POST", f"{path}/more", one))[1]["reason"]
        assert (await web("POST", f"{path}/r", one))[0] == 204
        assert (await web("DELETE", f"{path}/r"))[0] == 204
        for method in ("GET", "DELETE"):
            found = await web(method, f"{path}/r")
            assert (found[0], "namespaces captures" in found[1]["reason"]) == (404, True)
        # A namespace cannot be created with rules: that would ask for no right to publish.
        body = {"captures": {"r": rule}}
        assert "each rule" in (await web("PUT", "/admin/v2/namespaces/public/n", body))[1]["reason"]

    over_http(scenario)


@pytest.mark.parametrize("batching", [False, True])
def test_messages_are_stored_with_what_they_have(batching: bool) -> None:
    async def scenario(run: Brokered) -> None:
        client = run.client()
        consumer = await client.subscribe(INTO, "check", initial_position=InitialPosition.Earliest)
        live = await client.subscribe(SOURCE, "live")
        options: dict[str, Any] = {
            "producer_name": "p",
            "batching_enabled": batching,
            "compression_type": CompressionType.LZ4,
        }
        one = await client.create_producer(SOURCE, **options)
        other = await client.create_producer(OTHER, **options)
        await capture(run)
        await run.world.clock.sleep(1)  # open topics follow a rule within a second
        _ = await other.send(b"not captured")
        sent = [
            one.send_soon(
                b"%d" % number,
                properties={"x": "y"},
                partition_key="k",
                event_timestamp=5,
                sequence_id=10 + number,
            )
            for number in range(3)
        ]
        _ = await asyncio.gather(*sent)
        for number in range(3):
            assert (await live.receive(timeout_millis=60_000)).properties() == {"x": "y"}
            message = await consumer.receive(timeout_millis=60_000)
            assert message.data() == b"%d" % number
            assert message.properties() == {"x": "y", CAPTURED_FROM: SOURCE}
            assert message.partition_key() == "k"
            assert message.event_timestamp() == 5
            assert message.producer_name() == captured_producer(TopicName.parse(SOURCE), "p")
        assert [each.data() for each in await stored(run)] == [b"0", b"1", b"2"]

    play_with_brokers(scenario, brokers=2)


async def stop(run: Brokered, topic: str) -> None:
    name = await owner(run, topic)
    await run.cluster.stop_broker(name)
    run.node(name).crash()
    _ = await run.cluster.start_broker(name)


@pytest.mark.parametrize(
    ("fault", "topic"), [(kill, SOURCE), (kill, INTO), (leave, SOURCE), (leave, INTO)]
)
def test_what_is_acknowledged_as_stored_is_there_in_order(
    fault: Callable[[Brokered, str], Awaitable[None]], topic: str
) -> None:
    """Deduplication recognises what a producer sends again."""

    async def scenario(run: Brokered) -> None:
        await capture(run, acknowledged="stored")
        producer = await run.client().create_producer(
            SOURCE, batching_enabled=False, send_timeout_millis=0
        )
        sent: list[asyncio.Future[MessageId]] = []

        async def publish() -> None:
            for number in range(MESSAGES):
                sent.append(producer.send_soon(b"%d" % number))
                await run.world.clock.sleep(0.005)

        publishing = asyncio.get_running_loop().create_task(publish())
        for part in (1, 2):
            await run.until(lambda part=part: len(sent) >= part * MESSAGES // 3)  # type: ignore[misc]
            await fault(run, topic)
        await publishing
        _ = await asyncio.gather(*sent)
        assert [each.data() for each in await stored(run)] == [b"%d" % n for n in range(MESSAGES)]

    play_with_brokers(scenario, brokers=3, seeds=3, broker_deduplication_enabled=True)


@pytest.mark.parametrize("topic", [SOURCE, INTO])
@pytest.mark.parametrize("leaves", [leave, stop])
def test_what_was_received_is_stored_before_a_bundle_leaves_in_order(
    leaves: Callable[[Brokered, str], Awaitable[None]], topic: str
) -> None:
    async def scenario(run: Brokered) -> None:
        await capture(run)
        producer = await run.client().create_producer(SOURCE, batching_enabled=False)
        sent: list[asyncio.Future[MessageId]] = []

        async def publish() -> None:
            for number in range(MESSAGES):
                sent.append(producer.send_soon(b"%d" % number))
                await run.world.clock.sleep(0.005)

        publishing = asyncio.get_running_loop().create_task(publish())
        await run.until(lambda: len(sent) >= MESSAGES // 2)
        await leaves(run, topic)
        await publishing
        _ = await asyncio.gather(*sent)
        await run.world.clock.sleep(5)
        found = [int(each.data()) for each in await stored(run)]
        assert sorted(set(found)) == list(range(MESSAGES))
        firsts = list(dict.fromkeys(found))
        assert firsts == sorted(firsts)

    play_with_brokers(scenario, brokers=3, seeds=3)


@pytest.mark.parametrize("leaves", [leave, split, stop])
def test_what_was_received_is_stored_before_the_bundle_of_both_topics_leaves(
    leaves: Callable[[Brokered, str], Awaitable[None]],
) -> None:
    async def scenario(run: Brokered) -> None:
        await capture(run)
        producer = await run.client().create_producer(NEIGHBOUR, batching_enabled=False)
        name = await owner(run, NEIGHBOUR)
        topics, found = run.cluster.brokers[name]._topics, captures(run, name)
        both = [await topics.bundle(TopicName.parse(each)) for each in (NEIGHBOUR, INTO)]
        assert both[0] == both[1]
        sent = [producer.send_soon(bytes(20_000)) for _ in range(MESSAGES)]
        # More than one request.
        await run.until(lambda: found.stored_count > 0 and found.pending_bytes > 1 << 20)
        await leaves(run, NEIGHBOUR)
        _ = await asyncio.gather(*sent)
        await run.until(
            lambda: all(not captures(run, n).pending_bytes for n in run.cluster.brokers)
        )
        assert found.dropped_count == 0
        assert len(await stored(run)) >= MESSAGES

    play_with_brokers(scenario, brokers=3)


def test_a_terminated_topic_pauses_publishers_until_the_rule_is_removed() -> None:
    async def scenario(run: Brokered) -> None:
        await capture(run, pendingMaxBytes=64 << 10)
        client = run.client()
        _ = await client.create_producer(INTO)
        name = TopicName.parse(INTO)
        await run.administer("POST", "persistent/public/default/stored/terminate", owner=name)
        producer = await client.create_producer(
            SOURCE, batching_enabled=False, send_timeout_millis=0, max_pending_messages=1_000
        )
        sent = [producer.send_soon(bytes(16 << 10)) for _ in range(400)]
        await run.world.clock.sleep(10)
        found = captures(run, await owner(run, SOURCE))
        assert not all(each.done() for each in sent)
        assert found.pending_bytes < 3 << 20  # more than the limit by one request
        assert found.stored_count == 0
        assert found.failures_count > 0
        await run.administer("DELETE", RULE)
        _ = await asyncio.gather(*sent)
        assert found.pending_bytes == 0
        assert found.dropped_count > 0

    play_with_brokers(scenario, brokers=2)


def test_a_rule_that_drops_lets_publishers_go_on() -> None:
    async def scenario(run: Brokered) -> None:
        await capture(run, pendingMaxBytes=64 << 10, whenFull="drop")
        client = run.client()
        _ = await client.create_producer(INTO)
        name = TopicName.parse(INTO)
        await run.administer("POST", "persistent/public/default/stored/terminate", owner=name)
        producer = await client.create_producer(SOURCE, batching_enabled=False)
        _ = await asyncio.gather(*[producer.send_soon(bytes(16 << 10)) for _ in range(100)])
        found = captures(run, await owner(run, SOURCE))
        assert found.pending_bytes <= 80 << 10
        assert found.dropped_count >= 95
        # What still waits goes to the topic that the rule names later.
        other = "persistent://public/default/instead"
        await capture(run, into=other, whenFull="drop")
        await run.until(lambda: found.pending_bytes == 0)
        assert found.stored_count == 100 - found.dropped_count

    play_with_brokers(scenario, brokers=2)


def test_a_message_that_the_topic_refuses_stops_no_other() -> None:
    async def scenario(run: Brokered) -> None:
        await capture(run, acknowledged="stored")
        client = run.client()
        _ = await client.create_producer(INTO)
        await run.administer(
            "POST",
            "persistent/public/default/stored/maxMessageSize",
            1_000,
            owner=TopicName.parse(INTO),
        )
        await run.world.clock.sleep(1)
        producer = await client.create_producer(SOURCE, batching_enabled=False)
        sent = [producer.send_soon(bytes(size)) for size in (10, 64_000, 20)]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        assert [isinstance(each, Exception) for each in outcomes] == [False, True, False]
        assert "max_message_size" in str(outcomes[1])
        assert [len(each.data()) for each in await stored(run)] == [10, 20]
        assert captures(run, await owner(run, SOURCE)).refused_count == 1

    play_with_brokers(scenario, brokers=2)


def test_a_producer_that_begins_again_loses_nothing_to_deduplication() -> None:
    async def scenario(run: Brokered) -> None:
        await capture(run)
        for part in range(3):
            producer = await run.client().create_producer(
                SOURCE, producer_name="p", batching_enabled=False
            )
            for number in range(5):
                _ = await producer.send(b"%d" % (part * 5 + number))
            await producer.close()
        await run.until(
            lambda: sum(captures(run, each).stored_count for each in run.cluster.brokers) == 15
        )
        assert [each.data() for each in await stored(run)] == [b"%d" % n for n in range(15)]

    play_with_brokers(scenario, brokers=2, broker_deduplication_enabled=True)
