"""Brokers whose metadata service is away: loaded topics continue while no other broker can take
them over (rule 19).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from pulsarish.broker.broker import Broker
from pulsarish.broker.topics.topic import Topic
from pulsarish.client.enums import InitialPosition
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import AutoRecoverySwitch, UnderReplicated
from pulsarish.model.errors import MetadataUnavailable, NotAllowedError, ServiceNotReady, Timeout
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpRequest, HttpResponse, World
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.wire.json_record import decode_record
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"
LONG_SECONDS = 40.0
LOG = ManagedLedgerOptions(
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=1,
    max_entries_per_ledger=10,
    min_ledger_rollover_time_minutes=0,
    cursor_max_entries_per_ledger=5,
    cursor_node_writes_max=1,
    cursor_flush_interval_ms=100,
)


def _cut(brokered: Brokered, names: Sequence[str]) -> None:
    for name in names:
        brokered.sim.network.cut(name, METADATA)
        brokered.sim.network.cut(METADATA, name)


def _heal(brokered: Brokered, names: Sequence[str]) -> None:
    for name in names:
        brokered.sim.network.heal(name, METADATA)
        brokered.sim.network.heal(METADATA, name)


async def _asked(broker: Broker, request: HttpRequest, _world: World) -> HttpResponse:
    return await broker.http.handle(request)


def _instances(brokered: Brokered) -> dict[str, str]:
    return {
        name: broker._ownership.registry.instance_id
        for name, broker in brokered.cluster.brokers.items()
    }


async def _switch_off(since_ms: int, world: World) -> None:
    records = Records(world.metadata, world.clock, world.random)
    path = paths.autorecovery_switch()
    await records.make_parents(path)
    switch = AutoRecoverySwitch(off_since_ms=since_ms)
    _ = await records.update(path, AutoRecoverySwitch, lambda _found: switch)


def _owner_first(brokered: Brokered) -> list[str]:
    """The names of the brokers, first the one that has the topic."""
    brokers = brokered.cluster.brokers
    return sorted(brokers, key=lambda name: TOPIC not in brokers[name]._topics.loaded)


@pytest.mark.parametrize("brokers", [1, 2, 3])
def test_topics_are_served_while_the_service_is_away_and_after_its_return(brokers: int) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.create_producer(TOPIC)
        before, topic = _instances(brokered), brokered.topic(TOPIC)
        brokered.sim.metadata.stop()
        for number in range(int(LONG_SECONDS)):
            _ = await producer.send(b"%d" % number)
            message = await consumer.receive()
            assert message.data() == b"%d" % number
            await consumer.acknowledge(message)
            await brokered.world.clock.sleep(1.0)
        name = _owner_first(brokered)[0]
        owner = brokered.cluster.brokers[name]
        assert owner.unready_reason() == ""
        assert [
            each for each in owner.warnings() if "the metadata service has been away for" in each
        ]
        with pytest.raises(MetadataUnavailable, match="the metadata service is away"):
            _ = await brokered.node(name).run(
                lambda _world: owner._topics.topic("persistent://public/default/new")
            )
        with pytest.raises(MetadataUnavailable, match="the metadata service is away"):
            await brokered.node(name).run(
                lambda _world: owner._topics.unload(TopicName.parse(TOPIC))
            )
        for path in (
            ("admin", "v2", "persistent", "public", "default", "t", "partitions"),
            ("admin", "v2", "persistent", "public", "default", "t", "stats"),
            ("lookup", "v2", "topic", "persistent", "public", "default", "t"),
        ):
            request = HttpRequest("GET", "/" + "/".join(path), {}, {}, b"", path)
            found = await brokered.node(name).run(partial(_asked, owner, request))
            assert found.status == 200, found.body
        newcomer = brokered.client()
        late = await newcomer.create_producer(TOPIC)
        _ = await late.send(b"late")
        message = await consumer.receive()
        assert message.data() == b"late"
        await consumer.acknowledge(message)
        await consumer.close()
        consumer = await newcomer.subscribe(TOPIC, "s")
        with pytest.raises(Timeout, match="the metadata service is away"):
            _ = await brokered.client(operation_timeout_seconds=5).create_producer(
                "persistent://public/default/new"
            )
        brokered.sim.metadata.start()
        await brokered.world.clock.sleep(20.0)
        assert not owner.warnings()
        await brokered.node(name).run(partial(_switch_off, 1))
        await brokered.world.clock.sleep(1.0)
        (warning,) = owner.warnings()
        assert "to switch it on: pulsarish autorecovery enable" in warning
        await brokered.node(name).run(partial(_switch_off, 0))
        await brokered.world.clock.sleep(1.0)
        assert not owner.warnings()
        _ = await producer.send(b"after")
        assert (await consumer.receive()).data() == b"after"
        assert _instances(brokered) == before
        assert brokered.topic(TOPIC) is topic
        other = await client.create_producer("persistent://public/default/new")
        _ = await other.send(b"new")

    play_with_brokers(scenario, seeds=1, brokers=brokers)


@pytest.mark.parametrize("of_bundle", [True, False])
def test_a_topic_is_not_closed_when_the_service_has_just_gone_silent(*, of_bundle: bool) -> None:
    """Its broker does not know of the outage yet. No broker could open the topic again."""

    async def scenario(brokered: Brokered) -> None:
        producer = await brokered.client().create_producer(TOPIC)
        _ = await producer.send(b"0")
        topic = brokered.topic(TOPIC)
        name = _owner_first(brokered)[0]
        topics = brokered.cluster.brokers[name]._topics
        (bundle,) = (each for each in topics.bundles.owned() if each.covers(topic.name))
        _cut(brokered, list(brokered.cluster.brokers))
        unload = asyncio.create_task(
            brokered.node(name).run(
                lambda _: topics.unload_bundle(bundle) if of_bundle else topics.unload(topic.name)
            )
        )
        for number in range(20):
            _ = await producer.send(b"%d" % number)
            await brokered.world.clock.sleep(1.0)
        with pytest.raises(MetadataUnavailable):
            await unload
        assert brokered.topic(TOPIC) is topic

    play_with_brokers(scenario, seeds=1, brokers=2)


@pytest.mark.parametrize("is_used", [True, False])
def test_a_topic_that_was_opened_for_maintenance_stays_open(*, is_used: bool) -> None:
    """If a client begins to use it, or the service goes silent, before it is closed."""

    async def scenario(brokered: Brokered) -> None:
        producer = await brokered.client().create_producer(TOPIC)
        _ = await producer.send(b"0")
        await producer.close()
        (name,) = brokered.cluster.brokers
        topics = brokered.cluster.brokers[name]._topics
        topic_name = TopicName.parse(TOPIC)
        opened: list[Topic] = []

        async def maintain(_world: World) -> None:
            await topics.unload(topic_name)
            await topics.look_after_closed([topic_name])
            opened.append(topics.loaded[TOPIC])
            _cut(brokered, [name])

        await brokered.node(name).run(maintain)
        await brokered.world.clock.sleep(1.0)
        if is_used:
            await brokered.client().create_producer(TOPIC)
            _heal(brokered, [name])
        await brokered.world.clock.sleep(15.0)
        assert topics.loaded.get(TOPIC) is opened[0]
        assert opened[0].closed is None

    play_with_brokers(scenario, seeds=1, brokers=1)


def test_topics_are_served_when_the_service_has_ended_all_sessions_meanwhile() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        names = list(brokered.cluster.brokers)
        before, topic = _instances(brokered), brokered.topic(TOPIC)
        _cut(brokered, names)
        for number in range(int(LONG_SECONDS)):
            _ = await producer.send(b"%d" % number)
            await brokered.world.clock.sleep(1.0)
        assert not any("/brokers/" in path for path in brokered.sim.metadata.tree.nodes)
        _heal(brokered, names)
        await brokered.world.clock.sleep(20.0)
        _ = await producer.send(b"after")
        assert _instances(brokered) == before
        assert brokered.topic(TOPIC) is topic

    play_with_brokers(scenario, seeds=1, brokers=2)


def test_a_broker_stops_when_another_one_still_reaches_the_service() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        _ = await producer.send(b"0")
        owner = brokered.topic(TOPIC)
        away = _owner_first(brokered)[:2]  # most brokers
        name = away[0]
        first = _instances(brokered)[name]
        _cut(brokered, away)
        await brokered.until(lambda: _instances(brokered)[name] == "", seconds=11.0)
        assert owner.log.fenced
        _ = await producer.send(b"1")
        assert brokered.topic(TOPIC) is not owner
        _heal(brokered, away)
        await brokered.until(lambda: _instances(brokered)[name] not in ("", first))

    play_with_brokers(scenario, seeds=1, brokers=3)


def test_an_owner_gives_up_what_another_broker_took_before_it_was_back() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        _ = await producer.send(b"0")
        owner, other = _owner_first(brokered)
        topic, first = brokered.topic(TOPIC), _instances(brokered)[owner]
        _cut(brokered, [owner, other])
        await brokered.world.clock.sleep(30.0)
        _ = await producer.send(b"1")
        _heal(brokered, [other])
        await brokered.world.clock.sleep(1.0)
        late = brokered.client(first=other)
        consumer = await late.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
        assert [(await consumer.receive()).data() for _ in range(2)] == [b"0", b"1"]
        assert TOPIC in brokered.cluster.brokers[other]._topics.loaded
        _heal(brokered, [owner])
        await brokered.until(lambda: topic.log.fenced, seconds=3.0)
        await brokered.until(lambda: not brokered.cluster.brokers[owner]._topics.bundles.owned())
        assert _instances(brokered)[owner] == first, "it keeps what no other broker took"
        _ = await producer.send(b"2")
        assert (await consumer.receive()).data() == b"2"

    play_with_brokers(scenario, seeds=1, brokers=2)


def test_an_owner_that_does_not_come_back_ends_soon_after_another_broker() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        _ = await producer.send(b"0")
        owner, other = _owner_first(brokered)
        _cut(brokered, [owner, other])
        await brokered.world.clock.sleep(30.0)
        _heal(brokered, [other])
        await brokered.until(lambda: _instances(brokered)[owner] == "", seconds=12.0)
        _ = await producer.send(b"1")
        assert TOPIC in brokered.cluster.brokers[other]._topics.loaded

    play_with_brokers(scenario, seeds=1, brokers=2)


def test_ledgers_of_messages_and_cursors_outgrow_their_limits_and_lose_a_bookie() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.create_producer(TOPIC)

        async def pass_on(count: int) -> None:
            for number in range(count):
                _ = await producer.send(b"%d" % number)
                await consumer.acknowledge(await consumer.receive())
                await brokered.world.clock.sleep(0.5)

        cursor = brokered.subscription(TOPIC, "s").cursor
        await pass_on(4)
        await brokered.until(lambda: cursor.has_ledger)
        topic = brokered.topic(TOPIC)
        brokered.sim.metadata.stop()
        await brokered.world.clock.sleep(15.0)
        await pass_on(30)
        (ledger,) = topic.log.ledgers
        writer = topic.log._appender._writer
        assert writer is not None
        members = writer.metadata.last_segment.members
        victim = next(
            name
            for name, bookie in brokered.cluster.bookies.items()
            if bookie.instance_id in members
        )
        brokered.node(victim).crash()
        await pass_on(30)
        await brokered.until(lambda: cursor.persisted_mark_delete == cursor.mark_delete)
        assert cursor.mark_delete.ledger_id == ledger.ledger_id
        assert cursor.mark_delete.entry_id > 60
        brokered.sim.metadata.start()
        await brokered.until(lambda: topic.log.ledgers[-1].ledger_id != ledger.ledger_id)
        await pass_on(5)
        assert brokered.topic(TOPIC) is topic

    play_with_brokers(scenario, seeds=1, brokers=2, managed_ledger=LOG)


def test_what_a_bookie_missed_meanwhile_is_published_although_it_is_back() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        (ledger,) = brokered.topic(TOPIC).log.ledgers
        writer = brokered.topic(TOPIC).log._appender._writer
        assert writer is not None
        brokered.sim.metadata.stop()
        await brokered.world.clock.sleep(15.0)
        brokered.sim.network.cut("broker0", "bookie0")
        _ = await producer.send(b"0")
        await brokered.until(lambda: writer.is_short)
        brokered.sim.network.heal("broker0", "bookie0")
        await brokered.until(lambda: not writer.is_short, seconds=60.0)  # after its quarantine
        _ = await producer.send(b"1")
        brokered.sim.metadata.start()
        path, tree = paths.underreplicated(ledger.ledger_id), brokered.sim.metadata.tree
        await brokered.until(lambda: tree.get(path) is not None)
        node = tree.get(path)
        assert node is not None
        missing = decode_record(node.data, UnderReplicated, path).missing_members
        assert missing == (brokered.cluster.bookies["bookie0"].instance_id,)
        assert not writer.stopped

    play_with_brokers(scenario, seeds=1)


def test_a_ledger_that_lacks_a_bookie_waits_for_the_end_of_the_outage() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        _ = await producer.send(b"0")
        topic = brokered.topic(TOPIC)
        writer = topic.log._appender._writer
        assert writer is not None
        members = writer.metadata.last_segment.members
        victim = next(
            name
            for name, bookie in brokered.cluster.bookies.items()
            if bookie.instance_id in members
        )
        registry = brokered.cluster.brokers["broker0"]._ownership.registry
        returned = registry._returned

        async def later() -> None:
            await brokered.world.clock.sleep(3.0)
            await returned()

        registry._returned = later
        brokered.sim.metadata.stop()
        await brokered.world.clock.sleep(15.0)
        brokered.node(victim).crash()
        _ = await producer.send(b"1")
        await brokered.until(lambda: writer.is_short)
        brokered.sim.metadata.start()
        await brokered.until(lambda: not registry.away)
        assert not writer.stopped
        await brokered.until(lambda: not writer.is_short)
        _ = await producer.send(b"2")
        assert brokered.topic(TOPIC) is topic

    play_with_brokers(scenario, seeds=1, managed_ledger=LOG)


def test_no_bundle_is_given_up_while_no_broker_can_take_it() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        owner, other = _owner_first(brokered)
        broker, topic = brokered.cluster.brokers[owner], brokered.topic(TOPIC)
        bundle = await brokered.node(owner).run(lambda _world: broker._topics.bundle(topic.name))
        to = brokered.cluster.brokers[other]._ownership.registry.me
        broker._drain.start()
        broker._drain.end()
        brokered.sim.metadata.stop()
        for seconds in (1.0, 15.0):
            await brokered.world.clock.sleep(seconds)
            with pytest.raises((MetadataUnavailable, ServiceNotReady), match="metadata service"):
                await brokered.node(owner).run(
                    lambda _world: broker._topics.unload_bundle(bundle, to)
                )
        with pytest.raises(MetadataUnavailable, match="the metadata service is away"):
            await brokered.node(owner).run(lambda _world: broker._topics.unload_bundle(bundle))
        with pytest.raises(NotAllowedError, match="no other broker takes bundles"):
            broker._drain.start()
        _ = await producer.send(b"0")
        assert brokered.topic(TOPIC) is topic

    play_with_brokers(scenario, seeds=1, brokers=2)


def test_an_owner_that_another_broker_replaced_unknown_to_it_learns_that_from_the_bookies() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        _ = await producer.send(b"0")
        topic = brokered.topic(TOPIC)
        _cut(brokered, ["broker0"])
        await brokered.world.clock.sleep(30.0)
        assert brokered.cluster.brokers["broker0"]._ownership.registry.away
        await brokered.cluster.start_broker("broker1")
        late = brokered.client()
        consumer = await late.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
        assert (await consumer.receive()).data() == b"0"
        await brokered.until(lambda: topic.log.fenced, seconds=5.0)

    play_with_brokers(scenario, seeds=1, brokers=1)


def test_a_client_that_loses_its_connections_finds_its_topic_again() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.create_producer(TOPIC)
        topic = brokered.topic(TOPIC)
        brokered.sim.metadata.stop()
        await brokered.world.clock.sleep(20.0)
        for _ in range(10):
            brokered.sim.network.reset("client", 0.0)
        _ = await producer.send(b"0")
        assert (await consumer.receive()).data() == b"0"
        assert brokered.topic(TOPIC) is topic

    play_with_brokers(scenario, seeds=1, brokers=3)
