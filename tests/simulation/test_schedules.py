"""Scheduled messages over whole brokers and bookies, while all kinds of things fail."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pulsarish.broker.topics.schedule_clock import _Scheduled
from pulsarish.client.message_id import MessageId
from pulsarish.managed_ledger.options import Retention
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import ScheduledTopics, ScheduleMarks
from pulsarish.model.errors import ServiceNotReady
from pulsarish.model.schedule import PER_TOPIC_MAX, Schedule, instant_text
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpRequest
from pulsarish.sim.workloads.schedules import run_schedules
from pulsarish.sim.world.connections import SimConnections
from tests.support.brokered import Brokered, play_with_brokers

NAME = TopicName.parse("persistent://public/default/report")
WORDS = "persistent/public/default/report"


async def schedule(brokered: Brokered, name: str, body: object, method: str = "PUT") -> Any:
    return await brokered.administer(method, f"{WORDS}/schedules/{name}", body, owner=NAME)


async def instants(brokered: Brokered, count: int) -> list[int]:
    """The due instants of the first messages of the topic."""
    client = brokered.client()
    reader = await client.create_reader(NAME.full, MessageId.earliest)
    found = [(await reader.read_next()).event_timestamp() for _ in range(count)]
    await reader.close()
    return found


async def create(brokered: Brokered) -> None:
    await brokered.administer("PUT", WORDS, owner=NAME)


def test_a_message_says_which_instant_it_is_of() -> None:
    async def scenario(brokered: Brokered) -> None:
        await create(brokered)
        body = {"cron": "*/10 * * * * *", "payload": "Z28=", "key": "k", "properties": {"a": "b"}}
        await schedule(brokered, "tick", body)
        client = brokered.client()
        reader = await client.create_reader(NAME.full, MessageId.earliest)
        message = await reader.read_next()
        due_ms = message.event_timestamp()
        assert due_ms % 10_000 == 0
        assert 0 <= message.publish_timestamp() - due_ms < 1_000
        assert (message.data(), message.partition_key()) == (b"go", "k")
        assert message.properties() == {
            "a": "b",
            "schedule": "tick",
            "schedule-due": instant_text(due_ms),
        }
        assert (await reader.read_next()).event_timestamp() == due_ms + 10_000
        shown = await schedule(brokered, "tick", None, "GET")
        assert shown["next"][0] == instant_text(due_ms + 20_000)
        assert shown["decidedUntil"] == instant_text(due_ms + 10_000)

    play_with_brokers(scenario, seeds=1)


def test_pausing_changing_and_removing_take_effect() -> None:
    async def scenario(brokered: Brokered) -> None:
        await create(brokered)
        await schedule(brokered, "tick", {"cron": "* * * * * *"})
        log = lambda: brokered.topic(NAME.full).log.entries  # noqa: E731
        await brokered.until(lambda: log() >= 3)
        await schedule(brokered, "tick/pause", None, "POST")
        count = log()
        await brokered.world.clock.sleep(30.0)
        assert log() == count
        assert (await schedule(brokered, "tick", None, "GET"))["next"] == []
        await schedule(brokered, "tick/resume", None, "POST")
        await brokered.until(lambda: log() > count)
        assert log() < count + 5, "what was due in the pause is left out"
        await schedule(brokered, "tick", {"cron": "0 0 1 1 *"})
        count = log()
        await brokered.world.clock.sleep(30.0)
        assert log() == count
        found = await instants(brokered, count)
        assert len(found) == len(set(found))
        await schedule(brokered, "tick", None, "DELETE")
        assert await brokered.administer("GET", f"{WORDS}/schedules", owner=NAME) == {}
        assert brokered.topic(NAME.full).log.attributes.schedule_marks is None

    play_with_brokers(scenario, seeds=1)


def test_what_cannot_be_scheduled_is_refused_by_name() -> None:
    async def scenario(brokered: Brokered) -> None:
        await create(brokered)
        for body, problem in [
            ({"cron": "61 * * * *"}, "field 1 (minute)"),
            ({"cron": "* * * * *", "timezone": "Mars/Base"}, "Mars/Base"),
            ({"cron": "* * * * *", "missed": "some"}, "missed"),
        ]:
            with pytest.raises(AssertionError, match=re.escape(problem)):
                await schedule(brokered, "tick", body)
        with pytest.raises(AssertionError, match="has no schedule"):
            await schedule(brokered, "tick/pause", None, "POST")
        for number in range(PER_TOPIC_MAX):
            await schedule(brokered, f"s{number}", {"cron": "0 0 1 1 *"})
        with pytest.raises(AssertionError, match="16 schedules, which is the most"):
            await schedule(brokered, "more", {"cron": "0 0 1 1 *"})
        parts = "persistent/public/default/parts"
        await brokered.administer("PUT", f"{parts}/partitions", 2)
        with pytest.raises(AssertionError, match="such as persistent://public/default/parts-part"):
            await brokered.administer("PUT", f"{parts}/schedules/s", {"cron": "0 0 1 1 *"})
        one = TopicName.parse(f"{NAME.full[:-6]}parts-partition-1")
        words = f"{parts}-partition-1/schedules"
        await brokered.administer("PUT", f"{words}/s", {"cron": "* * * * * *"}, owner=one)
        await brokered.until(lambda: brokered.topic(one.full).log.entries > 1)
        kept = "non-persistent/public/default/x/schedules/s"
        with pytest.raises(AssertionError, match="keeps no messages"):
            await brokered.administer("PUT", kept, {"cron": "* * * * *"})

    play_with_brokers(scenario, seeds=1)


def test_a_topic_with_schedules_is_not_unused_and_goes_with_its_schedules() -> None:
    async def scenario(brokered: Brokered) -> None:
        await create(brokered)
        await schedule(brokered, "tick", {"cron": "0 * * * * *"})
        await brokered.world.clock.sleep(200.0)
        assert brokered.topic(NAME.full).log.entries >= 3
        await brokered.administer("DELETE", WORDS, query={"force": "true"}, owner=NAME)
        clock = brokered.cluster.brokers["broker0"]._schedules
        await brokered.until(lambda: clock.topics_count == 0, seconds=100.0)
        records = Records(brokered.world.metadata, brokered.world.clock, brokered.world.random)
        # The leader forgets the topic first, and then writes so.
        async with brokered.world.clock.timeout(100.0):
            while True:
                index = await records.get(paths.SCHEDULES, ScheduledTopics)
                assert index is not None
                if index[0].topics == {}:
                    break
                await brokered.world.clock.sleep(0.1)
        assert not any(broker._topics.loaded for broker in brokered.cluster.brokers.values())

    play_with_brokers(
        scenario,
        seeds=1,
        broker_delete_inactive_topics_enabled=True,
        broker_delete_inactive_topics_max_inactive_duration_seconds=10,
        managed_ledger_maintenance_interval_seconds=5.0,
    )


def test_a_topic_of_the_same_name_is_not_asked_for_schedules() -> None:
    async def scenario(brokered: Brokered) -> None:
        await create(brokered)
        await schedule(brokered, "tick", {"cron": "0 * * * * *"})
        clock = brokered.cluster.brokers["broker0"]._schedules
        await brokered.until(lambda: clock.topics_count == 1)
        await brokered.administer("DELETE", WORDS, query={"force": "true"}, owner=NAME)
        await create(brokered)
        assert await brokered.administer("GET", f"{WORDS}/schedules", owner=NAME) == {}
        await brokered.until(lambda: clock.topics_count == 0, seconds=100.0)
        await brokered.world.clock.sleep(100.0)
        assert clock.topics_count == 0
        assert brokered.topic(NAME.full).log.entries == 0

    play_with_brokers(scenario, seeds=1)


def test_what_a_later_run_may_have_to_read_is_not_trimmed() -> None:
    async def scenario(brokered: Brokered) -> None:
        await create(brokered)
        producer = await brokered.client().create_producer(NAME.full)
        log = brokered.topic(NAME.full).log
        first = log.ledgers[0].ledger_id
        await log.attributes.set_schedule_marks(ScheduleMarks({"tick": 1}, (first, -1)))
        for _ in range(2):
            await producer.send(b"x")
            await log.roll()
        await log.trimmer.trim(Retention())
        assert log.entries == 2
        await log.attributes.set_schedule_marks(ScheduleMarks({"tick": 1}))
        await log.trimmer.trim(Retention())
        assert log.entries == 0

    play_with_brokers(scenario, seeds=1)


def test_only_the_leader_says_what_is_due() -> None:
    async def scenario(brokered: Brokered) -> None:
        await create(brokered)
        path = ("admin", "v2", *WORDS.split("/"), "schedulesDue")
        body = b'{"until_ms": 1}'
        request = HttpRequest("POST", "/" + "/".join(path), {}, {}, body, path)
        connections = brokered.world.connections
        assert isinstance(connections, SimConnections)
        answer = await connections.http("broker0:8080", request)
        assert answer.status in (401, 403)
        assert b"only the leader broker" in answer.body

    play_with_brokers(scenario, seeds=1)


def test_a_terminated_topic_is_not_asked_again() -> None:
    async def scenario(brokered: Brokered) -> None:
        await create(brokered)
        await schedule(brokered, "tick", {"cron": "* * * * * *"})
        await brokered.until(lambda: brokered.topic(NAME.full).log.entries > 0)
        await brokered.administer("POST", f"{WORDS}/terminate", owner=NAME)
        await brokered.world.clock.sleep(60.0)
        assert brokered.cluster.brokers["broker0"]._topics.schedule_counts.failures == 1

    play_with_brokers(scenario, seeds=1)


def test_a_schedule_that_the_leader_does_not_know_is_tried_again_later() -> None:
    asked: list[int] = []

    async def ask(_name: TopicName, until_ms: int) -> None:
        asked.append(until_ms)
        assert len(asked) < 100

    async def scenario(brokered: Brokered) -> None:
        clock = brokered.cluster.brokers["broker0"]._schedules
        await brokered.until(lambda: clock._is_listed)
        clock._ask = ask
        clock._topics[NAME.full] = _Scheduled(1, {"tick": Schedule("* * * * *", "Mars/Base")})
        clock._changed.set()
        await brokered.world.clock.sleep(60.0)
        assert 10 <= len(asked) <= 13

    play_with_brokers(scenario, seeds=1)


def test_requests_do_not_wait_behind_one_that_is_stuck() -> None:
    async def scenario(brokered: Brokered) -> None:
        await create(brokered)
        await schedule(brokered, "tick", {"cron": "* * * * * *"})
        await brokered.until(lambda: brokered.topic(NAME.full).log.entries > 0)
        for name in brokered.cluster.bookies:
            brokered.node(name).pause()
        await brokered.world.clock.sleep(3.0)
        schedules = brokered.topic(NAME.full).schedules
        assert schedules is not None
        async with brokered.world.clock.timeout(1.0):
            with pytest.raises(ServiceNotReady, match="still being stored"):
                await schedules.publish_due(brokered.world.clock.wall_ms())
        for name in brokered.cluster.bookies:
            brokered.node(name).resume()
        count = brokered.topic(NAME.full).log.entries
        await brokered.until(lambda: brokered.topic(NAME.full).log.entries > count + 3)

    play_with_brokers(scenario, seeds=1)


def test_missed_instants_of_a_long_outage_are_caught_up_as_each_schedule_says() -> None:
    async def scenario(brokered: Brokered) -> None:
        await create(brokered)
        for missed in ("last", "skip", "all"):
            await schedule(brokered, missed, {"cron": "0 */2 * * * *", "missed": missed})
        await brokered.until(lambda: brokered.topic(NAME.full).log.entries == 3, seconds=200.0)
        node = brokered.node("broker0")
        node.crash()
        await brokered.world.clock.sleep(9 * 60.0 + 15.0)  # until between two instants
        await brokered.cluster.start_broker("broker0")
        await brokered.world.clock.sleep(25.0)
        client = brokered.client()
        reader = await client.create_reader(NAME.full, MessageId.earliest)
        found: dict[str, list[int]] = {"last": [], "skip": [], "all": []}
        while await reader.has_message_available():
            message = await reader.read_next()
            found[message.properties()["schedule"]].append(message.event_timestamp() // 60_000)
        first = found["all"][0]
        assert found == {
            "last": [first, first + 8],
            "skip": [first],
            "all": [first, first + 2, first + 4, first + 6, first + 8],
        }

    play_with_brokers(scenario, seeds=1, max_virtual_seconds=2_000.0)


def test_each_instant_has_one_message_whatever_fails() -> None:
    counts = [run_schedules(seed) for seed in range(4)]
    assert sum(each.unnoted for each in counts) >= 3
    assert sum(each.published for each in counts) >= 150
