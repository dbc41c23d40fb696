"""A broker and a bookie with everything over TLS, and no plain port."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.enums import InitialPosition
from pulsarish.model.errors import ConnectError
from pulsarish.runtime.seams import World
from pulsarish.security.membership import member_uri
from pulsarish.security.tls import TlsClientConfig
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import command_frame
from tests.support.certificates import Certificates
from tests.support.worlds import in_world


class Cluster:
    """A process with a broker and a bookie, and its URLs by scheme."""

    def __init__(self, home: Path) -> None:
        self.made = Certificates(home)
        self._home = home
        kinds = ("broker", "bookie")
        certificate, key = self.made.issue(
            "server", uris=tuple(member_uri("prod", kind) for kind in kinds)
        )
        self.tls = {
            "tls_certificate_file_path": certificate,
            "tls_key_file_path": key,
            "tls_trust_certs_file_path": self.made.trust,
        }
        self.urls: dict[str, str] = {}

    def start(self) -> subprocess.Popen[str]:
        broker = {
            **self.tls,
            "listen_address": "",
            "http_address": "",
            "pulsar_address": "",
            "listen_address_tls": "127.0.0.1:0",
            "http_address_tls": "127.0.0.1:0",
            "pulsar_address_tls": "127.0.0.1:0",
        }
        bookie = {
            **self.tls,
            "listen_address": "127.0.0.1:0",
            "tls_require_trusted_client_cert_on_connect": "true",
            "tls_cluster_name": "prod",
        }
        command = [sys.executable, "-m", "pulsarish", "standalone", "--data", f"{self._home}/data"]
        for flag, options in (("--broker-set", broker), ("--bookie-set", bookie)):
            for name, value in options.items():
                command += [flag, f"{name}={value}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        self.urls = dict(url.split("://") for url in line.split() if "://" in url)
        return process

    def client_tls(self, name: str = "app") -> TlsClientConfig:
        return replace(self.made.client_config(name), is_required=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("tls"))
    process = cluster.start()
    yield cluster
    process.terminate()
    process.communicate(timeout=60)


def client_of(world: World, url: str, **options: Any) -> AsyncClient:
    return AsyncClient(
        url,
        clock=world.clock,
        random=world.random,
        tasks=world.tasks,
        connect=lambda _: world.connections,
        **options,
    )


def test_there_are_only_ports_with_tls(cluster: Cluster) -> None:
    assert set(cluster.urls) == {"pulsarish+ssl", "https", "pulsar+ssl"}


@pytest.mark.parametrize("transport", ["grpc", "framed"])
def test_messages_are_published_and_received(cluster: Cluster, transport: str) -> None:
    async def work(world: World) -> None:
        url = f"pulsarish+ssl://{cluster.urls['pulsarish+ssl']}"
        client = client_of(world, url, transport=transport)
        producer = await client.create_producer(f"topic-{transport}")
        for number in range(20):
            await producer.send(b"%d" % number)
        consumer = await client.subscribe(
            f"topic-{transport}", "s", initial_position=InitialPosition.Earliest
        )
        for number in range(20):
            message = await consumer.receive()
            assert message.data() == b"%d" % number
            await consumer.acknowledge(message)
        await client.close()

    in_world(cluster.client_tls(), work)


def test_a_lookup_names_the_addresses_with_tls(cluster: Cluster) -> None:
    context = ssl.create_default_context(cafile=cluster.made.trust)
    at = cluster.urls["https"]
    url = f"https://{at}/lookup/v2/topic/persistent/public/default/any"
    with urllib.request.urlopen(url, timeout=30, context=context) as answer:
        found = json.load(answer)
    assert (found["brokerUrl"], found["httpUrl"]) == ("", "")
    assert found["brokerUrlTls"] == f"pulsar+ssl://{cluster.urls['pulsar+ssl']}"
    assert found["httpUrlTls"] == f"https://{at}"
    assert found["nativeUrl"] == f"pulsarish+ssl://{cluster.urls['pulsarish+ssl']}"


def test_the_binary_protocol_speaks_tls(cluster: Cluster) -> None:
    async def work(world: World) -> None:
        answered = asyncio.Event()

        class Client(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                connect = pb.Connect(client_version="test", protocol_version=19)
                cast("asyncio.Transport", transport).write(
                    command_frame(pb.Command(type=2, connect=connect))
                )

            def data_received(self, data: bytes) -> None:
                assert pb.Command.FromString(data[8:]).HasField("connected")
                answered.set()

        await world.connections.open_bytes(f"tls:{cluster.urls['pulsar+ssl']}", Client)
        await answered.wait()

    in_world(cluster.client_tls(), work)


def test_plain_clients_are_refused(cluster: Cluster) -> None:
    async def work(world: World) -> None:
        client = client_of(
            world,
            f"pulsarish://{cluster.urls['pulsarish+ssl']}",
            operation_timeout_seconds=3,
        )
        with pytest.raises(
            ConnectError, match=r"it speaks TLS; begin the service URL with pulsarish\+ssl://"
        ):
            await client.create_producer("t")
        await client.close()

    in_world(None, work)


def test_a_client_that_does_not_trust_the_authority_says_so(
    cluster: Cluster, tmp_path: Path
) -> None:
    stranger = Certificates(tmp_path)

    async def work(world: World) -> None:
        client = client_of(
            world,
            f"pulsarish+ssl://{cluster.urls['pulsarish+ssl']}",
            operation_timeout_seconds=3,
        )
        with pytest.raises(ConnectError, match="the peer's certificate is refused"):
            await client.create_producer("t")
        await client.close()

    in_world(stranger.client_config(""), work)
