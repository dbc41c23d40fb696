"""Two brokers with two listeners each, as real processes: a client of one listener never gets an
address of the other.

The networks are two loopback addresses: brokers and inner clients live on 127.0.0.1, outer clients
on 127.0.0.2.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPMessage
from typing import IO, Any
from urllib.parse import urlsplit

import pytest

import pulsarish
from pulsarish.local_cluster.plan import plan_cluster
from pulsarish.local_cluster.processes import Cluster
from pulsarish.runtime.network.address_book import Transport

TOPICS = [f"t{number}" for number in range(12)]  # over the four bundles of public/default
HOSTS = {"internal": "127.0.0.1", "external": "127.0.0.2"}


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: object, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


def ask(url: str) -> tuple[int, Any]:
    """Return the status, and the JSON answer or the redirect address."""
    try:
        with urllib.request.build_opener(_Stay).open(url, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Location"] if error.code == 307 else json.loads(
            error.read()
        )


def look_up(http: str, topic: str, query: str = "") -> Any:
    url = f"{http}/lookup/v2/topic/persistent/public/default/{topic}{query}"
    status, answer = ask(url)
    while status == 307:
        status, answer = ask(answer)
    assert status == 200, answer
    return answer


@dataclass
class Addresses:
    """The HTTP and gRPC addresses of both brokers, by listener."""

    http: dict[str, list[str]]
    native: dict[str, list[str]]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    cluster = Cluster(tmp_path_factory.mktemp("listeners"))
    nodes = plan_cluster(bookies=1, brokers=2, metadata="embedded", base_port=0)
    told = [
        *(f"internal:{scheme}://{HOSTS['internal']}:0" for scheme in ("pulsarish", "framed")),
        *(
            f"external:{scheme}://{HOSTS['external']}:0"
            for scheme in ("pulsarish", "http", "framed")
        ),
    ]
    for node in nodes:
        if node.role == "broker":
            node.settings += [
                f"advertised_listeners={','.join(told)}",
                f"bind_addresses={','.join(told[2:])}",
            ]
    try:
        cluster.create(nodes)
        cluster.up()
        inner = [
            f"http://127.0.0.1:{node.ports['http']}" for node in nodes if node.role == "broker"
        ]
        for number, topic in enumerate(TOPICS):
            # the broker that is asked acquires bundles without an owner
            look_up(inner[number % 2], topic, "?authoritative=true")
        # The system chose the ports of the outer listener: inner clients ask for them by its name.
        seen = {
            topic: (look_up(inner[0], topic), look_up(inner[0], topic, "?listenerName=external"))
            for topic in TOPICS
        }
        both = {found["brokerId"]: (found, outer) for found, outer in seen.values()}
        assert len(both) == 2, "the topics lie on both brokers"
        yield Addresses(
            http={"internal": inner, "external": [outer["httpUrl"] for _, outer in both.values()]},
            native={
                "internal": [found["nativeUrl"] for found, _ in both.values()],
                "external": [outer["nativeUrl"] for _, outer in both.values()],
            },
        )
    finally:
        for node in cluster.nodes():
            if cluster.pid(node.name) is not None:
                cluster.kill(node.name)


@pytest.mark.parametrize("listener", HOSTS)
def test_lookups_and_redirects_stay_on_the_listener(addresses: Addresses, listener: str) -> None:
    moved = 0
    for http in addresses.http[listener]:
        assert urlsplit(http).hostname == HOSTS[listener]
        for topic in TOPICS:
            found = look_up(http, topic)
            assert {urlsplit(found[url]).hostname for url in ("httpUrl", "nativeUrl")} == {
                HOSTS[listener]
            }
            assert found["nativeUrl"] in addresses.native[listener]
            status, answer = ask(f"{http}/admin/v2/persistent/public/default/{topic}/stats")
            if status == 307:
                moved += 1
                assert urlsplit(answer).hostname == HOSTS[listener]
                assert answer.startswith(found["httpUrl"])
    assert moved == len(TOPICS), "each topic was asked for once where it is not"


@pytest.mark.parametrize("transport", ["grpc", "framed"])
@pytest.mark.parametrize(
    ("listener", "named"),
    [
        ("internal", None),
        ("external", None),
        ("internal", "external"),
        ("external", "internal"),
        ("external", "external"),
    ],
)
def test_clients_on_each_listener_reach_every_topic(
    addresses: Addresses, listener: str, named: str | None, transport: Transport
) -> None:
    for url in addresses.native[listener]:
        with pulsarish.Client(url, listener_name=named, transport=transport) as client:
            for topic in TOPICS:
                consumer = client.subscribe(
                    topic,
                    f"{listener}-{named}-{transport}",
                    initial_position=pulsarish.InitialPosition.Latest,
                )
                client.create_producer(topic).send(url.encode())
                message = consumer.receive(timeout_millis=30_000)
                assert message.data() == url.encode()
                consumer.acknowledge(message)
                consumer.close()


def test_an_unknown_listener_is_refused_and_named(addresses: Addresses) -> None:
    refused = pytest.raises(pulsarish.InvalidArgument, match="'nowhere'; it has internal, external")
    with (
        pulsarish.Client(addresses.native["internal"][0], listener_name="nowhere") as client,
        refused,
    ):
        client.create_producer("t0")
    status, answer = ask(
        f"{addresses.http['external'][0]}/lookup/v2/topic/persistent/public/default/t0?listenerName=nowhere"
    )
    assert status in (400, 412)
    assert "'nowhere'; it has internal, external" in answer["reason"]
