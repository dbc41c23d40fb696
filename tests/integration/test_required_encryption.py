"""Namespaces whose messages must be encrypted, for both protocols and both kinds of topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

import pulsarish
from pulsarish.admin import Admin
from pulsarish.testing import LocalServer
from tests.support.message_keys import rsa_pair
from tests.support.until import until

NAMESPACE = "public/sealed"
KINDS = ("persistent", "non-persistent")


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        server.admin().namespaces.create(NAMESPACE)
        yield server


@pytest.fixture
def admin(server: LocalServer) -> Iterator[Admin]:
    admin = server.admin()
    yield admin
    require(admin, False)


def require(admin: Admin, state: bool) -> None:
    admin.namespaces.set_policy(NAMESPACE, "encryption-required", state)


@pytest.mark.parametrize("kind", KINDS)
def test_only_producers_that_encrypt_open(
    server: LocalServer, admin: Admin, kind: str, tmp_path: Path
) -> None:
    keys = rsa_pair().files(tmp_path, "own")
    topic = f"{kind}://{NAMESPACE}/opened"
    require(admin, True)
    theirs = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with server.client() as client:

        def plain_is_refused() -> bool:
            try:
                client.create_producer(topic).close()
            except pulsarish.NotAllowedError as error:
                return "encryption_required" in str(error)
            return False

        until("the policy is in force", plain_is_refused)
        with pytest.raises(pulsar.PulsarException):
            theirs.create_producer(topic)
        consumer = client.subscribe(topic, "s", crypto_key_reader=pulsarish.CryptoKeyReader(*keys))
        ours = client.create_producer(
            topic, encryption_key="own", crypto_key_reader=pulsarish.CryptoKeyReader(*keys)
        )
        ours.send(b"ours")
        sealed = theirs.create_producer(
            topic, encryption_key="own", crypto_key_reader=pulsar.CryptoKeyReader(*keys)
        )
        sealed.send(b"theirs")
        assert [consumer.receive(60_000).data() for _ in range(2)] == [b"ours", b"theirs"]
    theirs.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_producer_that_was_open_before_is_refused_each_message(
    server: LocalServer, admin: Admin, kind: str
) -> None:
    with server.client() as client:
        producer = client.create_producer(f"{kind}://{NAMESPACE}/open-before")
        producer.send(b"before")
        require(admin, True)

        def is_refused() -> bool:
            try:
                producer.send(b"plain")
            except pulsarish.NotAllowedError as error:
                return "encryption_required" in str(error)
            return False

        until("messages are refused", is_refused)
        require(admin, False)
        until("messages are taken again", lambda: not is_refused())


def test_a_broker_may_demand_it_of_all(tmp_path: Path) -> None:
    with (
        LocalServer(settings=["encryption_require_on_producer=true"]) as server,
        server.client() as client,
    ):
        with pytest.raises(pulsarish.NotAllowedError, match="encryption_required"):
            client.create_producer("any")
        keys = rsa_pair().files(tmp_path, "own")
        client.create_producer(
            "any", encryption_key="own", crypto_key_reader=pulsarish.CryptoKeyReader(*keys)
        ).send(b"sealed")
