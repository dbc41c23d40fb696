"""Bad input at every face of one standalone server: a typed error that says what to do, an exit
status, never a traceback.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import pulsarish
from pulsarish.admin import Admin
from pulsarish.model.errors import PulsarishError
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import command_frame


class Server:
    """A standalone process on free ports; creates no topic by itself unless its settings say so."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        ports = [
            "listen_address=127.0.0.1:0",
            "http_address=127.0.0.1:0",
            "pulsar_address=127.0.0.1:0",
            "allow_auto_topic_creation=false",
        ]
        command = [
            sys.executable,
            "-m",
            "pulsarish",
            "standalone",
            "--data",
            str(directory / "data"),
        ]
        command += ["--bookie-set", "listen_address=127.0.0.1:0"]
        for setting in ports:
            command += ["--broker-set", setting]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().split()
        assert ready[:2] == ["standalone", "ready"], self.log.read_text()
        self.url, self.admin_url = ready[2], ready[3]
        self.pulsar_port = int(ready[4].rpartition(":")[2])

    def run(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """A command's exit status, stdout and stderr."""
        environment = {
            **os.environ,
            "PULSARISH_URL": self.url,
            "PULSARISH_ADMIN_URL": self.admin_url,
        }
        command = [sys.executable, "-m", "pulsarish", *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, env=environment, timeout=60, check=False
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def http(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        """A request's status, and the reason in the body of an error."""
        connection = http.client.HTTPConnection(self.admin_url.removeprefix("http://"), timeout=30)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            payload = answer.read()
            return answer.status, json.loads(payload)[
                "reason"
            ] if answer.status >= 400 and payload else ""
        finally:
            connection.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("standalone"))
    admin = Admin(found.admin_url)
    for topic in ("t", "full", "shared"):
        admin.topics.create(topic)
    yield found
    assert found.process.poll() is None, "bad input ended the server"
    found.process.terminate()
    found.process.communicate(timeout=60)
    assert found.process.returncode == 0
    assert "Traceback" not in found.log.read_text()


@pytest.fixture
def client(server: Server) -> Iterator[pulsarish.Client]:
    found = pulsarish.Client(server.url, operation_timeout_seconds=30)
    yield found
    found.close()


# The SDK


@pytest.mark.parametrize(
    ("topic", "error", "text"),
    [
        ("", pulsarish.InvalidTopicName, "empty"),
        ("  ", pulsarish.InvalidTopicName, "empty"),
        ("a/b", pulsarish.InvalidTopicName, "tenant/namespace/topic"),
        ("http://a/b/c", pulsarish.InvalidTopicName, "unknown domain"),
        ("a\nb", pulsarish.InvalidTopicName, "control character"),
        ("x" * 600, pulsarish.InvalidTopicName, "512 characters, not 600"),
        ("persistent://t\u00fc/default/x", pulsarish.InvalidTopicName, "letters, digits"),
        ("non-persistent://public/x", pulsarish.InvalidTopicName, "non-persistent://"),
        ("unkept://public/default/x", pulsarish.InvalidTopicName, "unknown domain"),
        ("public/absent/x", pulsarish.NotFound, "namespaces create public/absent"),
        ("absent", pulsarish.TopicNotFound, "absent"),
    ],
)
def test_topic_names(
    client: pulsarish.Client, topic: str, error: type[PulsarishError], text: str
) -> None:
    for create in (client.create_producer, lambda name: client.subscribe(name, "s")):
        with pytest.raises(error, match=text) as raised:
            create(topic)
        assert type(raised.value) is error
        assert len(str(raised.value)) < 300


def test_producers(client: pulsarish.Client) -> None:
    producer = client.create_producer("t", producer_name="one")
    with pytest.raises(pulsarish.ProducerBusy, match="'one'"):
        client.create_producer("t", producer_name="one")
    with pytest.raises(pulsarish.MessageTooBig, match="5242880"):
        producer.send(b"x" * 5_242_881)
    for content in ("text", 5):
        with pytest.raises(pulsarish.InvalidArgument, match="pass bytes"):
            producer.send(content)
    with pytest.raises(pulsarish.InvalidArgument, match="event_timestamp"):
        producer.send(b"x", event_timestamp=-1)
    with pytest.raises(pulsarish.InvalidArgument, match="max_pending_messages"):
        client.create_producer("t", max_pending_messages=-1)
    producer.close()
    with pytest.raises(pulsarish.AlreadyClosed, match="create another"):
        producer.send(b"x")


def test_full_queue(client: pulsarish.Client) -> None:
    producer = client.create_producer("full", max_pending_messages=2, block_if_queue_full=False)
    results: list[pulsarish.Result] = []
    for _ in range(200):
        producer.send_async(b"x", lambda result, _: results.append(result))
    producer.flush()
    assert set(results) == {pulsarish.Result.Ok, pulsarish.Result.ProducerQueueIsFull}
    assert len(results) == 200


def test_consumers(client: pulsarish.Client) -> None:
    consumer = client.subscribe("t", "exclusive")
    with pytest.raises(pulsarish.ConsumerBusy, match="failover or shared"):
        client.subscribe("t", "exclusive")
    with pytest.raises(pulsarish.InvalidArgument, match="received"):
        consumer.acknowledge(None)  # type: ignore[arg-type]
    with pytest.raises(pulsarish.Timeout, match="20 ms"):
        consumer.receive(timeout_millis=20)
    consumer.close()
    with pytest.raises(pulsarish.AlreadyClosed, match="subscribe again"):
        consumer.receive(timeout_millis=20)


def test_cumulative_acknowledgement_on_shared(client: pulsarish.Client) -> None:
    consumer = client.subscribe("shared", "s", consumer_type=pulsarish.ConsumerType.Shared)
    client.create_producer("shared").send(b"x")
    message = consumer.receive(timeout_millis=30_000)
    with pytest.raises(pulsarish.NotAllowedError, match="acknowledge each"):
        consumer.acknowledge_cumulative(message)


def test_clients(server: Server) -> None:
    for url in ("", "127.0.0.1", "ftp://127.0.0.1:8080", "pulsarish://h:70000", None):
        with pytest.raises(pulsarish.InvalidConfiguration, match=r"pulsarish://host:6660"):
            pulsarish.Client(url)  # type: ignore[arg-type]
    nowhere = pulsarish.Client("pulsarish://127.0.0.1:1", operation_timeout_seconds=1)
    with pytest.raises(pulsarish.ConnectError, match=r"no process listens at 127\.0\.0\.1:1"):
        nowhere.create_producer("t")
    nowhere.close()
    with pytest.raises(pulsarish.AlreadyClosed, match="make another"):
        nowhere.create_producer("t")


def test_admin_errors_are_those_of_the_tree(server: Server, client: pulsarish.Client) -> None:
    admin = Admin(f"http://127.0.0.1:1,{server.admin_url.removeprefix('http://')}")
    with pytest.raises(pulsarish.TopicNotFound):
        admin.topics.stats("absent")
    consumer = client.subscribe("t", "used")
    with pytest.raises(pulsarish.SubscriptionNotFound, match="used"):
        admin.subscriptions.skip_messages("t", "absent", 1)
    with pytest.raises(pulsarish.SubscriptionBusy, match="force"):
        admin.subscriptions.delete("t", "used")
    consumer.close()
    with pytest.raises(pulsarish.ConnectError, match="--admin-url"):
        Admin("http://127.0.0.1:1").topics.list()
    with pytest.raises(pulsarish.ConnectError, match="does not speak HTTP"):
        Admin(server.url.replace("pulsarish", "http")).topics.list()


# HTTP

_T = "/admin/v2/persistent/public/default/t"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "/nowhere", None, 404, "/nowhere"),
        ("GET", "/admin/v2/persistent", None, 404, "nothing"),
        ("POST", "/admin/v2/brokers", None, 405, "takes GET"),
        ("BREW", "/health", None, 405, "takes GET"),
        ("HEAD", "/health", None, 200, ""),
        ("PUT", "/admin/v2/tenants/a%2Fb", None, 412, "may hold only"),
        ("PUT", "/admin/v2/tenants/acme", "{broken", 400, "not JSON"),
        ("PUT", "/admin/v2/tenants/acme", "[1]", 400, "object"),
        ("PUT", "/admin/v2/tenants/acme", '{"adminRoles": 5}', 400, "adminRoles"),
        ("PUT", "/admin/v2/namespaces/public/x", '{"bundles": {"numBundles": -1}}', 412, "1024"),
        ("PUT", "/admin/v2/persistent/public/default/p/partitions", "-3", 412, "10000"),
        ("PUT", "/admin/v2/persistent/public/default/p/partitions", '"x"', 400, "Expected int"),
        ("PUT", "/admin/v2/persistent/public/default/%FF", None, 412, "UTF-8"),
        ("PUT", "/admin/v2/persistent/public/default/a%00b", None, 412, "control character"),
        ("PUT", _T, None, 409, "exists already"),
        ("GET", "/admin/v2/persistent/public/default/absent/stats", None, 404, "does not exist"),
        ("GET", f"{_T}/subscription/absent/position/1", None, 404, "no subscription 'absent'"),
        ("POST", f"{_T}/subscription/absent/skip/-1", None, 412, "1 or more"),
        ("POST", f"{_T}/subscription/absent/resetcursor/-1", None, 412, "0 or more"),
        ("GET", "/admin/v2/ledgers/abc", None, 400, "whole number"),
        ("GET", "/admin/v2/ledgers?limitt=1", None, 400, "'limitt'; it takes after, limit"),
        ("PUT", "/admin/v2/tenants/acme", '{"adminRolls": []}', 400, "adminRolls"),
        ("PUT", f"{_T}/unload", "[1]", 400, "takes no body"),
        ("GET", f"{_T}/stats?excludeConsumers=maybe", None, 400, "true or false"),
        ("GET", "/admin/v2/ledgers?limit=-1", None, 412, "1 to 10000"),
    ],
)
def test_http(
    server: Server, method: str, path: str, body: str | None, status: int, text: str
) -> None:
    found, reason = server.http(method, path, body)
    assert (found, text in reason) == (status, True), reason


