"""The trail of a broker and its topic: whatever disk, topic and process do, the chain is whole."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import pulsarish
from pulsarish.broker.audit_topic import AuditLines, AuditTopic
from pulsarish.model.errors import ServiceNotReady
from pulsarish.runtime.seams import HttpRequest, World
from pulsarish.security.audit_chain import ChainCheck
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation
from tests.support.audit_trails import (
    DIRECTORY,
    checked,
    files_of,
    note,
    records_of,
    run,
    trail_of,
)
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"


def test_records_are_chained_over_rotation_and_restart() -> None:
    async def scenario(sim: Simulation, node: Node) -> None:
        for start in range(3):

            async def once(world: World, start: int = start) -> None:
                trail = trail_of(world)
                await trail.start()
                for number in range(10):
                    note(trail, start * 10 + number)
                    await world.clock.sleep(0.3)
                await trail.stop()

            await node.run(once)
            node.crash()
            node.start()
        assert len(files_of(node)) == 3
        check = checked(node)
        assert (check.faults, check.notes) == ([], [])
        assert check.first is not None
        assert check.last is not None
        assert check.first.sequence > 1, "nothing was removed, so rotation was not tested"
        assert check.last.sequence >= 36
        kept = [each["resource"]["name"] for each in records_of(node) if "resource" in each]
        assert kept == [f"topic {number}" for number in range(30 - len(kept), 30)]

    run(scenario)


def test_a_full_disk_loses_records_only_when_too_many_wait_and_the_chain_says_how_many() -> None:
    async def scenario(sim: Simulation, node: Node) -> None:
        async def fill(world: World) -> None:
            trail = trail_of(world, file_size_bytes=64 << 20)
            await trail.start()
            note(trail, 0)
            await world.clock.sleep(1.0)
            assert trail.records_count == 2
            node.disk.capacity_bytes = node.disk.used_bytes() + 100
            for number in range(1, 8_001):
                note(trail, number, "x" * 350)
            assert trail.waiting_bytes <= 4 << 20
            await world.clock.sleep(30.0)
            assert trail.failures_count >= 3
            lost_count = trail.lost_count
            assert 0 < lost_count < 8_000
            node.disk.heal()
            await world.clock.sleep(30.0)
            assert trail.waiting_bytes == 0
            note(trail, 9_000)
            await trail.stop()
            records = records_of(node)
            lost = [each for each in records if each["activity_name"] == "Lose"]
            assert [each["count"] for each in lost] == [lost_count]
            denials = [each for each in records if each["activity_name"] == "Deny"]
            assert len(denials) == 8_002 - lost_count
            check = checked(node)
            assert check.faults == []
            assert [f"{lost_count} records were lost" in each for each in check.notes] == [True]

        await node.run(fill)

    run(scenario)


def test_failing_writes_leave_a_whole_chain() -> None:
    async def scenario(sim: Simulation, node: Node) -> None:
        async def write(world: World) -> None:
            trail = trail_of(world)
            await trail.start()
            disk = node.disk
            for number in range(60):
                disk.write_failure_chance = disk.sync_failure_chance = 0.3
                disk.short_write_chance = 0.5
                note(trail, number)
                await world.clock.sleep(2.0)
            disk.heal()
            await world.clock.sleep(10.0)
            await trail.stop()
            assert trail.failures_count > 5
            assert trail.lost_count == 0

        await node.run(write)
        check = checked(node)
        assert check.faults == []
        kept = [each["resource"]["name"] for each in records_of(node) if "resource" in each]
        assert kept == [f"topic {number}" for number in range(60 - len(kept), 60)]

    run(scenario)


def test_a_failed_write_is_cut_off_before_anything_else_is_written() -> None:
    async def scenario(sim: Simulation, node: Node) -> None:
        async def write(world: World) -> None:
            trail = trail_of(world)
            await trail.start()
            note(trail, 0)
            await world.clock.sleep(1.0)
            (whole,) = files_of(node).values()
            disk = node.disk
            disk.sync_failure_chance = 1.0
            note(trail, 1)
            await world.clock.sleep(1.0)
            (torn,) = files_of(node).values()
            assert len(torn) > len(whole), "the failed write left nothing, so there is no cut"
            disk.sync_failure_chance, disk.write_failure_chance = 0.0, 1.0
            disk.short_write_chance = 0.0
            await world.clock.sleep(6.0)
            assert trail.failures_count == 2
            assert list(files_of(node).values()) == [whole]
            disk.heal()
            await world.clock.sleep(6.0)
            await trail.stop()

        await node.run(write)
        check = checked(node)
        assert (check.faults, check.notes) == ([], [])

    run(scenario)


@pytest.mark.parametrize(
    ("damage", "kept_count"),
    [
        (lambda line: bytes(50) + line[50:], 3),
        (lambda line: line.replace(b'"ann"', b'"bob"'), 4),  # whole, and the next names another
    ],
)
def test_a_trail_goes_on_where_its_chain_ends_and_not_behind_what_a_crash_left(
    damage: Callable[[bytes], bytes], kept_count: int
) -> None:
    async def scenario(sim: Simulation, node: Node) -> None:
        async def write(world: World) -> None:
            trail = trail_of(world)
            await trail.start()
            for number in range(6):
                note(trail, number)
            await world.clock.sleep(1.0)
            assert trail.last_sequence == 7

        await node.run(write)
        node.crash()
        node.start()
        # A part in the middle of the last write is not what was written; records stand behind it.
        (path,) = [name for name in node.disk.names if name.startswith(f"{DIRECTORY}/audit-")]
        data = node.disk.names[path].current.data
        lines = bytes(data).splitlines(keepends=True)
        begin = sum(map(len, lines[:3]))
        data[begin : begin + len(lines[3])] = damage(lines[3])

        async def again(world: World) -> None:
            trail = trail_of(world)
            await trail.start()
            await world.clock.sleep(1.0)
            assert trail.last_sequence == kept_count + 1
            await trail.stop()

        await node.run(again)
        (start,) = [
            each
            for content in list(files_of(node).values())[1:]
            for each in map(json.loads, content.splitlines())
            if each["activity_name"] == "Start"
        ]
        assert start["metadata"]["sequence"] == kept_count + 1
        assert start["torn_bytes"] == sum(map(len, lines[kept_count:]))
        check = checked(node)
        assert check.faults == []
        assert any("were not whole" in note for note in check.notes)

    run(scenario)


def test_after_a_crash_the_chain_goes_on() -> None:
    async def scenario(sim: Simulation, node: Node) -> None:
        torn = 0
        for start in range(12):

            async def once(world: World, start: int = start) -> None:
                trail = trail_of(world, files_max=1_000)
                await trail.start()
                await world.clock.sleep(1.0)
                for number in range(40):
                    note(trail, start * 100 + number, "x" * 300)
                # They are written after 0.2 s, and the sync takes 2 ms or more.
                await world.clock.sleep(0.2001 + 0.0002 * start)

            await node.run(once)
            node.crash()
            node.start()
            torn += any(content and content[-1:] != b"\n" for content in files_of(node).values())

        async def last(world: World) -> None:
            trail = trail_of(world, files_max=1_000)
            await trail.start()
            await trail.stop()

        await node.run(last)
        check = checked(node)
        assert check.faults == []
        assert any("without a stop" in note for note in check.notes)
        assert torn, "no crash tore a record, so that was not tested"

    run(scenario)


class Topic:
    """Stands for the owner of ``audit_topic``."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.fails = False
        self.stored_of_failed = 0
        """How many lines are stored by a request that fails."""
        self.producers: list[str] = []

    async def send(self, producer: str, epoch: int, lines: AuditLines) -> None:
        self.producers.append(producer)
        if self.fails:
            self.lines += [line for _, line in lines[: self.stored_of_failed]]
            raise ServiceNotReady("the topic is not there")
        self.lines += [line for _, line in lines]

    def checked(self) -> ChainCheck:
        check = ChainCheck()
        check.read_export("topic", "\n".join(self.lines).encode())
        check.finish()
        return check


