"""A proxy as a real process that speaks TLS to clients and brokers, with Apache Pulsar's client."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
import pytest

from pulsarish.security.keys import SigningKey, load_secret_key
from pulsarish.security.token_maker import sign_token
from tests.support.certificates import Certificates
from tests.support.until import until

pytestmark = pytest.mark.xdist_group("tls-proxy")


def options(flag: str, settings: Mapping[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in (flag, f"{name}={value}")]


@contextmanager
def running(*words: str) -> Iterator[list[str]]:
    """Run a server until the end of the block. Gives the words of its ready line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pulsarish", *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()
    finally:
        process.terminate()
        process.communicate(timeout=60)


@dataclass
class Site:
    """A broker with nothing but TLS that asks for tokens or certificates, and its metadata."""

    home: Path
    made: Certificates
    urls: dict[str, str]
    metadata_url: str

    def token(self, role: str) -> str:
        key = load_secret_key("key", str(self.home / "token.key"))
        return sign_token({"sub": role}, SigningKey(key.key, key.algorithms)).decode()

    @contextmanager
    def proxy(self, **settings: str) -> Iterator[dict[str, str]]:
        """Run a proxy with TLS only. Gives its addresses by scheme."""
        certificate, key = self.made.issue("front")
        own, own_key = self.made.issue("proxy", is_server=False)
        found = {
            "metadata_url": self.metadata_url,
            "pulsar_address": "",
            "connect_address": "",
            "http_address": "",
            "pulsar_address_tls": "127.0.0.1:0",
            "connect_address_tls": "127.0.0.1:0",
            "http_address_tls": "127.0.0.1:0",
            "tls_certificate_file_path": certificate,
            "tls_key_file_path": key,
            "tls_enabled_with_broker": "true",
            "broker_client_trust_certs_file_path": self.made.trust,
            "broker_client_certificate_file_path": own,
            "broker_client_key_file_path": own_key,
            **settings,
        }
        with running("proxy", *options("--set", found)) as ready:
            yield dict(word.split("=", 1) for word in ready if "=" in word)

    def client(self, address: str, authentication: Any, seconds: int = 30) -> Any:
        return pulsar.Client(
            f"pulsar+ssl://{address}",
            authentication=authentication,
            operation_timeout_seconds=seconds,
            tls_trust_certs_file_path=self.made.trust,
            tls_validate_hostname=True,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )


