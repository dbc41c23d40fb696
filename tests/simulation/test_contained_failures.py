"""What one client, one topic or one ledger meets ends that and nothing else: the node serves on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from pulsarish import InitialPosition
from pulsarish.broker.broker import Broker
from pulsarish.broker.ownership.leader import LeaderElection
from pulsarish.broker.sessions import grpc_server as grpc_face
from pulsarish.broker.sessions.session import Session
from pulsarish.broker.subscriptions.subscriptions import FAILS_AGAIN_SECONDS
from pulsarish.broker.topics import maintenance
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.sweeper import Sweeper
from pulsarish.broker.topics.topic import Topic
from pulsarish.ledger.add_stream import AddStream
from pulsarish.ledger.bookies import Bookies
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.managed_ledger.cursors.cursor import Cursor
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.tree_age import TreeAge
from pulsarish.model.errors import (
    MetadataUnavailable,
    PulsarishError,
    ServiceNotReady,
    TopicNotFound,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.containment import ScopeKind
from pulsarish.runtime.seams import Conflict, Op, StreamBroken, World
from pulsarish.security.credentials import Caller
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.wire._pb import broker_pb2 as pb
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import ConsumeClient, PublishClient, entry, find

TOPIC = "persistent://public/default/t"


async def _one_message(brokered: Brokered) -> tuple[str, tuple[int, int]]:
    """Publish one; the owner's address, and the position."""
    address = await find(brokered.world, list(brokered.cluster.brokers), TOPIC)
    publisher = await PublishClient.connect(brokered.world, address)
    await publisher.open(1, TOPIC)
    await publisher.send([(1, entry("p", 0))])
    (position,) = await publisher.wait(1, 1)
    assert isinstance(position, tuple)
    return address, position


def test_an_acknowledgement_beyond_the_end_is_refused_without_metadata() -> None:
    async def scenario(brokered: Brokered) -> None:
        address, (ledger, last) = await _one_message(brokered)
        consumer = await ConsumeClient.connect(brokered.world, address)
        await consumer.subscribe(1, TOPIC)
        (got,) = await consumer.take(1)
        (name,) = brokered.cluster.brokers
        life = brokered.node(name).incarnation
        brokered.sim.network.partition([name], [METADATA])
        brokered.sim.metadata.break_connection(brokered.node(name).session_id)
        with pytest.raises(PulsarishError) as refused:
            await consumer.ack(1, [(ledger, last + 5)])
        assert refused.value.retryable
        assert brokered.node(name).alive
        assert brokered.node(name).incarnation == life
        brokered.sim.network.heal_all()
        await consumer.ack(1, [(got.ledger, got.entry)])

    play_with_brokers(scenario)


async def _create_partitioned(broker: Broker) -> None:
    await broker._namespaces.create_partitioned(TopicName("public", "default", "parts"), 2)


async def _set_policy(broker: Broker) -> None:
    await broker._namespaces.store.clear_topic(TopicName("public", "default", "t"))


async def _list_lacking(broker: Broker) -> None:
    _ = await LedgerStore(broker._records, broker._world.clock).under_replicated([0])


@pytest.mark.parametrize("change", [_create_partitioned, _set_policy, _list_lacking])
def test_what_needs_metadata_raises_that_they_are_unavailable(
    change: Callable[[Broker], Awaitable[None]],
) -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await _one_message(brokered)
        ((name, broker),) = brokered.cluster.brokers.items()
        brokered.sim.network.partition([name], [METADATA])
        brokered.sim.metadata.break_connection(brokered.node(name).session_id)

        async def attempt(_world: World) -> None:
            with pytest.raises(MetadataUnavailable):
                await change(broker)

        await brokered.node(name).run(attempt)
        brokered.sim.network.heal_all()

    play_with_brokers(scenario)


class Defect(Exception):
    """What nobody has thought of."""


def _raising(_was: object) -> object:
    async def fail(*_args: object, **_named: object) -> None:
        raise Defect

    return fail


