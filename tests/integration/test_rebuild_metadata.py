"""The metadata of a cluster of real processes are lost without a backup, and made again from what
bookies know; what was acknowledged is there afterwards.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pulsarish
from pulsarish.local_cluster.processes import Cluster
from tests.integration.conftest import StartCluster
from tests.integration.test_cluster import Sender
from tests.integration.test_metadata_backup import (
    DELETE_SOON,
    KEEP,
    TOPICS,
    fill,
    metadata_url,
    read,
    restart_with_empty_metadata,
    run,
)

ROLL_OVER = [
    "managed_ledger.max_entries_per_ledger=5",
    "managed_ledger.min_ledger_rollover_time_minutes=0",
]


def storage(*words: str, status: int = 0) -> str:
    return pulsarish_("storage", *words, status=status)


def admin_url(cluster: Cluster) -> str:
    return f"http://127.0.0.1:{cluster.node('broker-1').ports['http']}"


def fill_entries(url: str, topic: str, count: int) -> None:
    """Entries of ten messages each, so that ledgers roll over."""
    with pulsarish.Client(url) as client:
        sender = Sender(client, topic, batching_max_messages=10)
        sender.send(count)
        sender.flush()
        assert sender.failed == []


def pulsarish_(*words: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pulsarish", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, f"{words}: {done.stdout}\n{done.stderr}"
    return done.stdout if "json" in words else done.stderr


def data_of(cluster: Cluster, name: str) -> str:
    return str(cluster.directory / name / "data")


def wait_for_records(cluster: Cluster, file: Path) -> None:
    """Wait until bookie-3, which runs, has a copy of the record of each of its ledgers."""
    copies: dict[str, Any] = {}
    for _ in range(100):
        file.unlink(missing_ok=True)
        storage("save-records", str(file), "--bookie", data_of(cluster, "bookie-3"))
        copies = json.loads(file.read_bytes())["copies"]
        if copies["held"] and {str(each) for each in copies["held"]} <= copies["records"].keys():
            return
        time.sleep(0.2)
    raise AssertionError(f"ledgers without records: {copies}")


def test_topics_are_read_whole_after_the_metadata_were_lost(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    # A flush each 0.2 s: the index of a running bookie shows what it holds.
    bookie = [*DELETE_SOON, "checkpoint_interval_seconds=0.2"]
    cluster = start_cluster(settings={"bookie": bookie, "broker": ROLL_OVER})
    url = metadata_url(cluster)
    service = cluster.service_urls()["pulsarish"]
    with pulsarish.Client(service) as client:
        # Their positions are in the metadata only, and are lost. Until then they keep the messages.
        for topic in TOPICS[:2]:
            client.subscribe(topic, "kept").close()
    for number, topic in enumerate(TOPICS[:2]):
        for _ in range(4):
            fill_entries(service, topic, 100 + number)
    fill(service, f"{TOPICS[2]}-partition-1", 10)
    file = tmp_path / "bookie-3.records"
    wait_for_records(cluster, file)
    for name in ("broker-1", "broker-2"):
        cluster.kill(name)
    restart_with_empty_metadata(cluster)
    bookies = ["--bookie", data_of(cluster, "bookie-1"), "--bookie", data_of(cluster, "bookie-2")]
    assert "--without bookie-3~" in storage("rebuild-metadata", url, *bookies, status=1)
    bookies += ["--bookie", str(file)]
    planned = json.loads(storage("rebuild-metadata", url, *bookies, "--dry-run", "-o", "json"))
    made = json.loads(storage("rebuild-metadata", url, *bookies, "-o", "json"))
    assert {**planned, "dry_run": False} == {**made}
    assert set(made["topics"]) >= {*TOPICS[:2], f"{TOPICS[2]}-partition-1"}
    assert len(made["ledgers"]) > 2 * 4, "the ledgers have rolled over"
    assert not made["conflicts"]
    assert not made["unrecorded"]
    again = json.loads(storage("rebuild-metadata", url, *bookies, "-o", "json"))
    assert (again["ledgers"], again["topics"], again["nodes"]) == ([], [], [])
    cluster.up()
    for number, topic in enumerate(TOPICS[:2]):
        assert read(cluster, topic) == list(range(100 + number)) * 4
    assert read(cluster, f"{TOPICS[2]}-partition-1") == list(range(10))
    run("audit", url)
    run("confirm", url)
    # Bookies may delete again, and no consumer subscribes to the topics.
    for name in ("bookie-1", "bookie-2", "bookie-3"):
        pulsarish_("bookies", "collect-garbage", name, "--wait", "--admin-url", admin_url(cluster))
    fill(cluster.service_urls()["pulsarish"], TOPICS[1], 7)
    assert read(cluster, TOPICS[0]) == list(range(100)) * 4
    assert read(cluster, TOPICS[1]) == [*list(range(101)) * 4, *range(7)]


def test_mistakes_are_told(tmp_path: Path) -> None:
    nowhere = f"embedded:{tmp_path / 'tree'}"
    said = storage("rebuild-metadata", nowhere, "--bookie", str(tmp_path), status=1)
    assert "there is no directory" in said
    file = tmp_path / "half"
    file.write_bytes(b'{"format":"pulsarish-ledger-records-1","copies":{"coo')
    said = storage("rebuild-metadata", nowhere, "--bookie", str(file), status=1)
    assert "no complete file" in said


def test_an_old_backup_is_extended_by_what_bookies_know(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    bookie = [*DELETE_SOON, "checkpoint_interval_seconds=0.2"]
    cluster = start_cluster(brokers=1, settings={"bookie": bookie, "broker": [*ROLL_OVER, *KEEP]})
    url, backup = metadata_url(cluster), str(tmp_path / "backup.gz")
    service = cluster.service_urls()["pulsarish"]
    fill_entries(service, TOPICS[0], 100)
    run("backup", url, backup)
    for _ in range(3):
        fill_entries(service, TOPICS[0], 100)
    fill_entries(service, TOPICS[1], 50)
    wait_for_records(cluster, tmp_path / "bookie-3.records")
    restart_with_empty_metadata(cluster)
    run("restore", backup, url)
    bookies = [
        word
        for name in ("bookie-1", "bookie-2", "bookie-3")
        for word in ("--bookie", data_of(cluster, name))
    ]
    words = ["rebuild-metadata", url, *bookies, "-o", "json"]
    planned = json.loads(storage(*words, "--dry-run"))
    assert planned["outside"]
    assert planned["topics"] == [TOPICS[1]]
    made = json.loads(storage(*words, "--extend-topics"))
    assert not made["outside"]
    assert [each["topic"] for each in made["extended"]] == [TOPICS[0]]
    cluster.up()
    assert read(cluster, TOPICS[0]) == [*range(100)] * 4
    assert read(cluster, TOPICS[1]) == list(range(50))
    run("audit", url)
    run("confirm", url)
