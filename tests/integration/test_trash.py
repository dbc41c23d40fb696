"""The trash of real bookies, through the command and a broker."""

from __future__ import annotations

import json
import os

from click.testing import CliRunner

import pulsarish
from pulsarish.cli.main import pulsarish as command
from pulsarish.local_cluster.processes import Cluster
from tests.integration.conftest import StartCluster
from tests.integration.test_metadata_backup import KEEP, TOPICS, metadata_url
from tests.support.until import until

BOOKIES = ["bookie-1", "bookie-2", "bookie-3"]


def collect(url: str, bookie: str) -> str:
    result = CliRunner().invoke(
        command, ["bookies", "collect-garbage", bookie, "--wait", "--admin-url", url]
    )
    assert result.exit_code == 0, result.output
    return result.output


def log_bytes(cluster: Cluster) -> dict[str, int]:
    """What du says of the entry logs of each bookie."""
    return {
        name: sum(
            path.stat().st_blocks * 512 for path in cluster.directory.glob(f"{name}/**/*.log")
        )
        for name in BOOKIES
    }


def trash(url: str, *words: str, status: int = 0) -> str:
    result = CliRunner().invoke(command, ["bookies", "trash", *words, "--admin-url", url])
    assert result.exit_code == status, result.output
    return result.output


def look_at_bookies(cluster: Cluster) -> None:
    """The commands that need no broker, on bookies that run."""
    url = metadata_url(cluster)
    words = ["bookies", "simple-test", url, "-n", "50", "-o", "json"]
    tried = CliRunner().invoke(command, words)
    assert tried.exit_code == 0, tried.output
    assert len(json.loads(tried.stdout)["bookies"]) == 3
    settings = {
        "bookie_id": "bookie-1",
        "metadata_url": url,
        "data_directory": f"{cluster.directory}/bookie-1/data",
    }
    options = [f"--set={name}={value}" for name, value in settings.items()]
    verified = CliRunner().invoke(command, ["storage", "verify", "--metadata", *options])
    assert verified.exit_code == 0, verified.output
    assert "nothing is wrong" in verified.output


def test_deleted_ledgers_are_listed_restored_and_emptied(start_cluster: StartCluster) -> None:
    settings = {"bookie": ["gc_interval_seconds=3600", "gc_second_look_seconds=0"], "broker": KEEP}
    cluster = start_cluster(brokers=1, settings=settings)
    assert metadata_url(cluster)
    urls = cluster.service_urls()
    with pulsarish.Client(urls["pulsarish"]) as client:
        producer = client.create_producer(TOPICS[0])
        for _ in range(100):
            producer.send(os.urandom(10_000))
    admin = urls["http"]
    assert "0 ledgers deleted" in collect(admin, "bookie-1")
    assert json.loads(trash(admin, "list", "-o", "json")) == []
    deleted = CliRunner().invoke(
        command, ["topics", "delete", TOPICS[0], "--force", "--yes", "--admin-url", admin]
    )
    assert deleted.exit_code == 0, deleted.output
    rows: list[dict[str, object]] = []

    def in_three_trashes() -> bool:
        for bookie in BOOKIES:
            assert "0 B freed" in collect(admin, bookie), "the time in the trash is not waived"
        rows[:] = json.loads(trash(admin, "list", "-o", "json"))
        return len({row["bookie"] for row in rows}) == 3

    until("the deleted ledgers are in the trash of each bookie", in_three_trashes)
    before = log_bytes(cluster)
    ledgers = sorted({int(str(row["ledgerId"])) for row in rows})
    assert ledgers
    assert all(int(str(row["sinceMs"])) > 0 for row in rows)
    assert "restored from the trash" in trash(admin, "restore", str(ledgers[0]))
    assert "name the ledgers" in trash(admin, "restore", status=2)
    trash(admin, "empty", "--yes")
    assert not [
        row
        for row in json.loads(trash(admin, "list", "-o", "json"))
        if row["ledgerId"] in ledgers[1:]
    ]
    for bookie in BOOKIES:
        collect(admin, bookie)  # the one that was restored goes back into the trash
    trash(admin, "empty", "--yes")
    for bookie in BOOKIES:
        assert "entry logs deleted" in collect(admin, bookie)
    after = log_bytes(cluster)
    assert all(after[name] < before[name] - 900_000 for name in BOOKIES), (before, after)
    unknown = CliRunner().invoke(
        command, ["bookies", "collect-garbage", "nobody", "--admin-url", admin]
    )
    assert unknown.exit_code == 1
    assert "there never was a bookie" in str(unknown.exception)
    look_at_bookies(cluster)