def _raising_at_once(_was: object) -> object:
    def fail(*_args: object, **_named: object) -> None:
        raise Defect

    return fail


def _failures(brokered: Brokered, name: str) -> dict[ScopeKind, int]:
    world = brokered.node(name).world
    assert world is not None
    return {kind: count for kind, count in world.tasks.contained_failures.items() if count}


async def _still_works(brokered: Brokered, life: int) -> None:
    """The one broker lives on, and the topic takes and gives messages again."""
    (name,) = brokered.cluster.brokers
    client = brokered.client()
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC, "after", initial_position=InitialPosition.Earliest)
    _ = await producer.send(b"after")
    while (message := await consumer.receive()).data() != b"after":
        await consumer.acknowledge(message)
    assert brokered.node(name).alive
    assert brokered.node(name).incarnation == life


async def _acknowledge_beyond(consumer: ConsumeClient, ledger: int, last: int) -> None:
    """Ask for what makes the subscription look into the log, and wait until it says that it has
    ended.
    """
    await consumer.say(
        acks=[pb.Ack(consumer_id=1, request_id=99, ledgers=[ledger], entries=[last + 5])]
    )
    while 1 not in consumer.closed:
        await consumer.receive()
    assert consumer.closed[1].retryable


def test_a_subscription_whose_task_fails_is_opened_again() -> None:
    async def scenario(brokered: Brokered) -> None:
        address, (ledger, last) = await _one_message(brokered)
        (name,) = brokered.cluster.brokers
        brokered.node(name).expect(Defect)
        life, before = brokered.node(name).incarnation, brokered.topic(TOPIC)
        consumer, other = (
            await ConsumeClient.connect(brokered.world, address),
            await ConsumeClient.connect(brokered.world, address),
        )
        await consumer.subscribe(1, TOPIC)
        await other.subscribe(1, TOPIC, subscription="other")
        (got,) = await consumer.take(1)
        await consumer.ack(1, [(got.ledger, got.entry)])
        with replaced(ManagedLedger, "why_beyond", _raising):
            await _acknowledge_beyond(consumer, ledger, last)
        assert _failures(brokered, name) == {ScopeKind.SUBSCRIPTION: 1}
        assert brokered.topic(TOPIC) is before
        assert 1 not in other.closed
        again = await ConsumeClient.connect(brokered.world, address)
        await again.subscribe(1, TOPIC)
        _ = await (await brokered.client().create_producer(TOPIC)).send(b"x")
        (got,) = await again.take(1)
        assert (got.ledger, got.entry) == (ledger, last + 1), "what was acknowledged stays so"
        await _still_works(brokered, life)
        assert brokered.topic(TOPIC) is before

    play_with_brokers(scenario)


@pytest.mark.parametrize("pause_seconds", [1.0, 2 * FAILS_AGAIN_SECONDS])
def test_a_subscription_that_soon_fails_again_ends_its_topic_which_is_loaded_again(
    pause_seconds: float,
) -> None:
    async def scenario(brokered: Brokered) -> None:
        address, (ledger, last) = await _one_message(brokered)
        (name,) = brokered.cluster.brokers
        brokered.node(name).expect(Defect)
        life, before = brokered.node(name).incarnation, brokered.topic(TOPIC)
        for _ in range(2):
            consumer = await ConsumeClient.connect(brokered.world, address)
            await consumer.subscribe(1, TOPIC)
            with replaced(ManagedLedger, "why_beyond", _raising):
                await _acknowledge_beyond(consumer, ledger, last)
            await brokered.world.clock.sleep(pause_seconds)
        assert _failures(brokered, name) == {ScopeKind.SUBSCRIPTION: 2}
        await _still_works(brokered, life)
        assert (brokered.topic(TOPIC) is before) == (pause_seconds > FAILS_AGAIN_SECONDS)

    play_with_brokers(scenario)