def lines_of(node: Node) -> list[str]:
    return [line.decode() for content in files_of(node).values() for line in content.splitlines()]


def test_lines_are_published_once_they_are_durable_and_after_a_stop_the_rest() -> None:
    async def scenario(sim: Simulation, node: Node) -> None:
        topic = Topic()

        async def once(world: World) -> None:
            published = AuditTopic(world, "t")
            trail = trail_of(world, published, files_max=100)
            await trail.start()
            published.start("b", topic.send)
            note(trail, 1)
            node.disk.sync_failure_chance = 1.0
            await world.clock.sleep(1.0)
            before = list(topic.lines)
            node.disk.heal()
            await world.clock.sleep(10.0)
            assert topic.lines == lines_of(node)
            assert len(topic.lines) == len(before) + 2, "a line came before its sync"
            published.stop()
            for number in range(40):
                note(trail, number, "x" * 100)
                await world.clock.sleep(0.3)
            await trail.stop()
            assert published.published_count == 2

        await node.run(once)
        node.crash()
        node.start()

        async def again(world: World) -> None:
            published = AuditTopic(world, "t")
            trail = trail_of(world, published, files_max=100)
            await trail.start()
            published.start("b", topic.send)
            await world.clock.sleep(1.0)
            assert published.lost_count == 0

        await node.run(again)
        assert topic.lines == lines_of(node)
        assert len(files_of(node)) > 3, "the rest was in one file"
        assert len(set(topic.producers)) == 2
        assert topic.checked().faults == []

    run(scenario)


