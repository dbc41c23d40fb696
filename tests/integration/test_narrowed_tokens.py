"""A program with a token that was narrowed with the command line, against a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

import pulsarish
from pulsarish.admin import Admin
from tests.support.commands import run_command

pytestmark = pytest.mark.xdist_group("narrowed-tokens")

ONE = "persistent://public/default/eu-1"
OTHER = "persistent://public/default/us-1"


def told(*arguments: str) -> str:
    """Return what a command prints."""
    done = run_command({}, *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


class Broker:
    """A locked broker, the token of its administrator, and its URLs by scheme."""

    def __init__(self, home: Path, *, authorizes: bool) -> None:
        self.home = home
        self.key, self.root = str(home / "key"), str(home / "root.token")
        told("tokens", "create-secret-key", "--output", self.key)
        told(
            *("tokens", "create", "--secret-key", self.key),
            *("--subject", "root", "--output", self.root),
        )
        options = {
            "authentication_enabled": "true",
            "authentication_providers": "token",
            "token_secret_key": self.key,
            "authorization_enabled": str(authorizes).lower(),
            "super_user_roles": "root",
            "listen_address": "127.0.0.1:0",
            "http_address": "127.0.0.1:0",
            "pulsar_address": "127.0.0.1:0",
        }
        command = [sys.executable, "-m", "pulsarish", "standalone", "--data", f"{home}/data"]
        for name, value in options.items():
            command += ["--broker-set", f"{name}={value}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.urls = {url.split("://")[0]: url for url in line.split() if "://" in url}

    def narrowed(self, *options: str) -> str:
        return told("tokens", "narrow", "--token-file", self.root, *options)

    def client(self, token: str) -> Any:
        return pulsarish.Client(
            self.urls["pulsarish"],
            authentication=pulsarish.AuthenticationToken(token),
            operation_timeout_seconds=20,
        )


@pytest.fixture(scope="module", params=[False, True], ids=["no grants", "grants"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("narrowed"), authorizes=request.param)
    try:
        with broker.client(Path(broker.root).read_text()) as client:
            for topic in (ONE, OTHER):
                client.subscribe(topic, "kept").close()
                client.create_producer(topic).send(b"1")
        yield broker
    finally:
        broker.process.terminate()
        broker.process.communicate(timeout=60)


def test_a_token_for_consuming_some_topics(broker: Broker) -> None:
    token = broker.narrowed(
        "--topic", "persistent://public/default/eu-*", "--action", "consume", "--expiry-time", "1h"
    )
    with broker.client(token) as client:
        consumer = client.subscribe(ONE, "kept")
        assert consumer.receive(20_000).data() == b"1"
        for refused in (
            lambda: client.create_producer(ONE),
            lambda: client.subscribe(OTHER, "kept"),
        ):
            with pytest.raises(pulsarish.AuthorizationError):
                refused()
    admin = Admin(broker.urls["http"], authentication=pulsarish.AuthenticationToken(token))
    for refused in (
        lambda: admin.topics.delete(ONE),
        lambda: admin.topics.stats(OTHER),
        lambda: admin.tenants.create("mine"),
    ):
        with pytest.raises(pulsarish.AuthorizationError):
            refused()


def test_a_token_for_a_network(broker: Broker) -> None:
    here, elsewhere = (
        broker.narrowed("--network", "127.0.0.0/8"),
        broker.narrowed("--network", "192.0.2.0/24"),
    )
    with broker.client(here) as client:
        client.create_producer(ONE).send(b"2")
    with broker.client(elsewhere) as client, pytest.raises(pulsarish.AuthenticationError):
        client.create_producer(ONE)
    for token, is_taken in ((here, True), (elsewhere, False)):
        admin = Admin(broker.urls["http"], authentication=pulsarish.AuthenticationToken(token))
        official = pulsar.Client(
            broker.urls["pulsar"],
            authentication=pulsar.AuthenticationToken(token),
            operation_timeout_seconds=5,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        if is_taken:
            admin.topics.stats(ONE)
            official.create_producer(ONE).close()
        else:
            with pytest.raises(pulsarish.AuthenticationError):
                admin.topics.stats(ONE)
            with pytest.raises(pulsar.PulsarException):
                official.create_producer(ONE)
        official.close()


def test_an_official_client_sends_a_narrowed_token_as_any_other(broker: Broker) -> None:
    client = pulsar.Client(
        broker.urls["pulsar"],
        authentication=pulsar.AuthenticationToken(broker.narrowed("--topic", ONE)),
        operation_timeout_seconds=20,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    client.create_producer(ONE).send(b"2")
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(OTHER)
    client.close()


def test_the_command_line_shows_what_a_token_is_limited_to(broker: Broker) -> None:
    first = broker.home / "first.token"
    first.write_text(broker.narrowed("--action", "produce"))
    made = told("tokens", "narrow", "--token-file", str(first), "--network", "127.0.0.0/8")
    second = broker.home / "second.token"
    second.write_text(made)
    shown = json.loads(told("tokens", "show", "--token-file", str(second)))
    assert shown["claims"]["pulsarish_limits"] == {"networks": ["127.0.0.0/8"]}
    assert shown["narrowed_from"][0]["pulsarish_limits"] == {"actions": ["produce"]}
    assert shown["narrowed_from"][1]["sub"] == "root"