# The command line


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["nonsense"], 2, "No such command"),
        (["produce", "t"], 2, "-m TEXT"),
        (["produce", "a/b", "-m", "x"], 1, "InvalidTopicName"),
        (["produce", "absent", "-m", "x"], 1, "TopicNotFound"),
        (["produce", "t", "-m", "x", "--key-from", "k"], 1, "--key-from k"),
        (["produce", "t", "-m", "x", "--priority", "11"], 2, "11 is not in the range 0<=x<=9"),
        (["produce", "t", "-m", "x", "--url", "junk"], 1, "pulsarish://host:6660"),
        (["read", "t", "--from", "junk"], 2, "LEDGER:ENTRY"),
        (["topics", "stats", "absent"], 1, "TopicNotFound"),
        (["topics", "list", "--admin-url", "http://127.0.0.1:1"], 1, "ConnectError"),
        (["subscriptions", "get", "t", "absent"], 1, "SubscriptionNotFound"),
        (["subscriptions", "seek", "t", "s", "--time-ms", "-1"], 2, "--time-ms"),
        (["namespaces", "create", "absent/x"], 1, "tenants create absent"),
        (["cluster", "status", "--dir", "/nonexistent"], 1, "cluster up"),
        (["broker", "--set", "nonsense=1"], 1, "--print-config"),
        (["broker", "--set", "managed_ledger.ack_quorum=5"], 1, "write_quorum >= ack_quorum"),
        (["broker", "--set", "listen_address=junk"], 1, "host:port"),
    ],
)
def test_commands(server: Server, arguments: list[str], status: int, text: str) -> None:
    found, out, talk = server.run(*arguments)
    assert (found, out) == (status, ""), talk
    assert text in talk
    assert "Traceback" not in talk


