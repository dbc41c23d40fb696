"""The trash of real bookies, through the command and a broker."""

from __future__ import annotations

import json

from click.testing import CliRunner

from pulsarish.cli.main import pulsarish
from tests.integration.conftest import StartCluster
from tests.integration.test_metadata_backup import KEEP, TOPICS, fill, metadata_url
from tests.support.until import until


def trash(url: str, *words: str, status: int = 0) -> str:
    result = CliRunner().invoke(pulsarish, ["bookies", "trash", *words, "--admin-url", url])
    assert result.exit_code == status, result.output
    return result.output


def test_deleted_ledgers_are_listed_restored_and_emptied(start_cluster: StartCluster) -> None:
    settings = {"bookie": ["gc_interval_seconds=0.3", "gc_second_look_seconds=0.5"], "broker": KEEP}
    cluster = start_cluster(brokers=1, settings=settings)
    assert metadata_url(cluster)
    urls = cluster.service_urls()
    fill(urls["pulsarish"], TOPICS[0], 50)
    admin = urls["http"]
    assert json.loads(trash(admin, "list", "-o", "json")) == []
    deleted = CliRunner().invoke(
        pulsarish, ["topics", "delete", TOPICS[0], "--force", "--yes", "--admin-url", admin]
    )
    assert deleted.exit_code == 0, deleted.output
    rows: list[dict[str, object]] = []

    def in_three_trashes() -> bool:
        rows[:] = json.loads(trash(admin, "list", "-o", "json"))
        return len({row["bookie"] for row in rows}) == 3

    until("the deleted ledgers are in the trash of each bookie", in_three_trashes)
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