@contextmanager
def running_site(home: Path, **broker: str) -> Iterator[Site]:
    made = Certificates(home)
    certificate, key = made.issue("server")
    (home / "token.key").write_bytes(b64encode(os.urandom(32)))
    settings = {
        "listen_address": "",
        "http_address": "",
        "pulsar_address": "",
        "listen_address_tls": "127.0.0.1:0",
        "http_address_tls": "127.0.0.1:0",
        "pulsar_address_tls": "127.0.0.1:0",
        "tls_certificate_file_path": certificate,
        "tls_key_file_path": key,
        "tls_trust_certs_file_path": made.trust,
        "authentication_enabled": "true",
        "authentication_providers": "token,tls",
        "token_secret_key": f"file://{home}/token.key",
        **broker,
    }
    words = ["standalone", "--data", f"{home}/data", "--metadata-address", "127.0.0.1:0"]
    words += ["--bookie-set", "listen_address=127.0.0.1:0"]
    with running(*words, *options("--broker-set", settings)) as ready:
        urls = dict(word.split("://") for word in ready if "://" in word)
        yield Site(home, made, urls, f"zk://{urls['zk']}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("tls-proxy")) as found:
        yield found


@pytest.fixture(scope="module")
def proxy(site: Site) -> Iterator[dict[str, str]]:
    with site.proxy() as addresses:
        yield addresses


def test_the_official_client_publishes_and_receives_with_a_token(
    site: Site, proxy: dict[str, str]
) -> None:
    assert proxy.keys() == {"pulsar+ssl", "connect+ssl", "https"}
    client = site.client(proxy["pulsar+ssl"], pulsar.AuthenticationToken(site.token("app")))
    try:
        consumer = client.subscribe("through", "s")
        producer = client.create_producer("through")
        for number in range(20):
            producer.send(b"%d" % number)
        for number in range(20):
            message = consumer.receive(20_000)
            assert message.data() == b"%d" % number
            consumer.acknowledge(message)
    finally:
        client.close()
    context = ssl.create_default_context(cafile=site.made.trust)
    metrics = f"https://{proxy['https']}/metrics"
    with urllib.request.urlopen(metrics, timeout=30, context=context) as answer:
        relayed = [line for line in answer.read().splitlines() if b"_binary_bytes " in line]
    assert float(relayed[-1].split()[-1]) > 1_000


@pytest.mark.parametrize("shown", ["nothing", "a wrong token", "a certificate"])
def test_a_client_is_never_taken_for_the_proxy(
    site: Site, proxy: dict[str, str], shown: str
) -> None:
    authentication = {
        "nothing": None,
        "a wrong token": pulsar.AuthenticationToken("junk"),
        "a certificate": pulsar.AuthenticationTLS(*site.made.issue("app", is_server=False)),
    }[shown]
    client = site.client(proxy["pulsar+ssl"], authentication, 5)
    try:
        with pytest.raises((pulsar.AuthenticationError, pulsar.ConnectError, pulsar.Timeout)):
            client.create_producer("refused")
    finally:
        client.close()


def test_brokers_of_another_authority_are_not_connected_to(site: Site, tmp_path: Path) -> None:
    other = Certificates(tmp_path)
    with site.proxy(broker_client_trust_certs_file_path=other.trust) as addresses:
        client = site.client(
            addresses["pulsar+ssl"], pulsar.AuthenticationToken(site.token("app")), 4
        )
        try:
            with pytest.raises((pulsar.ConnectError, pulsar.Timeout, pulsar.LookupError)):
                client.create_producer("refused")
        finally:
            client.close()


def has_name(site: Site, name: str) -> bool:
    """Return whether the certificate of the broker's port for Pulsar's clients has a host name."""
    context = ssl.create_default_context(cafile=site.made.trust)
    _, _, port = site.urls["pulsar+ssl"].rpartition(":")
    with socket.create_connection(("127.0.0.1", int(port)), timeout=10) as connection:
        try:
            with context.wrap_socket(connection, server_hostname=name):
                return True
        except ssl.SSLCertVerificationError:
            return False


def test_a_broker_is_not_connected_to_by_a_name_that_its_certificate_lacks(tmp_path: Path) -> None:
    with running_site(tmp_path, advertised_address="localhost") as named:
        token = pulsar.AuthenticationToken(named.token("app"))
        with named.proxy() as addresses:
            client = named.client(addresses["pulsar+ssl"], token)
            client.create_producer("known").close()
            client.close()
        named.made.issue("server", hosts=("127.0.0.1",))
        until("the broker shows its new certificate", lambda: not has_name(named, "localhost"), 20)
        with named.proxy() as addresses:
            client = named.client(addresses["pulsar+ssl"], token, 4)
            try:
                with pytest.raises((pulsar.ConnectError, pulsar.Timeout, pulsar.LookupError)):
                    client.create_producer("refused")
            finally:
                client.close()


def test_a_proxy_without_tls_to_brokers_uses_no_port_with_tls(site: Site) -> None:
    plain = dict.fromkeys(
        (
            "broker_client_trust_certs_file_path",
            "broker_client_certificate_file_path",
            "broker_client_key_file_path",
        ),
        "",
    )
    with site.proxy(tls_enabled_with_broker="false", **plain) as addresses:
        client = site.client(
            addresses["pulsar+ssl"], pulsar.AuthenticationToken(site.token("app")), 4
        )
        try:
            with pytest.raises((pulsar.ConnectError, pulsar.Timeout, pulsar.LookupError)):
                client.create_producer("refused")
        finally:
            client.close()


def test_a_tunnel_over_tls_reaches_a_brokers_port_with_tls(
    site: Site, proxy: dict[str, str]
) -> None:
    context = ssl.create_default_context(cafile=site.made.trust)
    host, port = proxy["connect+ssl"].split(":")
    for target, status in (
        (site.urls["pulsarish+ssl"], b"200"),
        (site.urls["pulsar+ssl"], b"200"),
        (site.urls["https"], b"403"),
        ("127.0.0.1:1", b"403"),
    ):
        with (
            socket.create_connection((host, int(port)), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            connection.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert connection.recv(64).startswith(b"HTTP/1.1 " + status)


def test_the_own_client_speaks_tls_with_a_broker_through_a_tunnel(site: Site) -> None:
    # gRPC reaches its proxy without TLS; what it sends through the tunnel is encrypted.
    with site.proxy(connect_address="127.0.0.1:0") as addresses:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pulsarish", "--trust-certs-file", site.made.trust),
                *("--auth-plugin", "token", "--auth-params", f"token:{site.token('app')}"),
                *("produce", "tunnelled", "-m", "hello"),
                *("--url", f"pulsarish+ssl://{site.urls['pulsarish+ssl']}"),
            ],
            env={
                **os.environ,
                "grpc_proxy": f"http://{addresses['connect']}",
                "no_grpc_proxy": "",
                "no_proxy": "",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        context = ssl.create_default_context(cafile=site.made.trust)
        metrics = f"https://{addresses['https']}/metrics"
        with urllib.request.urlopen(metrics, timeout=30, context=context) as answer:
            relayed = [line for line in answer.read().splitlines() if b"_binary_bytes " in line]
        assert float(relayed[-1].split()[-1]) > 1_000
