"""What brokers record of who came, and of what was done."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path

import bcrypt
import pytest

from pulsarish.model.errors import ConfigError
from pulsarish.runtime.seams import HttpRequest, StreamBroken, World
from pulsarish.security.authentication import Authenticator, NoAuthentication
from pulsarish.security.chain import make_authenticator
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import Credentials, Secret
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as own
from pulsarish.wire._pb import pulsar_pb2 as pb
from tests.support.audit_trails import (
    SETTINGS,
    Records,
    checked,
    records_of,
    run,
    trail_of,
)
from tests.support.binary_client import BinaryClient
from tests.support.brokers import BrokerCluster, find
from tests.support.identities import NamedRoles, shown
from tests.support.tokens import NOW_MS, SECRET, data_url, make_token

TOPIC = "persistent://public/default/t"
CANARY = "canary-credential"


class Locked:
    """A broker with authentication, authorization and audit, and its clients."""

    def __init__(self, world: World, cluster: BrokerCluster) -> None:
        self.world = world
        self.cluster = cluster

    def show(self, credentials: Credentials) -> None:
        assert isinstance(self.world.connections, SimConnections)
        self.world.connections.credentials = lambda: credentials

    async def binary(self, method: str, data: bytes) -> BinaryClient:
        client = await BinaryClient.connect(self.world, "broker0:6650", shake_hands=False)
        said = pb.Connect(client_version="x", auth_method_name=method, auth_data=data)
        client.say(pb.Command(type=2, connect=said))
        return client

    async def ask(
        self, method: str, path: str, authorization: str = "", body: bytes = b"", **query: str
    ) -> int:
        assert isinstance(self.world.connections, SimConnections)
        headers = {"authorization": authorization} if authorization else {}
        request = HttpRequest(method, f"/{path}", query, headers, body, tuple(path.split("/")))
        return (await self.world.connections.http("broker0:8080", request)).status

    async def stream(self, method: str) -> str:
        stream = await self.world.connections.open("broker0:6660", method)
        try:
            await stream.receive()
        except StreamBroken as error:
            return str(error)
        return ""


def run_locked(
    scenario: Callable[[Locked], Awaitable[None]],
    authenticator: Authenticator | None = None,
    **settings: object,
) -> Records:
    """Run a scenario with a broker, stop the broker, and return its records."""
    sim = Simulation(1)
    checks: dict[str, object] = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "super_user_roles": ("root",),
        **SETTINGS,
        **settings,
    }
    cluster = BrokerCluster(sim, authenticator=authenticator or NamedRoles(), **checks)

    async def main() -> None:
        await cluster.start()
        await sim.node("client").run(lambda world: scenario(Locked(world, cluster)))
        await cluster.stop_broker("broker0")

    sim.run(main, 600.0)
    node = cluster.nodes["broker0"]
    check = checked(node)
    assert (check.faults, check.notes) == ([], [])
    return records_of(node)


def brief(records: Records, kind: str) -> list[tuple[str, str, str, str]]:
    return [
        (
            each.get("face", ""),
            each["actor"]["user"].get("name", ""),
            each.get("api", {}).get("operation", ""),
            each["disposition"],
        )
        for each in records
        if each["class_name"] == kind
    ]


def test_every_face_records_who_came_from_where_and_what_came_of_it() -> None:
    async def scenario(locked: Locked) -> None:
        await (await locked.binary("token", b"ann")).next(3)
        await (await locked.binary("token", b"wrong")).next(14)
        locked.show(shown("wrong"))
        assert "no token" in await locked.stream("broker.consume")
        assert await locked.ask("GET", "admin/v2/tenants", "Bearer wrong") == 401
        assert await locked.ask("GET", "admin/v2/tenants", "Basic !") == 401
        locked.show(shown("ann"))
        lookups = own.LookupsRequest(lookups=[own.LookupRequest(topic=TOPIC)])
        await locked.world.connections.call(
            "broker0:6660", "broker.lookup", lookups.SerializeToString(), timeout_seconds=5.0
        )

    records = run_locked(scenario)
    assert brief(records, "Authentication") == [
        ("binary", "ann", "", "Allowed"),
        ("binary", "", "", "Denied"),
        ("grpc", "", "", "Denied"),
        ("http", "", "", "Denied"),
        ("http", "", "", "Denied"),
        ("grpc", "ann", "", "Allowed"),
    ]
    assert brief(records, "Authorize Session") == [("grpc", "ann", "broker.lookup", "Denied")]
    (denial,) = [each for each in records if each["class_name"] == "Authorize Session"]
    assert denial["resource"] == {"name": f"topic {TOPIC}"}
    assert denial["auth_protocol"] == "token"
    assert denial["status_detail"].startswith("produce is not granted")
    for each in records:
        if each["class_name"] != "Audit":
            assert each["src_endpoint"]["ip"] == "client"
            assert each["src_endpoint"]["port"] > 0
    assert records[2]["status_detail"] == "no token that is known here"
    assert [each["activity_name"] for each in (records[0], records[-1])] == ["Start", "Stop"]


def test_grants_and_changes_are_recorded_and_reads_are_not() -> None:
    grants = "admin/v2/namespaces/public/default/permissions"

    async def scenario(locked: Locked) -> None:
        root = "Bearer root"
        assert await locked.ask("GET", grants, root) == 200
        assert await locked.ask("POST", f"{grants}/ann", root, b'["produce","consume"]') == 204
        assert await locked.ask("DELETE", f"{grants}/ann", root) == 204
        several = b'[{"topic":"public/default/t","role":"ann","actions":["consume"]}]'
        path = "admin/v2/namespaces/grantPermissionsOnTopics"
        assert await locked.ask("POST", path, root, several) == 204
        assert await locked.ask("PUT", "admin/v2/tenants/public", root, b"{}") == 409
        assert await locked.ask("PUT", "admin/v2/tenants/mine", "Bearer ann", b"{}") == 403

    records = run_locked(scenario)
    changes = [each for each in records if each["class_name"] == "API Activity"]
    assert [(each["status_code"], each.get("message", "")) for each in changes] == [
        ("204", "grant produce, consume to role 'ann'"),
        ("204", "revoke every action from role 'ann'"),
        ("204", "grant consume to role 'ann' on public/default/t"),
        ("409", ""),
    ]
    assert changes[0]["resource"] == {"name": "namespace public/default"}
    assert changes[0]["http_request"] == {"url": {"path": f"/{grants}/ann"}}
    assert changes[0]["actor"] == {"user": {"name": "root"}}
    assert changes[3]["disposition"] == "Failed"
    assert changes[3]["status_detail"]
    assert brief(records, "Authorize Session") == [
        ("http", "ann", "PUT /admin/v2/tenants/{tenant}", "Denied")
    ]


def test_changes_are_recorded_without_authentication_too() -> None:
    async def scenario(locked: Locked) -> None:
        assert await locked.ask("PUT", "admin/v2/namespaces/public/new") == 204

    off = {"authentication_enabled": False, "authorization_enabled": False}
    records = run_locked(scenario, NoAuthentication(), **off)
    (change,) = [each for each in records if each["class_name"] == "API Activity"]
    assert change["actor"] == {"user": {}}
    assert change["src_endpoint"]["ip"] == "client"


def test_changes_to_subscriptions_by_commands_are_recorded_once_and_messages_are_not() -> None:
    async def scenario(locked: Locked) -> None:
        locked.show(shown("root"))
        client = await locked.binary("token", b"root")
        await client.next(3)
        await find(locked.world, ["broker0"], TOPIC)
        assert (await client.open_producer(1, TOPIC)).command.type == 17
        for number in (1, 2):
            assert (await client.subscribe(number, TOPIC, kind=1)).command.type == 13
        assert (
            await client.subscribe(3, TOPIC, subscription="r", durable=False)
        ).command.type == 13
        # Another consumer uses the subscription, so it stays.
        leave = pb.Unsubscribe(consumer_id=2, request_id=50)
        client.say(pb.Command(type=12, unsubscribe=leave))
        assert (await client.next(13, 14)).command.type == 14
        client.say(
            pb.Command(type=16, close_consumer=pb.CloseConsumer(consumer_id=2, request_id=51))
        )
        await client.next(13)
        seek = pb.Seek(consumer_id=1, request_id=52, message_publish_time=1)
        client.say(pb.Command(type=28, seek=seek))
        await client.next(13)
        assert (await client.subscribe(1, TOPIC, kind=1)).command.type == 13
        leave = pb.Unsubscribe(consumer_id=1, request_id=53)
        client.say(pb.Command(type=12, unsubscribe=leave))
        assert (await client.next(13, 14)).command.type == 13

    records = run_locked(scenario)
    assert brief(records, "API Activity") == [
        ("binary", "root", "CreateTopic", "Allowed"),
        ("binary", "root", "Subscribe", "Allowed"),
        ("binary", "root", "Unsubscribe", "Failed"),
        ("binary", "root", "Seek", "Allowed"),
        ("binary", "root", "Unsubscribe", "Allowed"),
    ]
    changes = [each for each in records if each["class_name"] == "API Activity"][1:]
    assert {each["resource"]["name"] for each in changes} == {f"topic {TOPIC}, subscription 's'"}
    assert changes[1]["status_detail"]


def changes_of(records: Records) -> list[tuple[str, str, str]]:
    return [
        (each["api"]["operation"], each["resource"]["name"], each.get("message", ""))
        for each in records
        if each["class_name"] == "API Activity"
    ]


def test_topics_and_schemas_that_are_created_by_use_are_recorded_once() -> None:
    not_kept = "non-persistent://public/default/n"
    schema = pb.Schema(name="s", type=1, schema_data=b"")
    create = own.SchemaRequest(topic=TOPIC, create=own.Schema(type=9))

    async def scenario(locked: Locked) -> None:
        locked.show(shown("root"))
        client = await locked.binary("token", b"root")
        await client.next(3)
        for topic in (TOPIC, not_kept):
            await find(locked.world, ["broker0"], topic)
        for number in (1, 2):
            opened = await client.open_producer(number, TOPIC, f"p{number}", schema=schema)
            assert opened.command.type == 17
            opened = await client.open_producer(number + 5, not_kept, f"p{number}")
            assert opened.command.type == 17
        # It is refused, so nothing is created.
        data = await locked.world.connections.call(
            "broker0:6660", "broker.schema", create.SerializeToString(), timeout_seconds=5.0
        )
        assert own.SchemaResponse.FromString(data).code
        missing = await client.subscribe(
            9, f"{TOPIC}-missing", force_topic_creation=False, permits=0
        )
        assert missing.command.type == 14

    records = run_locked(scenario)
    assert changes_of(records) == [
        ("CreateTopic", f"topic {TOPIC}", ""),
        ("CreateSchema", f"topic {TOPIC}", "version 0, type STRING"),
        ("CreateTopic", f"topic {not_kept}", ""),
    ]
    assert {each[1] for each in brief(records, "API Activity")} == {"root"}


def test_partitioned_topics_that_lookups_create_are_recorded() -> None:
    base = "persistent://public/default"

    async def scenario(locked: Locked) -> None:
        locked.show(shown("root"))
        client = await locked.binary("token", b"root")
        await client.next(3)
        for _ in range(2):
            asked = pb.PartitionedMetadata(topic=f"{base}/a", request_id=60)
            client.say(pb.Command(type=21, partitioned_metadata=asked))
            assert (await client.next(22)).command.partitioned_metadata_response.partitions == 3
            lookups = own.LookupsRequest(
                lookups=[own.LookupRequest(topic=f"{base}/b", wanted=own.PARTITIONS)]
            )
            await locked.world.connections.call(
                "broker0:6660", "broker.lookup", lookups.SerializeToString(), timeout_seconds=5.0
            )
            path = "admin/v2/persistent/public/default/c/partitions"
            for creates in ("false", "true"):
                await locked.ask("GET", path, "Bearer root", checkAllowAutoCreation=creates)
        await find(locked.world, ["broker0"], f"{base}/a-partition-0")
        assert (await client.open_producer(1, f"{base}/a-partition-0")).command.type == 17

    records = run_locked(
        scenario,
        allow_auto_topic_creation_type="partitioned",
        default_num_partitions=3,
    )
    assert changes_of(records) == [
        ("CreatePartitionedTopic", f"topic {base}/a", "3 partitions"),
        ("CreatePartitionedTopic", f"topic {base}/b", "3 partitions"),
        (
            "GET /admin/v2/persistent/{tenant}/{namespace}/{topic}/partitions",
            f"topic {base}/c",
            "create it on first use with 3 partitions",
        ),
        ("CreateTopic", f"topic {base}/a-partition-0", ""),
    ]


def test_no_role_publishes_audit_lines_by_request_and_no_grant_gives_the_topic() -> None:
    topic = "persistent://audit/trail/records"
    path = "admin/v2/persistent/audit/trail/records/auditLines"
    body = b'{"broker":"broker0","producer":"p","epoch":1,"lines":[[1,"forged"]]}'

    async def scenario(locked: Locked) -> None:
        root = "Bearer root"
        assert await locked.ask("PUT", "admin/v2/tenants/audit", root, b"{}") == 204
        assert await locked.ask("PUT", "admin/v2/namespaces/audit/trail", root) == 204
        await locked.world.clock.sleep(10.0)
        for role in ("root", "ann", "wrong"):
            status = await locked.ask("POST", path, f"Bearer {role}", body)
            assert status == (401 if role == "wrong" else 403)
        grants = "admin/v2/namespaces/public/default/permissions/ann"
        assert await locked.ask("POST", grants, root, b'["produce","consume"]') == 204
        ann = await locked.binary("token", b"ann")
        await ann.next(3)
        assert (await ann.subscribe(1, topic)).command.type == 14
        assert (await ann.open_producer(1, topic)).command.type == 14
        client = await locked.binary("token", b"root")
        await client.next(3)
        assert (await client.subscribe(1, topic)).command.type == 13
        first = await client.next(9)
        assert b'"activity_name":"Start"' in first.payload
        assert b"forged" not in first.payload

    records = run_locked(scenario, audit_topic=topic)
    created = [each for each in records if each.get("api", {}).get("operation") == "CreateTopic"]
    assert [each["actor"]["user"]["name"] for each in created] == ["broker"]


def test_callers_that_are_no_brokers_are_recorded_once_for_an_address_and_window() -> None:
    path = ["admin", "v2", "tenants"]
    admin = own.AdminRequest(method="GET", segments=path, admin_key="x").SerializeToString()
    ping = own.PingRequest(admin_key="x").SerializeToString()

    async def scenario(locked: Locked) -> None:
        async def call(method: str, data: bytes) -> None:
            await locked.world.connections.call("broker0:6660", method, data, timeout_seconds=5.0)

        for _ in range(3):
            await call("broker.admin", admin)
        await locked.world.clock.sleep(61.0)
        await call("broker.ping", ping)
        await call("broker.ping", ping)

    records = run_locked(scenario)
    assert brief(records, "Authorize Session") == [
        ("grpc", "", "broker.admin", "Denied"),
        ("grpc", "", "broker.ping", "Denied"),
    ]
    first, second = [each for each in records if each["class_name"] == "Authorize Session"]
    assert first["src_endpoint"]["ip"] == "client"
    assert first["resource"] == {"name": "the cluster"}
    assert second["status_detail"].endswith("; 2 more since the last record of this")


def test_denials_that_are_only_reported_are_recorded_and_callers_still_authenticated() -> None:
    async def scenario(locked: Locked) -> None:
        assert await locked.ask("PUT", "admin/v2/namespaces/public/new", "Bearer ann") == 204
        assert await locked.ask("GET", "admin/v2/tenants", "Bearer wrong") == 401
        locked.show(shown("ann"))
        await find(locked.world, ["broker0"], TOPIC)
        client = await locked.binary("token", b"ann")
        await client.next(3)
        answer = await client.open_producer(1, TOPIC)
        assert answer.command.type == 17
        (warning,) = locked.cluster.brokers["broker0"].warnings()
        assert "authorization is not enforced" in warning

    records = run_locked(scenario, authorization_report_only=True)
    observed = [each for each in records if each["class_name"] == "Authorize Session"]
    assert [(each["disposition"], each["api"]["operation"]) for each in observed[:2]] == [
        ("Observed", "PUT /admin/v2/namespaces/{tenant}/{namespace}"),
        ("Observed", "broker.lookup"),
    ]
    assert observed[-1]["api"]["operation"] == "OpenProducer"
    assert brief(records, "API Activity")[0][3] == "Allowed"


def test_no_record_has_a_credential(tmp_path: Path) -> None:
    """Whatever is shown to a broker, and wherever: it does not come into its files."""
    users = tmp_path / "users"
    users.write_bytes(b"ann:" + bcrypt.hashpw(CANARY.encode(), bcrypt.gensalt(4)) + b"\n")
    config = AuthenticationConfig(
        authentication_enabled=True,
        authentication_providers=("token", "basic"),
        token_secret_key=data_url(SECRET),
        basic_auth_conf=str(users),
    )

    async def offload(job: Callable[[], bool]) -> bool:
        return job()

    async def fetch(_: str) -> bytes:
        raise AssertionError

    authenticator = make_authenticator(
        config,
        wall_ms=lambda: NOW_MS,
        offload=offload,
        fetch=fetch,
        salt=bytes(16),
        on_problem=lambda _: None,
    )
    good = make_token({"sub": "root", "jti": "id-of-root"})
    bad = make_token({"sub": f"{CANARY}\n"}, key=b"another key of thirty-two bytes.")

    async def scenario(locked: Locked) -> None:
        await (await locked.binary("token", good)).next(3)
        await (await locked.binary("basic", f"ann:{CANARY}".encode())).next(3)
        for method, data in (
            ("token", bad),
            ("token", CANARY.encode()),
            ("basic", f"ben:{CANARY}".encode()),
            ("basic", CANARY.encode()),
            ("", CANARY.encode()),
            ("tls", CANARY.encode()),
        ):
            await (await locked.binary(method, data)).next(14)
            locked.show(Credentials(method, Secret(data)))
            await locked.stream("broker.publish")
        basic = b64encode(f"ann:{CANARY}".encode()).decode()
        path = "admin/v2/namespaces/public/new"
        for header in (f"Basic {basic}", f"Basic {CANARY}", f"{CANARY} x", f"Bearer {CANARY}"):
            await locked.ask("PUT", path, header, b'{"x":"%b"}' % CANARY.encode())
        root = f"Bearer {good.decode()}"
        assert await locked.ask("PUT", path, root, token=CANARY) == 400
        assert await locked.ask("PUT", path, root, CANARY.encode()) == 400
        assert await locked.ask("PUT", path, root) == 204

    records = run_locked(scenario, authenticator)
    assert len(brief(records, "Authentication")) > 15
    assert any(
        each["actor"]["user"].get("credential_uid") == "id-of-root" for each in records[1:-1]
    )
    text = json.dumps(records)
    secrets = (CANARY, b64encode(CANARY.encode()).decode()[:20], basic_of(CANARY), SECRET.hex())
    for secret in (*secrets, good.decode()[-40:], bad.decode()[-40:]):
        assert secret not in text


def basic_of(password: str) -> str:
    return b64encode(f"ann:{password}".encode()).decode()[:20]


def test_a_second_broker_cannot_have_the_same_directory() -> None:
    async def scenario(sim: Simulation, node: Node) -> None:
        async def twice(world: World) -> None:
            trail = trail_of(world)
            await trail.start()
            with pytest.raises(ConfigError, match="audit_log_directory"):
                await trail_of(world).start()
            await trail.stop()

        await node.run(twice)

    run(scenario)
