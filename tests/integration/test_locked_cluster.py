"""A cluster of real processes that asks for tokens: who gets in, on which port, for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

import pulsarish
from pulsarish.admin import Admin
from pulsarish.local_cluster.locked import ADMINISTRATOR, administrator, profiles_of
from pulsarish.local_cluster.processes import Cluster
from pulsarish.model.errors import NotFound
from pulsarish.runtime.profiles import Profiles
from pulsarish.security.keys import SigningKey, load_secret_key
from pulsarish.security.token_maker import sign_token
from tests.support.clusters import running_cluster
from tests.support.commands import run_command
from tests.support.until import until

pytestmark = pytest.mark.xdist_group("locked-cluster")

NAMESPACE = "public/default"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("locked")
    with running_cluster(directory, bookies=2, brokers=2, locked=True) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Admin:
    return administrator(cluster)


def token(cluster: Cluster, role: str, **claims: object) -> str:
    key = load_secret_key("key", str(cluster.directory / "security" / "token.key"))
    return sign_token({"sub": role, **claims}, SigningKey(key.key, key.algorithms)).decode()


def own_client(cluster: Cluster, authentication: pulsarish.Authentication | None) -> Any:
    return pulsarish.Client(
        cluster.service_urls()["pulsarish"],
        authentication=authentication,
        operation_timeout_seconds=20,
    )


def official_client(cluster: Cluster, authentication: Any, seconds: int = 20) -> Any:
    return pulsar.Client(
        cluster.service_urls()["pulsar"].partition(",")[0],
        authentication=authentication,
        operation_timeout_seconds=seconds,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


def test_the_administrator_publishes_with_its_profile(cluster: Cluster) -> None:
    profile = Profiles.read(profiles_of(cluster)).get(ADMINISTRATOR)
    with pulsarish.Client(profile.url, **profile.arguments(profile.url)) as client:
        consumer = client.subscribe("profiled", "s")
        client.create_producer("profiled").send(b"1")
        assert consumer.receive(20_000).data() == b"1"


@pytest.mark.parametrize(
    "authentication",
    [
        None,
        pulsarish.AuthenticationToken("junk"),
        pulsarish.AuthenticationBasic("admin", "admin"),
    ],
    ids=["none", "junk", "basic"],
)
def test_a_program_without_a_good_token_is_refused_at_once(
    cluster: Cluster, authentication: pulsarish.Authentication | None
) -> None:
    with own_client(cluster, authentication) as client:
        for open_one in (
            lambda: client.create_producer("refused"),
            lambda: client.subscribe("refused", "s"),
            lambda: client.create_reader("refused", pulsarish.MessageId.earliest),
        ):
            with pytest.raises(pulsarish.AuthenticationError):
                open_one()
    with pytest.raises(NotFound):
        administrator(cluster).topics.stats("refused")


@pytest.mark.parametrize("authentication", [None, "junk"])
def test_an_official_client_without_a_good_token_gets_nothing(
    cluster: Cluster, authentication: str | None
) -> None:
    shown = None if authentication is None else pulsar.AuthenticationToken(authentication)
    client = official_client(cluster, shown, seconds=3)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("refused")
    client.close()
    with pytest.raises(NotFound):
        administrator(cluster).topics.stats("refused")


def test_a_role_may_do_what_is_granted_and_no_more(cluster: Cluster, admin: Admin) -> None:
    orders = pulsarish.AuthenticationToken(token(cluster, "orders"))
    with own_client(cluster, orders) as client:
        with pytest.raises(pulsarish.AuthorizationError):
            client.create_producer("granted")
        admin.namespaces.grant_permission(NAMESPACE, "orders", ["produce"])
        producer = opened(lambda: client.create_producer("granted"))
        producer.send(b"1")
        with pytest.raises(pulsarish.AuthorizationError):
            client.subscribe("granted", "s")
        admin.namespaces.grant_permission(NAMESPACE, "orders", ["produce", "consume"])
        consumer = opened(
            lambda: client.subscribe(
                "granted", "s", initial_position=pulsarish.InitialPosition.Earliest
            )
        )
        assert consumer.receive(20_000).data() == b"1"
        # What is open ends with the grant.
        admin.namespaces.revoke_permission(NAMESPACE, "orders")
        until("the producer ends", lambda: not admin.topics.stats("granted")["publishers"], 30)
        until(
            "the consumer ends",
            lambda: not admin.topics.stats("granted")["subscriptions"]["s"]["consumers"],
            30,
        )
        with pytest.raises(pulsarish.AuthorizationError):
            client.create_producer("granted")


def opened(open_one: Any) -> Any:
    """What ``open_one`` returns, once all brokers know of a grant."""
    found: list[Any] = []

    def is_open() -> bool:
        try:
            found.append(open_one())
        except pulsarish.AuthorizationError:
            return False
        return True

    until("the grant is known", is_open, 30)
    return found[0]


def test_an_official_client_stays_while_its_supplier_gives_new_tokens(
    cluster: Cluster, admin: Admin
) -> None:
    admin.namespaces.grant_permission(NAMESPACE, "official", ["produce", "consume"])
    asked: list[float] = []

    def supply() -> str:
        asked.append(time.time())
        return token(cluster, "official", exp=int(time.time()) + 6)

    client = official_client(cluster, pulsar.AuthenticationToken(supply))
    producer = client.create_producer("renewed")
    consumer = client.subscribe("renewed", "s")
    for number in range(12):
        producer.send(b"%d" % number)
        message = consumer.receive(20_000)
        assert message.data() == b"%d" % number
        consumer.acknowledge(message)
        time.sleep(1.0)  # twice the life of a token in all
    assert len(asked) >= 3
    client.close()


def test_a_program_goes_on_with_new_tokens_when_brokers_are_killed(
    cluster: Cluster, admin: Admin
) -> None:
    admin.namespaces.grant_permission(NAMESPACE, "steady", ["produce", "consume"])

    def supply() -> str:
        return token(cluster, "steady", exp=int(time.time()) + 5)

    with own_client(cluster, pulsarish.AuthenticationToken(supply)) as client:
        # A subscription, since a reader alone keeps no message from being trimmed.
        consumer = client.subscribe("steady", "s")
        producer = client.create_producer("steady")
        for number in range(60):
            if number in (15, 35):
                name = f"broker-{number // 15}"
                cluster.kill(name)
                cluster.start(cluster.node(name))
            producer.send(b"%d" % number)
            time.sleep(0.2)  # several lives of a token in all
        found: set[bytes] = set()
        while len(found) < 60:
            message = consumer.receive(30_000)
            found.add(message.data())
            consumer.acknowledge(message)


def test_the_administration_wants_a_token(cluster: Cluster) -> None:
    with pytest.raises(pulsarish.AuthenticationError):
        Admin(cluster.admin_url()).tenants.list()
    stranger = pulsarish.AuthenticationToken(token(cluster, "stranger"))
    assert Admin(cluster.admin_url(), authentication=stranger).tenants.list() == []
    with pytest.raises(pulsarish.AuthorizationError):
        Admin(cluster.admin_url(), authentication=stranger).namespaces.list("public")


def test_the_command_line_uses_the_profile(cluster: Cluster) -> None:
    environment = {"PULSARISH_PROFILES_FILE": str(profiles_of(cluster))}
    done = run_command(environment, "produce", "typed", "-m", "x")
    assert done.exit_code == 0, done.output
    refused = run_command({}, "topics", "list", NAMESPACE, "--admin-url", cluster.admin_url())
    assert refused.exit_code == 1
    assert "AuthenticationError" in refused.output
    done = run_command(environment, "auth", "explain", "stranger", "produce", "typed")
    assert done.exit_code == 0, done.output


def test_no_secret_is_in_any_log(cluster: Cluster, admin: Admin) -> None:
    home: Path = cluster.directory / "security"
    secrets = [
        (home / "admin.token").read_text(),
        (home / "cluster.key").read_text().strip(),
        token(cluster, "orders"),
    ]
    shown = admin.brokers.configuration()
    assert shown["token_secret_key"] == "(not shown)"
    for node in cluster.nodes():
        log = cluster.log_path(node.name).read_text(errors="replace")
        assert not [secret for secret in secrets if secret in log]
        assert not [secret.split(".")[-1] for secret in secrets if secret.split(".")[-1] in log]
