"""Topics written to Parquet and brought into other topics, each message once and in its order."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import pulsarish
from pulsarish.admin import Admin
from pulsarish.local_cluster.processes import Cluster
from pulsarish.model.errors import InvalidArgument, NotAllowedError, NotFound, TopicNotFound
from pulsarish.spark.access import BrokerAccess
from pulsarish.spark.jobs.transfer import EXPORT_FILE, _publish_log, export, import_, read_manifest
from tests.spark import support

COUNT = 300

pytestmark = pytest.mark.timeout(300)  # many Spark jobs each
SPACE = "public/transferred"

Seen = dict[str, list[tuple[bytes, str, dict[str, str], int]]]


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Any:
    client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    yield client
    client.close()


def publish(client: pulsarish.Client, topic: str, *, batching: bool, count: int = COUNT) -> None:
    client.subscribe(topic, "keep", initial_position=pulsarish.InitialPosition.Earliest).close()
    producer = client.create_producer(
        topic, batching_enabled=batching, producer_name=f"maker-{topic}", block_if_queue_full=True
    )
    for number in range(count):
        producer.send_async(
            f"{topic} {number}".encode(),
            None,
            partition_key=f"key {number % 11}" if number % 2 else None,
            properties={"number": str(number)} if number % 3 else None,
            event_timestamp=1_700_000_000_123 + number if number % 5 else None,
        )
    producer.flush()
    producer.close()


def read(client: pulsarish.Client, topic: str, count: int) -> Seen:
    """By partition, in order."""
    consumer = client.subscribe(topic, "look", initial_position=pulsarish.InitialPosition.Earliest)
    seen: Seen = {}
    for _ in range(count):
        message = consumer.receive(timeout_millis=60_000)
        partition = (
            message.topic_name().rpartition("-partition-")[2]
            if "-partition-" in message.topic_name()
            else ""
        )
        row = (
            message.data(),
            message.partition_key(),
            message.properties(),
            message.event_timestamp(),
        )
        seen.setdefault(partition, []).append(row)
        consumer.acknowledge(message)
    with pytest.raises(pulsarish.Timeout):
        consumer.receive(timeout_millis=300)
    consumer.unsubscribe()
    return seen


def test_topics_go_out_and_come_back_once(
    spark: SparkSession, cluster: Cluster, client: pulsarish.Client, tmp_path: Path
) -> None:
    urls = cluster.service_urls()
    admin = Admin(urls["http"])
    brokers = BrokerAccess.at(urls["pulsarish"], urls["http"])
    admin.topics.create("transfer-parts", partitions=3)
    admin.schemas.upload("transfer-plain", "STRING")
    publish(client, "transfer-plain", batching=False)
    publish(client, "transfer-parts", batching=True)
    folder = tmp_path / "export"
    made = export(spark, brokers, ["transfer-plain", "transfer-parts"], folder)
    assert [(each.partitions, each.messages) for each in made.topics] == [(0, COUNT), (3, COUNT)]
    row = (
        spark.read.parquet(str(folder / "messages.parquet"))
        .where("topic like '%plain' and sequence_id = 7")
        .collect()[0]
    )
    assert (bytes(row.value), row.key, row.producer_name, row.partition) == (
        b"transfer-plain 7",
        "key 7",
        "maker-transfer-plain",
        -1,
    )

    admin.namespaces.create(SPACE)
    into: dict[str, Any] = {"namespace": SPACE, "keep_origin": False}
    with pytest.raises(NotAllowedError, match="deduplication is off"):
        import_(spark, brokers, folder, **into)
    # A part of it comes in, as of a job that was broken off.
    plain = f"persistent://{SPACE}/transfer-plain"
    admin.topics.set_policy(plain, "deduplication", True)
    rows = (
        spark.read.parquet(str(folder / "messages.parquet"))
        .where("topic like '%plain'")
        .orderBy("message_id")
        .limit(120)
        .collect()
    )
    assert _publish_log(
        client, plain, f"import-{made.export_id}", rows, epoch=1, keep_origin=False
    ) == (120, 0)
    admin.topics.create(f"{SPACE}/transfer-parts", partitions=3)
    for name in ("transfer-plain", "transfer-parts"):
        client.subscribe(
            f"{SPACE}/{name}", "keep", initial_position=pulsarish.InitialPosition.Earliest
        ).close()
    done = import_(spark, brokers, folder, enable_deduplication=True, **into)
    parts = f"persistent://{SPACE}/transfer-parts"
    assert done.published == {plain: COUNT - 120, parts: COUNT}
    assert done.passed_over == {plain: 120, parts: 0}
    again = import_(spark, brokers, folder, **into)
    assert again.published == {plain: 0, parts: 0}
    for name in ("transfer-plain", "transfer-parts"):
        assert read(client, f"{SPACE}/{name}", COUNT) == read(client, name, COUNT)
    assert admin.schemas.get(plain)["type"] == "STRING"


@pytest.mark.timeout(900)
def test_an_import_that_was_killed_is_repeated(
    spark: SparkSession, cluster: Cluster, client: pulsarish.Client, tmp_path: Path
) -> None:
    urls = cluster.service_urls()
    admin = Admin(urls["http"])
    brokers = BrokerAccess.at(urls["pulsarish"], urls["http"])
    count, topic = 12_000, "public/leaving/killed"
    for space in ("public/leaving", "public/arriving"):
        admin.namespaces.create(space)
        admin.namespaces.set_policy(
            space, "retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        )
    admin.topics.create(topic, partitions=3)
    publish(client, topic, batching=True, count=count)
    export(spark, brokers, [topic], tmp_path / "export")

    def has_begun() -> bool:
        try:
            return any(
                admin.topics.stats(f"public/arriving/killed-partition-{index}").get("storageSize")
                for index in range(3)
            )
        except TopicNotFound:
            return False

    command = [
        sys.executable,
        "-m",
        "pulsarish",
        "job",
        "import",
        str(tmp_path / "export"),
        "--namespace=public/arriving",
    ]
    command += [
        "--enable-deduplication",
        "--keep-origin",
        "--master=local[1]",
        f"--url={urls['pulsarish']}",
        f"--admin-url={urls['http']}",
    ]
    with (tmp_path / "import.log").open("wb") as log:
        process = subprocess.Popen(command, env=support.environment(), stdout=log, stderr=log)
    try:
        support.until("the import begins", lambda: process.poll() is not None or has_begun())
        assert process.poll() is None, (tmp_path / "import.log").read_text()
    finally:
        process.kill()
    # Spark's other processes end when they notice, and publish until then.
    done = import_(
        spark,
        brokers,
        tmp_path / "export",
        namespace="public/arriving",
        keep_origin=True,
    )
    process.wait()
    (published,), (passed_over,) = done.published.values(), done.passed_over.values()
    assert passed_over > 0
    assert published + passed_over == count

    def rows(topic: str) -> list[Any]:
        found = support.read(spark, cluster, topic=topic).collect()
        assert len(found) == count
        return sorted(found, key=lambda row: (row.partition, row.message_id))

    for old, new in zip(rows(topic), rows("public/arriving/killed"), strict=True):
        origin = {
            "pulsarish.origin.id": ":".join(map(str, old.message_id)),
            "pulsarish.origin.publish_time": str(round(old.publish_time.timestamp() * 1000)),
            "pulsarish.origin.producer": old.producer_name,
            "pulsarish.origin.sequence_id": str(old.sequence_id),
        }
        assert (new.partition, new.value, new.key, new.event_time) == (
            old.partition,
            old.value,
            old.key,
            old.event_time,
        )
        assert new.properties == old.properties | origin


def test_what_is_no_export_is_refused(
    spark: SparkSession, cluster: Cluster, client: pulsarish.Client, tmp_path: Path
) -> None:
    urls = cluster.service_urls()
    admin = Admin(urls["http"])
    brokers = BrokerAccess.at(urls["pulsarish"], urls["http"])
    with pytest.raises(NotFound, match="did not come to its end"):
        read_manifest(tmp_path)
    publish(client, "transfer-refused", batching=True)
    folder = tmp_path / "export"
    export(spark, brokers, ["transfer-refused"], folder)
    admin.namespaces.create("public/refused")
    admin.topics.create("public/refused/transfer-refused", partitions=2)
    with pytest.raises(InvalidArgument, match="has 2 partitions"):
        import_(
            spark,
            brokers,
            folder,
            namespace="public/refused",
            enable_deduplication=True,
        )
    shutil.copy(folder / EXPORT_FILE, tmp_path)
    assert read_manifest(tmp_path) == read_manifest(folder)
