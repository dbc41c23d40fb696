"""An error that nobody has thought of, met while working for one connection, ends that connection:
others go on, and it is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pulsarish.broker.binary.connection import Connection as BinaryConnection
from pulsarish.broker.nonpersistent.topic import NonPersistentTopic
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.broker.topics.topic import Topic
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.metadata.daemon.connection import Connection as MetadataConnection
from pulsarish.metadata.daemon.daemon import MetadataDaemon
from pulsarish.metadata.daemon.jobs import RequestJob
from pulsarish.metadata.tree.tree import Tree
from pulsarish.proxy.broker_link import BrokerLink
from pulsarish.proxy.brokers import KnownBrokers
from pulsarish.proxy.http_connect import HttpConnectConnection
from pulsarish.proxy.relay import ClientConnection
from pulsarish.proxy.relayed import RelayedConnection
from pulsarish.runtime.containment import ScopeKind
from pulsarish.runtime.seams import Stream, StreamBroken, Tasks, World
from pulsarish.security.credentials import Caller
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.wire._pb import pulsar_pb2 as pb
from tests.integration.test_proxy import PROXY, Plain, look_up, through
from tests.integration.test_proxy import run as run_with_proxy
from tests.support.binary_client import BinaryClient
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import BrokerCluster, entry, find
from tests.support.metadata_daemons import with_daemon
from tests.support.metadata_stores import production
from tests.support.worlds import run_in_production_loop
from tests.support.zk_client import Gone, RawClient, create, text

TOPIC = "persistent://public/default/t"
OTHER = "persistent://public/default/other"
FLEETING = "non-persistent://public/default/f"
BROKER = "broker0:6650"
CREATE, EXISTS, GET = 1, 3, 4


class Defect(Exception):
    """What nobody has thought of."""


@contextmanager
def failing_once(kind: type, method: str) -> Iterator[list[object]]:
    """The next call of a method raises; the objects on which it did."""
    raised: list[object] = []

    def once(was: Any) -> Callable[..., object]:
        def call(this: object, *arguments: object, **named: object) -> object:
            if not raised:
                raised.append(this)
                raise Defect(method)
            return was(this, *arguments, **named)

        return call

    with replaced(kind, method, once):
        yield raised


def failures(tasks: Tasks) -> dict[ScopeKind, int]:
    return {kind: count for kind, count in tasks.contained_failures.items() if count}


# -- Pulsar's binary protocol


async def _opened(brokered: Brokered, *topics: str, **fields: object) -> BinaryClient:
    """A client with a producer on each of the topics, numbered from 1."""
    client = await BinaryClient.connect(brokered.world, BROKER)
    for number, topic in enumerate(topics, 1):
        await find(brokered.world, list(brokered.cluster.brokers), topic)
        assert (await client.open_producer(number, topic, **fields)).command.type == 17
    return client


async def _one_more(client: BinaryClient, number: int, topic: str = TOPIC) -> None:
    client.send(1, number, entry("p", number))
    await client.next(7)


@pytest.mark.parametrize("method", ["_handle", "_pace", "_reply"])
def test_a_client_of_the_binary_protocol_ends_alone(method: str) -> None:
    async def scenario(brokered: Brokered) -> None:
        node = brokered.node("broker0")
        node.expect(Defect)
        life = node.incarnation
        good, bad = await _opened(brokered, TOPIC), await _opened(brokered)
        with failing_once(BinaryConnection, method):
            bad.say(pb.Command(type=18, ping=pb.Ping()))
            await bad.until_lost()
        await _one_more(good, 0)
        assert (node.alive, node.incarnation) == (True, life)
        assert node.world is not None
        assert failures(node.world.tasks) == {ScopeKind.CONNECTION: 1}

    play_with_brokers(scenario)


@pytest.mark.parametrize(("topic", "kind"), [(TOPIC, Topic), (FLEETING, NonPersistentTopic)])
def test_a_topic_that_fails_when_a_client_leaves_does_not_keep_the_clients_other_producers(
    topic: str, kind: type
) -> None:
    async def scenario(brokered: Brokered) -> None:
        node = brokered.node("broker0")
        node.expect(Defect)
        leaving, next_one = (
            await _opened(brokered, topic, OTHER, producer_access_mode=pb.EXCLUSIVE),
            await _opened(brokered),
        )
        assert leaving.transport is not None
        with failing_once(kind, "remove_producer") as raised:
            leaving.transport.abort()
            await brokered.until(lambda: bool(raised))
        for number, name in enumerate((OTHER, topic)):
            while (
                await next_one.open_producer(number, name, producer_access_mode=pb.EXCLUSIVE)
            ).command.type != 17:
                await brokered.world.clock.sleep(0.1)
        assert node.world is not None
        assert failures(node.world.tasks) == {ScopeKind.TOPIC: 1}

    play_with_brokers(scenario)


def test_a_ledger_whose_flush_fails_is_replaced() -> None:
    async def scenario(brokered: Brokered) -> None:
        node = brokered.node("broker0")
        node.expect(Defect)
        client = await _opened(brokered, TOPIC)
        await _one_more(client, 0)
        with failing_once(LedgerWriter, "_flush") as raised:
            await _one_more(client, 1)
        assert raised
        assert node.world is not None
        assert failures(node.world.tasks) == {ScopeKind.LEDGER: 1}

    play_with_brokers(scenario)


def test_one_topic_that_cannot_be_dropped_does_not_keep_the_others() -> None:
    async def scenario(brokered: Brokered) -> None:
        node = brokered.node("broker0")
        node.expect(Defect)
        _ = await _opened(brokered, TOPIC, OTHER)
        topics = brokered.cluster.brokers["broker0"]._topics
        dropped = list(topics.loaded.values())

        async def drop(_world: World) -> None:
            with failing_once(Topic, "stop_serving"):
                LoadedTopics.drop_all(topics, "a test")

        await node.run(drop)
        assert len(dropped) == 2
        await brokered.until(lambda: all(topic.closed is not None for topic in dropped))
        assert not topics.loaded

    play_with_brokers(scenario)


# -- the metadata daemon


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (MetadataConnection, "_take_requests"),
        (MetadataConnection, "flush"),
        (MetadataConnection, "answered"),
        (RequestJob, "run"),
        (RequestJob, "deliver"),
    ],
)
def test_a_client_of_the_metadata_ends_alone(kind: type, method: str) -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        good, bad = RawClient(address), RawClient(address)
        assert await good.connect()
        assert await bad.connect()
        with failing_once(kind, method):
            await bad.send(EXISTS, text("/") + b"\0")
            async with asyncio.timeout(30):
                with pytest.raises(Gone):
                    while True:
                        await bad.reply()
        assert (await good.request(CREATE, create("/node"))).error == 0
        assert failures(daemon.tasks) == {ScopeKind.CONNECTION: 1}
        assert await bad.reattach()
        good.abort()
        bad.abort()

    with_daemon(scenario)


def test_a_watcher_that_fails_does_not_keep_the_event_from_the_others() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        clients = [RawClient(address) for _ in range(3)]
        for client in clients:
            assert await client.connect()
        bad, watcher, writer = clients
        for client in (bad, watcher):
            assert (await client.request(EXISTS, text("/node") + b"\1")).error != 0
        # The first call is that of the event for the first watcher, because answers are not counted
        # here.
        with (
            replaced(RequestJob, "_add", lambda _was: _uncounted),
            failing_once(MetadataConnection, "expect"),
        ):
            assert (await writer.request(CREATE, create("/node"))).error == 0
        assert (await watcher.request(EXISTS, text("/node") + b"\0")).error == 0
        assert watcher.events == [(1, "/node")]
        with pytest.raises(Gone):
            await bad.reply()
        for client in clients:
            client.abort()

    with_daemon(scenario)


def _uncounted(job: Any, answer: object) -> None:
    job._answers.append(answer)


def test_an_operation_that_fails_in_the_tree_changes_nothing() -> None:
    async def scenario(daemon: MetadataDaemon, address: str) -> None:
        good, bad = RawClient(address), RawClient(address)
        assert await good.connect()
        assert await bad.connect()
        with failing_once(Tree, "_has_no_room"):
            await bad.send(CREATE, create("/a"))
            with pytest.raises(Gone):
                await bad.reply()
        assert daemon._engine is not None
        daemon._engine.tree.check()
        assert (await good.request(CREATE, create("/a"))).error == 0
        good.abort()
        bad.abort()

    with_daemon(scenario)


# -- the proxy


def test_clients_of_the_proxy_end_alone() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        node = cluster.sim.nodes["proxy"]
        node.expect(Defect)
        good = await BinaryClient.connect(world, PROXY)
        owner = (await look_up(good, TOPIC)).broker_service_url
        relayed = await through(world, owner)
        await relayed.open_producer(1, TOPIC)
        bad = await BinaryClient.connect(world, PROXY)
        with failing_once(ClientConnection, "received"):
            bad.say(pb.Command(type=18, ping=pb.Ping()))
            await bad.until_lost()
        bad = await through(world, owner)
        with failing_once(RelayedConnection, "to_client"):
            bad.say(pb.Command(type=18, ping=pb.Ping()))
            await bad.until_lost()
        tunnel = await world.connections.open_bytes("proxy:6655", Plain)
        assert isinstance(tunnel, Plain)
        assert tunnel.transport is not None
        with failing_once(HttpConnectConnection, "received"):
            tunnel.transport.write(b"CONNECT broker0:6650 HTTP/1.1\r\n\r\n")
            while not tunnel.lost:
                await world.clock.sleep(0.01)
        await _one_more(relayed, 0)
        with failing_once(BrokerLink, "_answered") as raised:
            # The proxy's own connection to a broker ends, and the question is answered with an
            # error that says to try again.
            assert (await look_up(good, TOPIC)).broker_service_url == owner
        assert raised
        await _one_more(relayed, 1)
        assert node.alive
        assert node.world is not None
        assert failures(node.world.tasks) == {ScopeKind.CONNECTION: 4}

    run_with_proxy(scenario, brokers=1)


def test_a_list_of_brokers_that_cannot_be_used_does_not_end_the_proxy_and_is_read_again() -> None:
    async def scenario(cluster: BrokerCluster, world: World) -> None:
        node = cluster.sim.nodes["proxy"]
        node.expect(Defect)
        life = node.incarnation
        with failing_once(KnownBrokers, "_use") as raised:
            await cluster.stop_broker("broker1")
            while not raised:
                await world.clock.sleep(0.01)
        client = await BinaryClient.connect(world, PROXY)
        assert (await look_up(client, TOPIC)).broker_service_url == "pulsar://broker0:6650"
        assert node.world is not None
        assert (node.incarnation, failures(node.world.tasks)) == (life, {ScopeKind.BACKGROUND: 1})

    run_with_proxy(scenario)


# -- gRPC


def test_a_handler_of_grpc_that_fails_ends_its_stream_and_is_counted() -> None:
    async def scenario() -> None:
        node = production()

        async def echo(stream: Stream) -> None:
            while (message := await stream.receive()) is not None:
                if message == b"bad":
                    raise Defect
                await stream.send([message])

        async def call(request: bytes, _caller: Caller) -> bytes:
            if request == b"bad":
                raise Defect
            return request

        listener = await node.connections.serve(
            "127.0.0.1:0", {"test.echo": echo}, {"test.call": call}
        )
        good, bad = (
            await node.connections.open(listener.address, "test.echo"),
            await node.connections.open(listener.address, "test.echo"),
        )
        await bad.send([b"bad"])
        with pytest.raises(StreamBroken):
            await bad.receive()
        assert failures(node.tasks) == {ScopeKind.CONNECTION: 1}
        await good.send([b"good"])
        assert await good.receive() == b"good"
        with pytest.raises(Exception, match="Defect"):
            await node.connections.call(listener.address, "test.call", b"bad", timeout_seconds=30)
        assert (
            await node.connections.call(listener.address, "test.call", b"good", timeout_seconds=30)
            == b"good"
        )
        assert failures(node.tasks) == {ScopeKind.CONNECTION: 1, ScopeKind.TASK: 1}
        await good.finish()
        await listener.stop(0)
        await node.close()

    run_in_production_loop(scenario)
