"""Spark and jobs on a cluster that asks for credentials: every role does what it may, and no token
is seen.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import pulsarish
from pulsarish.local_cluster.locked import administrator, profiles_of
from pulsarish.local_cluster.processes import Cluster
from pulsarish.metadata.access import MetadataAccess
from pulsarish.model.errors import AuthorizationError, ConfigError
from pulsarish.runtime.profiles import Profiles
from pulsarish.security.keys import SigningKey, load_secret_key
from pulsarish.security.token_maker import sign_token
from pulsarish.spark.access import BookieAccess, BrokerAccess
from pulsarish.spark.jobs.cluster_access import JobCluster, leave, site
from pulsarish.spark.jobs.ledger_selection import LedgerSelection
from pulsarish.spark.jobs.transfer import export, import_
from pulsarish.spark.jobs.verify import verify
from tests.spark.support import environment, options_of
from tests.support.clusters import running_cluster

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("spark-locked")]

VALUES = sorted(f"v{number}" for number in range(200))
NAMESPACE = "public/default"
ROLES = {
    "reader": ["consume"],
    "writer": ["produce"],
    "copier": ["consume", "produce"],
    "stranger": [],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("spark-locked")
    with running_cluster(directory, bookies=2, brokers=1, locked=True) as running:
        fill(running)
        yield running


def fill(cluster: Cluster) -> None:
    """Make roles and topics. The messages of ``source`` lie in closed ledgers."""
    admin = administrator(cluster)
    for role, actions in ROLES.items():
        path = cluster.directory / f"{role}.token"
        path.touch(0o600)
        path.write_text(token(cluster, role))
        if actions:
            admin.namespaces.grant_permission(NAMESPACE, role, actions)
    for topic in ("source", "copy", "written", "parts"):
        admin.topics.create(topic, partitions=2 if topic == "parts" else 0)
        admin.subscriptions.create(topic, "keep", position="earliest")
        admin.topics.set_policy(topic, "deduplication", True)
    profile = Profiles.read(profiles_of(cluster)).get("admin")
    with pulsarish.Client(profile.url, **profile.arguments(profile.url)) as client:
        for part in (VALUES[:100], VALUES[100:]):
            producer = client.create_producer("source", batching_enabled=False)
            for value in part:
                producer.send_async(value.encode(), None)
            producer.flush()
            producer.close()
            admin.topics.unload("source")
        # where the names of subscriptions begin with the role
        space = "public/prefixed"
        admin.namespaces.create(space)
        admin.namespaces.set_policy(
            space, "retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        )
        admin.namespaces.set_policy(space, "subscription-auth-mode", "Prefix")
        admin.namespaces.grant_permission(space, "reader", ["consume"])
        client.create_producer(f"{space}/t").send(b"own")


def token(cluster: Cluster, role: str) -> str:
    key = load_secret_key("key", str(cluster.directory / "security" / "token.key"))
    return sign_token({"sub": role}, SigningKey(key.key, key.algorithms)).decode()


@pytest.fixture(scope="module")
def application(cluster: Cluster) -> tuple[dict[str, Any], str]:
    """What happened to an application of several roles, and everything that it wrote."""
    folder = cluster.directory
    (folder / "events").mkdir()
    program = Path(__file__).parent / "locked_driver.py"
    key = str(folder / "security" / "cluster.key")
    brokers = options_of(cluster, tlsTrustCertsFilePath=str(folder / "security" / "ca.pem"))
    done = subprocess.run(
        [sys.executable, str(program), str(folder), json.dumps(brokers), key],
        env=environment() | {"PULSARISH_PROFILES_FILE": str(profiles_of(cluster))},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    events = [path.read_text() for path in (folder / "events").rglob("*") if path.is_file()]
    assert events
    return json.loads((folder / "found.json").read_text()), "".join(
        [done.stdout, done.stderr, *events]
    )


def test_roles_read_and_write_what_they_may(application: tuple[dict[str, Any], str]) -> None:
    found, _ = application
    assert found["reader reads"] == VALUES
    assert found["profile reads"] == VALUES
    assert found["operator reads bookies"] == VALUES
    assert found["prefixed reads"] == ["own"]
    assert found["writer writes"] is None
    assert "source" in found["copier streams"]
    assert found["result"] == [sorted(f"w{number}" for number in range(10)), VALUES]


@pytest.mark.parametrize(
    ("action", "reasons"),
    [
        ("stranger reads", ("AuthorizationError", "stranger")),
        ("unknown reads", ("AuthenticationError",)),
        ("secret in options", ("option 'authParams' = '(not shown)'", "holds the secret itself")),
        ("secret in a wrong option", ("option 'token' = '(not shown)'", "no such option")),
        ("bookies without the key", ("'directReads' = 'always'", "set cluster_key_file")),
        ("reader lists bookies", ("'directReads' = 'always'", "super user")),
        ("reader without a prefix", ("AuthorizationError", "'subscriptionRolePrefix'")),
        ("reader writes", ("AuthorizationError", "reader")),
        ("writer pins partitions", ("AuthorizationError", "pulsarish.spark.once", "writer")),
        ("reader streams", ("AuthorizationError", "reader")),
    ],
)
def test_what_is_not_permitted_is_refused_with_a_reason(
    application: tuple[dict[str, Any], str], action: str, reasons: tuple[str, ...]
) -> None:
    answer = application[0][action]
    assert isinstance(answer, str), answer
    assert answer.startswith("refused: ")
    for reason in reasons:
        assert reason in answer


def test_no_token_is_in_plans_logs_or_the_web_interface(
    cluster: Cluster, application: tuple[dict[str, Any], str]
) -> None:
    _, written = application
    assert "== Physical Plan ==" in written
    assert "SparkListenerSQLExecutionStart" in written
    home = cluster.directory / "security"
    secrets = [token(cluster, role) for role in ROLES]
    secrets += [(home / name).read_text().strip() for name in ("admin.token", "cluster.key")]
    for secret in secrets:
        assert secret not in written
        assert secret.rpartition(".")[2] not in written
    # as every token in its usual form begins, those of tasks for bookies, too
    assert "eyJ" not in written


def test_jobs_read_bookies_with_the_cluster_key_and_not_without(
    spark: SparkSession, cluster: Cluster
) -> None:
    url = cluster.service_urls()["metadata"]
    scope = LedgerSelection(("source",))
    files = cluster.directory / "security"
    login = MetadataAccess(str(files / "metadata.auth"))
    without_key = BookieAccess(
        "", str(files / "ca.pem"), str(files / "server.pem"), str(files / "server.key")
    )
    with_key = replace(without_key, cluster_key_file=str(files / "cluster.key"))
    member, other = JobCluster(url, with_key, login), JobCluster(url, without_key, login)
    with pytest.raises(ConfigError, match="asks for a login"):
        site(JobCluster(url))
    try:
        report = verify(spark, member, scope)
        assert (report.findings, report.entries) == ([], len(VALUES))
        refused = verify(spark, other, scope)
        assert refused.read_bytes == 0
        details = " ".join(finding.detail for finding in refused.findings)
        assert "set cluster_key_file" in details
    finally:
        leave(member)
        leave(other)


def test_export_and_import_use_a_profile(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    profile = Profiles.read(profiles_of(cluster)).get("admin")
    brokers = BrokerAccess(profile)
    export(spark, brokers, ["source"], tmp_path / "export")
    with pytest.raises(AuthorizationError, match="role 'copier' lacks permission"):
        import_(spark, of_role(cluster, "copier"), tmp_path / "export", namespace="public/other")
    administrator(cluster).namespaces.create("public/other")
    done = import_(
        spark,
        brokers,
        tmp_path / "export",
        namespace="public/other",
        enable_deduplication=True,
    )
    assert done.published == {"persistent://public/other/source": len(VALUES)}


def of_role(cluster: Cluster, role: str) -> BrokerAccess:
    profile = Profiles.read(profiles_of(cluster)).get("admin")
    reference = f"token:file://{cluster.directory / f'{role}.token'}"
    return BrokerAccess(replace(profile, auth_plugin="token", auth_params=reference))