def test_a_subscription_that_fails_while_its_cursor_changes_ends_its_topic() -> None:
    async def scenario(brokered: Brokered) -> None:
        address, (ledger, last) = await _one_message(brokered)
        (name,) = brokered.cluster.brokers
        brokered.node(name).expect(Defect)
        life, before = brokered.node(name).incarnation, brokered.topic(TOPIC)
        consumer = await ConsumeClient.connect(brokered.world, address)
        await consumer.subscribe(1, TOPIC)
        with replaced(Cursor, "flush", _raising):
            await consumer.say(
                acks=[pb.Ack(consumer_id=1, request_id=99, ledgers=[ledger], entries=[last])]
            )
            while 1 not in consumer.closed:
                await consumer.receive()
        assert _failures(brokered, name) == {ScopeKind.SUBSCRIPTION: 1}
        await _still_works(brokered, life)
        assert brokered.topic(TOPIC) is not before

    play_with_brokers(scenario)


def test_a_topic_whose_maintenance_fails_is_loaded_again_and_the_others_are_looked_after() -> None:
    other = "persistent://public/default/other"

    async def scenario(brokered: Brokered) -> None:
        _ = await _one_message(brokered)
        (name,) = brokered.cluster.brokers
        brokered.node(name).expect(Defect)
        life = brokered.node(name).incarnation
        _ = await (await brokered.client().create_producer(other)).send(b"x")
        looked_after: list[str] = []

        def make(was: Any) -> object:
            async def enforce_policies(topic: Topic, now_ms: int, interval: float) -> bool:
                if topic.name.full == TOPIC and not looked_after:
                    looked_after.append(TOPIC)
                    raise Defect
                looked_after.append(topic.name.full)
                done: bool = await was(topic, now_ms, interval)
                return done

            return enforce_policies

        with replaced(maintenance, "enforce_policies", make):
            await brokered.until(
                lambda: TOPIC in looked_after and looked_after.count(other) > 2, seconds=600.0
            )
        assert _failures(brokered, name) == {ScopeKind.TOPIC: 1}
        await _still_works(brokered, life)

    play_with_brokers(scenario, managed_ledger_maintenance_interval_seconds=2.0)


def test_a_connection_whose_writer_fails_ends_and_nothing_else_does() -> None:
    async def scenario(brokered: Brokered) -> None:
        address, _position = await _one_message(brokered)
        (name,) = brokered.cluster.brokers
        brokered.node(name).expect(Defect)
        life, before = brokered.node(name).incarnation, brokered.topic(TOPIC)
        with replaced(grpc_face, "encode_consume", _raising_at_once):
            consumer = await ConsumeClient.connect(brokered.world, address)
            with pytest.raises(StreamBroken):
                await consumer.subscribe(1, TOPIC)
        assert _failures(brokered, name) == {ScopeKind.CONNECTION: 1}
        await _still_works(brokered, life)
        assert brokered.topic(TOPIC) is before

    play_with_brokers(scenario)


def test_a_connection_whose_command_fails_ends_and_nothing_else_does() -> None:
    async def scenario(brokered: Brokered) -> None:
        address, _position = await _one_message(brokered)
        (name,) = brokered.cluster.brokers
        brokered.node(name).expect(Defect)
        life = brokered.node(name).incarnation
        with replaced(Session, "handle", _raising_at_once):
            consumer = await ConsumeClient.connect(brokered.world, address)
            with pytest.raises(StreamBroken):
                await consumer.subscribe(1, TOPIC)
        assert _failures(brokered, name) == {ScopeKind.CONNECTION: 1}
        await _still_works(brokered, life)

    play_with_brokers(scenario)


def test_a_ledger_whose_ensemble_change_fails_ends_and_the_topic_goes_on_in_another() -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await _one_message(brokered)
        (name,) = brokered.cluster.brokers
        brokered.node(name).expect(Defect)
        life = brokered.node(name).incarnation
        await brokered.cluster.start_bookie("bookie3")
        await brokered.world.clock.sleep(2.0)
        failed: list[int] = []

        def once(was: Any) -> object:
            async def store_change(writer: LedgerWriter, change: object) -> object:
                if not failed:
                    failed.append(writer.ledger_id)
                    raise Defect
                return await was(writer, change)

            return store_change

        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        with replaced(LedgerWriter, "store_change", once):
            brokered.node("bookie0").crash()
            for number in range(50):
                _ = await producer.send(b"%d" % number)
                await brokered.world.clock.sleep(0.1)
        assert failed
        assert _failures(brokered, name) == {ScopeKind.LEDGER: 1}
        await _still_works(brokered, life)

    play_with_brokers(scenario)


