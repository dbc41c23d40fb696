"""The metadata of a cluster of real processes are backed up, lost and restored; what was
acknowledged is there afterwards.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pulsarish
from pulsarish.local_cluster.plan import plan_cluster
from pulsarish.local_cluster.processes import Cluster
from pulsarish.schema import AvroSchema
from tests.integration.conftest import StartCluster
from tests.integration.test_cluster import Sender, read_all
from tests.support.metadata_stores import real_zookeeper

TOPICS = [f"persistent://public/default/kept-{number}" for number in range(3)]

# Nobody subscribes here, and what nobody needs is trimmed when the topic is opened again.
KEEP = ["default_retention_time_minutes=-1", "default_retention_size_mb=-1"]
DELETE_SOON = ["gc_interval_seconds=0.3", "gc_second_look_seconds=0", "trash_grace_seconds=0"]


def run(*words: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pulsarish", "metadata", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, f"{words}: {done.stdout}\n{done.stderr}"
    return done.stdout if "-o" in words else done.stderr


def fill(url: str, topic: str, count: int) -> None:
    client = pulsarish.Client(url)
    sender = Sender(client, topic)
    sender.send(count)
    sender.flush()
    assert sender.failed == []
    client.close()


def read(cluster: Cluster, topic: str) -> list[int]:
    client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    try:
        return read_all(client, topic)
    finally:
        client.close()


def schema_of(count: int) -> AvroSchema:
    """With so many fields; a long one is about as large as a node may be."""
    fields = [
        {"name": f"field_{number}", "type": "string", "default": "x" * 60}
        for number in range(count)
    ]
    return AvroSchema(None, {"type": "record", "name": "R", "fields": fields})


def give_schemas(cluster: Cluster) -> None:
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        for count in (1, 3_500):
            client.create_producer("records", schema=schema_of(count)).send({"field_0": str(count)})


def check_schemas(cluster: Cluster) -> None:
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        reader = client.create_reader("records", pulsarish.MessageId.earliest, schema=schema_of(2))
        assert [reader.read_next(20_000).value() for _ in range(2)] == [
            {"field_0": each, "field_1": "x" * 60} for each in ("1", "3500")
        ]


def metadata_url(cluster: Cluster) -> str:
    return cluster.service_urls()["metadata"]


def restart_with_empty_metadata(cluster: Cluster) -> None:
    """Stop everything, throw the metadata away, start only the daemon."""
    cluster.down(print)
    shutil.rmtree(cluster.directory / "metadata" / "data")
    node = cluster.node("metadata")
    cluster.start(node)
    cluster.wait_ready([node])


def test_backed_up_wiped_restored_and_everything_is_read(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster(settings={"broker": KEEP})
    url = metadata_url(cluster)
    for number, topic in enumerate(TOPICS):
        fill(cluster.service_urls()["pulsarish"], topic, 100 + number)
    give_schemas(cluster)
    file = str(tmp_path / "backup.gz")
    made = json.loads(run("backup", url, file, "-o", "json"))
    assert made["ephemeral_left_out"] >= 5, "two brokers, three bookies"
    run("backup", url, file, status=1)
    run("restore", file, url, "--force", status=1)  # brokers are registered
    # The same topic goes on after the backup, in the ledger that the backup knows as open.
    fill(cluster.service_urls()["pulsarish"], TOPICS[0], 50)
    restart_with_empty_metadata(cluster)
    run("restore", file, url)
    run("diff", file, url)
    run("restore", file, url, status=1)  # there is something now
    cluster.up()
    check_schemas(cluster)
    assert read(cluster, TOPICS[1]) == list(range(101))
    assert read(cluster, TOPICS[2]) == list(range(102))
    assert read(cluster, TOPICS[0]) == [*range(100), *range(50)]
    fill(cluster.service_urls()["pulsarish"], TOPICS[1], 10)
    assert read(cluster, TOPICS[1]) == [*range(101), *range(10)]
    changed = json.loads(run("diff", file, url, "-o", "json", status=1))
    assert any(row["path"].endswith("kept-1") and row["change"] == "different" for row in changed)


def test_what_was_made_after_the_backup_survives_until_it_is_given_up(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster(brokers=1, settings={"bookie": DELETE_SOON, "broker": KEEP})
    url = metadata_url(cluster)
    fill(cluster.service_urls()["pulsarish"], TOPICS[0], 100)
    file, newer = str(tmp_path / "backup.gz"), str(tmp_path / "newer.gz")
    run("backup", url, file)
    fill(cluster.service_urls()["pulsarish"], TOPICS[1], 200)
    cluster.stop("broker-1")
    run("backup", url, newer)
    named = {row["path"] for row in json.loads(run("diff", file, newer, "-o", "json", status=1))}
    assert any(path.endswith("kept-1") for path in named)
    restart_with_empty_metadata(cluster)
    run("restore", file, url)
    for node in cluster.nodes():
        if node.role == "bookie":
            cluster.start(node)
            cluster.wait_ready([node])
    wait_for_log(cluster, "bookie-1", "are not confirmed")
    found = json.loads(run("audit", url, "-o", "json", status=1))
    assert found["silent"] == {}
    assert found["unknown"], "the topic made after the backup"
    assert "--delete-unknown" in run("confirm", url, status=1)
    # The newer backup was found after all: its topic is whole.
    run("restore", newer, url, "--force")
    run("audit", url)
    run("confirm", url)
    cluster.up()
    assert read(cluster, TOPICS[1]) == list(range(200))
    assert read(cluster, TOPICS[0]) == list(range(100))
    assert "nothing to do" in run("confirm", url)


def test_given_up_is_deleted(start_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = start_cluster(brokers=1, settings={"bookie": DELETE_SOON, "broker": KEEP})
    url = metadata_url(cluster)
    fill(cluster.service_urls()["pulsarish"], TOPICS[0], 100)
    file = str(tmp_path / "backup.gz")
    run("backup", url, file)
    fill(cluster.service_urls()["pulsarish"], TOPICS[1], 200)
    cluster.stop("broker-1")
    # Into the live tree, with all bookies registered.
    run("restore", file, url, "--force")
    assert json.loads(run("audit", url, "-o", "json", status=1))["unknown"]
    run("confirm", url, "--delete-unknown")
    for name in ("bookie-1", "bookie-2", "bookie-3"):
        wait_for_log(cluster, name, "deleted a ledger that the metadata do not have")
    run("audit", url)
    cluster.up()
    assert read(cluster, TOPICS[0]) == list(range(100))


def wait_for_log(cluster: Cluster, name: str, text: str) -> None:
    log = cluster.log_path(name)
    for _ in range(600):
        if text in log.read_text():
            return
        subprocess.run(["sleep", "0.1"], check=True)
    raise AssertionError(f"{name} never says {text!r}: {log.read_text()[-2000:]}")


def test_against_the_real_zookeeper(tmp_path: Path) -> None:
    """Out of one chroot of ZooKeeper into another one; the bookies' own metadata URL changes with
    it.
    """
    address = real_zookeeper()
    urls = [f"zk://{address}/{tmp_path.name}-{part}" for part in ("before", "after")]
    cluster = Cluster(tmp_path / "cluster")
    plan = [
        node
        for node in plan_cluster(bookies=3, brokers=1, metadata="embedded", base_port=0)
        if node.role != "metadata"
    ]

    def point_at(url: str) -> None:
        for node in plan:
            node.settings = [
                each for each in node.settings if not each.startswith("metadata_url=")
            ] + [f"metadata_url={url}"]
        cluster.create(plan)

    def service_url() -> str:
        return f"pulsarish://127.0.0.1:{cluster.node('broker-1').ports['grpc']}"

    plan[-1].settings += KEEP
    point_at(urls[0])
    try:
        for node in plan:
            cluster.start(node)
        cluster.wait_ready(plan)
        fill(service_url(), TOPICS[0], 300)
        file = str(tmp_path / "backup.gz")
        run("backup", urls[0], file)
        cluster.down(print)
        run("restore", file, urls[1])
        run("diff", file, urls[1])
        point_at(urls[1])
        for node in plan:
            cluster.start(node)
        cluster.wait_ready(plan)
        client = pulsarish.Client(service_url())
        assert read_all(client, TOPICS[0]) == list(range(300))
        client.close()
        run("audit", urls[1], status=0)
        run("confirm", urls[1])
    finally:
        for node in plan:
            cluster.kill(node.name)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("backup", "zk://127.0.0.1:1/x", "FILE"), "no metadata server answered"),
        (("backup", "embedded:/nowhere", "FILE"), "there is no directory"),
        (("backup", "memory:", "FILE"), "another process"),
        (("diff", "/nowhere", "memory:"), "neither a file nor a metadata URL"),
    ],
)
def test_mistakes_are_told(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    given = [str(tmp_path / "backup.gz") if word == "FILE" else word for word in words]
    assert says in run(*given, status=1)
    assert list(tmp_path.iterdir()) == []
