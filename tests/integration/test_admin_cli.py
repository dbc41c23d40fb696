"""Every group of administrative commands against a cluster of real processes: what is set is read
again, what is moved has moved.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import Result

import pulsarish
from pulsarish.admin import Admin
from pulsarish.admin.policies import NAMESPACE, TOPIC, Field, Level, Policy, policies_of
from pulsarish.cli.admin.policies import format_value
from pulsarish.local_cluster.processes import Cluster
from tests.support.clusters import running_cluster
from tests.support.commands import run_command


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), bookies=3, brokers=2) as found:
        yield found


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Admin:
    return Admin(cluster.admin_url())


Run = Callable[..., Result]


@pytest.fixture(scope="module")
def run(cluster: Cluster) -> Run:
    """A command that must be done."""

    def run(*arguments: str) -> Result:
        done = run_command({"PULSARISH_ADMIN_URL": cluster.admin_url()}, *arguments)
        assert done.exit_code == 0, f"{arguments}: {done.stderr}"
        return done

    return run


Read = Callable[..., Any]


@pytest.fixture(scope="module")
def read(run: Run) -> Read:
    """The JSON that a command prints."""
    return lambda *arguments: json.loads(run(*arguments, "-o", "json").stdout)


@pytest.fixture(scope="module")
def refused(cluster: Cluster) -> Callable[..., str]:
    """What is said of a command that is not done."""

    def refused(*arguments: str) -> str:
        done = run_command({"PULSARISH_ADMIN_URL": cluster.admin_url()}, *arguments)
        assert (done.exit_code, done.stdout) == (1, ""), f"{arguments}: {done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stderr

    return refused


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[pulsarish.Client]:
    found = pulsarish.Client(cluster.service_urls()["pulsarish"], operation_timeout_seconds=30)
    yield found
    found.close()


def publish(client: pulsarish.Client, topic: str, count: int) -> list[pulsarish.MessageId]:
    producer = client.create_producer(topic, batching_enabled=False)
    found = [
        producer.send(
            b"message %d" % number, partition_key=f"k{number}", properties={"n": str(number)}
        )
        for number in range(count)
    ]
    producer.close()
    return found


def test_tenants(run: Run, read: Read, refused: Callable[..., str]) -> None:
    run("tenants", "create", "acme", "--admin-role", "alice", "--admin-role", "bob")
    assert read("tenants", "get", "acme") == {"adminRoles": ["alice", "bob"], "allowedClusters": []}
    run("tenants", "update", "acme", "--admin-role", "carol")
    assert read("tenants", "get", "acme") == {"adminRoles": ["carol"], "allowedClusters": []}
    assert {"tenant": "acme"} in read("tenants", "list")
    assert read("tenants", "list", "--after", "acme", "-n", "1") == [{"tenant": "public"}]
    assert "exists already" in refused("tenants", "create", "acme")
    run("namespaces", "create", "acme/n")
    run("topics", "create", "acme/n/t")
    assert "--force" in refused("tenants", "delete", "acme")
    run("tenants", "delete", "acme", "--force")
    assert "did you mean" not in refused("tenants", "get", "acme")


def test_namespaces(run: Run, read: Read, refused: Callable[..., str]) -> None:
    run("namespaces", "create", "public/spaces", "--bundles", "2")
    assert {"namespace": "public/spaces"} in read("namespaces", "list", "public")
    assert read("namespaces", "bundles", "public/spaces") == [
        {"bundle": "0x00000000_0x80000000"},
        {"bundle": "0x80000000_0xffffffff"},
    ]
    assert read("namespaces", "get-policies", "public/spaces")["bundles"]["numBundles"] == 2
    run("namespaces", "update", "public/spaces", "--property", "owner=me", "--property", "x=1")
    run("namespaces", "update", "public/spaces", "--remove-property", "x")
    assert read("namespaces", "get-policies", "public/spaces")["properties"] == {"owner": "me"}
    run("topics", "create", "public/spaces/t")
    run("namespaces", "unload", "public/spaces")
    run("namespaces", "unload", "public/spaces", "--bundle", "0x00000000_0x80000000")
    assert "--force" in refused("namespaces", "delete", "public/spaces")
    run("namespaces", "delete", "public/spaces", "--force")
    assert "public/spaces" in refused("namespaces", "get-policies", "public/spaces")


def test_backlogs_of_a_namespace(run: Run, read: Read, client: pulsarish.Client) -> None:
    run("namespaces", "create", "public/backlogs")
    for topic in ("one", "two"):
        run("topics", "create", f"public/backlogs/{topic}")
        for subscription in ("a", "b"):
            run("subscriptions", "create", f"public/backlogs/{topic}", subscription)
        publish(client, f"public/backlogs/{topic}", 3)

    def backlogs() -> list[int]:
        return [
            read("subscriptions", "get", f"public/backlogs/{topic}", subscription)["msgBacklog"]
            for topic in ("one", "two")
            for subscription in ("a", "b")
        ]

    run(
        "subscriptions", "update", "public/backlogs/one", "a", "-p", "owner=billing", "-p", "tier=2"
    )
    run(
        "subscriptions",
        "update",
        "public/backlogs/one",
        "a",
        "-p",
        "tier=3",
        "--remove-property",
        "owner",
    )
    assert read("subscriptions", "get", "public/backlogs/one", "a")["subscriptionProperties"] == {
        "tier": "3"
    }
    assert read("subscriptions", "list", "public/backlogs/one", "-n", "1") == [
        {"subscription": "a"}
    ]
    assert read("subscriptions", "list", "public/backlogs/one", "--after", "a") == [
        {"subscription": "b"}
    ]
    assert backlogs() == [3, 3, 3, 3]
    run("namespaces", "clear-backlog", "public/backlogs", "-s", "a")
    assert backlogs() == [0, 3, 0, 3]
    run("namespaces", "clear-backlog", "public/backlogs")
    assert backlogs() == [0, 0, 0, 0]
    run("namespaces", "unsubscribe", "public/backlogs", "a")
    assert read("subscriptions", "list", "public/backlogs/one") == [{"subscription": "b"}]


def example(field: Field) -> list[str]:
    return (field.example or "5").split()


# What Apache Pulsar answers where nothing is set, if it is not nothing.
UNSET = {
    "schema-compatibility-strategy": "UNDEFINED",
    "is-allow-auto-update-schema": True,
    "schema-validation-enforced": False,
    "encryption-required": False,
    "subscription-auth-mode": "None",
}


@pytest.mark.parametrize(
    ("level", "policy"),
    [(level, policy) for level in (NAMESPACE, TOPIC) for policy in policies_of(level)],
    ids=lambda each: getattr(each, "name", each),
)
def test_a_policy_is_set_shown_and_removed(
    level: Level, policy: Policy, run: Run, read: Read, admin: Admin
) -> None:
    resource = "public/policies" if level == NAMESPACE else "public/policies/t"
    if "public/policies" not in admin.namespaces.list("public"):
        admin.namespaces.create("public/policies")
        admin.topics.create("public/policies/t")
        admin.resource_groups.set("gold")
    group = f"{level}s"
    unset = read(group, f"get-{policy.name}", resource)
    assert unset in (None, {}, []) if policy.name not in UNSET else unset == UNSET[policy.name]
    words = [
        word
        for field in policy.fields
        if field.example
        for word in ([f"--{field.option}", *example(field)] if field.key else example(field))
    ]
    run(group, f"set-{policy.name}", resource, *words)
    found = read(group, f"get-{policy.name}", resource)
    shown = run(group, f"get-{policy.name}", resource).stdout
    for field in policy.fields:
        value = next(iter(found.values())) if policy.kind else found
        part = value.get(field.key) if field.key else value
        if field.example and field.key != policy.kind:
            # 10GB is typed, as for Apache Pulsar, and 10GiB is shown.
            assert format_value(part, field).lower().replace("ib", "b") == field.example.lower()
            assert format_value(part, field) in shown
    if level == TOPIC:
        assert read(group, f"get-{policy.name}", resource, "--applied") is not None
    run(group, f"remove-{policy.name}", resource)
    assert read(group, f"get-{policy.name}", resource) == unset


def test_policies_that_contradict_each_other_are_refused_with_both_named(
    run: Run, refused: Callable[..., str]
) -> None:
    run("namespaces", "create", "public/conflicts")
    run("namespaces", "set-retention", "public/conflicts", "--time", "1d", "--size", "1GB")
    said = refused(
        "namespaces",
        "set-backlog-quota",
        "public/conflicts",
        "--limit",
        "2GB",
        "--policy",
        "producer_exception",
    )
    assert "retention" in said
    assert "limitSize" in said
    assert "bookkeeperWriteQuorum" in refused(
        "namespaces",
        "set-persistence",
        "public/conflicts",
        "--ensemble",
        "2",
        "--write-quorum",
        "3",
        "--ack-quorum",
        "2",
    )


def test_topics(
    run: Run, read: Read, refused: Callable[..., str], client: pulsarish.Client
) -> None:
    run("namespaces", "create", "public/topics")
    run("topics", "create", "public/topics/plain", "--property", "owner=me")
    run("topics", "create", "public/topics/parts", "--partitions", "3")
    full = "persistent://public/topics/"
    names = [f"{full}parts-partition-{number}" for number in range(3)] + [f"{full}plain"]
    assert [row["topic"] for row in read("topics", "list", "public/topics")] == names
    assert [
        row["topic"]
        for row in read("topics", "list", "public/topics", "--after", names[0], "-n", "2")
    ] == names[1:3]
    assert read("topics", "list", "public/topics", "--partitioned") == [{"topic": f"{full}parts"}]
    bundles = [row["bundle"] for row in read("namespaces", "bundles", "public/topics")]
    assert (
        sorted(
            row["topic"]
            for bundle in bundles
            for row in read("topics", "list", "public/topics", "--bundle", bundle)
        )
        == names
    )
    assert read("topics", "get", "public/topics/plain") == {
        "topic": f"{full}plain",
        "partitions": 0,
        "properties": {"owner": "me"},
    }
    run(
        "topics",
        "update",
        "public/topics/plain",
        "--property",
        "tier=1",
        "--remove-property",
        "owner",
    )
    assert read("topics", "get", "public/topics/plain")["properties"] == {"tier": "1"}
    assert read("topics", "partitions", "get", "public/topics/parts") == {
        "topic": "public/topics/parts",
        "partitions": 3,
    }
    run("topics", "partitions", "grow", "public/topics/parts", "5")
    run("topics", "partitions", "create", "public/topics/parts")
    assert read("topics", "get", "public/topics/parts")["partitions"] == 5
    found = read("topics", "lookup", "public/topics/plain")
    assert set(found) == {"topic", "bundle", "node", "service_urls"}
    assert found["node"] in ("broker-1", "broker-2")
    publish(client, "public/topics/parts", 10)
    assert read("topics", "stats", "public/topics/parts")["msgInCounter"] == 10
    each = read("topics", "stats", "public/topics/parts", "--per-partition")["partitions"]
    assert sum(stats["msgInCounter"] for stats in each.values()) == 10
    assert set(read("topics", "internal-stats", "public/topics/parts")["partitions"]) == set(each)
    run("topics", "set-ttl", "public/topics/plain", "3d")
    run("topics", "remove-policies", "public/topics/plain", "--yes")
    assert not read("topics", "get-ttl", "public/topics/plain")
    run("topics", "unload", "public/topics/plain")
    assert len(read("topics", "terminate", "public/topics/parts")) == 5
    assert "did you mean" in refused("topics", "stats", "public/topics/plane")
    run("topics", "delete", "public/topics/parts")
    run("topics", "delete", "public/topics/plain")
    assert read("topics", "list", "public/topics") == []


def test_a_topics_log(
    run: Run, read: Read, refused: Callable[..., str], client: pulsarish.Client
) -> None:
    ids = publish(client, "logged", 5)
    last = {"ledgerId": ids[-1].ledger_id(), "entryId": ids[-1].entry_id(), "partitionIndex": -1}
    assert read("topics", "last-message-id", "logged") == last
    assert (
        read("topics", "message-id", "logged", "--time", "2001-01-01")["entryId"]
        == ids[0].entry_id()
    )
    assert read("topics", "message-id", "logged", "--time", "1h")["entryId"] == ids[0].entry_id()
    (message,) = read("topics", "message", "logged", f"{ids[2].ledger_id()}:{ids[2].entry_id()}")
    assert (message["key"], message["value"], message["properties"]) == (
        "k2",
        "message 2",
        {"n": "2"},
    )
    assert (
        run("topics", "examine", "logged", "--from", "earliest", "-n", "2").stdout == "message 1\n"
    )
    assert run("topics", "examine", "logged").stdout == "message 4\n"
    assert "9999" in refused("topics", "message", "logged", "9999:0")
    assert read("topics", "internal-stats", "logged")["numberOfEntries"] == 5
    assert read("topics", "internal-info", "logged")["ledgers"]
    run("topics", "trim", "logged")
    run("topics", "truncate", "logged")
    assert read("topics", "internal-stats", "logged")["numberOfEntries"] == 0
    assert read("topics", "terminate", "logged")["ledgerId"] >= 0
    with pytest.raises(pulsarish.PulsarException):
        publish(client, "logged", 1)


def test_subscriptions(
    run: Run, read: Read, refused: Callable[..., str], client: pulsarish.Client
) -> None:
    ids = publish(client, "subscribed", 10)
    run("subscriptions", "create", "subscribed", "s", "--from", "earliest")
    run("subscriptions", "create", "subscribed", "other")
    assert read("subscriptions", "list", "subscribed") == [
        {"subscription": "other"},
        {"subscription": "s"},
    ]
    assert read("subscriptions", "get", "subscribed", "s")["msgBacklog"] == 10
    assert [
        row["value"] for row in read("subscriptions", "peek", "subscribed", "s", "-n", "2")
    ] == ["message 0", "message 1"]
    run("subscriptions", "skip", "subscribed", "s", "-n", "3")
    assert run("subscriptions", "peek", "subscribed", "s").stdout == "message 3\n"
    run(
        "subscriptions",
        "seek",
        "subscribed",
        "s",
        "--to",
        f"{ids[7].ledger_id()}:{ids[7].entry_id()}",
    )
    assert [
        row["value"] for row in read("subscriptions", "peek", "subscribed", "s", "-n", "9")
    ] == [f"message {n}" for n in (7, 8, 9)]
    run("subscriptions", "seek", "subscribed", "s", "--time", "1h")
    assert read("subscriptions", "analyze-backlog", "subscribed", "s")["messages"] == 10
    run("subscriptions", "expire", "subscribed", "s", "--older-than", "1h")
    assert read("subscriptions", "get", "subscribed", "s")["msgBacklog"] == 10
    run("subscriptions", "skip-all", "subscribed", "s")
    assert "fewer than 1" in refused("subscriptions", "peek", "subscribed", "s")
    run("subscriptions", "seek", "subscribed", "s", "--to", "earliest")
    run("subscriptions", "expire", "subscribed", "--all", "--older-than", "0s")
    assert read("subscriptions", "get", "subscribed", "s")["msgBacklog"] == 0
    consumer = client.subscribe("subscribed", "s")
    assert "--force" in refused("subscriptions", "delete", "subscribed", "s")
    run("subscriptions", "delete", "subscribed", "s", "--force")
    consumer.close()
    assert "did you mean other?" in refused("subscriptions", "get", "subscribed", "othre")


def test_the_cluster(
    cluster: Cluster, run: Run, read: Read, refused: Callable[..., str], client: pulsarish.Client
) -> None:
    publish(client, "clustered", 1)
    info = read("cluster-info")
    assert info["brokers"] == ["broker-1", "broker-2"]
    assert info["bookies"] == ["bookie-1", "bookie-2", "bookie-3"]
    assert info["read_only_bookies"] == []
    assert info["leader"] == read("brokers", "leader")["brokerId"]
    assert sorted(info["service_urls"]["http"].removeprefix("http://").split(",")) == sorted(
        cluster.admin_url().removeprefix("http://").split(",")
    )
    assert [row["broker_id"] for row in read("brokers", "list")] == info["brokers"]
    assert [row["bookie_id"] for row in read("bookies", "list")] == info["bookies"]
    assert read("brokers", "health") == {
        "health": "ok",
        "version": info["version"],
        "warnings": [],
    }
    owner = read("topics", "lookup", "clustered")
    assert any(
        owner["bundle"] in row["bundle"] for row in read("brokers", "bundles", owner["node"])
    )
    assert "broker-9" in refused("brokers", "bundles", "broker-9")
    assert read("brokers", "stats")["numBundles"] >= 0
    assert read("brokers", "config", "--name", "ack_quorum")["managed_ledger.ack_quorum"] == "2"
    ledgers = read("ledgers", "list")
    assert read("ledgers", "list", "--after", str(ledgers[0]["ledger"]), "-n", "1") == ledgers[1:2]
    ledger = read("ledgers", "get", str(ledgers[-1]["ledger"]))
    assert (ledger["write_quorum"], ledger["ack_quorum"]) == (3, 2)
    assert "length" in run("ledgers", "get", str(ledgers[-1]["ledger"])).stdout
    assert "99999" in refused("ledgers", "get", "99999")
    found = {"searching": False, "failure": "", "deletionEnabled": False, "orphans": []}
    assert read("ledgers", "orphans") == {"searchedMs": 0, **found}
    searched = read("ledgers", "orphans", "--search")
    assert searched.pop("searchedMs") > 0
    assert searched == found


def test_compaction(run: Run, read: Read, client: pulsarish.Client) -> None:
    producer = client.create_producer("compacted")
    for number in range(10):
        producer.send(b"%d" % number, partition_key=f"k{number % 2}")
    producer.close()
    assert read("topics", "compaction-status", "compacted") == {
        "status": "NOT_RUN",
        "lastError": "",
    }
    assert "compaction of compacted started" in run("topics", "compact", "compacted").stderr
    deadline = time.monotonic() + 60
    while (status := read("topics", "compaction-status", "compacted"))[
        "status"
    ] == "RUNNING" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert status == {"status": "SUCCESS", "lastError": ""}
    assert read("topics", "internal-stats", "compacted")["compactedLedger"]["entries"] == 2
    run("topics", "drop-compacted", "compacted", "--yes")
    assert read("topics", "internal-stats", "compacted")["compactedLedger"]["entries"] == -1