def _raising_later(_was: object) -> object:
    async def fail(topics: LoadedTopics, *_args: object, **_named: object) -> None:
        await topics._world.clock.sleep(0.1)
        raise Defect

    return fail


async def _never(*_args: object, **_named: object) -> None:
    await asyncio.Event().wait()


def _once(raised: list[object]) -> Callable[[Any], object]:
    """Whatever is called raises the first time."""

    def make(was: Any) -> object:
        def call(*args: object) -> object:
            if not raised:
                raised.append(args[0])
                raise Defect
            return was(*args)

        return call

    return make


@pytest.mark.parametrize(
    ("owner", "kind"), [(LedgerWriter, ScopeKind.LEDGER), (AddStream, ScopeKind.CONNECTION)]
)
def test_a_tick_that_fails_ends_one_ledger_or_connection_and_the_others_are_timed_on(
    owner: object, kind: ScopeKind
) -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await _one_message(brokered)
        (name,) = brokered.cluster.brokers
        brokered.node(name).expect(Defect)
        life = brokered.node(name).incarnation
        raised: list[object] = []
        producer = await brokered.client().create_producer(TOPIC)
        with replaced(owner, "tick", _once(raised)):
            while not raised:
                _ = await producer.send(b"x")
                await brokered.world.clock.sleep(0.1)
        assert _failures(brokered, name) == {kind: 1}
        await _still_works(brokered, life)

    play_with_brokers(scenario)


def test_a_walk_of_the_sweeper_that_fails_ends_no_broker_and_the_next_one_is_made() -> None:
    async def scenario(brokered: Brokered) -> None:
        ((name, broker),) = brokered.cluster.brokers.items()
        brokered.node(name).expect(Defect)
        raised: list[object] = []
        with replaced(Sweeper, "_walk_namespace", _once(raised)):
            await brokered.until(lambda: broker._sweeper.walks_count > 0, seconds=3_600.0)
        assert raised
        assert _failures(brokered, name) == {ScopeKind.BACKGROUND: 1}

    play_with_brokers(scenario, sweeper_interval_seconds=5)


def test_a_look_at_the_age_of_the_metadata_that_fails_is_not_the_last_one() -> None:
    async def scenario(brokered: Brokered) -> None:
        ((name, broker),) = brokered.cluster.brokers.items()
        age = broker._ledgers.age
        brokered.node(name).expect(Defect)
        raised: list[object] = []

        def fail_once(was: Any) -> object:
            async def look(this: TreeAge) -> object:
                if this is age and not raised:
                    raised.append(this)
                    raise Defect
                return await was(this)

            return look

        with replaced(TreeAge, "look", fail_once):
            # another node has seen a newer tree
            age.learn(age.seen._replace(zxid=age.seen.zxid + 1_000_000))
            await brokered.until(lambda: age.is_older, seconds=60.0)
        assert raised
        assert _failures(brokered, name) == {ScopeKind.BACKGROUND: 1}

    play_with_brokers(scenario)


def test_a_topic_that_cannot_take_its_policies_does_not_keep_them_from_the_others() -> None:
    other = "persistent://public/default/other"

    async def scenario(brokered: Brokered) -> None:
        address, _position = await _one_message(brokered)
        assert await find(brokered.world, list(brokered.cluster.brokers), other) == address
        publisher = await PublishClient.connect(brokered.world, address)
        await publisher.open(2, other)
        ((name, broker),) = brokered.cluster.brokers.items()
        brokered.node(name).expect(Defect)
        life = brokered.node(name).incarnation
        loaded = list(broker._topics.loaded.values())
        assert len(loaded) == 2
        taken: list[str] = []

        def make(was: Any) -> object:
            def use(topic: Topic, policies: object) -> None:
                taken.append(topic.name.full)
                if len(taken) == 1:
                    raise Defect
                was(topic, policies)

            return use

        with replaced(Topic, "use", make):
            await brokered.administer("POST", "namespaces/public/default/messageTTL", 60)
            await brokered.until(lambda: len(set(taken)) == 2)
        assert _failures(brokered, name) == {ScopeKind.TOPIC: 1}
        await _still_works(brokered, life)

    play_with_brokers(scenario)