def test_a_crash_and_failed_requests_repeat_lines_and_leave_none_out() -> None:
    async def scenario(sim: Simulation, node: Node) -> None:
        topic = Topic()
        for start in range(4):

            async def once(world: World, start: int = start) -> None:
                published = AuditTopic(world, "t")
                trail = trail_of(world, published, file_size_bytes=1 << 20)
                await trail.start()
                published.start("b", topic.send)
                for number in range(20):
                    topic.fails, topic.stored_of_failed = number % 5 == 0, number % 3
                    note(trail, start * 100 + number, "x" * 300)
                    await world.clock.sleep(0.7)
                topic.fails = start % 2 == 0
                note(trail, start * 100 + 50)
                await world.clock.sleep(0.2001 + 0.001 * start)

            await node.run(once)
            node.crash()
            node.start()
        topic.fails = False

        async def last(world: World) -> None:
            published = AuditTopic(world, "t")
            trail = trail_of(world, published, file_size_bytes=1 << 20)
            await trail.start()
            published.start("b", topic.send)
            await world.clock.sleep(10.0)

        await node.run(last)
        check = topic.checked()
        assert check.faults == []
        assert any("second time" in note for note in check.notes)
        assert set(topic.lines) <= set(lines_of(node))
        assert len(set(topic.lines)) == check.records_count

    run(scenario)


def test_a_topic_that_takes_nothing_stops_nothing_and_what_is_lost_is_counted() -> None:
    async def scenario(sim: Simulation, node: Node) -> None:
        topic = Topic()
        topic.fails = True

        async def fill(world: World) -> None:
            published = AuditTopic(world, "t")
            trail = trail_of(world, published, file_size_bytes=64 << 20)
            await trail.start()
            published.start("b", topic.send)
            for _ in range(4):
                for number in range(3_000):
                    note(trail, number, "x" * 350)
                await world.clock.sleep(20.0)
            assert trail.waiting_bytes == 0
            assert trail.lost_count == 0
            assert trail.records_count == 12_001
            lost_count = published.lost_count
            assert lost_count > 0
            topic.fails = False
            await world.clock.sleep(30.0)
            assert published.published_count == 12_001 - lost_count
            note(trail, 9_000)
            await world.clock.sleep(1.0)
            assert published.lost_count == lost_count
            assert topic.lines[-1] == lines_of(node)[-1]

        await node.run(fill)
        assert checked(node).faults == []
        (fault,) = topic.checked().faults
        assert "are missing before record" in fault

    run(scenario)


def test_the_lines_of_two_brokers_reach_one_topic_and_each_chain_is_whole() -> None:
    topic = "persistent://public/default/audit"

    async def scenario(brokered: Brokered) -> None:
        names = list(brokered.cluster.brokers)
        consumer = await brokered.client().subscribe(
            topic, "s", initial_position=pulsarish.InitialPosition.Earliest
        )
        taken: dict[str, list[bytes]] = {name: [] for name in names}

        async def take_all() -> None:
            for name in names:
                wanted = [line.encode() for line in lines_of(brokered.node(name))]
                while not set(wanted) <= set(taken[name]):
                    message = await consumer.receive(30_000)
                    taken[message.partition_key()].append(message.data())
                    await consumer.acknowledge(message)

        async def change(name: str, number: int) -> None:
            assert isinstance(brokered.world.connections, SimConnections)
            path = f"admin/v2/tenants/t{number}"
            request = HttpRequest("PUT", f"/{path}", {}, {}, b"{}", tuple(path.split("/")))
            found = await brokered.world.connections.http(f"{name}:8080", request)
            assert found.status == 204

        for number, name in enumerate(names * 2):
            await change(name, number)
        await brokered.world.clock.sleep(1.0)
        await take_all()
        # Both in turn, so also the owner: the other one takes the topic over.
        for number, name in enumerate(names):
            await brokered.cluster.stop_broker(name)
            brokered.node(name).crash()
            await brokered.cluster.start_broker(name)
            await change(name, 10 + number)
            await brokered.world.clock.sleep(10.0)
        await take_all()
        for name in names:
            check = ChainCheck()
            check.read_export(name, b"\n".join(taken[name]))
            check.finish()
            assert check.faults == []
            assert check.last is not None
            assert check.last.hash == checked(brokered.node(name)).last.hash  # type: ignore[union-attr]
            assert check.records_count >= 6
            # Publishing makes no records of its own, but for the creation of the topic.
            assert len(lines_of(brokered.node(name))) <= 8

    play_with_brokers(
        scenario, brokers=2, audit_log_directory=DIRECTORY, audit_topic=topic, seeds=2
    )