def test_second_server_on_the_same_data_or_port(server: Server, tmp_path: Path) -> None:
    status, _, talk = server.run("standalone", "--data", str(server.directory / "data"))
    assert (status, f"in use by process {server.process.pid}" in talk) == (1, True), talk
    port = server.admin_url.rpartition(":")[2]
    settings = [
        "--bookie-set",
        "listen_address=127.0.0.1:0",
        "--broker-set",
        "listen_address=127.0.0.1:0",
    ]
    settings += ["--broker-set", "pulsar_address=127.0.0.1:0"]
    status, _, talk = server.run(
        "standalone",
        "--data",
        str(tmp_path),
        *settings,
        "--broker-set",
        f"http_address=127.0.0.1:{port}",
    )
    assert (status, "in use by another process" in talk, "Traceback" in talk) == (1, True, False), (
        talk
    )


def test_an_option_of_the_environment_that_is_none(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSARISH_BROKER__ACK_QUORUM", "2")
    status, _, talk = server.run("broker")
    assert (status, "did you mean managed_ledger.ack_quorum" in talk) == (1, True), talk


def test_clients_that_send_without_end_take_nothing_and_break_off(server: Server) -> None:
    """What is still to be said to them when they go is said to nobody: the server goes on,
    quietly.
    """
    hello = command_frame(
        pb.Command(type=2, connect=pb.Connect(client_version="x", protocol_version=19))
    )
    lookups = [
        command_frame(pb.Command(type=23, lookup=pb.LookupTopic(topic=f"never-{n}", request_id=n)))
        for n in range(900)
    ]
    flood = b"".join(lookups) + command_frame(pb.Command(type=18, ping=pb.Ping())) * 20_000
    for _ in range(4):
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.connect(("127.0.0.1", server.pulsar_port))
            client.sendall(hello)
            client.settimeout(0.5)
            with suppress(OSError):  # until the server takes no more
                while True:
                    client.sendall(flood)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with socket.create_connection(("127.0.0.1", server.pulsar_port), timeout=20) as client:
        client.sendall(hello)
        assert client.recv(100)