async def _is_registered(brokered: Brokered, broker: Broker) -> bool:
    path = paths.broker(broker._ownership.registry.instance_id)
    return (await brokered.world.metadata.get_many([path]))[0] is not None


def test_a_broker_whose_place_of_registration_was_deleted_registers_again() -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await _one_message(brokered)
        ((name, broker),) = brokered.cluster.brokers.items()
        node, life = brokered.node(name), brokered.node(name).incarnation
        async with brokered.world.clock.timeout(30.0):
            while True:
                brokered.sim.metadata.expire(node.session_id)
                try:
                    await brokered.world.metadata.commit([Op("delete", paths.BROKERS)])
                    break
                except Conflict:
                    # It had registered again already.
                    continue
            while not await _is_registered(brokered, broker):
                await brokered.world.clock.sleep(0.1)
        await _still_works(brokered, life)

    play_with_brokers(scenario)


def _touch_bookies(broker: Broker) -> None:
    broker._ledgers.bookies._dirty.set()


def _touch_leader(broker: Broker) -> None:
    broker._ownership.leader._changed.set()


@pytest.mark.parametrize(
    ("kind", "method", "touch"),
    [(Bookies, "_take", _touch_bookies), (LeaderElection, "_look", _touch_leader)],
)
def test_what_other_nodes_say_of_themselves_does_not_end_a_broker_and_is_read_again(
    kind: type, method: str, touch: Callable[[Broker], None]
) -> None:
    async def scenario(brokered: Brokered) -> None:
        ((name, broker),) = brokered.cluster.brokers.items()
        node = brokered.node(name)
        node.expect(Defect)
        life, calls = node.incarnation, 0

        def fail_twice(was: Any) -> object:
            def call(*arguments: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls <= 2:
                    raise Defect
                return was(*arguments)

            return call

        with replaced(kind, method, fail_twice):
            touch(broker)
            await brokered.until(lambda: calls >= 3)
        assert _failures(brokered, name) == {ScopeKind.BACKGROUND: 2}
        await _still_works(brokered, life)

    play_with_brokers(scenario)


def test_two_unloads_of_one_bundle_at_once_both_end_and_so_does_a_graceful_stop() -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await _one_message(brokered)
        ((name, broker),) = brokered.cluster.brokers.items()
        topics = broker._topics

        async def unload_twice(_world: World) -> None:
            bundle = await topics.bundle(TopicName.parse(TOPIC))
            await asyncio.gather(topics.unload_bundle(bundle), topics.unload_bundle(bundle))
            assert TOPIC not in topics.loaded

        await brokered.node(name).run(unload_twice)
        _ = await _one_message(brokered)

        async def stop_while_unloading(_world: World) -> None:
            bundle = await topics.bundle(TopicName.parse(TOPIC))
            await asyncio.gather(topics.unload_bundle(bundle), topics.hand_over_all())
            assert not broker._ownership.owned.bundles()

        await brokered.node(name).run(stop_while_unloading)
        await brokered.cluster.stop_broker(name)
        assert not await brokered.world.metadata.children(paths.BROKERS)

    play_with_brokers(scenario)


def test_all_who_wait_for_one_unload_of_a_bundle_get_its_failure() -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await _one_message(brokered)
        ((name, broker),) = brokered.cluster.brokers.items()
        topics = broker._topics

        async def unload_twice(_world: World) -> None:
            bundle = await topics.bundle(TopicName.parse(TOPIC))
            with replaced(LoadedTopics, "_close_bundle", _raising_later):
                outcomes = await asyncio.gather(
                    topics.unload_bundle(bundle),
                    topics.unload_bundle(bundle),
                    return_exceptions=True,
                )
            assert [type(outcome) for outcome in outcomes] == [Defect, Defect]
            await topics.unload_bundle(bundle)
            assert not broker._ownership.owned.bundles()

        await brokered.node(name).run(unload_twice)
        _ = await _one_message(brokered)

    play_with_brokers(scenario)


def test_who_waits_for_an_unload_that_is_cancelled_is_told_to_try_again() -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await _one_message(brokered)
        ((name, broker),) = brokered.cluster.brokers.items()
        topics = broker._topics

        async def cancel_the_first(world: World) -> None:
            bundle = await topics.bundle(TopicName.parse(TOPIC))
            loop = asyncio.get_running_loop()
            with replaced(LoadedTopics, "_close_bundle", lambda _was: _never):
                first = loop.create_task(topics.unload_bundle(bundle))
                await brokered.until(lambda: bundle in topics.bundles._leaving)
                second = loop.create_task(topics.unload_bundle(bundle))
                await world.clock.sleep(5.0)
                first.cancel()
                with pytest.raises(ServiceNotReady):
                    await second

        await brokered.node(name).run(cancel_the_first)

    play_with_brokers(scenario)


def test_a_broker_whose_hand_over_fails_leaves_nevertheless() -> None:
    async def scenario(brokered: Brokered) -> None:
        _ = await _one_message(brokered)
        (name,) = brokered.cluster.brokers
        with replaced(LoadedTopics, "unload_bundle", _raising):
            await brokered.cluster.stop_broker(name)
        assert not await brokered.world.metadata.children(paths.BROKERS)

    play_with_brokers(scenario)


def test_what_answers_a_ping_with_something_else_has_not_answered() -> None:
    async def scenario(brokered: Brokered) -> None:
        broker0, broker1 = brokered.cluster.brokers.values()
        other = broker1._ownership.registry.me
        assert other is not None

        async def nonsense(_request: bytes, _caller: Caller) -> bytes:
            return b"\xff\xff\xff"

        async def lie(world: World) -> None:
            _ = await world.connections.serve("elsewhere:1", {}, {"broker.ping": nonsense})

        await brokered.sim.node("elsewhere").run(lie)
        lying = msgspec.structs.replace(other, instance_id="liar~1", address="elsewhere:1")

        async def ask(_world: World) -> None:
            pings = broker0._ownership.pings
            assert await asyncio.gather(pings._ping(lying), pings._ping(lying)) == [False, False]
            assert lying.instance_id not in pings._pinging

        await brokered.node("broker0").run(ask)

    play_with_brokers(scenario, brokers=2)


def test_users_are_not_told_that_a_topic_is_gone_before_its_deletion_is_stored() -> None:
    async def scenario(brokered: Brokered) -> None:
        address, _position = await _one_message(brokered)
        ((name, broker),) = brokered.cluster.brokers.items()
        consumer = await ConsumeClient.connect(brokered.world, address)
        await consumer.subscribe(1, TOPIC)

        def unavailable(_was: object) -> object:
            async def update(*_args: object, **_named: object) -> None:
                raise MetadataUnavailable("it is away")

            return update

        async def fail_to_delete(_world: World) -> None:
            with replaced(Records, "update", unavailable), pytest.raises(MetadataUnavailable):
                await broker._topics.delete(TopicName.parse(TOPIC), force=True)

        await brokered.node(name).run(fail_to_delete)
        while 1 not in consumer.closed:
            await consumer.receive()
        assert consumer.closed[1].retryable, "the topic is still there"
        await consumer.subscribe(1, TOPIC)

        async def delete(_world: World) -> None:
            await broker._topics.delete(TopicName.parse(TOPIC), force=True)

        await brokered.node(name).run(delete)
        while 1 not in consumer.closed:
            await consumer.receive()
        assert isinstance(consumer.closed[1], TopicNotFound)

    play_with_brokers(scenario)
