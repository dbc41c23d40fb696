"""Our own client with the service URLs of Apache Pulsar's: of the binary protocol and of HTTP, with
TLS and tokens, through a proxy, with dead hosts before the living one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import pulsarish as pulsar
import pulsarish.asyncio
from tests.integration.test_tls_proxy import Site, options, running, running_site
from tests.support.plain_servers import is_silent, plain_server, refused_port

pytestmark = pytest.mark.xdist_group("official-urls")

assert sys.modules["pulsarish"] is pulsar


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The URLs of a server without TLS, by scheme."""
    kinds = ("listen_address", "http_address", "pulsar_address")
    words = ["standalone", "--data", str(tmp_path_factory.mktemp("plain") / "data")]
    words += ["--metadata-address", "127.0.0.1:0", "--bookie-set", "listen_address=127.0.0.1:0"]
    with running(*words, *options("--broker-set", dict.fromkeys(kinds, "127.0.0.1:0"))) as ready:
        yield dict(word.split("://") for word in ready if "://" in word)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("locked")) as site:
        yield site


def exchange(url: str, topic: str, **arguments: Any) -> None:
    """Send and receive a message with the blocking client and with the awaitable one."""
    with pulsar.Client(url, **{"operation_timeout_seconds": 20, **arguments}) as client:
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        client.create_producer(topic).send(b"one")
        message = consumer.receive(20_000)
        assert message.data() == b"one"
        consumer.acknowledge(message)
        consumer.close()

    async def again() -> None:
        async with pulsarish.asyncio.Client(url, **arguments) as other:
            consumer = await other.subscribe(topic, "s")
            await (await other.create_producer(topic)).send(b"two")
            message = await consumer.receive()
            assert message.data() == b"two"
            await consumer.acknowledge(message)

    asyncio.run(again())


@pytest.mark.parametrize("scheme", ["pulsarish", "pulsar", "http"])
def test_without_tls(plain: Mapping[str, str], scheme: str) -> None:
    exchange(f"{scheme}://{plain[scheme]}", f"t-{scheme}")


@pytest.mark.parametrize("scheme", ["pulsarish", "pulsar", "http"])
def test_dead_hosts_first(plain: Mapping[str, str], scheme: str) -> None:
    with plain_server(is_silent) as silent:
        hosts = f"127.0.0.1:{refused_port()},127.0.0.1:{silent},no-such-host.invalid:1"
        exchange(f"{scheme}://{hosts},{plain[scheme]}", f"d-{scheme}", operation_timeout_seconds=10)


def test_a_proxy(plain: Mapping[str, str]) -> None:
    settings = {
        "metadata_url": f"zk://{plain['zk']}",
        "pulsar_address": "127.0.0.1:0",
        "connect_address": "127.0.0.1:0",
        "http_address": "",
    }
    with running("proxy", *options("--set", settings)) as ready:
        at = dict(word.split("=", 1) for word in ready if "=" in word)
        exchange(f"pulsar://{at['pulsar']}", "p")


def test_a_listener_that_does_not_exist(plain: Mapping[str, str]) -> None:
    for scheme in ("pulsar", "http"):
        url = f"{scheme}://{plain[scheme]}"
        client = pulsar.Client(url, listener_name="outside")
        with (
            client,
            pytest.raises(pulsar.NotAllowedError, match="no advertised listener 'outside'"),
        ):
            client.create_producer("t")


@pytest.mark.parametrize("scheme", ["pulsarish+ssl", "pulsar+ssl", "https"])
def test_tls_and_tokens(locked: Site, scheme: str) -> None:
    url = f"{scheme}://{locked.urls[scheme]}"
    trust = {"tls_trust_certs_file_path": locked.made.trust}
    exchange(
        url,
        f"t-{scheme.replace('+', '-')}",
        authentication=pulsar.AuthenticationToken(locked.token("app")),
        **trust,
    )
    for authentication in (None, pulsar.AuthenticationToken("nonsense")):
        with pulsar.Client(url, authentication=authentication, **trust) as client:
            with pytest.raises(pulsar.AuthenticationError) as raised:
                client.create_producer("t")
            assert "nonsense" not in str(raised.value)


def test_a_proxy_with_tls_and_tokens(locked: Site) -> None:
    token = pulsar.AuthenticationToken(locked.token("app"))
    with locked.proxy(connect_address="127.0.0.1:0") as at:
        exchange(
            f"pulsar+ssl://{at['pulsar+ssl']}",
            "proxied",
            authentication=token,
            tls_trust_certs_file_path=locked.made.trust,
        )


def test_a_proxy_without_connect(locked: Site) -> None:
    token = pulsar.AuthenticationToken(locked.token("app"))
    with (
        locked.proxy() as at,
        pulsar.Client(
            f"pulsar+ssl://{at['pulsar+ssl']}",
            authentication=token,
            tls_trust_certs_file_path=locked.made.trust,
        ) as client,
        pytest.raises(pulsar.NotAllowedError, match="set connect_address"),
    ):
        client.create_producer("t")
