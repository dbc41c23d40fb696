"""A cluster of real processes that asks for tokens over TLS: who gets in, on which port, for how
long.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest
from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, NoAuthError

import pulsarish
from pulsarish.admin import Admin
from pulsarish.local_cluster.locked import administrator, profiles_of
from pulsarish.local_cluster.plan import HOST, NodePlan, service_urls
from pulsarish.local_cluster.processes import Cluster
from pulsarish.local_cluster.security_files import ADMINISTRATOR
from pulsarish.model.errors import NotFound, PulsarishError
from pulsarish.runtime.profiles import Profiles
from pulsarish.security.audit_chain import ChainCheck
from pulsarish.security.keys import SigningKey, load_secret_key
from pulsarish.security.token_maker import sign_token
from tests.support.clusters import running_cluster
from tests.support.commands import run_command
from tests.support.metadata_servers import plain_kazoo
from tests.support.until import until

pytestmark = pytest.mark.xdist_group("locked-cluster")

NAMESPACE = "public/default"
AUDIT_TOPIC = "public/default/audit"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("locked")

    def audited(plan: list[NodePlan]) -> None:
        for node in plan:
            if node.role == "broker":
                node.settings.append(f"audit_topic={AUDIT_TOPIC}")

    with running_cluster(
        directory, bookies=2, brokers=2, locked=True, balanced=False, prepare=audited
    ) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Admin:
    return administrator(cluster)


def token(cluster: Cluster, role: str, **claims: object) -> str:
    key = load_secret_key("key", str(cluster.directory / "security" / "token.key"))
    return sign_token({"sub": role, **claims}, SigningKey(key.key, key.algorithms)).decode()


def trust(cluster: Cluster) -> str:
    return str(cluster.directory / "security" / "ca.pem")


def own_client(
    cluster: Cluster, authentication: pulsarish.Authentication | None, transport: str = "auto"
) -> Any:
    return pulsarish.Client(
        cluster.service_urls()["pulsarish"],
        authentication=authentication,
        tls_trust_certs_file_path=trust(cluster),
        operation_timeout_seconds=20,
        transport=transport,
    )


def official_client(cluster: Cluster, authentication: Any, seconds: int = 20) -> Any:
    return pulsar.Client(
        cluster.service_urls()["pulsar"].partition(",")[0],
        authentication=authentication,
        tls_trust_certs_file_path=trust(cluster),
        tls_validate_hostname=True,
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


@contextmanager
def closing(is_over: threading.Event, thread: threading.Thread) -> Iterator[None]:
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("transport", ["grpc", "framed"])
def test_a_program_keeps_its_streams_while_its_file_has_new_tokens(
    cluster: Cluster, admin: Admin, tmp_path: Path, transport: str
) -> None:
    admin.namespaces.grant_permission(NAMESPACE, "rotating", ["produce", "consume"])
    topic, file = f"rotating-{transport}", tmp_path / "token"
    is_over = threading.Event()

    def rotate() -> None:
        beside = tmp_path / "new-token"
        beside.touch(0o600)
        beside.write_text(token(cluster, "rotating", exp=int(time.time()) + 10))
        beside.replace(file)

    def keep_rotating() -> None:
        while not is_over.wait(1.0):
            rotate()

    def connected_since() -> list[str]:
        stats = admin.topics.stats(topic)
        clients = [*stats["publishers"], *stats["subscriptions"]["s"]["consumers"]]
        return [each["connectedSince"] for each in clients]

    rotate()
    rotating = threading.Thread(target=keep_rotating)
    rotating.start()
    with (
        closing(is_over, rotating),
        own_client(cluster, pulsarish.AuthenticationToken(f"file://{file}"), transport) as client,
    ):
        producer = opened(lambda: client.create_producer(topic))
        consumer = client.subscribe(topic, "s")
        before = connected_since()
        assert len(before) == 2
        for number in range(125):  # more than two lives of a token
            producer.send(b"%d" % number)
            message = consumer.receive(20_000)
            assert (message.data(), message.redelivery_count()) == (b"%d" % number, 0)
            consumer.acknowledge(message)
            time.sleep(0.2)
        assert connected_since() == before


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
    cluster.wait_ready(cluster.nodes())


def test_what_is_acknowledged_as_captured_is_there_when_owners_are_killed(
    cluster: Cluster, admin: Admin
) -> None:
    """Brokers publish to the persistent topic, also of another broker, in their own name."""
    source, into = "non-persistent://public/default/live.1", "persistent://public/default/captured"
    admin.namespaces.grant_permission(NAMESPACE, "sensors", ["produce"])
    admin.namespaces.set_capture(NAMESPACE, "live", "live.*", into, acknowledged="stored")
    sensors = pulsarish.AuthenticationToken(token(cluster, "sensors"))
    profile = Profiles.read(profiles_of(cluster)).get(ADMINISTRATOR)
    with (
        own_client(cluster, sensors) as client,
        pulsarish.Client(profile.url, **profile.arguments(profile.url)) as reading,
    ):
        consumer = reading.subscribe(
            into,
            "s",
            initial_position=pulsarish.InitialPosition.Earliest,
            ack_receipt_enabled=True,
        )
        producer = opened(lambda: client.create_producer(source))
        for number in range(10):
            producer.send(b"%d" % number)
        for _ in range(5):
            consumer.acknowledge(consumer.receive(30_000))
        consumer.close()
        for index, name in enumerate(("broker-1", "broker-2"), 1):
            cluster.kill(name)
            cluster.start(cluster.node(name))
            for number in range(index * 10, index * 10 + 10):
                producer.send(b"%d" % number)
        consumer = reading.subscribe(into, "s")
        found: list[int] = []
        while len(set(found)) < 25:
            message = consumer.receive(30_000)
            found.append(int(message.data()))
            assert message.properties()["pulsarish-captured-from"] == source
        firsts = list(dict.fromkeys(found))
        assert firsts == list(range(5, 30))  # the position was kept
    admin.namespaces.remove_capture(NAMESPACE, "live")
    cluster.wait_ready(cluster.nodes())


def test_the_administration_wants_a_token(cluster: Cluster) -> None:
    def admin_as(authentication: pulsarish.Authentication | None) -> Admin:
        return Admin(
            cluster.admin_url(),
            authentication=authentication,
            tls_trust_certs_file_path=trust(cluster),
        )

    with pytest.raises(pulsarish.AuthenticationError):
        admin_as(None).tenants.list()
    stranger = admin_as(pulsarish.AuthenticationToken(token(cluster, "stranger")))
    assert stranger.tenants.list() == []
    with pytest.raises(pulsarish.AuthorizationError):
        stranger.namespaces.list("public")


def test_every_port_of_brokers_and_bookies_for_clients_speaks_tls(cluster: Cluster) -> None:
    context = ssl.create_default_context(cafile=trust(cluster))
    context.load_cert_chain(
        cluster.directory / "security" / "server.pem", cluster.directory / "security" / "server.key"
    )
    context.set_alpn_protocols(["h2"])
    for node in cluster.nodes():
        for kind, port in node.ports.items():
            if node.role == "broker" or (node.role == "bookie" and kind != "http"):
                with (
                    socket.create_connection((HOST, port), timeout=20) as plain,
                    context.wrap_socket(plain, server_hostname="localhost") as connection,
                ):
                    assert connection.version() in ("TLSv1.2", "TLSv1.3"), (node.name, kind)


def test_who_knows_the_token_but_trusts_no_stranger_is_not_served(cluster: Cluster) -> None:
    profile = Profiles.read(profiles_of(cluster)).get(ADMINISTRATOR)
    with pytest.raises(PulsarishError, match="certificate"):
        Admin(profile.admin_url, authentication=profile.authentication()).tenants.list()


def test_the_command_line_uses_the_profile(cluster: Cluster) -> None:
    environment = {"PULSARISH_PROFILES_FILE": str(profiles_of(cluster))}
    done = run_command(environment, "produce", "typed", "-m", "x")
    assert done.exit_code == 0, done.output
    of_no_user = {"PULSARISH_TRUST_CERTS_FILE": trust(cluster)}
    to = ("--admin-url", cluster.admin_url())
    refused = run_command(of_no_user, "topics", "list", NAMESPACE, *to)
    assert refused.exit_code == 1
    assert "AuthenticationError" in refused.output
    untrusted = run_command({}, "topics", "list", NAMESPACE, *to)
    assert untrusted.exit_code == 1
    assert "certificate" in untrusted.output
    done = run_command(environment, "auth", "explain", "stranger", "produce", "typed")
    assert done.exit_code == 0, done.output
    urls = service_urls(cluster.nodes())
    done = run_command(environment, "cluster-info", "-o", "json")
    assert json.loads(done.output)["service_urls"] == {
        kind: urls[kind] for kind in ("pulsarish", "http")
    }
    leader = run_command(environment, "brokers", "leader", "-o", "json")
    assert json.loads(leader.output)["serviceUrl"].startswith("https://127.0.0.1:")
    stats = run_command(environment, "topics", "stats", "typed")
    assert "(127.0.0.1:" in stats.output
    healthy = run_command(environment, "health")
    assert healthy.exit_code == 0, healthy.output
    assert healthy.output.count("/health ok") == 2


def test_the_cluster_key_is_replaced_while_a_program_publishes(cluster: Cluster) -> None:
    """As docs/security.md says: the new key last, then first, then alone."""
    file = cluster.directory / "security" / "cluster.key"
    old = file.read_text().strip()
    new = base64.b64encode(hashlib.sha256(old.encode()).digest()).decode()
    profile = Profiles.read(profiles_of(cluster)).get(ADMINISTRATOR)
    bookies = [node.name for node in cluster.nodes() if node.role == "bookie"]
    sent: list[bytes] = []
    is_over = threading.Event()

    def streams_ended() -> int:
        logs = (cluster.log_path(name).read_text(errors="replace") for name in bookies)
        return sum(log.count("was removed from cluster_key_file") for log in logs)

    with pulsarish.Client(profile.url, **profile.arguments(profile.url)) as client:
        consumer = client.subscribe("rekeyed", "s")
        producer = client.create_producer("rekeyed")

        def publish() -> None:
            while not is_over.wait(0.01):
                producer.send(b"%d" % len(sent))
                sent.append(b"%d" % len(sent))

        def publish_more() -> None:
            count = len(sent) + 50
            until("more is sent", lambda: len(sent) > count or not publishing.is_alive(), 30)
            assert publishing.is_alive()  # a send that fails ends it

        publishing = threading.Thread(target=publish)
        publishing.start()
        with closing(is_over, publishing):
            before = streams_ended()
            for lines in ([old, new], [new, old], [new]):
                beside = file.with_suffix(".new")
                beside.touch(0o600)
                beside.write_text("\n".join(lines) + "\n")
                beside.replace(file)
                time.sleep(4)  # each process looks once in a second
                publish_more()
            until("streams with the old key end", lambda: streams_ended() > before, 30)
            publish_more()
        received = [consumer.receive(20_000).data() for _ in sent]
        assert received == sent


def test_a_cluster_that_went_down_comes_back_with_its_keys(cluster: Cluster, admin: Admin) -> None:
    """Runs before the test of the logs only: all nodes start again."""
    home = cluster.directory / "security"
    before = {file.name: file.read_bytes() for file in home.iterdir()}
    admin.namespaces.set_policy(
        NAMESPACE, "retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    )
    environment = {"PULSARISH_PROFILES_FILE": str(profiles_of(cluster))}
    assert run_command(environment, "produce", "kept", "-m", "x").exit_code == 0
    where = ("--dir", str(cluster.directory))
    for command in ("down", "up"):
        done = run_command({}, "cluster", command, *where)
        assert done.exit_code == 0, done.output
    rolled = run_command({}, "cluster", "restart", "--rolling", "broker-1", *where)
    assert rolled.exit_code == 0, rolled.output
    assert {file.name: file.read_bytes() for file in home.iterdir()} == before
    done = run_command(environment, "read", "kept")
    assert done.output.split() == ["x"]


def test_no_secret_is_in_any_log(cluster: Cluster, admin: Admin) -> None:
    home: Path = cluster.directory / "security"
    secrets = [
        (home / "admin.token").read_text(),
        (home / "cluster.key").read_text().strip(),
        (home / "ca.key").read_text().splitlines()[1],
        (home / "server.key").read_text().splitlines()[1],
        token(cluster, "orders"),
    ]
    shown = admin.brokers.configuration()
    assert shown["token_secret_key"] == "(not shown)"
    for node in cluster.nodes():
        log = cluster.log_path(node.name).read_text(errors="replace")
        assert not [secret for secret in secrets if secret in log]
        assert not [secret.split(".")[-1] for secret in secrets if secret.split(".")[-1] in log]
    until("lines of both brokers", lambda: len(audit_lines(cluster)) == 2, 30)
    for taken in audit_lines(cluster).values():
        check = ChainCheck()
        check.read_export("topic", taken)
        assert check.faults == []
        assert not [secret for secret in secrets if secret.split(".")[-1].encode() in taken]


def audit_lines(cluster: Cluster) -> dict[str, bytes]:
    """The lines in the topic of the audit trails, by broker."""
    found: dict[str, bytes] = {}
    root = pulsarish.AuthenticationToken((cluster.directory / "security/admin.token").read_text())
    with own_client(cluster, root) as client:
        reader = client.create_reader(AUDIT_TOPIC, pulsarish.MessageId.earliest)
        while reader.has_message_available():
            message = reader.read_next(20_000)
            key = message.partition_key()
            found[key] = found.get(key, b"") + message.data() + b"\n"
    return found


def test_the_audit_of_the_metadata_hears_of_bookies_that_want_a_key(cluster: Cluster) -> None:
    files = cluster.directory / "security"
    arguments = [
        *("metadata", "audit", cluster.service_urls()["metadata"], "-o", "json"),
        *("--metadata-auth-file", str(files / "metadata.auth")),
    ]
    without = run_command({}, *arguments)
    assert (without.exit_code, len(json.loads(without.stdout)["silent"])) == (1, 2)
    access = ["--cluster-key-file", str(files / "cluster.key")]
    access += ["--bookie-trust-certs-file", trust(cluster)]
    access += ["--bookie-certificate-file", str(files / "server.pem")]
    access += ["--bookie-key-file", str(files / "server.key")]
    # Bookies may still have ledgers that were deleted.
    assert json.loads(run_command({}, *arguments, *access).stdout)["silent"] == {}


def test_the_metadata_serve_only_members(cluster: Cluster) -> None:
    [metadata] = [node for node in cluster.nodes() if node.role == "metadata"]
    with (
        plain_kazoo(f"127.0.0.1:{metadata.ports['client']}") as stranger,
        pytest.raises((NoAuthError, ConnectionLoss, ConnectionClosedError)),
    ):
        stranger.get("/pulsarish")
