"""A bookie of a real cluster is killed and its disk is gone: its copies are created again, and then
another bookie may go.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pulsarish
from pulsarish.admin import Admin
from pulsarish.local_cluster.processes import Cluster
from tests.integration.conftest import StartCluster
from tests.integration.test_cluster import TOPIC, Sender, read_all
from tests.support.until import until

# Sessions end sooner than by default, so that the tests need not wait for that; but not as soon as
# a machine may stand still for.
BOOKIE = [
    "metadata_session_timeout_ms=8000",
    "auto_recovery.lost_bookie_recovery_delay_seconds=3",
    "auto_recovery.open_ledger_rereplication_grace_period_seconds=3",
    "auto_recovery.rw_rereplicate_backoff_ms=500",
]


def members(admin: Admin) -> list[set[str]]:
    """Of every segment of every ledger, by bookie id."""
    segments = [
        segment
        for ledger_id in admin.ledgers.list()
        for segment in admin.ledgers.get(ledger_id)["segments"]
    ]
    return [{member.partition("~")[0] for member in segment["members"]} for segment in segments]


def in_many_ledgers(client: pulsarish.Client, admin: Admin, count: int) -> Sender:
    sender = Sender(client, batching_max_messages=5)
    for _ in range(8):
        sender.send(count // 8)
        sender.flush()
        admin.topics.unload(TOPIC)  # and the next one begins another ledger
    return sender


def lose(cluster: Cluster, name: str) -> None:
    cluster.kill(name)
    shutil.rmtree(cluster.directory / name / "data")


def test_after_the_loss_of_a_bookie_all_copies_are_made_anew(start_cluster: StartCluster) -> None:
    cluster = start_cluster(bookies=4, brokers=1, settings={"bookie": BOOKIE})
    admin = Admin(cluster.admin_url())
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        sender = in_many_ledgers(client, admin, 2_000)
        assert any("bookie-1" in segment for segment in members(admin))
        lose(cluster, "bookie-1")
        sender.send(500)
        sender.flush()
        whole = [{"bookie-2", "bookie-3", "bookie-4"}]
        until(
            "on three of the bookies that are left",
            lambda: all(segment in whole for segment in members(admin)),
        )
        until("nothing lacks copies", lambda: admin.bookies.under_replicated() == [])
        # Qa of 2 lets the topic go on with two bookies, and each of them has every entry.
        lose(cluster, "bookie-2")
        lose(cluster, "bookie-3")
        assert sender.failed == []
        assert read_all(client) == list(range(2_500))


def test_a_process_of_its_own_makes_copies_anew(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster(
        bookies=4, brokers=1, settings={"bookie": [BOOKIE[0], "auto_recovery_daemon_enabled=false"]}
    )
    admin = Admin(cluster.admin_url())
    settings = [
        f"metadata_url={cluster.service_urls()['metadata']}",
        "http_address=127.0.0.1:0",
        *BOOKIE,
    ]
    command = [
        sys.executable,
        "-m",
        "pulsarish",
        "autorecovery",
        *(word for setting in settings for word in ("--set", setting)),
    ]
    with (
        pulsarish.Client(cluster.service_urls()["pulsarish"]) as client,
        (tmp_path / "autorecovery.log").open("w+") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            in_many_ledgers(client, admin, 1_000)
            assert any("bookie-1" in segment for segment in members(admin))
            lose(cluster, "bookie-1")
            until(
                "nobody counts on the lost one",
                lambda: all("bookie-1" not in segment for segment in members(admin)),
            )
            until("nothing lacks copies", lambda: admin.bookies.under_replicated() == [])
            assert read_all(client) == list(range(1_000))
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
        log.seek(0)
        assert "autorecovery ready" in log.read()


def test_a_dead_bookie_is_decommissioned_by_command(start_cluster: StartCluster) -> None:
    # a minute to wait, were it not given up
    settings = [setting for setting in BOOKIE if "lost_bookie" not in setting]
    cluster = start_cluster(bookies=4, brokers=1, settings={"bookie": settings})
    admin = Admin(cluster.admin_url())
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        in_many_ledgers(client, admin, 1_000)
        words = [
            "bookies",
            "decommission",
            "bookie-1",
            "--yes",
            "--admin-url",
            cluster.admin_url(),
            "-o",
            "json",
            "--wait-seconds",
            "50",
        ]
        command = [sys.executable, "-m", "pulsarish", *words]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.returncode == 1
        assert "stop it first" in refused.stderr
        lose(cluster, "bookie-1")
        until(
            "its session has ended",
            lambda: all(row["bookie_id"] != "bookie-1" for row in admin.bookies.list()),
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["done"] is True
        assert all("bookie-1" not in segment for segment in members(admin))
        assert read_all(client) == list(range(1_000))
        # Its name is free again: a bookie with new disks may have it.
        cluster.start(cluster.node("bookie-1"))
        cluster.wait_ready([cluster.node("bookie-1")])
