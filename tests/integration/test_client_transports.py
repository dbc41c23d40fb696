"""Clients by frames and by gRPC, on real processes: which one is used, and what happens when the
framed port cannot be reached.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import pulsarish
import pulsarish.asyncio
from pulsarish.local_cluster.plan import plan_cluster
from pulsarish.local_cluster.ports import free_ports
from pulsarish.local_cluster.processes import Cluster
from pulsarish.runtime.network.address_book import Transport
from tests.integration.conftest import StartCluster
from tests.support.until import until

EARLIEST = pulsarish.InitialPosition.Earliest


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers: frames as usual, none, and at a port that nothing listens on."""
    made = Cluster(tmp_path_factory.mktemp("transports"))
    nodes = plan_cluster(bookies=1, brokers=1, metadata="embedded", base_port=0)
    try:
        made.create(nodes)
        made.up()
        yield made
    finally:
        for node in made.nodes():
            if made.pid(node.name) is not None:
                made.kill(node.name)


def broker_of(cluster: Cluster) -> Any:
    return next(node for node in cluster.nodes() if node.role == "broker")


def url_of(cluster: Cluster) -> str:
    return f"pulsarish://127.0.0.1:{broker_of(cluster).ports['grpc']}"


def framed_connections(cluster: Cluster) -> int:
    """Return how many connections to the broker's framed port are established."""
    port = f":{broker_of(cluster).ports['framed']:04X}"
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table]
    return sum(row[2].endswith(port) and row[3] == "01" for row in rows)


@pytest.mark.parametrize(("transport", "streams"), [("auto", 2), ("framed", 2), ("grpc", 0)])
def test_messages_of_all_sizes_arrive(cluster: Cluster, transport: Transport, streams: int) -> None:
    sizes = [0, 1, 100, 70_000, 1 << 20, 4 << 20] * 3
    with pulsarish.Client(url_of(cluster), transport=transport) as client:
        until(
            "connections of the client before are closed", lambda: not framed_connections(cluster)
        )
        producer = client.create_producer(f"sizes-{transport}")
        consumer = client.subscribe(f"sizes-{transport}", "s", initial_position=EARLIEST)
        for number, size in enumerate(sizes):
            producer.send_async(bytes([number]) * size, None)
        producer.flush()
        for number, size in enumerate(sizes):
            message = consumer.receive(timeout_millis=30_000)
            assert message.data() == bytes([number]) * size
            consumer.acknowledge(message)
        assert framed_connections(cluster) == streams


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_a_program_may_use_the_event_loop_of_the_standard_library(
    cluster: Cluster, transport: Transport
) -> None:
    async def exchange() -> None:
        async with pulsarish.asyncio.Client(url_of(cluster), transport=transport) as client:
            topic = f"plain-loop-{transport}"
            consumer = await client.subscribe(topic, "s", initial_position=EARLIEST)
            producer = await client.create_producer(topic)
            sent = [b"%d" % number * 10_000 for number in range(200)]
            await asyncio.gather(*(producer.send(each) for each in sent))
            for each in sent:
                message = await consumer.receive()
                assert message.data() == each
                await consumer.acknowledge(message)

    asyncio.run(exchange())


def test_a_killed_broker_is_noticed_and_found_again(cluster: Cluster) -> None:
    with pulsarish.Client(url_of(cluster), transport="framed") as client:
        producer = client.create_producer("killed")
        consumer = client.subscribe("killed", "s", initial_position=EARLIEST)
        producer.send(b"before")
        cluster.kill(broker_of(cluster).name)
        failed: list[Any] = []
        producer.send_async(b"between", lambda result, _: failed.append(result))
        cluster.up()
        producer.send(b"after")
        assert failed == [pulsarish.Result.Ok]
        found = []
        while b"after" not in found:
            message = consumer.receive(timeout_millis=30_000)
            consumer.acknowledge(message)
            found.append(message.data())
        assert list(dict.fromkeys(found)) == [b"before", b"between", b"after"]


def misled(start_cluster: StartCluster, *settings: str) -> str:
    """Return the service URL of a cluster whose broker has these settings."""
    return url_of(start_cluster(bookies=1, brokers=1, settings={"broker": list(settings)}))


def exchange(url: str, transport: Transport) -> None:
    with pulsarish.Client(url, transport=transport, operation_timeout_seconds=20) as client:
        consumer = client.subscribe("t", "s", initial_position=EARLIEST)
        client.create_producer("t").send(b"hello")
        message = consumer.receive(timeout_millis=30_000)
        assert message.data() == b"hello"
        consumer.acknowledge(message)


def test_a_port_that_refuses_is_left_for_grpc(start_cluster: StartCluster) -> None:
    closed = next(free_ports("127.0.0.1"))
    url = misled(start_cluster, f"framed_advertised_address=127.0.0.1:{closed}")
    exchange(url, "auto")
    with (
        pulsarish.Client(url, transport="framed", operation_timeout_seconds=2) as client,
        pytest.raises(pulsarish.Timeout, match=f"127.0.0.1:{closed}"),
    ):
        client.create_producer("t")


def test_a_port_that_is_silent_is_left_for_grpc(start_cluster: StartCluster) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as silent:
        port = silent.getsockname()[1]
        exchange(misled(start_cluster, f"framed_advertised_address=127.0.0.1:{port}"), "auto")


def test_a_broker_without_frames_is_named_to_who_wants_nothing_else(
    start_cluster: StartCluster,
) -> None:
    url = misled(start_cluster, "framed_port=-1")
    exchange(url, "auto")
    with (
        pulsarish.Client(url, transport="framed", operation_timeout_seconds=2) as client,
        pytest.raises(pulsarish.Timeout, match="it offers no frames; use transport"),
    ):
        client.create_producer("t")


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(pulsarish.InvalidArgument, match="auto, grpc, framed"):
        pulsarish.Client("pulsarish://127.0.0.1:1", transport="http")  # type: ignore[arg-type]
