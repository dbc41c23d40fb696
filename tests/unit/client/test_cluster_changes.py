"""A client that goes from one cluster to another, and back, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.client.service_info import AutoClusterFailover, ServiceInfo, ServiceInfoProvider
from pulsarish.model.errors import ConnectError, InvalidArgument, ServiceNotReady
from pulsarish.runtime.client_authentication import AuthenticationToken
from pulsarish.runtime.seams import ClientConnections
from pulsarish.security.client_security import ClientSecurity
from pulsarish.sim.world.connections import client_connections
from pulsarish.wire._pb import broker_pb2 as pb
from tests.support.client_world import Cast, play
from tests.support.fake_broker import FakeBroker, FakeCluster

TOPIC = "persistent://public/default/t"
HERE = ServiceInfo("pulsarish://broker1:6660")
THERE = ServiceInfo("pulsarish://other:6660")
EARLIEST = InitialPosition.Earliest


class Provider(ServiceInfoProvider):
    """Notes what is asked of it."""

    def __init__(self, info: Any = HERE) -> None:
        self.info = info
        self.calls: list[str] = []
        self.update: Callable[[Any], None] = lambda _: None

    def initial_service_info(self) -> ServiceInfo:
        self.calls.append("initial")
        found: ServiceInfo = self.info
        return found

    def initialize(self, on_service_info_update: Callable[[ServiceInfo], None]) -> None:
        self.calls.append("initialize")
        self.update = on_service_info_update

    def close(self) -> None:
        self.calls.append("close")


async def other_cluster(cast: Cast) -> FakeBroker:
    """Start the broker of another cluster, whose ledgers have the same numbers."""
    mine, cast.cluster = cast.cluster, FakeCluster()
    try:
        return await cast.start_broker("other")
    finally:
        cast.cluster = mine


def stored(broker: FakeBroker) -> int:
    return len(broker.cluster.topic(TOPIC).entries)


def acked(broker: FakeBroker) -> set[int]:
    return broker.cluster.topic(TOPIC).subscriptions["s"].acked


async def received(consumer: Any) -> Message:
    found: Message = await consumer.receive()
    return found


def test_failover_and_the_way_back() -> None:
    async def scenario(cast: Cast) -> None:
        other = await other_cluster(cast)
        plan = AutoClusterFailover(HERE, [ServiceInfo("pulsarish://no:1"), THERE], 500, 2, 3)
        client = cast.client(service=plan)
        assert client.get_service_info() is HERE
        producer = await client.create_producer("t", batching_enabled=False)
        consumer = await client.subscribe("t", "s", initial_position=EARLIEST)
        await producer.send(b"1")
        await consumer.acknowledge(await received(consumer))
        await cast.sleep(1.0)
        await cast.broker.stop()
        await producer.send(b"2")
        assert client.get_service_info() is THERE
        assert stored(other) == 1
        message = await received(consumer)
        assert message.data() == b"2"
        await consumer.acknowledge(message)
        await cast.sleep(2.0)
        assert acked(other) == {0}
        cast.brokers[0] = await cast.start_broker("broker1")
        cast.cluster.owner = cast.brokers[0]
        await cast.sleep(10.0)
        assert client.get_service_info() is HERE
        await producer.send(b"3")
        assert (stored(cast.broker), stored(other)) == (2, 1)
        assert (await received(consumer)).data() == b"3"

    play(scenario)


def test_an_acknowledgement_counts_in_the_cluster_of_its_message_only() -> None:
    async def scenario(cast: Cast) -> None:
        other = await other_cluster(cast)
        provider = Provider()
        client = cast.client(service=provider)
        producer = await client.create_producer("t", batching_enabled=False)
        consumer = await client.subscribe(
            "t", "s", consumer_type=ConsumerType.Shared, initial_position=EARLIEST
        )
        await producer.send(b"here")
        old = await received(consumer)
        provider.update(THERE)
        assert client.get_service_info() is THERE
        await producer.send(b"there")
        new = await received(consumer)
        assert new.data() == b"there"
        assert old.message_id() == new.message_id()
        await consumer.acknowledge(old)
        await consumer.acknowledge(old.message_id())
        await consumer.negative_acknowledge(old)
        await cast.sleep(2.0)
        assert acked(other) == set()
        # What a program has read from its bytes has no cluster.
        await consumer.acknowledge(MessageId.deserialize(new.message_id().serialize(), TOPIC))
        await cast.sleep(2.0)
        assert acked(other) == {0}
        provider.update(HERE)
        again = await received(consumer)
        assert again.data() == b"here"
        await consumer.acknowledge(old)
        await cast.sleep(2.0)
        assert acked(cast.broker) == {0}

    play(scenario)


def test_who_waits_for_a_receipt_hears_of_the_change() -> None:
    async def scenario(cast: Cast) -> None:
        await other_cluster(cast)
        provider = Provider()
        client = cast.client(service=provider)
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s", ack_receipt_enabled=True)
        await producer.send(b"1")
        message = await received(consumer)
        provider.update(THERE)
        await cast.sleep(1.0)
        with pytest.raises(ConnectError, match="has left the cluster of this message"):
            await consumer.acknowledge(message)

    play(scenario)


def test_where_a_topic_moved_in_the_former_cluster_does_not_count() -> None:
    async def scenario(cast: Cast) -> None:
        other = await other_cluster(cast)
        provider = Provider()
        client = cast.client(service=provider)
        consumer: Any = await client.subscribe("t", "s", initial_position=EARLIEST)
        session = consumer._consuming.children[0].session
        provider.update(THERE)
        # The broker closes the consumer, and before that is looked at, the client moves.
        session.stream._receivers.clear()
        moved_to = pb.BrokerAddresses(address=cast.brokers[1].address)
        session.on_closed_by_broker(ServiceNotReady("the topic moves"), moved_to)
        client._use(THERE, client._source.options_of(THERE))
        await cast.sleep(2.0)
        assert session.is_open
        assert cast.brokers[1].sessions == []
        assert "s" in other.cluster.topic(TOPIC).subscriptions

    play(scenario)


def test_no_seek_to_a_message_of_the_cluster_that_was_left() -> None:
    async def scenario(cast: Cast) -> None:
        await other_cluster(cast)
        provider = Provider()
        client = cast.client(service=provider)
        producer = await client.create_producer("t", batching_enabled=False)
        consumer = await client.subscribe("t", "s", initial_position=EARLIEST)
        for content in (b"1", b"2"):
            await producer.send(content)
        old = await received(consumer)
        last = await consumer.get_last_message_id()
        provider.update(THERE)
        for content in (b"a", b"b"):
            await producer.send(content)
        for place in (old.message_id(), last):
            with pytest.raises(InvalidArgument, match="has left the cluster of message"):
                await consumer.seek(place)
        with pytest.raises(InvalidArgument, match="has left the cluster of start_message_id"):
            await client.create_reader("t", old.message_id())
        first = await received(consumer)
        assert first.data() == b"a"
        await received(consumer)
        await consumer.seek(MessageId.deserialize(first.message_id().serialize()))
        assert (await received(consumer)).data() == b"b"
        provider.update(HERE)
        await cast.sleep(1.0)
        await consumer.seek(old.message_id())
        assert (await received(consumer)).data() == b"2"

    play(scenario)


def test_a_reader_begins_in_the_other_cluster() -> None:
    async def scenario(cast: Cast) -> None:
        other = await other_cluster(cast)
        there = cast.client(service="pulsarish://other:6660")
        elsewhere = await there.create_producer("t", batching_enabled=False)
        for content in (b"a", b"b"):
            await elsewhere.send(content)
        provider = Provider()
        client = cast.client(service=provider)
        producer = await client.create_producer("t", batching_enabled=False)
        ids = [await producer.send(content) for content in (b"1", b"2", b"3")]
        whole = await client.create_reader("t", MessageId.earliest)
        part = await client.create_reader("t", ids[0])
        new = await client.create_reader("t", MessageId.latest)
        for reader in (whole, part):
            await reader.read_next()
        provider.update(THERE)
        await cast.sleep(1.0)
        for reader in (whole, part):
            assert [(await reader.read_next()).data() for _ in range(2)] == [b"a", b"b"]
        await elsewhere.send(b"c")
        assert (await new.read_next()).data() == b"c"
        assert stored(other) == 3

    play(scenario)


def test_a_provider_begins_and_ends_with_its_client() -> None:
    async def scenario(cast: Cast) -> None:
        provider = Provider()
        client = cast.client(service=provider)
        assert provider.calls == ["initial", "initialize"]
        for wrong in ("pulsarish://other:6660", 5, None):
            with pytest.raises(InvalidArgument, match=r"pass a pulsarish\.ServiceInfo"):
                provider.update(wrong)
        with pytest.raises(InvalidArgument, match="tls_trust_certs_file_path needs TLS"):
            provider.update(ServiceInfo("pulsarish://other", None, "ca.pem"))
        await client.close()
        assert provider.calls == ["initial", "initialize", "close"]
        provider.update(THERE)
        assert client.get_service_info() is HERE

    play(scenario, seeds=1)


def test_a_client_whose_provider_cannot_begin_is_closed() -> None:
    async def scenario(cast: Cast) -> None:
        class Broken(Provider):
            def initialize(self, on_service_info_update: Callable[[ServiceInfo], None]) -> None:
                raise ValueError("no configuration")

        provider = Broken()
        made: list[ClientConnections] = []
        released: list[ClientConnections] = []

        def connect(security: ClientSecurity) -> ClientConnections:
            made.append(client_connections(cast.world.connections, security))
            return made[-1]

        async def release(connections: ClientConnections) -> None:
            released.append(connections)

        world = cast.world
        with pytest.raises(ValueError, match="no configuration"):
            AsyncClient(
                provider,
                clock=world.clock,
                random=world.random,
                tasks=world.tasks,
                connect=connect,
                release=release,
            )
        await cast.sleep(1.0)
        assert provider.calls == ["initial", "close"]
        assert released == made != []

    play(scenario, seeds=1)


def test_what_belongs_to_each_cluster_is_refused_for_all() -> None:
    async def scenario(cast: Cast) -> None:
        for options in (
            {"authentication": AuthenticationToken("t")},
            {"tls_trust_certs_file_path": "ca.pem"},
        ):
            with pytest.raises(InvalidArgument, match=r"pass it to each pulsarish\.ServiceInfo"):
                cast.client(service=Provider(), **options)
        with pytest.raises(InvalidArgument, match=r"provider gave is of type str: pass a"):
            cast.client(service=Provider("pulsarish://broker1:6660"))

    play(scenario, seeds=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"primary": "pulsar://a"}, "primary is of type str"),
        ({"secondary": []}, "secondary is an empty list: pass one or more"),
        ({"secondary": (THERE,)}, "pass a list"),
        ({"secondary": [THERE, 7]}, r"secondary\[1\] is of type int"),
        ({"check_interval_ms": 0}, "check_interval_ms"),
        ({"failover_threshold": 1.5}, "failover_threshold"),
        ({"switch_back_threshold": -1}, "switch_back_threshold"),
    ],
)
def test_bad_failovers(change: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"primary": HERE, "secondary": [THERE], **change}
    with pytest.raises(InvalidArgument, match=words):
        AutoClusterFailover(**arguments)


def test_service_info() -> None:
    token = AuthenticationToken("hidden")
    info = ServiceInfo("pulsar+ssl://a,b:7", token, "ca.pem")
    assert (info.service_url, info.use_tls) == ("pulsar+ssl://a,b:7", True)
    assert info.tls_trust_certs_file_path == "ca.pem"
    assert "hidden" not in repr(info)
    assert not HERE.use_tls
    for arguments in (("nonsense",), ("pulsar://a", 5), ("pulsar://a", None, 5)):
        with pytest.raises(InvalidArgument):
            ServiceInfo(*arguments)  # type: ignore[arg-type]
