"""Hostile clients of real processes: how much memory those may take that receive nothing, and calls
that no client sends.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import grpc
import pytest

from pulsarish.local_cluster.plan import NodePlan
from pulsarish.local_cluster.processes import Cluster
from pulsarish.runtime.network.endpoints import method_path
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import command_frame
from tests.fuzz.fuzzer import fuzzed_cluster

MIB = 1 << 20
GROWTH_BYTES = (128 + 256 + 100) * MIB
"""The budgets for input that waits and for unsent answers, and what a process may take besides."""
HELLO = command_frame(
    pb.Command(type=2, connect=pb.Connect(client_version="test", protocol_version=19))
)
TOPIC = "persistent://public/default/t"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with fuzzed_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def node_of(cluster: Cluster, role: str) -> NodePlan:
    return next(node for node in cluster.nodes() if node.role == role)


def rss_bytes(cluster: Cluster, role: str) -> int:
    lines = (
        Path(f"/proc/{cluster.pid(node_of(cluster, role).name)}/status").read_text().splitlines()
    )
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def next_answer(answers: BinaryIO, *kinds: int) -> pb.Command:
    """Wait for a command of one of these types."""
    while True:
        size, _ = struct.unpack(">II", answers.read(8))
        command = pb.Command.FromString(answers.read(size - 4))
        if command.type in kinds:
            return command


def is_served(port: int) -> None:
    """Wait until a lookup is answered."""
    with connect(port) as client, client.makefile("rb") as answers:
        client.sendall(HELLO)
        while True:
            client.sendall(
                command_frame(pb.Command(type=23, lookup=pb.LookupTopic(topic=TOPIC, request_id=1)))
            )
            found = next_answer(answers, 24).lookup_response
            if found.response == pb.LookupTopicResponse.CONNECT:
                return
            assert found.error == pb.METADATA_ERROR, found
            time.sleep(0.2)


def growth_under(cluster: Cluster, role: str, data: bytes, *, connections: int, writes: int) -> int:
    """Write as much as is received and read no answer, for six seconds.

    Return the most memory that the process took for it.
    """
    before_bytes = rss_bytes(cluster, role)
    growth_bytes = 0
    with ExitStack() as stack:
        clients = [
            stack.enter_context(connect(node_of(cluster, role).ports["pulsar"]))
            for _ in range(connections)
        ]
        for client in clients:
            client.sendall(HELLO)
            assert client.recv(4_096)
            client.setblocking(False)
        left = [memoryview(data * writes) for _ in clients]
        until = time.monotonic() + 6
        while time.monotonic() < until:
            for index, client in enumerate(clients):
                try:
                    left[index] = (
                        left[index][client.send(left[index][:MIB]) :]
                        if left[index]
                        else left[index]
                    )
                except BlockingIOError:
                    continue
                except OSError:  # the process ended this connection
                    left[index] = memoryview(b"")
            growth_bytes = max(growth_bytes, rss_bytes(cluster, role) - before_bytes)
            time.sleep(0.02)
    return growth_bytes


@pytest.mark.parametrize("role", ["broker", "proxy"])
def test_many_questions_in_one_write_do_not_fill_a_process(cluster: Cluster, role: str) -> None:
    """One read has thousands of them, and each answer is larger: 65 connections took 2.5 GB of a
    broker.
    """
    is_served(node_of(cluster, "broker").ports["pulsar"])
    with (
        connect(node_of(cluster, "broker").ports["pulsar"]) as client,
        client.makefile("rb") as answers,
    ):
        client.sendall(HELLO)
        for number in range(100):
            producer = pb.Producer(
                topic=f"{TOPIC}{'x' * 200}{number}", producer_id=number, request_id=number
            )
            client.sendall(
                command_frame(
                    pb.Command(type=23, lookup=pb.LookupTopic(topic=producer.topic, request_id=1))
                )
            )
            next_answer(answers, 24)
            client.sendall(command_frame(pb.Command(type=5, producer=producer)))
            next_answer(answers, 17, 14)
        question = pb.GetTopicsOfNamespace(request_id=1, namespace="public/default")
        data = command_frame(pb.Command(type=32, get_topics_of_namespace=question))
        growth_bytes = growth_under(cluster, role, data * 10_000, connections=60, writes=4)
    assert growth_bytes < GROWTH_BYTES
    is_served(node_of(cluster, role).ports["pulsar"])


def refused_calls(
    port: int, methods: Iterable[str], message_bytes_max: int
) -> list[grpc.StatusCode]:
    """Send calls that no client sends. Return the statuses of those that were refused."""
    sizes = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    refused: list[grpc.StatusCode] = []

    def send(
        method: str, data: bytes, compression: grpc.Compression = grpc.Compression.NoCompression
    ) -> None:
        with grpc.insecure_channel(
            f"127.0.0.1:{port}", options=sizes, compression=compression
        ) as channel:
            try:
                channel.unary_unary(method)(data, timeout=30)
            except grpc.RpcError as error:
                refused.append(error.code())

    for method in methods:
        for data in (b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", bytes(range(256))):
            send(method_path(method), data)
        send(method_path(method), bytes(1_000), grpc.Compression.Gzip)
        send(method_path(method), bytes(message_bytes_max + 8 * MIB))
    send("/pulsarish.none/none", b"x")
    send("/", b"x")
    return refused


@pytest.mark.parametrize(
    ("role", "methods"),
    [
        (
            "broker",
            [
                "broker.lookup",
                "broker.schema",
                "broker.topics",
                "broker.admin",
                "broker.publish",
                "broker.consume",
            ],
        ),
        (
            "bookie",
            ["bookie.status", "bookie.fence", "bookie.list_ledgers", "bookie.read", "bookie.add"],
        ),
    ],
)
def test_malformed_calls_are_refused_without_a_traceback(
    cluster: Cluster, role: str, methods: list[str]
) -> None:
    node = node_of(cluster, role)
    log_end = cluster.log_path(node.name).stat().st_size
    before_bytes = rss_bytes(cluster, role)
    refused = refused_calls(node.ports["grpc"], methods, 24 * MIB)
    assert grpc.StatusCode.UNIMPLEMENTED in refused
    assert grpc.StatusCode.RESOURCE_EXHAUSTED in refused, refused
    assert grpc.StatusCode.DEADLINE_EXCEEDED not in refused, "every call is answered"
    assert grpc.StatusCode.UNAVAILABLE not in refused, "the process lives"
    assert "Traceback" not in cluster.log_path(node.name).read_bytes()[log_end:].decode()
    assert rss_bytes(cluster, role) - before_bytes < GROWTH_BYTES
    is_served(node_of(cluster, "broker").ports["pulsar"])
