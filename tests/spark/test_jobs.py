"""Jobs over the ledgers of a cluster of its own, in which one thing after another is broken by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pulsarish
from pulsarish.admin import Admin
from pulsarish.cli.processes import Cluster, plan_cluster
from pulsarish.spark.jobs.scope import Scope
from pulsarish.spark.jobs.session import save
from pulsarish.spark.jobs.site import leave
from pulsarish.spark.jobs.verify import FINDING_SCHEMA, verify
from tests.support.damage import forget_ledger, spoil_entry

MESSAGES = 40


@dataclass
class Stage:
    """The cluster, and where what is broken lies."""

    cluster: Cluster
    admin: Admin
    url: str

    def data(self, bookie: str) -> Path:
        return self.cluster.log_path(bookie).parent / "data"

    def ledgers(self, topic: str) -> list[int]:
        return [each["ledgerId"] for each in self.admin.topics.internal_stats(topic)["ledgers"]]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    cluster = Cluster(tmp_path_factory.mktemp("jobs") / "cluster")
    nodes = plan_cluster(bookies=3, brokers=1, metadata="embedded", base_port=0)
    for node in nodes:
        if node.role == "bookie":
            node.settings.append("auto_recovery_daemon_enabled=false")  # what is broken stays broken
    cluster.create(nodes)
    try:
        cluster.up()
        urls = cluster.service_urls()
        yield Stage(cluster, Admin(urls["http"]), urls["metadata"])
        leave(urls["metadata"])
    finally:
        for node in cluster.nodes():
            if cluster.pid(node.name) is not None:
                cluster.kill(node.name)


def publish(stage: Stage, topic: str, count: int = MESSAGES) -> None:
    """Messages that are entries each, in a closed ledger that a subscription keeps."""
    client = pulsarish.Client(stage.cluster.service_urls()["pulsarish"])
    client.subscribe(topic, "keep", initial_position=pulsarish.InitialPosition.Earliest).close()
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(count):
        producer.send_async(f"message {number} of {topic}".encode(), None)
    producer.flush()
    client.close()
    stage.admin.topics.unload(topic)


def test_verify_names_what_is_broken(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    for topic in ("sound", "spoiled", "forgotten"):
        publish(stage, topic)
    before = verify(spark, stage.url, Scope())
    assert before.findings == []
    assert before.entries >= 3 * MESSAGES
    assert before.copies == 3 * before.entries
    (spoiled,), (forgotten,) = (stage.ledgers(topic)[:1] for topic in ("spoiled", "forgotten"))
    stage.cluster.stop_gracefully("bookie-2")
    spoil_entry(stage.data("bookie-2"), spoiled, 7)
    spoil_entry(stage.data("bookie-2"), spoiled, 8)
    forget_ledger(stage.data("bookie-2"), forgotten)
    # A bookie that is away says nothing, which is another thing than that it has lost its copies.
    away = verify(spark, stage.url, Scope(("sound",)))
    assert {(row.finding, row.bookie, row.first_entry, row.last_entry) for row in away.findings} == {
        ("unreachable", "bookie-2", 0, MESSAGES - 1)
    }
    stage.cluster.start(stage.cluster.node("bookie-2"))
    stage.cluster.wait_ready([stage.cluster.node("bookie-2")])
    after = verify(spark, stage.url, Scope())
    found = [(row.finding, row.ledger, row.first_entry, row.last_entry, row.bookie, row.owner) for row in after.findings]
    assert found == [
        ("corrupt", spoiled, 7, 8, "bookie-2", "topic persistent://public/default/spoiled"),
        ("missing", forgotten, 0, MESSAGES - 1, "bookie-2", "topic persistent://public/default/forgotten"),
    ]
    assert verify(spark, stage.url, Scope(("sound",))).findings == []
    save(spark, after.findings, FINDING_SCHEMA, str(tmp_path / "findings.parquet"))
    saved = spark.read.parquet(str(tmp_path / "findings.parquet")).collect()
    assert [tuple(row) for row in saved] == after.findings
