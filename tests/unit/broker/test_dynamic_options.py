"""Options that change while brokers run: which, with what values, and at which brokers."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import pulsarish.broker
from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.clients.traffic import ConnectionTraffic
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.dynamic_options import NAMES, DynamicOptions
from pulsarish.broker.policies.live import LivePolicies
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.store import Effective
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import DynamicOptionsRecord
from pulsarish.model import policies as model
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.byte_budget import ByteBudget
from pulsarish.runtime.config import Option, check, describe, dynamic_value
from pulsarish.runtime.seams import Op, World
from pulsarish.sim.world.world import Simulation

TOPIC = TopicName.parse("public/default/t")


class OneBroker:
    """The dynamic options of a broker that was started with ``config``."""

    def __init__(self, world: World, **config: Any) -> None:
        self.changes: list[Collection[str]] = []
        self.config = BrokerConfig(broker_id="b", metadata_url="memory:", **config)
        self.world = world
        self.records = Records(world.metadata, world.clock, world.random)
        self.options = DynamicOptions(world, self.records, self.config, self.changes.append)

    async def until(self, name: str, value: object) -> None:
        while getattr(self.config, name) != value:
            await self.world.clock.sleep(0.01)

    async def store(self, values: dict[str, str]) -> None:
        await self.records.update(
            paths.DYNAMIC_OPTIONS, DynamicOptionsRecord, lambda _: DynamicOptionsRecord(values)
        )


def simulated(work: Any) -> None:
    sim = Simulation(1)
    node = sim.node("broker")

    async def scenario() -> None:
        await node.run(work)

    sim.run(scenario, 60.0)


def test_every_running_broker_and_every_later_one_takes_a_change_over_its_own_options() -> None:
    async def work(world: World) -> None:
        first, second = OneBroker(world), OneBroker(world, max_consumers_per_topic=3)
        for broker in (first, second):
            await broker.options.start()
        assert second.changes == []
        await first.options.set("max_consumers_per_topic", "7")
        await first.options.set("load_balancer_enabled", "false")
        for broker in (first, second):
            await broker.until("max_consumers_per_topic", 7)
            await broker.until("load_balancer_enabled", False)
            assert broker.changes == [["max_consumers_per_topic"], ["load_balancer_enabled"]]
        late = OneBroker(world, max_consumers_per_topic=5)
        await late.options.start()
        assert (late.config.max_consumers_per_topic, late.config.load_balancer_enabled) == (
            7,
            False,
        )
        assert await late.options.values() == {
            "load_balancer_enabled": "false",
            "max_consumers_per_topic": "7",
        }
        await late.options.remove("max_consumers_per_topic")
        for broker, own in ((first, 0), (second, 3), (late, 5)):
            await broker.until("max_consumers_per_topic", own)
        await late.options.remove("max_consumers_per_topic")  # a second time

    simulated(work)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("max_consumers_per_topic", "-1", ["max_consumers_per_topic = '-1'", "integer, >= 0"]),
        (
            "max_publish_rate_per_topic_in_bytes",
            "9" * 30,
            ["at most 9223372036854775807", "integer, >= 0"],
        ),
        ("max_consumers_per_topic", "many", ["'many' from the request", "integer, >= 0"]),
        ("log_level", "loud", ["'loud'", "debug | error | info | warning"]),
        ("max_consumers_per_topics", "1", ["did you mean max_consumers_per_topic?"]),
        ("http_address", "x:1", ["http_address cannot change", "restart it"]),
        ("managed_ledger.ack_quorum", "1", ["managed_ledger.ack_quorum cannot change"]),
        ("default_retention_time_minutes", "60", ["default_retention_time_minutes cannot change"]),
        ("max_unsent_bytes", "2000000", ["at least 10485760", "max_message_size_bytes"]),
    ],
)
def test_what_is_refused_at_start_is_refused_later(name: str, text: str, words: list[str]) -> None:
    async def work(world: World) -> None:
        broker = OneBroker(world)
        with pytest.raises(InvalidArgument) as refused:
            await broker.options.set(name, text)
        assert all(word in str(refused.value) for word in words), str(refused.value)
        assert await broker.options.values() == {}

    simulated(work)


def test_names_of_apache_pulsar_are_understood() -> None:
    async def work(world: World) -> None:
        broker = OneBroker(world)
        await broker.options.set("maxConcurrentTopicLoadRequest", "1000")
        await broker.options.set("brokerMaxConnections", "5")
        assert await broker.options.values() == {
            "broker_max_connections": "5",
            "max_concurrent_topic_load_requests": "1000",
        }
        await broker.options.remove("maxConcurrentTopicLoadRequest")
        assert list(await broker.options.values()) == ["broker_max_connections"]
        with pytest.raises(InvalidArgument, match="http_address is not an option that can change"):
            await broker.options.remove("httpAddress")

    simulated(work)


def test_what_a_newer_broker_stored_is_left_out_and_the_rest_is_in_force() -> None:
    async def work(world: World) -> None:
        broker = OneBroker(world)
        await broker.store({"of_tomorrow": "1", "slow_add_ms": "0", "stats_read_wait_ms": "9"})
        await broker.options.start()
        assert broker.changes == [["stats_read_wait_ms"]]
        assert (broker.config.stats_read_wait_ms, broker.config.slow_add_ms) == (9, 1_000)
        await broker.options.set("slow_add_ms", "5")
        await broker.until("slow_add_ms", 5)
        assert (await broker.options.values())["of_tomorrow"] == "1"
        await broker.options.remove("of_tomorrow")
        assert "of_tomorrow" not in await broker.options.values()

    simulated(work)


def test_values_that_do_not_fit_the_options_of_one_broker_are_not_in_force_there() -> None:
    async def work(world: World) -> None:
        first, second = OneBroker(world), OneBroker(world, max_message_size_bytes=8 << 20)
        for broker in (first, second):
            await broker.options.start()
        await first.options.set("max_unsent_bytes", str(10 << 20))
        await first.until("max_unsent_bytes", 10 << 20)
        while not second.options.refused:
            await world.clock.sleep(0.01)
        assert "max_unsent_bytes" in second.options.refused
        assert second.config == second.options._started
        await first.options.set("max_unsent_bytes", str(16 << 20))
        await second.until("max_unsent_bytes", 16 << 20)
        assert second.options.refused == ""

    simulated(work)


@pytest.mark.parametrize(
    "option",
    [each for each in describe(BrokerConfig) if each.is_dynamic],
    ids=lambda each: each.name,
)
def test_each_dynamic_option_can_be_set_where_brokers_have_the_defaults(option: Option) -> None:
    """Options are set one by one: one that only fits together with another could never be set."""
    values = {
        "true or false": ["true", "false"],
        "integer": ["6" if "<" in option.limits else "1000000000"],
        "number": ["7.5"],
    }.get(option.type, option.type.split(" | "))
    for text in values:
        value = dynamic_value(BrokerConfig, option.name, text, "a test")
        check(msgspec.structs.replace(BrokerConfig(), **{option.name: value}))


def test_a_record_that_cannot_be_read_leaves_what_is_in_force() -> None:
    async def work(world: World) -> None:
        broker = OneBroker(world)
        await broker.store({"slow_add_ms": "5"})
        await broker.options.start()
        _, version = await broker.records.get(paths.DYNAMIC_OPTIONS, DynamicOptionsRecord) or (
            "",
            0,
        )
        await world.metadata.commit([put(b"{", version)])
        while not broker.options.refused:
            await world.clock.sleep(0.01)
        assert broker.config.slow_add_ms == 5
        await world.metadata.commit([put(b'{"values": {"slow_add_ms": "6"}}', version + 1)])
        await broker.until("slow_add_ms", 6)
        assert broker.options.refused == ""

    simulated(work)


def put(data: bytes, version: int) -> Op:
    return Op("put", paths.DYNAMIC_OPTIONS, data, version)


@pytest.mark.parametrize("is_cached", [True, False])
def test_loaded_topics_follow_the_defaults_unless_a_policy_says_otherwise(is_cached: bool) -> None:
    """Also those of a namespace that had to make room in the cache for others."""

    async def work(world: World) -> None:
        config = BrokerConfig(metadata_url="memory:")
        records = Records(world.metadata, world.clock, world.random)
        namespaces = Namespaces(world, records, config)
        await namespaces.start()
        await namespaces.store.set_namespace(
            "public", "default", model.MAX_CONSUMERS_PER_TOPIC, lambda _: 4
        )
        topics: list[Any] = []
        live = LivePolicies(
            world,
            namespaces,
            lambda: topics,
            lambda topic, policies: topic.topic_limits.use(policies),
        )
        limits = TopicLimits(TOPIC, config, world.clock, await live.read(TOPIC), Meter(0.0))
        topics.append(SimpleNamespace(name=TOPIC, topic_limits=limits, closed=None))
        live.loaded(TOPIC, await namespaces.policies("public", "default"))
        other = namespaces.through(records)
        if not is_cached:
            namespaces._cached.namespaces.clear()
        for option in ("max_publish_rate_per_topic_in_messages", "max_consumers_per_topic"):
            msgspec.structs.force_setattr(config, option, 9)
        namespaces.options_changed()
        while limits.publish_rate.messages.rate != 9:
            await world.clock.sleep(0.01)
        assert limits.policies[model.MAX_CONSUMERS_PER_TOPIC] == 4
        assert other.store.defaults[model.MAX_CONSUMERS_PER_TOPIC] == 9
        assert isinstance(await other.effective("public", "default"), Effective)

    simulated(work)


def test_limits_on_connections_follow() -> None:
    config = BrokerConfig()

    async def scenario() -> None:
        clock: Any = None
        traffic = ConnectionTraffic(clock, config)
        traffic.options_changed(
            msgspec.structs.replace(
                config,
                broker_max_connections=3,
                broker_max_connections_per_ip=2,
                max_unsent_bytes=1 << 20,
                max_partial_input_bytes=1 << 21,
                max_message_publish_buffer_size_bytes=1 << 22,
            )
        )
        slots = traffic.limits.slots
        assert (slots.connections_max, slots.per_address_max) == (3, 2)
        assert traffic.limits.unsent.limit_bytes == 1 << 20
        assert traffic.limits.partial_input.limit_bytes == 1 << 21
        traffic.budget.use(1 << 22)
        assert traffic.budget.full

    asyncio.run(scenario())


def test_those_that_wait_for_room_go_on_once_the_limit_is_raised() -> None:
    async def scenario() -> None:
        budget = ByteBudget(10)
        budget.use(15)
        waiting = asyncio.ensure_future(budget.wait_for_room())
        budget.limit(15)
        await asyncio.sleep(0)
        assert not waiting.done()
        budget.limit(16)
        await waiting
        budget.limit(15)
        assert budget.full

    asyncio.run(scenario())


# They read at the start, and are told of changes: by ``options_changed``, as a policy.
_ARE_TOLD = {"broker/clients/traffic.py", "broker/publishing/dedup_log.py"}


def reads_in_constructors(tree: ast.AST) -> Iterator[str]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name in ("__init__", "start"):
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and node.attr in NAMES:
                    yield node.attr


def test_no_part_of_a_broker_keeps_a_dynamic_option_from_its_start() -> None:
    package = Path(pulsarish.broker.__file__).parent
    for file in package.rglob("*.py"):
        if file.relative_to(package.parent).as_posix() not in _ARE_TOLD:
            found = list(reads_in_constructors(ast.parse(file.read_text())))
            assert not found, f"{file.name} reads {found} once: it would not see a change"
